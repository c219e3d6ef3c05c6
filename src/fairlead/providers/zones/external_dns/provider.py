"""Provider ``external-dns``: names as DNSEndpoint objects, which external-dns writes into its zones.

    read     the objects of the hub's namespace: ours, and those of others for the same names
    update   one object for each name, only in the version that was read
    answers  what the zone's own server answers, some time after external-dns has written it

The annotation of an object has the marks that are TXT records in other zones. An object without our label is another
writer's: its records count, without a mark. A ``Form`` says which fields of an object have what.
In: edits. Out: objects. Never: a changed object of others, or one of ours that has changed since it was read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Protocol

import msgspec

from fairlead.api.hostname import DNS_ENDPOINTS, DNSEndpoint, RecordSet, is_within
from fairlead.api.json_text import decode
from fairlead.api.meta import AnyResource, JSONObject, KubeObject
from fairlead.api.names import ANNOTATION_MARKS, LABEL_MANAGED_BY, MANAGED_BY, MANAGER_HUB, SYSTEM_NAMESPACE, short_hash
from fairlead.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, NotServed, Retry
from fairlead.kube.cluster import Cluster
from fairlead.providers.zones.answers import AnsweringServer
from fairlead.providers.zones.plan import (
    EMPTY,
    TYPES,
    Edit,
    RRKey,
    RRSet,
    RRSets,
    canonical_name,
    canonical_value,
    host_of,
    mark_from_text,
    mark_key,
    mark_text,
)
from fairlead.providers.zones.provider import DNSProvider
from fairlead.providers.zones.settings import ServerSettings
from fairlead.runtime.background import all_done
from fairlead.runtime.clock import Clock


def create(*, cluster: Cluster | None = None, clock: Clock | None = None) -> DNSProvider:
    """Make the provider (entry point ``external-dns``), for the cluster of the hub."""
    form = EndpointForm()
    return DNSProvider(
        make=lambda settings: ObjectServer(settings, form=form, cluster=cluster), own=frozenset(), clock=clock
    )


class EndpointForm:
    """One DNSEndpoint for each name."""

    kind = DNS_ENDPOINTS
    prefix = ""
    missing = "install external-dns's CustomResourceDefinition, and run it with --source=crd"
    refused = "check the version of external-dns's CustomResourceDefinition:"
    manifest = "deploy/kubernetes/external-dns.yaml"

    def records(self, obj: DNSEndpoint) -> Mapping[RRKey, RRSet]:
        """Return the records of an object; types that Fairlead does not write are left out."""
        rrsets: dict[RRKey, RRSet] = {}
        for endpoint in obj.spec.endpoints or ():
            if endpoint.record_type not in TYPES:
                continue
            key = RRKey(canonical_name(endpoint.dns_name), endpoint.record_type)
            values = frozenset(value_of(endpoint.record_type, target) for target in endpoint.targets or ())
            rrsets[key] = RRSet(rrsets.get(key, EMPTY).values | values, endpoint.record_ttl)
        return rrsets

    def body(self, host: str, rrsets: RRSets) -> JSONObject:
        """Return one endpoint for each type."""
        sets = [(type_, rrsets.get(RRKey(host, type_), EMPTY)) for type_ in TYPES]
        endpoints = [RecordSet(host, type_, rrset.ttl, sorted(rrset.values)) for type_, rrset in sets if rrset.values]
        return {"spec": {"endpoints": msgspec.to_builtins(endpoints)}}


#: From so many names on all objects are read at once.
_MANY = 8
_WRITES_AT_ONCE = 16


class ObjectServer(AnsweringServer):
    """The objects of one zone, all of one form, and the server that answers for it."""

    #: external-dns looks at its sources once a minute, unless it is set to do so sooner.
    immediate = False

    def __init__(self, settings: ServerSettings, *, form: Form, cluster: Cluster | None) -> None:
        super().__init__(settings)
        self._form = form
        self._cluster = cluster
        #: What was read last of ours, by host.
        self._held: dict[str, HeldRecords] = {}

    async def check(self) -> int:
        """Ask for the kind, and the server for the zone's serial, which is returned."""
        await self._objects(f"{LABEL_MANAGED_BY}!={MANAGED_BY}")
        return await self.serial()

    async def read(self, keys: Iterable[RRKey]) -> RRSets:
        """Return the records of the objects; registry marks of external-dns in the zone are not read."""
        wanted = set(keys)
        hosts = {key.name for key in wanted}
        others = await self._objects(f"{LABEL_MANAGED_BY}!={MANAGED_BY}")
        ours = await self._ours(hosts)
        self._held = {host: held(self._form, obj) for host, obj in ours.items()}
        there = joined([*self._held.values(), *map(partial(held, self._form), others)])
        return {key: there[key] for key in wanted & there.keys()}

    async def kept(self, keys: Iterable[RRKey]) -> RRSets:
        """Return what the objects have."""
        wanted = set(keys)
        ours = await self._ours({key.name for key in wanted})
        there = joined(map(partial(held, self._form), ours.values()))
        return {key: there[key] for key in wanted & there.keys()}

    async def update(self, edits: Sequence[Edit], there: RRSets) -> bool:
        """Write the objects; False when one of them is no longer as it was read, and that one was not written."""
        del there
        by_host: dict[str, list[Edit]] = {}
        for edit in edits:
            by_host.setdefault(host_of(edit), []).append(edit)
        window = asyncio.Semaphore(_WRITES_AT_ONCE)

        async def write(host: str, edits: Sequence[Edit]) -> bool:
            async with window:
                return await self._write(host, edits)

        return all(await all_done(write(host, host_edits) for host, host_edits in by_host.items()))

    # --- inside -----------------------------------------------------------------------------------------------

    async def _ours(self, hosts: set[str]) -> dict[str, KubeObject]:
        """Return our objects of ``hosts``, which may be names of marks, too."""
        cluster = self._needed()
        zone = self._settings.zone
        # The name of a mark is one of our hosts with a label before it.
        names = {object_name(self._form, host): host for host in (*hosts, *(host.partition(".")[2] for host in hosts))}
        names = {name: host for name, host in names.items() if is_within(host, zone)}
        if len(names) >= _MANY:
            objects = await self._objects(f"{LABEL_MANAGED_BY}={MANAGED_BY}")
        else:
            objects = []
            with self._explained():
                for name in sorted(names):
                    with suppress(NotFound):
                        objects.append(await cluster.get(self._form.kind, SYSTEM_NAMESPACE, name))
        return {names[obj.metadata.name]: obj for obj in objects if is_ours(obj) and obj.metadata.name in names}

    async def _objects(self, selector: str) -> list[KubeObject]:
        with self._explained():
            return await self._needed().list(self._form.kind, SYSTEM_NAMESPACE, label_selector=selector)

    async def _write(self, host: str, edits: Sequence[Edit]) -> bool:
        cluster, before = self._needed(), self._held.get(host, HeldRecords())
        rrsets = changed(before.rrsets, edits)
        name = object_name(self._form, host)
        try:
            with self._explained():
                if not rrsets:
                    await cluster.delete(
                        self._form.kind, SYSTEM_NAMESPACE, name, uid=before.uid, resource_version=before.version
                    )
                elif before.version:
                    made = body(self._form, host, rrsets, version=before.version)
                    await cluster.apply(self._form.kind, made, manager=MANAGER_HUB)
                else:
                    await cluster.create(self._form.kind, body(self._form, host, rrsets))
        except (Conflict, AlreadyExists):
            return False
        except Invalid as error:
            raise Retry(
                f"the {self._form.kind.kind} of {host} is refused; {self._form.refused} {error.sentence}",
                reason=f"{self._form.kind.kind}Refused",
            ) from error
        return True

    def _needed(self) -> Cluster:
        if self._cluster is None:
            raise Retry(
                "this process has no cluster to write objects for external-dns to", reason=f"No{self._form.kind.kind}s"
            )
        return self._cluster

    @contextmanager
    def _explained(self) -> Generator[None]:
        """Say what to do when the kind is not there, or not allowed."""
        kind, reason = self._form.kind.full_name, f"No{self._form.kind.kind}s"
        try:
            yield
        except NotServed as error:
            text = f"the hub's cluster does not have the kind {kind} that external-dns reads; {self._form.missing}"
            raise Retry(text, detail=error.sentence, reason=reason) from error
        except Forbidden as error:
            text = f"the hub may not write {kind} in {SYSTEM_NAMESPACE}; apply {self._form.manifest}"
            raise Retry(text, detail=error.sentence, reason=reason) from error


