"""Finds the resource for which a response was refused.

Envoy names the bad resources when it can, but not always, and drops the good ones with them. In: the names of a refused
response and Envoy's message. Out: groups to send again, each in a response of its own: the named ones alone, the rest
together; or two halves when none is named. One bad resource of 1,000 stands alone after some ten refusals.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NAME_CHARACTERS = re.compile(r"[A-Za-z0-9._/-]+")


def split_refused(names: Sequence[str], message: str) -> list[tuple[str, ...]]:
    """Split the names of a refused response (two or more, ordered) into groups to try again."""
    mentioned = {word.strip(".") for word in _NAME_CHARACTERS.findall(message)}
    named = [name for name in names if name in mentioned]
    rest = tuple(name for name in names if name not in mentioned)
    if named:
        return [*([rest] if rest else []), *[(name,) for name in named]]
    middle = len(names) // 2
    return [tuple(names[:middle]), tuple(names[middle:])]
