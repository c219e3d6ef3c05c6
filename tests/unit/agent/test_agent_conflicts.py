"""Listeners that exclude each other: within a Gateway, and in order of precedence."""

from __future__ import annotations

import pytest

from fairlead.agent.sources.gateway.listeners import Opening, Precedence, conflicts_within

HOSTNAME, PROTOCOL = "HostnameConflict", "ProtocolConflict"

PAIRS = [
    (Opening(80, "HTTP", "a.example"), Opening(80, "HTTP", "b.example"), None),
    (Opening(80, "HTTP", "a.example"), Opening(80, "HTTP", ""), None),
    (Opening(80, "HTTP", "a.example"), Opening(80, "HTTP", "A.example"), HOSTNAME),
    (Opening(80, "HTTP", ""), Opening(81, "HTTP", ""), None),
    (Opening(443, "HTTPS", "a.example"), Opening(443, "TLS", "b.example"), None),
    (Opening(443, "HTTPS", "a.example"), Opening(443, "TLS", "a.example"), HOSTNAME),
    (Opening(80, "HTTP", "a.example"), Opening(80, "HTTPS", "b.example"), PROTOCOL),
    (Opening(80, "TCP", ""), Opening(80, "HTTP", "a.example"), PROTOCOL),
    (Opening(80, "TCP", ""), Opening(80, "TCP", ""), PROTOCOL),
    (Opening(53, "UDP", ""), Opening(53, "UDP", ""), PROTOCOL),
    (Opening(53, "UDP", ""), Opening(53, "TCP", ""), None),
    (Opening(443, "UDP", ""), Opening(443, "HTTPS", ""), None),
]


@pytest.mark.req("G-32")
@pytest.mark.parametrize(("first", "second", "reason"), PAIRS)
def test_within_a_gateway_both_are_refused(first: Opening, second: Opening, reason: str | None) -> None:
    assert conflicts_within([first, second]) == [reason, reason]
    assert conflicts_within([second, first]) == [reason, reason]
    other = Opening(9000, "HTTP", "")
    assert conflicts_within([first, other, second])[1] is None


@pytest.mark.req("G-103")
@pytest.mark.parametrize(("first", "second", "reason"), PAIRS)
def test_between_objects_the_first_wins(first: Opening, second: Opening, reason: str | None) -> None:
    assert Precedence([first]).take(second) == reason
    assert Precedence([second]).take(first) == reason


@pytest.mark.req("G-103")
def test_rejected_objects_take_no_capacity() -> None:
    places = Precedence([Opening(80, "HTTP", "a.example")])
    assert places.take(Opening(80, "TCP", "")) == PROTOCOL
    assert places.take(Opening(80, "HTTP", "b.example")) is None
    assert places.take(Opening(80, "HTTP", "b.example")) == HOSTNAME
