"""The statuses of GatewayClasses, Gateways, ListenerSets and routes, and the Service of a Gateway in the member.

    Gateway: refused, or in conflict         as planned
    published, not answered yet              Programmed=Unknown
    published, and answered                  as the hub reports for the present spec
    the same, and no listener is programmed  Programmed=False

    entry in ``status.parents`` of a route   becomes
    of another controller                    unchanged
    of ours, declared, parent of ours        the conditions of its plan
    of ours, no longer declared              removed
    of ours, about a younger generation      kept: the route that was planned is an old one

A route that the hub rejects although the member accepts it is Accepted=False/UnsupportedValue at the parents of that
load balancer, with the hub's message; rules that it rejects are PartiallyInvalid. In: plans, counts of routes, the
hub's objects, the time as RFC 3339. Out: statuses, equal to the present ones when nothing has changed; a condition
keeps its time while its status is the same. Never: changes a condition of another owner.

A Gateway with ``spec.infrastructure`` has two objects in the member, with its labels and annotations:

    gateway-<name>   a headless Service without selector: the Gateway's name within the cluster
    gateway-<name>   its EndpointSlices with the Gateway's addresses, as far as slices may have them

An object that is not the Gateway's is never taken over. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from fairlead.agent.events import made_names, name_class_parameters
from fairlead.agent.sources.gateway.plan import (
    ACCEPTED,
    PARTIALLY_INVALID,
    PROGRAMMED,
    GatewayPlan,
    Judgement,
    ListenerPlan,
    ParentJudgement,
    ParentKey,
    RoutePlan,
    bad,
    find,
    good,
    holds,
    of_names,
    renewed,
    wire_judgements,
)
from fairlead.api.gateway import (
    GATEWAYS,
    AnyRoute,
    Gateway,
    GatewayAddress,
    GatewayClass,
    GatewayClassStatus,
    GatewayStatus,
    ListenerSet,
    ListenerSetStatus,
    ListenerStatus,
    RouteParentStatus,
    RouteStatus,
    SupportedFeature,
)
from fairlead.api.httploadbalancer import HTTPLoadBalancer, RefusedPartStatus
from fairlead.api.intent import NamesStatus
from fairlead.api.kubernetes import Endpoint, EndpointPort, EndpointSlice, Service, ServicePort, ServiceSpec
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject, KubeObject, ObjectMeta, Wire, WireCondition, is_taken_over, is_younger
from fairlead.api.names import (
    GATEWAY_CONTROLLER,
    GROUP,
    LABEL_MANAGED_BY,
    LABEL_SERVICE_NAME,
    LABEL_SLICE_MANAGED_BY,
    MANAGED_BY,
    SLICE_MANAGED_BY,
    fit,
    label_value,
    short_hash,
)
from fairlead.model.condition import ConditionReason, ConditionType

_PENDING = "Pending"
_INVALID = "Invalid"
#: Reasons of the hub that have another name in Gateway API.
_REASONS = {
    ConditionReason.PENDING: _PENDING,
    ConditionReason.ADDRESS_NOT_USABLE: "AddressNotUsable",
    ConditionReason.UNSUPPORTED_ADDRESS_FAMILY: "AddressNotUsable",
    ConditionReason.ADDRESS_NOT_ASSIGNED: "AddressNotAssigned",
    ConditionReason.ADDRESS_POOL_EXHAUSTED: "AddressNotAssigned",
    ConditionReason.QUOTA_EXCEEDED: "NoResources",
    ConditionReason.NO_PROXY_CONNECTED: "NoResources",
}


def gateway_status(
    plan: GatewayPlan,
    gateway: Gateway,
    *,
    attached: Mapping[str, int],
    hub: HTTPLoadBalancer | None,
    now: str,
    refusal: str = "",
) -> GatewayStatus:
    """Return the status of the Gateway of ``plan``; ``attached`` has the routes by key of the listener.

    ``refusal`` is why the hub refuses the published load balancer. A status of a newer version of the Gateway stays.
    """
    if is_younger(gateway.status.conditions, gateway.metadata.generation):
        return gateway.status
    answer = bad(PROGRAMMED, _INVALID, refusal) if refusal else _answer(plan, hub)
    generation = gateway.metadata.generation
    context = _Context(answer, hub, attached, generation, now)
    judgements = plan.judgements
    if find(judgements, PROGRAMMED) is None:
        judgements = (*judgements, context.with_listeners(answer, plan.listeners))
    judgements = (*judgements, *of_names([] if hub is None else [hub.status.names]))
    if plan.is_refused and hub is not None:
        judgements = tuple(map(_with_rest, judgements))
    return GatewayStatus(
        addresses=addresses_of(plan, hub) or None,
        conditions=wire_judgements(judgements, gateway.status.conditions, generation=generation, now=now),
        listeners=_listeners(plan, plan.gateway, gateway.status.listeners, context),
        attached_listener_sets=sum(holds(listener_set, ACCEPTED) for listener_set in plan.listener_sets.values()),
    )


def listener_set_status(
    plan: GatewayPlan, listener_set: ListenerSet, *, attached: Mapping[str, int], hub: HTTPLoadBalancer | None, now: str
) -> ListenerSetStatus:
    """Return the status of a ListenerSet that the Gateway of ``plan`` knows; that of a newer version stays."""
    meta, status = listener_set.metadata, listener_set.status
    if is_younger(status.conditions, meta.generation):
        return status
    key = ParentKey("ListenerSet", meta.namespace, meta.name)
    answer = _answer(plan, hub)
    context = _Context(answer, hub, attached, meta.generation, now)
    judgements = plan.listener_sets[key]
    if find(judgements, PROGRAMMED) is None:
        own = [listener for listener in plan.listeners if listener.parent == key]
        judgements = (*judgements, context.with_listeners(_of_listener(answer), own))
    return ListenerSetStatus(
        conditions=wire_judgements(judgements, status.conditions, generation=meta.generation, now=now),
        listeners=_listeners(plan, key, status.listeners, context),
    )


class _Context:
    """The input of the statuses of all listeners of an object."""

    def __init__(
        self, answer: Judgement, hub: HTTPLoadBalancer | None, attached: Mapping[str, int], generation: int, now: str
    ) -> None:
        self.programmed = _of_listener(answer)
        self.refused = {part.name: part.reason for part in hub.status.refused if part.kind == "listener"} if hub else {}
        self.attached = attached
        self.generation = generation
        self.now = now

    def judge(self, listener: ListenerPlan) -> Iterable[Judgement]:
        """Return the judgements of a listener, Programmed among them."""
        if find(listener.judgements, PROGRAMMED) is not None:
            return listener.judgements
        if self.programmed.status == "True" and (reason := self.refused.get(listener.key)) is not None:
            return (*listener.judgements, bad(PROGRAMMED, _INVALID, f"the proxies do not serve it: {reason}"))
        return (*listener.judgements, self.programmed)

    def with_listeners(self, programmed: Judgement, listeners: Iterable[ListenerPlan]) -> Judgement:
        """Return Programmed of an object with these listeners: False if none of them is programmed."""
        each_programmed = [find(self.judge(listener), PROGRAMMED) for listener in listeners]
        if programmed.status != "True" or any(
            condition is None or condition.status == "True" for condition in each_programmed
        ):
            return programmed
        why = next((condition.message for condition in each_programmed if condition is not None), "no listener")
        return bad(PROGRAMMED, _INVALID, f"none of its listeners is programmed, see status.listeners: {why}")


def _listeners(
    plan: GatewayPlan, parent: ParentKey, old: Iterable[ListenerStatus] | None, context: _Context
) -> list[ListenerStatus]:
    before: dict[str, list[WireCondition]] = {
        listener_status.name: listener_status.conditions for listener_status in old or ()
    }
    return [
        ListenerStatus(
            name=listener.name,
            attached_routes=context.attached.get(listener.key, 0),
            supported_kinds=list(listener.kinds),
            conditions=wire_judgements(
                context.judge(listener), before.get(listener.name), generation=context.generation, now=context.now
            ),
        )
        for listener in plan.listeners
        if listener.parent == parent
    ]


def _answer(plan: GatewayPlan, hub: HTTPLoadBalancer | None) -> Judgement:
    """Return condition Programmed as the hub reports it for the present spec."""
    if plan.spec is None:
        return bad(PROGRAMMED, _INVALID, "nothing of it can be served")
    if hub is None or hub.spec != plan.spec or hub.status.observed_generation != hub.metadata.generation:
        return bad(PROGRAMMED, _PENDING, "the hub has not seen its present version yet", status="Unknown")
    by_type = {condition.type: condition for condition in hub.status.conditions or ()}
    refused = by_type.get(ConditionType.ACCEPTED)
    if refused is not None and refused.status == "False":
        return _problem(refused, otherwise=_INVALID)
    programmed = by_type.get(ConditionType.PROGRAMMED)
    if programmed is None or programmed.observed_generation != hub.metadata.generation:
        return bad(PROGRAMMED, _PENDING, "the hub has not programmed it yet", status="Unknown")
    if not is_taken_over(programmed):
        return _problem(programmed, otherwise=_INVALID)
    # A refused route says so in its own status; its Gateway serves all others.
    return good(PROGRAMMED, programmed.message if programmed.status == "True" else "")


def _problem(condition: WireCondition, *, otherwise: str) -> Judgement:
    reason = next(
        (member_reason for hub_reason, member_reason in _REASONS.items() if hub_reason == condition.reason), otherwise
    )
    message = name_class_parameters(condition.message, "Gateway") or f"the hub says {condition.reason}"
    return bad(PROGRAMMED, reason, message)


def _with_rest(judgement: Judgement) -> Judgement:
    """Add to condition Programmed of a refused Gateway that the previous version is still served."""
    if judgement.type != PROGRAMMED or judgement.status != "False":
        return judgement
    return bad(PROGRAMMED, judgement.reason, f"{judgement.message}; the previous version is still served")


def _of_listener(answer: Judgement) -> Judgement:
    """Return ``answer`` for listeners and ListenerSets, which have fewer reasons than a Gateway."""
    if answer.status == "True":
        return good(PROGRAMMED)
    if answer.reason in {_PENDING, _INVALID}:
        return answer
    return bad(PROGRAMMED, _PENDING, f"the Gateway is not programmed: {answer.message}", status=answer.status)


def addresses_of(plan: GatewayPlan, hub: HTTPLoadBalancer | None) -> list[GatewayAddress]:
    """Return the addresses that the hub reports for the Gateway of ``plan``, also while it is refused."""
    if hub is None or (plan.spec is None and not plan.is_refused):
        return []
    entries = hub.status.load_balancer.ingress or ()
    names = made_names([hub.status.names]) if entries else ()
    return [
        *(
            GatewayAddress("IPAddress", entry.ip) if entry.ip else GatewayAddress("Hostname", entry.hostname)
            for entry in entries
        ),
        *(GatewayAddress("Hostname", name) for name in names),
    ]


# --- routes ----------------------------------------------------------------------------------------------------------

#: The limit of the API server.
MAX_PARENTS = 32


def route_status(
    plan: RoutePlan,
    route: AnyRoute,
    *,
    now: str,
    refused: Mapping[str, Sequence[RefusedPartStatus]] | None = None,
    names: Mapping[str, NamesStatus] | None = None,
) -> RouteStatus:
    """Return the status of ``route`` at ``now``, RFC 3339.

    ``refused`` are the parts of the route that the proxies do not serve, ``names`` the hub's status of its host names,
    both by load balancer.
    """
    of_hub = {lb: of_names([name]) for lb, name in (names or {}).items()}
    wanted = {
        parent.parent_ref: (*_with_refusal(parent, refused or {}), *of_hub.get(parent.load_balancer, ()))
        for parent in plan.parents
    }
    entries: list[RouteParentStatus] = []
    for entry in route.status.parents or ():
        if entry.controller_name != GATEWAY_CONTROLLER:
            entries.append(entry)
        elif (judgements := wanted.pop(entry.parent_ref, None)) is not None:
            entries.append(renewed(entry, judgements, route, now))
    entries += [
        renewed(RouteParentStatus(reference, GATEWAY_CONTROLLER), judgements, route, now)
        for reference, judgements in wanted.items()
    ]
    if not entries and not route.status.parents:
        return route.status
    return RouteStatus(entries[:MAX_PARENTS])


def _with_refusal(parent: ParentJudgement, refused: Mapping[str, Sequence[RefusedPartStatus]]) -> tuple[Judgement, ...]:
    parts = refused.get(parent.load_balancer, ())
    whole = "; ".join(part.reason for part in parts if part.kind == "route")
    rules = "; ".join(part.reason for part in parts if part.kind == "rule")
    accepted = find(parent.judgements, ACCEPTED)
    if accepted is None or accepted.status != "True" or not (whole or rules):
        return parent.judgements
    others = tuple(judgement for judgement in parent.judgements if judgement.type not in (ACCEPTED, PARTIALLY_INVALID))
    if whole:
        return (bad(ACCEPTED, "UnsupportedValue", f"the load balancer does not serve it: {whole}"), *others)
    before = find(parent.judgements, PARTIALLY_INVALID)
    sentences = [before.message] if before is not None else []
    dropped = "Dropped Rule(s) that the proxies cannot have, which answer 500 unless left out"
    sentences.append(f"{dropped}: {rules}")
    return (accepted, *others, bad(PARTIALLY_INVALID, "UnsupportedValue", "; ".join(sentences), status="True"))


# --- GatewayClasses --------------------------------------------------------------------------------------------------

SUPPORTED_VERSION = "SupportedVersion"
#: The bundle versions that the conformance suite has been run with, as prefixes.
_VERSIONS = ("v1.6.",)


def gateway_class_status(
    gateway_class: GatewayClass, *, now: str, bundle_version: str = "", channel: str = ""
) -> GatewayClassStatus:
    """Return the status of a class of ours.

    ``bundle_version`` and ``channel`` are those annotations of the CRDs, empty if unknown.
    """
    judgements = [_accepted(gateway_class)]
    if bundle_version:
        judgements.append(_supported(bundle_version))
    conditions = wire_judgements(
        judgements, gateway_class.status.conditions, generation=gateway_class.metadata.generation, now=now
    )
    return GatewayClassStatus(
        conditions, [SupportedFeature(supported_feature) for supported_feature in supported_features(channel)]
    )


def load_balancer_class_of(gateway_class: GatewayClass) -> str:
    """Return the LoadBalancerClass of the hub that a class names, empty for the default one."""
    named = gateway_class.spec.parameters_ref
    return named.name if named is not None and not parameters_problem(gateway_class) else ""


def parameters_problem(gateway_class: GatewayClass) -> str:
    """Return the error in the class's ``parametersRef``; empty if it is valid."""
    named = gateway_class.spec.parameters_ref
    kind = LOAD_BALANCER_CLASSES.kind
    if named is None or ((named.group, named.kind, named.namespace) == (GROUP, kind, "") and named.name):
        return ""
    shown = f"{named.kind}.{named.group}" if named.group else named.kind
    return f"spec.parametersRef: {shown} {named.name} is not a {kind}.{GROUP}; name one of the hub, without a namespace"


