"""Feedback to users on Services, Ingresses and Gateways: addresses, problems, and whether the address serves.

    Serving    reason                        Event
    ---------  ----------------------------  --------------------------------------------------
    True       any                           EnsuredLoadBalancer, Normal
    any        its own requests fail         ServingStopped, Warning, though others on the load balancer are served
    Unknown    NotChecked                    EnsuredLoadBalancer, which says that nothing checks
    False      NoTargets                     NoTargets, Warning, once that has lasted a moment
    False      any other                     ServingStopped, Warning; NotServing while it is not known to have served
    Unknown    any other                     none: the state will be known soon

In: the hub's answer, and the member's objects. Out: a ``Feedback``; Kubernetes Events for new states. A
Warning that no longer holds is ended by an Event of type Normal with the reason Resolved. An address of the hub that is
neither an IP address nor a host name is not shown. Never: writes by itself (the recorder does), or repeats an Event.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from fairlead.agent.identity import Key, ServiceKey
from fairlead.api.hostname import RESOLVABLE_NAME
from fairlead.api.httploadbalancer import FAILING_LISTED, HTTPLoadBalancer
from fairlead.api.intent import NamesStatus
from fairlead.api.kubernetes import EndpointSlice, Ingress, Service, ServicePort
from fairlead.api.meta import KubeObject, WireCondition, is_taken_over
from fairlead.api.names import (
    ANNOTATION_BACKEND_TLS,
    ANNOTATION_HEALTH_CHECK,
    ANNOTATION_OUTLIER_DETECTION,
    ANNOTATION_PROXY_PROTOCOL,
    ANNOTATION_REQUESTED_ADDRESS,
    ANNOTATION_TARGET,
    LABEL_SERVICE_NAME,
)
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TargetType
from fairlead.kube.events import EventWriter
from fairlead.model.condition import ConditionReason, ConditionType, ObjectEvent, warning_event
from fairlead.runtime.clock import Clock
from fairlead.runtime.logs import legible
from fairlead.translate.endpoints import in_service, state_of

#: The source of the Events about a hub that does not answer.
SILENT_HUB = "hub"


# --- Events ----------------------------------------------------------------------------------------------------------


def not_an_address(text: str) -> ObjectEvent:
    """Return the event about a hub that reports ``text`` in place of an address."""
    sentence = (
        f"The hub reports address {text!r}, which is not an IP address or host name, so it is ignored. Check the hub"
    )
    return warning_event(ConditionReason.ADDRESS_NOT_USABLE, sentence)


class Feedback(msgspec.Struct, frozen=True):
    """The desired feedback on a Service or Ingress; None: no change, an empty text removes an annotation.

    ``ingress`` are the addresses of its status, ``annotation`` is the one with the address, ``names`` the one with the
    name that the hub made. ``serving`` is the Event about whether the address answers, emitted when it changes and
    everything is written; None while unknown. ``problems`` are emitted whenever they change, and
    ``announcement`` when addresses were written. ``on_conflict`` is the next step when another controller owns them.
    """

    ingress: tuple[Ingress, ...] | None = None
    annotation: str | None = None
    names: str | None = None
    serving: ObjectEvent | None = None
    problems: tuple[ObjectEvent, ...] = ()
    announcement: ObjectEvent | None = None
    on_conflict: str = ""


# --- messages of the hub ---------------------------------------------------------------------------------------------

_ITSELF = re.compile(rf"^{TCP_LOAD_BALANCERS.kind}/[^ /]+/[^ /:]+: ")
_FIELD = re.compile(r"\bspec\.(className|address|proxyProtocol|targets|healthCheck|backendTls|outlierDetection)\b")


_PARAMETERS = {"Ingress": "spec.parameters of its IngressClass", "Gateway": "spec.parametersRef of its GatewayClass"}


def name_class_parameters(message: str, kind: str) -> str:
    """Return ``message`` of an HTTPLoadBalancer with the field that names its class: ``kind`` is Ingress or Gateway."""
    return message.replace("spec.className", _PARAMETERS[kind])


def translate_message(message: str, service: Service) -> str:
    """Return ``message`` with the fields of the Service in place of those of the TCPLoadBalancer."""
    by_annotation = bool(service.annotation(ANNOTATION_REQUESTED_ADDRESS))
    fields = {
        "className": "spec.loadBalancerClass",
        "address": f"annotation {ANNOTATION_REQUESTED_ADDRESS}" if by_annotation else "spec.loadBalancerIP",
        "backendTls": f"annotation {ANNOTATION_BACKEND_TLS}",
        "healthCheck": f"annotation {ANNOTATION_HEALTH_CHECK}",
        "outlierDetection": f"annotation {ANNOTATION_OUTLIER_DETECTION}",
        "proxyProtocol": f"annotation {ANNOTATION_PROXY_PROTOCOL}",
        "targets": f"annotation {ANNOTATION_TARGET}",
    }
    return _FIELD.sub(lambda match: fields[match[1]], _ITSELF.sub("", message))


# --- addresses and names of the hub ----------------------------------------------------------------------------------


def usable_addresses(entries: Iterable[Ingress]) -> tuple[list[Ingress], list[str]]:
    """Return the entries that are valid addresses of a load balancer, and the texts of the invalid ones."""
    good: list[Ingress] = []
    bad: list[str] = []
    for entry in entries:
        by_ip = entry.ip and not entry.hostname and _is_address(entry.ip)
        by_name = entry.hostname and not entry.ip and RESOLVABLE_NAME.fullmatch(entry.hostname)
        if by_ip or by_name:
            good.append(entry)
        else:
            bad.append(legible(entry.ip or entry.hostname or "")[:100])
    return good, bad


def _is_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_multicast or address.is_unspecified or getattr(address, "scope_id", None))


def made_names(names: Iterable[NamesStatus]) -> tuple[str, ...]:
    """Return the names that the hub made, ordered, without invalid ones."""
    made = sorted({name.hostname for name in names if name.hostname})
    usable, _ = usable_addresses(Ingress(hostname=hostname) for hostname in made)
    return tuple(entry.hostname or "" for entry in usable)


def refusal(names: NamesStatus) -> WireCondition | None:
    """Return the condition that says which names are refused, None if none is."""
    return _bad(names, ConditionType.HOSTNAMES_ACCEPTED)


def unpublished(names: NamesStatus) -> WireCondition | None:
    """Return the condition that says which names have records that cannot be written, None if none has."""
    return _bad(names, ConditionType.HOSTNAMES_PUBLISHED)


def refused_names(names: Iterable[NamesStatus]) -> list[ObjectEvent]:
    """Return an Event for each refusal, and for records that cannot be written, ordered."""
    bad = (condition for name in names for condition in (refusal(name), unpublished(name)))
    return [
        warning_event(*condition)
        for condition in sorted({(condition.reason, condition.message) for condition in bad if condition is not None})
    ]


def _bad(names: NamesStatus, kind: ConditionType) -> WireCondition | None:
    return next(
        (condition for condition in names.conditions or () if condition.type == kind and condition.status == "False"),
        None,
    )


_NODES = "kubectl get nodes"


# --- why a load balancer has no target -------------------------------------------------------------------------------


class Missing(NamedTuple):
    """The missing part of a Service, and the command that shows it."""

    why: str
    command: str


def why_no_targets(service: Service, slices: Sequence[EndpointSlice], targets: TargetType) -> str:
    """Return the missing endpoints or nodes."""
    local = service.spec.external_traffic_policy == "Local"
    if targets == "Address":
        return "the cluster's own load balancer shows no address that may be used"
    if targets == "Node" and not local:
        return f"no node of the cluster takes traffic: {_NODES}"
    if missing := missing_endpoints(service, slices):
        return f"{missing.why}: {missing.command}"
    if targets == "Node":
        return f"no node with a ready pod takes traffic (externalTrafficPolicy Local): {_NODES}"
    return "look at its EndpointSlices"


def missing_endpoints(service: Service, slices: Sequence[EndpointSlice]) -> Missing | None:
    """Return why some port of a Service has no ready endpoint; None when each has one."""
    namespace, of = service.metadata.namespace, f"-l {LABEL_SERVICE_NAME}={service.metadata.name}"
    selector = ",".join(f"{key}={value}" for key, value in sorted((service.spec.selector or {}).items()))
    pods = f"kubectl get pods -n {namespace} -l {selector}"
    listed = [(endpoint_slice, endpoint) for endpoint_slice in slices for endpoint in endpoint_slice.endpoints or ()]
    if not listed and not selector:
        why = "the Service has no selector, and no EndpointSlice of its own has an endpoint"
        return Missing(why, f"kubectl get endpointslices -n {namespace} {of}")
    if not listed:
        return Missing("the Service's selector matches no pod with an address", pods)
    serving = in_service({place: state_of(endpoint) for place, (_, endpoint) in enumerate(listed)})
    ready = [listed[place][0] for place in sorted(serving)]
    slices_in_full = f"kubectl describe endpointslices -n {namespace} {of}"
    if not ready and selector:
        return Missing("none of its pods is ready", pods)
    if not ready:
        return Missing("none of its endpoints is ready", slices_in_full)
    served = {
        (port.name or "", port.protocol or "TCP") for endpoint_slice in ready for port in endpoint_slice.ports or ()
    }
    missing = [port for port in service.spec.ports or () if (port.name, port.protocol) not in served]
    return Missing(_no_port(missing[0]), slices_in_full) if missing else None


def _no_port(port: ServicePort) -> str:
    title = f"{port.protocol}/{port.port}" + (f" ({port.name})" if port.name else "")
    if isinstance(port.target_port, str):
        return f"the pods have no container port named {port.target_port!r}, the targetPort of {title}"
    return f"the EndpointSlices have no port for {title}; ports match by name and protocol"


# --- whether the address serves --------------------------------------------------------------------------------------

ENSURED = "EnsuredLoadBalancer"
SERVING_STOPPED = "ServingStopped"
NOT_SERVING = "NotServing"
NO_TARGETS = "NoTargets"
_ROUTES_SHOWN = 3
#: A load balancer is published before its endpoints, so for a moment it has none.
NO_TARGETS_PATIENCE_S = 3.0

#: The message of the Event when connections fail, by the reason of Serving.
_FAILING = {
    ConditionReason.NO_TARGETS: (
        NO_TARGETS,
        "The load balancer has the address {}, and no target: connections fail until a pod or node takes traffic",
    ),
    ConditionReason.UNREACHABLE_FROM_SOME_PROXIES: (
        SERVING_STOPPED,
        "Some connections to the load balancer at {} fail: some of its proxies reach no healthy target",
    ),
    ConditionReason.ROUTES_REFUSED: (
        SERVING_STOPPED,
        "Requests to the load balancer at {} get errors: none of its routes is served, and each says why",
    ),
    ConditionReason.FLAPPING: (SERVING_STOPPED, "Connections to the load balancer at {} fail again and again"),
}
_NONE_HEALTHY = (
    SERVING_STOPPED,
    "No target of the load balancer at {} is healthy: connections fail; do the pods listen at its targetPort?",
)


def serving_event(
    of_load_balancer: Iterable[WireCondition],
    ingress: Sequence[Ingress],
    *,
    why_no_targets: Callable[[], str] = str,
    failing: Sequence[ObjectEvent] | None = (),
) -> ObjectEvent | None:
    """Return the Event that says whether the addresses in ``ingress`` are served; None while unknown.

    ``why_no_targets`` is called only if there is no target; its result ends the message. ``failing`` is the result of
    ``failing_events`` for the routes of the object itself.
    """
    conditions = {condition.type: condition for condition in of_load_balancer}
    serving, programmed = (conditions.get(kind) for kind in (ConditionType.SERVING, ConditionType.PROGRAMMED))
    addresses = ", ".join(entry.address for entry in ingress)
    if serving is not None and serving.status == "False":
        reason, message = next((texts for of, texts in _FAILING.items() if of == serving.reason), _NONE_HEALTHY)
        why = why_no_targets() if reason == NO_TARGETS else ""
        return warning_event(reason, message.format(addresses) + (f"; {why}" if why else ""))
    if failing is None:
        return None
    if failing:
        return failing[0]
    if not is_taken_over(programmed):
        return None
    if serving is not None and serving.status == "True":
        return ObjectEvent(warning=False, reason=ENSURED, message=f"The load balancer answers at {addresses}")
    if serving is None or serving.reason in (ConditionReason.NOT_CHECKED, ConditionReason.SOME_BACKENDS_UNHEALTHY):
        message = f"The load balancer has the address {addresses}; whether its targets answer is not checked"
        return ObjectEvent(warning=False, reason=ENSURED, message=message)
    return None


def failing_events(load_balancer: HTTPLoadBalancer | None, kind: str, key: ServiceKey) -> Sequence[ObjectEvent] | None:
    """Return the Warning about the routes of one object of the member whose requests fail at a load balancer.

    A load balancer lists only the first failing routes. None: the list is full, so the state of the others is unknown.
    """
    listed = load_balancer.status.failing_routes if load_balancer is not None else ()
    addresses = ", ".join(load_balancer.status.addresses) if load_balancer is not None else ""
    failing = [route for route in listed if (route.kind, route.namespace, route.object) == (kind, *key)]
    if not failing:
        return () if len(listed) < FAILING_LISTED else None
    texts = "; ".join(route.sentence for route in failing[:_ROUTES_SHOWN])
    more = f"; and {len(failing) - _ROUTES_SHOWN} more" if len(failing) > _ROUTES_SHOWN else ""
    message = f"At {addresses} {texts}{more}; does a pod listen at the targetPort of the Service?"
    return (warning_event(SERVING_STOPPED, message),)


def failing_changes(old: HTTPLoadBalancer, new: HTTPLoadBalancer) -> set[Key] | None:
    """Return the member's objects whose ``failing_events`` may differ; None for all objects on the load balancer.

    When a list becomes full, the objects that are not listed keep their Events.
    """
    before, after = old.status.failing_routes, new.status.failing_routes
    if len(before) >= FAILING_LISTED > len(after):
        return None
    return {(each.kind, each.namespace, each.object) for each in set(before) ^ set(after)}


class ServingEvents:
    """Emits Events about serving when they differ from the last one, for the objects of one kind."""

    def __init__(self, *, events: EventWriter, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        #: Since when (monotonic seconds) objects have had no targets.
        self._without_targets: dict[ServiceKey, float] = {}
        #: The uids of objects that were seen to serve.
        self._served: dict[ServiceKey, str] = {}

    def expect(self, obj: KubeObject) -> None:
        """Emit the next event in any case: the address has just been written."""
        self._events.expect("serving", obj)

    def forget(self, key: ServiceKey) -> None:
        """Forget a deleted object."""
        self._without_targets.pop(key, None)
        self._served.pop(key, None)

    def emit(self, obj: KubeObject, event: ObjectEvent | None) -> float | None:
        """Emit ``event`` if it differs from the last one; return the seconds to wait if it is too early."""
        if event is not None and event.reason == NO_TARGETS:
            now_s = self._clock.monotonic()
            wait_s = self._without_targets.setdefault(obj.key, now_s) + NO_TARGETS_PATIENCE_S - now_s
            if wait_s > 0:
                return wait_s
        else:
            self._without_targets.pop(obj.key, None)
        if event is not None and event.reason == ENSURED:
            self._served[obj.key] = obj.metadata.uid
        if event is not None and event.reason == SERVING_STOPPED and self._served.get(obj.key) != obj.metadata.uid:
            event = msgspec.structs.replace(event, reason=NOT_SERVING)
        if event is not None:
            self._events.emit_change("serving", obj, event)
        return None
