"""``fairlead status``: whether all load balancers serve, whether changes have taken effect, and if not, why.

One screen has a summary, tables as kubectl prints them, and problems last. The hub is part of every answer: when none
leads, the rows may be old. Green is serving, yellow needs attention, red does not serve; no colours without a terminal,
and none if NO_COLOR is set.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.cli.hub_reader import connect_hub, gather_status
from fairlead.cli.options import HubApi, Output
from fairlead.cli.output import emit, repeat, say
from fairlead.cli.run import EXIT_CODE_OF
from fairlead.cli.selection import in_namespace, matcher
from fairlead.errors import NotFound, NotServed, Unreachable
from fairlead.kube.cluster import Cluster
from fairlead.model.in_words import counted, listed
from fairlead.runtime.logs import legible
from fairlead.status.fleet import (
    FleetStatus,
    HubRow,
    LoadBalancerRow,
    PoolRow,
    Problem,
    RegionRow,
    SharedServiceRow,
    Trouble,
    counted_of,
    worst_of,
)
from fairlead.status.formatting import age_text
from fairlead.status.machines import HEADER as MACHINE_HEADER
from fairlead.status.machines import announced_cell, cells
from fairlead.status.object_ref import IN_MEMBERS, KINDS, SERVICE, SHARING, ObjectRef

_POLL_S = 0.5


async def show_status(
    api: HubApi, asked: Filter, output: Output, hub_url: str, *, problems: bool, watch: bool, wait_s: float
) -> int:
    """Print the status; return the exit code."""

    def shown(fleet: FleetStatus) -> FleetStatus:
        return only_problems(fleet) if problems else fleet

    async def write(fleet: FleetStatus) -> None:
        _print(shown(fleet), output, every=not asked.is_open or problems)
        if hub_url and output is Output.WIDE:
            from fairlead.cli.top import lines_of, read_traffic, sorted_figures  # loads the page, which few need

            answer = await read_traffic(hub_url)
            say(["", *lines_of(sorted_figures(answer.figures, "bytes"), answer)])

    async with connect_hub(api) as cluster:
        fleet = await repeat(
            lambda: _gather(cluster, asked, wait_s), write, lambda fleet: _lasting(shown(fleet)), output, watch=watch
        )
    return EXIT_CODE_OF[fleet.state]


async def _gather(cluster: Cluster, asked: Filter, wait_s: float) -> FleetStatus:
    """Read the status; with ``wait_s`` until it is well, or until that many seconds are over."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + wait_s
    while True:
        over = loop.time() >= end_s
        try:
            fleet = await gather_status(cluster)
        except (Unreachable, NotServed):
            # With --wait the API, or the hub that installs the kinds, may be about to come.
            if over:
                raise
        else:
            try:
                fleet = filtered(fleet, asked)
            except NotFound:
                if over:
                    raise
            else:
                if fleet.healthy or over:
                    return fleet
        await asyncio.sleep(_POLL_S)


def _print(fleet: FleetStatus, output: Output, *, every: bool) -> None:
    if output in (Output.TABLE, Output.WIDE):
        print_status(fleet, every=every, wide=output is Output.WIDE)
    else:
        emit(output, fleet, lines=tuple, names=lambda: names_of(fleet))


def _lasting(fleet: FleetStatus) -> FleetStatus:
    """Return all of a status but the ages, which change all the time."""
    replace = msgspec.structs.replace
    members = [replace(row, last_sync_age_s=None) for row in fleet.members]
    machines = [replace(row, last_report_age_s=None) for row in fleet.machines]
    return replace(fleet, hub=replace(fleet.hub, age_s=None), members=members, machines=machines)


