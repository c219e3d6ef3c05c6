"""How ``fairlead explain --history`` prints the history of a load balancer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fairlead.cli.explain import history_lines, merged
from fairlead.model.change import Action, HistoryEntry, HistoryKind, HistoryRow, RowAnswer

AT = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)


def entry(sequence: int, text: str, kind: HistoryKind = HistoryKind.WOKEN, *rows: HistoryRow) -> HistoryEntry:
    return HistoryEntry(sequence, AT + timedelta(seconds=sequence), kind, text, rows=rows)


def test_each_event_and_each_call_is_a_row() -> None:
    drained = HistoryRow(Action.DRAIN, "Terminating", RowAnswer.DONE, targets=("TCP/80 10.0.0.1:80 Pod/shop/web-1",))
    held = HistoryRow(Action.DEREGISTER, "Absent, LastTargets", RowAnswer.HELD, 3, "would be left with 0", ("a", "b"))
    entries = [
        entry(1, "Pod shop/web-1 changed"),
        entry(2, "1 drained", HistoryKind.APPLIED, drained),
        entry(3, "3 held", HistoryKind.HELD, held),
    ]
    assert history_lines("LoadBalancer/shop/web", entries) == [
        "LoadBalancer/shop/web: history, oldest first",
        "  WHEN (UTC)           EVENT    WHAT                                     ANSWER  WHY",
        "  2030-01-01 12:00:01  Woken    -                                        -       Pod shop/web-1 changed",
        "  2030-01-01 12:00:02  Applied  Drain TCP/80 10.0.0.1:80 Pod/shop/web-1  Done    "
        "Terminating: reported as terminating or not ready",
        "  2030-01-01 12:00:03  Held     Deregister a, b and 1 more               Held    "
        "Absent: disappeared without being reported as terminating; LastTargets: would be left with 0",
    ]


def test_a_failure_has_its_calls_and_its_message() -> None:
    row = HistoryRow(Action.ENSURE, "New", RowAnswer.OPEN)
    lines = history_lines("LoadBalancer/shop/web", [entry(1, "quota is full", HistoryKind.FAILED, row)])
    assert lines[2].endswith("Failed  Ensure the load balancer itself  Open    New: desired, but not recorded")
    assert lines[3].endswith("quota is full")


def test_what_repeats_is_one_row_with_a_count() -> None:
    repeated = HistoryEntry(9, AT, HistoryKind.FAILED, "no answer", count=12, last_at=AT + timedelta(minutes=5))
    (_, _, line) = history_lines("LoadBalancer/shop/web", [repeated])
    assert line.endswith("no answer (12 times, last at 2030-01-01 12:05:00)")


def test_missing_stored_history_is_reported() -> None:
    assert history_lines("LoadBalancer/shop/web", []) == ["LoadBalancer/shop/web: no history is stored"]


def test_sources_are_merged_by_time_and_the_later_count_wins() -> None:
    first, second = entry(1, "a"), entry(2, "b")
    counted = HistoryEntry(1, first.at, first.kind, "a", count=4, last_at=AT + timedelta(hours=1))
    assert merged([first, second], [counted]) == [second, counted]
    assert merged([counted, second], [first]) == [second, counted]
