"""Print a status on one screen: tables as kubectl prints them, problems last."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlead.cli.formatting import age_text
from fairlead.cli.status_rows import FleetStatus

_GOOD = frozenset({"Engaged", "True", "SYNCED"})


def print_status(status: FleetStatus, console: Console | None = None) -> None:
    """Print all of it; without a terminal, no colours and no cut lines."""
    out = console or Console()
    if not out.is_terminal:
        out = Console(width=max(out.width, 200), file=out.file)
    hub = status.hub
    if hub.holder:
        word = "leading" if hub.leading else "silent"
        out.print(Text(f"Hub {hub.holder}: {word}, last heard {age_text(hub.age_s)} ago"))
    if status.members:
        header = ("MEMBER", "REGION", "STATE", "LAST SYNC", "LOAD BALANCERS")
        rows = [
            (row.name, row.region or "-", row.state, age_text(row.last_sync_age_s), str(row.load_balancers))
            for row in status.members
        ]
        _print(out, header, rows)
    if status.load_balancers:
        header = ("LOAD BALANCER", "CLASS", "ADDRESS", "PROGRAMMED", "REASON", "TARGETS")
        rows = [
            (
                row.origin or f"{row.namespace}/{row.name}",
                row.class_name,
                # A load balancer that Fairlead did not create may have an address that its API does not have.
                row.address or ("-" if row.programmed else "<pending>"),
                str(row.programmed),
                row.reason,
                row.targets or "-",
            )
            for row in status.load_balancers
        ]
        _print(out, header, rows)
    if status.regions:
        header = ("SERVICE", "REGION", "CLASS", "ADDRESS", "PROGRAMMED", "REASON", "TARGETS")
        rows = [
            (
                f"{row.namespace}/{row.service}",
                row.region,
                row.class_name or "-",
                row.address or "<pending>",
                str(row.programmed),
                row.reason,
                row.targets or "-",
            )
            for row in status.regions
        ]
        _print(out, header, rows)
    if status.proxies:
        header = ("PROXY", "GROUP", "STATE", "REFUSED")
        _print(out, header, [(row.name, row.group, row.state, str(row.refused)) for row in status.proxies])
    if not status.members and not status.regions and not status.load_balancers:
        out.print(Text("No members yet; add one with: fairlead tenant add NAME"))
    for problem in status.problems:
        out.print(Text(f"✗ {problem}", style="red"), soft_wrap=True)
    if status.healthy:
        out.print(Text("✓ everything is healthy", style="green"))


def _print(out: Console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for title in header:
        table.add_column(title, no_wrap=not out.is_terminal, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(title, text) for title, text in zip(header, row, strict=True)))
    out.print()
    out.print(table)


def _cell(title: str, text: str) -> Text:
    if title not in {"STATE", "PROGRAMMED"}:
        return Text(text)
    return Text(text, style="green" if text in _GOOD else "red")
