"""Print what the verbs say.

In: sentences, whose words others may have written. Out: lines on stdout in which nothing of them acts on the terminal
or looks like a line of its own (``runtime/legible.py``). Nothing else in ``cli/`` prints.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.model.in_words import counted
from fairlead.runtime.legible import legible
from fairlead.status.formatting import REASONS, age_text, columns, reason_text

__all__ = ["REASONS", "age_text", "columns", "counted", "reason_text", "say"]


def say(lines: str | Iterable[str]) -> None:
    """Print one line, or several; whatever is in a line, it stays one line."""
    text = "\n".join(legible(line) for line in ([lines] if isinstance(lines, str) else lines))
    if text:
        print(text)
