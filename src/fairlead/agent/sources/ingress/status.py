"""The addresses and Events of its load balancer that an Ingress shows.

    Ingress                    its class's load balancer     status.loadBalancer
    -------------------------  ----------------------------  --------------------
    of a class of ours         Programmed                    its addresses; Events say whether they serve
    of a class of ours         not Programmed, or no longer  as it is
    of a class of ours,        any                           none, if we wrote it
      but not served
    of no class of ours        any                           none, if we wrote it
    deleting, without routes   any                           none

In: the Ingress, the hub's HTTPLoadBalancer, the names that it made. Out: a ``Feedback``. Never: removes an address
that we did not write, or shows an invalid one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.agent.events import (
    Feedback,
    failing_events,
    made_names,
    name_class_parameters,
    not_an_address,
    refused_names,
    serving_event,
    usable_addresses,
)
from fairlead.agent.identity import certificate_name, route_name
from fairlead.agent.sources.caches import secrets_of
from fairlead.agent.sources.ingress.plan import https_listener, unprotected
from fairlead.api.httploadbalancer import HTTPLoadBalancer
from fairlead.api.intent import NamesStatus
from fairlead.api.kubernetes import INGRESSES, Ingress, IngressObject
from fairlead.api.meta import condition_of, is_taken_over
from fairlead.model.condition import ConditionReason, ConditionType, ObjectEvent, warning_event
from fairlead.publish.objects import same_ingress

PROGRAMMED = "Programmed"
_ON_CONFLICT = "Set spec.ingressClassName to a class of Fairlead, and to no other."


def build_feedback(
    ingress: IngressObject,
    load_balancer: HTTPLoadBalancer | None,
    names: Sequence[NamesStatus],
    *,
    of_class: bool,
    shows_ours: bool = False,
    refusals: Iterable[str] = (),
) -> Feedback:
    """Decide what ``ingress`` shows.

    ``names`` are the host names of its routes as the hub reports them, ``of_class``: its class is one of ours,
    ``shows_ours``: its status has an address of ours, ``refusals``: why the hub rejects its published objects.
    """
    if ingress.deleting:
        # A finalizer of another controller may hold it; applying nothing gives up what the agent has written.
        return Feedback(ingress=() if ingress.status.load_balancer.ingress else None)
    problems = [] if load_balancer is None else [*_problems(load_balancer), *_refused(load_balancer, ingress)]
    problems += refused_names(names)
    problems += [warning_event(ConditionReason.INVALID, why) for why in refusals]
    served = of_class and not unprotected(ingress)
    wanted = _wanted(load_balancer, names) if served else () if shows_ours else None
    if wanted is not None and same_ingress(wanted, ingress.status.load_balancer.ingress or ()):
        wanted = None
    return Feedback(
        ingress=wanted,
        serving=None if unprotected(ingress) else _serving(load_balancer, ingress),
        problems=tuple(problems),
        announcement=_programmed(wanted) if wanted else None,
        on_conflict=_ON_CONFLICT,
    )


def _wanted(load_balancer: HTTPLoadBalancer | None, names: Iterable[NamesStatus]) -> tuple[Ingress, ...] | None:
    """Return the addresses to show with the names that the hub made after them; None for those that are shown."""
    if load_balancer is None or not _is_programmed(load_balancer) or _no_addresses(load_balancer):
        return None
    addresses = [
        Ingress(ip=entry.ip, hostname=entry.hostname, ports=entry.ports)
        for entry in load_balancer.status.load_balancer.ingress or ()
    ]
    ports = addresses[0].ports if addresses else None
    return (*addresses, *(Ingress(hostname=hostname, ports=ports) for hostname in made_names(names)))


def _programmed(wanted: Iterable[Ingress]) -> ObjectEvent:
    addresses = ", ".join(entry.address for entry in wanted)
    return ObjectEvent(False, PROGRAMMED, f"The routes are programmed at {addresses}")


def _is_programmed(load_balancer: HTTPLoadBalancer) -> bool:
    return is_taken_over(condition_of(load_balancer.status.conditions, ConditionType.PROGRAMMED))


def _serving(load_balancer: HTTPLoadBalancer | None, obj: IngressObject) -> ObjectEvent | None:
    """Return the Event about the load balancer of its class, which its Ingresses share, and about its own routes."""
    ingress = load_balancer.status.load_balancer.ingress if load_balancer is not None else None
    if load_balancer is None or not ingress or _no_addresses(load_balancer):
        return None
    failing = failing_events(load_balancer, INGRESSES.kind, obj.key)
    return serving_event(load_balancer.status.conditions or (), ingress, failing=failing)


def _no_addresses(load_balancer: HTTPLoadBalancer) -> list[str]:
    """Return the invalid texts that the hub reports in place of an address."""
    return usable_addresses(load_balancer.status.load_balancer.ingress or ())[1]


def _problems(load_balancer: HTTPLoadBalancer) -> list[ObjectEvent]:
    """Return the hub's rejections and invalid addresses, without pending conditions."""
    wrong = [not_an_address(text) for text in _no_addresses(load_balancer)[:1]]
    return wrong + [
        warning_event(condition.reason, name_class_parameters(condition.message, INGRESSES.kind))
        for condition in load_balancer.status.conditions or ()
        if condition.type in {ConditionType.ACCEPTED, ConditionType.PROGRAMMED}
        and condition.status == "False"
        # An Ingress reports the refusal of its own routes itself; those of others do not concern it.
        and condition.reason not in {ConditionReason.PENDING, ConditionReason.ROUTES_REFUSED}
        and condition.observed_generation >= load_balancer.metadata.generation
    ]


def _refused(load_balancer: HTTPLoadBalancer, ingress: IngressObject) -> list[ObjectEvent]:
    """Return which parts of this Ingress the proxies do not serve."""
    hosts = {rule.host for rule in ingress.spec.rules or ()}
    origin = (INGRESSES.kind, ingress.metadata.namespace, ingress.metadata.name)
    routes = {route_name(origin, host) for host in {*hosts, ""}}
    own = routes | {https_listener(host) for host in hosts}
    own |= {certificate_name(ingress.metadata.namespace, secret) for secret in secrets_of(ingress)}
    return [
        warning_event(ConditionReason.REJECTED_BY_PROXY, f"the {part.kind} is not served: {part.reason}")
        for part in load_balancer.status.refused
        if part.name in own
    ]
