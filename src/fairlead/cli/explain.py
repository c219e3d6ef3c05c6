"""``fairlead explain``: why each backend is, or is not, registered, since when, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from fairlead.api.json_text import decode
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.api.times import parsed_time
from fairlead.cli.complete import complete_explained
from fairlead.cli.explain_rows import BackendRow, ConditionRow, Explained
from fairlead.cli.options import Context, Kubeconfig, Labels, Namespace, Output, OutputOption, TokenFile, Verbose, Watch
from fairlead.cli.run import run_for_code
from fairlead.cli.selection import Selection, selection_of
from fairlead.cli.traffic_rows import token_header
from fairlead.errors import BadConfiguration, NotFound, Unauthorized, Unreachable
from fairlead.kube.cluster import Cluster
from fairlead.ledger.history import HISTORY_MAPS, entries_of, map_name
from fairlead.model.history import HistoryEntry, HistoryKind, HistoryRow
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Seen
from fairlead.status.formatting import age_text, columns, reason_text
from fairlead.status.object_ref import CLASS, IN_MEMBERS, SERVICE, ObjectRef, kinds_text

if TYPE_CHECKING:
    from fairlead.cli.explain_requests import RequestsRow
    from fairlead.cli.explain_service import ServiceRow
    from fairlead.cli.output import Answer


def explain(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="KIND/NAME",
            help=f"KIND is one of {kinds_text(sharing=True)}; or a name as status lists it.",
            autocompletion=complete_explained,
        ),
    ] = "",
    namespace: Namespace = "",
    selector: Labels = "",
    history: Annotated[
        bool, typer.Option("--history", help="Show what happened to it instead: events, decisions, calls, answers.")
    ] = False,
    hub_url: Annotated[
        str,
        typer.Option(
            "--hub-url", metavar="URL", help="With --history: also read the memory of the hub with --metrics there."
        ),
    ] = "",
    token_file: TokenFile = None,
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Say why each backend is, or is not, registered.

    Since when, what it waits for (a guard, a pause, a drain, its provider), and what was left out and why. With
    --history: what happened to the load balancer, also when it no longer exists. With a member's kubeconfig: what the
    member knows of its Service svc/NAME, its Ingress, Gateway or route.
    """
    from fairlead.cli.output import show
    from fairlead.errors import BadConfiguration

    selection = selection_of(subject, namespace, selector, sharing=True)
    ref = selection.ref
    if ref is None and not selection.filters:
        raise BadConfiguration("KIND/NAME is missing: name an object, as in svc/web, or several with -n or -l")
    if history and (ref is None or ref.kind == CLASS or selector):
        raise BadConfiguration("--history is of one load balancer: name it, as in svc/web or lb/shared")

    async def ask() -> Answer:
        if history and ref is not None:
            return await _history(ref, kubeconfig, context, hub_url, token_file)
        return await _present(selection, kubeconfig, context)

    run_for_code(lambda: show(ask, output, watch=watch))


async def _present(selection: Selection, kubeconfig: Path | None, context: str) -> Answer:
    from fairlead.cli.connect import NO_KINDS
    from fairlead.cli.explain import lines_of
    from fairlead.cli.explain_rows import explained
    from fairlead.cli.output import Answer
    from fairlead.cli.snapshot import take_snapshot
    from fairlead.errors import NotFound, NotServed

    ref = selection.ref
    try:
        snapshot = await take_snapshot(kubeconfig, selection, context=context)
    except (NotFound, NotServed) as error:
        # A member has none of the hub's kinds; and a hub may be a member of its own.
        if ref is not None and ref.kind in IN_MEMBERS:
            if (there := await _at_member(ref, kubeconfig, context)) is not None:
                return Answer(there.row, lambda: there.lines, lambda: [ref.path])
            if error.reason == NO_KINDS:
                raise NotFound(ref.not_found) from None
        raise error from None
    own = None
    if ref is not None and ref.kind in IN_MEMBERS:
        own = await _at_member(ref, kubeconfig, context, own_hub=True)
    rows = [explained(lb, now=snapshot.now, leading=snapshot.hub.leading) for lb in snapshot.load_balancers]

    def lines() -> list[str]:
        printed = [line for row in rows for line in lines_of(row, now=snapshot.now)]
        return [
            *(own.lines if own is not None else ()),
            *(printed or [f"No load balancer is of {selection.title} yet."]),
            *([snapshot.warning] if snapshot.warning else []),
        ]

    value = {"hubLeads": snapshot.hub.leading, "loadBalancers": rows} | ({"object": own.row} if own is not None else {})
    return Answer(value, lines, lambda: [row.load_balancer for row in rows])


class _MemberObject(NamedTuple):
    """An object as its own cluster knows it: None and a line that says why where that may not be read."""

    row: ServiceRow | RequestsRow | None
    lines: list[str]


async def _at_member(
    ref: ObjectRef, kubeconfig: Path | None, context: str, *, own_hub: bool = False
) -> _MemberObject | None:
    """Explain an object where it is; None where there is none. ``own_hub``: only where the hub is its cluster, too."""
    from fairlead.cli import explain_requests, explain_service
    from fairlead.cli.connect import connect
    from fairlead.errors import Forbidden
    from fairlead.standalone.right_cluster import OWN_TENANT, has_own_tenant

    async with connect(kubeconfig, context=context, name="the member") as cluster:
        try:
            is_own = ref.member in ("", OWN_TENANT) and await has_own_tenant(cluster)
            if own_hub and not is_own:
                return None
            if ref.kind == SERVICE:
                service = await explain_service.explain_service(cluster, ref, own_hub=is_own)
                return None if service is None else _MemberObject(service, explain_service.lines_of(service))
            requests = await explain_requests.explain_requests(cluster, ref, own_hub=is_own)
            return None if requests is None else _MemberObject(requests, explain_requests.lines_of(requests))
        except Forbidden as error:
            if not own_hub:
                raise
            return _MemberObject(None, [f"Note: what {ref.title} itself says could not be read: {error.sentence}"])


async def _history(
    ref: ObjectRef, kubeconfig: Path | None, context: str, hub_url: str, token_file: Path | None
) -> Answer:
    from fairlead.cli.connect import NO_KINDS, check_kinds, connect
    from fairlead.cli.explain import history_lines, read_history
    from fairlead.cli.output import Answer
    from fairlead.cli.selection import resolve_one
    from fairlead.errors import NotServed
    from fairlead.model.keys import LoadBalancerKey

    async with connect(kubeconfig, context=context, name="the hub") as cluster:
        try:
            await check_kinds(cluster)
        except NotServed as error:
            events = "; without --history the Events of it in this member are shown" if ref.kind in IN_MEMBERS else ""
            raise NotServed(
                f"The history of {ref.title} is at the hub, and {cluster.server} is not a hub: give the hub's "
                f"--kubeconfig{events}",
                detail=error.sentence,
                reason=NO_KINDS,
            ) from error
        matching = await resolve_one(cluster, ref)
        key = LoadBalancerKey(matching.kind, matching.namespace, matching.name)
        entries = await read_history(cluster, key, hub_url, token_file)

    def lines() -> list[str]:
        more = "A hub that serves /metrics has it in memory: fairlead explain --history --hub-url http://HOST:PORT"
        return [*history_lines(str(key), entries), *([more] if not entries and not hub_url else [])]

    return Answer({"loadBalancer": str(key), "history": entries}, lines, lambda: [str(key)])


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
