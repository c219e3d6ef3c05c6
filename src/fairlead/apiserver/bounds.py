"""Limits of what a client sends, in every direction in which it costs: bytes, values, depth, keys, items.

In: JSON bytes, lists. Out: nothing, or 400, 413 and 422 with the limit in words. The limits are those of a real server
and of etcd, or far beyond what any kind of Kubernetes needs; without them a few kilobytes take the server for minutes.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any

from fairlead.apiserver.failure import ApiFailure, bad_request, too_large

#: As etcd has it. What is larger already may be made smaller, and be deleted.
MAX_OBJECT_BYTES = 1536 * 1024
#: All objects of one namespace together, as far as others than administrators write them. A member with ten thousand
#: Services has a tenth of it.
MAX_NAMESPACE_BYTES = 256 * 1024 * 1024
#: So much more while Leases are written.
LEASES_BYTES = 1024 * 1024
#: Of lists whose items are merged one by one: each item is looked for among the others. As many as an
#: HTTPLoadBalancer may have listeners.
MAX_MERGED_ITEMS = 1024
#: Deeper than any schema of Kubernetes, and far from where Python's own recursion ends.
MAX_DEPTH = 100
#: Far beyond the largest EndpointSlice or CustomResourceDefinition. Each value costs some microseconds.
MAX_VALUES = 100_000
#: The path of a field is made of keys, and made anew for every field below.
MAX_KEY_BYTES = 1024
_SHORT_BYTES = 16 * 1024
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STRING_AND_COLON = re.compile(_STRING.pattern + rb"\s*+(:?)", re.DOTALL)
_STEP = dict.fromkeys(b"[{", 1) | dict.fromkeys(b"]}", -1)


def check_shape(raw: bytes) -> None:
    """Raise 400 or 413 when the JSON ``raw`` is nested too deeply, or has too many values or too long keys."""
    opened = raw.count(b"{") + raw.count(b"[")
    if opened > MAX_DEPTH or raw.count(b",") > MAX_VALUES:  # of which some may stand in texts
        bare = _STRING.sub(b"", raw)
        if max(accumulate(_STEP.get(byte, 0) for byte in bare)) > MAX_DEPTH:
            raise too_deep()
        if bare.count(b",") + bare.count(b"{") + bare.count(b"[") > MAX_VALUES:
            raise too_large(MAX_VALUES, "values in one body")
    if len(raw) > _SHORT_BYTES:
        for match in _STRING_AND_COLON.finditer(raw):
            if match.end() - match.start() > MAX_KEY_BYTES and match[1]:
                raise bad_request(f"the body of the request has a key of more than {MAX_KEY_BYTES} bytes")


def too_deep() -> ApiFailure:
    """400: there are more levels than any schema has."""
    return bad_request(f"the body of the request is nested deeper than {MAX_DEPTH} levels")


def check_items(values: list[Any], field: str = "") -> None:
    """Raise 422 when a list whose items are merged one by one has too many."""
    if len(values) > MAX_MERGED_ITEMS:
        where = f"{field}: " if field else ""
        message = (
            f"{where}Too many: {len(values)}: a list that is merged item by item has at most {MAX_MERGED_ITEMS} items"
        )
        raise ApiFailure(422, "Invalid", message)
