"""Values of Gateway API: plans of Gateways and routes, their input, and conditions.

    Gateway, ListenerSets, Secrets, grants ──plan_gateway──► GatewayPlan ──┬──► HTTPLoadBalancer
                                                                           │
    one route, Services, grants, policies ────plan_route─────► RoutePlan ──┼──► LoadBalancerRoute for each Gateway
                                                                           │
    both, and the hub's answer ──────────────────────────────status────────┴──► status of Gateway, ListenerSet, route

A route is planned alone, with the plans of its parents, so a changed route among thousands costs the same as among
ten. A ``Judgement`` is a condition before it has a generation and a time. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeVar

import msgspec

from fairlead.agent.events import refusal, unpublished
from fairlead.agent.sources.http import CertificateRequest, CertificateState, ProcessorRequest, processing_of
from fairlead.api.gateway import (
    GATEWAY_GROUP,
    FrontendValidation,
    Gateway,
    GrantFrom,
    ListenerSet,
    ParentReference,
    PolicyAncestorStatus,
    Reference,
    ReferenceGrant,
    RouteGroupKind,
    RouteParentStatus,
)
from fairlead.api.httploadbalancer import HTTPLoadBalancerSpec, LoadBalancerRouteSpec
from fairlead.api.intent import NamesStatus
from fairlead.api.meta import KubeObject, WireCondition, is_younger, mirrored_conditions
from fairlead.api.names import ANNOTATION_ERROR_PAGES, GROUP
from fairlead.api.tcploadbalancer import TargetType
from fairlead.model.condition import ConditionType
from fairlead.model.http import BackendTls

# --- plans -----------------------------------------------------------------------------------------------------------

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

    ``name`` is the name in the object of ``parent``; ``key`` is the unique name in the load balancer. ``port`` is
    the served one. ``hostname`` empty: every host. ``namespaces`` are those whose routes may attach, None for
    all. ``kinds`` are the kinds of routes that it accepts, as its status shows them. ``judgements`` are Accepted,
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
    ``requests`` are for certificates that the hub should get, by name.
    """

    gateway: ParentKey
    load_balancer: str
    listeners: tuple[ListenerPlan, ...]
    spec: HTTPLoadBalancerSpec | None
    judgements: tuple[Judgement, ...]
    listener_sets: Mapping[ParentKey, tuple[Judgement, ...]] = {}
    client_certificate: str = ""
    requests: Mapping[str, CertificateRequest] = {}
    processor: ProcessorRequest | None = None
    #: The LoadBalancerClass, if it traces no requests.
    untraced_by: str = ""

    @property
    def is_refused(self) -> bool:
        """Return whether the present Gateway is not accepted: its published objects stay."""
        refused = any(judgement.type == "Accepted" and judgement.status == "False" for judgement in self.judgements)
        return self.spec is None and refused


class BackendPolicy(msgspec.Struct, frozen=True):
    """The effect of BackendTLSPolicies on one port of a Service.

    ``tls`` None with ``broken``: the effective policy cannot be fulfilled, so the backend is not reached at
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

    ``load_balancer`` is that of the parent's Gateway: the hub's refusals there are reported at this parent.
    """

    parent_ref: ParentReference
    judgements: tuple[Judgement, ...]
    load_balancer: str = ""


class RoutePlan(msgspec.Struct, frozen=True):
    """One route: the published objects by load balancer, the conditions by parent of ours, and its attachments.

    ``services`` are the (namespace, name) of the Services whose endpoints it needs at the hub. ``is_refused``: the
    route asks for something unsupported. Its published objects stay if they still protect all requests as the invalid
    annotations ``undecided`` would.
    """

    specs: Mapping[str, LoadBalancerRouteSpec]
    parents: tuple[ParentJudgement, ...]
    attached: frozenset[AttachedListener]
    services: frozenset[tuple[str, str]]
    is_refused: bool = False
    undecided: frozenset[str] = frozenset()


# --- references ------------------------------------------------------------------------------------------------------

