"""A route of Gateway API as LoadBalancerRoutes at the hub, where it attaches, and its conditions.

    each ``parentRef`` of ours     conditions Accepted (where it attaches) and ResolvedRefs (its backends)
    each Gateway that accepts it   one LoadBalancerRoute: listeners with hostnames, rules, backends

A rule that cannot be programmed answers 500. If other rules can be, the route is Accepted, and PartiallyInvalid names
the invalid ones. If none can be, the route is not Accepted and not attached, but still answers: its requests must
not reach the rules of other routes. In: a ``RouteView``. Out: ``RoutePlan``. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from fairlead.agent.sources.gateway.http_rules import (
    AnyBackendRef,
    BackendRefs,
    PlannedRule,
    Unusable,
    backends_of,
    build_filters,
    first_of_each_header,
    http_rules,
    plan_rule,
    service_key,
    session_of,
    value_matches,
)
from fairlead.agent.sources.gateway.plan import (
    ACCEPTED,
    GATEWAY,
    LISTENER_SET,
    PARTIALLY_INVALID,
    AttachedListener,
    BackendPolicy,
    GatewayPlan,
    Judgement,
    ListenerPlan,
    ParentJudgement,
    ParentKey,
    ParentKind,
    RoutePlan,
    bad,
    find,
    good,
)
from fairlead.agent.sources.http import (
    FAIL_OPEN,
    Processing,
    SourceLists,
    Tokens,
    access_log_of,
    access_log_problem,
    limit_problem,
    limited,
    listed_sources,
    processing_of,
    source_lists,
    tokens_of,
    tracing_of,
    tracing_problem,
    with_processor,
)
from fairlead.api.gateway import (
    GATEWAY_GROUP,
    AnyRoute,
    ConnectionRule,
    GrantFrom,
    GRPCMatch,
    GRPCMethod,
    GRPCRoute,
    GRPCRule,
    HTTPRoute,
    HTTPRule,
    NamespaceSelector,
    ParentReference,
    ReferenceGrant,
    RouteBackendRef,
    RouteFilter,
    TCPRoute,
    TLSRoute,
    UDPRoute,
)
from fairlead.api.httploadbalancer import LoadBalancerRouteSpec
from fairlead.api.kubernetes import Service
from fairlead.api.names import ANNOTATION_EXTERNAL_AUTH, ANNOTATION_EXTERNAL_PROCESSOR, ANNOTATION_JWT
from fairlead.api.selectors import BadSelector, from_label_selector
from fairlead.api.tcploadbalancer import Origin
from fairlead.model.http import Attachment, Backend, BackendRef, PathMatch, RequestMatch, RouteKind, Rule

_KINDS: dict[type[AnyRoute], RouteKind] = {
    HTTPRoute: "HTTP",
    GRPCRoute: "GRPC",
    TLSRoute: "TLS",
    TCPRoute: "TCP",
    UDPRoute: "UDP",
}


# --- plans -----------------------------------------------------------------------------------------------------------


class RouteView(msgspec.Struct, frozen=True):
    """The input of the translation of one route.

    ``parents`` are the Gateways and ListenerSets of ours, a ListenerSet with the plan of its Gateway. ``services`` are
    by namespace and name, ``policies`` by namespace, Service and port name, which is empty for all ports.
    ``unreachable`` has the reasons why some Services are not reached as they should be.
    """

    route: AnyRoute
    parents: Mapping[ParentKey, GatewayPlan]
    services: Mapping[tuple[str, str], Service] = {}
    grants: tuple[ReferenceGrant, ...] = ()
    policies: Mapping[tuple[str, str, str], BackendPolicy] = {}
    unreachable: Mapping[tuple[str, str], str] = {}


def parents_named(route: AnyRoute) -> list[ParentKey]:
    """Return the Gateways and ListenerSets that a route names, whether or not they are ours; each once."""
    keys = (parent_key(parent_ref, route.metadata.namespace) for parent_ref in route.spec.parent_refs or ())
    return list(dict.fromkeys(key for key in keys if key is not None))


def services_named(route: AnyRoute) -> list[tuple[str, str]]:
    """Return namespace and name of the Services that a route names, mirrors too; each once."""
    keys = (service_key(reference, route.metadata.namespace) for reference in _references(route))
    return list(dict.fromkeys(key for key in keys if key is not None))


def processors_of(parents: Iterable[GatewayPlan]) -> list[tuple[str, str]]:
    """Return namespace and name of the Services that inspect the requests of these Gateways; each once."""
    asked = (plan.processor for plan in parents)
    return list(dict.fromkeys((each.namespace, each.service) for each in asked if each is not None))


def plan_route(view: RouteView) -> RoutePlan:
    """Return the plan of the route of ``view`` at the parents of ours."""
    route = view.route
    entries = list(_entries(view))
    taken_by: dict[str, dict[str, TakenBy]] = {}
    plans: dict[str, GatewayPlan] = {}
    for _, plan, acceptance in entries:
        plans[plan.load_balancer] = plan
        listeners = taken_by.setdefault(plan.load_balancer, {})
        listeners.update({attached.listener.key: attached for attached in acceptance.taken_by})
    rules = {name: _Rules(view, plans[name], listeners.values()) for name, listeners in taken_by.items()}
    specs = {
        name: spec
        for name, plan in plans.items()
        if (spec := _spec(route, plan, taken_by[name].values(), rules[name])) is not None
    }
    return RoutePlan(
        specs=specs,
        parents=tuple(
            ParentJudgement(
                _with_defaults(reference), rules[plan.load_balancer].judgements(acceptance), plan.load_balancer
            )
            for reference, plan, acceptance in entries
        ),
        attached=frozenset(
            AttachedListener(name, key)
            for name, listeners in taken_by.items()
            if not rules[name].all_unusable
            for key in listeners
        ),
        services=frozenset(_service_of(backend) for spec in specs.values() for backend in spec.backends),
        is_refused=any(of_parent.is_refused for of_parent in rules.values()),
        undecided=frozenset[str]().union(*(of_parent.undecided for of_parent in rules.values())),
    )


def _entries(view: RouteView) -> Iterable[tuple[ParentReference, GatewayPlan, Acceptance]]:
    route = view.route
    namespace = route.metadata.namespace
    candidate = Candidate(
        type(route).__name__, namespace, tuple(route.spec.hostnames or ()) if _has_hostnames(route) else ()
    )
    for reference in route.spec.parent_refs or ():
        key = parent_key(reference, namespace)
        plan = view.parents.get(key) if key is not None else None
        if key is not None and plan is not None:
            refused = find(plan.listener_sets.get(key, ()), ACCEPTED)
            refusal = refused.message if refused is not None and refused.status == "False" else ""
            yield reference, plan, accept(candidate, reference, key, plan.listeners, refusal=refusal)


class _Rules:
    """The rules of a route at one load balancer, and their problems."""

    def __init__(self, view: RouteView, plan: GatewayPlan, taken_by: Iterable[TakenBy]) -> None:
        route, taken_by = view.route, list(taken_by)
        refs = BackendRefs(
            kind=type(route).__name__,
            namespace=route.metadata.namespace,
            services=view.services,
            grants=view.grants,
            policies=view.policies,
            unreachable=view.unreachable,
            passthrough=any(attached.listener.passthrough for attached in taken_by),
            terminated=not taken_by or any(not attached.listener.passthrough for attached in taken_by),
            fail_open=route.annotation(ANNOTATION_EXTERNAL_AUTH) == FAIL_OPEN,
        )
        planned = _planned(route, refs)
        tokens, processing = _tokens(route), _processing(route)
        of_requests = route.of_requests
        usable = tuple(rule.rule for rule in planned if rule.rule is not None)
        if of_requests:
            usable = tokens.on(usable, refs.resolve_keys)
            usable = _inspected(usable, refs, plan, processing)
        self.rules: tuple[Rule, ...] = limited(usable, route) if of_requests else usable
        self._sources = _sources(route)
        closing = {ANNOTATION_JWT: tokens.problem, ANNOTATION_EXTERNAL_PROCESSOR: processing.problem}
        self.undecided = frozenset(name for name, problem in closing.items() if of_requests and problem)
        #: The problem of an annotation that restricts access.
        self._invalid = tokens.problem or processing.problem or self._sources.problem
        problems = (
            (
                limit_problem(route),
                access_log_problem(route),
                tracing_problem(route, plan.untraced_by),
                _auth_problem(route),
                _kept_processor(plan, processing),
            )
            if of_requests
            else ()
        )
        self._ignored = next(filter(None, problems), "")
        named = {name for rule in self.rules for name in _names(rule)}
        self.backends: tuple[Backend, ...] = tuple(
            backend for name, backend in sorted(refs.backends.items()) if name in named
        )
        # With invalid lists, the previously published backends stay.
        closed = (Rule(name=rule.name, matches=rule.matches) for rule in self.rules)
        self.rules = tuple(closed) if self._invalid else self._sources.on(self.rules)
        self._resolved = refs.judgement()
        self._problems = {
            rule.name or str(number): planned_rule.problem
            for number, (rule, planned_rule) in enumerate(zip(route.spec.rules or (), planned, strict=True), start=1)
            if planned_rule.problem is not None
        }
        #: Rules whose requests are answered 500, since their external service cannot be resolved.
        self._unasked = [
            rule.name or str(number) for number, rule in enumerate(self.rules, start=1) if rule.is_undecided
        ]
        self.is_refused = bool(self._invalid)
        self.all_unusable = self.is_refused or (bool(planned) and len(self._problems) == len(planned))

    def judgements(self, acceptance: Acceptance) -> tuple[Judgement, ...]:
        """Return the conditions at a parent."""
        accepted = acceptance.judgement
        if self.is_refused and accepted.status == "True":
            served = "the last version that asked is served, else 500"
            served = served if self.undecided else "the last valid version is served"
            message = f"{self._invalid}. Until this is corrected, {served}"
            return (bad(ACCEPTED, "UnsupportedValue", message), self._resolved)
        if self._ignored and accepted.status == "True":
            accepted = msgspec.structs.replace(accepted, message=self._ignored)
        if not self._problems and 0 < len(self._unasked) < len(self.rules) and acceptance.taken_by:
            message = f"Dropped Rule(s) {', '.join(self._unasked)}, which answer 500 now: {self._resolved.message}"
            partly = bad(PARTIALLY_INVALID, "BackendNotFound", message, status="True")
            return (accepted, self._resolved, partly)
        if not self._problems or not acceptance.taken_by:
            return (accepted, self._resolved)
        sentences = "; ".join(f"rule {name}: {problem.message}" for name, problem in self._problems.items())
        if self.all_unusable:
            reason = next(iter(self._problems.values())).reason
            return (bad(ACCEPTED, reason, f"{sentences} (answered 500)"), self._resolved)
        names = ", ".join(self._problems)
        message = f"Dropped Rule(s) {names}, which answer 500 now: {sentences}"
        return (accepted, self._resolved, bad(PARTIALLY_INVALID, "UnsupportedValue", message, status="True"))


def _auth_problem(route: AnyRoute) -> str:
    text = route.annotation(ANNOTATION_EXTERNAL_AUTH)
    if text in ("", FAIL_OPEN):
        return ""
    return f"annotation {ANNOTATION_EXTERNAL_AUTH} is {text[:60]!r}: only {FAIL_OPEN} is supported on a route"


def _sources(route: AnyRoute) -> SourceLists:
    """Return the clients that a route admits; only HTTP and gRPC routes can have their own lists."""
    if route.of_requests:
        return source_lists(route)
    names = ", ".join(listed_sources(route))
    problem = f"{type(route).__name__}s cannot have annotation {names}; set it on the Gateway, for a listener"
    return SourceLists(problem=problem if names else "")


def _processing(route: AnyRoute) -> Processing:
    """Return the processor in the annotation of a route; only HTTP and gRPC routes can have one."""
    if route.of_requests or not route.annotation(ANNOTATION_EXTERNAL_PROCESSOR):
        return processing_of(route)
    problem = f"{type(route).__name__}s cannot have annotation {ANNOTATION_EXTERNAL_PROCESSOR}: they see no requests"
    return Processing(problem=problem)


def _inspected(
    rules: tuple[Rule, ...], refs: BackendRefs, plan: GatewayPlan, processing: Processing
) -> tuple[Rule, ...]:
    """Return ``rules`` with the processor of the Gateway, or that of the route if the Gateway allows it."""
    asked, origin = plan.processor, GrantFrom(GATEWAY_GROUP, plan.gateway.kind, plan.gateway.namespace)
    if asked is None or (asked.allow_off and (processing.off or processing.request is not None)):
        asked, origin = processing.request, None
    if asked is None:
        return rules
    reference = RouteBackendRef(name=asked.service, port=asked.port, namespace=asked.namespace or None)
    return with_processor(rules, asked, refs.resolve(reference, spoken="HTTP2", origin=origin))


def _kept_processor(plan: GatewayPlan, processing: Processing) -> str:
    """Return a message if the annotation of a route has no effect, otherwise an empty string."""
    if plan.processor is None or plan.processor.allow_off or processing == Processing():
        return ""
    return (
        f"annotation {ANNOTATION_EXTERNAL_PROCESSOR} has no effect: the Gateway does not set allowOff, so "
        f"{plan.processor.service} inspects the requests"
    )


def _tokens(route: AnyRoute) -> Tokens:
    """Return the tokens that a route requires; only HTTP and gRPC routes can require any."""
    if route.of_requests or not route.annotation(ANNOTATION_JWT):
        return tokens_of(route)
    return Tokens(problem=f"{type(route).__name__}s cannot have annotation {ANNOTATION_JWT}: they see no requests")


def _planned(route: AnyRoute, refs: BackendRefs) -> list[PlannedRule]:
    match route:
        case HTTPRoute():
            return http_rules(route.spec.rules or (), refs)
        case GRPCRoute():
            return grpc_rules(route.spec.rules or (), refs)
        case TLSRoute() | TCPRoute() | UDPRoute():
            return [PlannedRule(rule) for rule in connection_rules(route.spec.rules or (), refs)]


def _spec(
    route: AnyRoute, plan: GatewayPlan, taken_by: Iterable[TakenBy], rules: _Rules
) -> LoadBalancerRouteSpec | None:
    """Return the route at one load balancer; None if no served listener there accepts it."""
    attachments = tuple(
        Attachment(attached.listener.key, attached.hostnames) for attached in taken_by if attached.listener.served
    )
    if plan.spec is None or not attachments:
        return None
    meta = route.metadata
    kind = type(route)
    return LoadBalancerRouteSpec(
        load_balancer=plan.load_balancer,
        kind=_KINDS[kind],
        attachments=attachments,
        rules=rules.rules,
        backends=tuple(_with_certificate(backend, plan.client_certificate) for backend in rules.backends),
        created=meta.creation_timestamp or "",
        access_log=access_log_of(route) if route.of_requests else "",
        tracing=tracing_of(route) if route.of_requests else "",
        origin=Origin(kind=kind.__name__, namespace=meta.namespace, name=meta.name, uid=meta.uid),
    )


def _with_certificate(backend: Backend, certificate: str) -> Backend:
    if backend.tls is None or not certificate:
        return backend
    tls = msgspec.structs.replace(backend.tls, client_certificate=certificate)
    return msgspec.structs.replace(backend, tls=tls)


def _with_defaults(reference: ParentReference) -> ParentReference:
    """Return a ``parentRef`` as the API server completes it."""
    group = GATEWAY_GROUP if reference.group is None else reference.group
    return msgspec.structs.replace(reference, group=group, kind=reference.kind or "Gateway")


def _has_hostnames(route: AnyRoute) -> bool:
    return not isinstance(route, TCPRoute | UDPRoute)


def _names(rule: Rule) -> Iterable[str]:
    """Yield the backends that a rule names, mirrors too."""
    yield from (mirror.backend for mirror in rule.filters.mirrors)
    if rule.filters.auth is not None:
        yield rule.filters.auth.backend
    if rule.processor is not None:
        yield rule.processor.backend
    yield from (provider.backend for provider in rule.jwt)
    for backend in rule.backends:
        yield backend.backend
        yield from (mirror.backend for mirror in backend.filters.mirrors)


def _service_of(backend: Backend) -> tuple[str, str]:
    namespace, _, name = backend.service.partition("/")
    return (namespace, name)


def _references(route: AnyRoute) -> Iterable[AnyBackendRef]:
    yield from (RouteBackendRef(name=each[0], port=each[1]) for each in tokens_of(route).services if each is not None)
    if (asked := processing_of(route).request) is not None:
        yield RouteBackendRef(name=asked.service, port=asked.port, namespace=asked.namespace or None)
    for rule in route.spec.rules or ():
        if isinstance(rule, HTTPRule | GRPCRule):
            yield from _in_filters(rule.filters)
        for reference in rule.backend_refs or ():
            yield reference
            yield from _in_filters(reference.filters)


def _in_filters(filters: Iterable[RouteFilter] | None) -> Iterable[AnyBackendRef]:
    for route_filter in filters or ():
        if route_filter.request_mirror is not None:
            yield route_filter.request_mirror.backend_ref
        if route_filter.external_auth is not None:
            yield route_filter.external_auth.backend_ref


# --- rules of other kinds than HTTPRoute -----------------------------------------------------------------------------


def connection_rules(rules: Iterable[ConnectionRule], refs: BackendRefs) -> tuple[Rule, ...]:
    """Return the rules; the CRDs allow exactly one."""
    return tuple(
        Rule(
            name=rule.name or "",
            backends=tuple(
                BackendRef(refs.resolve(ref), 1 if ref.weight is None else ref.weight)
                for ref in rule.backend_refs or ()
            ),
        )
        for rule in rules
    )


_ANY_PART = "[^/]+"


def grpc_rules(rules: Iterable[GRPCRule], refs: BackendRefs) -> list[PlannedRule]:
    """Return the rules of a GRPCRoute."""
    return [_grpc_rule(rule, refs) for rule in rules]


def method_path(method: GRPCMethod | None) -> PathMatch:
    """Return the path by which a method is matched; raises ``Unusable`` for an unknown type."""
    service, name = (method.service or "", method.method or "") if method is not None else ("", "")
    if method is None or not (service or name):
        return PathMatch()
    match method.type or "Exact":
        case "Exact" if service and name:
            return PathMatch("Exact", f"/{service}/{name}")
        case "Exact" if service:
            return PathMatch("PathPrefix", f"/{service}")
        case "Exact":
            return PathMatch("RegularExpression", f"/{_ANY_PART}/{re.escape(name)}")
        case "RegularExpression":
            parts = (f"(?:{part})" if part else _ANY_PART for part in (service, name))
            return PathMatch("RegularExpression", f"/{'/'.join(parts)}")
        case other:
            raise Unusable(f"matches: method type {other} is not supported")


def _grpc_rule(rule: GRPCRule, refs: BackendRefs) -> PlannedRule:
    def build() -> Rule:
        backends = backends_of(rule.backend_refs, refs)
        return Rule(
            filters=build_filters(rule.filters, refs), backends=backends, session=session_of(rule.session_persistence)
        )

    return plan_rule(rule.name, lambda: tuple(_request_match(match) for match in rule.matches or ()), build)


def _request_match(match: GRPCMatch) -> RequestMatch:
    return RequestMatch(path=method_path(match.method), headers=value_matches(first_of_each_header(match.headers)))


_PARENT_KINDS: dict[tuple[str, str], ParentKind] = {GATEWAY: "Gateway", LISTENER_SET: "ListenerSet"}
# --- attachment ------------------------------------------------------------------------------------------------------
#
# Attaches a route to listeners of a parent: which listeners accept it, and at which hostnames.
#
#     what is tested                                   when no listener is left
#     -----------------------------------------------  ----------------------------
#     sectionName and port of the ``parentRef``        NoMatchingParent
#     kind and namespace of the route                  NotAllowedByListeners
#     hostnames of both sides                          NoMatchingListenerHostname
#
# One listener that accepts the route is enough, whether or not that listener is served.

#: Listeners of these protocols see no hostname.
_WITHOUT_HOSTNAMES = frozenset({"TCP", "UDP"})


class Candidate(NamedTuple):
    """The properties by which a listener accepts a route; ``hostnames`` empty means every host."""

    kind: str
    namespace: str
    hostnames: tuple[str, ...]


class TakenBy(NamedTuple):
    """A listener that accepts a route, and the accepted hostnames; empty: every host."""

    listener: ListenerPlan
    hostnames: tuple[str, ...]


class Acceptance(msgspec.Struct, frozen=True):
    """The listeners that accept a route, and condition Accepted."""

    taken_by: tuple[TakenBy, ...]
    judgement: Judgement


def parent_key(reference: ParentReference, namespace: str) -> ParentKey | None:
    """Return the parent named by a ``parentRef`` of a route in ``namespace``; None if it cannot be one of ours."""
    group = GATEWAY_GROUP if reference.group is None else reference.group
    kind = _PARENT_KINDS.get((group, reference.kind or "Gateway"))
    return None if kind is None else ParentKey(kind, reference.namespace or namespace, reference.name)


def accept(
    candidate: Candidate,
    reference: ParentReference,
    parent: ParentKey,
    listeners: Iterable[ListenerPlan],
    *,
    refusal: str = "",
) -> Acceptance:
    """Return the listeners of ``parent`` among ``listeners`` that accept the route, in order.

    ``refusal`` says why the parent itself is not accepted: a ListenerSet without a listener here.
    """
    of_parent = [listener for listener in listeners if listener.parent == parent]
    named = [listener for listener in of_parent if _is_named(listener, reference)]
    if refusal and not of_parent:
        return _refused("NoMatchingParent", f"{_of(parent)} is not accepted: {refusal}")
    if not named:
        return _refused("NoMatchingParent", f"{_of(parent)} has no listener{_asked(reference)}")
    allowed = [listener for listener in named if _allows(listener, candidate)]
    if not allowed:
        return _refused("NotAllowedByListeners", _why_not_allowed(candidate, named, parent))
    taken_by = tuple(
        TakenBy(listener, hostnames)
        for listener in allowed
        if (hostnames := hostnames_at(listener, candidate.hostnames)) is not None
    )
    if not taken_by:
        hostnames = ", ".join(sorted({listener.hostname for listener in allowed}))
        return _refused(
            "NoMatchingListenerHostname",
            f"none of the hostnames {', '.join(candidate.hostnames)} is within those of the listeners: {hostnames}",
        )
    return Acceptance(taken_by, good(ACCEPTED))


def hostnames_at(listener: ListenerPlan, hostnames: Sequence[str]) -> tuple[str, ...] | None:
    """Return the hostnames of a route that a listener serves: empty for every host, None if there are none."""
    if listener.protocol in _WITHOUT_HOSTNAMES:
        return ()
    if not hostnames:
        return (listener.hostname,) if listener.hostname else ()
    common = (intersection(hostname, listener.hostname) for hostname in hostnames)
    return tuple(dict.fromkeys(hostname for hostname in common if hostname)) or None


def intersection(first: str, other: str) -> str:
    """Return the hostname that both patterns cover, empty if there is none; an empty ``other`` covers every host.

    The star of ``*.a.com`` matches one or more labels, so a.com itself is not covered.
    """
    first, other = first.lower(), other.lower()
    if not other or _covers(other, first):
        return first
    return other if _covers(first, other) else ""


def _covers(pattern: str, hostname: str) -> bool:
    if pattern == hostname:
        return True
    return pattern.startswith("*.") and hostname.removeprefix("*").endswith(pattern[1:]) and hostname != pattern[2:]


def _is_named(listener: ListenerPlan, reference: ParentReference) -> bool:
    return reference.section_name in {None, "", listener.name} and reference.port in {None, 0, listener.port}


def _allows(listener: ListenerPlan, candidate: Candidate) -> bool:
    return _takes_kind(listener, candidate.kind) and (
        listener.namespaces is None or candidate.namespace in listener.namespaces
    )


def _takes_kind(listener: ListenerPlan, kind: str) -> bool:
    return any(allowed.kind == kind and allowed.group in {None, GATEWAY_GROUP} for allowed in listener.kinds)


def _why_not_allowed(candidate: Candidate, named: Sequence[ListenerPlan], parent: ParentKey) -> str:
    names = ", ".join(listener.name for listener in named)
    if not any(_takes_kind(listener, candidate.kind) for listener in named):
        return f"the listeners of {_of(parent)} take no {candidate.kind}: {names}"
    return (
        f"the listeners of {_of(parent)} take no {candidate.kind} of namespace {candidate.namespace}: {names}; "
        "allowedRoutes.namespaces says which they take"
    )


def _refused(reason: str, message: str) -> Acceptance:
    return Acceptance((), bad(ACCEPTED, reason, message))


def _of(parent: ParentKey) -> str:
    return f"{parent.kind} {parent.namespace}/{parent.name}"


def _asked(reference: ParentReference) -> str:
    name = f" of name {reference.section_name}" if reference.section_name else ""
    return name + (f" on port {reference.port}" if reference.port else "")


def namespaces_allowed(
    selector: NamespaceSelector | None, *, default: str, own: str, namespaces: Mapping[str, Mapping[str, str]]
) -> frozenset[str] | None:
    """Return the namespaces that ``selector`` allows, None for all; ``own`` is that of the object with the selector.

    Raises:
        BadSelector: the selector is invalid; the message names the problem.
    """
    kind = (selector.from_ if selector is not None else "") or default
    match kind:
        case "All":
            return None
        case "Same":
            return frozenset({own})
        case "None":
            return frozenset()
        case "Selector":
            if selector is None or selector.selector is None:
                raise BadSelector("namespaces.from is Selector, and namespaces.selector is not there")
            chosen = from_label_selector(selector.selector)
            return frozenset(name for name, labels in namespaces.items() if chosen.matches(labels))
        case _:
            raise BadSelector(f"namespaces.from is {kind!r}: use All, Same, Selector or None")
