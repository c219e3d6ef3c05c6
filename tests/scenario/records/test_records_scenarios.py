"""LBCF's scenarios at the durable engine: given, when, then."""

from __future__ import annotations

import pytest
from records_desk import KEY, Desk, at
from records_story import backend

from fairlead.api.backendgroup import BACKEND_RECORDS
from fairlead.api.names import FINALIZER_DEREGISTER
from fairlead.errors import Terminal
from fairlead.model.change import Outcome, OutcomeStatus
from fairlead.model.desired import GuardPolicy
from fairlead.sync.execute import PARK_S
from fairlead.testing.builders import HTTP

LOOSE = GuardPolicy(100, 0)


@pytest.mark.req("L-1", "L-3")
def test_lt1_a_record_with_all_that_is_needed_is_there_before_the_call(desk):
    seen = []
    desk.provider.before = lambda method, changes: seen.extend(desk.records().values()) if changes else None
    desk.intended(backend(1, owners=["g"], weight=2))
    assert [FINALIZER_DEREGISTER in each.metadata.finalizers for each in seen] == [True]
    assert seen[0].status.state == "Pending"
    assert seen[0].spec.parameters == {"weight": "2"}
    assert seen[0].spec.load_balancer.provider == "memory"
    assert desk.states() == {at(1): "Registered"}


@pytest.mark.req("L-2", "L-6", "L-14")
def test_lt8_everything_is_deregistered_from_records_alone(desk):
    desk.intended(backend(1), backend(2))
    desk.stop()
    desk.api.objects = {key: each for key, each in desk.api.objects.items() if key[0] == "BackendRecord"}
    desk.start()
    assert [each.key for each in desk.provider.recalled][-1] == KEY
    desk.do(lambda: desk.engine.tracker.remove(KEY))
    assert desk.at_cloud() == set()
    assert desk.records() == {}


@pytest.mark.req("L-12", "L-13")
def test_lt10_a_manual_change_is_kept_through_resync_and_restart(desk):
    wanted = desk.intended(backend(1), backend(2))
    desk.do(lambda: desk.cloud.drift(KEY, HTTP, backend(2).key, None), after_s=300)
    assert desk.engine.readback.drifts[KEY].missing == ((HTTP, backend(2).key),)
    desk.stop()
    desk.start(intended=wanted)
    desk.do(after_s=300)
    assert desk.at_cloud() == {at(1)}


@pytest.mark.req("L-30", "A-52")
def test_lt11_always_repairs_our_own_no_sooner_than_the_period(desk):
    desk.cloud.add_foreign(KEY, "by-hand", backend(9))
    desk.intended(backend(1), backend(2), repair_s=30.0)
    desk.do(lambda: desk.cloud.drift(KEY, HTTP, backend(2).key, None), after_s=20)
    assert desk.at_cloud() == {at(1)}
    desk.do(after_s=60)
    assert desk.at_cloud() == {at(1), at(2)}
    assert desk.cloud.foreign(KEY) == {"by-hand": backend(9)}


@pytest.mark.req("L-31")
def test_lt12_other_parameters_update_in_place(desk):
    desk.intended(backend(1))
    desk.intended(backend(1, weight=2))
    assert desk.provider.rows() == [("Register", at(1)), ("Update", at(1))]
    assert desk.records()[at(1)].spec.parameters == {"weight": "2"}


@pytest.mark.req("L-9", "L-23")
def test_lt19_the_finalizer_stays_while_a_deregistration_runs(desk):
    desk.intended(backend(1), guard=LOOSE)
    running = [True]
    desk.provider.answer = lambda change: (
        Outcome(OutcomeStatus.RUNNING, retry_after_s=2.0) if change.action == "Deregister" and running[0] else None
    )
    desk.intended(guard=LOOSE, after_s=20)
    asked = len(desk.provider.rows())
    assert desk.states() == {at(1): "Deregistering"}
    assert 8 <= asked <= 12, "every two seconds, and no more slowly each time"
    running[0] = False
    desk.do(after_s=5)
    assert desk.records() == {}


@pytest.mark.req("L-24", "A-34", "A-38")
def test_lt20_a_failed_deregistration_is_retried_with_the_same_record(desk):
    desk.intended(backend(1), guard=LOOSE)
    record = desk.records()[at(1)]
    ids = []

    def fail(change):
        ids.append(change.facts.record_id)
        return Outcome(OutcomeStatus.RETRY, "not now") if len(ids) < 6 else None

    desk.provider.answer = fail
    desk.intended(guard=LOOSE, after_s=120)
    assert set(ids) == {record.metadata.uid}
    assert desk.records() == {}


@pytest.mark.req("L-18", "L-27", "A-39")
def test_lt22_a_new_registration_waits_for_the_old_deregistration(desk):
    desk.intended(backend(1), backend(2), guard=LOOSE)
    running = [True]
    desk.provider.answer = lambda change: (
        Outcome(OutcomeStatus.RUNNING, retry_after_s=1.0) if change.action == "Deregister" and running[0] else None
    )
    desk.intended(backend(2), guard=LOOSE)
    desk.provider.calls.clear()
    desk.intended(backend(1), backend(2), guard=LOOSE, after_s=10)
    assert ("Register", at(1)) not in desk.provider.rows()
    running[0] = False
    desk.do(after_s=5)
    assert desk.provider.rows()[-2:] == [("Deregister", at(1)), ("Register", at(1))]
    assert desk.at_cloud() == {at(1), at(2)}


