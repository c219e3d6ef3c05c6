"""Usage by load balancer and hour: what its clients transferred, and the addresses and certificates that it had.

    UsageRow    what proxies counted of one load balancer in one hour; of old months in one day
    HeldPeriod        the addresses and certificates of one load balancer from one moment to another

Rows are kept packed: sorted, as compressed JSON. In: rows and periods. Out: sums, rows that fit into a size, and hours
of addresses in a span of time. Never: a clock, or a row that is counted twice: the later of two with one key replaces
the other.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from fairlead.api.json_text import read_json
from fairlead.model.keys import LoadBalancerKey

#: The load balancer of rows and periods that were folded to save space.
OTHER = "(other)"
#: No text that Fairlead packs is larger than this when it is unpacked.
_MOST_UNPACKED = 64 * 1024 * 1024


class UsageRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What clients of one load balancer transferred in one hour, 2026-11-26T18, or on one day, 2026-11-26.

    ``load_balancer`` is its key as KIND/NAMESPACE/NAME, ``origin`` the object of the member that asked for it. Bytes
    are those of TCP connections, datagrams and HTTP, without TLS. ``requests`` are answers over HTTP. ``subtenant`` is
    that of its namespace; empty when it is none, or an earlier release counted.
    """

    time: str
    load_balancer: str
    origin: str = ""
    connections: int = 0
    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    subtenant: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Return what identifies the row."""
        return self.time, self.load_balancer


#: Connections, requests, bytes in and bytes out.
Counts = tuple[int, int, int, int]
NO_COUNTS: Counts = (0, 0, 0, 0)


class ProxyCounts(msgspec.Struct, array_like=True):
    """What one proxy had counted at its last reading, by load balancer; ``uptime_s`` is negative when unknown."""

    uptime_s: int = 0
    read_at: int = 0
    counts: dict[str, Counts] = msgspec.field(default_factory=dict[str, Counts])


class OpenHours(msgspec.Struct, array_like=True):
    """The stored state: the counts of each proxy, and what was added to them in hours that have not been stored."""

    proxies: dict[str, ProxyCounts] = msgspec.field(default_factory=dict[str, ProxyCounts])
    rows: list[UsageRow] = msgspec.field(default_factory=list[UsageRow])


class HeldPeriod(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The addresses and certificates of a load balancer from ``since`` to ``until`` (seconds of Unix time).

    ``until`` is 0 while it has them. Of periods that were folded, the numbers are averages.
    """

    load_balancer: str
    origin: str
    since: int
    until: int = 0
    addresses: float = 0
    certificates: float = 0
    subtenant: str = ""


