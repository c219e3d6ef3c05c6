"""A Gateway with its ListenerSets as a load balancer at the hub: listeners, their TLS, and their conflicts.

    HTTP            one listener for each hostname of a port
    HTTPS and TLS   the same together
    TCP, UDP        one listener for each port

Its own listeners come first, then those of its ListenerSets by age and name. Within a Gateway, all listeners that
exclude each other are refused. Between a Gateway and its ListenerSets, and between these, the first one is served.
In: a ``GatewayView``. Out: a ``GatewayPlan`` with judgements of the Gateway, of each ListenerSet and of each listener.
Pure.
Source: https://gateway-api.sigs.k8s.io/reference/spec/ (v1.6)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple

import msgspec

from fairlead.agent.identity import certificate_name, gateway_load_balancer_name
from fairlead.agent.sources.gateway.plan import (
    ACCEPTED,
    CONFIG_MAP,
    CONFLICTED,
    GRPC_ROUTE,
    HTTP_ROUTE,
    PROGRAMMED,
    RESOLVED_REFS,
    SECRET,
    TCP_ROUTE,
    TLS_ROUTE,
    UDP_ROUTE,
    GatewayPlan,
    GatewayView,
    Judgement,
    ListenerPlan,
    ParentKey,
    bad,
    client_certificate_of,
    find,
    good,
    holds,
    is_config_map,
    is_secret,
    permits,
    processor_of,
    validation_at,
    validations_of,
)
from fairlead.agent.sources.gateway.routes import namespaces_allowed
from fairlead.agent.sources.http import (
    NOT_IN_MEMBER,
    PENDING,
    CertificateRequest,
    CertificateState,
    accepts_problem,
    access_log_of,
    access_log_problem,
    annotation_problem,
    families_by_annotation,
    issuer_of,
    limits_problem,
    listed_sources,
    of_each_family,
    policy_of,
    processing_of,
    request,
    source_lists,
)
from fairlead.api.gateway import (
    GATEWAY_GROUP,
    FrontendValidation,
    Gateway,
    GatewayListener,
    GrantFrom,
    ListenerSet,
    Reference,
    RouteGroupKind,
)
from fairlead.api.httploadbalancer import HTTPLoadBalancerSpec
from fairlead.api.names import (
    ANNOTATION_ACCEPT_PROXY_PROTOCOL,
    ANNOTATION_ERROR_PAGES,
    ANNOTATION_LIMITS,
    ANNOTATION_WILDCARD_RECORDS,
    DEFAULT_CLASS,
    fit,
)
from fairlead.api.selectors import BadSelector
from fairlead.api.tcploadbalancer import CertificateRef, Origin
from fairlead.model.http import (
    MAX_BUNDLE,
    MAX_PAGE_BYTES,
    MAX_PAGES_BYTES,
    ClientValidation,
    L7Listener,
    ListenerProtocol,
)
from fairlead.model.keys import by_family

# --- Gateways --------------------------------------------------------------------------------------------------------

_IP_ADDRESS = "IPAddress"


def plan_gateway(view: GatewayView) -> GatewayPlan:
    """Return the plan of the Gateway of ``view``."""
    gateway = view.gateway
    meta = gateway.metadata
    own = ParentKey("Gateway", meta.namespace, meta.name)
    planner = ListenerPlanner(view, own)
    plans, precedence = _own_listeners(planner, own, gateway)
    refusal = _refusal(gateway)
    accepted = refusal or _accepted(plans)
    served = [] if refusal is not None else list(planner.listeners)
    sets = sorted(
        (listener_set for listener_set in view.listener_sets if not listener_set.deleting), key=attrgetter("age_order")
    )
    refused_sets = _refused_sets(view, sets)
    by_set: dict[ParentKey, list[ListenerPlan]] = {}
    for listener_set in sets:
        key = _set_key(listener_set)
        if key not in refused_sets:
            by_set[key] = _set_listeners(planner, key, listener_set, precedence)
            plans += by_set[key]
    client = client_certificate(view, own)
    certificates = {
        **planner.certificates,
        **{certificate.name: certificate for certificate in (client.usable if client else ())},
    }
    if accepted.status == "True":
        served = planner.listeners
    keys = {listener.name for listener in served}
    judgements = [accepted]
    if client is not None:
        judgements.append(client.problem or good(RESOLVED_REFS))
    judgements += [*_insecure(gateway), *_unprogrammed(view, accepted, serves=bool(served))]
    return GatewayPlan(
        gateway=own,
        load_balancer=gateway_load_balancer_name(meta.namespace, meta.name),
        listeners=tuple(plan if plan.key in keys or not plan.served else _not_served(plan) for plan in plans),
        spec=_spec(view, served, certificates) if served else None,
        judgements=tuple(judgements),
        listener_sets={
            **{key: (judgement, _same(PROGRAMMED, judgement)) for key, judgement in refused_sets.items()},
            **{key: _judge_set(of_set, accepted) for key, of_set in by_set.items()},
        },
        client_certificate=client.usable[0].name if client is not None and client.usable else "",
        requests=planner.requests if served else {},
        processor=processor_of(view.gateway),
        untraced_by=view.untraced_by,
    )


def _spec(
    view: GatewayView, listeners: Iterable[L7Listener], certificates: Mapping[str, CertificateRef]
) -> HTTPLoadBalancerSpec:
    meta = view.gateway.metadata
    addresses = [address.value for address in view.gateway.spec.addresses or () if address.value]
    addresses = addresses if of_each_family(addresses) else addresses[:1]
    by_address = tuple(by_family(addresses)) if len(addresses) > 1 else ()
    families = by_address or families_by_annotation(view.gateway)
    return HTTPLoadBalancerSpec(
        listeners=tuple(listeners),
        class_name=view.load_balancer_class or DEFAULT_CLASS,
        certificates=tuple(certificates[name] for name in sorted(certificates)),
        targets=view.targets,
        address=",".join(addresses),
        ip_families=families,
        ip_family_policy=policy_of(families, required=len(addresses) > 1),
        access_log=access_log_of(view.gateway),
        limits=view.gateway.annotation(ANNOTATION_LIMITS),
        accept_proxy_protocol=view.gateway.annotation(ANNOTATION_ACCEPT_PROXY_PROTOCOL),
        error_pages=_usable_pages(view),
        wildcard_records=view.gateway.annotation(ANNOTATION_WILDCARD_RECORDS) != "false",
        origin=Origin(kind="Gateway", namespace=meta.namespace, name=meta.name, uid=meta.uid),
    )


# --- listeners ------------------------------------------------------------------------------------------------------
#
# The plan of one listener of a Gateway or ListenerSet.
#
#     without usable certificate or authorities   among those of the load balancer, closed: connections end at once
#     not accepted for another reason             not among them
#     else                                        among them
#
# A closed listener is kept so that the Gateway keeps its address while a Secret or ConfigMap is missing, and so that no
# other listener gets the requests for its hostname.


def _own_listeners(planner: ListenerPlanner, own: ParentKey, gateway: Gateway) -> tuple[list[ListenerPlan], Precedence]:
    """Return the plans of the Gateway's own listeners, and the places that they leave to ListenerSets."""
    listeners = gateway.spec.listeners or ()
    openings = {
        place: opening for place, listener in enumerate(listeners) if (opening := opening_of(listener)) is not None
    }
    reasons = dict(zip(openings, conflicts_within(list(openings.values())), strict=True))
    plans = [planner.plan(own, listener, reasons.get(place)) for place, listener in enumerate(listeners)]
    return plans, Precedence(opening for place, opening in openings.items() if reasons[place] is None)


