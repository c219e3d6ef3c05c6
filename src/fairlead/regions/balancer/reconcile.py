"""Take one PoolService of our classes one step further.

    wanted   hold ─► view ─► translate ─► publish ─► status, Events        (a hub serves what is published)
    leaving  finalize

In: keys of PoolServices. Out: objects for a hub, and the PoolServices' status.
Never: touches a PoolService of another class, or a TCPLoadBalancer that was not made for one.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.api.conditions import transitions
from fairlead.api.meta import KubeObject, ObjectKey
from fairlead.api.names import FINALIZER_LOAD_BALANCER, MANAGER_BALANCER
from fairlead.api.poolservice import POOL_SERVICES, PoolService, PoolServiceStatus
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.api.times import wire_time
from fairlead.errors import Invalid, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.finalizers import hold
from fairlead.kube.status import emit_transitions, write_status
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.publish.plan import HubWrite, plan_publication
from fairlead.publish.publication import Refused
from fairlead.publish.publisher import Publisher
from fairlead.regions.balancer.finalize import Finalization
from fairlead.regions.balancer.identity import is_our_class, load_balancer_name
from fairlead.regions.balancer.status import build_status
from fairlead.regions.balancer.translate import translate
from fairlead.regions.balancer.view import PoolServiceView, read_present, read_view
from fairlead.regions.balancer.watch import BalancerWatch
from fairlead.regions.changes import Changes
from fairlead.regions.inventory import Inventory

#: Fields of the status that this layer 2 does not write.
_OF_OTHERS = ("aggregateToAnnotations", "aggregateToLabels")


class Balancer:
    """Reconciles the load balancer of one PoolService."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
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
        self._finalization = Finalization(cluster=cluster, inventory=inventory, publisher=self._publisher)

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Reconcile one key; return in how many seconds to reconcile again, None for no time."""
        if not self._leading():
            return None
        pool_service = self._inventory.pool_services.get(*key)
        if pool_service is None or pool_service.deleting or not is_our_class(pool_service):
            return await self._finalization.finalize(key, pool_service)
        self._finalization.forget(key)
        if not pool_service.held_by(FINALIZER_LOAD_BALANCER):
            # Held first: from here on nothing of it can be forgotten. The change enqueues the key.
            await self._hold(pool_service)
            return None
        view = read_view(self._inventory, self._publisher, pool_service)
        refused = await self._publish(view)
        load_balancer = None if view.occupied else self._published(pool_service)
        now = wire_time(self._cluster.clock.now())
        await self._write_status(pool_service, build_status(pool_service, load_balancer, refused, now=now))
        return None

    async def _hold(self, pool_service: PoolService) -> None:
        try:
            await hold(self._cluster, POOL_SERVICES, pool_service, FINALIZER_LOAD_BALANCER, manager=MANAGER_BALANCER)
        except NotFound:
            return

    async def _publish(self, view: PoolServiceView) -> Refused | None:
        """Write what differs; return why the PoolService cannot be served as it stands."""
        present = view.present.load_balancer
        if view.occupied:
            name = load_balancer_name(view.pool_service.metadata.name)
            sentence = f"TCPLoadBalancer {name} was not made for this PoolService; it is left alone"
            return Refused(ConditionReason.INVALID, sentence)
        if present is not None and present.deleting:
            return None  # its successor is made when it is gone, which enqueues the key
        desired = translate(view.pool_service, view.backends, region=view.region)
        if isinstance(desired, Refused):
            return desired
        if present is not None and present.spec.region != view.region:
            # The hub of another region has other addresses: this one ends there, and begins anew here when it is gone.
            await self._publisher.write([HubWrite("delete", present, "its region has another hub")])
            return None
        plan = plan_publication(desired, view.present, is_ours=_is_ours)
        try:
            await self._publisher.write(plan.of_load_balancer)
        except Invalid as error:
            return Refused(ConditionReason.INVALID, error.sentence)
        await self._publisher.write(plan.of_slices)
        return None

    async def _write_status(self, pool_service: PoolService, new: PoolServiceStatus) -> None:
        old = pool_service.status
        written = await write_status(
            self._cluster, POOL_SERVICES, pool_service, old, new, manager=MANAGER_BALANCER, others=_OF_OTHERS
        )
        if written is not None:
            changes = transitions(old.conditions, new.conditions)
            good = {
                ConditionType.PROGRAMMED.value: f"programmed at {new.address}",
                ConditionType.SERVING.value: f"it serves at {new.address}",
            }
            emit_transitions(self._events, POOL_SERVICES, pool_service, changes, good=good)

    def _published(self, pool_service: PoolService) -> TCPLoadBalancer | None:
        return read_present(self._publisher, pool_service.key).load_balancer


def _is_ours(_published: KubeObject) -> bool:
    """Return whether an object of the caches is ours: they hold only what carries our labels."""
    return True
