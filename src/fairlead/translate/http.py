"""An HTTPLoadBalancer and the routes attached to it become one desired load balancer.

    valid, address allocated             -> as its spec says
    refused, or no address; accepted     -> as it was last accepted, with the class and allocation of that version
    refused, or no address; never        -> nothing

Routes and backends have no accepted version of their own: what they refer to was decided in the member. In: an
``HTTPView``. Out: ``Decision``. Never: a deletion; a view exists only for what is to exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from fairlead.api.httploadbalancer import HTTPLoadBalancerSpec
from fairlead.api.intent import Allocation
from fairlead.api.names import ANNOTATION_ROUTE_FIGURES, LABEL_ORIGIN_UID
from fairlead.model.condition import Condition, ConditionReason
from fairlead.model.desired import FrontendSpec, Listener, Targets
from fairlead.model.http import Backend, L7Config, L7Listener
from fairlead.model.keys import Family, ListenerKey, Protocol, TargetKey, backend_key
from fairlead.translate.certificates import UNREAD, UNREAD_VERSION
from fairlead.translate.conditions import (
    build_accepted,
    build_paused,
    build_protected,
    first_three,
    no_ready,
    resolved,
    unresolved,
)
from fairlead.translate.endpoints import (
    Admission,
    by_port,
    owner_of_endpoints,
    targets_from_nodes,
    targets_from_slices,
)
from fairlead.translate.generated import with_challenge_listeners
from fairlead.translate.generated_routes import with_generated_names
from fairlead.translate.member import (
    as_accepted,
    as_recorded,
    build_stale,
    count_targets,
    desired_load_balancer,
    frontend_at_allocation,
    leads_to_load_balancers,
    not_admitted,
    nothing_to_serve,
    target_policy,
    version_to_serve,
    without_load_balancers,
)
from fairlead.translate.nodes import addresses_in, node_families, without_family
from fairlead.translate.validate_http import validate_http
from fairlead.translate.view import Allocated, Decision, HTTPView

_UNREAD = (UNREAD, UNREAD_VERSION)


def decide_http(view: HTTPView, allocate: Callable[[HTTPView], Allocated] = as_recorded) -> Decision:
    """Return the desired load balancer of ``view``, with its conditions; ``allocate`` is called once it is valid."""
    spec, accepted = view.load_balancer.spec, view.load_balancer.status.accepted
    served, refusal, allocation = version_to_serve(view, validate_http(view, spec), accepted, allocate)
    if served is None:
        return nothing_to_serve(view, refusal, allocation)
    version = accepted if refusal is not None and accepted is not None else spec
    return _served(served, version, refusal, allocation)


def recorded_http(view: HTTPView) -> Decision | None:
    """Return what is on record as it is served, whatever the present spec asks for; None when nothing is."""
    accepted, served = view.load_balancer.status.accepted, as_accepted(view)
    if accepted is None or served is None:
        return None
    obj = msgspec.structs.replace(view.load_balancer, spec=accepted)
    return _served(msgspec.structs.replace(served, load_balancer=obj), accepted, None, served.allocation)


def _served(view: HTTPView, spec: HTTPLoadBalancerSpec, refusal: Condition | None, allocation: Allocation) -> Decision:
    admission = Admission(target_policy(view))
    config = _config(view, spec)
    families = _node_families(view, spec, config.backends)
    loop_targets: set[TargetKey] = set()
    targets = without_load_balancers(view, _targets(view, spec, config.backends, admission), loop_targets)
    paused = build_paused(view.load_balancer, view.load_balancer_class)
    conditions = (
        build_accepted(refusal),
        leads_to_load_balancers(view, loop_targets) or _resolved(view, targets, families, admission),
        build_stale(view, nodes=sorted({family for each in families for family in each})),
        paused,
        build_protected(view.load_balancer),
    )
    desired = desired_load_balancer(view, _frontend(view, spec, config), targets, paused=paused is not None)
    return Decision(
        msgspec.structs.replace(desired, owners={} if desired.stale else _owners(view, spec, config.backends)),
        tuple(filter(None, conditions)),
        targets=count_targets(targets),
        provider=view.provider,
        serving_last_accepted=refusal is not None,
        allocation=allocation,
    )


def ports_of(listeners: Iterable[L7Listener]) -> tuple[Listener, ...]:
    """Return the distinct ports that ``listeners`` open, ordered; those of HTTP, HTTPS and TLS are TCP."""
    ports = {(each.port, Protocol.UDP if each.protocol == "UDP" else Protocol.TCP) for each in listeners}
    return tuple(Listener(port, protocol) for port, protocol in sorted(ports))


def _config(view: HTTPView, spec: HTTPLoadBalancerSpec) -> L7Config:
    backends: dict[str, Backend] = {}
    for route in view.routes:
        for backend in route.spec.backends:
            backends.setdefault(backend.name, backend)
    listeners, routes = with_generated_names(
        view.domains, spec.origin, spec.listeners, view.routes, view.domain_certificates
    )
    return L7Config(
        listeners=with_challenge_listeners(listeners, view.answers),
        routes=tuple(each.route for each in routes),
        backends=tuple(backends[name] for name in sorted(backends)),
        certificates=view.certificates,
        answers=view.answers,
        route_figures=view.load_balancer.annotation(ANNOTATION_ROUTE_FIGURES, "false") != "false",
    )


def _frontend(view: HTTPView, spec: HTTPLoadBalancerSpec, config: L7Config) -> FrontendSpec:
    return msgspec.structs.replace(
        frontend_at_allocation(view, spec, ports_of(config.listeners), spec.origin), l7=config
    )


def _targets(
    view: HTTPView, spec: HTTPLoadBalancerSpec, backends: Sequence[Backend], admission: Admission
) -> dict[ListenerKey, Targets]:
    if view.member.drained:
        return {backend_key(backend.name): {} for backend in backends}
    slices = {service: by_port(listed) for service, listed in view.slices.items()}
    addresses = {
        families: addresses_in(view.nodes, node_families(families, ipv6=admission.policy.ipv6))
        for families in {backend.ip_families for backend in backends}
    }
    targets: dict[ListenerKey, Targets] = {}
    for backend in backends:
        if spec.targets == "Node" and backend.node_port:
            listed = targets_from_nodes(addresses[backend.ip_families], backend.node_port, admission)
        else:
            port = (backend.port_name, "UDP" if backend.protocol == "UDP" else "TCP")
            listed = targets_from_slices(slices.get(backend.service, {}).get(port, ()), admission, backend.service)
        targets[backend_key(backend.name)] = listed
    return targets


def _owners(
    view: HTTPView, spec: HTTPLoadBalancerSpec, backends: Sequence[Backend]
) -> dict[ListenerKey, frozenset[str]]:
    """Return the Services whose endpoints each backend lists; none where the slices do not say, or there are none."""
    owners: dict[ListenerKey, frozenset[str]] = {}
    for backend in backends:
        if spec.targets == "Node" and backend.node_port:
            continue
        uids = {each.label(LABEL_ORIGIN_UID) for each in view.slices.get(backend.service, ())}
        if uids and "" not in uids:
            owners[backend_key(backend.name)] = frozenset(owner_of_endpoints(backend.service, uid) for uid in uids)
    return owners


def _node_families(
    view: HTTPView, spec: HTTPLoadBalancerSpec, backends: Iterable[Backend]
) -> tuple[tuple[Family, ...], ...]:
    """Return the families in which nodes are targets of each of ``backends``, each once."""
    if spec.targets != "Node":
        return ()
    ipv6 = target_policy(view).ipv6
    families = {node_families(backend.ip_families, ipv6=ipv6) for backend in backends if backend.node_port}
    return tuple(sorted(families))


def _resolved(
    view: HTTPView,
    targets: Mapping[ListenerKey, Targets],
    families: Iterable[tuple[Family, ...]],
    admission: Admission,
) -> Condition:
    if view.unreadable:
        return unresolved(ConditionReason.INVALID, view.unreadable)
    if view.missing_certificates:
        # The first that really is missing; only when there is none, one that is still being read.
        name, why = min(view.missing_certificates.items(), key=lambda each: (each[1] in _UNREAD, each))
        more = f", and {len(view.missing_certificates) - 1} more" if len(view.missing_certificates) > 1 else ""
        reason = ConditionReason.PENDING if why in _UNREAD else ConditionReason.INVALID
        return unresolved(reason, f"certificate {name}: {why}{more}")
    if problem := not_admitted(admission):
        return problem
    for each in families:
        if problem := without_family(view.nodes, each):
            return problem
    problems: list[str] = []
    if without := {route.unresolved for route in view.routes} - {""}:
        of = f"a backend of {first_three(without)}"
        problems.append(f"{of} cannot be resolved, so its requests are answered 500; Events in the member say why")
    empty = {str(key) for key, by_key in targets.items() if all(target.draining for target in by_key.values())}
    if empty:
        problems.append(no_ready("endpoint", first_three(empty)))
    return unresolved(ConditionReason.BACKEND_NOT_FOUND, "; ".join(problems)) if problems else resolved()
