"""Reduces objects of the member to what is kept in memory.

In: objects as an API server sends them. Out: the same without what is never read (slices: ``publish.canonical``), so
that heartbeats change nothing. Never loses anything that is exported.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from fairlead.api.kubernetes import LAST_APPLIED, Node
from fairlead.api.meta import KubeObject
from fairlead.publish.canonical import canonical_meta, node_status

T = TypeVar("T", bound=KubeObject)


def compact_node(raw: Node) -> Node:
    """Reduce a Node to its addresses, its Ready condition and what its spec says."""
    return Node(metadata=canonical_meta(raw.metadata), spec=raw.spec, status=node_status(raw.status))


def without_last_applied(raw: T) -> T:
    """Drop the copy of the whole object that kubectl keeps in an annotation."""
    annotations = raw.metadata.annotations
    if not annotations or LAST_APPLIED not in annotations:
        return raw
    kept = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
    return msgspec.structs.replace(raw, metadata=msgspec.structs.replace(raw.metadata, annotations=kept))
