"""The client certificates of all groups of proxies, renewed weeks before they end.

In: which Secret belongs to which group. Out: those Secrets, in the groups' namespaces, written by the leader when they
are missing, of another authority, or near their end; kubelets mount them for the proxies, which read them anew.
Never: lists Secrets (each is read by its name, once at the start of a term and then before it is due), or writes one
that is good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import structlog

from fairlead.api.kubernetes import SECRETS
from fairlead.api.names import MANAGER_HUB
from fairlead.errors import FairleadError, NotFound, Terminal
from fairlead.kube.cluster import Cluster
from fairlead.providers.envoy.kubernetes.authority import SharedAuthority
from fairlead.providers.envoy.kubernetes.certificates import client_certificate, client_is_good, renew_in_s
from fairlead.providers.envoy.kubernetes.manifests import ObjectRef
from fairlead.providers.envoy.kubernetes.secrets import data_of, pair_data, pair_of, secret_manifest
from fairlead.runtime.clock import Clock
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue

#: A Secret is read again at least this often: it may have been deleted or damaged.
_CHECK_S = 600.0
_REFUSED_S = 60.0

log = structlog.get_logger(__name__)


class _Wanted(msgspec.Struct, frozen=True):
    group: str
    labels: Mapping[str, str]


class ClientCertificates:
    """Keeps one Secret for each group."""

    def __init__(self, *, cluster: Cluster, shared: SharedAuthority, clock: Clock, leading: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._shared = shared
        self._clock = clock
        self._leading = leading
        self._wanted: dict[ObjectRef, _Wanted] = {}
        self._queue: KeyedQueue[ObjectRef] = KeyedQueue(clock=clock)
        shared.on_change(self.reconcile_all)

    def want(self, ref: ObjectRef, group: str, labels: Mapping[str, str]) -> None:
        """Keep a certificate of ``group`` in the Secret ``ref`` from now on."""
        wanted = _Wanted(group, dict(labels))
        if self._wanted.get(ref) != wanted:
            self._wanted[ref] = wanted
            self._queue.add(ref)

    def forget(self, ref: ObjectRef) -> None:
        """Keep ``ref`` no more."""
        self._wanted.pop(ref, None)

    def reconcile_all(self) -> None:
        """Check all of them now: we lead, or the authority is another."""
        for ref in self._wanted:
            self._queue.add(ref)

    async def run(self) -> None:
        """Work until cancelled."""
        await run_workers(self._queue, self._reconcile, workers=4, name="client-certificate")

    async def _reconcile(self, ref: ObjectRef) -> float | None:
        wanted = self._wanted.get(ref)
        if wanted is None or not self._leading():
            return None
        try:
            return await self._renew(ref, wanted)
        except Terminal as error:
            log.warning("no client certificate", group=wanted.group, sentence=error.sentence)
            return _REFUSED_S

    async def _renew(self, ref: ObjectRef, wanted: _Wanted) -> float:
        authority, now = self._shared.authority, self._clock.now()
        try:
            data = data_of(await self._cluster.get(SECRETS, ref.namespace, ref.name))
        except NotFound:
            data = {}
        pair = pair_of(data)
        if not client_is_good(pair, authority, wanted.group, now) or data.get("ca.crt") != authority.trusted:
            pair = client_certificate(authority, wanted.group, now)
            data = pair_data(pair, authority.trusted)
            manifest = secret_manifest(ref.namespace, ref.name, data, wanted.labels)
            await self._cluster.apply(SECRETS, manifest, manager=MANAGER_HUB)
            log.info("client certificate issued", group=wanted.group)
            if ref not in self._wanted:
                # The group was deleted while we wrote.
                await self._delete_or_log(ref)
        return min(_CHECK_S, renew_in_s(pair.certificate, now) + 1.0)

    async def _delete_or_log(self, ref: ObjectRef) -> None:
        try:
            await self._cluster.delete(SECRETS, ref.namespace, ref.name)
        except FairleadError as error:
            log.warning("a client certificate is left behind", name=ref.name, sentence=error.sentence)
