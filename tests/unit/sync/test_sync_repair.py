"""What others changed is put back: by the clock with ensurePolicy Always, once for each request, or after a restart."""

from __future__ import annotations

import msgspec
import pytest
from readback_bench import KEY, SOON_S, Watched, desired_state

from fairlead.model.change import Action
from fairlead.model.desired import GuardPolicy
from fairlead.sync.plan import LAST_TARGETS
from fairlead.sync.readback import CERTAIN_S, LOOK_EVERY_S, READ_LIMIT_S
from fairlead.testing.builders import HTTP, desired, target
from fairlead.testing.faults import Fault

EVERY_S = 20.0


def always(*numbers, **more):
    return msgspec.structs.replace(desired_state(*numbers, **more), repair_s=EVERY_S)


def asked(request, *numbers, **more):
    return msgspec.structs.replace(desired_state(*numbers, **more), repair=request)


def take_away(watched, *numbers):
    for number in numbers:
        watched.cloud.drift(KEY, HTTP, target(str(number)).key, None)


def registered(watched):
    """Return how many targets each call has registered since they were counted last."""
    return [len(call.changes) for call in watched.provider.calls if call.method == "apply"]


# --- by the clock ----------------------------------------------------------------------------------------------


async def test_always_repairs_only_after_its_period():
    async with Watched() as watched:
        await watched.served(always(1, 2, 3))
        # The clock of the repairs began with the first look.
        await watched.engine.advance(EVERY_S)
        assert watched.readback.repairs == 0, "nothing differs"
        take_away(watched, 1)
        watched.cloud.drift(KEY, HTTP, target("2").key, target("2", weight=9))
        await watched.engine.advance(EVERY_S)
        assert watched.on() == {1, 2, 3}
        assert watched.cloud.members(KEY)[HTTP, target("2").key].weight == target("2").weight
        assert [row.key for call in watched.provider.calls if call.method == "apply" for row in call.changes] == [
            target("1").key, target("2").key,
        ]  # fmt: skip
        assert watched.readback.repairs == 1


async def test_with_always_it_is_put_back_no_more_often_than_the_class_says():
    async with Watched() as watched:
        await watched.served(always(1, 2))
        take_away(watched, 1)
        await watched.engine.advance(EVERY_S)
        assert watched.on() == {1, 2}
        take_away(watched, 1)
        await watched.engine.advance(EVERY_S - CERTAIN_S - 1)
        assert (watched.on(), watched.readback.repairs) == ({2}, 1)
        await watched.engine.advance(2 * CERTAIN_S + 1)
        assert (watched.on(), watched.readback.repairs) == ({1, 2}, 2)


async def test_reads_are_as_frequent_as_repairs():
    async with Watched() as watched:
        await watched.served(always(1))
        watched.memory.observed.clear()
        await watched.engine.advance(3 * EVERY_S)
        assert len(watched.memory.observed) == 3


async def test_an_interval_longer_than_that_of_all_looks_makes_none_rarer():
    async with Watched() as watched:
        await watched.served(msgspec.structs.replace(desired_state(1), repair_s=100 * LOOK_EVERY_S))
        watched.memory.observed.clear()
        await watched.engine.advance(3 * LOOK_EVERY_S)
        assert len(watched.memory.observed) == 3


# --- by a request ----------------------------------------------------------------------------------------------


async def test_a_request_puts_back_once_and_at_once_and_is_answered():
    async with Watched() as watched:
        await watched.served(desired_state(1, 2))
        take_away(watched, 1)
        await watched.engine.advance(1)
        watched.reported.clear()
        watched.engine.put(asked("first", 1, 2))
        await watched.engine.advance(CERTAIN_S)
        assert watched.on() == {1, 2}
        assert registered(watched) == [1]
        assert (watched.readback.answered, watched.readback.repairs) == ({KEY: "first"}, 1)
        assert KEY in watched.reported
        take_away(watched, 2)
        await watched.engine.advance(5 * LOOK_EVERY_S)
        assert watched.on() == {1}, "it was answered already"
        watched.engine.put(asked("second", 1, 2))
        await watched.engine.advance(CERTAIN_S)
        assert (watched.on(), watched.readback.answered) == ({1, 2}, {KEY: "second"})


async def test_a_request_where_nothing_differs_is_answered_and_changes_nothing():
    async with Watched() as watched:
        await watched.served(desired_state(1))
        watched.engine.put(asked("first", 1))
        await watched.engine.advance(CERTAIN_S)
        assert (watched.readback.answered, watched.readback.repairs) == ({KEY: "first"}, 0)
        assert watched.provider.calls == []


async def test_a_request_about_a_provider_that_lists_no_targets_registers_all_of_them():
    async with Watched() as watched:
        watched.memory.lists = False
        await watched.served(desired_state(1, 2, 3))
        take_away(watched, 2)
        watched.engine.put(asked("first", 1, 2, 3))
        await watched.engine.advance(CERTAIN_S)
        assert watched.on() == {1, 2, 3}
        assert registered(watched) == [3]


async def test_a_request_that_needs_the_owner_changes_nothing():
    async with Watched() as watched:
        await watched.served(desired_state(1, existing=True))
        watched.cloud.delete(KEY)
        watched.engine.put(asked("first", 1, existing=True))
        await watched.engine.advance(CERTAIN_S)
        assert (watched.readback.answered, watched.readback.repairs) == ({KEY: "first"}, 0)
        assert watched.provider.calls == []


async def test_an_answer_is_forgotten_with_its_load_balancer():
    async with Watched() as watched:
        await watched.served(asked("first", 1))
        assert watched.readback.answered == {KEY: "first"}
        watched.engine.remove(KEY)
        await watched.engine.advance(SOON_S)
        assert watched.readback.answered == {}


