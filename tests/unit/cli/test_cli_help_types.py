"""Help breaks its lines where the terminal ends, not where a docstring does."""

from __future__ import annotations

from fairlead.cli.help_types import PlainCommand, flowing


def test_a_paragraph_is_one_line_and_paragraphs_stay_apart() -> None:
    assert flowing("One line.\n\nTwo lines\nof one paragraph.\n") == "One line.\n\nTwo lines of one paragraph."
    assert flowing("") == ""
    assert PlainCommand("x", help="A\n\nb\nc").help == "A\n\nb c"
