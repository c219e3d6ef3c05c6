"""Print a status on one screen: a summary, tables as kubectl prints them, problems last.

Green means serving: what serves is green, what needs attention yellow, what does not serve red; no colours without a
terminal, and none where NO_COLOR is set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.model.in_words import counted
from fairlead.runtime.logs import legible
from fairlead.status.conditions import counted_of
from fairlead.status.formatting import age_text
from fairlead.status.object_ref import ObjectRef
from fairlead.status.rows import FleetStatus, HubRow, LoadBalancerRow, PoolRow, Problem, RegionRow, Trouble

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
}  # fmt: skip
#: How the summary counts load balancers: what one does, what several do.
_COUNTED = {
    Trouble.NONE: ("serves", "serve"),
    Trouble.IDLE: ("is idle", "are idle"),
    Trouble.ATTENTION: ("needs attention", "need attention"),
    Trouble.UNCONFIRMED: ("is not known yet", "are not known yet"),
    Trouble.NOT_SERVING: ("does not serve", "do not serve"),
}


class _Out(Console):
    """A console that leaves it to its caller what a closed pipe means; rich would end the process with 1."""

    def on_broken_pipe(self) -> None:
        """Go on to the caller with the error."""
        raise BrokenPipeError


def print_status(
    status: FleetStatus, console: Console | None = None, *, every: bool = False, wide: bool = False
) -> None:
    """Print it; without a terminal, no colours. ``every``: a part was asked for, so each row of it.

    Names and addresses stay in one piece: what is wider than a terminal goes on in its next line, as with kubectl.
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
        _print(out, header, rows)
    listed = every or wide or len(status.load_balancers) <= MOST_ROWS
    shown = [row for row in status.load_balancers if listed or row.state is not Trouble.NONE][: None if listed else 20]
    if shown:
        header = ("LOAD BALANCER", "CLASS", "ADDRESS", "PROGRAMMED", "SERVING", "REASON", "ROUTES", "TARGETS", "OBJECT")
        _print(out, *_without(header, [_load_balancer(row) for row in shown], wide=wide))
    if len(shown) < len(status.load_balancers):
        rest = len(status.load_balancers) - len(shown)
        out.print(Text(f"and {rest} more, see them all with: fairlead status -o wide"))
    if status.regions:
        header = ("SERVICE", "REGION", "CLASS", "ADDRESS", "PROGRAMMED", "REASON", "TARGETS")
        _print(out, header, [_region(row) for row in status.regions])
    if status.proxies:
        header = ("PROXY", "GROUP", "STATE", "REFUSED")
        _print(out, header, [(row.name, row.group, row.state, str(row.refused)) for row in status.proxies])
    if status.pools:
        _print(out, ("POOL", "ADDRESSES", "USED", "STATE"), [_pool(row) for row in status.pools])
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
        return ", as a hub wrote it last, at a time not known"
    return f", as of {age_text(hub.age_s)} ago, when a hub wrote last"


def _shown(problems: Sequence[Problem], *, every: bool) -> Iterator[tuple[Problem, str]]:
    """Return the problems; of many with the same reason the first, and how many more there are."""
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


def _load_balancer(row: LoadBalancerRow) -> tuple[str, ...]:
    # A load balancer that Fairlead did not create may have an address that its API does not have.
    address = row.address or ("-" if row.programmed else "<pending>")
    path = ObjectRef(row.kind, row.namespace, row.name).path
    programmed, serving = str(row.programmed), row.serving or "-"
    routes = "-" if row.routes is None else str(row.routes)
    return row.title, row.class_name, address, programmed, serving, row.reason, routes, row.targets or "-", path


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


def _without(header: Sequence[str], rows: Sequence[Sequence[str]], *, wide: bool) -> tuple[list[str], list[list[str]]]:
    """Return a table without the columns that say nothing in any row; OBJECT only when it is wide."""
    at = [
        number
        for number, title in enumerate(header)
        if (title != "OBJECT" or wide)
        and (title not in {"SERVING", "ROUTES"} or any(row[number] != "-" for row in rows))
    ]
    return [header[number] for number in at], [[row[number] for number in at] for row in rows]


def _print(out: Console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
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