def _set_listeners(
    planner: ListenerPlanner, key: ParentKey, listener_set: ListenerSet, precedence: Precedence
) -> list[ListenerPlan]:
    plans: list[ListenerPlan] = []
    for listener in listener_set.spec.listeners or ():
        opening = opening_of(listener)
        plans.append(planner.plan(key, listener, precedence.take(opening) if opening is not None else None))
    return plans


def _not_served(plan: ListenerPlan) -> ListenerPlan:
    """Return the plan of a listener whose Gateway is refused."""
    if find(plan.judgements, PROGRAMMED) is not None:
        return msgspec.structs.replace(plan, served=False)
    unserved = bad(PROGRAMMED, "Invalid", "the Gateway is not served")
    return msgspec.structs.replace(plan, served=False, judgements=(*plan.judgements, unserved))


# --- the Gateway ----------------------------------------------------------------------------------------------------


def _refusal(gateway: Gateway) -> Judgement | None:
    """Return why nothing of a Gateway is served, None if its listeners decide."""
    infrastructure = gateway.spec.infrastructure
    if infrastructure is not None and infrastructure.parameters_ref is not None:
        named = infrastructure.parameters_ref
        message = f"spec.infrastructure.parametersRef: {named.kind} {named.name} is not read; remove it"
        return bad(ACCEPTED, "InvalidParameters", message)
    kinds = [address.type for address in gateway.spec.addresses or () if address.type not in {"", _IP_ADDRESS}]
    if kinds:
        message = f"spec.addresses: type {kinds[0]} is not supported; use {_IP_ADDRESS}"
        return bad(ACCEPTED, "UnsupportedAddress", message)
    problems = (_sources_problem(gateway), limits_problem(gateway), accepts_problem(gateway))
    if problem := next(filter(None, (*problems, processing_of(gateway).problem)), ""):
        return bad(
            ACCEPTED, "InvalidParameters", f"{problem}. Until this is corrected, the last valid version is served"
        )
    return None


