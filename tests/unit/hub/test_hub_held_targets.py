"""The first state served after a start, as a guard or a pause had held it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fairlead.api.intent import IntentStatus
from fairlead.hub.providers.registry import HeldTargets, Placement, ProviderMigration, as_held
from fairlead.ledger.frontends import held_wire
from fairlead.model.change import Action, Held, Reason, TargetChange
from fairlead.model.desired import DesiredLoadBalancer
from fairlead.model.keys import ListenerKey, Protocol
from fairlead.runtime.clock import VirtualClock
from fairlead.sync.history import Report
from fairlead.sync.plan import DRY_RUN, LAST_TARGETS, PAUSED, Tracker
from fairlead.testing.builders import HTTP, desired, lb_key, target
from fairlead.translate.view import Decision

KEY = lb_key()


def row(action: Action, last: str, *, by: str = PAUSED, listener: ListenerKey = HTTP) -> Held:
    return Held(TargetChange(KEY, listener, target(last), action, Reason.ABSENT), by, "because")


def wanted(*lasts: str) -> DesiredLoadBalancer:
    return desired([target(last) for last in lasts])


def addresses(of: DesiredLoadBalancer) -> list[str]:
    return sorted(key.address.rpartition(".")[2] for key in of.targets[HTTP])


@pytest.mark.req("I-10")
@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ([row(Action.DRAIN, "9", by=LAST_TARGETS)], ["1", "2", "9"]),
        ([row(Action.DEREGISTER, "9")], ["1", "2", "9"]),
        ([row(Action.REGISTER, "2")], ["1"]),
        ([row(Action.REGISTER, "2"), row(Action.DEREGISTER, "9")], ["1", "9"]),
        ([row(Action.DEREGISTER, "9", by=DRY_RUN)], ["1", "2"]),
        ([row(Action.DEREGISTER, "9", listener=ListenerKey(Protocol.TCP, 8443))], ["1", "2"]),
        ([], ["1", "2"]),
    ],
    ids=["drain", "deregister", "register", "both", "never-programmed", "listener-gone", "nothing"],
)
def test_targets_are_as_they_were_held(held: list[Held], expected: list[str]) -> None:
    assert addresses(as_held(wanted("1", "2"), held)) == expected


def test_a_held_drain_of_a_target_that_is_going_is_held_still() -> None:
    going = target("1", draining=True)
    assert not as_held(desired([going]), [row(Action.UPDATE, "1")]).targets[HTTP][going.key].draining


@pytest.mark.req("I-10")
def test_the_state_is_kept_until_the_first_read() -> None:
    first, status = HeldTargets(), IntentStatus(held=held_wire([row(Action.DRAIN, "9")]), held_total=1)
    now = wanted("1")
    assert addresses(first.first(now, status, is_new=True)) == ["1", "9"]
    assert addresses(first.first(now, status, is_new=False)) == ["1", "9"], "the worker has not looked yet"
    assert first.reported(KEY)
    assert first.reported(KEY), "a report before the present targets are put is about what was held"
    assert first.first(now, status, is_new=False) == now
    assert not first.reported(KEY), "the next report is about the present targets"


@pytest.mark.req("I-10")
def test_present_targets_equal_to_the_restored_ones_are_reported() -> None:
    """Reports before that were about what was held, and are not passed on."""
    tracker = Tracker()
    runner: Any = SimpleNamespace(tracker=tracker, durable=False, worker=SimpleNamespace(trigger=lambda: None))
    providers: Any = {"envoy": runner}
    migration = ProviderMigration(providers=providers, clock=VirtualClock())
    obj: Any = SimpleNamespace(status=IntentStatus(held=held_wire([row(Action.DRAIN, "9")]), held_total=1))
    report, passed_on = Report(KEY, provider="envoy"), list[Report]()

    def place(*lasts: str) -> None:
        migration.place(KEY, obj, Placement(Decision(wanted(*lasts), (), provider="envoy")))

    place("1")
    assert tracker.pop_dirty() == [KEY]
    assert migration.reported(report, passed_on.append)
    assert not passed_on
    place("1", "9")
    assert tracker.pop_dirty() == [KEY]
    assert not migration.reported(report, passed_on.append)
    assert passed_on == [report]
    place("1", "9")
    assert tracker.pop_dirty() == []


def test_targets_desired_again_are_restored_at_once() -> None:
    first, status = HeldTargets(), IntentStatus(held=held_wire([row(Action.DRAIN, "9")]), held_total=1)
    first.first(wanted("1"), status, is_new=True)
    assert first.first(wanted("1", "9"), status, is_new=False) == wanted("1", "9")
    assert not first.reported(KEY)


def test_deleted_objects_are_forgotten() -> None:
    first, status = HeldTargets(), IntentStatus(held=held_wire([row(Action.DRAIN, "9")]), held_total=1)
    first.first(wanted("1"), status, is_new=True)
    first.forget(KEY)
    assert not first.reported(KEY)


@pytest.mark.req("L4-9")
def test_a_target_that_a_restart_brings_back_keeps_its_owners() -> None:
    owned = msgspec.structs.replace(target("9"), owners=("Service/shop/web/first",))
    held = Held(TargetChange(KEY, HTTP, owned, Action.DRAIN, Reason.ABSENT), LAST_TARGETS, "because")
    status = IntentStatus(held=held_wire([held]), held_total=1)
    put = HeldTargets().first(wanted("1"), status, is_new=True)
    assert put.targets[HTTP][owned.key].owners == owned.owners
