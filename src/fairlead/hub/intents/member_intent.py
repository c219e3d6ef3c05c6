"""Intents of members: the spec of a load balancer is accepted as a whole, and served until a newer one is valid.

view                    the object, its class and Tenant, its endpoints, its quota, the recorded allocation
decide                  validation, allocation and translation; a replica that does not lead allocates nothing
record                  finalizer, allocation, accepted spec; while it moves to another provider, the allocation only
placement_from_record   a replica that does not lead serves what the leader has recorded

A kind adds its objects, endpoints, ports, and decision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from fairlead.api.globalservice import GlobalService
from fairlead.api.hostname import Hostname
from fairlead.api.httploadbalancer import HTTPLoadBalancer
from fairlead.api.intent import Allocation, IntentStatus, Provisioned
from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.meta import JSONMapping, JSONObject, Resource, Wire
from fairlead.api.names import FINALIZER_CLEANUP, MANAGER_HUB, MANAGER_LEDGER, MANAGER_RECORD
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.api.tenant import Tenant, subtenant_of
from fairlead.errors import FairleadError
from fairlead.hub.intents.intent import Exclusion, Intent, IntentContext, RecordResult, RemainsHolder
from fairlead.hub.intents.status import StatusRules
from fairlead.hub.inventory import UNTIL_READ, IntentObjects, Inventory, gated_namespaces, nodes_namespaces
from fairlead.hub.providers.registry import Phase, Placement
from fairlead.hub.tenants.addresses import NOTHING
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.lease import check_leads
from fairlead.kube.writes import hold, write_status
from fairlead.ledger.frontends import ledger_manager
from fairlead.model.contract import AllocationKind
from fairlead.model.keys import Family, ListenerKey, LoadBalancerKey
from fairlead.translate.endpoints import nodes_from_slices
from fairlead.translate.member import wanted_families
from fairlead.translate.view import Allocated, Decision, GlobalView, HTTPView, NodeAddresses, TCPView, is_leaving

Obj = TypeVar("Obj", bound=TCPLoadBalancer | HTTPLoadBalancer | GlobalService)
#: The objects whose status has an accepted spec and an allocation.
R = TypeVar("R", bound=TCPLoadBalancer | HTTPLoadBalancer | GlobalService | Hostname)
V = TypeVar("V", bound=TCPView | HTTPView | GlobalView)


class MemberObjects(IntentObjects[Obj]):
    """The objects of the hub's region; a hub without a region serves all of them."""

    def __init__(self, cache: WatchCache[Obj], resource: Resource[Obj], inventory: Inventory) -> None:
        super().__init__(
            cache,
            resource,
            serves=lambda obj: inventory.serves_region(obj.spec.region),
            region=lambda obj: obj.spec.region,
            recorded=lambda obj: (obj.status.allocation, obj.status.accepted, obj.status.placement),
        )
        self._inventory = inventory

    def slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        """Wake the load balancers with endpoints in a slice that has changed."""
        for endpoint_slice in filter(None, (old, new)):
            self._inventory.wake(self.keys_of_slice(endpoint_slice), f"EndpointSlice {endpoint_slice.key.name} changed")
            for namespace in nodes_namespaces(endpoint_slice):
                self._inventory.wake(self.keys_of_nodes(namespace), "nodes of the member changed")

    def uses_nodes(self, obj: Obj) -> bool:
        """Return whether the targets of ``obj`` are the nodes of its member."""
        return not isinstance(obj, GlobalService) and obj.spec.targets == "Node"

    def keys_of_nodes(self, namespace: str) -> Collection[LoadBalancerKey]:
        """Return the load balancers whose targets are the nodes of the member with this namespace."""
        to_nodes = (obj for obj in self.cache.by_index("namespace", namespace) if self.uses_nodes(obj))
        return [self.key(obj) for obj in to_nodes if self.serves(obj)]

    def keys_of_slice(self, endpoint_slice: EndpointSlice) -> Collection[LoadBalancerKey]:
        """Return the load balancers that a slice is labelled with."""
        raise NotImplementedError


