"""What should the user's Service show, and which Events should it have?

    Service                     hub has answered       status.loadBalancer      annotation fairlead.dev/address
    --------------------------  ---------------------  -----------------------  -------------------------------
    ours, scenario 3            with an address        that address             -
    ours, scenario 3            without one            none                     -
    ours, scenarios 1 and 2     with an address        -                        that address
    ours, scenarios 1 and 2     without one            -                        none
    ours, any                   not yet, or refused    as it is                 as it is
    no longer ours              any                    none, if it was ours     none

In: the Service, the decision about it, the hub's TCPLoadBalancer, and whether the status was written by us (the API
server keeps that in managedFields). Out: a ``Feedback``.
Never takes away an address that we did not write, and never writes what is there already.
"""

from __future__ import annotations

import msgspec

from fairlead.agent.decision import Decision, NotOurs, Scenario
from fairlead.agent.events import ServiceEvent, warning_event
from fairlead.agent.message_translation import translate_message
from fairlead.api.kubernetes import Ingress, PortStatus, Service
from fairlead.api.meta import WireCondition
from fairlead.api.names import ANNOTATION_ADDRESS
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.publish.compare import same_ingress
from fairlead.publish.publication import Refused

#: Kubernetes 1.29+: traffic comes from a proxy, so nodes must not short-cut it to the address itself.
IP_MODE = "Proxy"

ENSURED = "EnsuredLoadBalancer"


class Feedback(msgspec.Struct, frozen=True):
    """What to write; None means leave as it is, an empty ``annotation`` means take it away.

    ``ensured`` is emitted once the write has succeeded; ``problems`` whenever they change.
    """

    ingress: tuple[Ingress, ...] | None = None
    annotation: str | None = None
    ensured: ServiceEvent | None = None
    problems: tuple[ServiceEvent, ...] = ()


def build_feedback(
    service: Service, decision: Decision, load_balancer: TCPLoadBalancer | None, *, status_is_ours: bool
) -> Feedback:
    """Decide what to write to ``service``."""
    if service.deleting:
        return Feedback()
    if isinstance(decision, NotOurs) or (isinstance(decision, Refused) and not decision.keep):
        return _withdraw(service, status_is_ours=status_is_ours)
    if isinstance(decision, Refused) or load_balancer is None or not has_answered(load_balancer):
        return Feedback()
    wanted = wanted_ingress(load_balancer)
    problems = _problems(load_balancer, service)
    if decision.scenario is Scenario.IMPLEMENTED:
        return _by_status(service, wanted, problems, status_is_ours=status_is_ours)
    return _by_annotation(service, wanted, problems, status_is_ours=status_is_ours)


def has_answered(load_balancer: TCPLoadBalancer) -> bool:
    """Say whether the hub has reconciled it: one that is new, or being deleted, says nothing about its address."""
    status = load_balancer.status
    return not load_balancer.deleting and bool(status.observed_generation or status.conditions)


def wanted_ingress(load_balancer: TCPLoadBalancer) -> tuple[Ingress, ...]:
    """Convert the hub's addresses to what a Service's status holds."""
    status = load_balancer.status
    entries = list(status.load_balancer.ingress or ())
    if not entries and status.address:
        numeric = status.address.replace(".", "").isdecimal()
        entries = [Ingress(ip=status.address) if numeric else Ingress(hostname=status.address)]
    ports = [PortStatus(port=port.port, protocol=port.protocol) for port in load_balancer.spec.ports]
    return tuple(
        Ingress(ip=each.ip, hostname=each.hostname, ip_mode=IP_MODE if each.ip else None, ports=each.ports or ports)
        for each in entries
    )


def _by_status(
    service: Service, wanted: tuple[Ingress, ...], problems: tuple[ServiceEvent, ...], *, status_is_ours: bool
) -> Feedback:
    annotation = "" if ANNOTATION_ADDRESS in (service.metadata.annotations or {}) else None
    if wanted and not same_ingress(wanted, service.status.load_balancer.ingress or ()):
        return Feedback(wanted, annotation, _ensured(wanted), problems)
    if not wanted and status_is_ours and service.status.load_balancer.ingress:
        return Feedback((), annotation, None, problems)
    return Feedback(None, annotation, None, problems)


def _by_annotation(
    service: Service, wanted: tuple[Ingress, ...], problems: tuple[ServiceEvent, ...], *, status_is_ours: bool
) -> Feedback:
    ingress = () if status_is_ours and service.status.load_balancer.ingress else None
    address = ",".join(each.address for each in wanted)
    there = service.annotation(ANNOTATION_ADDRESS)
    if address == there:
        return Feedback(ingress, None, None, problems)
    return Feedback(ingress, address, _ensured(wanted) if address else None, problems)


def _withdraw(service: Service, *, status_is_ours: bool) -> Feedback:
    ours = status_is_ours and bool(service.status.load_balancer.ingress)
    annotated = ANNOTATION_ADDRESS in (service.metadata.annotations or {})
    return Feedback(() if ours else None, "" if annotated else None)


def _ensured(wanted: tuple[Ingress, ...]) -> ServiceEvent:
    addresses = ", ".join(each.address for each in wanted)
    return ServiceEvent(warning=False, reason=ENSURED, message=f"The load balancer answers at {addresses}")


def _problems(load_balancer: TCPLoadBalancer, service: Service) -> tuple[ServiceEvent, ...]:
    """Return what the hub refuses or cannot do, with the fields of the Service; what is pending is left out."""
    conditions = [each for each in load_balancer.status.conditions or () if _is_problem(each, load_balancer)]
    events = [warning_event(each.reason, translate_message(each.message, service)) for each in conditions]
    return tuple(dict.fromkeys(events))


def _is_problem(condition: WireCondition, load_balancer: TCPLoadBalancer) -> bool:
    """Say whether a condition is a refusal, a failure, or removals that are held."""
    if condition.type == ConditionType.GUARDED:
        return condition.status == "True"
    if condition.type not in {ConditionType.ACCEPTED, ConditionType.PROGRAMMED}:
        return False
    outdated = 0 < condition.observed_generation < load_balancer.metadata.generation
    return condition.status == "False" and condition.reason != ConditionReason.PENDING and not outdated