def _accepted(gateway_class: GatewayClass) -> Judgement:
    problem = parameters_problem(gateway_class)
    return bad(ACCEPTED, "InvalidParameters", problem) if problem else good(ACCEPTED)


def _supported(bundle_version: str) -> Judgement:
    if bundle_version.startswith(_VERSIONS):
        return good(SUPPORTED_VERSION, f"the CRDs of Gateway API are {bundle_version}")
    message = (
        f"the CRDs of Gateway API are {bundle_version}; tested with {', '.join(f'{version}x' for version in _VERSIONS)}"
    )
    return bad(SUPPORTED_VERSION, "UnsupportedVersion", message)


EXPERIMENTAL = "experimental"

_STANDARD = (
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayInfrastructurePropagation",
    "GatewayPort8080",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
)
#: Their fields are in the CRDs of the experimental channel only.
_EXPERIMENTAL = ("HTTPRouteRetry", "HTTPRouteRetryBackendTimeout", "HTTPRouteRetryConnectionError")


def supported_features(channel: str) -> tuple[str, ...]:
    """Return the features that are true with CRDs of ``channel``; any other than experimental counts as standard."""
    return tuple(sorted((*_STANDARD, *(_EXPERIMENTAL if channel == EXPERIMENTAL else ()))))


# --- differences -----------------------------------------------------------------------------------------------------

