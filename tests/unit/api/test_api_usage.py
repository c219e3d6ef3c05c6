"""Usage: rows that fit into a size with their sums, and periods in which load balancers had addresses."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fairlead.api.usage import (
    OTHER,
    HeldPeriod,
    UsageRow,
    by_day,
    fitted,
    hours_held,
    months_before,
    next_held,
    packed,
    spans,
    start_of,
    unpacked,
)


def row(hour: int, name: str, size: int, day: int = 1) -> UsageRow:
    return UsageRow(f"2030-01-{day:02d}T{hour:02d}", f"TCPLoadBalancer/tenant-a/{name}", "", 1, 2, size, 3 * size)


def unpacked_rows(texts: dict[str, str]) -> list[UsageRow]:
    return [row for text in texts.values() for row in unpacked(text, list[UsageRow]) or []]


def total(rows: list[UsageRow]) -> tuple[int, int, int, int]:
    return (
        sum(each.connections for each in rows),
        sum(each.requests for each in rows),
        sum(each.bytes_in for each in rows),
        sum(each.bytes_out for each in rows),
    )


@pytest.mark.req("F-32")
@pytest.mark.parametrize("most_bytes", [10_000_000, 60_000, 20_000, 2_000, 500])
def test_rows_that_are_shortened_keep_their_sum(most_bytes: int) -> None:
    days = {
        f"2030-01-{day:02d}": [
            row(hour, f"ns.web-{at * 7919}", at * 997 + hour, day) for hour in range(24) for at in range(40)
        ]
        for day in range(1, 6)
    }
    texts = fitted(days, most_bytes)
    assert sum(map(len, texts.values())) <= max(most_bytes, 1_000)
    rows = unpacked_rows(texts)
    assert total(rows) == total([each for of_day in days.values() for each in of_day])
    if most_bytes == 20_000:
        hours = {each.time[:10]: len(each.time) for each in rows}
        assert list(hours.values()) == [10, 10, 10, 10, 13], "the oldest hours are gone first"
    if most_bytes == 500:
        assert {each.load_balancer for each in rows if each.load_balancer == OTHER} == {OTHER}


def test_the_sum_of_a_day_has_one_row_for_each_load_balancer() -> None:
    rows = by_day([row(1, "a", 10), row(2, "a", 5), row(2, "b", 1)])
    assert [(each.time, each.load_balancer[-1], each.bytes_in) for each in rows] == [
        ("2030-01-01", "a", 15),
        ("2030-01-01", "b", 1),
    ]


def test_text_that_was_not_packed_is_absent() -> None:
    assert unpacked(packed([row(1, "a", 1)]), list[UsageRow]) == [row(1, "a", 1)]
    for text in ("", "{}", "AAAA", packed({"other": 1}), packed([row(1, "a", 1)])[:-8]):
        assert unpacked(text, list[UsageRow]) is None


def held(name: str, since: int, until: int = 0, addresses: float = 1) -> HeldPeriod:
    return HeldPeriod(name, "", since, until, addresses)


@pytest.mark.req("F-32")
def test_a_period_ends_when_the_addresses_change() -> None:
    periods = next_held([], {"a": held("a", 100), "b": held("b", 100)}, 100, oldest=0, most=9)
    assert periods == [held("a", 100), held("b", 100)]
    same = next_held(periods, {"a": held("a", 500), "b": held("b", 500)}, 500, oldest=0, most=9)
    assert same == periods
    changed = next_held(periods, {"a": held("a", 700, addresses=2)}, 700, oldest=0, most=9)
    assert changed == [held("a", 100, 700), held("b", 100, 700), held("a", 700, addresses=2)]
    assert next_held(changed, {}, 900, oldest=800, most=9) == [held("a", 700, 900, 2)]


@pytest.mark.req("F-32")
def test_many_periods_are_folded_with_the_same_hours() -> None:
    periods = [held(f"lb-{at}", at * 10, at * 10 + 3600) for at in range(100)]
    folded = next_held(periods, {}, 10_000, oldest=0, most=20)
    assert len(folded) == 11
    start, end = datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(100_000, UTC)
    hours = sum(hours_held(each, start, end)[0] for each in folded)
    assert hours == pytest.approx(100.0)


def test_hours_are_those_within_the_span() -> None:
    start = datetime(2030, 1, 1, 12, tzinfo=UTC)
    end = datetime(2030, 1, 1, 14, tzinfo=UTC)
    at = int(start.timestamp())
    assert hours_held(held("a", at - 7200, addresses=2), start, end) == (4.0, 0.0)
    assert hours_held(held("a", at - 7200, at - 3600), start, end) == (0.0, 0.0)
    assert hours_held(HeldPeriod("a", "", at + 3600, 0, 1, 3), start, end) == (1.0, 3.0)


def test_spans_are_whole_but_at_their_ends() -> None:
    start, end = datetime(2030, 1, 1, 22, tzinfo=UTC), datetime(2030, 1, 2, 0, 30, tzinfo=UTC)
    assert [(name, (to - begin).seconds) for name, begin, to in spans(start, end, hours=True)] == [
        ("2030-01-01T22", 3600),
        ("2030-01-01T23", 3600),
        ("2030-01-02T00", 1800),
    ]
    assert [(name, (to - begin).seconds) for name, begin, to in spans(start, end, hours=False)] == [
        ("2030-01-01", 7200),
        ("2030-01-02", 1800),
    ]


def test_months_are_counted_over_years() -> None:
    assert [months_before("2030-01", count) for count in (0, 1, 13, -1)] == ["2030-01", "2029-12", "2028-12", "2030-02"]
    assert start_of("2030-01") == datetime(2030, 1, 1, tzinfo=UTC)
    assert start_of("2030-01-02T05") == datetime(2030, 1, 2, 5, tzinfo=UTC)