class MemberViews(Generic[Obj, V]):
    """Gathers views, and allocates to the valid ones; caches only shared data, such as a member's nodes.

    ``default_families``: the address families of an object that names none.
    """

    default_families: tuple[Family, ...] = ()
    #: Whether spec.maxLoadBalancers of a Tenant counts them.
    limited = True

    def __init__(self, context: IntentContext, objects: MemberObjects[Obj]) -> None:
        self.objects = objects
        self.inventory = context.inventory
        self._context = context
        self._allocator = context.allocator
        self._nodes: dict[str, tuple[tuple[str, ...], NodeAddresses]] = {}
        if self.limited:
            context.quotas.add(objects)
        self._remains = RemainsHolder(objects, self._allocator, self.listeners)

    # --- defined by each kind ----------------------------------------------------------------------------------

    def make(self, obj: Obj, common: JSONMapping) -> V:
        """Return the view of ``obj``; ``common`` has the fields of all kinds."""
        raise NotImplementedError

    def listeners(self, spec: Any) -> Sequence[ListenerKey]:
        """Return the ports that ``spec`` opens."""
        raise NotImplementedError

    def extra_listeners(self, view: V) -> Sequence[ListenerKey]:
        """Return the ports that are opened in addition to those of the spec."""
        del view
        return ()

    # --- common to all kinds -----------------------------------------------------------------------------------

    def view(self, key: LoadBalancerKey) -> V | None:
        """Return the view of ``key``; None when its object does not exist or is being deleted."""
        obj = self.objects.get(key)
        if obj is None or is_leaving(obj):
            return None
        obj = self._as_of_here(obj)
        tenant, accepted = self.inventory.tenant_of(key.namespace), obj.status.accepted
        unreadable = self.inventory.unreadable_slices(key.namespace)
        return self.make(
            obj,
            {
                "key": key,
                "tenant": tenant,
                "load_balancer_class": self.inventory.load_balancer_class(obj.class_name),
                "providers": self._context.providers.capabilities,
                "nodes": self._nodes_of(key.namespace),
                "allocation": obj.status.allocation,
                "accepted_class": self._class_of(accepted.class_name, obj.status) if accepted else None,
                "member": self._context.member_health.view(tenant, key.namespace),
                "over_quota": self._over_quota(obj, tenant),
                "checks": self._context.check_budget.limit_of(key.namespace),
                "stale": self.inventory.problem_for(key) or unreadable,
                "unreadable": f"{unreadable}; {UNTIL_READ}" if unreadable else "",
                "loopback_targets": self._context.loopback_targets,
                "provider_problems": self._context.providers.problems,
                "given": self.inventory.in_use.holders,
            },
        )

    def hold(self, view: V) -> Allocated:
        """Return the recorded allocation, and hold it in case this replica becomes the leader."""
        listeners = self.listeners(view.load_balancer.status.accepted or view.load_balancer.spec)
        self._allocator.hold(view.key, view.allocation, listeners, internal=self.extra_listeners(view))
        return view.allocation, None

    def allocate(self, view: V) -> Allocated:
        """Return the allocation of a valid load balancer: the present one, or a free address or free ports."""
        obj, tenant, capabilities = view.load_balancer, view.tenant, view.capabilities
        accepted = obj.status.accepted
        return self._allocator.allocate(
            view.key,
            capabilities.allocation if capabilities is not None else AllocationKind.NONE,
            requested=obj.spec.address,
            recorded=obj.status.allocation,
            listeners=self.listeners(obj.spec),
            internal=self.extra_listeners(view),
            served=self.listeners(accepted) if accepted else (),
            limits=self._context.quotas.port_limits(tenant, subtenant_of(obj), self._context.tenant_ports),
            tenant=tenant.metadata.name if tenant else "",
            class_name=view.load_balancer_class.metadata.name if view.load_balancer_class is not None else "",
            families=wanted_families(obj.spec, self.default_families),
        )

    def hold_recorded(self) -> None:
        """Hold every recorded address and port, so that none of them is allocated to another load balancer.

        The address of a load balancer that moved to another region while no hub ran here rests, as it does otherwise.
        """
        for stored in self.objects.cache.values():
            obj = self._as_of_here(stored)
            key, accepted = self.objects.key(stored), obj.status.accepted
            if self.objects.serves(stored):
                self._allocator.hold(key, obj.status.allocation, self.listeners(accepted or obj.spec))
            elif accepted is not None and self.inventory.decides_in(accepted.region):
                self._allocator.hold(key, obj.status.allocation, self.listeners(accepted))
                self._allocator.release(key)
        self._remains.hold()

    def _as_of_here(self, obj: Obj) -> Obj:
        """Return an object from another region as a new one: allocations of that region's hub stay there."""
        accepted = obj.status.accepted
        if accepted is None or accepted.region == obj.spec.region or self.inventory.decides_in(accepted.region):
            return obj
        status = msgspec.structs.replace(obj.status, accepted=None, allocation=NOTHING, placement=None)
        return msgspec.structs.replace(obj, status=status)

    def _class_of(self, name: str, status: IntentStatus) -> LoadBalancerClass | None:
        """Return the class of the served version; None if it is gone, or does not name the serving provider."""
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

    def _over_quota(self, load_balancer: Obj, tenant: Tenant | None) -> str:
        """Return why ``load_balancer`` exceeds its Tenant's quota, empty if it does not; served ones count first."""
        namespace, accepted = load_balancer.metadata.namespace, load_balancer.status.accepted
        if accepted is not None and accepted.class_name == load_balancer.class_name:
            return ""
        if why := self.inventory.tenant_problem(namespace):
            return f"the quota of this member is unknown: {why}"
        if tenant is None:
            return ""
        return self._context.quotas.excess(self.objects.key(load_balancer), tenant, load_balancer)


