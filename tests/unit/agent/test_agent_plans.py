"""How many routes each listener has, counted as routes come, change and go."""

from __future__ import annotations

import pytest

from fairlead.agent.sources.gateway.caches import Attachments
from fairlead.agent.sources.gateway.plan import AttachedListener, RoutePlan

ONE, TWO = ("HTTPRoute", "shop", "one"), ("HTTPRoute", "shop", "two")


def plan(*attached: tuple[str, str]) -> RoutePlan:
    listeners = frozenset(AttachedListener(*each) for each in attached)
    return RoutePlan(specs={}, parents=(), attached=listeners, services=frozenset())


@pytest.mark.req("G-23")
def test_counts_follow_the_routes():
    attachments = Attachments()
    assert attachments.put(ONE, plan(("lb", "http"), ("lb", "https"))) == {"lb"}
    assert attachments.put(TWO, plan(("lb", "http"))) == {"lb"}
    assert attachments.counts("lb") == {"http": 2, "https": 1}
    assert attachments.put(TWO, plan(("lb", "http"))) == set()
    assert attachments.put(ONE, plan(("other", "http"))) == {"lb", "other"}
    assert attachments.counts("lb") == {"http": 1}
    assert attachments.drop(TWO) == {"lb"}
    assert attachments.counts("lb") == {}
    assert TWO not in attachments


def test_counts_are_complete_once_no_route_waits_to_be_planned():
    attachments = Attachments()
    attachments.wait_for("lb", [ONE, TWO])
    assert attachments.counts("lb") is None
    assert attachments.is_planned(ONE) == []
    attachments.put(ONE, plan(("lb", "http")))
    assert attachments.counts("lb") is None
    assert attachments.is_planned(TWO) == ["lb"]
    attachments.put(TWO, None)
    assert attachments.counts("lb") == {"http": 1}
    assert attachments.plan_of(TWO) is None
    assert TWO in attachments