_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_READABLE = 40


class HeldRecords(msgspec.Struct, frozen=True):
    """The records of the object of one name, and its version that was read; empty for one that is not there."""

    rrsets: Mapping[RRKey, RRSet] = {}
    uid: str = ""
    version: str = ""


class Form(Protocol):
    """The kind of object that external-dns reads, and how it says records.

    ``prefix`` begins the names of the objects. ``missing`` and ``refused`` are the next steps where the kind is not
    served, or refuses an object; ``manifest`` is the file that gives the hub the rights.
    """

    prefix: str
    missing: str
    refused: str
    manifest: str

    @property
    def kind(self) -> AnyResource:
        """Return the kind."""
        ...

    def records(self, obj: Any) -> Mapping[RRKey, RRSet]:
        """Return the records of an object, ours or not, without marks."""
        ...

    def body(self, host: str, rrsets: RRSets) -> JSONObject:
        """Return the records of ``host`` as the object says them, without what every object of ours has."""
        ...


def object_name(form: Form, host: str) -> str:
    """Name the object of ``host``: readable, and unique by a digest of the host."""
    readable = _NOT_IN_NAMES.sub("-", host)[:_READABLE].strip("-")
    return f"{form.prefix}{readable or 'name'}-{short_hash(host, size_bytes=8)}"


