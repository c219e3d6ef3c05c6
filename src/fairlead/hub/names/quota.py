"""The number of names of each member, and its names that wait until it may have more.

In: who has each name, as it is recorded or is about to be; what was refused for want of room. Out: whether a member is
full, and the names to look at again when it is not any more. A name that is recorded stays, whatever the limit says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice


class Quota:
    """The names by the namespace of their member; ``limit_of`` returns how many one may have, 0 for any number."""

    def __init__(self, limit_of: Callable[[str], int]) -> None:
        self._limit_of = limit_of
        self._holders: dict[str, str] = {}
        self._names: dict[str, set[str]] = {}
        self._waiting: dict[str, dict[str, None]] = {}

    def hold(self, host: str, space: str | None) -> list[str]:
        """Count ``host`` for ``space``, for none when that is None or empty; return the names that now get room."""
        before = self._holders.pop(host, "")
        if before:
            self._names[before].discard(host)
            if not self._names[before]:
                del self._names[before]
        if space:
            self._holders[host] = space
            self._names.setdefault(space, set()).add(host)
        return self.room(before) if before and before != space else []

    def full(self, host: str, space: str) -> bool:
        """Say whether ``host`` would be one name too many for ``space``."""
        names, limit = self._names.get(space, ()), self._limit_of(space)
        return bool(limit) and len(names) - (host in names) >= limit

    def refused(self, host: str, spaces: Collection[str]) -> list[str]:
        """Remember for whom ``host`` waits, instead of those before; return other names that get the room of these."""
        for space in spaces:
            self._waiting.setdefault(space, {})[host] = None
        left = [space for space, hosts in self._waiting.items() if host in hosts and space not in spaces]
        for space in left:
            del self._waiting[space][host]
            if not self._waiting[space]:
                del self._waiting[space]
        return [each for space in left for each in self.room(space)]

    def room(self, space: str) -> list[str]:
        """Return as many waiting names of ``space`` as it may have now, those that have waited longest first."""
        waiting: Iterable[str] = self._waiting.get(space, ())
        limit = self._limit_of(space)
        return list(islice(waiting, max(0, limit - len(self._names.get(space, ()))))) if limit else list(waiting)
