"""A load balancer that another program has deleted: made again when that is certain and our business, and reported."""

from __future__ import annotations

import msgspec
import pytest
from readback_bench import KEY, SOON_S, Watched, desired_state

from fairlead.api.hostname import HOSTNAMES
from fairlead.model.change import Reason
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.sync.plan import LoadBalancerState, Registered
from fairlead.sync.readback import CERTAIN_S, LOOK_EVERY_S, READ_LIMIT_S, drift_of
from fairlead.testing.builders import HTTP, lb_key, target


@pytest.mark.req("A-52")
async def test_a_lost_load_balancer_is_recreated_with_backends_and_reason():
    async with Watched() as watched:
        await watched.served(desired_state(1, 2))
        watched.cloud.delete(KEY)
        await watched.engine.advance(CERTAIN_S - 1)
        assert watched.drift.gone
        assert "recreates" in watched.drift.outlook
        assert watched.provider.calls == [], "one look is not enough"
        await watched.engine.advance(SOON_S)
        assert watched.on() == {1, 2}
        assert watched.engine.sentences() == ["Ensure load balancer (Vanished), Register 2 (New)"]
        assert watched.engine.reports[0].frontend.reason is Reason.VANISHED
        assert not watched.drift.gone
        assert watched.reported == [KEY, KEY]


@pytest.mark.req("L-12", "L-13", "A-52")
async def test_backends_that_were_changed_by_hand_stand():
    async with Watched() as watched:
        await watched.served(desired_state(1, 2, 3))
        watched.cloud.drift(KEY, HTTP, target("1").key, None)
        watched.cloud.drift(KEY, HTTP, target("2").key, target("2", weight=9))
        await watched.engine.advance(20 * LOOK_EVERY_S)
        assert watched.provider.calls == []
        assert watched.on() == {2, 3}
        assert watched.drift.ours == 2
        assert "kept until fairlead repair" in watched.drift.outlook


async def test_an_existing_load_balancer_that_is_gone_is_only_reported():
    async with Watched() as watched:
        await watched.served(desired_state(1, 2, existing=True))
        watched.cloud.delete(KEY)
        await watched.engine.advance(20 * LOOK_EVERY_S)
        assert watched.provider.calls == []
        assert (watched.drift.gone, watched.drift.kept_by_others) == (True, True)
        assert "its owner" in watched.drift.outlook


@pytest.mark.req("EDGE-14")
def test_records_of_a_name_that_are_deleted_by_hand_are_called_records():
    spec = desired_state().spec
    name = msgspec.structs.replace(spec, key=LoadBalancerKey(HOSTNAMES.kind, "fairlead-system", "www"))
    gone = {kind.key.kind: drift_of(LoadBalancerState(recorded_spec=kind), None) for kind in (spec, name)}
    assert "load balancer" in gone[spec.key.kind].sentence + gone[spec.key.kind].outlook
    assert "load balancer" not in gone[HOSTNAMES.kind].sentence + gone[HOSTNAMES.kind].outlook
    assert "all records" in gone[HOSTNAMES.kind].sentence
    entry = Registered(target("1"))
    state = LoadBalancerState(recorded_spec=name, recorded={HTTP: {entry.target.key: entry}})
    missing = drift_of(state, Observed(targets=()))
    assert missing.sentence.startswith("1 record removed")
    assert "backend" not in missing.sentence + missing.outlook


@pytest.mark.parametrize("looks", [1, 2])
async def test_what_reads_back_late_once_is_not_made_again(looks):
    async with Watched() as watched:
        await watched.served(desired_state(1, 2))
        watched.memory.hidden[KEY] = looks
        for _ in range(looks):
            # However many notices come at once: it takes time, and not many looks, to be certain.
            watched.readback.notice(KEY)
            await watched.engine.advance(0.5)
        assert watched.drift.gone
        await watched.engine.advance(10 * LOOK_EVERY_S)
        assert watched.provider.calls == []
        assert not watched.drift.gone


async def test_a_load_balancer_never_seen_is_recreated_with_growing_delays():
    async with Watched() as watched:
        await watched.served(desired_state(1))
        watched.memory.hidden[KEY] = 10**6
        times = []
        for _ in range(6):
            watched.provider.calls.clear()
            await watched.engine.advance(3600)
            times.append(sum(call.method == "ensure" for call in watched.provider.calls))
        assert 3 <= times[0] <= 12
        assert times[-1] <= 1


async def test_while_it_is_being_made_that_it_is_not_there_says_nothing():
    async with Watched() as watched:
        watched.memory.faults.down = "no answer"
        watched.engine.put(desired_state(1))
        await watched.engine.advance(30)
        watched.memory.faults.down = ""
        watched.provider.latency_s = 20.0
        watched.engine.put(desired_state(1, 2))
        await watched.engine.advance(200)
        assert watched.on() == {1, 2}
        assert watched.drift is None or not watched.drift.gone
        assert Reason.VANISHED not in {report.frontend.reason for report in watched.engine.reports if report.frontend}


async def test_a_load_balancer_in_deletion_is_not_recreated():
    async with Watched() as watched:
        await watched.served(desired_state(1))
        watched.memory.faults.down = "no answer"
        watched.engine.remove(KEY)
        await watched.engine.advance(1)
        watched.cloud.load_balancers.clear()
        watched.memory.faults.down = ""
        await watched.engine.advance(5 * LOOK_EVERY_S)
        assert KEY not in watched.engine.tracker
        assert watched.cloud.load_balancers == {}
        assert watched.readback.drifts == {}


