"""A stand-in for external-dns: reads DNSEndpoints, or annotations of Services, and writes to a zone of BIND.

In: a cluster, a BIND, a policy of ``sync``, a source (``crd`` or ``service``). Out: records, each with a registry mark
of ``owner`` in the zone. Never: a change of what another writer has. The kind DNSEndpoint is made from the type that
Fairlead writes; it is not the official definition. external-dns itself is in ``conformance.externaldns``.
"""

from __future__ import annotations

import asyncio
import contextlib

import dns.exception

from fairlead.api.hostname import DNS_ENDPOINTS
from fairlead.api.kubernetes import SERVICES
from fairlead.api.meta import JSONObject
from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.providers.zones.plan import external_marks, is_external_mark
from fairlead_demo.worlds.clusterapi_kinds import member_crd
from fairlead_demo.worlds.name_servers import Bind

_Records = dict[tuple[str, str], set[str]]
_ANNOTATIONS = "external-dns.alpha.kubernetes.io/"
_EVERY_S = 0.1
_MARK = "heritage=external-dns,external-dns/owner=default,external-dns/resource=crd/fairlead-system/x"


def external_dns_crd() -> JSONObject:
    """Return the definition of DNSEndpoint; names below k8s.io need a mark that they were approved."""
    crd = member_crd(DNS_ENDPOINTS)
    approved = {"api-approved.kubernetes.io": "unapproved, used in tests"}
    return {**crd, "metadata": {**crd["metadata"], "annotations": approved}}


class ExternalDNS:
    """The controller, for one zone."""

    def __init__(self, cluster: Cluster, bind: Bind, *, source: str = "crd") -> None:
        self._cluster = cluster
        self._bind = bind
        self._source = source
        self._task: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()

    def start(self) -> None:
        """Compare and write until ``stop``."""
        self._task = asyncio.create_task(self._run(), name="external-dns")

    async def stop(self) -> None:
        """End; records stay."""
        self._ending.set()
        if self._task is not None:
            await self._task

    async def sync(self) -> None:
        """Reconcile once: delete owned records that no object has, keep records of other owners."""
        wanted = await self._wanted()
        existing = await self._bind.names()
        changes: list[tuple[str, str, str, str]] = []
        zone = self._bind.zone
        foreign = {
            (host, type_)
            for host, type_ in {*wanted, *_split(existing)}
            if any(
                is_external_mark(text)
                for mark in external_marks(host, type_, zone)[:1]
                for text in existing.get(f"{mark.name} TXT", ())
            )
        }
        for host, type_ in sorted({*wanted, *foreign}):
            current = existing.get(f"{host} {type_}", set())
            if current and (host, type_) not in foreign:
                continue
            target_values = wanted.get((host, type_), set())
            mark = external_marks(host, type_, zone)[0].name
            dot = "." if type_ == "CNAME" else ""
            changes += [("delete", host, type_, value + dot) for value in sorted(current - target_values)]
            changes += [("add", host, type_, value + dot) for value in sorted(target_values - current)]
            if bool(target_values) != ((host, type_) in foreign):
                changes.append(("add" if target_values else "delete", mark, "TXT", f'"{_MARK}"'))
        if changes:
            await self._bind.write(*changes)

    async def _run(self) -> None:
        while not self._ending.is_set():
            # A zone or an API that cannot be read now can be read later.
            with contextlib.suppress(FairleadError, OSError, EOFError, dns.exception.DNSException):
                await self.sync()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), _EVERY_S)

    async def _wanted(self) -> _Records:
        wanted: _Records = {}
        if self._source == "service":
            for obj in await self._cluster.list(SERVICES):
                host = obj.annotation(f"{_ANNOTATIONS}hostname")
                for target in obj.annotation(f"{_ANNOTATIONS}target").split(",") if host else ():
                    type_ = "AAAA" if ":" in target else "A" if target[-1:].isdigit() else "CNAME"
                    wanted.setdefault((host, type_), set()).add(target)
            return wanted
        for obj in await self._cluster.list(DNS_ENDPOINTS):
            for each in obj.spec.endpoints or ():
                wanted.setdefault((each.dns_name, each.record_type), set()).update(each.targets or ())
        return wanted


def _split(records: dict[str, set[str]]) -> set[tuple[str, str]]:
    pairs = (key.rpartition(" ") for key in records)
    return {(name, type_) for name, _, type_ in pairs if type_ != "TXT"}
