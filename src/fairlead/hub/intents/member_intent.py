"""Every intent of a member: one load balancer whose spec is accepted as a whole, and served until a newer one is valid.

view       the object, its class and Tenant, its endpoints, its quota, what is allocated on record
decide     validation, allocation and translation; a replica that does not lead allocates nothing
record     finalizer, allocation, accepted spec; while it moves to another provider, the allocation only
on_record  a replica that does not lead serves what the leader has recorded

A kind adds what is its own: which object, which endpoints, which ports, and its decision.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from fairlead.api.intent import Allocation, IntentObject, IntentStatus, Provisioned
from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.meta import JSONMapping, JSONObject
from fairlead.api.names import FINALIZER_CLEANUP, MANAGER_HUB, MANAGER_LEDGER, MANAGER_RECORD
from fairlead.api.tenant import Tenant
from fairlead.errors import FairleadError
from fairlead.hub.intents.intent import Exclusion, Intent, IntentContext, Recorded
from fairlead.hub.intents.status_rules import StatusRules
from fairlead.hub.intents.unreadable import RemainsHolder
from fairlead.hub.inventory import UNTIL_READ, IntentObjects
from fairlead.hub.providers.migration import Phase, Placement
from fairlead.hub.tenants.addresses import NOTHING
from fairlead.kube.cluster import Cluster
from fairlead.kube.lease import check_leads
from fairlead.kube.status import write_status
from fairlead.kube.writes import hold
from fairlead.ledger.frontends import ledger_manager
from fairlead.model.contract import AllocationKind
from fairlead.model.keys import Family, ListenerKey, LoadBalancerKey
from fairlead.translate.endpoints import nodes_from_slices
from fairlead.translate.member import wanted_families
from fairlead.translate.view import Allocated, Decision, MemberView, NodeAddresses, is_leaving

Obj = TypeVar("Obj", bound=IntentObject)
V = TypeVar("V", bound=MemberView)


class MemberViews(Generic[Obj, V]):
    """Gathers views, and allocates to those that are valid; keeps only what many of them share, the nodes of a member.

    ``default_families``: of which an object gets an address that names none.
    """

    default_families: tuple[Family, ...] = ()

    def __init__(self, context: IntentContext, objects: IntentObjects[Obj]) -> None:
        self.objects = objects
        self.inventory = context.inventory
        self._allocator = context.allocator
        self._member_health = context.member_health
        self._providers = context.providers
        self._loopback_targets = context.loopback_targets
        self._tenant_ports = context.tenant_ports
        self._nodes: dict[str, tuple[tuple[str, ...], NodeAddresses]] = {}
        #: The names within a quota, by namespace: of thousands above it, each would count all others.
        self._within: dict[str, tuple[int, frozenset[str]]] = {}
        objects.cache.on_change(self._forget_within)
        objects.cache.broken.on_change(lambda _obj: self._within.clear())
        self._remains = RemainsHolder(objects, self._allocator, self.listeners)

    # --- what a kind has of its own ----------------------------------------------------------------------------

    def make(self, obj: Obj, common: JSONMapping) -> V:
        """Return the view of ``obj`` from the fields that all kinds have in ``common``."""
        raise NotImplementedError

    def listeners(self, spec: Any) -> Sequence[ListenerKey]:
        """Return the ports that ``spec`` opens."""
        raise NotImplementedError

    def listeners_beside(self, view: V) -> Sequence[ListenerKey]:
        """Return the ports that are opened next to those of the spec."""
        del view
        return ()

    # --- what all have in common -------------------------------------------------------------------------------

    def view(self, key: LoadBalancerKey) -> V | None:
        """Return the view of ``key``; None when its object does not exist or is being deleted."""
        obj: Any = self.objects.get(key)
        if obj is None or is_leaving(obj):
            return None
        obj = self._as_of_here(obj)
        tenant = self.inventory.tenant_of(key.namespace)
        load_balancer_class = self.inventory.load_balancer_class(obj.class_name)
        accepted = obj.status.accepted
        unreadable = self.inventory.unreadable_slices(key.namespace)
        return self.make(
            obj,
            {
                "key": key,
                "tenant": tenant,
                "load_balancer_class": load_balancer_class,
                "providers": self._providers.capabilities,
                "nodes": self._nodes_of(key.namespace),
                "allocation": obj.status.allocation,
                "accepted_class": self._class_of(accepted.class_name, obj.status) if accepted else None,
                "member": self._member_health.view(tenant, key.namespace),
                "over_quota": self._over_quota(obj, tenant),
                "stale": self.inventory.problem_for(key) or unreadable,
                "unreadable": f"{unreadable}; {UNTIL_READ}" if unreadable else "",
                "loopback_targets": self._loopback_targets,
                "provider_problems": self._providers.problems,
                "given": self.inventory.given.holders,
            },
        )

    def hold(self, view: V) -> Allocated:
        """Return what is allocated on record, and hold it for the day that this replica leads."""
        obj: Any = view.load_balancer
        listeners, beside = self.listeners(obj.status.accepted or obj.spec), self.listeners_beside(view)
        self._allocator.hold(view.key, view.allocation, listeners, internal=beside)
        return view.allocation, None

    def allocate(self, view: V) -> Allocated:
        """Return what a valid load balancer has: what it had already, or an address or ports that are free."""
        obj: Any = view.load_balancer
        tenant, accepted, capabilities = view.tenant, obj.status.accepted, view.capabilities
        return self._allocator.allocate(
            view.key,
            capabilities.allocation if capabilities is not None else AllocationKind.NONE,
            requested=obj.spec.address,
            recorded=obj.status.allocation,
            listeners=self.listeners(obj.spec),
            internal=self.listeners_beside(view),
            served=self.listeners(accepted) if accepted else (),
            limit=(tenant.spec.max_ports or self._tenant_ports) if tenant else 0,
            tenant=tenant.metadata.name if tenant else "",
            class_name=view.load_balancer_class.metadata.name if view.load_balancer_class is not None else "",
            families=wanted_families(obj.spec, self.default_families),
        )

    def hold_recorded(self) -> None:
        """Hold every recorded address and port, so that none of them is allocated to another load balancer.

        What has left for another region while no hub ran here leaves its address to rest, as it does while one runs.
        """
        for each in self.objects.cache.values():
            obj = self._as_of_here(each)
            key, accepted = self.objects.key(each), obj.status.accepted
            if self.objects.serves(each):
                self._allocator.hold(key, obj.status.allocation, self.listeners(accepted or obj.spec))
            elif accepted is not None and self.inventory.decides_in(accepted.region):
                self._allocator.hold(key, obj.status.allocation, self.listeners(accepted))
                self._allocator.release(key)
        self._remains.hold()

    def _as_of_here(self, obj: Any) -> Any:
        """Return ``obj`` as a new one when it was another region's: what the hub of that region gave it stays there."""
        accepted = obj.status.accepted
        if accepted is None or accepted.region == obj.spec.region or self.inventory.decides_in(accepted.region):
            return obj
        status = msgspec.structs.replace(obj.status, accepted=None, allocation=NOTHING)
        return msgspec.structs.replace(obj, status=status)

    def _class_of(self, name: str, status: IntentStatus) -> LoadBalancerClass | None:
        """Return the class of what is served; None when it is gone, or names another provider than serves."""
        load_balancer_class, provider = self.inventory.load_balancer_class(name), status.serving_provider
        if load_balancer_class is None or (provider and load_balancer_class.spec.provider != provider):
            return None
        return load_balancer_class

    def _nodes_of(self, namespace: str) -> NodeAddresses:
        """Return a member's nodes, computed once for each version of its slices."""
        slices = self.inventory.node_slices_of(namespace)
        if not slices:
            self._nodes.pop(namespace, None)
            return nodes_from_slices(())
        versions = tuple(endpoint_slice.metadata.resource_version for endpoint_slice in slices)
        known = self._nodes.get(namespace)
        if known is None or known[0] != versions:
            known = self._nodes[namespace] = (versions, nodes_from_slices(slices))
        return known[1]

    def _over_quota(self, load_balancer: Any, tenant: Tenant | None) -> str:
        """Return why ``load_balancer`` exceeds its Tenant's quota, empty when it does not; served ones count first."""
        namespace = load_balancer.metadata.namespace
        if load_balancer.status.accepted is None and (why := self.inventory.tenant_problem(namespace)):
            return f"it is not known what this member may have: {why}"
        limit = tenant.spec.max_load_balancers if tenant else 0
        if not tenant or not limit or load_balancer.status.accepted is not None:
            return ""
        known = self._within.get(namespace)
        if known is None or known[0] != limit:
            objects: Collection[Any] = self.objects.cache.indexed("namespace", namespace)
            # A lower limit takes nothing away: more than it allows may be served.
            unread = sum(key.namespace == namespace for key in self.objects.cache.remains())
            first = heapq.nsmallest(max(0, limit - unread), objects, key=_rank)
            served = [obj for obj in objects if obj.status.accepted is not None]
            known = self._within[namespace] = (limit, frozenset(each.metadata.name for each in (*first, *served)))
        if load_balancer.metadata.name in known[1]:
            return ""
        return (
            f"member {tenant.metadata.name} uses {len(known[1])} load balancers, and spec.maxLoadBalancers of its "
            f"Tenant allows {limit}; delete load balancers, or ask the operator for more"
        )

    def _forget_within(self, old: Obj | None, new: Obj | None) -> None:
        for obj in filter(None, (old, new)):
            self._within.pop(obj.metadata.namespace, None)


def _rank(obj: Any) -> tuple[bool, str, str]:
    return (obj.status.accepted is None, obj.metadata.creation_timestamp or "", obj.metadata.name)


class MemberIntent(Intent[Any, Decision], Generic[V]):
    """One kind of load balancer that members ask for; a subclass has its objects, views and decision."""

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