#: More load balancers than that are summed up, and only those that are not well are listed.
MOST_ROWS = 20
#: No table is as wide.
_WIDTH = 10_000
#: Of more problems than that with one reason, the first are shown.
_MOST_ALIKE = 3
_STYLES = {
    Trouble.NONE: "green", Trouble.IDLE: "", Trouble.ATTENTION: "yellow", Trouble.UNCONFIRMED: "yellow",
    Trouble.NOT_SERVING: "red", Trouble.NOT_KNOWN: "red",
}  # fmt: skip
_WORDS = {
    "Engaged": Trouble.NONE, "SYNCED": Trouble.NONE, "True": Trouble.NONE,
    "Free": Trouble.NONE, "AlmostFull": Trouble.ATTENTION, "Full": Trouble.ATTENTION,
    "Stale": Trouble.ATTENTION, "Pending": Trouble.ATTENTION,
    "Unknown": Trouble.ATTENTION, "UNKNOWN": Trouble.ATTENTION,
    "Ready": Trouble.NONE, "Joining": Trouble.ATTENTION, "Drained": Trouble.ATTENTION,
    "ReportsProblem": Trouble.ATTENTION, "Unreachable": Trouble.ATTENTION,
}  # fmt: skip
#: How the summary counts load balancers: what one does, what several do.
_COUNTED = {
    Trouble.NONE: ("serves", "serve"),
    Trouble.IDLE: ("is idle", "are idle"),
    Trouble.ATTENTION: ("needs attention", "need attention"),
    Trouble.UNCONFIRMED: ("is not known yet", "are not known yet"),
    Trouble.NOT_SERVING: ("does not serve", "do not serve"),
}


_HEADER = (
    *(
        "LOAD BALANCER",
        "CLASS",
        "ADDRESS",
        "ON",
        "ANNOUNCED BY",
        "PROGRAMMED",
        "SERVING",
        "REASON",
        "ROUTES",
        "TARGETS",
    ),
    "OBJECT",
)


class _Out(Console):
    """A console that leaves it to its caller what a closed pipe means; rich would end the process with 1."""

    def on_broken_pipe(self) -> None:
        """Go on to the caller with the error."""
        raise BrokenPipeError


def print_status(
    status: FleetStatus, console: Console | None = None, *, every: bool = False, wide: bool = False
) -> None:
    """Print it; without a terminal, no colours. ``every``: a part was asked for, so each row of it.

    Names and addresses are never cut: the terminal wraps a wider row, as with kubectl.
    """
    out = console or _Out()
    out.width = _WIDTH
    for line in _summary(status):
        out.print(Text(legible(line)))
    if status.members:
        header = ("MEMBER", "REGION", "STATE", "LAST SYNC", "LOAD BALANCERS")
        rows = [
            (row.name, row.region or "-", row.state, age_text(row.last_sync_age_s), str(row.load_balancers))
            for row in status.members
        ]
        _print_rows(out, header, rows)
    listed = every or wide or len(status.load_balancers) <= MOST_ROWS
    shown = [row for row in status.load_balancers if listed or row.state is not Trouble.NONE][: None if listed else 20]
    if shown:
        header = _HEADER
        _print_rows(out, *_without(header, [_load_balancer(row, wide=wide) for row in shown], wide=wide))
    if len(shown) < len(status.load_balancers):
        rest = len(status.load_balancers) - len(shown)
        out.print(Text(f"and {rest} more, see them all with: fairlead status -o wide"))
    if status.regions:
        header = ("SERVICE", "REGION", "CLASS", "ADDRESS", "PROGRAMMED", "REASON", "TARGETS")
        _print_rows(out, header, [_region(row) for row in status.regions])
    few = wide or len(status.shared_services) <= MOST_ROWS
    if shared := [row for row in status.shared_services if few or row.state is not Trouble.NONE]:
        header = ("SHARED SERVICE", "CLUSTER SET", "EXPORTED BY", "IMPORTED BY", "REASON")
        _print_rows(out, header, [_shared_service(row, wide=wide) for row in shared])
    if len(shared) < len(status.shared_services):
        rest = len(status.shared_services) - len(shared)
        out.print(Text(f"and {rest} more shared Services, see them all with: fairlead status -o wide"))
    if status.proxies:
        header = ("PROXY", "GROUP", "STATE", "REFUSED")
        _print_rows(out, header, [(row.name, row.group, row.state, str(row.refused)) for row in status.proxies])
    if status.machines:
        header = MACHINE_HEADER if not wide else (*MACHINE_HEADER, "ENVOY", "CERTIFICATE ENDS")
        now = datetime.now(UTC)
        _print_rows(out, header, [cells(row, now, wide=wide) for row in status.machines])
    if status.pools:
        _print_rows(out, ("POOL", "ADDRESSES", "USED", "STATE"), [_pool(row) for row in status.pools])
    out.print()
    nothing = not (status.members or status.regions or status.load_balancers or status.troubles)
    if nothing and not every:
        out.print(Text("No members yet; add one with: fairlead tenant add NAME"))
    for problem, text in _shown(status.troubles, every=every or wide):
        sign = "!" if problem.trouble in (Trouble.ATTENTION, Trouble.UNCONFIRMED) else "✗"
        out.print(Text(legible(f"{sign} {text}"), style=_STYLES[problem.trouble]), soft_wrap=True)
    if status.healthy:
        out.print(Text(legible(f"✓ {_all_well(status)}"), style="green"))


