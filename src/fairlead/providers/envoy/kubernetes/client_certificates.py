"""Has every group of proxies a client certificate that is good for weeks to come?

In: which Secret belongs to which group. Out: those Secrets, in the groups' namespaces, written by the leader when they
are missing, of another authority, or near their end; kubelets bring them to the proxies, which read them anew.
Never: lists Secrets (each is read by its name, once at the start of a term and then before it is due), or writes one
that is good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import structlog

from fairlead.api.kubernetes import SECRETS, Secret
from fairlead.api.names import MANAGER_HUB
from fairlead.errors import FairleadError, NotFound, Terminal
from fairlead.kube.cluster import Cluster
from fairlead.providers.envoy.kubernetes.authority import SharedAuthority, data_of, secret_manifest
from fairlead.providers.envoy.kubernetes.certificates import Pair, client_certificate, client_is_good, renew_in_s
from fairlead.providers.envoy.kubernetes.fleet import ObjectRef
from fairlead.runtime.clock import Clock
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue

#: At the latest then a Secret is looked at again: it may have been deleted or damaged.
_LOOK_S = 600.0
_REFUSED_S = 60.0

log = structlog.get_logger(__name__)


class _Wish(msgspec.Struct, frozen=True):
    group: str
    labels: Mapping[str, str]


class ClientCertificates:
    """Keeps one Secret for each group."""

    def __init__(self, *, cluster: Cluster, shared: SharedAuthority, clock: Clock, leading: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._shared = shared
        self._clock = clock
        self._leading = leading
        self._wanted: dict[ObjectRef, _Wish] = {}
        self._queue: KeyedQueue[ObjectRef] = KeyedQueue(clock=clock)
        shared.on_change(self.look_again)

    def want(self, ref: ObjectRef, group: str, labels: Mapping[str, str]) -> None:
        """See to it from now on that ``ref`` holds a certificate of ``group``."""
        wish = _Wish(group, dict(labels))
        if self._wanted.get(ref) != wish:
            self._wanted[ref] = wish
            self._queue.add(ref)

    def forget(self, ref: ObjectRef) -> None:
        """Stop caring for ``ref``."""
        self._wanted.pop(ref, None)

    def look_again(self) -> None:
        """Look at all of them now: we lead, or the authority is another."""
        for ref in self._wanted:
            self._queue.add(ref)

    async def run(self) -> None:
        """Work until cancelled."""
        await run_workers(self._queue, self._keep, workers=4, name="client-certificate")

    async def _keep(self, ref: ObjectRef) -> float | None:
        wish = self._wanted.get(ref)
        if wish is None or not self._leading():
            return None
        try:
            return await self._renew(ref, wish)
        except Terminal as error:
            log.warning("no client certificate", group=wish.group, sentence=error.sentence)
            return _REFUSED_S

    async def _renew(self, ref: ObjectRef, wish: _Wish) -> float:
        authority, now = self._shared.authority, self._clock.now()
        try:
            secret: Secret = await self._cluster.get(SECRETS, ref.namespace, ref.name)
            data = data_of(secret)
        except NotFound:
            data = {}
        pair = Pair(data.get("tls.crt", b""), data.get("tls.key", b""))
        if not client_is_good(pair, authority, wish.group, now) or data.get("ca.crt") != authority.trusted:
            pair = client_certificate(authority, wish.group, now)
            data = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.trusted}
            manifest = secret_manifest(ref.namespace, ref.name, data, wish.labels)
            await self._cluster.apply(SECRETS, manifest, manager=MANAGER_HUB)
            log.info("client certificate issued", group=wish.group)
            if ref not in self._wanted:
                # The group went while we wrote.
                await self._delete_quietly(ref)
        return min(_LOOK_S, renew_in_s(pair.certificate, now) + 1.0)

    async def _delete_quietly(self, ref: ObjectRef) -> None:
        try:
            await self._cluster.delete(SECRETS, ref.namespace, ref.name)
        except FairleadError as error:
            log.warning("a client certificate is left behind", name=ref.name, sentence=error.sentence)
