"""Which Event says whether an address serves, and when it is news."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.agent.events import (
    ENSURED,
    NO_TARGETS,
    NO_TARGETS_PATIENCE_S,
    NOT_SERVING,
    SERVING_STOPPED,
    ServingEvents,
    failing_changes,
    failing_events,
    serving_event,
)
from fairlead.api.httploadbalancer import FAILING_LISTED, FailingRoute, HTTPLoadBalancer, HTTPLoadBalancerStatus
from fairlead.api.kubernetes import SERVICES, Ingress
from fairlead.api.meta import WireCondition
from fairlead.kube.events import RESOLVED, EventWriter, resolved_message
from fairlead.model.condition import ObjectEvent, warning_event
from fairlead.runtime.clock import VirtualClock
from tests.unit.agent.agent_builders import service

pytestmark = pytest.mark.req("X-1", "X-2")


class Recorder:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def emit_about(
        self, _resource: object, _obj: object, *, warning: bool, reason: str, message: str, source: str
    ) -> None:
        assert message
        assert source == "serving"
        assert warning == (reason != ENSURED)
        self.reasons.append(reason)

    def pop_earlier(self, _resource: object, _obj: object, _source: str) -> set[tuple[str, str]]:
        return set()


def test_all_addresses_are_named() -> None:
    serving = WireCondition("Serving", "False", "NoHealthyTargets")
    event = serving_event([serving], [Ingress(ip="192.0.2.1"), Ingress(hostname="lb.example.com")])
    assert event == warning_event(
        "ServingStopped",
        "No target of the load balancer at 192.0.2.1, lb.example.com is healthy: connections fail; "
        "do the pods listen at its targetPort?",
    )
    assert serving_event([], [Ingress(ip="192.0.2.1")]) is None


async def test_no_targets_is_news_once_it_has_lasted() -> None:
    clock, recorder = VirtualClock(), Recorder()
    news = ServingEvents(events=EventWriter(recorder=recorder, resource=SERVICES), clock=clock)  # type: ignore[arg-type]
    web, empty = service(), warning_event(NO_TARGETS, "no target yet")
    assert news.emit(web, empty) == NO_TARGETS_PATIENCE_S
    await clock.advance(NO_TARGETS_PATIENCE_S / 2)
    assert news.emit(web, empty) == NO_TARGETS_PATIENCE_S / 2
    assert news.emit(web, None) is None, "in between it is not known"
    assert news.emit(web, empty) == NO_TARGETS_PATIENCE_S
    await clock.advance(NO_TARGETS_PATIENCE_S)
    assert news.emit(web, empty) is None
    assert recorder.reasons == [NO_TARGETS]
    news.emit(web, ObjectEvent(False, ENSURED, "it answers"))
    assert recorder.reasons == [NO_TARGETS, ENSURED]


def test_good_news_is_emitted_when_the_address_was_just_written() -> None:
    recorder = Recorder()
    news = ServingEvents(events=EventWriter(recorder=recorder, resource=SERVICES), clock=VirtualClock())  # type: ignore[arg-type]
    web, good = service(), ObjectEvent(False, ENSURED, "it answers")
    news.emit(web, good)
    assert not recorder.reasons, "an agent that starts again repeats no good news"
    other = service("other")
    news.expect(other)
    news.emit(other, good)
    assert recorder.reasons == [ENSURED]


def test_what_never_served_has_not_stopped() -> None:
    recorder = Recorder()
    news = ServingEvents(events=EventWriter(recorder=recorder, resource=SERVICES), clock=VirtualClock())  # type: ignore[arg-type]
    web, bad, good = service(), warning_event(SERVING_STOPPED, "fails"), ObjectEvent(False, ENSURED, "it answers")
    for event in (bad, good, bad, None, bad):
        news.emit(web, event)
    assert recorder.reasons == [NOT_SERVING, ENSURED, SERVING_STOPPED]
    news.forget(web.key)
    news.emit(web, bad)
    assert recorder.reasons[3:] == [NOT_SERVING], "another Service of that name has not served"


@pytest.mark.req("X-39")
def test_a_warning_that_no_longer_holds_is_resolved_once() -> None:
    emitted: list[tuple[bool, str, str]] = []

    class Emitted(Recorder):
        def emit_about(
            self, _resource: object, _obj: object, *, warning: bool, reason: str, message: str, source: str
        ) -> None:
            assert source
            emitted.append((warning, reason, message))

    writer = EventWriter(recorder=Emitted(), resource=SERVICES)  # type: ignore[arg-type]
    web, gone = service(), warning_event("NoSuchClass", "it is not there")
    writer.emit_new("feedback", web, [gone, warning_event("PortConflict", "taken")])
    emitted.clear()
    writer.emit_new("feedback", web, [warning_event("PortConflict", "taken")])
    assert emitted == [(False, RESOLVED, resolved_message("NoSuchClass", "it is not there"))]
    writer.emit_new("feedback", web, [warning_event("PortConflict", "taken")])
    assert len(emitted) == 1
    writer.emit_new("serving", web, [warning_event(NO_TARGETS, "none")])
    writer.emit_change("serving", web, ObjectEvent(False, ENSURED, "answers"))
    assert [reason for _, reason, _ in emitted[1:]] == [NO_TARGETS, ENSURED], "the good news itself ends the Warning"


def at_hub(*failing: FailingRoute) -> HTTPLoadBalancer:
    return HTTPLoadBalancer(status=HTTPLoadBalancerStatus(address="192.0.2.1", failing_routes=failing))


@pytest.mark.req("X-31")
@pytest.mark.parametrize("serving", [("True", "SomeBackendsUnhealthy"), ("Unknown", "SomeBackendsUnhealthy")])
def test_an_object_whose_own_requests_fail_is_not_said_to_answer(serving: tuple[str, str]) -> None:
    conditions = [WireCondition("Programmed", "True", "Programmed"), WireCondition("Serving", *serving)]
    at = [Ingress(ip="192.0.2.1")]
    hub = at_hub(FailingRoute("r", "Ingress", "shop", "web", ("web.example.com",), ("shop/web:80",)))
    own = serving_event(conditions, at, failing=failing_events(hub, "Ingress", ("shop", "web")))
    assert own is not None
    assert (own.warning, own.reason) == (True, SERVING_STOPPED)
    assert "web.example.com" in own.message
    assert "shop/web:80" in own.message
    other = serving_event(conditions, at, failing=failing_events(hub, "Ingress", ("shop", "other")))
    assert other is not None
    assert (other.warning, other.reason) == (False, ENSURED)


@pytest.mark.req("X-31")
@pytest.mark.parametrize("kind", ["Ingress", "HTTPRoute"])
def test_an_object_beyond_the_listed_failing_routes_is_not_reported_as_served(kind: str) -> None:
    listed = [FailingRoute(f"r{number}", kind, "shop", f"web-{number}") for number in range(FAILING_LISTED)]
    conditions = [WireCondition("Programmed", "True", "Programmed"), WireCondition("Serving", "True", "Serving")]
    unlisted = failing_events(at_hub(*listed), kind, ("shop", "unlisted"))
    assert unlisted is None, "nobody knows, and thousands of Events would say only that"
    assert serving_event(conditions, [Ingress(ip="192.0.2.1")], failing=unlisted) is None
    assert failing_events(at_hub(*listed[1:]), kind, ("shop", "unlisted")) == ()


@pytest.mark.req("X-31")
def test_a_full_list_of_failing_routes_concerns_only_the_listed_objects() -> None:
    listed = [FailingRoute(f"r{number}", "HTTPRoute", "shop", f"web-{number}") for number in range(FAILING_LISTED)]
    changed = failing_changes(at_hub(), at_hub(*listed))
    assert changed == {("HTTPRoute", "shop", f"web-{number}") for number in range(FAILING_LISTED)}
    assert failing_changes(at_hub(*listed), at_hub()) is None, "what has left the full list serves again"


_OBJECTS = st.lists(st.integers(0, FAILING_LISTED + 3), unique=True).map(sorted)


@given(_OBJECTS, _OBJECTS, st.sampled_from([(), tuple(range(FAILING_LISTED - 2))]))
def test_each_object_whose_event_differs_is_among_the_changed_ones(
    before: list[int], after: list[int], both: tuple[int, ...]
) -> None:
    def at(numbers: list[int]) -> HTTPLoadBalancer:
        listed = sorted({*numbers, *both})[:FAILING_LISTED]
        return at_hub(*(FailingRoute(f"r{number}", "HTTPRoute", "shop", f"web-{number}") for number in listed))

    old, new = at(before), at(after)
    changed = failing_changes(old, new)
    for number in range(FAILING_LISTED + 4):
        key = ("shop", f"web-{number}")
        then, now = (failing_events(load_balancer, "HTTPRoute", key) for load_balancer in (old, new))
        if then != now and now is not None:
            assert changed is None or ("HTTPRoute", *key) in changed
    if changed is not None:
        assert len(changed) <= len(before) + len(after)