def _all_well(status: FleetStatus) -> str:
    """Return what is to be said where nothing needs attention; backends that are not ready are counted."""
    counts = [(row.title, counted_of(row.targets)) for row in status.load_balancers]
    partial = [(title, *count) for title, count in counts if count is not None and count[0] < count[1]]
    if not partial:
        return "everything is healthy"
    title, ready, total = partial[0]
    others = f", and of {counted(len(partial) - 1, 'other')} some" if len(partial) > 1 else ""
    return f"everything serves; {title} has {ready} of {total} backends ready{others} (fairlead explain names the rest)"


def names_of(status: FleetStatus) -> Iterator[str]:
    """Return KIND/NAMESPACE/NAME of each load balancer and region, as verbs take it."""
    yield from (ObjectRef(row.kind, row.namespace, row.name).path for row in status.load_balancers)
    yield from dict.fromkeys(f"svc/{row.namespace}/{row.service}" for row in status.regions)


def _summary(status: FleetStatus) -> Iterator[str]:
    hub = status.hub
    if hub.holder:
        word = "leading" if hub.leading else "silent"
        yield f"Hub {hub.holder}: {word}, last seen {age_text(hub.age_s)} ago"
    if status.load_balancers:
        counts = Counter(row.state for row in status.load_balancers)
        parts = [
            f"{counts[state]} {singular if counts[state] == 1 else plural}"
            for state, (singular, plural) in _COUNTED.items()
            if counts[state]
        ]
        yield f"{counted(len(status.load_balancers), 'load balancer')}{_as_of(hub)}: {', '.join(parts)}"


def _as_of(hub: HubRow) -> str:
    """Return of when the counts are, with ", " before it; empty while a hub keeps them as they are now."""
    if hub.leading:
        return ""
    if hub.age_s is None:
        return ", as last written by a hub, at an unknown time"
    return f", as of {age_text(hub.age_s)} ago, the last write of a hub"


def _shown(problems: Sequence[Problem], *, every: bool) -> Iterator[tuple[Problem, str]]:
    """Return the problems; of many with the same reason, the first ones and the number of the others."""
    alike = Counter((problem.kind, problem.reason) for problem in problems)
    shown_before: Counter[tuple[str, str]] = Counter()
    for problem in problems:
        what = (problem.kind, problem.reason)
        shown_before[what] += 1
        if every or alike[what] <= _MOST_ALIKE + 1 or shown_before[what] <= _MOST_ALIKE:
            yield problem, problem.sentence
        elif shown_before[what] == _MOST_ALIKE + 1:
            more = alike[what] - _MOST_ALIKE
            yield problem, f"and {more} more with reason {problem.reason}: fairlead status --problems"


