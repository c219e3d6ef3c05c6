"""The Event on a Service or Ingress that says whether its address serves.

    Serving    reason                        Event
    ---------  ----------------------------  --------------------------------------------------
    True       any                           EnsuredLoadBalancer, Normal
    any        its own requests fail         ServingStopped, Warning, though others on the load balancer are served
    Unknown    NotChecked                    EnsuredLoadBalancer, which says that nothing checks
    False      NoTargets                     NoTargets, Warning, once that has lasted a moment
    False      any other                     ServingStopped, Warning; NotServing while it is not known to have served
    Unknown    any other                     none: it will be known soon

In: the conditions of the load balancer at the hub. Out: an Event when another one held before. Never: good news of what
was not seen to serve, or is unchanged since its last Event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from fairlead.agent.events import EventWriter, ServiceEvent, warning_event
from fairlead.agent.identity import ServiceKey
from fairlead.api.httploadbalancer import FailingRoute, HTTPLoadBalancer
from fairlead.api.kubernetes import Ingress
from fairlead.api.meta import KubeObject, WireCondition, is_taken_over
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.runtime.clock import Clock

ENSURED = "EnsuredLoadBalancer"
SERVING_STOPPED = "ServingStopped"
NOT_SERVING = "NotServing"
NO_TARGETS = "NoTargets"
_ROUTES_SHOWN = 3
#: A load balancer is published before its endpoints, so for a moment it has none.
NO_TARGETS_PATIENCE_S = 3.0

#: What the Event says when connections fail, by the reason of Serving.
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
    failing: Sequence[FailingRoute] = (),
) -> ServiceEvent | None:
    """Return the Event that says whether the addresses in ``ingress`` are served; None while that is not known.

    ``why_no_targets`` is asked only where there is no target; what it returns ends the message. ``failing`` are the
    routes of the object itself whose requests fail.
    """
    conditions = {condition.type: condition for condition in of_load_balancer}
    serving, programmed = (conditions.get(kind) for kind in (ConditionType.SERVING, ConditionType.PROGRAMMED))
    addresses = ", ".join(each.address for each in ingress)
    if serving is not None and serving.status == "False":
        reason, message = next((texts for of, texts in _FAILING.items() if of == serving.reason), _NONE_HEALTHY)
        why = why_no_targets() if reason == NO_TARGETS else ""
        return warning_event(reason, message.format(addresses) + (f"; {why}" if why else ""))
    if failing:
        return failing_event(failing, addresses)
    if not is_taken_over(programmed):
        return None
    if serving is not None and serving.status == "True":
        return ServiceEvent(warning=False, reason=ENSURED, message=f"The load balancer answers at {addresses}")
    if serving is None or serving.reason in (ConditionReason.NOT_CHECKED, ConditionReason.SOME_BACKENDS_UNHEALTHY):
        message = f"The load balancer has the address {addresses}; whether its targets answer is not checked"
        return ServiceEvent(warning=False, reason=ENSURED, message=message)
    return None


def failing_event(failing: Sequence[FailingRoute], addresses: str) -> ServiceEvent:
    """Return the Warning about the routes of one object whose requests fail."""
    texts = "; ".join(each.sentence for each in failing[:_ROUTES_SHOWN])
    more = f"; and {len(failing) - _ROUTES_SHOWN} more" if len(failing) > _ROUTES_SHOWN else ""
    message = f"At {addresses} {texts}{more}; does a pod listen at the targetPort of the Service?"
    return warning_event(SERVING_STOPPED, message)


def failing_routes_of(load_balancer: HTTPLoadBalancer | None, kind: str, key: ServiceKey) -> list[FailingRoute]:
    """Return the routes of one object of the member whose requests fail at a load balancer."""
    listed = load_balancer.status.failing_routes if load_balancer is not None else ()
    return [each for each in listed if (each.kind, each.namespace, each.object) == (kind, *key)]


class ServingEvents:
    """Emits Events about serving when they differ from the last one, for the objects of one kind."""

    def __init__(self, *, events: EventWriter, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        #: Since when (monotonic seconds) objects have had no targets.
        self._without_targets: dict[ServiceKey, float] = {}
        #: The uids of those that were seen to serve.
        self._served: dict[ServiceKey, str] = {}

    def expect(self, obj: KubeObject) -> None:
        """Have the next event emitted, whatever held before: the address was written just now."""
        self._events.expect("serving", obj)

    def forget(self, key: ServiceKey) -> None:
        """Forget an object that is gone."""
        self._without_targets.pop(key, None)
        self._served.pop(key, None)

    def emit(self, obj: KubeObject, event: ServiceEvent | None) -> float | None:
        """Emit ``event`` when another one held before; returns seconds until it is worth an Event, if it is not yet."""
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
