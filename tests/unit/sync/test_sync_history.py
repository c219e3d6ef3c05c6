"""The history of each load balancer: what is kept, what is counted, and what makes room for what."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from fairlead.model.change import (
    Action,
    FrontendChange,
    Held,
    HistoryEntry,
    HistoryKind,
    HistoryRow,
    Reason,
    RowAnswer,
    TargetChange,
)
from fairlead.model.desired import Target
from fairlead.sync.history import LASTING_PER_KEY, NAMED_TARGETS, ROUTINE_PER_KEY, History, Report
from fairlead.testing.builders import HTTP, lb_key, target

KEY, OTHER = lb_key(), lb_key("other")
START = datetime(2030, 1, 1, tzinfo=UTC)


class Ticking:
    """A wall clock that goes on a second each time that it is read."""

    def __init__(self):
        self.seconds = -1

    def __call__(self):
        self.seconds += 1
        return START + timedelta(seconds=self.seconds)


@pytest.fixture
def history():
    return History(now=Ticking())


def change(name, action=Action.REGISTER, reason=Reason.NEW, *, source=""):
    wanted = target(name)
    return TargetChange(KEY, HTTP, Target(wanted.key, source=source), action, reason)


def report(*changes, done=None, **fields):
    return Report(KEY, tuple(changes if done is None else done), planned=tuple(changes), **fields)


def texts(history, key=KEY):
    return [entry.text for entry in history.of(key)]


def test_a_run_is_one_entry_with_its_rows_and_their_answers(history):
    removed = change("1", Action.DRAIN, Reason.ABSENT, source="Pod/shop/web-1/uid-1")
    history.record(report(change("2"), change("3"), removed, provider="webhook"))
    (entry,) = history.of(KEY)
    assert (entry.kind, entry.at, entry.provider) == (HistoryKind.APPLIED, START, "webhook")
    assert entry.text == "Register 2 (New), Drain 1 (Absent)"
    assert entry.rows == (
        HistoryRow(Action.REGISTER, "New", RowAnswer.DONE, 2, "", tuple(f"TCP/80 {target(name).key}" for name in "23")),
        HistoryRow(Action.DRAIN, "Absent", RowAnswer.DONE, 1, "", (f"TCP/80 {target('1').key} Pod/shop/web-1",)),
    )  # fmt: skip


def test_what_failed_what_is_held_and_what_is_refused_say_why(history):
    held = Held(change("1", Action.DEREGISTER, Reason.ABSENT), "LastTargets", "the last ones stay")
    refused = Held(change("9"), "Quarantined", "address is reserved")
    history.record(report(change("2"), done=(), held=(held,), quarantined=(refused,), failure="no answer"))
    (entry,) = history.of(KEY)
    assert entry.kind is HistoryKind.FAILED
    assert entry.text == "hold 1 (LastTargets), quarantine 1 (address is reserved), failed: no answer"
    assert [(row.action, row.reason, row.answer, row.message) for row in entry.rows] == [
        (Action.REGISTER, "New", RowAnswer.OPEN, ""),
        (Action.DEREGISTER, "Absent, LastTargets", RowAnswer.HELD, "the last ones stay"),
        (Action.REGISTER, "New", RowAnswer.QUARANTINED, "address is reserved"),
    ]


def test_a_failure_without_any_row_is_an_entry(history):
    history.record(report(failure="the driver cannot be reached"))
    assert [entry.kind for entry in history.of(KEY)] == [HistoryKind.FAILED]


def test_no_change_gives_no_entry(history):
    history.record(report())
    assert history.of(KEY) == []


def test_only_holds_is_a_hold_and_the_frontend_comes_first(history):
    held = Held(change("1", Action.DRAIN, Reason.ABSENT), "StaleView", "incomplete")
    history.record(report(held=(held,)))
    ensure = FrontendChange(KEY, None, Action.ENSURE, Reason.CHANGED)
    history.record(report(change("1"), frontend=ensure, frontend_done=True))
    history.record(report(change("1"), done=(), frontend=ensure, failure="no"))
    first, second, third = history.of(KEY)
    assert first.kind is HistoryKind.HELD
    assert second.rows[0] == HistoryRow(Action.ENSURE, "Changed", RowAnswer.DONE)
    assert third.rows[0] == HistoryRow(Action.ENSURE, "Changed", RowAnswer.OPEN)


def test_what_the_provider_is_still_working_on_is_an_entry(history):
    history.record(report(change("1"), change("2"), done=()))
    (entry,) = history.of(KEY)
    assert (entry.kind, entry.text) == (HistoryKind.APPLIED, "under way: Register 2 (New)")
    assert not entry.lasting


def test_a_row_names_its_first_targets_and_counts_all(history):
    history.record(report(*(change(str(number)) for number in range(1, 21))))
    (row,) = history.of(KEY)[0].rows
    assert (row.count, len(row.targets)) == (20, NAMED_TARGETS)


def test_repeated_entries_are_counted_in_place(history):
    for _ in range(3):
        history.note(KEY, HistoryKind.WOKEN, "retry")
        history.note(KEY, HistoryKind.DECIDED, "accepted")
        history.note(KEY, HistoryKind.FAILED, "no answer")
    entries = history.of(KEY)
    assert [(entry.text, entry.count) for entry in entries] == [("retry", 3), ("accepted", 3), ("no answer", 3)]
    assert (entries[0].at, entries[0].last_at) == (START, START + timedelta(seconds=6))
    assert [entry.sequence for entry in entries] == [7, 8, 9]


def test_the_same_after_other_things_is_another_entry(history):
    for text in ("a", "b", "c", "d", "e", "a"):
        history.note(KEY, HistoryKind.WOKEN, text)
    assert texts(history) == ["a", "b", "c", "d", "e", "a"]


def test_the_same_text_of_another_provider_kind_or_row_is_not_the_same(history):
    history.note(KEY, HistoryKind.WOKEN, "a")
    history.note(KEY, HistoryKind.DECIDED, "a")
    history.note(KEY, HistoryKind.DECIDED, "a", provider="envoy")
    history.note(KEY, HistoryKind.DECIDED, "a", rows=(HistoryRow(Action.REGISTER, "New", RowAnswer.DONE),))
    assert len(history.of(KEY)) == len(history) == 4


def test_routine_never_makes_a_removal_go(history):
    history.record(report(change("1", Action.DEREGISTER, Reason.TERMINATING)))
    for number in range(10 * ROUTINE_PER_KEY):
        history.note(KEY, HistoryKind.WOKEN, f"wake {number}")
    assert len(history.of(KEY)) == ROUTINE_PER_KEY + 1
    assert history.of(KEY)[0].rows[0].reason == "Terminating"
    for number in range(2 * LASTING_PER_KEY):
        history.note(KEY, HistoryKind.FAILED, f"failure {number}")
    lasting = [entry.text for entry in history.of(KEY) if entry.lasting]
    assert lasting == [f"failure {number}" for number in range(LASTING_PER_KEY, 2 * LASTING_PER_KEY)]
    assert len(history) == LASTING_PER_KEY + ROUTINE_PER_KEY


def test_keys_that_nothing_happens_to_make_room_for_others():
    history = History(now=Ticking(), most_entries=5)
    for key, text in ((KEY, "a"), (OTHER, "b"), (KEY, "c"), (OTHER, "d"), (KEY, "e")):
        history.note(key, HistoryKind.WOKEN, text)
    history.note(KEY, HistoryKind.FAILED, "f")
    assert (len(history), texts(history, OTHER)) == (6, ["b", "d"])
    history.note(KEY, HistoryKind.WOKEN, "g")
    assert (len(history), texts(history), texts(history, OTHER)) == (5, ["a", "c", "e", "f", "g"], [])


def test_only_what_is_new_and_lasts_is_worth_storing(history):
    history.record(report(change("1")))
    history.note(KEY, HistoryKind.DECIDED, "accepted")
    assert history.take_unsaved() == []
    history.note(KEY, HistoryKind.HELD, "held")
    assert history.take_unsaved() == [KEY]
    history.note(KEY, HistoryKind.DECIDED, "1 backend removed outside Fairlead", kept=True)
    assert history.take_unsaved() == [KEY]
    assert [entry.text for entry in history.of(KEY) if entry.lasting][1:] == [history.of(KEY)[-1].text]
    history.note(KEY, HistoryKind.FAILED, "no answer")
    history.note(OTHER, HistoryKind.FAILED, "no answer")
    assert history.take_unsaved() == [KEY, OTHER]
    history.note(KEY, HistoryKind.FAILED, "no answer")
    assert history.take_unsaved() == [], "counted, not new"
    history.mark_unsaved([OTHER])
    assert history.take_unsaved() == [OTHER]


def test_stored_entries_return_once_before_new_ones():
    before = History(now=Ticking())
    before.note(KEY, HistoryKind.WOKEN, "created")
    before.record(report(change("1", Action.DEREGISTER, Reason.OWNER_DELETED)))
    stored = msgspec.json.decode(msgspec.json.encode(before.of(KEY)), type=list[HistoryEntry])
    clock = Ticking()
    clock.seconds = 1000
    after = History(now=clock)
    after.note(KEY, HistoryKind.WOKEN, "start")
    for _ in range(2):
        after.load(KEY, stored)
    assert texts(after) == ["created", "Deregister 1 (OwnerDeleted)", "start"]
    after.note(KEY, HistoryKind.WOKEN, "created")
    sequences = [entry.sequence for entry in after.of(KEY)]
    assert sequences == sorted(set(sequences))
    assert after.take_unsaved() == []


def test_entries_are_json_that_a_person_can_read(history):
    history.record(report(change("1", Action.DRAIN, Reason.ABSENT), provider="webhook"))
    (entry,) = msgspec.json.decode(msgspec.json.encode(history.of(KEY)))
    assert entry == {
        "sequence": 1,
        "at": "2030-01-01T00:00:00Z",
        "kind": "Applied",
        "text": "Drain 1 (Absent)",
        "provider": "webhook",
        "rows": [{"action": "Drain", "reason": "Absent", "answer": "Done", "targets": [f"TCP/80 {target('1').key}"]}],
    }


def test_an_entry_costs_microseconds(history):
    reports = [report(change(str(number % 7 + 1)), provider="envoy") for number in range(1000)]
    took = []
    for _ in range(5):
        started = time.thread_time()
        for run in reports:
            history.record(run)
        took.append((time.thread_time() - started) / len(reports))
    assert min(took) < 500e-6, "far above what it takes (5 to 10 us), far below what would be noticed"