def _sources_problem(gateway: Gateway) -> str:
    """Return the error in the client lists of a Gateway or its listeners; empty if they are valid."""
    names = [listener.name for listener in gateway.spec.listeners or ()]
    for annotation in listed_sources(gateway):
        _, dot, listener = annotation.rpartition("/")[2].partition(".")
        if dot and listener not in names:
            return f"annotation {annotation}: the Gateway has no listener {listener!r}"
    problems = (source_lists(gateway, listener).problem for listener in ("", *names))
    return next(filter(None, problems), "")


def _accepted(listeners: Sequence[ListenerPlan]) -> Judgement:
    refused = [listener.name for listener in listeners if not holds(listener.judgements, ACCEPTED)]
    if not refused:
        return good(ACCEPTED)
    message = f"not accepted, see status.listeners: {', '.join(refused)}"
    return bad(ACCEPTED, "ListenersNotValid", message, status="False" if len(refused) == len(listeners) else "True")


def _insecure(gateway: Gateway) -> Iterable[Judgement]:
    if any(validation.mode == FALLBACK for validation in validations_of(gateway)):
        message = f"spec.tls.frontend: with mode {FALLBACK} clients without a valid certificate are served too"
        yield Judgement("InsecureFrontendValidationMode", "True", "ConfigurationChanged", message)


def _error_pages(view: GatewayView) -> Mapping[str, str] | None:
    """Return the error pages of a Gateway by status, None if the named ConfigMap does not exist."""
    name = view.gateway.annotation(ANNOTATION_ERROR_PAGES)
    return view.error_pages.get((view.gateway.metadata.namespace, name)) if name else {}


def _pages_problem(view: GatewayView) -> str:
    """Return the error in the error pages of a Gateway; empty if they are valid."""
    pages, name = _error_pages(view), view.gateway.annotation(ANNOTATION_ERROR_PAGES)
    where = f"annotation {ANNOTATION_ERROR_PAGES}: ConfigMap {name[:253]}"
    if pages is None:
        return f"{where} does not exist"
    if name and not pages:
        return f"{where} has no page; name the entries after status codes, such as 404 or 5xx"
    sizes = {status: len(page.encode()) for status, page in pages.items()}
    if large := next((status for status, size in sizes.items() if size > MAX_PAGE_BYTES), ""):
        return f"{where}: data.{large} has {sizes[large]} bytes; at most {MAX_PAGE_BYTES} are allowed. It is left out"
    if omitted := sorted(pages.keys() - _usable_pages(view).keys()):
        return (
            f"{where} has {sum(sizes.values())} bytes; at most {MAX_PAGES_BYTES} are allowed. data.{omitted[0]} is "
            "left out"
        )
    return ""


def _usable_pages(view: GatewayView) -> dict[str, str]:
    """Return the served error pages: those of allowed size, in order, up to the total limit."""
    usable: dict[str, str] = {}
    left = MAX_PAGES_BYTES
    for status, page in sorted((_error_pages(view) or {}).items()):
        size = len(page.encode())
        if size <= min(left, MAX_PAGE_BYTES):
            usable[status] = page
            left -= size
    return usable


def _unprogrammed(view: GatewayView, accepted: Judgement, *, serves: bool) -> Iterable[Judgement]:
    gateway = view.gateway
    addresses = [address.value for address in gateway.spec.addresses or ()]
    if accepted.status != "True":
        yield _same(PROGRAMMED, bad(ACCEPTED, "Invalid", accepted.message))
    elif not serves:
        yield bad(PROGRAMMED, "Invalid", "no listener can be served")
    elif len(addresses) > 1 and not of_each_family(addresses):
        rest = ", ".join(address or "one without a value" for address in addresses[1:])
        message = (
            "spec.addresses: a Gateway has one address of each family here; remove all but one of "
            f"{addresses[0]}, {rest}"
        )
        yield bad(PROGRAMMED, "AddressNotUsable", message)
    elif problem := annotation_problem(gateway) or _annotation_problems(view):
        yield bad(PROGRAMMED, "Invalid", problem)


def _annotation_problems(view: GatewayView) -> str:
    return _wildcard_problem(view.gateway) or access_log_problem(view.gateway) or _pages_problem(view)


