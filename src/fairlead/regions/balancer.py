"""The own layer 2: PoolServices of Fairlead's classes become TCPLoadBalancers that a hub serves, and their status.

    wanted   hold ─► view ─► translate ─► Publisher ─► status, Events
    leaving  delete what was published, then release the finalizer

In: keys of PoolServices. Out: objects for a hub, and the PoolServices' status. Never: touches a PoolService of another
class, or a TCPLoadBalancer that was not made for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.meta import KubeObject, ObjectKey, transitions
from fairlead.api.names import (
    ANNOTATION_BACKENDS,
    FINALIZER_LOAD_BALANCER,
    LABEL_ORIGIN_KIND,
    MANAGER_BALANCER,
    label_value,
)
from fairlead.api.poolservice import POOL_SERVICES, PoolService, PoolServiceStatus
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.api.times import wire_time
from fairlead.errors import Invalid, NotFound, NotRead, Retry
from fairlead.kube.cache import AnyCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import NOT_READ, EventRecorder, EventWriter
from fairlead.kube.writes import CoalescingWriter, emit_transitions, hold, release
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.publish.objects import Present, Publication, Refused, plan_publication
from fairlead.publish.publisher import Publisher, published_load_balancers, published_slices
from fairlead.regions.balancer_plan import (
    build_status,
    is_our_class,
    load_balancer_name,
    made_for,
    published_backends,
    slices_in_effect,
    translate,
)
from fairlead.regions.inventory import Changes, RegionsInventory
from fairlead.regions.source import Backends, ServiceKey, decode_backends, region_of
from fairlead.runtime.queue import KeyedQueue

#: Fields of the status that this layer 2 does not write.
_OF_OTHERS = ("aggregateToAnnotations", "aggregateToLabels")


class Balancer:
    """Reconciles the load balancer of one PoolService."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: RegionsInventory,
        changes: Changes,
        events: EventRecorder,
        leading: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._leading = leading
        self.watch = BalancerWatch(cluster=cluster, inventory=inventory, changes=changes)
        self._publisher = Publisher(
            hub=cluster,
            load_balancers=self.watch.load_balancers,
            slices=self.watch.slices,
            manager=MANAGER_BALANCER,
            may_write=leading,
        )
        self._events = events
        self._not_read = EventWriter(recorder=events, resource=POOL_SERVICES)
        inventory.pool_services.on_change(self._not_read.forget_deleted)
        self._writer: CoalescingWriter[PoolService] = CoalescingWriter(
            cluster,
            POOL_SERVICES,
            objects=inventory.written,
            clock=cluster.clock,
            manager=MANAGER_BALANCER,
            others=_OF_OTHERS,
            patience_s=0.0,  # the Service shows an address until the region no longer has it
        )
        self._finalization = PoolServiceFinalization(
            cluster=cluster, inventory=inventory, publisher=self._publisher, writer=self._writer
        )

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Reconcile one key; return in how many seconds to reconcile again, None for no time."""
        if not self._leading():
            return None
        pool_service = self._inventory.written.get(*key)
        if pool_service is None:
            self._inventory.pool_services.check_read(*key)
            self._writer.forget(*key)
        if pool_service is None or pool_service.deleting or not is_our_class(pool_service):
            return await self._finalization.finalize(key, pool_service)
        self._finalization.forget(key)
        if not pool_service.held_by(FINALIZER_LOAD_BALANCER):
            # The finalizer comes first, so that no later object is leaked. The change enqueues the key.
            await self._hold(pool_service)
            return None
        with self._not_read.warn_on(pool_service, NOT_READ, NotRead, source="load balancer"):
            view = read_view(self._inventory, self._publisher, pool_service)
            try:
                self._inventory.check_read_pool(pool_service.spec.nodepool_name)
            except Retry:
                await self._follow(view)  # the region is unknown
                raise
        refused = await self._publish(view)
        load_balancer = None if view.occupied else self._published(pool_service)
        now = wire_time(self._cluster.clock.now())
        new = build_status(pool_service, load_balancer, refused, now=now)
        old = pool_service.status
        written, wait_s = await self._writer.write(pool_service, old, new)
        if written is not None:
            changes = transitions(old.conditions, new.conditions)
            good = {
                ConditionType.PROGRAMMED.value: f"programmed at {new.address}",
                ConditionType.SERVING.value: f"serving at {new.address}",
            }
            emit_transitions(self._events, POOL_SERVICES, pool_service, changes, good=good)
        return wait_s or None

    async def _hold(self, pool_service: PoolService) -> None:
        try:
            await hold(self._cluster, POOL_SERVICES, pool_service, FINALIZER_LOAD_BALANCER, manager=MANAGER_BALANCER)
        except NotFound:
            return

    async def _publish(self, view: PoolServiceView) -> Refused | None:
        """Write the differences; return why the PoolService cannot be served."""
        present = view.present.load_balancer
        if view.occupied:
            name = load_balancer_name(view.pool_service.metadata.name)
            sentence = f"TCPLoadBalancer {name} was not made for this PoolService; it is left alone"
            return Refused(ConditionReason.INVALID, sentence)
        if present is not None and present.deleting:
            return None  # its successor is made when it is gone, which enqueues the key
        desired = translate(view.pool_service, view.backends, region=view.region)
        if isinstance(desired, Refused):
            await self._follow(view)
            return desired
        if present is not None and present.spec.region != view.region:
            # The hub of another region has other addresses: this one ends there, and is created here when it is gone.
            await self._publisher.load_balancers.delete([present], "the region has another hub")
            return None
        plan = plan_publication(desired, view.present, is_ours=_is_ours)
        try:
            await self._publisher.load_balancers.write(plan.of_load_balancer)
        except Invalid as error:
            await self._follow(view)
            return Refused(ConditionReason.INVALID, error.sentence)
        await self._publisher.slices.write(plan.of_slices)
        return None

    async def _follow(self, view: PoolServiceView) -> None:
        """Publish the endpoints of the version that stays in effect while that of the PoolService is refused."""
        load_balancer = view.present.load_balancer
        if load_balancer is not None:
            slices = slices_in_effect(view.pool_service, view.backends, load_balancer)
            plan = plan_publication(Publication(load_balancer, slices), view.present, is_ours=_is_ours)
            await self._publisher.slices.write(plan.of_slices)

    def _published(self, pool_service: PoolService) -> TCPLoadBalancer | None:
        return read_present(self._publisher, pool_service.key).load_balancer


def _is_ours(_published: KubeObject) -> bool:
    """Return whether a cached object is ours; the caches hold only objects with our labels."""
    return True


# --- caches and keys -------------------------------------------------------------------------------------------------


class BalancerWatch:
    """The caches that only layer 2 needs, connected to its queue; made once, before the caches run."""

    def __init__(self, *, cluster: Cluster, inventory: RegionsInventory, changes: Changes) -> None:
        self._inventory = inventory
        made = f"{LABEL_ORIGIN_KIND}={POOL_SERVICES.kind}"
        self.load_balancers = published_load_balancers(cluster, label_selector=made)
        self.slices = published_slices(cluster, label_selector=made)
        self.queue: KeyedQueue[ObjectKey] = KeyedQueue(clock=cluster.clock)
        inventory.pool_services.on_change(self._pool_service)
        changes.on_access.append(self._service)
        changes.on_pools.append(self._pool)
        self.load_balancers.on_object(lambda load_balancer: self.queue.add(_origin(load_balancer)))
        self.slices.on_object(self._slice)

    @property
    def caches(self) -> Mapping[str, AnyCache]:
        """Return the caches by the name under which readiness shows them."""
        return {"tcploadbalancers": self.load_balancers, "endpointslices (ours)": self.slices}

    def keys(self) -> list[ObjectKey]:
        """Return every PoolService that exists, and every one for which a load balancer was created."""
        keys = {pool_service.key for pool_service in self._inventory.pool_services.values()}
        keys |= {_origin(load_balancer) for load_balancer in self.load_balancers.values()}
        return sorted(keys)

    def _pool_service(self, old: PoolService | None, new: PoolService | None) -> None:
        for version in (old, new):
            if version is not None and (is_our_class(version) or version.held_by(FINALIZER_LOAD_BALANCER)):
                self.queue.add(version.key)

    def _service(self, key: ServiceKey) -> None:
        for _, pool_service in self._inventory.pool_services_of(key):
            if pool_service.deleting and pool_service.held_by(FINALIZER_LOAD_BALANCER):
                self.queue.add(pool_service.key)

    def _pool(self, pool: str) -> None:
        for pool_service in self._inventory.pool_services.by_index("pool", pool):
            if is_our_class(pool_service):
                self.queue.add(pool_service.key)

    def _slice(self, endpoint_slice: EndpointSlice) -> None:
        for reference in endpoint_slice.metadata.owner_references or ():
            self.queue.add(ObjectKey(endpoint_slice.metadata.namespace, reference.name))


def _origin(load_balancer: TCPLoadBalancer) -> ObjectKey:
    return ObjectKey(load_balancer.metadata.namespace, load_balancer.spec.origin.name)


# --- removal ---------------------------------------------------------------------------------------------------------

#: How long a load balancer outlives its PoolService's deletion while its address is still shown, at most.
UNION_PATIENCE_S = 30.0
_RETRY_S = 1.0


class PoolServiceFinalization:
    """Deletes the objects that were created for PoolServices."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: RegionsInventory,
        publisher: Publisher,
        writer: CoalescingWriter[PoolService],
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._publisher = publisher
        self._writer = writer
        self._since_s: dict[ObjectKey, float] = {}

    def forget(self, key: ObjectKey) -> None:
        """Reset the grace period of a PoolService that is wanted again."""
        self._since_s.pop(key, None)

    async def finalize(self, key: ObjectKey, pool_service: PoolService | None) -> float | None:
        """Reconcile one key; return in how many seconds to reconcile again, None for no time."""
        held = pool_service if pool_service is not None and pool_service.held_by(FINALIZER_LOAD_BALANCER) else None
        present = read_present(self._publisher, key)
        load_balancer = present.load_balancer
        if load_balancer is not None and made_for(load_balancer, key[1]):
            if held is not None and self._is_shown(held):
                return _RETRY_S
            await self._publisher.load_balancers.delete([load_balancer], "the PoolService is gone")
            return None  # its end enqueues the key
        await self._publisher.slices.delete(present.slices, "the load balancer is gone")
        if held is not None:
            self.forget(key)
            if not held.deleting:
                # Another class has it now: the status is no longer true.
                await self._writer.write(held, held.status, PoolServiceStatus())
            await release(self._cluster, POOL_SERVICES, held, FINALIZER_LOAD_BALANCER, manager=MANAGER_BALANCER)
        return None

    def _is_shown(self, pool_service: PoolService) -> bool:
        """Return whether the Service still shows this region's address within the grace period."""
        region = region_of(pool_service)
        service = self._inventory.service(region.service_key) if region is not None else None
        if region is None or service is None or service.deleting:
            return False
        only_here = _addresses(pool_service)
        for _, other in self._inventory.pool_services_of(region.service_key):
            if other.metadata.uid != pool_service.metadata.uid and not other.deleting:
                only_here -= _addresses(other)
        if not only_here & {ingress.address for ingress in service.status.load_balancer.ingress or ()}:
            return False
        now_s = self._cluster.clock.monotonic()
        return now_s - self._since_s.setdefault(pool_service.key, now_s) < UNION_PATIENCE_S


