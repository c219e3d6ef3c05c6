"""The types of lists in the schemas of kinds, by which server-side apply merges them.

Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from fairlead.api.meta import JSONObject, WireCondition

LIST_SET: JSONObject = {"x-kubernetes-list-type": "set"}
LIST_ATOMIC: JSONObject = {"x-kubernetes-list-type": "atomic"}


def list_by(*keys: str) -> JSONObject:
    """Return the type of a list of objects that ``keys`` distinguish."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


#: Of ports, which TCP and UDP have apart.
LIST_BY_PORT = list_by("port", "protocol")
#: The conditions of a status; None before there are any.
Conditions = Annotated[list[WireCondition] | None, Meta(extra_json_schema=list_by("type"))]
