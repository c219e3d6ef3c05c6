"""Output of objects by the verbs: ``-o table|wide|json|yaml|name``, the same for each of them.

In: what a verb has found, as one value (json, yaml), as lines (table, wide), and the names of its objects. Out: stdout,
with nothing in it that acts on a terminal. Never: a format that a verb refuses; ``name`` is what other verbs take.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from fairlead.cli.formatting import say
from fairlead.cli.options import Output
from fairlead.runtime.legible import legible_json


def emit(output: Output, value: Any, *, lines: Callable[[], Iterable[str]], names: Callable[[], Iterable[str]]) -> None:
    """Print one answer; ``lines`` are those of table and wide, ``names`` one for each object in it."""
    if output.is_data:
        sys.stdout.write(encoded(value, output))
    else:
        say(list(names() if output is Output.NAME else lines()))


def encoded(value: Any, output: Output) -> str:
    """Return ``value`` as indented JSON, or as YAML with its keys in the same order."""
    import msgspec

    if output is Output.YAML:
        import yaml

        # In ASCII: whatever else is in a text is escaped.
        return yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, width=10_000)
    return legible_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()) + "\n"
