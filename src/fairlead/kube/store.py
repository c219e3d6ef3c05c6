"""The objects of a cache, by key and by each index.

In: objects. Out: the same, by (namespace, name), or by the values of an index.
Never: input or output. Nothing is stored half-way: an object and its index entries change together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from fairlead.api.meta import KubeObject, ObjectKey

T = TypeVar("T", bound=KubeObject)
Index = Callable[[T], Iterable[Hashable]]


class Store(Generic[T]):
    """Objects with indexes."""

    def __init__(self, indexes: Mapping[str, Index[T]] | None = None) -> None:
        self._objects: dict[ObjectKey, T] = {}
        self._functions = dict(indexes or {})
        self._indexes: dict[str, dict[Hashable, dict[ObjectKey, T]]] = {name: {} for name in self._functions}

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: ObjectKey) -> T | None:
        """Return one object."""
        return self._objects.get(key)

    def keys(self) -> Iterable[ObjectKey]:
        """Return all keys, in no order."""
        return self._objects.keys()

    def values(self) -> Iterable[T]:
        """Return all objects, in no order."""
        return self._objects.values()

    def by_index(self, name: str, value: Hashable) -> Sequence[T]:
        """Return the objects with this value, sorted by key."""
        objects = self._indexes[name].get(value)
        if not objects:
            return ()
        return [objects[key] for key in sorted(objects)] if len(objects) > 1 else list(objects.values())

    def indexed(self, name: str, value: Hashable) -> Collection[T]:
        """Return the objects with this value, in no order and without a copy: thousands may have it."""
        return self._indexes[name].get(value, {}).values()

    def put(self, obj: T) -> T | None:
        """Store an object and return the one it replaces."""
        key = obj.key
        old = self._objects.get(key)
        # All index functions run before anything is changed: if one fails, the old state is kept.
        values = {name: set(function(obj)) for name, function in self._functions.items()}
        if old is not None:
            self._unindex(key, old)
        for name, wanted in values.items():
            index = self._indexes[name]
            for value in wanted:
                index.setdefault(value, {})[key] = obj
        self._objects[key] = obj
        return old

    def remove(self, key: ObjectKey) -> T | None:
        """Remove an object and return it."""
        old = self._objects.pop(key, None)
        if old is not None:
            self._unindex(key, old)
        return old

    def _unindex(self, key: ObjectKey, old: T) -> None:
        for name, function in self._functions.items():
            index = self._indexes[name]
            for value in set(function(old)):
                objects = index.get(value)
                if objects is not None:
                    objects.pop(key, None)
                    if not objects:
                        del index[value]