def hour_of(moment: datetime) -> str:
    """Return the hour that rows of ``moment`` have, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H")


def month_of(time: str) -> str:
    """Return the month of an hour or a day."""
    return time[:7]


def start_of(time: str) -> datetime:
    """Return when an hour, a day or a month begins."""
    return datetime.fromisoformat(f"{time}-01" if len(time) == len("2026-11") else time).replace(tzinfo=UTC)


def months_before(month: str, count: int) -> str:
    """Return the month so many months before another one."""
    year, number = map(int, month.split("-"))
    number = year * 12 + number - 1 - count
    return f"{number // 12:04d}-{number % 12 + 1:02d}"


def summed_rows(rows: Iterable[UsageRow]) -> list[UsageRow]:
    """Return one row for each key, in order, with the sums of all."""
    sums: dict[tuple[str, str], UsageRow] = {}
    for row in rows:
        if (before := sums.get(row.key)) is None:
            sums[row.key] = row
        else:
            sums[row.key] = UsageRow(
                row.time,
                row.load_balancer,
                before.origin or row.origin,
                before.connections + row.connections,
                before.requests + row.requests,
                before.bytes_in + row.bytes_in,
                before.bytes_out + row.bytes_out,
                before.subtenant or row.subtenant,
            )
    return [sums[key] for key in sorted(sums)]


def by_day(rows: Iterable[UsageRow]) -> list[UsageRow]:
    """Return the sums of each day."""
    return summed_rows(msgspec.structs.replace(row, time=row.time[:10]) for row in rows)


def fitted(days: Mapping[str, Sequence[UsageRow]], most_bytes: int) -> dict[str, str]:
    """Return the packed rows of each day, together at most so large: the oldest days lose their hours first.

    What is still too large is folded: on each day the load balancers with the least bytes are one row, ``OTHER``.
    """
    rows = {day: list(days[day]) for day in sorted(days)}
    texts = {day: packed(of_day) for day, of_day in rows.items()}
    for day, of_day in list(rows.items()):
        if sum(map(len, texts.values())) <= most_bytes:
            break
        rows[day] = by_day(of_day)
        texts[day] = packed(rows[day])
    keep = max(map(len, rows.values()), default=0)
    while sum(map(len, texts.values())) > most_bytes and keep > 1:
        keep //= 2
        rows = {day: _busiest(by_day(of_day), keep) for day, of_day in rows.items()}
        texts = {day: packed(of_day) for day, of_day in rows.items()}
    return texts


def _busiest(rows: Sequence[UsageRow], keep: int) -> list[UsageRow]:
    named = sorted(rows, key=lambda row: (row.load_balancer == OTHER, -row.bytes_in - row.bytes_out))
    folded = (msgspec.structs.replace(row, load_balancer=OTHER, origin="", subtenant="") for row in named[keep:])
    return summed_rows([*named[:keep], *folded])


def next_held(
    before: Iterable[HeldPeriod], present: Mapping[str, HeldPeriod], now: int, *, oldest: int, most: int
) -> list[HeldPeriod]:
    """Return the periods after the load balancers are ``present``: those that changed end now, and new ones begin.

    Periods that ended before ``oldest`` are dropped. Of more than ``most`` that have ended, the oldest are one.
    """
    ended = [held for held in before if held.until and held.until > oldest]
    open_: list[HeldPeriod] = []
    for held in before:
        if held.until:
            continue
        now_held = present.get(held.load_balancer)
        same = now_held is not None and _what(now_held) == _what(held)
        if same:
            open_.append(held)
        elif held.since < now:
            ended.append(msgspec.structs.replace(held, until=now))
    known = {held.load_balancer for held in open_}
    open_ += [held for key, held in present.items() if key not in known and (held.addresses or held.certificates)]
    ended.sort(key=lambda held: (held.until, held.load_balancer))
    if len(ended) > most:
        cut = len(ended) - most // 2
        ended = [_folded(ended[:cut]), *ended[cut:]]
    return [*ended, *sorted(open_, key=lambda held: held.load_balancer)]


def _what(held: HeldPeriod) -> tuple[float, float, str]:
    return held.addresses, held.certificates, held.subtenant


def _folded(periods: Sequence[HeldPeriod]) -> HeldPeriod:
    since, until = min(held.since for held in periods), max(held.until for held in periods)
    span = max(1, until - since)
    return HeldPeriod(
        OTHER,
        "",
        since,
        until,
        sum(held.addresses * (held.until - held.since) for held in periods) / span,
        sum(held.certificates * (held.until - held.since) for held in periods) / span,
    )


def hours_held(held: HeldPeriod, start: datetime, end: datetime) -> tuple[float, float]:
    """Return the hours of addresses, and of certificates, from ``start`` to ``end``."""
    until = held.until or end.timestamp()
    hours = max(0.0, min(until, end.timestamp()) - max(held.since, start.timestamp())) / 3600
    return held.addresses * hours, held.certificates * hours


def spans(start: datetime, end: datetime, *, hours: bool) -> Iterable[tuple[str, datetime, datetime]]:
    """Yield the hours, or the days, from ``start`` to ``end``, each with its own part of that time."""
    step = timedelta(hours=1) if hours else timedelta(days=1)
    first = start.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    begin = first if hours else first.replace(hour=0)
    while begin < end:
        name = hour_of(begin) if hours else begin.strftime("%Y-%m-%d")
        yield name, max(begin, start), min(begin + step, end)
        begin += step


def load_balancer_of(text: str) -> LoadBalancerKey | None:
    """Return the key in a row; None for ``OTHER``."""
    parts = text.split("/", 2)
    return LoadBalancerKey(*parts) if len(parts) == len(LoadBalancerKey._fields) else None


def packed(value: Any) -> str:
    """Return a value as text: JSON, compressed, in base 64."""
    return base64.b64encode(zlib.compress(msgspec.json.encode(value), 6)).decode()


T = TypeVar("T")


def unpacked(text: str, as_type: type[T]) -> T | None:
    """Return what ``packed`` wrote; None for anything else, such as the text of another release."""
    try:
        decompressor = zlib.decompressobj()
        content = decompressor.decompress(base64.b64decode(text, validate=True), _MOST_UNPACKED)
    except (ValueError, zlib.error):
        return None
    if not decompressor.eof:
        return None
    return read_json(content, as_type)
