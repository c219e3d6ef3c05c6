"""Values that the translation of Gateway API passes on: from Gateways to routes, and from both to status.

    Gateway, ListenerSets, Secrets, grants ──plan_gateway──► GatewayPlan ──┬──► HTTPLoadBalancer
                                                                           │
    one route, Services, grants, policies ────plan_route─────► RoutePlan ──┼──► LoadBalancerRoute for each Gateway
                                                                           │
    both, and the hub's answer ──────────────────────────────status────────┴──► status of Gateway, ListenerSet, route

A route is planned alone, with the plans of its parents, so a changed route among thousands costs the same as among
ten. Values only: all decisions are in the modules that make them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from fairlead.agent.l7.requests import CertificateRequest
from fairlead.api.gateway import ParentReference, RouteGroupKind
from fairlead.api.httploadbalancer import HTTPLoadBalancerSpec, LoadBalancerRouteSpec
from fairlead.model.http import BackendTls

ParentKind = Literal["Gateway", "ListenerSet"]
ConditionStatus = Literal["True", "False", "Unknown"]


class ParentKey(NamedTuple):
    """A Gateway or ListenerSet of the member."""

    kind: ParentKind
    namespace: str
    name: str


class Judgement(msgspec.Struct, frozen=True, gc=False):
    """A condition before it has a generation and a time; ``type`` and ``reason`` are Gateway API's."""

    type: str
    status: ConditionStatus
    reason: str
    message: str = ""


class ListenerPlan(msgspec.Struct, frozen=True):
    """One listener of a Gateway or of one of its ListenerSets.

    ``name`` is that in the object of ``parent``; ``key`` is its name in the load balancer, unique there. ``port`` is
    the one that is served. ``hostname`` empty: every host. ``namespaces`` are those whose routes may attach, None for
    all. ``kinds`` are the kinds of routes that it takes, as its status shows them. ``judgements`` are Accepted,
    ResolvedRefs, and, only when True, Conflicted; Programmed is there only when it is False for a reason of the
    member's own objects. ``served``: it is among the listeners of the load balancer.
    """

    parent: ParentKey
    name: str
    key: str
    port: int
    protocol: str
    hostname: str
    passthrough: bool
    namespaces: frozenset[str] | None
    kinds: tuple[RouteGroupKind, ...]
    judgements: tuple[Judgement, ...]
    served: bool


class GatewayPlan(msgspec.Struct, frozen=True):
    """One Gateway of ours with its ListenerSets.

    ``listeners`` are in order of precedence, refused ones too. ``spec`` is None when nothing may be served at all
    (no listener is served, or the Gateway is refused). ``judgements`` are the Gateway's own: Accepted, ResolvedRefs
    (only with a backend client certificate), InsecureFrontendValidationMode (only when True), and Programmed only when
    it is False for a reason of the member's own objects. ``listener_sets`` has the same for each ListenerSet that
    names this Gateway, refused ones too. ``client_certificate`` is the name of the copy at the hub, empty for none.
    ``requests`` are for certificates that the hub is to get, by name.
    """

    gateway: ParentKey
    load_balancer: str
    listeners: tuple[ListenerPlan, ...]
    spec: HTTPLoadBalancerSpec | None
    judgements: tuple[Judgement, ...]
    listener_sets: Mapping[ParentKey, tuple[Judgement, ...]] = {}
    client_certificate: str = ""
    requests: Mapping[str, CertificateRequest] = {}

    @property
    def is_refused(self) -> bool:
        """Return whether the Gateway is not accepted as it is now: what was published of it before stays."""
        refused = any(each.type == "Accepted" and each.status == "False" for each in self.judgements)
        return self.spec is None and refused


class BackendPolicy(msgspec.Struct, frozen=True):
    """The effect of BackendTLSPolicies on one port of a Service.

    ``tls`` None with ``broken`` means that a policy counts which cannot be fulfilled: the backend is not reached at
    all, never in plain text.
    """

    tls: BackendTls | None = None
    broken: str = ""


class AttachedListener(NamedTuple):
    """A listener that has accepted a route: the load balancer's name, and the key of the listener in it."""

    load_balancer: str
    listener: str


class ParentJudgement(msgspec.Struct, frozen=True):
    """The conditions of a route at one of its ``parentRefs``: Accepted, ResolvedRefs, and PartiallyInvalid when True.

    ``load_balancer`` is that of the parent's Gateway: what the hub refuses there is reported at this parent.
    """

    parent_ref: ParentReference
    judgements: tuple[Judgement, ...]
    load_balancer: str = ""


class RoutePlan(msgspec.Struct, frozen=True):
    """One route: what is published by load balancer, what is reported by parent of ours, and where it is attached.

    ``services`` are the (namespace, name) of the Services whose endpoints it needs at the hub.
    """

    specs: Mapping[str, LoadBalancerRouteSpec]
    parents: tuple[ParentJudgement, ...]
    attached: frozenset[AttachedListener]
    services: frozenset[tuple[str, str]]
