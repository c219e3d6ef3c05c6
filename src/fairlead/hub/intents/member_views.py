"""The part of views that all intents of members share: class, Tenant, nodes, quota; and what a decision may allocate.

In: the caches, at one moment. Out: views, and allocations for those that are valid. A subclass adds what its kind has
of its own: which object, which endpoints, which ports.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from fairlead.api.intent import IntentObject, IntentStatus
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.meta import JSONMapping
from fairlead.api.tenant import Tenant
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.unreadable import RemainsHolder
from fairlead.hub.inventory import UNTIL_READ, IntentObjects
from fairlead.hub.tenants.address_allocator import NOTHING
from fairlead.model.contract import AllocationKind
from fairlead.model.keys import Family, ListenerKey, LoadBalancerKey
from fairlead.translate.conditions import is_leaving
from fairlead.translate.families import wanted_families
from fairlead.translate.nodes import nodes_from_slices
from fairlead.translate.view import Allocated, MemberView, NodeAddresses

Obj = TypeVar("Obj", bound=IntentObject)
V = TypeVar("V", bound=MemberView)


class MemberViews(Generic[Obj, V]):
    """Gathers views; keeps only what many of them share, the nodes of a member.

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
        """Return the ports that are opened beside those of the spec."""
        del view
        return ()

    # --- what all have in common -------------------------------------------------------------------------------

    def view(self, key: LoadBalancerKey) -> V | None:
        """Return the view of ``key``, None when it is not to exist (any more)."""
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
        self._allocator.hold(view.key, view.allocation, listeners, beside=beside)
        return view.allocation, None

    def allocate(self, view: V) -> Allocated:
        """Return what a valid load balancer has: what it had already, or an address or ports that are free."""
        obj: Any = view.load_balancer
        tenant, accepted, capabilities = view.tenant, obj.status.accepted, view.capabilities
        return self._allocator.allocate(
            view.key,
            capabilities.allocation if capabilities is not None else AllocationKind.NONE,
            wanted=obj.spec.address,
            recorded=obj.status.allocation,
            listeners=self.listeners(obj.spec),
            beside=self.listeners_beside(view),
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