def _addresses(pool_service: PoolService) -> set[str]:
    return {ingress.address for ingress in pool_service.status.load_balancer.ingress or ()}


# --- view ------------------------------------------------------------------------------------------------------------


class PoolServiceView(msgspec.Struct, frozen=True):
    """``region`` is the label value of the region of the hub that serves it; ``present`` is what is published.

    ``occupied``: there is a TCPLoadBalancer of its name that was not made for it.
    """

    pool_service: PoolService
    backends: Backends
    region: str
    present: Present
    occupied: bool


def read_view(inventory: RegionsInventory, publisher: Publisher, pool_service: PoolService) -> PoolServiceView:
    """Gather the input of the decision about a PoolService."""
    present = read_present(publisher, pool_service.key)
    load_balancer = present.load_balancer
    pool = inventory.pool(pool_service.spec.nodepool_name)
    return PoolServiceView(
        pool_service=pool_service,
        backends=_backends(inventory, pool_service, present),
        region=label_value(pool.region if pool is not None else pool_service.spec.nodepool_name),
        present=present,
        occupied=load_balancer is not None and not made_for(load_balancer, pool_service.metadata.name),
    )


def read_present(publisher: Publisher, key: tuple[str, str]) -> Present:
    """Return the objects published under the name of a PoolService's TCPLoadBalancer."""
    return publisher.present(key[0], load_balancer_name(key[1]))


def _backends(inventory: RegionsInventory, pool_service: PoolService, present: Present) -> Backends:
    """Return the backends in the PoolService, or in the cluster if they do not fit into an annotation."""
    backends = decode_backends(pool_service.annotation(ANNOTATION_BACKENDS)) or Backends()
    region = region_of(pool_service)
    if not backends.truncated or region is None:
        return backends
    service = inventory.service_in_effect(region.service_key, pool_service)
    if service is None:
        return backends
    return inventory.backends(service, region.pool, [], published=published_backends(present))
