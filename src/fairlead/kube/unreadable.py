"""The objects of one kind that exist and cannot be decoded, and why.

In: what a watch shows. Out: reasons by key, and a call for each object that is shown and unreadable, or is so no more:
the callbacks of a cache are called for objects that can be read. What such an object reserves still counts: ``Remains``
has the fields that can be read, and names the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Generic, Self, TypeVar

import msgspec

from fairlead.api.json_text import salvage
from fairlead.api.meta import KubeObject, ObjectKey

T = TypeVar("T", bound=KubeObject)


class Undecodable(str):
    """Why an object cannot be decoded, with what was received of it."""

    __slots__ = ("body",)
    body: bytes

    def __new__(cls, why: str, body: bytes | msgspec.Raw) -> Self:
        """Return ``why``, which keeps ``body``."""
        text = super().__new__(cls, why)
        text.body = bytes(memoryview(body))
        return text


class Remains(msgspec.Struct, Generic[T], frozen=True):
    """The readable part of an object that cannot be decoded: None for nothing. ``lost`` names the other fields."""

    obj: T | None
    lost: frozenset[str]

    def has(self, field: str) -> bool:
        """Return whether ``field`` was read with all that it contains, or is known to be absent."""
        parts = (f"{lost}." for lost in self.lost)
        return self.obj is not None and not any(
            f"{field}.".startswith(lost) or lost.startswith(f"{field}.") for lost in parts
        )


def remains_of(why: str, of: type[T]) -> Remains[T]:
    """Return what can be read of an object that cannot be decoded for a reason."""
    return Remains(*salvage(why.body, of)) if isinstance(why, Undecodable) else Remains(None, frozenset())


class Unreadable(MutableMapping[ObjectKey, str]):
    """Why objects cannot be decoded, by their key."""

    def __init__(self) -> None:
        self._reasons: dict[ObjectKey, str] = {}
        self._callbacks: list[Callable[[ObjectKey], None]] = []

    def __getitem__(self, key: ObjectKey) -> str:
        return self._reasons[key]

    def __setitem__(self, key: ObjectKey, why: str) -> None:
        # Also when the reason is the same: it may be being deleted now.
        self._reasons[key] = why
        self._notify(key)

    def __delitem__(self, key: ObjectKey) -> None:
        del self._reasons[key]
        self._notify(key)

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(self._reasons)

    def __len__(self) -> int:
        return len(self._reasons)

    def on_change(self, callback: Callable[[ObjectKey], None]) -> None:
        """Call ``callback`` with the key of each object that is shown with a reason, or has one no more."""
        self._callbacks.append(callback)

    def replace(self, reasons: Mapping[ObjectKey, str]) -> None:
        """Store that these cannot be decoded, and no others."""
        for key in self._reasons.keys() - reasons.keys():
            del self[key]
        self.update(reasons)

    def _notify(self, key: ObjectKey) -> None:
        for callback in self._callbacks:
            callback(key)