#: The types of conditions that we write on objects of Gateway API.
OURS = frozenset(
    {"Accepted", "Programmed", "ResolvedRefs", "Conflicted", "InsecureFrontendValidationMode", "SupportedVersion"}
)


def of_ours(status: Wire) -> JSONObject:
    """Return the compared part of a status."""
    shown: JSONObject = msgspec.to_builtins(status)
    listeners: list[JSONObject] = [{**listener, **_conditions(listener)} for listener in shown.get("listeners") or ()]
    return {
        **{name: value for name, value in shown.items() if value not in (None, [], 0)},
        **_conditions(shown),
        "listeners": sorted(listeners, key=lambda listener: str(listener["name"])),
    }


def _conditions(holder: JSONObject) -> JSONObject:
    ours: list[Any] = [condition for condition in holder.get("conditions") or () if condition["type"] in OURS]
    return {"conditions": sorted(ours, key=lambda condition: str(condition["type"]))}


LABEL_GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"


class GatewayObjects(msgspec.Struct, frozen=True):
    """The objects of one Gateway: without a Service there are no slices either."""

    service: Service | None = None
    slices: tuple[EndpointSlice, ...] = ()


def plan_infrastructure(plan: GatewayPlan, gateway: Gateway, addresses: Iterable[str]) -> GatewayObjects:
    """Return the objects that should exist for the Gateway of ``plan``, which is reached at ``addresses``."""
    if gateway.spec.infrastructure is None or plan.spec is None:
        return GatewayObjects()
    ports = sorted(
        {
            (listener.port, "UDP" if listener.protocol == "UDP" else "TCP")
            for listener in plan.listeners
            if listener.served
        }
    )
    service = Service(
        metadata=_meta(gateway, infrastructure_name(gateway.metadata.name)),
        spec=ServiceSpec(
            cluster_ip="None",
            ports=[ServicePort(port, name=_port_name(port, protocol), protocol=protocol) for port, protocol in ports],
        ),
    )
    by_family: dict[str, list[str]] = {}
    for address in addresses:
        if family := _family(address):
            by_family.setdefault(family, []).append(address)
    return GatewayObjects(
        service, tuple(_slice(gateway, service, family, by_family[family], ports) for family in sorted(by_family))
    )


