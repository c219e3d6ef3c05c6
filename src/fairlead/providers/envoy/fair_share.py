"""Chooses the changes of the next response, so that one member's do not hold up another's.

Envoy applies a response as a whole, on one thread: what is sent later waits for it. So no more than ``BATCH`` changes
of one type are under way, and none is added once they have ``BATCH_BYTES``; each member gets its share, in turn.

In: names of resources, and their sizes. Out: some of them. Never: fewer than there is room for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate, chain, zip_longest

#: Resources of one type under way at once, about a second's work of an Envoy that has thousands of them.
BATCH = 128
#: The routes of thousands of hosts, or the endpoints of tens of thousands.
BATCH_BYTES = 1024 * 1024


class FairShare:
    """Chooses for one stream and one type; whose turn comes first moves on with each choice."""

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, names: Iterable[str], room: int, size_of: Callable[[str], int] = lambda _name: 0) -> list[str]:
        """Return at most ``room`` of ``names``: all, or as many of each member as of every other."""
        ordered = sorted(names)
        if len(ordered) <= room and sum(map(size_of, ordered)) <= BATCH_BYTES:
            return ordered
        by_member: dict[str, list[str]] = {}
        for name in ordered:
            by_member.setdefault(_member_of(name), []).append(name)
        members = list(by_member)
        first = self._turn % len(members)
        self._turn += 1
        turns = zip_longest(*(by_member[member] for member in [*members[first:], *members[:first]]))
        chosen = [name for name in chain.from_iterable(turns) if name is not None][: max(0, room)]
        before = accumulate(map(size_of, chosen), initial=0)
        return [name for name, size in zip(chosen, before, strict=False) if size < BATCH_BYTES]


def _member_of(name: str) -> str:
    """Return the namespace at the hub, the second part of every name of ours."""
    return name.split("/", 2)[1] if "/" in name else ""