def _wildcard_problem(gateway: Gateway) -> str:
    text = gateway.annotation(ANNOTATION_WILDCARD_RECORDS)
    known = text in ("", "true", "false")
    return "" if known else f"annotation {ANNOTATION_WILDCARD_RECORDS} is {text[:60]!r}: it must be true or false"


# --- ListenerSets ---------------------------------------------------------------------------------------------------


def _refused_sets(view: GatewayView, sets: Iterable[ListenerSet]) -> dict[ParentKey, Judgement]:
    """Return the ListenerSets that the Gateway does not allow, and why."""
    allowed = view.gateway.spec.allowed_listeners
    own = view.gateway.metadata.namespace
    why = "the Gateway's spec.allowedListeners does not allow ListenerSets of this namespace"
    try:
        namespaces = namespaces_allowed(
            allowed.namespaces if allowed is not None else None, default="None", own=own, namespaces=view.namespaces
        )
    except BadSelector as error:
        namespaces, why = frozenset[str](), f"the Gateway's spec.allowedListeners: {error}"
    with_lists = {
        _set_key(listener_set): bad(
            ACCEPTED, "NotAllowed", f"a ListenerSet cannot have annotation {', '.join(names)}; set it on the Gateway"
        )
        for listener_set in sets
        if (names := listed_sources(listener_set))
    }
    if namespaces is None:
        return with_lists
    refused = (listener_set for listener_set in sets if listener_set.metadata.namespace not in namespaces)
    return with_lists | {_set_key(listener_set): bad(ACCEPTED, "NotAllowed", why) for listener_set in refused}


def _judge_set(listeners: Sequence[ListenerPlan], gateway: Judgement) -> tuple[Judgement, ...]:
    if gateway.status != "True":
        accepted = bad(ACCEPTED, "ParentNotAccepted", f"the Gateway is not accepted: {gateway.message}")
        return accepted, _same(PROGRAMMED, accepted)
    refused = [listener.name for listener in listeners if find(listener.judgements, PROGRAMMED) is not None]
    if len(refused) < len(listeners):
        if not refused:
            return (good(ACCEPTED),)
        message = f"not served, see status.listeners: {', '.join(refused)}"
        return (bad(ACCEPTED, "ListenersNotValid", message, status="True"),)
    accepted = bad(ACCEPTED, "ListenersNotValid", "none of its listeners can be served: see status.listeners")
    return accepted, _same(PROGRAMMED, accepted)


def _same(kind: str, judgement: Judgement) -> Judgement:
    return msgspec.structs.replace(judgement, type=kind)


def _set_key(listener_set: ListenerSet) -> ParentKey:
    return ParentKey("ListenerSet", listener_set.metadata.namespace, listener_set.metadata.name)


# --- listeners -------------------------------------------------------------------------------------------------------

#: The limits of one object at the hub.
MAX_LISTENERS = 1024
MAX_CERTIFICATES = 1023
MAX_AUTHORITIES_CHARS = 600_000
_KEY_LIMIT = 512
#: The port of a listener that leaves the choice to us.
_DEFAULT_PORTS = {"HTTP": 80, "HTTPS": 443, "TLS": 443}
_PROTOCOLS: dict[str, ListenerProtocol] = {"HTTP": "HTTP", "HTTPS": "HTTPS", "TLS": "TLS", "TCP": "TCP", "UDP": "UDP"}
_CONFLICTS = {
    "HostnameConflict": "another listener has the same hostname on port {port}",
    "ProtocolConflict": "another listener opens port {port} for a protocol that cannot share it",
}


def opening_of(listener: GatewayListener) -> Opening | None:
    """Return the port that a listener opens, None if its protocol or port cannot be served."""
    port = listener.port or _DEFAULT_PORTS.get(listener.protocol, 0)
    if listener.protocol not in PROTOCOLS or not port:
        return None
    return Opening(port, listener.protocol, "" if listener.protocol in {"TCP", "UDP"} else listener.hostname)


