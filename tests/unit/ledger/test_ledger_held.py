"""Held changes as a status lists them, and back."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.api.intent import IntentStatus
from fairlead.ledger.frontends import NO_ROWS, held_before, held_changes, held_wire
from fairlead.model.change import Action, Held, Reason, TargetChange
from fairlead.model.desired import Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey, backend_key

KEY = LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "web")


def held(listener):
    change = TargetChange(KEY, listener, Target(TargetKey("10.0.0.1", 8080)), Action.DEREGISTER, Reason.ABSENT)
    return Held(change, "Guard", "more than half would go")


@pytest.mark.req("K-41")
@pytest.mark.parametrize("listener", [ListenerKey(Protocol.TCP, 80), backend_key("shop/web:80")])
def test_a_held_change_of_a_listener_or_a_backend_comes_back_as_it_was(listener):
    rows = held_wire([held(listener)]) or []
    assert held_changes(KEY, rows) == (held(listener),)


def test_nothing_held_is_nothing_listed():
    assert held_wire([]) is None


def test_what_a_status_lists_is_held_until_the_worker_has_looked():
    row = held(ListenerKey(Protocol.TCP, 80))
    before = held_before(KEY, IntentStatus(held=held_wire([row]), held_total=20))
    assert (list(before.rows), before.total) == ([row], 20)
    assert held_before(KEY, IntentStatus(held_total=3)) == NO_ROWS


@pytest.mark.parametrize("of_a_newer_release", [{"action": "Rewire"}, {"reason": "Moonlight"}])
def test_a_row_of_a_newer_release_is_left_out(of_a_newer_release):
    (row,) = held_wire([held(ListenerKey(Protocol.TCP, 80))]) or []
    assert held_changes(KEY, [msgspec.structs.replace(row, **of_a_newer_release), row]) == held_changes(KEY, [row])


def test_all_that_is_held_of_a_thousand_targets_comes_back():
    change = held(ListenerKey(Protocol.TCP, 80)).change
    rows = tuple(
        Held(
            msgspec.structs.replace(change, target=Target(TargetKey(f"10.0.{number >> 8}.{number & 255}", 80))),
            "Guard",
            "",
        )
        for number in range(1000)
    )
    before = held_before(KEY, IntentStatus(held=held_wire(rows), held_total=1000))
    assert (before.rows, before.total) == (rows, 1000)