CORE_GROUP = ""
SECRET = (CORE_GROUP, "Secret")
CONFIG_MAP = (CORE_GROUP, "ConfigMap")
SERVICE = (CORE_GROUP, "Service")
GATEWAY = (GATEWAY_GROUP, "Gateway")
LISTENER_SET = (GATEWAY_GROUP, "ListenerSet")
HTTP_ROUTE = (GATEWAY_GROUP, "HTTPRoute")
GRPC_ROUTE = (GATEWAY_GROUP, "GRPCRoute")
TLS_ROUTE = (GATEWAY_GROUP, "TLSRoute")
TCP_ROUTE = (GATEWAY_GROUP, "TCPRoute")
UDP_ROUTE = (GATEWAY_GROUP, "UDPRoute")


def permits(
    grants: Iterable[ReferenceGrant], origin: GrantFrom, target: tuple[str, str], namespace: str, name: str
) -> bool:
    """Return whether objects like ``origin`` may refer to the ``target`` (group and kind) of this namespace and name.

    Within a namespace every reference is permitted.
    """
    # An empty name in a grant is the same as an absent one.
    return origin.namespace == namespace or any(
        origin in (grant.spec.from_ or ())
        and any((to.group, to.kind) == target and to.name in {None, "", name} for to in grant.spec.to or ())
        for grant in grants
        if grant.metadata.namespace == namespace and not grant.deleting
    )


# --- what a Gateway names --------------------------------------------------------------------------------------------

#: Namespace and name.
ObjectName = tuple[str, str]