def is_ours(obj: KubeObject) -> bool:
    """Return whether Fairlead made an object."""
    return obj.label(LABEL_MANAGED_BY) == MANAGED_BY


def held(form: Form, obj: KubeObject) -> HeldRecords:
    """Return the records of an object, and the marks of one of ours."""
    rrsets = dict(form.records(obj))
    if is_ours(obj):
        for host in {key.name for key in rrsets}:
            rrsets |= _marks(obj, host)
    return HeldRecords(rrsets, obj.metadata.uid, obj.metadata.resource_version)


def joined(parts: Iterable[HeldRecords]) -> dict[RRKey, RRSet]:
    """Return the records of several objects as one zone."""
    rrsets: dict[RRKey, RRSet] = {}
    for part in parts:
        for key, rrset in part.rrsets.items():
            before = rrsets.get(key, EMPTY)
            rrsets[key] = RRSet(before.values | rrset.values, before.ttl or rrset.ttl)
    return rrsets


def changed(before: RRSets, edits: Sequence[Edit]) -> dict[RRKey, RRSet]:
    """Return the sets of an object after ``edits``; empty ones are left out."""
    rrsets = dict(before)
    for edit in edits:
        there = rrsets.get(edit.key, EMPTY)
        if edit.add:
            rrsets[edit.key] = RRSet(there.values | {edit.value}, edit.ttl)
        else:
            rrsets[edit.key] = RRSet(there.values - {edit.value}, there.ttl)
    return {key: rrset for key, rrset in rrsets.items() if rrset.values}


def body(form: Form, host: str, rrsets: RRSets, *, version: str = "") -> JSONObject:
    """Return the object of ``host``; with ``version`` it replaces only that version of it."""
    marks: dict[str, list[str]] = {}
    for type_ in TYPES:
        own = rrsets.get(mark_key(host, type_), EMPTY).values
        if texts := sorted(text for text in own if mark_from_text(text) is not None):
            marks[type_] = texts
    content = form.body(host, rrsets)
    metadata: JSONObject = {
        "name": object_name(form, host),
        "namespace": SYSTEM_NAMESPACE,
        "labels": {LABEL_MANAGED_BY: MANAGED_BY},
        "annotations": {**content.get("annotations", {}), ANNOTATION_MARKS: msgspec.json.encode(marks).decode()},
    }
    if version:
        metadata["resourceVersion"] = version
    return {"metadata": metadata, "spec": content["spec"]}


def _marks(obj: KubeObject, host: str) -> dict[RRKey, RRSet]:
    try:
        by_type = decode(obj.annotation(ANNOTATION_MARKS, "{}"), dict[str, list[str]])
    except msgspec.DecodeError:
        return {}  # records without a mark are not ours
    return {
        mark_key(host, type_): RRSet(frozenset(mark_text(mark) for mark in map(mark_from_text, texts) if mark), 1)
        for type_, texts in by_type.items()
        if type_ in TYPES
    }


def value_of(type_: str, target: str) -> str:
    """Return a target as a value of that type; an invalid one, of another writer, is returned unchanged."""
    try:
        return canonical_value(type_, target)
    except ValueError:
        return target