class MemberIntent(Intent[V, Decision]):
    """One kind of load balancer that members request; a subclass has its objects, views and decision."""

    def __init__(self, context: IntentContext, *, views: MemberViews[Any, V], rules: StatusRules[Any, Any]) -> None:
        super().__init__(context, objects=views.objects, rules=rules)
        self._views = views
        self._context = context
        self._inventory = context.inventory
        self._migration = context.migration
        self._accepted = AcceptedStatus(context.cluster, views.objects, context.leading)

    def watch(self) -> None:
        """Subscribe to slices."""
        self._inventory.slices.on_change(self._views.objects.slice_changed)
        self._inventory.slices.on_change(self._gates_changed)

    def _gates_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        """Update the answer for pods that wait for their readiness gate; this changes no target."""
        for endpoint_slice in filter(None, (old, new)):
            if gated_namespaces(endpoint_slice):
                for key in self._views.objects.keys_of_slice(endpoint_slice):
                    self.status.refresh(key)

    def restore(self) -> None:
        """Hold every recorded address and port, so that none of them is allocated to another load balancer."""
        self._views.hold_recorded()

    def view(self, key: LoadBalancerKey) -> V | None:
        """Return the view of ``key``."""
        return self._views.view(key)

    def allocation_of(self, view: V) -> Callable[[V], Allocated]:
        """Return the allocator for ``view``; only the leader allocates anything new."""
        if self._context.read_only or not self._context.may_write(view.key):
            recorded = self._views.hold(view)
            return lambda _view: recorded
        if view.over_quota:
            self._context.allocator.wait(view.key)
        return self._views.allocate

    def decision_on_record(self, view: V) -> Decision | None:
        """Return the decision about the accepted version, None when there is none."""
        raise NotImplementedError

    async def record(self, view: V, decision: Decision) -> RecordResult:
        """Record what is accepted; a move to another provider is accepted once that provider has everything."""
        obj = view.load_balancer
        self._note_checks(view, decision)
        if decision.desired is None or decision.serving_last_accepted:
            # What was allocated to a version that was never recorded serves nothing, and others may wait for it.
            self._views.hold(view)
        try:
            if self._is_moving(view, decision):
                await self._accepted.allocate(obj, decision.allocation)
                if missing := await self._migration.missing(view.key, decision):
                    return self._preparing(view, decision, missing)
            await self._accepted.accept(obj, decision, self._allocation(view, decision))
            for provider in self._migration.released(view.key, obj, decision.provider):
                await self._accepted.forget_frontend(obj, provider)
        except FairleadError as error:
            # The version on record is safe to serve meanwhile.
            return msgspec.structs.replace(self.placement_from_record(view, decision), failure=error)
        return RecordResult(decision=decision, placement=Placement(decision))

    def placement_from_record(self, view: V, decision: Decision) -> RecordResult:
        """Return the placement of the accepted spec, and of the next provider as far as its allocation is recorded."""
        self._note_checks(view, decision)
        serving = self.decision_on_record(view)
        if serving is None:
            return RecordResult(decision=decision)
        if not self._is_moving(view, decision):
            return RecordResult(decision=decision, placement=Placement(serving))
        next_ = decision if self._migration.may_prepare(decision.allocation, decision) else None
        return RecordResult(decision=decision, placement=Placement(serving, next_, Phase.KEPT))

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop the state of a load balancer that is to be removed, and what its targets cost to check."""
        super().forget(key)
        tenant = self._inventory.tenant_of(key.namespace)
        self._note(key, 0.0, tenant)
        self._context.quotas.note(key, None)

    def _note_checks(self, view: V, decision: Decision) -> None:
        self._note(view.key, decision.checks_per_s, view.tenant)
        if decision.desired is not None:
            self._context.quotas.note(view.key, sum(map(len, decision.desired.targets.values())))

    def _note(self, key: LoadBalancerKey, per_s: float, tenant: Tenant | None) -> None:
        limit = tenant.spec.max_checks_per_second if tenant is not None else 0
        if self._context.check_budget.note(key, per_s, limit=limit):
            keys = self._inventory.keys_of_namespace(key.namespace)
            self._inventory.wake(keys, "the health checks of the member are made more or less often")

    def exclusions(self, view: V, decision: Decision) -> tuple[Exclusion, ...]:
        """Return the nodes of the member that get no traffic."""
        del decision
        slices = self._inventory.node_slices_of(view.key.namespace)
        return excluded_nodes(slices, view.nodes) if self._views.objects.uses_nodes(view.load_balancer) else ()

    def _is_moving(self, view: V, decision: Decision) -> bool:
        obj = view.load_balancer
        return obj.status.accepted is not None and self._migration.is_moving(obj, decision)

    def _preparing(self, view: V, decision: Decision, missing: str) -> RecordResult:
        serving = self.decision_on_record(view) or decision
        paused = decision.desired is None or decision.desired.paused
        spec, before = view.load_balancer.spec, view.load_balancer.status.accepted
        waiting_for = (
            f"LoadBalancerClass {before.class_name if before else ''} serves until LoadBalancerClass {spec.class_name} "
            f"is ready ({missing})"
        )
        placement = Placement(serving, None if paused else decision, Phase.PREPARING)
        return RecordResult(decision=decision, placement=placement, waiting_for=waiting_for)

    def _allocation(self, view: V, decision: Decision) -> Allocation:
        """Return the allocation to record; one that is in use is kept."""
        recorded = view.load_balancer.status.allocation
        if decision.allocation != NOTHING:
            return decision.allocation
        if recorded == NOTHING:
            self._context.allocator.release(view.key)
        return recorded if self._migration.uses_allocation(view.key) else NOTHING


def excluded_nodes(slices: Iterable[EndpointSlice], nodes: NodeAddresses) -> tuple[Exclusion, ...]:
    """Return the nodes in ``slices`` that are not among ``nodes``, each by one address, ordered by address."""
    ready = {name for by_name in nodes.ready.values() for name in by_name}
    addresses: dict[str, str] = {}
    for endpoint_slice in slices:
        for endpoint in endpoint_slice.endpoints or ():
            if endpoint.addresses and (name := endpoint.node_name or endpoint.addresses[0]) not in ready:
                addresses.setdefault(name, endpoint.addresses[0])
    return tuple(Exclusion(address, "the member", "this node is not ready") for address in sorted(addresses.values()))


class AcceptedStatus(Generic[R]):
    """Writes the record of the objects of one kind, whose status has ``accepted``, when it differs."""

    def __init__(self, cluster: Cluster, objects: IntentObjects[R], leading: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._leading = leading
        self._present = objects.present
        self._resource = objects.resource
        self._status: Callable[..., Wire] = type(objects.resource.type().status)

    async def accept(self, obj: R, decision: Decision, allocation: Allocation) -> None:
        """Record the present spec as accepted; one write for each part that differs, none when nothing does."""
        if decision.desired is None:
            return
        self._check_leads(obj)
        # The spec that was decided about, even if another one is written meanwhile.
        spec = obj.spec
        held = await hold(self._cluster, self._resource, obj, FINALIZER_CLEANUP, manager=MANAGER_HUB)
        if held is not obj:
            obj = self._present.written(held, before=obj)
        if not decision.serving_last_accepted:
            await self._apply(obj, self._record(allocation, spec, decision.provider))

    async def allocate(self, obj: R, allocation: Allocation) -> None:
        """Record the allocation for the next provider; the accepted spec and the serving provider are kept."""
        status = obj.status
        allocation = status.allocation if allocation == NOTHING else allocation
        await self._apply(obj, self._record(allocation, status.accepted, status.serving_provider))

    async def forget_frontend(self, obj: R, provider: str) -> None:
        """Remove the entry of ``provider``, which has released everything, from the record."""
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

    async def _apply(self, obj: R, record: Wire) -> None:
        known = obj.status
        old = self._record(known.allocation, known.accepted, known.recorded_serving_provider)
        self._check_leads(obj)
        answer = await write_status(self._cluster, self._resource, obj, old, record, manager=MANAGER_RECORD)
        if answer is not None:
            self._present.written(answer, before=obj)

    def _check_leads(self, obj: R) -> None:
        # The view may be older than the term, after a suspension or a slow write before this one.
        check_leads(self._leading, f"{self._resource.kind} {obj.key}")

    def _record(self, allocation: Allocation, accepted: Wire | None, serving: str) -> Wire:
        entries = [Provisioned(serving, serving=True)] if serving else None
        return self._status(provisioned=entries, allocation=allocation, accepted=accepted)