def _load_balancer(row: LoadBalancerRow, *, wide: bool) -> tuple[str, ...]:
    # A load balancer that Fairlead did not create may have an address that its API does not have.
    address = row.address or ("-" if row.programmed else "<pending>")
    path = ObjectRef(row.kind, row.namespace, row.name).path
    programmed, serving = str(row.programmed), row.serving or "-"
    routes = "-" if row.routes is None else str(row.routes)
    announced = "; ".join(announced_cell(entry, wide=wide) for entry in row.announced) or "-"
    first = (row.title, row.class_name, address, row.on or "-", announced)
    return *first, programmed, serving, row.reason, routes, row.targets or "-", path


def _pool(row: PoolRow) -> tuple[str, ...]:
    reserved = f", {row.reserved} reserved" if row.reserved else ""
    return row.name, row.addresses, f"{row.used} of {row.size}{reserved}", row.note or "Free"


def _region(row: RegionRow) -> tuple[str, ...]:
    return (
        f"{row.namespace}/{row.service}",
        row.region,
        row.class_name or "-",
        row.address or "<pending>",
        str(row.programmed),
        row.reason,
        row.targets or "-",
    )


def _shared_service(row: SharedServiceRow, *, wide: bool) -> tuple[str, ...]:
    exported, imported = (
        (", ".join(names) if wide else listed(names, 3)) or "-" for names in (row.exported_by, row.imported_by)
    )
    return row.service, row.cluster_set or "-", exported, imported, row.reason


def _without(header: Sequence[str], rows: Sequence[Sequence[str]], *, wide: bool) -> tuple[list[str], list[list[str]]]:
    """Return a table without the columns that say nothing in any row; OBJECT only when it is wide."""
    at = [
        number
        for number, title in enumerate(header)
        if (title != "OBJECT" or wide)
        and (title not in {"ON", "ANNOUNCED BY", "SERVING", "ROUTES"} or any(row[number] != "-" for row in rows))
    ]
    return [header[number] for number in at], [[row[number] for number in at] for row in rows]


def _print_rows(out: Console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for title in header:
        table.add_column(title, no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(title, text) for title, text in zip(header, row, strict=True)))
    out.print()
    out.print(table)


def _cell(title: str, text: str) -> Text:
    if title not in {"STATE", "PROGRAMMED", "SERVING"}:
        return Text(legible(text))
    return Text(legible(text), style=_STYLES[_WORDS.get(text, Trouble.NOT_SERVING)] if text != "-" else "")


_WELL = (Trouble.NONE, Trouble.IDLE)
#: What a name can mean; of problems those of objects in a member.
_Row = LoadBalancerRow | RegionRow | Problem


class Filter(msgspec.Struct, frozen=True):
    """``names``: a Service or a load balancer, with or without its kind, namespace and member; empty: all."""

    names: Sequence[str] = ()
    namespace: str = ""
    selector: str = ""

    @property
    def is_open(self) -> bool:
        """Return whether everything is asked for."""
        return not (self.names or self.namespace or self.selector)


