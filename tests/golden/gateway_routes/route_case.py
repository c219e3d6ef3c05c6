"""Golden cases of Gateway API: the objects of a member, and what a route among them becomes.

In: ``<case>.in.json``, objects as an API server sends them, without defaults. Out: what is published, where the route
is attached, and the status of the route and of the policies of its Services.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.agent.sources.gateway.listeners import plan_gateway
from fairlead.agent.sources.gateway.plan import AttachedListener, GatewayPlan, GatewayView, ParentKey
from fairlead.agent.sources.gateway.policies import PolicyView, plan_policies, policy_status
from fairlead.agent.sources.gateway.routes import RouteView, plan_route
from fairlead.agent.sources.gateway.status import route_status
from fairlead.agent.sources.http import CertificateState
from fairlead.api.gateway import (
    AnyRoute,
    BackendTLSPolicy,
    Gateway,
    GRPCRoute,
    HTTPRoute,
    ListenerSet,
    PolicyStatus,
    ReferenceGrant,
    RouteStatus,
    TCPRoute,
    TLSRoute,
    UDPRoute,
)
from fairlead.api.httploadbalancer import LoadBalancerRouteSpec, RefusedPartStatus
from fairlead.api.kubernetes import Service

NOW = "2026-03-01T12:00:00Z"
_TYPES: dict[str, type[AnyRoute]] = {
    each.__name__: each for each in (HTTPRoute, GRPCRoute, TLSRoute, TCPRoute, UDPRoute)
}


class RouteCase(msgspec.Struct, frozen=True, rename="camel"):
    """A route among the objects that it depends on; Secrets and ConfigMaps as namespace/name with what is in them."""

    kind: str
    route: dict[str, Any]
    gateways: tuple[Gateway, ...]
    listener_sets: tuple[ListenerSet, ...] = ()
    namespaces: dict[str, dict[str, str]] = {}
    services: tuple[Service, ...] = ()
    grants: tuple[ReferenceGrant, ...] = ()
    policies: tuple[BackendTLSPolicy, ...] = ()
    certificates: dict[str, str] = {}
    ca_bundles: dict[str, str] = {}
    refused: dict[str, list[RefusedPartStatus]] = {}


class RouteResult(msgspec.Struct, frozen=True, rename="camel"):
    """What becomes of it."""

    published: dict[str, LoadBalancerRouteSpec]
    attached: frozenset[AttachedListener]
    services: frozenset[tuple[str, str]]
    status: RouteStatus
    policies: dict[str, PolicyStatus] = {}


def translate_route(case: RouteCase) -> RouteResult:
    """Return what becomes of the route of ``case``."""
    plans: dict[ParentKey, GatewayPlan] = {}
    for gateway in case.gateways:
        plan = _gateway(case, gateway)
        plans |= {plan.gateway: plan} | dict.fromkeys(plan.listener_sets, plan)
    services = {(each.metadata.namespace, each.metadata.name): each for each in case.services}
    policies = plan_policies(PolicyView(case.policies, services, _by_name(case.ca_bundles)))
    route = msgspec.convert(case.route, _TYPES[case.kind])
    plan = plan_route(RouteView(route, plans, services, case.grants, policies.backends))
    gateways = [each.gateway for each in plans.values() if each.load_balancer in plan.specs]
    return RouteResult(
        published=dict(plan.specs),
        attached=plan.attached,
        services=plan.services,
        status=route_status(plan, route, now=NOW, refused=case.refused),
        policies={
            str(each.key): policy_status(policies.judgements[each.key], each, gateways, now=NOW)
            for each in case.policies
        },
    )


def _gateway(case: RouteCase, gateway: Gateway) -> GatewayPlan:
    return plan_gateway(
        GatewayView(
            gateway,
            listener_sets=tuple(
                each for each in case.listener_sets if each.spec.parent_ref.name == gateway.metadata.name
            ),
            namespaces=case.namespaces,
            grants=case.grants,
            certificates={name: CertificateState(digest) for name, digest in _by_name(case.certificates).items()},
            ca_bundles=_by_name(case.ca_bundles),
        )
    )


def _by_name(values: dict[str, str]) -> dict[tuple[str, str], str]:
    return {(namespace, name): value for key, value in values.items() for namespace, _, name in [key.partition("/")]}
