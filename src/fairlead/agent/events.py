"""What is the author of a Service informed of, and how is the same never repeated?

In: all events that hold now about a Service, from one source. Out: Kubernetes Events for those that did not before.
Never: writes by itself (the recorder does), fails, or repeats what has not changed.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairlead.agent.identity import ServiceKey
from fairlead.api.kubernetes import SERVICES, Service
from fairlead.kube.events import EventRecorder


class ServiceEvent(msgspec.Struct, frozen=True):
    """One Event on the Service: a PascalCase reason, and a sentence that says what to do."""

    warning: bool
    reason: str
    message: str


def warning_event(reason: str, message: str) -> ServiceEvent:
    """Return an event of type Warning."""
    return ServiceEvent(True, reason, message)


class EventWriter:
    """Remembers which events held last, per Service and source."""

    def __init__(self, *, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._held: dict[ServiceKey, dict[str, tuple[str, frozenset[ServiceEvent]]]] = {}

    def emit_new(self, source: str, service: Service, events: Iterable[ServiceEvent]) -> None:
        """Emit those of ``events`` that did not hold before; one that has ended may be emitted again later."""
        now = tuple(events)
        by_source = self._held.setdefault(service.key, {})
        uid, before = by_source.get(source, ("", frozenset[ServiceEvent]()))
        for event in now:
            if event not in before or uid != service.metadata.uid:
                self.emit(service, event)
        if now:
            by_source[source] = (service.metadata.uid, frozenset(now))
        else:
            by_source.pop(source, None)
            if not by_source:
                del self._held[service.key]

    def emit(self, service: Service, event: ServiceEvent) -> None:
        """Emit one event, whatever was emitted before."""
        self._recorder.emit_about(SERVICES, service, warning=event.warning, reason=event.reason, message=event.message)

    def forget(self, key: ServiceKey) -> None:
        """Forget a Service that is gone."""
        self._held.pop(key, None)
