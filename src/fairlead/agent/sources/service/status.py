"""Decides which status, annotation and Events the user's Service should have.

    Service                     hub has answered       status.loadBalancer      annotation fairlead.dev/address
    --------------------------  ---------------------  -----------------------  -------------------------------
    ours, scenario 3            with an address        that address             -
    ours, scenario 3            without one            none                     -
    ours, scenarios 1 and 2     with an address        -                        that address
    ours, scenarios 1 and 2     without one            -                        none
    ours, any                   not yet, or refused    as it is                 as it is
    ours, the tenant leaves     an address             as it is                 as it is
    ours, the tenant leaves     no longer an object    none                     none
    no longer ours              any                    none, if it was ours     none
    deleting                    an object              as it is                 as it is
    deleting                    no longer an object    none, if it was ours     none

In: the Service, the decision about it, the hub's TCPLoadBalancer, and whether the status was written by us (the API
server keeps that in managedFields). Out: a ``Feedback``.
Never removes an address that we did not write, and never writes an unchanged value or an invalid address.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

import msgspec

from fairlead.agent.events import (
    Feedback,
    made_names,
    not_an_address,
    refused_names,
    serving_event,
    translate_message,
    usable_addresses,
    why_no_targets,
)
from fairlead.agent.sources.service.plan import Decision, NotOurs, Ours, Scenario
from fairlead.api.kubernetes import EndpointSlice, Ingress, PortStatus, Service
from fairlead.api.meta import WireCondition
from fairlead.api.names import (
    ANNOTATION_ADDRESS,
    ANNOTATION_GENERATED_HOSTNAME,
    LABEL_EGRESS,
    LOAD_BALANCER_CLASS_PREFIX,
    did_you_mean,
)
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.model.condition import ConditionReason, ConditionType, ObjectEvent, warning_event
from fairlead.model.keys import family_of
from fairlead.publish.objects import Refused, same_ingress
from fairlead.translate.egress import NOT_POSSIBLE

_ON_CONFLICT = (
    "If this cluster has its own load balancer implementation, run the agent with --cloud-load-balancer=present. "
    "Otherwise set spec.loadBalancerClass to the class that is to serve it."
)
REMOVED = "TenantRemoved"
#: Kubernetes 1.29+: traffic comes from a proxy, so nodes must not short-cut it to the address itself.
IP_MODE = "Proxy"


def build_feedback(
    service: Service,
    decision: Decision,
    load_balancer: TCPLoadBalancer | None,
    *,
    status_is_ours: bool,
    leaving: bool = False,
    slices: Sequence[EndpointSlice] = (),
    classes: Collection[str] = (),
) -> Feedback:
    """Decide what to write to ``service``.

    ``leaving``: its tenant is being removed at the hub. ``slices`` are the Service's own and ``classes`` the names of
    the classes at the hub, for the messages of Events.
    """
    if service.deleting:
        # A finalizer of another controller may hold the Service long after another one has its address.
        return Feedback() if load_balancer is not None else _withdraw(service, status_is_ours=status_is_ours)
    match decision:
        case NotOurs() | Refused(keep=False):
            return _withdraw(service, status_is_ours=status_is_ours)
        case Ours(scenario):
            pass
        case Refused():
            scenario = None
    if leaving and load_balancer is None:
        withdrawn = _withdraw(service, status_is_ours=status_is_ours)
        return msgspec.structs.replace(withdrawn, problems=(removed_event(""),))
    if load_balancer is not None and leaving:
        addresses = ", ".join(entry.address for entry in wanted_ingress(load_balancer))
        return Feedback(problems=(removed_event(addresses),))
    if scenario is None or load_balancer is None or not has_answered(load_balancer):
        return Feedback()
    if not answers(load_balancer, service):
        return Feedback()
    wanted, wrong = usable_addresses(wanted_ingress(load_balancer))
    problems = _problems(load_balancer, service, classes)
    if wrong:
        return Feedback(problems=(*problems, not_an_address(wrong[0])))
    wanted = tuple(wanted)
    why = partial(why_no_targets, service, slices, load_balancer.spec.targets)
    serving = serving_event(load_balancer.status.conditions or (), wanted, why_no_targets=why) if wanted else None
    if scenario is Scenario.IMPLEMENTED:
        feedback = _by_status(service, wanted, status_is_ours=status_is_ours)
    else:
        feedback = _by_annotation(service, wanted, status_is_ours=status_is_ours)
    problems = (*problems, *refused_names([load_balancer.status.names]))
    made = ",".join(made_names([load_balancer.status.names]))
    names = made if made != service.annotation(ANNOTATION_GENERATED_HOSTNAME) else None
    return msgspec.structs.replace(feedback, names=names, serving=serving, problems=problems, on_conflict=_ON_CONFLICT)


def answers(load_balancer: TCPLoadBalancer, service: Service) -> bool:
    """Return whether the hub's answer is about this Service, and not an earlier one of its name.

    A Service that shows no address yet may be new, so the hub must have seen the version that was published for it.
    """
    if load_balancer.spec.origin.uid not in {"", service.metadata.uid}:
        return False
    is_new = not service.status.load_balancer.ingress and not service.annotation(ANNOTATION_ADDRESS)
    return not is_new or load_balancer.status.observed_generation >= load_balancer.metadata.generation


def has_answered(load_balancer: TCPLoadBalancer) -> bool:
    """Return whether the hub has reconciled the load balancer: a new or deleting one says nothing about its address."""
    status = load_balancer.status
    return not load_balancer.deleting and bool(status.observed_generation > 0 or status.conditions)


def wanted_ingress(load_balancer: TCPLoadBalancer) -> tuple[Ingress, ...]:
    """Convert the hub's addresses to the format of a Service's status."""
    status = load_balancer.status
    entries = list(status.load_balancer.ingress or ())
    if not entries and status.address:
        numeric = family_of(status.address) is not None
        entries = [Ingress(ip=status.address) if numeric else Ingress(hostname=status.address)]
    ports = [PortStatus(port=port.port, protocol=port.protocol) for port in load_balancer.spec.ports]
    return tuple(
        Ingress(ip=entry.ip, hostname=entry.hostname, ip_mode=IP_MODE if entry.ip else None, ports=entry.ports or ports)
        for entry in entries
    )


def _by_status(service: Service, wanted: tuple[Ingress, ...], *, status_is_ours: bool) -> Feedback:
    annotation = "" if ANNOTATION_ADDRESS in (service.metadata.annotations or {}) else None
    if wanted and not same_ingress(wanted, service.status.load_balancer.ingress or ()):
        return Feedback(wanted, annotation)
    if not wanted and status_is_ours and service.status.load_balancer.ingress:
        return Feedback((), annotation)
    return Feedback(None, annotation)


def _by_annotation(service: Service, wanted: tuple[Ingress, ...], *, status_is_ours: bool) -> Feedback:
    ingress = () if status_is_ours and service.status.load_balancer.ingress else None
    address = ",".join(entry.address for entry in wanted)
    recorded = service.annotation(ANNOTATION_ADDRESS)
    if address == recorded:
        return Feedback(ingress)
    return Feedback(ingress, address)


def _withdraw(service: Service, *, status_is_ours: bool) -> Feedback:
    ours = status_is_ours and bool(service.status.load_balancer.ingress)
    annotations = service.metadata.annotations or {}
    annotated, named = (annotation in annotations for annotation in (ANNOTATION_ADDRESS, ANNOTATION_GENERATED_HOSTNAME))
    return Feedback(() if ours else None, "" if annotated else None, "" if named else None)


def _problems(load_balancer: TCPLoadBalancer, service: Service, classes: Collection[str]) -> tuple[ObjectEvent, ...]:
    """Return the hub's refusals and failures, with the fields of the Service, without pending conditions."""
    conditions = [
        condition for condition in load_balancer.status.conditions or () if _is_problem(condition, load_balancer)
    ]
    events = [
        warning_event(
            condition.reason,
            translate_message(condition.message, service)
            + (_other_class(service, classes) if condition.reason == ConditionReason.NO_SUCH_CLASS else ""),
        )
        for condition in conditions
    ]
    if (egress := load_balancer.status.egress) is not None and egress.message:
        events.append(warning_event(NOT_POSSIBLE, f"Pods with label {LABEL_EGRESS}: {egress.message}"))
    return tuple(dict.fromkeys(events))


