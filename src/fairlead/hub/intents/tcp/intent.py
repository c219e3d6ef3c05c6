"""TCPLoadBalancer as an intent: one L4 load balancer that an agent or a region asks for on behalf of a Service.

view       the object, its class and Tenant, the slices of its backends, its allocation
record     finalizer, allocation, accepted spec; while it moves to another provider, the allocation only
on_record  a replica that does not lead serves what the leader has recorded
"""

from __future__ import annotations

import msgspec

from fairlead.api.intent import Allocation
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import FairleadError
from fairlead.hub.intents.intent import Exclusion, Intent, IntentContext, Recorded
from fairlead.hub.intents.tcp.accepted_status import AcceptedStatus
from fairlead.hub.intents.tcp.exclusions import excluded_nodes
from fairlead.hub.intents.tcp.objects import TCPObjects
from fairlead.hub.intents.tcp.status import TCPStatus
from fairlead.hub.intents.tcp.view import TCPViews, with_accepted_spec
from fairlead.hub.providers.migration import Phase, Placement
from fairlead.hub.tenants.address_allocator import listeners_of
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.tcp import translate_tcp
from fairlead.translate.view import TCPView, Translation


class TCPIntent(Intent[TCPView, Translation]):
    """TCPLoadBalancers."""

    def __init__(self, context: IntentContext) -> None:
        tcp_objects = TCPObjects(context.cluster, context.inventory)
        rules = TCPStatus(cluster=context.cluster, events=context.events, resource=TCP_LOAD_BALANCERS)
        super().__init__(context, objects=tcp_objects, rules=rules)
        self._tcp_objects = tcp_objects
        self._inventory = context.inventory
        self._allocator = context.allocator
        self._migration = context.migration
        self._accepted = AcceptedStatus(context.cluster)
        self._may_allocate = lambda: context.leading() and not context.read_only
        self._views = TCPViews(context, tcp_objects)

    def watch(self) -> None:
        """Subscribe to slices and Tenants."""
        self._tcp_objects.watch()

    def restore(self) -> None:
        """Hold every recorded address and port, so that none of them is allocated to another load balancer."""
        for obj in self._tcp_objects.served():
            spec = obj.status.accepted or obj.spec
            self._allocator.hold(self.objects.key(obj), obj.status.allocation, listeners_of(spec))

    def view(self, key: LoadBalancerKey) -> TCPView | None:
        """Return the view of ``key``; the leader allocates an address or ports to it when it has none."""
        return self._views.view(key, allocate=self._may_allocate())

    def translate(self, view: TCPView) -> Translation:
        """Return what ``view`` comes to."""
        return translate_tcp(view)

    async def record(self, view: TCPView, translation: Translation) -> Recorded:
        """Record what is accepted; a move to another provider is accepted once that has everything."""
        obj = view.load_balancer
        try:
            if self._is_moving(view, translation):
                await self._accepted.allocate(obj, view.allocation)
                if missing := await self._migration.missing(view.key, translation):
                    return self._preparing(view, translation, missing)
            await self._accepted.accept(obj, translation, self._allocation(view))
            for provider in self._migration.released(view.key, obj, translation.provider):
                await self._accepted.forget_frontend(obj, provider)
        except FairleadError as error:
            # What was recorded before is safe to serve meanwhile.
            return msgspec.structs.replace(self.on_record(view, translation), failure=error)
        return Recorded(translation=translation, placement=Placement(translation))

    def on_record(self, view: TCPView, translation: Translation) -> Recorded:
        """Return the placement of the accepted spec, and of the next provider as far as its allocation is recorded."""
        accepted = with_accepted_spec(view)
        if accepted is None:
            return Recorded(translation=translation)
        serving = translate_tcp(accepted)
        if not self._is_moving(view, translation):
            return Recorded(translation=translation, placement=Placement(serving))
        next_ = translation if self._migration.may_prepare(view.allocation, translation) else None
        return Recorded(translation=translation, placement=Placement(serving, next_, Phase.KEPT))

    def exclusions(self, view: TCPView, translation: Translation) -> tuple[Exclusion, ...]:
        """Return the nodes of the member that take no traffic."""
        del translation
        slices = self._inventory.node_slices_of(view.key.namespace)
        return excluded_nodes(slices, view.nodes.ready) if view.load_balancer.spec.targets == "Node" else ()

    def _is_moving(self, view: TCPView, translation: Translation) -> bool:
        obj = view.load_balancer
        return obj.status.accepted is not None and self._migration.is_moving(obj, translation)

    def _preparing(self, view: TCPView, translation: Translation, missing: str) -> Recorded:
        accepted = with_accepted_spec(view)
        serving = translate_tcp(accepted) if accepted is not None else translation
        paused = translation.desired is None or translation.desired.paused
        spec, before = view.load_balancer.spec, view.load_balancer.status.accepted
        waiting_for = (
            f"LoadBalancerClass {before.class_name if before else ''} serves until LoadBalancerClass {spec.class_name} "
            f"has all of it ({missing})"
        )
        placement = Placement(serving, None if paused else translation, Phase.PREPARING)
        return Recorded(translation=translation, placement=placement, waiting_for=waiting_for)

    def _allocation(self, view: TCPView) -> Allocation:
        """Return the allocation to record: what is in use is not given up."""
        recorded, none = view.load_balancer.status.allocation, Allocation()
        if view.allocation != none:
            return view.allocation
        if recorded == none:
            self._allocator.release(view.key)
        return recorded if self._migration.uses_allocation(view.key) else none
