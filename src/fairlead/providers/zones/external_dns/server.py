"""A zone whose records external-dns writes.

    read     the objects of the hub's namespace: ours, and those of others for the same names
    update   one object for each name, only in the version that was read
    answers  what the zone's own server answers, some time after external-dns has written it

In: edits. Out: objects. Never: an object of others changed, or one of ours that has changed since it was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from fairlead.api.hostname import is_within
from fairlead.api.meta import KubeObject
from fairlead.api.names import LABEL_MANAGED_BY, MANAGED_BY, MANAGER_HUB, SYSTEM_NAMESPACE
from fairlead.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, NotServed, Retry
from fairlead.kube.cluster import Cluster
from fairlead.providers.zones.answers import AnsweringServer
from fairlead.providers.zones.external_dns.objects import Form, Held, body, changed, held, is_ours, joined, object_name
from fairlead.providers.zones.marks import host_of
from fairlead.providers.zones.rrsets import Edit, RRKey, RRSets
from fairlead.providers.zones.settings import ServerSettings
from fairlead.runtime.background import all_done

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
        self._held: dict[str, Held] = {}

    async def check(self) -> int:
        """Ask for the kind, and the server for the zone's serial, which is returned."""
        await self._objects(f"{LABEL_MANAGED_BY}!={MANAGED_BY}")
        return await self.serial()

    async def read(self, keys: Iterable[RRKey]) -> RRSets:
        """Return what the objects have; whose records are marked in the zone by external-dns is its own business."""
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

        return all(await all_done(write(host, each) for host, each in by_host.items()))

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
            for name in sorted(names):
                try:
                    objects.append(await cluster.get(self._form.kind, SYSTEM_NAMESPACE, name))
                except NotFound:
                    continue
                except NotServed as error:
                    raise self._not_served(error) from error
                except Forbidden as error:
                    raise self._not_allowed(error) from error
        return {names[obj.metadata.name]: obj for obj in objects if is_ours(obj) and obj.metadata.name in names}

    async def _objects(self, selector: str) -> list[KubeObject]:
        cluster = self._needed()
        try:
            return await cluster.list(self._form.kind, SYSTEM_NAMESPACE, label_selector=selector)
        except NotServed as error:
            raise self._not_served(error) from error
        except Forbidden as error:
            raise self._not_allowed(error) from error

    async def _write(self, host: str, edits: Sequence[Edit]) -> bool:
        cluster, before = self._needed(), self._held.get(host, Held())
        rrsets = changed(before.rrsets, edits)
        name = object_name(self._form, host)
        try:
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
        except NotServed as error:
            raise self._not_served(error) from error
        except Forbidden as error:
            raise self._not_allowed(error) from error
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

    def _not_served(self, error: NotServed) -> Retry:
        return Retry(
            f"the hub's cluster does not have the kind {self._form.kind.full_name} that external-dns is to read; "
            f"{self._form.missing}",
            detail=error.sentence,
            reason=f"No{self._form.kind.kind}s",
        )

    def _not_allowed(self, error: Forbidden) -> Retry:
        kind = self._form.kind.full_name
        return Retry(
            f"the hub may not write {kind} in {SYSTEM_NAMESPACE}; apply {self._form.manifest}",
            detail=error.sentence,
            reason=f"No{self._form.kind.kind}s",
        )