def _other_class(service: Service, classes: Collection[str]) -> str:
    """Return the next step for a missing class, as the end of a sentence; a Service keeps its class."""
    asked = service.spec.load_balancer_class or ""
    near = did_you_mean(asked.removeprefix(LOAD_BALANCER_CLASS_PREFIX), classes)
    return f".{near} The field cannot be changed: to name another class, create the Service again" if asked else ""


def _is_problem(condition: WireCondition, load_balancer: TCPLoadBalancer) -> bool:
    """Return whether a condition reports a refusal, a failure, held changes, or slowed checks."""
    if condition.type in {ConditionType.GUARDED, ConditionType.PAUSED, ConditionType.CHECKS_SLOWED}:
        return condition.status == "True"
    # Report only references that need a correction: endpoints come and go by themselves.
    to_correct = condition.reason in {ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, ConditionReason.INVALID}
    if condition.type not in {ConditionType.ACCEPTED, ConditionType.PROGRAMMED} and not to_correct:
        return False
    outdated = 0 < condition.observed_generation < load_balancer.metadata.generation
    return condition.status == "False" and condition.reason != ConditionReason.PENDING and not outdated


def removed_event(addresses: str) -> ObjectEvent:
    """Return the Event for the author of a Service; ``addresses`` are those that it shows, empty for none."""
    consequence = (
        f"{addresses} stops answering once its connections have ended"
        if addresses
        else "the Service has no load balancer"
    )
    return warning_event(
        REMOVED,
        f"This cluster is being removed from its hub: {consequence}. To keep this Service reachable, give it another "
        "load balancer (spec.loadBalancerClass), or ask the administrator of the hub.",
    )
