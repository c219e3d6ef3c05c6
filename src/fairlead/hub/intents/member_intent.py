"""Every intent of a member: one load balancer whose spec is accepted as a whole, and served on when a newer is refused.

view       the object, its class and Tenant, its endpoints, its allocation
record     finalizer, allocation, accepted spec; while it moves to another provider, the allocation only
on_record  a replica that does not lead serves what the leader has recorded
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from fairlead.api.intent import Allocation, Provisioned
from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.meta import JSONObject
from fairlead.api.names import FINALIZER_CLEANUP, MANAGER_HUB, MANAGER_LEDGER, MANAGER_RECORD
from fairlead.errors import FairleadError
from fairlead.hub.intents.intent import Exclusion, Intent, IntentContext, Recorded
from fairlead.hub.intents.member_views import MemberViews
from fairlead.hub.intents.status_rules import StatusRules
from fairlead.hub.inventory import IntentObjects
from fairlead.hub.providers.migration import Phase, Placement
from fairlead.kube.cluster import Cluster
from fairlead.kube.lease import check_leads
from fairlead.kube.status import write_status
from fairlead.kube.writes import hold
from fairlead.ledger.frontends import ledger_manager
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.view import Allocated, Decision, MemberView, NodeAddresses

V = TypeVar("V", bound=MemberView)


class MemberIntent(Intent[Any, Decision], Generic[V]):
    """One kind of load balancer that members ask for; a subclass has its objects, views and translation."""

    def __init__(
        self, context: IntentContext, *, views: MemberViews[Any, V], rules: StatusRules[Any, Decision]
    ) -> None:
        super().__init__(context, objects=views.objects, rules=rules)
        self._views = views
        self._inventory = context.inventory
        self._allocator = context.allocator
        self._migration = context.migration
        self._accepted = AcceptedStatus(context.cluster, views.objects, context.leading)
        self._may_allocate = lambda: context.leading() and not context.read_only

    def restore(self) -> None:
        """Hold every recorded address and port, so that none of them is allocated to another load balancer."""
        self._views.hold_recorded()

    def view(self, key: LoadBalancerKey) -> V | None:
        """Return the view of ``key``."""
        return self._views.view(key)

    def allocation_of(self, view: V) -> Callable[[V], Allocated]:
        """Return what allocates to the load balancer of ``view``; only the leader gives it anything new."""
        if not (self._may_allocate() and self._inventory.decides(view.key)):
            on_record = self._views.hold(view)
            return lambda _view: on_record
        if view.over_quota:
            self._allocator.wait(view.key)
        return self._views.allocate

    def recorded(self, view: V) -> Decision | None:
        """Return what is served as it is on record, None when nothing is."""
        raise NotImplementedError

    async def record(self, view: V, translation: Decision) -> Recorded:
        """Record what is accepted; a move to another provider is accepted once that has everything."""
        obj = _object(view)
        try:
            if self._is_moving(view, translation):
                await self._accepted.allocate(obj, translation.allocation)
                if missing := await self._migration.missing(view.key, translation):
                    return self._preparing(view, translation, missing)
            await self._accepted.accept(obj, translation, self._allocation(view, translation))
            for provider in self._migration.released(view.key, obj, translation.provider):
                await self._accepted.forget_frontend(obj, provider)
        except FairleadError as error:
            # What was recorded before is safe to serve meanwhile.
            return msgspec.structs.replace(self.on_record(view, translation), failure=error)
        return Recorded(translation=translation, placement=Placement(translation))

    def on_record(self, view: V, translation: Decision) -> Recorded:
        """Return the placement of the accepted spec, and of the next provider as far as its allocation is recorded."""
        serving = self.recorded(view)
        if serving is None:
            return Recorded(translation=translation)
        if not self._is_moving(view, translation):
            return Recorded(translation=translation, placement=Placement(serving))
        next_ = translation if self._migration.may_prepare(translation.allocation, translation) else None
        return Recorded(translation=translation, placement=Placement(serving, next_, Phase.KEPT))

    def exclusions(self, view: V, translation: Decision) -> tuple[Exclusion, ...]:
        """Return the nodes of the member that take no traffic."""
        del translation
        slices = self._inventory.node_slices_of(view.key.namespace)
        return excluded_nodes(slices, view.nodes) if _object(view).spec.targets == "Node" else ()

    def _is_moving(self, view: V, translation: Decision) -> bool:
        obj = _object(view)
        return obj.status.accepted is not None and self._migration.is_moving(obj, translation)

    def _preparing(self, view: V, translation: Decision, missing: str) -> Recorded:
        serving = self.recorded(view) or translation
        paused = translation.desired is None or translation.desired.paused
        spec, before = _object(view).spec, _object(view).status.accepted
        waiting_for = (
            f"LoadBalancerClass {before.class_name if before else ''} serves until LoadBalancerClass {spec.class_name} "
            f"has all of it ({missing})"
        )
        placement = Placement(serving, None if paused else translation, Phase.PREPARING)
        return Recorded(translation=translation, placement=placement, waiting_for=waiting_for)

    def _allocation(self, view: V, translation: Decision) -> Allocation:
        """Return the allocation to record: what is in use is not given up."""
        recorded, none = _object(view).status.allocation, Allocation()
        if translation.allocation != none:
            return translation.allocation
        if recorded == none:
            self._allocator.release(view.key)
        return recorded if self._migration.uses_allocation(view.key) else none


def _object(view: MemberView) -> Any:
    """Return the object of a view; each kind has a field of its own type for it."""
    return view.load_balancer


def excluded_nodes(slices: Iterable[EndpointSlice], nodes: NodeAddresses) -> tuple[Exclusion, ...]:
    """Return the nodes in ``slices`` that are not among ``nodes``, by one address each, ordered by it."""
    ready = {name for by_name in nodes.ready.values() for name in by_name}
    addresses: dict[str, str] = {}
    for each in slices:
        for endpoint in each.endpoints or ():
            if endpoint.addresses and (name := endpoint.node_name or endpoint.addresses[0]) not in ready:
                addresses.setdefault(name, endpoint.addresses[0])
    return tuple(Exclusion(each, "its member", "this node is not ready") for each in sorted(addresses.values()))


class AcceptedStatus:
    """Writes the record of the objects of one kind, whose status has ``accepted``, when it differs."""

    def __init__(self, cluster: Cluster, objects: IntentObjects[Any], leading: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._leading = leading
        self._present = objects.present
        self._resource = objects.resource
        self._status: Any = type(objects.resource.type().status)

    async def accept(self, obj: Any, translation: Decision, allocation: Allocation) -> None:
        """Record the present spec as accepted; one write for each part that differs, none when nothing does."""
        if translation.desired is None:
            return
        self._check_leads(obj)
        held = await hold(self._cluster, self._resource, obj, FINALIZER_CLEANUP, manager=MANAGER_HUB)
        if held is not obj:
            obj = self._present.written(held, before=obj)
        if not translation.serving_last_accepted:
            await self._apply(obj, self._record(allocation, obj.spec, translation.provider))

    async def allocate(self, obj: Any, allocation: Allocation) -> None:
        """Record what the next provider is given; the accepted spec and the serving provider stay as they are."""
        status = obj.status
        allocation = status.allocation if allocation == Allocation() else allocation
        await self._apply(obj, self._record(allocation, status.accepted, status.serving_provider))

    async def forget_frontend(self, obj: Any, provider: str) -> None:
        """Remove the entry of ``provider`` from the record: it has released all that it had."""
        self._check_leads(obj)
        meta = obj.metadata
        if old := obj.status.old_places(provider):
            patch: JSONObject = {"metadata": {"uid": meta.uid}, "status": old}
            await self._cluster.merge_patch(
                self._resource, meta.namespace, meta.name, patch, subresource="status", manager=MANAGER_LEDGER
            )
            self._check_leads(obj)
        about: JSONObject = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
        body: JSONObject = {"metadata": about, "status": {}}
        answer = await self._cluster.apply(self._resource, body, manager=ledger_manager(provider), subresource="status")
        self._present.written(answer, before=obj)

    async def _apply(self, obj: Any, record: Any) -> None:
        known = obj.status
        old = self._record(known.allocation, known.accepted, known.recorded_serving_provider)
        self._check_leads(obj)
        answer = await write_status(self._cluster, self._resource, obj, old, record, manager=MANAGER_RECORD)
        if answer is not None:
            self._present.written(answer, before=obj)

    def _check_leads(self, obj: Any) -> None:
        # The view may be older than the term, after a suspension or a slow write before this one.
        check_leads(self._leading, f"{self._resource.kind} {obj.key}")

    def _record(self, allocation: Allocation, accepted: Any, serving: str) -> Any:
        entries = [Provisioned(serving, serving=True)] if serving else None
        return self._status(provisioned=entries, allocation=allocation, accepted=accepted)
