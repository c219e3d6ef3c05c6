"""What should the user's Service show, and what should its author be told?

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

from fairlead.agent.decision import Decision, NotOurs, Refused, Scenario
from fairlead.agent.events import Note, warn
from fairlead.agent.message_translation import in_words_of_service
from fairlead.agent.wire import object_from_ingress
from fairlead.api.kubernetes import Ingress, PortStatus, Service
from fairlead.api.meta import WireCondition
from fairlead.api.names import ANNOTATION_ADDRESS
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.model.condition import ConditionReason, ConditionType

#: Kubernetes 1.29+: traffic comes from a proxy, so nodes must not short-cut it to the address itself.
IP_MODE = "Proxy"

ENSURED = "EnsuredLoadBalancer"


class Feedback(msgspec.Struct, frozen=True):
    """What to write; None means leave as it is, an empty ``annotation`` means take it away.

    ``ensured`` is told once the write has succeeded; ``problems`` whenever they change.
    """

    ingress: tuple[Ingress, ...] | None = None
    annotation: str | None = None
    ensured: Note | None = None
    problems: tuple[Note, ...] = ()


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
    """Say whether the hub has spoken: a TCPLoadBalancer that is new, or going, says nothing about its address."""
    status = load_balancer.status
    return not load_balancer.deleting and bool(status.observed_generation or status.conditions)


def wanted_ingress(load_balancer: TCPLoadBalancer) -> tuple[Ingress, ...]:
    """Convert the hub's addresses to what a Service's status holds."""
    status = load_balancer.status
    found = list(status.load_balancer.ingress or ())
    if not found and status.address:
        numeric = status.address.replace(".", "").isdecimal()
        found = [Ingress(ip=status.address) if numeric else Ingress(hostname=status.address)]
    ports = [PortStatus(port=port.port, protocol=port.protocol) for port in load_balancer.spec.ports]
    return tuple(
        Ingress(ip=one.ip, hostname=one.hostname, ip_mode=IP_MODE if one.ip else None, ports=one.ports or ports)
        for one in found
    )


def same_ingress(wanted: tuple[Ingress, ...], present: list[Ingress] | None) -> bool:
    """Compare what matters: an old API server drops ipMode, and that must not be written again and again."""
    there = present or []
    return len(wanted) == len(there) and all(
        object_from_ingress(mine) | {"ipMode": None} == object_from_ingress(theirs) | {"ipMode": None}
        and theirs.ip_mode in {mine.ip_mode, None}
        for mine, theirs in zip(wanted, there, strict=True)
    )


def _by_status(
    service: Service, wanted: tuple[Ingress, ...], problems: tuple[Note, ...], *, status_is_ours: bool
) -> Feedback:
    annotation = "" if ANNOTATION_ADDRESS in (service.metadata.annotations or {}) else None
    if wanted and not same_ingress(wanted, service.status.load_balancer.ingress):
        return Feedback(wanted, annotation, _ensured(wanted), problems)
    if not wanted and status_is_ours and service.status.load_balancer.ingress:
        return Feedback((), annotation, None, problems)
    return Feedback(None, annotation, None, problems)


def _by_annotation(
    service: Service, wanted: tuple[Ingress, ...], problems: tuple[Note, ...], *, status_is_ours: bool
) -> Feedback:
    ingress = () if status_is_ours and service.status.load_balancer.ingress else None
    address = ",".join(one.address for one in wanted)
    there = service.annotation(ANNOTATION_ADDRESS)
    if address == there:
        return Feedback(ingress, None, None, problems)
    return Feedback(ingress, address, _ensured(wanted) if address else None, problems)


def _withdraw(service: Service, *, status_is_ours: bool) -> Feedback:
    ours = status_is_ours and bool(service.status.load_balancer.ingress)
    annotated = ANNOTATION_ADDRESS in (service.metadata.annotations or {})
    return Feedback(() if ours else None, "" if annotated else None)


def _ensured(wanted: tuple[Ingress, ...]) -> Note:
    addresses = ", ".join(one.address for one in wanted)
    return Note(warning=False, reason=ENSURED, message=f"The load balancer answers at {addresses}")


def _problems(load_balancer: TCPLoadBalancer, service: Service) -> tuple[Note, ...]:
    """Return what the hub refuses or cannot do, in words of the Service; what is only on its way is no news."""
    notes: list[Note] = []
    for one in load_balancer.status.conditions or ():
        if not _is_news(one, load_balancer):
            continue
        note = warn(one.reason, in_words_of_service(one.message, service))
        if note not in notes:
            notes.append(note)
    return tuple(notes)


def _is_news(condition: WireCondition, load_balancer: TCPLoadBalancer) -> bool:
    """Say whether the author of the Service should hear of it: a refusal, a failure, or removals that are held."""
    if condition.type == ConditionType.GUARDED:
        return condition.status == "True"
    if condition.type not in {ConditionType.ACCEPTED, ConditionType.PROGRAMMED}:
        return False
    outdated = 0 < condition.observed_generation < load_balancer.metadata.generation
    return condition.status == "False" and condition.reason != ConditionReason.PENDING and not outdated
