"""When the durable engine calls its provider, and when it does not: given, when, then."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from records_desk import KEY, Desk, at
from records_story import backend

from fairlead.api.backendgroup import BACKEND_RECORDS
from fairlead.errors import Retry
from fairlead.model.change import Outcome, OutcomeStatus


@pytest.mark.req("L-26")
def test_what_a_driver_injects_is_stored_and_sent_again(desk):
    desk.provider.answer = lambda _change: Outcome(OutcomeStatus.DONE, injected_info={"id": "7"}, generated_address="x")
    desk.intended(backend(1))
    facts = []
    desk.provider.answer = lambda change: facts.append(change.facts)
    desk.stop()
    desk.start()
    desk.intended(backend(1, weight=2))
    assert [(fact.injected_info, fact.generated_address) for fact in facts] == [({"id": "7"}, "x")]


@pytest.mark.req("I-5")
def test_who_has_lost_the_lease_calls_no_provider(desk):
    desk.intended(backend(1))
    desk.provider.calls.clear()
    writes = desk.api.writes
    desk.term = None
    desk.intended(backend(1), backend(2), after_s=60)
    assert desk.provider.calls == []
    assert desk.api.writes == writes


@pytest.mark.req("I-5")
def test_a_record_of_a_newer_leader_is_not_touched_by_an_older_one(desk):
    desk.term = 7
    desk.intended(backend(1))
    desk.provider.calls.clear()
    desk.term = 6
    desk.intended(backend(1, weight=2), after_s=30)
    assert [changes for _, changes in desk.provider.calls if changes] == []
    assert "higher epoch" in desk.reports[-1].failure


def test_a_provider_that_lost_its_memory_is_sent_everything_again(desk):
    desk.intended(backend(1), backend(2))
    desk.do(after_s=70)
    desk.do(desk.cloud.restart, after_s=10)
    assert desk.at_cloud() == {at(1), at(2)}


@pytest.mark.req("L-17", "A-31", "A-15")
def test_at68_a_restart_with_nothing_changed_calls_and_writes_nothing(desk):
    wanted = desk.intended(backend(1), backend(2))
    desk.do(after_s=100)
    desk.stop()
    writes = desk.api.writes
    desk.provider.calls.clear()
    desk.start(intended=wanted)
    desk.do(after_s=100)
    assert (desk.provider.calls, desk.api.writes) == ([], writes)


@pytest.mark.req("A-22", "A-47")
def test_at19_changes_during_a_call_make_one_more_batch(desk):
    desk.provider.latency_s = 1.0
    desk.intended(backend(1), after_s=1.5)
    for number in range(2, 30):
        desk.intended(*(backend(each) for each in range(1, number)), after_s=0.0)
    desk.do(after_s=10)
    batches = [len(changes) for method, changes in desk.provider.calls if method == "apply"]
    assert len(desk.at_cloud()) == 28
    assert len(batches) <= 3


@pytest.mark.req("A-13")
def test_at20_what_cancels_out_before_a_run_is_never_called(desk):
    desk.provider.latency_s = 1.0
    desk.intended(backend(1), after_s=0.5)
    desk.intended(backend(1), backend(2), after_s=0.1)
    desk.intended(backend(1), after_s=20)
    assert at(2) not in {address for _, address in desk.provider.rows()}


@pytest.mark.req("A-14", "A-34")
def test_at21_a_failed_call_is_retried_with_growing_delay_and_no_event(desk):
    times = []

    def fail(method, _changes):
        times.append(desk.clock.monotonic())
        if len(times) < 6:
            raise Retry("down")

    desk.provider.before = fail
    desk.intended(backend(1), after_s=60)
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert gaps[4 - 1] > gaps[0]
    assert desk.at_cloud() == {at(1)}


@pytest.mark.req("A-34")
def test_at22_a_call_that_hangs_is_given_up_and_others_go_on(virtual):
    desk = Desk(virtual)
    desk.provider.latency_s = 10_000.0
    desk.intended(backend(1), after_s=1.0)
    desk.provider.latency_s = 0.0
    desk.do(after_s=200)
    assert desk.at_cloud() == {at(1)}
    desk.stop()


@pytest.mark.req("A-23", "A-21", "L-35")
def test_at29_backends_are_gone_before_the_load_balancer_is(desk):
    desk.intended(backend(1), backend(2))
    desk.provider.calls.clear()
    desk.do(lambda: desk.engine.tracker.remove(KEY), after_s=5)
    assert [method for method, _ in desk.provider.calls] == ["apply", "delete"]
    assert desk.records() == {}


def test_what_others_have_made_is_released_and_never_deleted(desk):
    wanted = desk.intended(backend(1), after_s=0.0)
    theirs = msgspec.structs.replace(wanted, spec=msgspec.structs.replace(wanted.spec, existing=True))
    desk.do(lambda: desk.engine.tracker.put(theirs), after_s=5)
    desk.provider.calls.clear()
    desk.do(lambda: desk.engine.tracker.remove(KEY), after_s=5)
    assert [method for method, _ in desk.provider.calls] == ["apply"]
    assert KEY not in desk.engine.tracker
    assert KEY in desk.cloud.load_balancers
    assert desk.provider.let_go_of == [KEY], "who remembers it must hear of that, or its namesake is taken for it"


def test_a_record_of_an_unknown_load_balancer_reminds_its_provider(desk):
    desk.intended(backend(1))
    (record,) = desk.api.records()
    text = msgspec.to_builtins(record)
    other = {
        "metadata": {"namespace": "shop", "name": "restored", "finalizers": record.metadata.finalizers},
        "spec": {**text["spec"], "loadBalancer": {**text["spec"]["loadBalancer"], "name": "forgotten"}},
        "status": {"state": "Registered"},
    }
    desk.provider.recalled.clear()
    desk.do(lambda: desk.api.do_create(BACKEND_RECORDS, other))
    assert [spec.key.name for spec in desk.provider.recalled] == ["forgotten"], "or it can never be deregistered"


def test_what_others_do_to_a_record_as_a_term_begins_is_not_missed(desk):
    wanted = desk.intended(backend(1), backend(2))
    gone, _ = desk.records()
    before = desk.records()[gone].metadata.uid
    desk.stop()
    desk.provider.calls.clear()
    desk.start(intended=wanted, meanwhile=lambda: desk.delete_record(gone))
    desk.do(after_s=10)
    assert ("Deregister", gone) in desk.provider.rows()
    assert desk.records()[gone].metadata.uid != before, "it is wanted, so it is registered anew"
    assert set(desk.states().values()) == {"Registered"}


def test_a_provider_that_does_not_start_is_started_again(desk):
    begun = []

    async def start():
        begun.append(desk.clock.monotonic())
        if len(begun) == 1:
            raise RuntimeError("somebody else's mistake")

    async def close():
        pass

    desk.stop()
    desk.provider.start, desk.provider.close = start, close
    desk.start()
    desk.intended(backend(1), after_s=60)
    assert len(begun) == 2
    assert desk.states() == {"10.0.0.1": "Registered"}
