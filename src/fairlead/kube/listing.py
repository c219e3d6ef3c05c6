"""Lists of typed objects: pages put together, with the unreadable ones kept apart.

In: the bytes of list answers. Out: ``Listing``: objects, one resourceVersion, and what could not be decoded.
Never: lets one bad object hide the others (promise 7), or forgets that the bad one exists.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from fairlead.api.meta import KubeObject, ObjectKey

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


#: The key of an object so large that not even its name was read: it may be any of those that are held.
UNNAMED = ObjectKey("", "")
_RAW_PAGE = msgspec.json.Decoder(Page[msgspec.Raw])
_META = msgspec.json.Decoder(KubeObject)


def decode_page(body: bytes, decoder: msgspec.json.Decoder[Page[K]], of: type[K]) -> DecodedPage[K]:
    """Decode one page, whole if possible, else object by object.

    Raises:
        msgspec.DecodeError: this is no list.
    """
    try:
        page = decoder.decode(body)
    except msgspec.DecodeError:
        return _decode_each(body, of)
    if not page.items and not page.metadata.resource_version:
        # What a proxy between says with 200, such as {"error": "log in"}: no server has a list without a version.
        raise msgspec.ValidationError("it has neither items nor metadata.resourceVersion")
    return DecodedPage(page.items or [], page.metadata.resource_version, page.metadata.next_page, {})


def _decode_each(body: bytes, of: type[K]) -> DecodedPage[K]:
    page = _RAW_PAGE.decode(body)
    decoder = msgspec.json.Decoder(of)
    items: list[K] = []
    broken: dict[ObjectKey, str] = {}
    for raw in page.items or ():
        try:
            items.append(decoder.decode(raw))
        except msgspec.DecodeError as error:
            # Metadata that cannot be read either would leave no name to keep apart: then the list is no list.
            broken[_META.decode(raw).key] = str(error)
    return DecodedPage(items, page.metadata.resource_version, page.metadata.next_page, broken)


def selector_params(label_selector: str, field_selector: str) -> dict[str, str]:
    """Return the query parameters of a selection."""
    params: dict[str, str] = {}
    if label_selector:
        params["labelSelector"] = label_selector
    if field_selector:
        params["fieldSelector"] = field_selector
    return params
