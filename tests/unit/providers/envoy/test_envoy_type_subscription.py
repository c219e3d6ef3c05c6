"""What Envoy asked for, was sent, acknowledged and refused, for one resource type of one stream."""

from __future__ import annotations

from fairlead.providers.envoy.resources import DeltaRequest
from fairlead.providers.envoy.store import TypeSubscription


def started(request: DeltaRequest, *, wildcard: bool = True) -> TypeSubscription:
    subscription = TypeSubscription()
    subscription.start(request, available=["a", "b"], wildcard_by_default=wildcard)
    return subscription


def test_a_new_proxy_wants_all_there_is_and_is_owed_a_response() -> None:
    subscription = started(DeltaRequest())
    assert (subscription.wildcard, subscription.empty_response_due) == (True, True)
    assert subscription.dirty == {"a", "b"}
    assert subscription.wants("anything")


def test_a_reconnecting_proxy_is_compared_with_what_it_has() -> None:
    subscription = started(DeltaRequest(initial_versions={"a": "1", "gone": "2"}))
    assert subscription.dirty == {"a", "b", "gone"}
    assert subscription.sent == subscription.acked == {"a": "1", "gone": "2"}
    assert not subscription.empty_response_due


def test_names_are_sent_once_they_are_asked_for_and_forgotten_afterwards() -> None:
    request = DeltaRequest(subscribe=("a", "b"), initial_versions={"a": "1", "b": "1"})
    subscription = started(request, wildcard=False)
    subscription.subscribe(request, resend={"b"})
    assert (subscription.names, subscription.forced) == ({"a", "b"}, {"b"})
    subscription.mark(["a", "other"], alone=False)
    assert subscription.dirty == {"a", "b"}
    subscription.subscribe(DeltaRequest(unsubscribe=("b",)))
    assert (subscription.names, subscription.dirty, subscription.forced) == ({"a"}, {"a"}, set())
    assert subscription.sent == subscription.acked == {"a": "1"}


def test_marks_that_come_while_names_are_taken_stay() -> None:
    subscription = started(DeltaRequest())
    assert sorted(subscription.take(subscription.dirty)) == ["a", "b"]
    subscription.mark(["b"], alone=False)
    assert subscription.dirty == {"b"}
    subscription.refused["b"] = "1", "no"
    subscription.mark(["b"], alone=True)
    assert (subscription.take_retry(), subscription.take_retry()) == (("b",), ())
    assert subscription.refused == {}


def test_one_refused_name_is_to_blame_and_keeps_what_it_had() -> None:
    subscription = started(DeltaRequest(initial_versions={"a": "1"}))
    subscription.sent["a"] = "2"
    assert subscription.refuse({"a": "2"}, "no good") == ("a", "2")
    assert (subscription.sent, subscription.refused) == ({"a": "1"}, {"a": ("2", "no good")})
    assert subscription.refuse({"a": ""}, "no good") is None, "a removal is not to blame"


def test_several_refused_names_are_sent_again_in_smaller_responses() -> None:
    subscription = started(DeltaRequest())
    assert subscription.refuse({"b": "1", "a": "1"}, "no") is None
    assert list(subscription.retry) == [("a",), ("b",)]
    assert subscription.sent == {"a": "", "b": ""}


def test_acknowledgements_count_for_names_that_are_wanted() -> None:
    subscription = started(DeltaRequest(subscribe=("a",)), wildcard=False)
    subscription.subscribe(DeltaRequest(subscribe=("a",)))
    subscription.acknowledge("a", "1")
    subscription.acknowledge("other", "1")
    assert subscription.acked == {"a": "1"}
    subscription.acknowledge("a", "")
    assert subscription.acked == {}
    assert not subscription.idle
    subscription.take(["a"])
    assert subscription.idle