class ListenerPlanner:
    """Plans listeners one by one, and collects the parts of their load balancer."""

    def __init__(self, view: GatewayView, gateway: ParentKey) -> None:
        self._view = view
        self._gateway = gateway
        self._authorities_chars = 0
        self.listeners: list[L7Listener] = []
        self.certificates: dict[str, CertificateRef] = {}
        self.requests: dict[str, CertificateRequest] = {}

    def plan(self, parent: ParentKey, listener: GatewayListener, conflict: ConflictReason | None) -> ListenerPlan:
        """Return the plan of one listener; ``conflict`` is why another listener excludes it."""
        opening = opening_of(listener)
        kinds, bad_kinds = kinds_of(listener)
        namespaces, bad_namespaces = self._namespaces(parent, listener)
        validation, bad_authorities = self._authorities(opening)
        usable, bad_certificates, request = self._certificates(parent, listener)
        refusal = _listener_refusal(listener, opening, conflict) or bad_namespaces or self._too_many()
        served = refusal is None and opening is not None
        if served:
            self.requests |= {certificate_request.name: certificate_request for certificate_request in request}
        if refusal is None and bad_authorities is not None and validation is None:
            refusal = bad(ACCEPTED, "NoValidCACertificate", bad_authorities.message)
            usable = ()
        key = listener.name if parent == self._gateway else _listener_plans_set_key(parent, listener)
        passthrough = _passes_through(listener)
        sources = source_lists(self._view.gateway, listener.name if parent == self._gateway else "")
        if served and opening is not None:
            self._add(
                L7Listener(
                    name=key,
                    port=opening.port,
                    protocol=_PROTOCOLS[opening.protocol],
                    hostname=opening.hostname.lower(),
                    passthrough=passthrough,
                    certificates=tuple(certificate.name for certificate in usable),
                    client_validation=validation,
                    allowed_sources=sources.allowed,
                    denied_sources=sources.denied,
                ),
                usable,
            )
        closed = _terminates(listener) and not usable
        problem = merged(
            [judgement for judgement in (bad_certificates, bad_authorities, bad_kinds) if judgement is not None]
        )
        judgements = [refusal or good(ACCEPTED), problem or good(RESOLVED_REFS)]
        if conflict is not None and refusal is not None:
            judgements.append(Judgement(CONFLICTED, "True", conflict, refusal.message))
        if refusal is not None or closed:
            reason = conflict if conflict is not None and refusal is not None else "Invalid"
            because = refusal or bad_certificates
            judgements.append(bad(PROGRAMMED, reason, because.message if because is not None else ""))
        return ListenerPlan(
            parent=parent,
            name=listener.name,
            key=key,
            port=opening.port if opening is not None else listener.port,
            protocol=listener.protocol,
            hostname=opening.hostname.lower() if opening is not None else listener.hostname,
            passthrough=passthrough,
            namespaces=namespaces,
            kinds=kinds,
            judgements=tuple(judgements),
            served=served,
        )

    def _namespaces(
        self, parent: ParentKey, listener: GatewayListener
    ) -> tuple[frozenset[str] | None, Judgement | None]:
        allowed = listener.allowed_routes.namespaces if listener.allowed_routes is not None else None
        try:
            return (
                namespaces_allowed(allowed, default="Same", own=parent.namespace, namespaces=self._view.namespaces),
                None,
            )
        except BadSelector as error:
            return frozenset(), bad(ACCEPTED, "UnsupportedValue", f"allowedRoutes: {error}")

    def _authorities(self, opening: Opening | None) -> tuple[ClientValidation | None, Judgement | None]:
        if opening is None or opening.protocol != "HTTPS":
            return None, None
        requested = validation_at(self._view.gateway, opening.port)
        if requested is None:
            return None, None
        validation, problem = authorities_of(requested, gateway=self._gateway, view=self._view)
        if validation is not None and len(validation.ca_bundle) + self._authorities_chars > MAX_AUTHORITIES_CHARS:
            message = f"the authorities for clients of all listeners have {MAX_AUTHORITIES_CHARS} characters at most"
            return None, bad(RESOLVED_REFS, "InvalidCACertificateRef", message)
        return validation, problem

    def _certificates(self, parent: ParentKey, listener: GatewayListener) -> Certificates:
        if not _terminates(listener):
            return Certificates((), None)
        certificates = certificates_of(listener, parent=parent, view=self._view)
        usable = certificates.usable
        kept = tuple(certificate for certificate in usable if certificate.name in self.certificates)
        if len(usable) - len(kept) + len(self.certificates) <= MAX_CERTIFICATES:
            return certificates
        message = f"tls.certificateRefs: a Gateway has {MAX_CERTIFICATES} certificates at most"
        return Certificates(kept, bad(RESOLVED_REFS, "InvalidCertificateRef", message))

    def _too_many(self) -> Judgement | None:
        if len(self.listeners) < MAX_LISTENERS:
            return None
        message = f"a Gateway has {MAX_LISTENERS} listeners at most, those of its ListenerSets included"
        return bad(ACCEPTED, "TooManyListeners", message)

    def _add(self, listener: L7Listener, certificates: tuple[CertificateRef, ...]) -> None:
        self.listeners.append(listener)
        self.certificates |= {certificate.name: certificate for certificate in certificates}
        if listener.client_validation is not None:
            self._authorities_chars += len(listener.client_validation.ca_bundle)


