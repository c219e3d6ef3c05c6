"""What ``fairlead status`` prints on a screen."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from fairlead.cli.status import print_status
from tests.fleet_objects import GOOD, fleet_of, load_balancer, status


def test_the_table_shows_everything_and_cuts_nothing() -> None:
    out = io.StringIO()
    print_status(status(), Console(file=out))
    text = out.getvalue()
    for word in (
        "east",
        "eu",
        "Engaged",
        "east/default/web",
        "127.200.0.1",
        "2/3",
        "local/here",
        "SYNCED",
        "everything serves",
    ):
        assert word in text


def test_problems_are_listed_apart_from_the_tables() -> None:
    out = io.StringIO()
    print_status(status(agent_age_s=None), Console(file=out, width=120))
    lines = out.getvalue().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("!"))
    assert lines[first - 1] == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_names_and_addresses_are_never_cut_in_tables(terminal: bool) -> None:
    lb = load_balancer(*GOOD)
    metadata = msgspec.structs.replace(lb.metadata, name=f"{'n' * 63}.{'w' * 63}")
    fleet = fleet_of(load_balancers=[msgspec.structs.replace(lb, metadata=metadata)])
    out = io.StringIO()
    print_status(fleet, Console(file=out, width=80, force_terminal=terminal, no_color=True), wide=True)
    for word in (lb.status.address, f"tcplb/{metadata.namespace}/{metadata.name}"):
        assert word in out.getvalue()