async def test_a_paused_load_balancer_is_recreated_after_the_pause():
    async with Watched() as watched:
        await watched.served(desired_state(1))
        watched.engine.put(msgspec.structs.replace(desired_state(1), paused=True))
        watched.cloud.delete(KEY)
        await watched.engine.advance(5 * LOOK_EVERY_S)
        assert watched.provider.calls == []
        watched.engine.put(desired_state(1))
        await watched.engine.advance(SOON_S)
        assert watched.on() == {1}


async def test_an_unreadable_object_is_not_a_deleted_one():
    async with Watched() as watched:
        await watched.served(desired_state(1))
        watched.memory.faults.down = "no answer"
        await watched.engine.advance(10 * LOOK_EVERY_S)
        assert watched.drift is None
        assert watched.provider.calls == []


@pytest.mark.req("I-7")
async def test_a_failure_domain_that_does_not_answer_keeps_no_other_from_being_read():
    async with Watched() as watched:
        theirs, ours = lb_key("web", namespace="hangs"), lb_key("web", namespace="answers")
        await watched.served(desired_state(1, key=theirs), desired_state(1, key=ours))
        watched.memory.hangs.add("hangs")
        await watched.engine.advance(2 * LOOK_EVERY_S)
        watched.cloud.delete(ours)
        watched.cloud.delete(theirs)
        await watched.engine.advance(SOON_S)
        assert watched.on(ours) == {1}
        assert theirs not in watched.cloud.load_balancers


@pytest.mark.req("I-7")
async def test_a_providers_own_mistake_about_one_keeps_no_other_from_being_read():
    async with Watched() as watched:
        broken, whole = lb_key("broken"), lb_key("whole")
        await watched.served(desired_state(1, key=broken), desired_state(1, key=whole))
        watched.memory.bugs.add(broken)
        await watched.engine.advance(2 * LOOK_EVERY_S)
        watched.cloud.delete(whole)
        await watched.engine.advance(SOON_S)
        assert watched.on(whole) == {1}
        assert watched.on(broken) == {1}


async def test_a_notice_about_one_looks_at_that_one_alone():
    async with Watched() as watched:
        keys = [lb_key(f"web-{number}") for number in range(50)]
        await watched.served(*(desired_state(1, key=key) for key in keys))
        await watched.engine.advance(READ_LIMIT_S + LOOK_EVERY_S + SOON_S)
        watched.memory.observed.clear()
        watched.cloud.drift(keys[7], HTTP, target("1").key, None)
        await watched.engine.advance(0.1)
        assert watched.memory.observed == [keys[7]]
        assert watched.readback.drifts[keys[7]].ours == 1


async def test_that_it_cannot_be_read_is_reported_once_that_has_lasted():
    async with Watched() as watched:
        await watched.served(desired_state(1))
        watched.memory.faults.down = "nobody answers"
        watched.readback.notice(KEY)
        await watched.engine.advance(CERTAIN_S - 1)
        assert watched.reported == [], "a reload takes a moment"
        await watched.engine.advance(READ_LIMIT_S + LOOK_EVERY_S + SOON_S)
        assert watched.reported == [KEY]
        assert watched.readback.seen[KEY] == "nobody answers"
        watched.memory.faults.down = ""
        await watched.engine.advance(SOON_S)
        assert watched.reported == [KEY, KEY]
        assert not isinstance(watched.readback.seen[KEY], str)


async def test_nothing_is_remembered_of_one_that_is_gone():
    async with Watched() as watched:
        await watched.served(desired_state(1))
        assert KEY in watched.readback.seen
        watched.engine.remove(KEY)
        await watched.engine.advance(SOON_S)
        assert KEY not in watched.readback.seen


@pytest.mark.req("T-12")
async def test_an_unanswered_read_does_not_block_other_reads():
    async with Watched() as watched:
        stuck, other = lb_key("stuck"), lb_key("web")
        await watched.served(desired_state(1, key=stuck), desired_state(1, key=other))
        watched.memory.never.add(stuck)
        await watched.engine.advance(2 * LOOK_EVERY_S)
        watched.cloud.delete(other)
        await watched.engine.advance(READ_LIMIT_S + SOON_S)
        assert watched.on(other) == {1}
        assert watched.readback.seen[stuck] == f"the provider has not answered for {READ_LIMIT_S:g} s"


@pytest.mark.req("T-12")
async def test_when_the_provider_answers_again_what_was_deleted_meanwhile_is_made_again():
    async with Watched() as watched:
        keys = [lb_key(f"web-{number}") for number in range(5)]
        await watched.served(*(desired_state(1, key=key) for key in keys))
        watched.memory.never.update(keys)
        await watched.engine.advance(LOOK_EVERY_S)
        watched.cloud.delete(keys[0])
        await watched.engine.advance(600)
        watched.memory.never.clear()
        await watched.engine.advance(READ_LIMIT_S + LOOK_EVERY_S + SOON_S)
        assert watched.on(keys[0]) == {1}


@pytest.mark.req("T-12")
async def test_a_hanging_provider_does_not_block_reads_of_others():
    async with Watched() as watched:
        stuck, other = lb_key("stuck"), lb_key("web")
        await watched.served(desired_state(1, key=stuck), desired_state(1, key=other))
        watched.memory.deaf.add(stuck)
        try:
            await watched.engine.advance(2 * LOOK_EVERY_S)
            watched.cloud.delete(other)
            await watched.engine.advance(READ_LIMIT_S + SOON_S)
            assert watched.on(other) == {1}
        finally:
            watched.memory.may_end.set()