def filtered(fleet: FleetStatus, asked: Filter) -> FleetStatus:
    """Return what is asked for; ``NotFound`` names what there is not, ``BadConfiguration`` a bad selector."""
    if asked.is_open:
        return fleet
    matches = matcher(asked.selector)
    load_balancers = [
        row for row in fleet.load_balancers if matches(row.labels) and in_namespace(_places(row), asked.namespace)
    ]
    regions = [row for row in fleet.regions if matches(row.labels) and in_namespace(_places(row), asked.namespace)]
    # What an agent refuses has no load balancer here, and no labels.
    refused = [
        trouble
        for trouble in fleet.troubles
        if trouble.member and not asked.selector and in_namespace(_places(trouble), asked.namespace)
    ]
    if asked.names:
        _check_names(asked.names, [*load_balancers, *regions, *refused])
        load_balancers = [row for row in load_balancers if _is_named(row, asked.names)]
        regions = [row for row in regions if _is_named(row, asked.names)]
        refused = [row for row in refused if _is_named(row, asked.names)]
    elif not (load_balancers or regions or refused):
        raise NotFound(f"No load balancer {_said(asked)}; to list them: fairlead status -o name")
    shown = {(row.kind, row.namespace, row.name) for row in load_balancers}
    shown |= {("PoolService", row.namespace, row.service) for row in regions}
    troubles = [
        trouble
        for trouble in fleet.troubles
        if trouble.kind == "Hub" or trouble in refused or (trouble.kind, trouble.namespace, trouble.name) in shown
    ]
    return _with(
        fleet,
        troubles,
        load_balancers=load_balancers,
        regions=regions,
        members=[],
        proxies=[],
        machines=[],
        shared_services=[],
    )


def only_problems(fleet: FleetStatus) -> FleetStatus:
    """Return the rows that are not well."""
    return msgspec.structs.replace(
        fleet,
        members=[row for row in fleet.members if row.state != "Engaged"],
        load_balancers=[row for row in fleet.load_balancers if row.state not in _WELL],
        regions=[row for row in fleet.regions if row.state not in _WELL],
        shared_services=[row for row in fleet.shared_services if row.state not in _WELL],
        proxies=[row for row in fleet.proxies if row.state != "SYNCED"],
        machines=[row for row in fleet.machines if row.problems],
    )


def _with(fleet: FleetStatus, troubles: list[Problem], **rows: object) -> FleetStatus:
    return msgspec.structs.replace(
        fleet,
        healthy=not troubles,
        state=worst_of(problem.trouble for problem in troubles),
        problems=[problem.sentence for problem in troubles],
        troubles=troubles,
        **rows,
    )


def _places(row: _Row) -> list[str]:
    """Return all that a row may be called, without kinds: as long as possible first."""
    match row:
        case RegionRow():
            return [f"{row.namespace}/{row.service}"]
        case Problem():
            return [f"{row.member}/{row.namespace}/{row.name}"]
        case LoadBalancerRow():
            return [f"{row.namespace}/{row.name}", *([row.origin] if row.origin else [])]


def _said(asked: Filter) -> str:
    """Return what a filter by namespace and labels asks for, as the end of a sentence."""
    parts = [f"is in namespace {asked.namespace!r}"] if asked.namespace else []
    parts += [f"has the labels {asked.selector!r} at the hub"] if asked.selector else []
    return " and ".join(parts)


def _is_named(row: _Row, names: Iterable[str]) -> bool:
    return any(_means(name, row) for name in names)


def _means(name: str, row: _Row) -> bool:
    """Return whether a row is meant by ``[KIND/][[MEMBER/]NAMESPACE/]NAME``."""
    head, slash, rest = name.partition("/")
    kind = (KINDS.get(head.lower()) or SHARING.get(head.lower())) if slash else None
    wanted = f"/{rest if kind else name}"
    is_named = any(f"/{place}".endswith(wanted) for place in _places(row))
    match row:
        case LoadBalancerRow() if kind in IN_MEMBERS:
            # What an IngressClass became is for no Service, and for no Ingress alone.
            return row.origin_kind == kind and f"/{row.origin}".endswith(wanted)
        case LoadBalancerRow():
            return kind in (None, row.kind) and is_named
        case RegionRow():
            return kind in (None, SERVICE) and is_named
        case Problem():
            return (not kind or (kind in IN_MEMBERS and kind == row.kind)) and is_named


def _check_names(names: Iterable[str], rows: Sequence[_Row]) -> None:
    for name in names:
        if not any(_means(name, row) for row in rows):
            raise NotFound(f"No load balancer is named {name!r}; to list them: fairlead status -o name")