def infrastructure_name(gateway: str) -> str:
    """Name the Service of a Gateway: a DNS label, while a Gateway's name may have dots and be longer."""
    plain = gateway.replace(".", "-")
    unique = plain if plain == gateway else f"{plain}-{short_hash(gateway)}"
    return fit(f"gateway-{unique}", identity=("Gateway", gateway))


def belongs_to(obj: KubeObject, gateway: Gateway) -> bool:
    """Return whether an existing object was made for this Gateway; others must not be changed."""
    return obj.label(LABEL_MANAGED_BY) == MANAGED_BY and any(
        (owner.kind, owner.name, owner.uid) == (GATEWAYS.kind, gateway.metadata.name, gateway.metadata.uid)
        for owner in obj.metadata.owner_references or ()
    )


def is_same(wanted: KubeObject, present: KubeObject) -> bool:
    """Return whether an existing object is as desired, ignoring the API server's defaults."""
    return (
        (present.metadata.labels or {}) == (wanted.metadata.labels or {})
        and (present.metadata.annotations or {}) == (wanted.metadata.annotations or {})
        and _content(wanted) == _content(present)
    )


def _content(obj: KubeObject) -> object:
    match obj:
        case Service():
            return [(port.name, port.port, port.protocol) for port in obj.spec.ports or ()]
        case EndpointSlice():
            ports = [(port.name, port.port, port.protocol) for port in obj.ports or ()]
            return obj.address_type, [list(endpoint.addresses or ()) for endpoint in obj.endpoints or ()], ports
        case _:
            return None


