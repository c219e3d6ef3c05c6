"""In which order rows are done: everything that adds before anything that takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.keys import ListenerKey, Protocol
from fairlead.sync.plan import order_changes
from fairlead.testing.builders import HTTP, lb_key, target


def row(action, *, draining=False, address="1", listener=HTTP):
    return TargetChange(lb_key(), listener, target(address, draining=draining), action, Reason.NEW)


@pytest.mark.req("I-9")
@pytest.mark.parametrize(
    ("change", "phase"),
    [
        (row(Action.REGISTER), 0),
        (row(Action.UPDATE), 0),
        (row(Action.UPDATE, draining=True), 1),
        (row(Action.DRAIN, draining=True), 1),
        (row(Action.DEREGISTER), 1),
    ],
    ids=["register", "update", "update-draining", "drain", "deregister"],
)
def test_phase(change, phase):
    assert [list(each) for each in order_changes([change])] == ([[change], []] if phase == 0 else [[], [change]])


@given(st.permutations([row(Action.REGISTER, address=str(n)) for n in range(6)]))
def test_the_order_within_a_phase_is_always_the_same(changes):
    adds, removals = order_changes(changes)
    assert [change.key.address for change in adds] == sorted(change.key.address for change in changes)
    assert removals == []


def test_listeners_come_one_after_the_other():
    udp = ListenerKey(Protocol.UDP, 80)
    adds, _ = order_changes([row(Action.REGISTER, listener=udp), row(Action.REGISTER, address="2")])
    assert [change.listener for change in adds] == [HTTP, udp]
