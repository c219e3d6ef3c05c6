"""The view of one key: everything that the decision about it may depend on, gathered from the caches at one moment."""

from __future__ import annotations

import msgspec

from fairlead.api.loadbalancerclass import ClassHealthCheck, LoadBalancerClass, LoadBalancerClassSpec
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import ANNOTATION_STALE, DEFAULT_CLASS
from fairlead.api.provisioned import AskedHealthCheck
from fairlead.api.tcploadbalancer import TCPLoadBalancer, TCPLoadBalancerStatus
from fairlead.api.tenant import Tenant
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.tcp.objects import TCPObjects
from fairlead.hub.tenants.address_allocator import listeners_of
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.endpoints import nodes_from_slices
from fairlead.translate.protection import is_leaving
from fairlead.translate.validate import validate_tcp
from fairlead.translate.view import NodeAddresses, TCPView


class TCPViews:
    """Gathers views; keeps only what many of them share, the nodes of a member."""

    def __init__(self, context: IntentContext, objects: TCPObjects) -> None:
        self._objects = objects
        self._inventory = context.inventory
        self._allocator = context.allocator
        self._member_health = context.member_health
        self._providers = context.providers
        self._loopback_targets = context.loopback_targets
        self._nodes: dict[str, tuple[tuple[str, ...], NodeAddresses]] = {}

    def view(self, key: LoadBalancerKey, *, allocate: bool) -> TCPView | None:
        """Return the view of ``key``, None when it is not to exist (any more).

        ``allocate``: give it an address or ports when it has none; only the leader may.
        """
        obj = self._objects.get(key)
        if obj is None or is_leaving(obj):
            return None
        tenant = self._inventory.tenant_of(key.namespace)
        load_balancer_class = self._inventory.classes.get("", obj.spec.class_name or DEFAULT_CLASS)
        accepted = obj.status.accepted
        view = TCPView(
            key=key,
            load_balancer=obj,
            tenant=tenant,
            load_balancer_class=load_balancer_class,
            providers=self._providers.capabilities,
            slices=self._inventory.slices_of(key),
            nodes=self._nodes_of(key.namespace),
            allocation=obj.status.allocation,
            accepted_class=self._class_of(accepted.class_name, obj.status) if accepted else None,
            member=self._member_health.view(tenant, key.namespace),
            over_quota=self._over_quota(obj, tenant),
            stale=self._inventory.problem or self._inventory.unreadable_slices(key.namespace),
            loopback_targets=self._loopback_targets,
            provider_problems=self._providers.problems,
        )
        if not allocate:
            # The leader allocates; what it recorded is held here too, for the day that this replica leads.
            self._allocator.hold(key, view.allocation, listeners_of(accepted or obj.spec))
            return view
        if load_balancer_class is None or validate_tcp(view, obj.spec) is not None:
            return view
        allocation, problem = self._allocator.allocate(
            key,
            self._providers.capabilities[load_balancer_class.spec.provider].allocation,
            wanted=obj.spec.address,
            recorded=obj.status.allocation,
            listeners=listeners_of(obj.spec),
        )
        return msgspec.structs.replace(view, allocation=allocation, allocation_problem=problem)

    def _class_of(self, name: str, status: TCPLoadBalancerStatus) -> LoadBalancerClass | None:
        """Return the class of what is served; when it is gone, or names another provider, one made from the record."""
        load_balancer_class, provider = self._inventory.classes.get("", name or DEFAULT_CLASS), status.serving_provider
        if not provider or (load_balancer_class is not None and load_balancer_class.spec.provider == provider):
            return load_balancer_class
        frontend = status.frontend_of(provider)
        asked = frontend.asked if frontend is not None else None
        spec = LoadBalancerClassSpec(
            provider=provider,
            parameters=dict(asked.parameters or {}) if asked is not None else {},
            health_check=_health_check(asked.health_check) if asked is not None else ClassHealthCheck(),
        )
        return LoadBalancerClass(metadata=ObjectMeta(name=name), spec=spec)

    def _nodes_of(self, namespace: str) -> NodeAddresses:
        """Return a member's nodes, computed once for each version of its slices."""
        slices = self._inventory.node_slices_of(namespace)
        versions = tuple(endpoint_slice.metadata.resource_version for endpoint_slice in slices)
        known = self._nodes.get(namespace)
        if known is None or known[0] != versions:
            stale = next(filter(None, (endpoint_slice.annotation(ANNOTATION_STALE) for endpoint_slice in slices)), "")
            known = self._nodes[namespace] = (versions, NodeAddresses(nodes_from_slices(slices), stale))
        return known[1]

    def _over_quota(self, load_balancer: TCPLoadBalancer, tenant: Tenant | None) -> str:
        """Return why ``load_balancer`` exceeds its Tenant's quota, empty when it does not; served ones count first."""
        limit = tenant.spec.max_load_balancers if tenant else 0
        if not tenant or not limit or load_balancer.status.accepted is not None:
            return ""
        others = self._objects.cache.by_index("namespace", load_balancer.metadata.namespace)
        if sum(1 for other in others if _rank(other) < _rank(load_balancer)) < limit:
            return ""
        return (
            f"member {tenant.metadata.name} has {limit} load balancers already, which is all that its Tenant's "
            "spec.maxLoadBalancers allows; delete one, or ask the operator for more"
        )


def _health_check(check: AskedHealthCheck | None) -> ClassHealthCheck:
    if check is None:
        return ClassHealthCheck(disabled=True)
    return ClassHealthCheck(
        interval=f"{round(check.interval_seconds * 1000)}ms",
        timeout=f"{round(check.timeout_seconds * 1000)}ms",
        unhealthy_threshold=check.unhealthy_threshold,
        healthy_threshold=check.healthy_threshold,
    )


def _rank(obj: TCPLoadBalancer) -> tuple[bool, str, str]:
    return (obj.status.accepted is None, obj.metadata.creation_timestamp or "", obj.metadata.name)


def with_accepted_spec(view: TCPView) -> TCPView | None:
    """Return the view as it was last accepted and recorded, None when it never was."""
    accepted = view.load_balancer.status.accepted
    if accepted is None:
        return None
    return msgspec.structs.replace(
        view,
        load_balancer=msgspec.structs.replace(view.load_balancer, spec=accepted),
        load_balancer_class=view.accepted_class,
        allocation=view.load_balancer.status.allocation,
        allocation_problem=None,
        over_quota="",
    )
