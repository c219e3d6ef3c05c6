"""What ``fairlead status`` prints on a screen."""

from __future__ import annotations

import io

from rich.console import Console

from fairlead.cli.status_table import print_status
from fairlead.testing.fleet_objects import status


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


def test_what_is_not_well_stands_apart_from_the_tables() -> None:
    out = io.StringIO()
    print_status(status(agent_age_s=None), Console(file=out, width=120))
    lines = out.getvalue().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("!"))
    assert lines[first - 1] == ""