@pytest.mark.req("L-28")
def test_lt23_and_so_it_does_across_a_restart(desk):
    desk.intended(backend(1), backend(2), guard=LOOSE)
    running = [True]
    desk.provider.answer = lambda change: (
        Outcome(OutcomeStatus.RUNNING, retry_after_s=1.0) if change.action == "Deregister" and running[0] else None
    )
    desk.intended(backend(2), guard=LOOSE)
    wanted = desk.intended(backend(1), backend(2), guard=LOOSE)
    desk.stop()
    desk.provider.calls.clear()
    running[0] = False
    desk.start(intended=wanted)
    desk.do(after_s=5)
    assert desk.provider.rows() == [("Deregister", at(1)), ("Register", at(1))]


@pytest.mark.req("L-28")
def test_lt24_a_conflict_on_the_finalizer_never_deregisters_the_successor(desk):
    desk.intended(backend(1), backend(2), guard=LOOSE)
    hits = [0]

    async def meddle(when, what, number=0):
        record = desk.records().get(at(1))
        releases = (when, what) == ("before", "patch BackendRecord") and record is not None and record.deleting
        if releases and not hits[0]:
            hits[0] += 1
            labels = {"metadata": {"labels": {"touched": "true"}}}
            desk.api.do_patch(BACKEND_RECORDS, *record.key, labels)
        return number

    desk.api.at_call = meddle
    desk.intended(backend(2), guard=LOOSE, after_s=0.0)
    desk.intended(backend(1), backend(2), guard=LOOSE, after_s=10)
    assert hits == [1]
    rows = [action for action, address in desk.provider.rows() if address == at(1)]
    assert rows[-1] == "Register"
    assert desk.at_cloud() == {at(1), at(2)}


@pytest.mark.req("L-42")
def test_a_record_whose_finalizer_was_taken_away_is_forgotten_without_a_call(desk):
    desk.intended(backend(1), backend(2))
    without_finalizers = {"metadata": {"finalizers": None}}
    desk.do(lambda: desk.api.do_patch(BACKEND_RECORDS, *desk.records()[at(1)].key, without_finalizers))
    desk.provider.calls.clear()
    desk.intended(backend(2))
    assert ("Deregister", at(1)) not in desk.provider.rows()
    assert desk.at_cloud() == {at(1), at(2)}, "it stays as whoever forgot it wanted"
    assert desk.states() == {at(2): "Registered"}


@pytest.mark.req("L-8", "L-18")
def test_lt39_a_deleted_record_is_deregistered_then_recreated(desk):
    desk.intended(backend(1), backend(2))
    before = desk.records()[at(1)].metadata.uid
    desk.provider.calls.clear()
    desk.do(lambda: desk.delete_record(at(1)), after_s=5)
    assert desk.provider.rows() == [("Deregister", at(1)), ("Register", at(1))]
    assert desk.records()[at(1)].metadata.uid != before


@pytest.mark.req("L-11", "L-44")
def test_other_owners_are_recorded_and_no_provider_is_called(desk):
    desk.intended(backend(1, owners=["a", "b"]))
    desk.provider.calls.clear()
    desk.intended(backend(1, owners=["b"]))
    assert desk.provider.calls == []
    assert desk.records()[at(1)].spec.owners == ["b"]


def test_an_address_of_another_pod_is_another_backend(desk):
    desk.intended(backend(1, pod="web-1"), backend(2))
    desk.provider.calls.clear()
    desk.intended(backend(1, pod="web-9"), backend(2), after_s=5)
    assert desk.provider.rows() == [("Deregister", at(1)), ("Register", at(1))]
    assert desk.records()[at(1)].spec.target.source == "Pod/shop/web-9/uid-web-9"


@pytest.mark.req("A-35", "A-36", "I-7")
def test_a_batch_refused_as_a_whole_is_halved_until_the_invalid_entry_is_found(virtual):
    desk = Desk(virtual, max_batch=100)

    def refuse(_method, changes):
        if any(change.key.address == at(7) for change in changes):
            raise Terminal("10.0.0.7 is reserved")

    desk.provider.before = refuse
    desk.intended(*(backend(number) for number in range(1, 33)), after_s=5)
    assert desk.at_cloud() == {at(number) for number in range(1, 33) if number != 7}
    assert desk.records()[at(7)].status.state == "Failed"
    assert "reserved" in desk.records()[at(7)].status.message
    calls = len(desk.provider.calls)
    desk.do(after_s=PARK_S - 60)
    assert len(desk.provider.calls) == calls, "it is not tried again and again"
    desk.provider.before = lambda _method, _changes: None
    desk.do(after_s=120)
    assert at(7) in desk.at_cloud(), "and once in a while it is"
    desk.stop()


@pytest.mark.req("A-35", "L-9")
def test_a_rejected_backend_that_is_removed_leaves_no_record(desk):
    desk.provider.answer = lambda change: (
        Outcome(OutcomeStatus.REJECTED, "no") if change.key.address == at(2) and change.action == "Register" else None
    )
    desk.intended(backend(1), backend(2), after_s=5)
    assert desk.states() == {at(1): "Registered", at(2): "Failed"}
    desk.intended(backend(1), after_s=5)
    assert desk.states() == {at(1): "Registered"}
