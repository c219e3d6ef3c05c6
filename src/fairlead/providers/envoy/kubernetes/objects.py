"""Keeps the objects of the fleet in the cluster, and no other objects of ours.

    fleet ──apply──► wanted ──┐                        same hash in the cache, or we do not lead    nothing
                              ├─► queue ─► one object ─┤
    cache: changed, gone ─────┘                        anything else                                one apply

In: manifests that carry a hash of themselves. Out: objects, written in the background by the leader: the data plane
never waits for the API server. An operator's change to one of them is kept until its manifest changes; what is
deleted is written again. Never: deletes what is not labelled as ours, or lists Secrets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import structlog

from fairlead.api.kinds import LOAD_BALANCER_KINDS
from fairlead.api.kubernetes import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NETWORK_POLICIES,
    POD_DISRUPTION_BUDGETS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Service,
)
from fairlead.api.meta import AnyResource, JSONObject, KubeObject
from fairlead.api.names import LABEL_MANAGED_BY, MANAGED_BY, MANAGER_HUB
from fairlead.errors import FairleadError, Terminal
from fairlead.kube.cache import AnyCache, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import Applier
from fairlead.model.keys import LoadBalancerKey, Protocol
from fairlead.providers.envoy.certificates import ClientCertificates
from fairlead.providers.envoy.kubernetes.fleet import ServiceAddresses
from fairlead.providers.envoy.kubernetes.manifests import (
    GROUP_LABEL,
    HASH_ANNOTATION,
    LOAD_BALANCER_ANNOTATION,
    Manifest,
    ManifestRef,
    group_name,
    group_of,
    hash_of,
    ref_of,
)
from fairlead.runtime.clock import Clock
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedLock, KeyedQueue

WRITTEN = (SERVICE_ACCOUNTS, CONFIG_MAPS, DEPLOYMENTS, POD_DISRUPTION_BUDGETS, NETWORK_POLICIES, SERVICES)
#: The kinds of load balancers that proxies serve.
_OURS = f"{LABEL_MANAGED_BY}={MANAGED_BY},{GROUP_LABEL}"
_REFUSED_S = 30.0

log = structlog.get_logger(__name__)


class ClusterObjects:
    """``KubeObjects`` on a real API."""

    def __init__(
        self, *, cluster: Cluster, certificates: ClientCertificates, clock: Clock, leading: Callable[[], bool]
    ) -> None:
        self._cluster = cluster
        self._certificates = certificates
        self._leading = leading
        self._resources = {(kind.api_version, kind.kind): kind for kind in (*WRITTEN, SECRETS)}
        self.caches: dict[AnyResource, AnyCache] = {
            kind: WatchCache(cluster, kind, label_selector=_OURS) for kind in WRITTEN
        }
        self._applier = Applier(cluster, manager=MANAGER_HUB, caches=self.caches)
        self._wanted: dict[ManifestRef, Manifest] = {}
        #: Deleted by the fleet while another replica led, and still there: ours to delete when we lead.
        self._unwanted: set[ManifestRef] = set()
        self._problems: dict[ManifestRef, str] = {}
        self._queue: KeyedQueue[ManifestRef] = KeyedQueue(clock=clock)
        #: One object is never written and deleted at the same time.
        self._locks = KeyedLock()
        self._notify: list[Callable[[ServiceAddresses], None]] = []
        for resource, cache in self.caches.items():
            cache.on_change(self._observer(resource))

    # --- what the fleet asks for ------------------------------------------------------------------------------

    async def apply(self, manifest: Manifest) -> None:
        """Keep this object from now on; it is written soon if this replica leads and the object differs."""
        ref = ref_of(manifest)
        self._wanted[ref] = manifest
        self._unwanted.discard(ref)
        if self._differs(ref):
            self._queue.add(ref)

    async def certify(self, ref: ManifestRef, *, group: str, labels: Mapping[str, str]) -> None:
        """Keep a Secret with a client certificate of this group."""
        self._certificates.want(ref, group, labels)

    async def delete(self, ref: ManifestRef) -> None:
        """Delete the object if we lead; a follower will when it leads, unless the leader has done it by then."""
        self._wanted.pop(ref, None)
        self._certificates.forget(ref)
        self._problems.pop(ref, None)
        async with self._locks.hold(ref):
            if ref in self._wanted:
                return
            if self._leading():
                await self._delete(ref)
            elif self._there(ref) is not None:
                self._unwanted.add(ref)

    async def owned(self) -> Sequence[ManifestRef]:
        """List our objects whose load balancers no longer exist, by a fresh list of the load balancers.

        A load balancer that exists keeps what it has, even if this process does not know what it needs: an
        object that is missing in our caches, or refused, does not take an address away.
        """
        objects = [(resource, obj) for resource, cache in self.caches.items() for obj in list(cache.values())]
        if all(self._ref(resource, obj) in self._wanted for resource, obj in objects):
            return []
        alive: set[str] = set()
        groups: set[str] = set()
        for served in LOAD_BALANCER_KINDS:
            for load_balancer in await self._cluster.list(served):
                key = LoadBalancerKey(served.kind, *load_balancer.key)
                alive.add(str(key))
                if not load_balancer.deleting:
                    groups.add(group_name(group_of(key)))
        return [
            self._ref(resource, obj)
            for resource, obj in objects
            if (owner := obj.annotation(LOAD_BALANCER_ANNOTATION)) not in alive
            and (owner or obj.label(GROUP_LABEL) not in groups)
        ]

    def on_service_addresses(self, notify: Callable[[ServiceAddresses], None]) -> None:
        """Call ``notify`` with the addresses of each Service of ours whenever they change."""
        self._notify.append(notify)

    # --- life -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the caches and write the wanted objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self.caches.values():
                group.create_task(cache.run())
            group.create_task(run_workers(self._queue, self._reconcile, workers=4, name="proxy-object"))

    async def wait_synced(self) -> None:
        """Return once the caches are filled: before that, every object would seem to be missing."""
        for cache in self.caches.values():
            await cache.wait_synced()

    def reconcile_all(self) -> None:
        """Check all wanted objects and pending deletions, because this replica leads now."""
        for ref in (*self._wanted, *self._unwanted):
            self._queue.add(ref)

    @property
    def busy(self) -> bool:
        """Return whether an object is being written or is waiting to be written."""
        return bool(len(self._queue) or self._queue.processing)

    def problems(self) -> list[str]:
        """Return why the view of the objects is incomplete, one sentence each; none if it is complete."""
        return [f"{resource.plural}: {cache.problem}" for resource, cache in self.caches.items() if cache.problem]

    # --- one object -------------------------------------------------------------------------------------------

    async def _reconcile(self, ref: ManifestRef) -> float | None:
        async with self._locks.hold(ref):
            manifest = self._wanted.get(ref)
            if not self._leading() or (ref not in self._unwanted if manifest is None else not self._differs(ref)):
                return None
            resource = self._resources[ref.api_version, ref.kind]
            try:
                if manifest is None:
                    await self._delete(ref)
                else:
                    await self._applier.ensure(resource, cast("JSONObject", manifest))
            except Terminal as error:
                self._report_problem(ref, error)
                return _REFUSED_S
            except FairleadError as error:
                self._report_problem(ref, error)
                raise
            if self._problems.pop(ref, ""):
                self._report(ref)
        return None

    async def _delete(self, ref: ManifestRef) -> None:
        resource = self._resources[ref.api_version, ref.kind]
        if resource is CONFIG_MAPS:
            # First: it is not watched, and would not be found without its group.
            await self._cluster.delete(SECRETS, ref.namespace, ref.name)
        await self._cluster.delete(resource, ref.namespace, ref.name)
        self._applier.forget(resource, ref.namespace, ref.name)
        self._unwanted.discard(ref)

    def _there(self, ref: ManifestRef) -> KubeObject | None:
        cache = self.caches.get(self._resources[ref.api_version, ref.kind])
        return cache.get(ref.namespace, ref.name) if cache is not None else None

    def _differs(self, ref: ManifestRef) -> bool:
        """Return whether the object must be written; one on its way out is waited for, its DELETED event wakes us."""
        there = self._there(ref)
        if there is None:
            return True
        if there.deleting:
            return False
        return there.annotation(HASH_ANNOTATION) != hash_of(self._wanted[ref])

    def _observer(self, resource: AnyResource) -> Callable[[KubeObject | None, KubeObject | None], None]:
        def changed(old: KubeObject | None, new: KubeObject | None) -> None:
            obj = new or old
            if obj is None:
                return
            ref = self._ref(resource, obj)
            if new is None:
                self._unwanted.discard(ref)
                self._applier.forget(resource, ref.namespace, ref.name)
            if ref in self._wanted and self._differs(ref):
                self._queue.add(ref)
            if resource is SERVICES:
                self._report(ref)

        return changed

    def _report(self, ref: ManifestRef) -> None:
        if ref.kind != SERVICES.kind:
            return
        service: Service | None = self.caches[SERVICES].get(ref.namespace, ref.name)
        ingress = (service.status.load_balancer.ingress or ()) if service is not None else ()
        addresses = tuple(entry.address for entry in ingress if entry.address)
        udp = udp_ports(service) if service is not None else {}
        status = ServiceAddresses(ref.namespace, ref.name, addresses, self._problems.get(ref, ""), udp)
        for notify in self._notify:
            notify(status)

    def _report_problem(self, ref: ManifestRef, error: FairleadError) -> None:
        if self._problems.get(ref) == error.sentence:
            return
        self._problems[ref] = error.sentence
        log.warning("not written", kind=ref.kind, name=f"{ref.namespace}/{ref.name}", sentence=error.sentence)
        self._report(ref)

    def _ref(self, resource: AnyResource, obj: KubeObject) -> ManifestRef:
        return ManifestRef(resource.api_version, resource.kind, *obj.key)


_PORTS_ERROR = "LoadBalancerPortsError"


def udp_ports(service: Service) -> dict[int, str]:
    """Return the UDP ports of a Service, and why its load balancer does not serve them; empty if it does not say so.

    An address that lists ports must list all that it serves. Most load balancers list none.
    Source: https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/1435-mixed-protocol-lb
    """
    errors: dict[int, str] = {}
    failed = [
        entry for entry in service.status.conditions or () if entry.type == _PORTS_ERROR and entry.status == "True"
    ]
    for number in [port.port for port in service.spec.ports or () if port.protocol == Protocol.UDP]:
        what, problems = f"the load balancer of Service {'/'.join(service.key)}", list[str]()
        for entry in service.status.load_balancer.ingress or ():
            listed = [port for port in entry.ports or () if (port.port, port.protocol) == (number, Protocol.UDP)]
            problems += [f"{what} rejects UDP/{number}: {port.error}" for port in listed if port.error]
            if entry.ports and not listed:
                problems.append(f"{what} does not serve UDP/{number} at {entry.address}")
        if failed and not any(entry.ports for entry in service.status.load_balancer.ingress or ()):
            problems.append(f"{what} reports {failed[0].reason}: {failed[0].message}")
        errors[number] = next(iter(problems), "")
    return errors