def _listener_refusal(
    listener: GatewayListener, opening: Opening | None, conflict: ConflictReason | None
) -> Judgement | None:
    if listener.protocol not in PROTOCOLS:
        known = ", ".join(PROTOCOLS)
        return bad(ACCEPTED, "UnsupportedProtocol", f"protocol {listener.protocol} is not served; use {known}")
    if opening is None:
        return bad(ACCEPTED, "UnsupportedValue", f"a {listener.protocol} listener needs a port")
    if conflict is not None:
        return bad(ACCEPTED, conflict, _CONFLICTS[conflict].format(port=opening.port))
    mode = listener.tls.mode if listener.tls is not None else ""
    known_mode = mode in {"", "Terminate"} or (mode == "Passthrough" and listener.protocol == "TLS")
    if listener.protocol in {"HTTPS", "TLS"} and not known_mode:
        return bad(ACCEPTED, "UnsupportedValue", f"tls.mode {mode} is not served with protocol {listener.protocol}")
    return None


def _listener_plans_set_key(parent: ParentKey, listener: GatewayListener) -> str:
    # The Gateway's own listener names contain no slash.
    return fit(f"{parent.namespace}/{parent.name}/{listener.name}", limit=_KEY_LIMIT)


def _passes_through(listener: GatewayListener) -> bool:
    return listener.protocol == "TLS" and listener.tls is not None and listener.tls.mode == "Passthrough"


def _terminates(listener: GatewayListener) -> bool:
    return listener.protocol in {"HTTPS", "TLS"} and not _passes_through(listener)


_BY_PROTOCOL = {
    "HTTP": (HTTP_ROUTE, GRPC_ROUTE),
    "HTTPS": (HTTP_ROUTE, GRPC_ROUTE),
    "TLS": (TLS_ROUTE,),
    "TCP": (TCP_ROUTE,),
    "UDP": (UDP_ROUTE,),
}
PROTOCOLS = tuple(_BY_PROTOCOL)


def kinds_of(listener: GatewayListener) -> tuple[tuple[RouteGroupKind, ...], Judgement | None]:
    """Return the kinds of routes that a listener accepts; none for an unsupported protocol."""
    supported = _BY_PROTOCOL.get(listener.protocol, ())
    requested = (listener.allowed_routes.kinds if listener.allowed_routes is not None else None) or ()
    if not requested:
        return tuple(_kind(*supported_kind) for supported_kind in supported), None
    named = [(GATEWAY_GROUP if kind.group is None else kind.group, kind.kind) for kind in requested]
    unknown = [kind for group, kind in named if (group, kind) not in supported]
    problem = None
    if unknown:
        takes = ", ".join(kind for _, kind in supported) or "none"
        message = (
            f"allowedRoutes.kinds: protocol {listener.protocol} does not take {', '.join(unknown)}; it takes {takes}"
        )
        problem = bad(RESOLVED_REFS, "InvalidRouteKinds", message)
    return tuple(
        _kind(*supported_kind) for supported_kind in dict.fromkeys(named) if supported_kind in supported
    ), problem


def _kind(group: str, kind: str) -> RouteGroupKind:
    return RouteGroupKind(kind=kind, group=group)


# --- TLS -------------------------------------------------------------------------------------------------------------
#
# The certificates that a listener presents, and the authorities by which it verifies its clients.

FALLBACK = "AllowInsecureFallback"
_INVALID_CERTIFICATE = "InvalidCertificateRef"


class Certificates(NamedTuple):
    """The usable certificates, the problems of the others, and the certificates requested from the hub."""

    usable: tuple[CertificateRef, ...]
    problem: Judgement | None
    requests: tuple[CertificateRequest, ...] = ()


class Authorities(NamedTuple):
    """The validation of clients (None if it is not possible), and the problems of the references."""

    validation: ClientValidation | None
    problem: Judgement | None


