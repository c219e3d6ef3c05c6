"""The lines of ``fairlead explain``: backends and conditions, and the history as stored and as a running hub has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from fairlead.api.json_text import decode
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.api.times import parsed_time
from fairlead.cli.explain_rows import BackendRow, ConditionRow, Explained
from fairlead.cli.traffic_rows import token_header
from fairlead.errors import BadConfiguration, NotFound, Unauthorized, Unreachable
from fairlead.kube.cluster import Cluster
from fairlead.ledger.history import HISTORY_MAPS, entries_of, map_name
from fairlead.model.history import HistoryEntry, HistoryKind, HistoryRow
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Seen
from fairlead.status.formatting import age_text, columns, reason_text


def lines_of(row: Explained, *, now: datetime) -> list[str]:
    """Return the lines of one load balancer."""
    class_name = f"class {row.class_name}" if row.class_name else "its object is gone"
    lines = [f"{row.load_balancer}: {class_name}, provider {row.provider or 'unknown'}"]
    lines += columns(
        [
            (condition.type, condition.status, _ago(condition.since, now), _why(condition))
            for condition in row.conditions
        ]
    )
    lines.append("Backends:" if row.backends else "Backends: none")
    for backend, head in zip(row.backends, columns([_head(backend, now) for backend in row.backends]), strict=True):
        lines.append(head)
        lines += [f"      waits: {text}" for text in backend.waits_for]
    if row.exclusions:
        lines.append("Left out:")
        lines += columns([(exclusion.what, f"{exclusion.why} ({exclusion.owner})") for exclusion in row.exclusions])
    return lines + [f"Note: {text}" for text in row.notes]


def _head(row: BackendRow, now: datetime) -> tuple[str, str, str, str, str]:
    health = {True: ", healthy", False: ", unhealthy", None: ""}[row.healthy if row.state != Seen.UNHEALTHY else None]
    reason = row.reason if row.state == "Registered" else reason_text(row.reason)
    why = f"{reason}; " if row.reason else ""
    owners = f"for {', '.join(row.owners)}" if row.owners else ""
    source = f"{row.source} " if row.source else ""
    return row.listener, row.address, row.state + health, _ago(row.since, now), f"{source}{why}{owners}".rstrip("; ")


def _why(condition: ConditionRow) -> str:
    reason = "" if condition.reason == condition.type else condition.reason
    return ": ".join(filter(None, (reason, condition.message)))


def _ago(since: str, now: datetime) -> str:
    when = parsed_time(since)
    return age_text(max(0.0, (now - when).total_seconds())) if when is not None else "-"


_TIMEOUT_S = 5.0


class _KeyState(msgspec.Struct):
    """The part that is read of a hub's answer at /debug/keys."""

    history: list[HistoryEntry]


async def read_history(
    cluster: Cluster, key: LoadBalancerKey, hub_url: str = "", token_file: Path | None = None
) -> list[HistoryEntry]:
    """Return the stored entries and, with ``hub_url``, those in that hub's memory; oldest first."""
    stored = await _stored(cluster, key)
    return merged(stored, await _in_memory(hub_url, key, token_file)) if hub_url else merged(stored)


async def _stored(cluster: Cluster, key: LoadBalancerKey) -> list[HistoryEntry]:
    try:
        return entries_of(await cluster.get(HISTORY_MAPS, SYSTEM_NAMESPACE, map_name(key)))
    except NotFound:
        return []


async def _in_memory(hub_url: str, key: LoadBalancerKey, token_file: Path | None) -> list[HistoryEntry]:
    import aiohttp

    url = f"{hub_url.rstrip('/')}/debug/keys/{key.kind}/{key.namespace}/{key.name}"
    timeout, headers = aiohttp.ClientTimeout(total=_TIMEOUT_S), await token_header(token_file)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, headers=headers) as response:
            if response.status == 404:
                return []
            if response.status in (401, 403):
                raise Unauthorized(f"{url}: {(await response.text()).strip()}; give it with --token-file")
            if response.status != 200:
                raise Unreachable(f"{url} answers with HTTP {response.status}")
            return decode(await response.read(), _KeyState).history
    except aiohttp.InvalidURL as error:
        raise BadConfiguration(f"--hub-url: {hub_url!r} is not a URL such as http://127.0.0.1:9090") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unreachable(f"No hub answers at {url}; --hub-url is where it was started with --metrics") from error
    except msgspec.DecodeError as error:
        raise BadConfiguration(f"--hub-url: what {url} serves is not a history of a hub") from error


_HEAD = ("WHEN (UTC)", "EVENT", "WHAT", "ANSWER", "WHY")


def merged(*histories: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    """Return the entries of several sources without duplicates, oldest first; of two alike the one counted last."""
    by_identity: dict[tuple[datetime, str], HistoryEntry] = {}
    for entry in (entry for history in histories for entry in history):
        known = by_identity.get((entry.at, entry.text))
        if known is None or entry.count >= known.count:
            by_identity[entry.at, entry.text] = entry
    return sorted(by_identity.values(), key=lambda entry: (entry.last_at or entry.at, entry.sequence))


def history_lines(load_balancer: str, entries: Iterable[HistoryEntry]) -> list[str]:
    """Return the table of one load balancer: a line for each entry without calls, and for each call of the others."""
    rows = [row for entry in entries for row in _rows(entry)]
    if not rows:
        return [f"{load_balancer}: no history is stored"]
    return [f"{load_balancer}: history, oldest first", *columns([_HEAD, *rows])]


def _rows(entry: HistoryEntry) -> Iterator[tuple[str, ...]]:
    when, kind = _time(entry.at), str(entry.kind)
    times = f" ({entry.count} times, last at {_time(entry.last_at)})" if entry.last_at is not None else ""
    if not entry.rows:
        yield when, kind, "-", "-", entry.text + times
        return
    for row in entry.rows:
        yield when, kind, _what(row), str(row.answer), _history_rows_why(row) + times
    if entry.kind is HistoryKind.FAILED:
        yield when, kind, "-", "-", entry.text + times


def _what(row: HistoryRow) -> str:
    """Return the action and its backends: the names that are stored, and how many there are besides."""
    if not row.targets:
        return f"{row.action} the load balancer itself" if row.count == 1 else f"{row.action} {row.count}"
    more = row.count - len(row.targets)
    return f"{row.action} {', '.join(row.targets)}" + (f" and {more} more" if more > 0 else "")


def _history_rows_why(row: HistoryRow) -> str:
    reason, _, guard = row.reason.partition(", ")
    why = reason_text(reason) + (f"; {guard}" if guard else "")
    return f"{why}: {row.message}" if row.message else why


def _time(at: datetime | None) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if at is not None else "-"
