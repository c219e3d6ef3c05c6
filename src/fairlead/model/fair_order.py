"""Keys that wait, in groups that take turns: who has thousands of them does not hold up who has one.

In: keys. Out: the key that has waited longest in the group whose turn it is, each once. Every call costs the same,
however many keys there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class FairOrder(Generic[K]):
    """Keys, each in the group that ``group_of`` returns when it is added."""

    def __init__(self, group_of: Callable[[K], Hashable]) -> None:
        self._group_of = group_of
        self._groups: OrderedDict[Hashable, OrderedDict[K, None]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, key: K) -> None:
        """Add a key; one that is there in the same group keeps its place."""
        keys = self._groups.setdefault(self._group_of(key), OrderedDict())
        self._size += key not in keys
        keys[key] = None

    def pop(self) -> K:
        """Take away the next key, and return it; there must be one."""
        group, keys = self._groups.popitem(last=False)
        key, _ = keys.popitem(last=False)
        if keys:
            self._groups[group] = keys
        self._size -= 1
        return key
