"""The same promises, with hypothesis choosing what happens: a failure shrinks to the shortest story that breaks one."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from records_desk import KEY, Desk
from records_loop import VirtualLoop
from records_story import backend

from fairlead.api.names import FINALIZER_DEREGISTER
from fairlead.errors import Retry
from fairlead.model.desired import GuardPolicy
from fairlead.testing.builders import HTTP, desired

LOOSE = GuardPolicy(100, 0)


class Durable(RuleBasedStateMachine):
    """One load balancer, its users, its API and its provider."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.desk = Desk(self.loop)
        self.desk.cloud.add_foreign(KEY, "by-hand", backend(99))
        self.wanted: Any = None
        self.lost = 0
        self.desk.provider.before = self._before

    def _before(self, method: str, changes: Any) -> None:
        if self.lost:
            self.lost -= 1
            raise Retry("no answer")

    @rule(numbers=st.sets(st.integers(1, 4), max_size=3), weight=st.integers(1, 2), drain_s=st.sampled_from((0.0, 2.0)))
    def intended(self, numbers: set[int], weight: int, drain_s: float) -> None:
        targets = [backend(number, owners=["g"], weight=weight) for number in sorted(numbers)]
        self.wanted = desired(targets, key=KEY, drain_s=drain_s, guard=LOOSE)
        self.desk.do(lambda: self.desk.engine.tracker.put(self.wanted), after_s=0.05)

    @rule(number=st.integers(1, 4))
    def a_record_is_deleted_by_hand(self, number: int) -> None:
        if f"10.0.0.{number}" in self.desk.records():
            self.desk.do(lambda: self.desk.delete_record(f"10.0.0.{number}"), after_s=0.05)

    @rule(calls=st.integers(1, 3))
    def the_next_calls_are_lost(self, calls: int) -> None:
        self.lost = calls

    @rule(seconds=st.sampled_from((0.1, 1.0, 30.0)))
    def time_passes(self, seconds: float) -> None:
        self.desk.do(after_s=seconds)

    @rule()
    def the_process_dies_and_another_begins(self) -> None:
        self.desk.stop()
        self.desk.start(intended=self.wanted)

    @invariant()
    def what_is_registered_is_on_record_and_held(self) -> None:
        held = {
            address
            for address, each in self.desk.records().items()
            if FINALIZER_DEREGISTER in (each.metadata.finalizers or ())
        }
        assert self.desk.at_cloud() <= held

    @invariant()
    def no_other_is_touched(self) -> None:
        assert self.desk.cloud.foreign(KEY) == {"by-hand": backend(99)}

    def teardown(self) -> None:
        self.lost = 0
        self.desk.do(after_s=300)
        wanted = {at.address for at in self.wanted.targets[HTTP]} if self.wanted is not None else set()
        assert self.desk.at_cloud() == wanted
        assert self.desk.states() == dict.fromkeys(wanted, "Registered")
        self.desk.stop()
        self.loop.close()


TestDurable = Durable.TestCase
TestDurable.settings = settings(
    max_examples=60,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
        HealthCheck.large_base_example,
        HealthCheck.too_slow,
    ],
)
