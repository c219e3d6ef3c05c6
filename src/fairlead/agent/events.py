"""Kubernetes Events on Services and Ingresses, without repeating what has been reported.

In: all events that hold now about an object, from one source. Out: Kubernetes Events for those that did not before.
A Warning that no longer holds is ended by an Event of type Normal with the reason Resolved.
Never: writes by itself (the recorder does), fails, or repeats what has not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from fairlead.agent.identity import ServiceKey
from fairlead.api.kubernetes import SERVICES, Service
from fairlead.api.meta import AnyResource, KubeObject
from fairlead.api.names import ANNOTATION_PROXY_PROTOCOL, ANNOTATION_REQUESTED_ADDRESS, ANNOTATION_TARGET
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.kube.events import MESSAGE_LIMIT, EventRecorder
from fairlead.model.condition import ConditionReason

#: The reason of the Event that ends a Warning.
RESOLVED = "Resolved"


class ServiceEvent(msgspec.Struct, frozen=True, order=True):
    """One Event on the user's object: a PascalCase reason, and a sentence that says what to do."""

    warning: bool
    reason: str
    message: str


def warning_event(reason: str, message: str) -> ServiceEvent:
    """Return an event of type Warning."""
    return ServiceEvent(True, reason, message)


def resolved_message(reason: str, message: str) -> str:
    """Return the message of the Event that ends a Warning with this reason and message."""
    return f"No longer so: {reason}: {message}"[:MESSAGE_LIMIT]


def not_an_address(text: str) -> ServiceEvent:
    """Return the event about a hub that says ``text`` where an address belongs."""
    sentence = f"The hub reports address {text!r}, which is no IP address or host name; it is ignored. Check the hub"
    return warning_event(ConditionReason.ADDRESS_NOT_USABLE, sentence)


class EventWriter:
    """Remembers which events held last, per object of one kind and source."""

    def __init__(self, *, recorder: EventRecorder, resource: AnyResource = SERVICES) -> None:
        self._recorder = recorder
        self._resource = resource
        self._held: dict[ServiceKey, dict[str, tuple[str, frozenset[ServiceEvent]]]] = {}
        #: The next event is emitted, by object and source, with the object's uid.
        self._expected: dict[tuple[ServiceKey, str], str] = {}

    def emit_new(self, source: str, obj: KubeObject, events: Iterable[ServiceEvent]) -> None:
        """Emit those of ``events`` that did not hold before; one that has ended may be emitted again later.

        A Warning that has ended is resolved.
        """
        now = tuple(events)
        uid, before = self._held.get(obj.key, {}).get(source, ("", frozenset[ServiceEvent]()))
        self._emit_news(source, obj, now)
        for event in sorted(before.difference(now)) if uid == obj.metadata.uid else ():
            if event.warning:
                self.emit(obj, ServiceEvent(False, RESOLVED, resolved_message(event.reason, event.message)))

    def _emit_news(self, source: str, obj: KubeObject, now: tuple[ServiceEvent, ...]) -> None:
        by_source = self._held.setdefault(obj.key, {})
        uid, before = by_source.get(source, ("", frozenset[ServiceEvent]()))
        for event in now:
            if event not in before or uid != obj.metadata.uid:
                self.emit(obj, event)
        if now:
            by_source[source] = (obj.metadata.uid, frozenset(now))
        else:
            by_source.pop(source, None)
            if not by_source:
                del self._held[obj.key]

    def expect(self, source: str, obj: KubeObject) -> None:
        """Have ``emit_change`` emit its next event, whatever held before: the status behind it was written just now."""
        self._expected[obj.key, source] = obj.metadata.uid

    def emit_change(self, source: str, obj: KubeObject, event: ServiceEvent) -> None:
        """Emit ``event``, which takes the place of the one before; one of type Normal that may be old after ``expect``.

        What held before this process began is not known, and a restart must not emit an Event for every object.
        """
        uid, _ = self._held.get(obj.key, {}).get(source, ("", frozenset[ServiceEvent]()))
        expected = self._expected.pop((obj.key, source), "") == obj.metadata.uid
        if expected or event.warning or uid == obj.metadata.uid:
            self._emit_news(source, obj, (event,))
        else:
            self._held.setdefault(obj.key, {})[source] = obj.metadata.uid, frozenset((event,))

    def emit(self, obj: KubeObject, event: ServiceEvent) -> None:
        """Emit one event, whatever was emitted before."""
        self._recorder.emit_about(
            self._resource, obj, warning=event.warning, reason=event.reason, message=event.message
        )

    def forget(self, key: ServiceKey) -> None:
        """Forget an object that is gone."""
        self._held.pop(key, None)
        self._expected = {place: uid for place, uid in self._expected.items() if place[0] != key}


_ITSELF = re.compile(rf"^{TCP_LOAD_BALANCERS.kind}/[^ /]+/[^ /:]+: ")
_FIELD = re.compile(r"\bspec\.(className|address|proxyProtocol|targets)\b")


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
        "proxyProtocol": f"annotation {ANNOTATION_PROXY_PROTOCOL}",
        "targets": f"annotation {ANNOTATION_TARGET}",
    }
    return _FIELD.sub(lambda match: fields[match[1]], _ITSELF.sub("", message))
