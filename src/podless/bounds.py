"""Limits of request bodies and objects: bytes, values, depth, length of keys, items of lists.

In: JSON bytes, lists. Out: nothing, or 400, 413 and 422 with a message that names the limit. The limits are those of
kube-apiserver and etcd, or far beyond what any kind of Kubernetes needs; without them a body of a few kilobytes can
keep the server busy for minutes.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any

from podless.failure import ApiFailure, bad_request, too_large

#: The limit of etcd. An object that is larger already may be made smaller, and be deleted.
MAX_OBJECT_BYTES = 1536 * 1024
#: For all objects of one namespace together; administrators may exceed it. A member with ten thousand Services needs
#: a tenth of it.
MAX_NAMESPACE_BYTES = 256 * 1024 * 1024
#: Writes of Leases may exceed the limit of the namespace by this.
LEASES_BYTES = 1024 * 1024
#: For lists whose items are merged one by one, which costs quadratic time. As many as an HTTPLoadBalancer may have
#: listeners.
MAX_MERGED_ITEMS = 1024
#: Deeper than any schema of Kubernetes, and far below Python's recursion limit.
MAX_DEPTH = 100
#: Far beyond the largest EndpointSlice or CustomResourceDefinition. Each value costs some microseconds.
MAX_VALUES = 100_000
#: The path of a field contains the keys above it, and is built again for every field below.
MAX_KEY_BYTES = 1024
_SHORT_BYTES = 16 * 1024
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STRING_AND_COLON = re.compile(_STRING.pattern + rb"\s*+(:?)", re.DOTALL)
_STEP = dict.fromkeys(b"[{", 1) | dict.fromkeys(b"]}", -1)


def check_shape(raw: bytes) -> None:
    """Raise 400 or 413 when the JSON ``raw`` is nested too deeply, or has too many values or too long keys."""
    opened = raw.count(b"{") + raw.count(b"[")
    if opened > MAX_DEPTH or raw.count(b",") > MAX_VALUES:  # some of them may be in strings
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
    """Return 400: the body is nested deeper than ``MAX_DEPTH`` levels."""
    return bad_request(f"the body of the request is nested deeper than {MAX_DEPTH} levels")


def check_items(values: list[Any], field: str = "") -> None:
    """Raise 422 when a list whose items are merged one by one has more than ``MAX_MERGED_ITEMS``."""
    if len(values) > MAX_MERGED_ITEMS:
        where = f"{field}: " if field else ""
        message = (
            f"{where}Too many: {len(values)}: a list that is merged item by item has at most {MAX_MERGED_ITEMS} items"
        )
        raise ApiFailure(422, "Invalid", message)