async def test_a_history_has_the_drift_what_is_done_about_it_and_its_end():
    async with Watched() as watched:
        await watched.served(desired_state(1, 2))
        take_away(watched, 1)
        await watched.engine.advance(2 * LOOK_EVERY_S)
        drifted = "1 backend removed outside Fairlead; kept until fairlead repair"
        assert [text.startswith(drifted) for _, text in watched.noted] == [True], "once, however often it is read back"
        watched.engine.put(asked("now", 1, 2))
        await watched.engine.advance(SOON_S)
        repaired, ended = [text for _, text in watched.noted[1:]]
        assert repaired == "changes by others are repaired: requested"
        assert ended == "everything of ours is there as it was recorded again"
        watched.cloud.restart()
        await watched.engine.advance(SOON_S)
        assert "lost its registrations" in watched.noted[3][1]


# --- after a restart of the provider ---------------------------------------------------------------------------


async def test_a_restarted_provider_gets_all_targets_again():
    async with Watched() as watched:
        await watched.served(desired_state(1, 2))
        assert watched.stored == [(KEY, "1")]
        assert watched.provider.calls == [], "an epoch that was never stored says nothing about a restart"
        watched.cloud.restart()
        await watched.engine.advance(1)
        assert watched.on() == {1, 2}
        assert watched.stored == [(KEY, "1"), (KEY, "2")]
        assert {call.method for call in watched.provider.calls} == {"ensure", "apply"}
        assert [row.action for call in watched.provider.calls for row in call.changes] == [Action.REGISTER] * 2


@pytest.mark.parametrize("drain_s", [0.0, 30.0])
async def test_what_a_guard_holds_serves_again_after_a_restart_of_the_provider(drain_s):
    async with Watched() as watched:
        await watched.served(desired_state(1, 2))
        watched.engine.put(desired(drain_s=drain_s, guard=GuardPolicy(100, 1)))
        await watched.engine.advance(SOON_S)
        assert watched.on() == {1, 2}, "held"
        watched.cloud.restart()
        await watched.engine.advance(10 * LOOK_EVERY_S)
        assert watched.on() == {1, 2}
        assert {row.reason for row in watched.engine.reports[-1].held} == {LAST_TARGETS}
        registered = [row for call in watched.provider.calls for row in call.changes]
        assert [row.action for row in registered] == [Action.REGISTER] * 2, "once"
        watched.engine.put(desired(drain_s=drain_s, guard=GuardPolicy(100, 0)))
        await watched.engine.advance(drain_s + 1)
        assert watched.on() == set(), "a decision removes them"


async def test_paused_load_balancers_serve_after_a_provider_restart():
    async with Watched() as watched:
        await watched.served(desired_state(1, 2))
        watched.engine.put(desired_state(2, 3, paused=True))
        watched.cloud.restart()
        await watched.engine.advance(SOON_S)
        assert watched.on() == {1, 2}
        watched.engine.put(desired_state(2, 3))
        await watched.engine.advance(1)
        assert watched.on() == {2, 3}


async def test_while_it_is_paused_always_repairs_nothing_and_a_request_does():
    async with Watched() as watched:
        await watched.served(always(1, 2))
        watched.engine.put(always(1, 2, paused=True))
        take_away(watched, 1)
        await watched.engine.advance(10 * LOOK_EVERY_S)
        assert watched.on() == {2}
        watched.engine.put(asked("now", 1, 2, paused=True))
        await watched.engine.advance(SOON_S)
        assert watched.on() == {1, 2}


async def test_an_epoch_is_stored_once_everything_is_registered_in_it():
    async with Watched() as watched:
        await watched.served(desired_state(1, 2))
        watched.provider.script = lambda call: Fault.FAIL_BEFORE if call.method == "apply" else Fault.NONE
        watched.cloud.restart()
        await watched.engine.advance(2 * LOOK_EVERY_S)
        assert watched.on() == set()
        assert watched.stored == [(KEY, "1")], "a hub that is started now must notice the loss"
        watched.provider.script = lambda _: Fault.NONE
        await watched.engine.advance(10 * LOOK_EVERY_S)
        assert watched.on() == {1, 2}
        assert watched.stored == [(KEY, "1"), (KEY, "2")]


async def test_the_same_epoch_is_stored_once():
    async with Watched() as watched:
        await watched.served(desired_state(1))
        await watched.engine.advance(5 * LOOK_EVERY_S)
        assert watched.stored == [(KEY, "1")]


async def test_a_load_balancer_forgotten_during_a_read_has_no_epoch():
    async with Watched() as watched:
        await watched.served(desired_state(1))
        watched.stored.clear()
        watched.epochs.clear()
        looking = watched.readback.look(KEY)
        observe = watched.memory.observe

        async def observe_late(key):
            seen = await observe(key)
            watched.engine.remove(key)
            await watched.engine.advance(1)
            return seen

        watched.memory.observe = observe_late
        await looking
        assert KEY not in watched.engine.tracker
        assert watched.stored == []


# --- one look at a time ----------------------------------------------------------------------------------------


async def test_a_failure_domain_that_is_being_looked_at_has_its_turn_after_that():
    async with Watched() as watched:
        await watched.served(desired_state(1))
        watched.memory.observed.clear()
        watched.memory.never.add(KEY)
        watched.readback.notice(KEY)
        await watched.engine.advance(1)
        for _ in range(3):
            watched.readback.notice(KEY)
            await watched.engine.advance(1)
        assert watched.memory.observed == [KEY], "the first look has not been answered"
        watched.memory.never.clear()
        await watched.engine.advance(READ_LIMIT_S)
        assert watched.memory.observed == [KEY, KEY], "what was noticed meanwhile is looked at once"