def certificates_of(listener: GatewayListener, *, parent: ParentKey, view: GatewayView) -> Certificates:
    """Return the certificates of a terminating listener of ``parent``."""
    references = (listener.tls.certificate_refs if listener.tls is not None else None) or ()
    usable: list[CertificateRef] = []
    problems: list[Judgement] = []
    requests: list[CertificateRequest] = []
    if not references:
        problems.append(
            bad(RESOLVED_REFS, _INVALID_CERTIFICATE, "tls.certificateRefs: name a Secret with a certificate")
        )
    for reference in references:
        certificate, problem = _secret(reference, "tls.certificateRefs", _INVALID_CERTIFICATE, parent=parent, view=view)
        request = _asked(listener, reference, parent=parent, view=view) if problem is not None else None
        if request is not None:
            requests.append(request)
            certificate, problem = _managed(request, certificate, view)
        usable += [certificate] if certificate is not None else []
        problems += [problem] if problem is not None else []
    return Certificates(tuple(dict.fromkeys(usable)), merged(problems), tuple(dict.fromkeys(requests)))


def _asked(
    listener: GatewayListener, reference: Reference, *, parent: ParentKey, view: GatewayView
) -> CertificateRequest | None:
    """Return the certificate request to the hub for a listener whose Secret the member lacks; None for none."""
    namespace = reference.namespace or parent.namespace
    if not (is_secret(reference) and _permitted(SECRET, namespace, reference.name, parent=parent, view=view)):
        return None
    state = view.certificates.get((namespace, reference.name))
    if state is not None and not state.missing:
        return None
    meta = view.gateway.metadata
    return request(
        (listener.hostname,),
        issuer_of(view.gateway, view.issuer),
        load_balancer=gateway_load_balancer_name(meta.namespace, meta.name),
        origin=Origin(kind="Gateway", namespace=meta.namespace, name=meta.name, uid=meta.uid),
    )


def _managed(
    request: CertificateRequest, copy: CertificateRef | None, view: GatewayView
) -> tuple[CertificateRef | None, Judgement | None]:
    """Return the certificate obtained by the hub; until then, the remaining copy of the Secret."""
    state = view.managed.get(request.name, CertificateState(problem=PENDING))
    # The hub knows which version it has written: a renewal changes nothing here.
    certificate = CertificateRef(request.name) if state.digest else copy
    if not state.problem:
        return certificate, None
    kept = "; the previous version is still served" if certificate is not None and state.problem != PENDING else ""
    text = f"tls.certificateRefs: the certificate for {', '.join(request.hosts)}: {state.problem}{kept}"
    return certificate, bad(RESOLVED_REFS, _INVALID_CERTIFICATE, text)


def client_certificate(view: GatewayView, parent: ParentKey) -> Certificates | None:
    """Return the certificate that the Gateway presents to backends, None if it names none."""
    reference = client_certificate_of(view.gateway)
    if reference is None:
        return None
    field = "tls.backend.clientCertificateRef"
    certificate, problem = _secret(reference, field, "InvalidClientCertificateRef", parent=parent, view=view)
    return Certificates((certificate,) if certificate is not None else (), problem)


def authorities_of(validation: FrontendValidation, *, gateway: ParentKey, view: GatewayView) -> Authorities:
    """Return the authorities that ``validation`` names; of several, only usable ones count."""
    bundles: list[str] = []
    problems: list[Judgement] = []
    for reference in validation.ca_certificate_refs or ():
        bundle, problem = _bundle(reference, gateway=gateway, view=view)
        bundles += [bundle] if bundle else []
        problems += [problem] if problem is not None else []
    text = "\n".join(bundle.strip() for bundle in dict.fromkeys(bundles)) + "\n"
    if len(text) > MAX_BUNDLE:
        problems.append(_bad_ca("InvalidCACertificateRef", f"they have more than {MAX_BUNDLE} characters"))
        bundles = []
    if not bundles and not problems:
        problems.append(_bad_ca("InvalidCACertificateRef", "name a ConfigMap with ca.crt"))
    usable = ClientValidation(text, optional=validation.mode == FALLBACK) if bundles else None
    return Authorities(usable, merged(problems))


def merged(problems: Sequence[Judgement]) -> Judgement | None:
    """Return the first problem with the messages of all, None if there is none."""
    if not problems:
        return None
    first = problems[0]
    return bad(first.type, first.reason, "; ".join(dict.fromkeys(problem.message for problem in problems)))


def _secret(
    reference: Reference, field: str, reason: str, *, parent: ParentKey, view: GatewayView
) -> tuple[CertificateRef | None, Judgement | None]:
    if not is_secret(reference):
        shown = f"{reference.kind}.{reference.group}" if reference.group else reference.kind
        return None, bad(RESOLVED_REFS, reason, f"{field}: {shown} {reference.name} is not a Secret")
    namespace = reference.namespace or parent.namespace
    if not _permitted(SECRET, namespace, reference.name, parent=parent, view=view):
        return None, _not_permitted(field, "Secret", namespace, reference.name, parent)
    missing = CertificateState(problem=NOT_IN_MEMBER, missing=True)
    state = view.certificates.get((namespace, reference.name), missing)
    name = certificate_name(namespace, reference.name)
    certificate = CertificateRef(name, state.digest) if state.digest else None
    if not state.problem:
        return certificate, None
    kept = "; the previous version is still served" if certificate is not None else ""
    shown = f"Secret {namespace}/{reference.name}"
    return certificate, bad(RESOLVED_REFS, reason, f"{field}: {shown}: {state.problem}{kept}")


