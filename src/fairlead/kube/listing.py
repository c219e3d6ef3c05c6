"""Lists of typed objects: pages put together, with the unreadable ones kept apart.

In: the bytes of list answers. Out: ``Listing``: objects, one resourceVersion, and what could not be decoded.
Never: lets one bad object hide the others (promise 7), or forgets that the bad one exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Generic, Self, TypeVar

import msgspec

from fairlead.api.json_text import decode, is_cut, read_json, repaired, salvage
from fairlead.api.meta import KubeObject, ObjectKey, Wire

T = TypeVar("T")
K = TypeVar("K", bound=KubeObject)


class ListMeta(msgspec.Struct, rename="camel", gc=False):
    """The metadata of a list."""

    resource_version: str = ""
    next_page: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T], gc=False):
    """One answer to a list request; real servers send ``items: null`` too."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[T] | None = None


@dataclass
class DecodedPage(Generic[K]):
    """One page, after every object was tried."""

    items: list[K]
    resource_version: str
    next_page: str
    broken: dict[ObjectKey, str]


@dataclass
class Listing(Generic[K]):
    """All objects as of one resourceVersion; ``broken`` maps the keys of unreadable ones to the reason."""

    items: list[K] = field(default_factory=list[K])
    resource_version: str = ""
    broken: dict[ObjectKey, str] = field(default_factory=dict[ObjectKey, str])

    def add(self, page: DecodedPage[K]) -> None:
        """Add one more page."""
        self.items.extend(page.items)
        self.broken.update(page.broken)
        self.resource_version = page.resource_version


#: The key of an object whose name cannot be read; any held object may be meant.
UNNAMED = ObjectKey("", "")


def decode_page(body: bytes, of: type[K]) -> DecodedPage[K]:
    """Decode one page, whole if possible, else object by object.

    Raises:
        msgspec.DecodeError: the body is not a list.
    """
    try:
        page = decode(body, Page[of])
    except msgspec.DecodeError:
        decoded = _decode_each(body, of)
    else:
        if not all(obj.metadata.name for obj in page.items or ()):
            return _decode_each(body, of)
        decoded = DecodedPage(page.items or [], page.metadata.resource_version, page.metadata.next_page, {})
    if not (decoded.items or decoded.broken or decoded.resource_version):
        # What a proxy between says with 200, such as {"error": "log in"}: no server has a list without a version.
        raise msgspec.ValidationError("neither items nor metadata.resourceVersion")
    return decoded


def _decode_each(body: bytes, of: type[K]) -> DecodedPage[K]:
    try:
        page = decode(body, Page[msgspec.Raw])
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        page = decode(repaired(body), Page[msgspec.Raw])
    items: list[K] = []
    broken: dict[ObjectKey, str] = {}
    for raw in page.items or ():
        obj = decode_object(raw, of)
        if isinstance(obj, str):
            broken[key_of(raw)] = obj
        else:
            items.append(obj)
    return DecodedPage(items, page.metadata.resource_version, page.metadata.next_page, broken)


def decode_object(raw: msgspec.Raw, of: type[K]) -> K | str:
    """Return an object of a list or of a watch, or why it cannot be read."""
    try:
        obj = decode(raw, of)
    except msgspec.DecodeError as error:
        return Undecodable(str(error), raw)
    if is_cut(raw):
        return Undecodable("JSON is nested too deeply", raw)
    return obj if obj.metadata.name else "metadata.name is missing"


class _Identity(Wire, frozen=True, gc=False):
    class Metadata(Wire, frozen=True, gc=False):
        name: str = ""
        namespace: str = ""

    metadata: Metadata = Metadata()


def key_of(raw: msgspec.Raw) -> ObjectKey:
    """Return the key of an object that cannot be decoded, ``UNNAMED`` when not even that can be read."""
    identity = read_json(raw, _Identity) or read_json(repaired(raw), _Identity)
    meta = (identity or _Identity()).metadata
    return ObjectKey(meta.namespace, meta.name) if meta.name else UNNAMED


def selector_params(label_selector: str, field_selector: str) -> dict[str, str]:
    """Return the query parameters of a selection."""
    params: dict[str, str] = {}
    if label_selector:
        params["labelSelector"] = label_selector
    if field_selector:
        params["fieldSelector"] = field_selector
    return params


class Undecodable(str):
    """Why an object cannot be decoded, with what was received of it."""

    __slots__ = ("body",)
    body: bytes

    def __new__(cls, why: str, body: bytes | msgspec.Raw) -> Self:
        """Return ``why``, which keeps ``body``."""
        text = super().__new__(cls, why)
        text.body = bytes(memoryview(body))
        return text


class Remains(msgspec.Struct, Generic[K], frozen=True):
    """The readable part of an object that cannot be decoded: None for nothing. ``lost`` names the other fields."""

    obj: K | None
    lost: frozenset[str]

    def has(self, field: str) -> bool:
        """Return whether ``field`` was read with all that it contains, or is known to be absent."""
        parts = (f"{lost}." for lost in self.lost)
        return self.obj is not None and not any(
            f"{field}.".startswith(lost) or lost.startswith(f"{field}.") for lost in parts
        )


def remains_of(why: str, of: type[K]) -> Remains[K]:
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
