"""Help breaks its lines where the terminal ends, not where a docstring does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.cli.options import PlainCommand, flowing


def test_a_paragraph_is_one_line_and_paragraphs_stay_apart() -> None:
    assert flowing("One line.\n\nTwo lines\nof one paragraph.\n") == "One line.\n\nTwo lines of one paragraph."
    assert flowing("") == ""
    assert PlainCommand("x", help="A\n\nb\nc").help == "A\n\nb c"


def commands(command: Any, path: str = "") -> Iterator[str]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}".strip())


@pytest.mark.parametrize("command", list(commands(typer.main.get_command(app))))
def test_nothing_is_cut_off_on_a_terminal_of_80_columns(command: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert result.exit_code == 0
    assert "…" not in result.stdout