def _slice(
    gateway: Gateway, service: Service, family: str, addresses: list[str], ports: Iterable[tuple[int, str]]
) -> EndpointSlice:
    name = service.metadata.name
    own = {LABEL_SERVICE_NAME: name, LABEL_SLICE_MANAGED_BY: SLICE_MANAGED_BY}
    return EndpointSlice(
        metadata=_meta(gateway, f"{name}-{family.lower()}", own),
        address_type=family,
        endpoints=[Endpoint(addresses=[address]) for address in addresses],
        ports=[EndpointPort(_port_name(port, protocol), port, protocol) for port, protocol in ports],
    )


def _meta(gateway: Gateway, name: str, own: dict[str, str] | None = None) -> ObjectMeta:
    requested, meta = gateway.spec.infrastructure, gateway.metadata
    ours = {LABEL_GATEWAY_NAME: label_value(meta.name), LABEL_MANAGED_BY: MANAGED_BY, **(own or {})}
    return ObjectMeta(
        name=name,
        namespace=meta.namespace,
        labels={**((requested.labels if requested is not None else None) or {}), **ours},
        annotations=dict((requested.annotations if requested is not None else None) or {}) or None,
        owner_references=[GATEWAYS.owner(meta, controller=True)],
    )


def _port_name(port: int, protocol: str) -> str:
    return f"{protocol.lower()}-{port}"


def _family(address: str) -> str:
    """Return the address type of a slice, empty if a slice cannot hold the address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if parsed.is_loopback or parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified:
        return ""
    return "IPv4" if parsed.version == 4 else "IPv6"
