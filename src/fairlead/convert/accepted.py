"""Converted objects held to the schemas and CEL rules of Gateway API, so that an API server takes what is printed.

In: an object, and the Ingress that it was made of. Out: the object without the rules, hostnames or listeners that would
be refused, each a remark; None where nothing is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from fairlead.api.gateway import GATEWAYS, HTTP_ROUTES, LISTENER_SETS, TLS_ROUTES, HTTPRule
from fairlead.api.kubernetes import IngressObject
from fairlead.api.meta import AnyResource, JSONObject, KubeObject
from fairlead.convert.annotations import Remarks
from podless.offline import refusals

#: The lists whose items may be left out, by kind.
_PARTS: Mapping[str, tuple[str, ...]] = {
    HTTP_ROUTES.kind: ("rules", "hostnames"),
    TLS_ROUTES.kind: ("hostnames",),
    GATEWAYS.kind: ("listeners",),
    LISTENER_SETS.kind: ("listeners",),
}
_ITEM = re.compile(r"spec\.(\w+)\[(\d+)\]")
#: Of a message, what follows is the text of a pattern or a list of values.
_SHOWN = 300


def body_of(resource: AnyResource, obj: KubeObject) -> JSONObject:
    """Return an object as an API server takes it."""
    body: JSONObject = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        **cast("JSONObject", msgspec.to_builtins(obj)),
    }
    # The schema requires the group of a reference where it is the core one, too.
    spec: JSONObject = body.get("spec", {})
    for field in ("to", "targetRefs"):
        if field in spec:
            spec[field] = [{"group": "", **reference} for reference in spec[field]]
    return body


def problem_of(resource: AnyResource, obj: KubeObject) -> str:
    """Return why an API server refuses ``obj``; empty when it takes it."""
    return next((message for _, message in _problems(resource, obj)), "")


def accepted_part(
    ingress: IngressObject, resource: AnyResource, obj: KubeObject, remarks: Remarks
) -> KubeObject | None:
    """Return as much of ``obj`` as an API server takes; what is left out is a remark."""
    rest: Any = obj
    while problems := list(_problems(resource, rest)):
        items = {(match[1], int(match[2])): message for field, message in problems if (match := _ITEM.match(field))}
        droppable = {key: message for key, message in items.items() if key[0] in _PARTS.get(resource.kind, ())}
        if not droppable:
            field, message = problems[0]
            remarks.lost(ingress, f"{resource.kind} {obj.metadata.name}", f"{field}: {message}; it is left out")
            return None
        for (field, number), message in droppable.items():
            remarks.lost(ingress, _title(rest, field, number), f"{message}; it is left out")
        for field in {key[0] for key in droppable}:
            kept = [item for at, item in enumerate(getattr(rest.spec, field)) if (field, at) not in droppable]
            if not kept:
                return None
            rest = replace(rest, spec=replace(rest.spec, **{field: kept}))
    return cast("KubeObject", rest)


def _problems(resource: AnyResource, obj: KubeObject) -> Iterator[tuple[str, str]]:
    """Yield the field and the message of each refusal."""
    for cause in refusals(body_of(resource, obj)):
        if cause.field != "<nil>":
            yield cause.field, cause.message[:_SHOWN]


def _title(obj: Any, field: str, number: int) -> str:
    """Return what a user knows an item by."""
    if field == "hostnames":
        return f"hostname {obj.spec.hostnames[number]}"
    if field == "listeners":
        return f"host {obj.spec.listeners[number].hostname}"
    rule: HTTPRule = obj.spec.rules[number]
    paths = [match.path.value or "/" for match in rule.matches or () if match.path is not None]
    return f"path {(obj.spec.hostnames or [''])[0]}{(paths or ['/'])[0][:_SHOWN]}"