def _bundle(reference: Reference, *, gateway: ParentKey, view: GatewayView) -> tuple[str, Judgement | None]:
    namespace, name = reference.namespace or gateway.namespace, reference.name
    if not is_config_map(reference):
        shown = f"{reference.kind}.{reference.group}" if reference.group else reference.kind
        return "", _bad_ca("InvalidCACertificateKind", f"{shown} {name} is not a ConfigMap")
    if not _permitted(CONFIG_MAP, namespace, name, parent=gateway, view=view):
        return "", _not_permitted("caCertificateRefs", "ConfigMap", namespace, name, gateway)
    bundle = view.ca_bundles.get((namespace, name))
    if bundle:
        return bundle, None
    why = "does not exist" if bundle is None else "entry ca.crt has no certificate in PEM"
    return "", _bad_ca("InvalidCACertificateRef", f"ConfigMap {namespace}/{name}: {why}")


def _bad_ca(reason: str, why: str) -> Judgement:
    return bad(RESOLVED_REFS, reason, f"spec.tls.frontend: caCertificateRefs: {why}")


def _permitted(target: tuple[str, str], namespace: str, name: str, *, parent: ParentKey, view: GatewayView) -> bool:
    return permits(view.grants, GrantFrom(GATEWAY_GROUP, parent.kind, parent.namespace), target, namespace, name)


def _not_permitted(field: str, kind: str, namespace: str, name: str, parent: ParentKey) -> Judgement:
    return bad(
        RESOLVED_REFS,
        "RefNotPermitted",
        f"{field}: no ReferenceGrant in namespace {namespace} lets a {parent.kind} of namespace {parent.namespace} "
        f"refer to {kind} {name}",
    )


# --- conflicts -------------------------------------------------------------------------------------------------------

ConflictReason = Literal["HostnameConflict", "ProtocolConflict"]

_FAMILIES = {"HTTP": "HTTP", "HTTPS": "TLS", "TLS": "TLS", "TCP": "TCP", "UDP": "UDP"}
_ONE_PER_PORT = frozenset({"TCP", "UDP"})


class Opening(NamedTuple):
    """The port that a listener of a known protocol opens; ``hostname`` empty is every host."""

    port: int
    protocol: str
    hostname: str

    @property
    def family(self) -> str:
        """Return the protocols with which the listener can share its port."""
        return _FAMILIES[self.protocol]

    @property
    def place(self) -> tuple[int, bool]:
        """Return the port number with its kind: TCP and UDP have numbers of their own."""
        return self.port, self.protocol == "UDP"


def conflicts_within(openings: Sequence[Opening]) -> list[ConflictReason | None]:
    """Return for each listener of one Gateway why it is refused, None if no other listener excludes it."""
    families: dict[tuple[int, bool], Counter[str]] = {}
    for opening in openings:
        families.setdefault(opening.place, Counter())[opening.family] += 1
    hosts = Counter((opening.place, opening.hostname.lower()) for opening in openings)

    def reason(opening: Opening) -> ConflictReason | None:
        family = families[opening.place]
        if len(family) > 1 or (opening.family in _ONE_PER_PORT and family[opening.family] > 1):
            return "ProtocolConflict"
        return "HostnameConflict" if hosts[opening.place, opening.hostname.lower()] > 1 else None

    return [reason(opening) for opening in openings]


class Precedence:
    """The occupied ports and hostnames; the first listener keeps them."""

    def __init__(self, openings: Iterable[Opening]) -> None:
        self._families: dict[tuple[int, bool], str] = {}
        self._hosts: set[tuple[tuple[int, bool], str]] = set()
        for opening in openings:
            self.take(opening)

    def take(self, opening: Opening) -> ConflictReason | None:
        """Take the place of a listener; return an error if it is occupied, otherwise None."""
        place, host = opening.place, (opening.place, opening.hostname.lower())
        family = self._families.setdefault(place, opening.family)
        taken = host in self._hosts
        if family != opening.family or (taken and opening.family in _ONE_PER_PORT):
            return "ProtocolConflict"
        if taken:
            return "HostnameConflict"
        self._hosts.add(host)
        return None
