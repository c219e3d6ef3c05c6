"""The kinds of Gateway API for tests: definitions generated from the types that Fairlead reads, for the embedded API.

They have what a controller depends on: defaults, lists of type map, and status subresources. They are not the official
definitions, which the conformance suite installs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from fairlead.api.crd import Crd, build_crd
from fairlead.api.gateway import (
    BACKEND_TLS_POLICIES,
    GATEWAY_CLASSES,
    GATEWAY_GROUP,
    GATEWAYS,
    LISTENER_SETS,
    REFERENCE_GRANTS,
    ROUTES,
)
from fairlead.api.meta import JSONObject, Resource

KINDS: tuple[Resource[Any], ...] = (
    GATEWAY_CLASSES,
    GATEWAYS,
    LISTENER_SETS,
    REFERENCE_GRANTS,
    BACKEND_TLS_POLICIES,
    *ROUTES,
)
#: Defaults by the path of the field in ``spec``; a star is for the items of a list.
_DEFAULTS = {
    "parentRefs.*.group": GATEWAY_GROUP,
    "parentRefs.*.kind": "Gateway",
    "rules.*.backendRefs.*.group": "",
    "rules.*.backendRefs.*.kind": "Service",
    "rules.*.backendRefs.*.weight": 1,
    "listeners.*.allowedRoutes": {"namespaces": {"from": "Same"}},
    "listeners.*.tls.mode": "Terminate",
    "listeners.*.tls.certificateRefs.*.group": "",
    "listeners.*.tls.certificateRefs.*.kind": "Secret",
}
_MAPS = {"conditions": "type", "listeners": "name"}
_PENDING = [
    {
        "type": kind,
        "status": "Unknown",
        "reason": "Pending",
        "message": "Waiting for controller",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    }
    for kind in ("Accepted", "Programmed")
]


def gateway_crds(kinds: Iterable[Resource[Any]] = KINDS) -> list[JSONObject]:
    """Return a CustomResourceDefinition for each of ``kinds``."""
    return [_crd(kind) for kind in kinds]


def _crd(kind: Resource[Any]) -> JSONObject:
    crd = build_crd(Crd(kind, (), ()))
    # kube-apiserver requires this annotation for CRDs of a group under k8s.io.
    crd["metadata"].setdefault("annotations", {})["api-approved.kubernetes.io"] = "unapproved, used in tests"
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for path, value in _DEFAULTS.items():
        field = _field(schema["spec"], path.split("."))
        if field is not None:
            field["default"] = value
    if "status" in schema:
        _make_maps(schema["status"])
        if kind in (GATEWAYS, LISTENER_SETS):
            schema["status"]["default"] = {"conditions": _PENDING}
    return crd


def _field(node: JSONObject, path: list[str]) -> JSONObject | None:
    if not path:
        return node
    below = node.get("items") if path[0] == "*" else node.get("properties", {}).get(path[0])
    return None if below is None else _field(cast("JSONObject", below), path[1:])


def _make_maps(node: JSONObject) -> None:
    """Make lists whose items have a key lists of type map, which several field managers can share."""
    for name, field in cast("dict[str, JSONObject]", node.get("properties", {})).items():
        items: JSONObject = field.get("items", {})
        key = _MAPS.get(name)
        if key is not None and key in items.get("properties", {}):
            field |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
            items["required"] = sorted({*items.get("required", ()), key})
        _make_maps(field)
        _make_maps(items)