class GatewayView(msgspec.Struct, frozen=True):
    """One Gateway of ours.

    ``load_balancer_class`` is that of its class, empty for the default one. ``listener_sets`` are all that name it, in
    any order. ``namespaces`` are all namespaces of the member with their labels. ``certificates`` are the Secrets that
    ``secrets_named`` lists; ``ca_bundles`` are the ``ca.crt`` of the ConfigMaps that ``config_maps_named`` lists:
    absent without the ConfigMap, empty if the entry is missing or not PEM. ``error_pages`` are its other
    entries that are for status codes. ``issuer`` is that of a Gateway
    that names none; ``managed`` are the certificates that the hub gets, by name. ``untraced_by`` is its class of the
    hub, if that traces no requests.
    """

    gateway: Gateway
    load_balancer_class: str = ""
    listener_sets: tuple[ListenerSet, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    grants: tuple[ReferenceGrant, ...] = ()
    certificates: Mapping[ObjectName, CertificateState] = {}
    ca_bundles: Mapping[ObjectName, str] = {}
    error_pages: Mapping[ObjectName, Mapping[str, str]] = {}
    targets: TargetType = "Pod"
    issuer: str = ""
    untraced_by: str = ""
    managed: Mapping[str, CertificateState] = {}


def secrets_named(obj: Gateway | ListenerSet) -> frozenset[ObjectName]:
    """Return the Secrets that a Gateway or ListenerSet names, as certificates of listeners or towards backends."""
    references = [
        reference
        for listener in obj.spec.listeners or ()
        if listener.tls is not None
        for reference in listener.tls.certificate_refs or ()
    ]
    if isinstance(obj, Gateway) and (client := client_certificate_of(obj)) is not None:
        references.append(client)
    return frozenset(
        (reference.namespace or obj.metadata.namespace, reference.name)
        for reference in references
        if is_secret(reference) and reference.name
    )


def config_maps_named(gateway: Gateway) -> frozenset[ObjectName]:
    """Return the ConfigMaps that a Gateway names, for authorities of its clients or for error pages."""
    pages = gateway.annotation(ANNOTATION_ERROR_PAGES)
    named = frozenset({(gateway.metadata.namespace, pages)}) if pages else frozenset[ObjectName]()
    return named | frozenset(
        (reference.namespace or gateway.metadata.namespace, reference.name)
        for validation in validations_of(gateway)
        for reference in validation.ca_certificate_refs or ()
        if is_config_map(reference) and reference.name
    )


def processor_of(gateway: Gateway) -> ProcessorRequest | None:
    """Return the processor that inspects the requests of a Gateway, with its Service's namespace; None for none."""
    request = processing_of(gateway).request
    if request is None:
        return None
    return msgspec.structs.replace(request, namespace=request.namespace or gateway.metadata.namespace)


def client_certificate_of(gateway: Gateway) -> Reference | None:
    """Return the certificate that is presented to backends, None if there is none."""
    backend = gateway.spec.tls.backend if gateway.spec.tls is not None else None
    return backend.client_certificate_ref if backend is not None else None


def validations_of(gateway: Gateway) -> Iterable[FrontendValidation]:
    """Yield the validation of clients: the default, and by port."""
    frontend = gateway.spec.tls.frontend if gateway.spec.tls is not None else None
    if frontend is not None:
        for tls in (frontend.default, *(port.tls for port in frontend.per_port or ())):
            if tls.validation is not None:
                yield tls.validation


def validation_at(gateway: Gateway, port: int) -> FrontendValidation | None:
    """Return how the clients of an HTTPS port are validated; settings of a port replace the default."""
    frontend = gateway.spec.tls.frontend if gateway.spec.tls is not None else None
    if frontend is None:
        return None
    of_port = next((per_port.tls for per_port in frontend.per_port or () if per_port.port == port), frontend.default)
    return of_port.validation


def is_secret(reference: Reference) -> bool:
    """Return whether a reference to a certificate names a Secret; unset fields mean that."""
    return (reference.group or CORE_GROUP, reference.kind or "Secret") == SECRET


def is_config_map(reference: Reference) -> bool:
    """Return whether a reference to authorities names a ConfigMap."""
    return (reference.group or CORE_GROUP, reference.kind) == CONFIG_MAP


# --- conditions ------------------------------------------------------------------------------------------------------

E = TypeVar("E", RouteParentStatus, PolicyAncestorStatus)

ACCEPTED = "Accepted"
RESOLVED_REFS = "ResolvedRefs"
PARTIALLY_INVALID = "PartiallyInvalid"
PROGRAMMED = "Programmed"
CONFLICTED = "Conflicted"
#: Gateway API has no condition for resolving names: ours has a prefix, and is set only while a name is refused.
HOSTNAMES_ACCEPTED = f"{GROUP}/{ConditionType.HOSTNAMES_ACCEPTED}"
HOSTNAMES_PUBLISHED = f"{GROUP}/{ConditionType.HOSTNAMES_PUBLISHED}"

_MESSAGES = {
    (ACCEPTED, "True"): "accepted",
    (RESOLVED_REFS, "True"): "all references are resolved",
    (PROGRAMMED, "True"): "served",
}


def good(kind: str, message: str = "") -> Judgement:
    """Return a positive judgement; its reason is its type."""
    return Judgement(kind, "True", kind, message)


def bad(kind: str, reason: str, message: str, *, status: ConditionStatus = "False") -> Judgement:
    """Return a negative judgement with its reason."""
    return Judgement(kind, status, reason, message)


def find(judgements: Iterable[Judgement], kind: str) -> Judgement | None:
    """Return the judgement of one type, None if there is none."""
    return next((judgement for judgement in judgements if judgement.type == kind), None)


def holds(judgements: Iterable[Judgement], kind: str) -> bool:
    """Return whether the judgement of one type exists and is True."""
    judgement = find(judgements, kind)
    return judgement is not None and judgement.status == "True"


def of_names(names: Iterable[NamesStatus]) -> list[Judgement]:
    """Return the judgements about host names that the hub refuses, or cannot publish; empty if there are none."""
    known = list(names)
    judgements: list[Judgement] = []
    for kind, condition_of in ((HOSTNAMES_ACCEPTED, refusal), (HOSTNAMES_PUBLISHED, unpublished)):
        shown = sorted(
            {(condition.reason, condition.message) for condition in map(condition_of, known) if condition is not None}
        )
        judgements += [bad(kind, reason, message) for reason, message in shown[:1]]
    return judgements


def wire_judgements(
    judgements: Iterable[Judgement], old: Iterable[WireCondition] | None, *, generation: int, now: str
) -> list[WireCondition]:
    """Return ``judgements`` as conditions; lastTransitionTime is kept from ``old`` while the status is the same."""
    conditions = [
        WireCondition(
            type=judgement.type,
            status=judgement.status,
            reason=judgement.reason,
            message=judgement.message or _MESSAGES.get((judgement.type, judgement.status), judgement.reason),
        )
        for judgement in judgements
    ]
    return mirrored_conditions(conditions, old, generation=generation, now=now)


def renewed(entry: E, judgements: Iterable[Judgement], obj: KubeObject, now: str) -> E:
    """Return the entry of one parent in the status of ``obj``; an entry about a newer generation stays unchanged."""
    generation = obj.metadata.generation
    if is_younger(entry.conditions, generation):
        return entry
    conditions = wire_judgements(judgements, entry.conditions, generation=generation, now=now)
    return msgspec.structs.replace(entry, conditions=conditions)
