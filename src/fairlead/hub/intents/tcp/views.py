"""The view of one key: everything that the decision about it may depend on, gathered from the caches at one moment."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlead.api.loadbalancerclass import ClassHealthCheck, LoadBalancerClass, LoadBalancerClassSpec
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import ANNOTATION_STALE, DEFAULT_CLASS
from fairlead.api.tcploadbalancer import TCPLoadBalancer, TCPLoadBalancerStatus
from fairlead.api.tenant import Tenant
from fairlead.hub.inventory import Inventory
from fairlead.hub.tenants.address_allocator import AddressAllocator, listeners_on_record
from fairlead.hub.tenants.member_health import MemberHealth
from fairlead.ledger.frontends import spec_of_text
from fairlead.model.contract import Capabilities
from fairlead.model.desired import HealthCheck
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.endpoints import nodes_from_slices
from fairlead.translate.protection import is_leaving
from fairlead.translate.validate import validate_tcp
from fairlead.translate.view import NodeAddresses, TCPView


class Views:
    """Gathers views; remembers only what many of them share, the nodes of a member."""

    def __init__(
        self,
        *,
        inventory: Inventory,
        book: AddressAllocator,
        members: MemberHealth,
        providers: Mapping[str, Capabilities],
        loopback_targets: bool,
        provider_problems: Mapping[str, str] | None = None,
    ) -> None:
        self._inventory = inventory
        self._book = book
        self._members = members
        self._providers = providers
        self._loopback_targets = loopback_targets
        self._provider_problems = provider_problems if provider_problems is not None else {}
        self._nodes: dict[str, tuple[tuple[str, ...], NodeAddresses]] = {}

    def tcp(self, key: LoadBalancerKey, *, allocate: bool) -> TCPView | None:
        """Return the view of ``key``, None when it is not to exist (any more).

        ``allocate``: give it an address or ports when it has none; only the leader may.
        """
        load_balancer = self._inventory.tcp(key)
        if load_balancer is None or is_leaving(load_balancer):
            return None
        tenant = self._inventory.tenant_of(key.namespace)
        load_balancer_class = self._inventory.classes.get("", load_balancer.spec.class_name or DEFAULT_CLASS)
        over_quota = self._over_quota(load_balancer, tenant)
        accepted = load_balancer.status.accepted
        view = TCPView(
            key=key,
            load_balancer=load_balancer,
            tenant=tenant,
            load_balancer_class=load_balancer_class,
            providers=self._providers,
            slices=self._inventory.slices_of(key),
            nodes=self._nodes_of(key.namespace),
            allocation=load_balancer.status.allocation,
            accepted_class=self._class_of(accepted.class_name, load_balancer.status) if accepted else None,
            member=self._members.view(tenant, key.namespace),
            over_quota=over_quota,
            stale=self._inventory.problem or self._inventory.unreadable_slices(key.namespace),
            loopback_targets=self._loopback_targets,
            provider_problems=self._provider_problems,
        )
        if not allocate:
            # Others give; what they have given is noted, so that it is known on the day that we are to give.
            self._book.hold(key, view.allocation, listeners_on_record(load_balancer))
            return view
        if load_balancer_class is None or validate_tcp(view, load_balancer.spec) is not None:
            return view
        kind = self._providers[load_balancer_class.spec.provider].allocation
        allocation, problem = self._book.allocate(key, load_balancer, kind)
        return msgspec.structs.replace(view, allocation=allocation, allocation_problem=problem)

    def _class_of(self, name: str, status: TCPLoadBalancerStatus) -> LoadBalancerClass | None:
        """Return the class of what is served; when it is gone, or names another provider, what is on record of it."""
        found, provider = self._inventory.classes.get("", name or DEFAULT_CLASS), status.provider
        if not provider or (found is not None and found.spec.provider == provider):
            return found
        frontend = status.frontend_of(provider)
        ensured = spec_of_text(frontend.ensured) if frontend is not None else None
        spec = LoadBalancerClassSpec(
            provider=provider,
            parameters=dict(ensured.parameters) if ensured is not None else {},
            health_check=_health_check(ensured.health_check) if ensured is not None else ClassHealthCheck(),
        )
        return LoadBalancerClass(metadata=ObjectMeta(name=name), spec=spec)

    def _nodes_of(self, namespace: str) -> NodeAddresses:
        """Return a member's nodes, computed once for each version of its slices."""
        slices = self._inventory.node_slices_of(namespace)
        versions = tuple(one.metadata.resource_version for one in slices)
        known = self._nodes.get(namespace)
        if known is None or known[0] != versions:
            stale = next((text for one in slices if (text := one.annotation(ANNOTATION_STALE))), "")
            known = self._nodes[namespace] = (versions, NodeAddresses(nodes_from_slices(slices), stale))
        return known[1]

    def _over_quota(self, load_balancer: TCPLoadBalancer, tenant: Tenant | None) -> str:
        """Say why this one is beyond its tenant's quota: those that are served already come first, then the oldest."""
        limit = tenant.spec.max_load_balancers if tenant else 0
        if not tenant or not limit or load_balancer.status.accepted is not None:
            return ""
        others = self._inventory.load_balancers.by_index("namespace", load_balancer.metadata.namespace)
        if sum(1 for one in others if _rank(one) < _rank(load_balancer)) < limit:
            return ""
        return (
            f"member {tenant.metadata.name} has {limit} load balancers already, which is all that its Tenant's "
            "spec.maxLoadBalancers allows; delete one, or ask the operator for more"
        )


def _health_check(check: HealthCheck | None) -> ClassHealthCheck:
    if check is None:
        return ClassHealthCheck(disabled=True)
    return ClassHealthCheck(
        interval=f"{round(check.interval_s * 1000)}ms",
        timeout=f"{round(check.timeout_s * 1000)}ms",
        unhealthy_threshold=check.unhealthy_threshold,
        healthy_threshold=check.healthy_threshold,
    )


def _rank(one: TCPLoadBalancer) -> tuple[bool, str, str]:
    return (one.status.accepted is None, one.metadata.creation_timestamp or "", one.metadata.name)


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
