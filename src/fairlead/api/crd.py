"""CustomResourceDefinitions made from the wire types, so that type and schema cannot drift apart.

In: a Resource whose type is a struct with ``spec`` and perhaps ``status``. Out: a CRD as a JSON object with a
structural schema. Docstrings and ``field_descriptions`` become descriptions, ``msgspec.Meta`` becomes validation.
Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

import msgspec

from fairlead.api.descriptions import (
    ANNOUNCING,
    BACKENDS,
    CERTIFICATES,
    CLUSTERS,
    CONNECTIONS,
    MACHINES,
    NAMES,
    REQUESTS,
    TENANTS,
)
from fairlead.api.meta import AnyResource, JSONObject, KubeObject

_KEPT = frozenset(
    {
        "type", "properties", "items", "required", "description", "enum", "pattern", "minimum", "maximum",
        "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "format",
        "additionalProperties", "default",
    }
)  # fmt: skip


class Column(msgspec.Struct, frozen=True):
    """One printer column of ``kubectl get``; priority 1 shows only with ``-o wide``."""

    name: str
    json_path: str
    type: str = "string"
    priority: int = 0
    description: str = ""


class CelRule(msgspec.Struct, frozen=True):
    """One CEL rule on ``spec``, or with ``whole`` on the whole object, where only metadata.name can be seen besides."""

    rule: str
    message: str
    field_path: str = ""
    whole: bool = False


AGE = Column("Age", ".metadata.creationTimestamp", "date")
#: JSON paths of the conditions that columns show.
ACCEPTED = '.status.conditions[?(@.type=="Accepted")]'
IN_USE = '.status.conditions[?(@.type=="InUse")]'
PAUSED = '.status.conditions[?(@.type=="Paused")]'
PROGRAMMED = '.status.conditions[?(@.type=="Programmed")]'
SERVING = '.status.conditions[?(@.type=="Serving")]'
#: How long the agent of the member has been silent.
SILENT = Column("Silent", '.status.conditions[?(@.reason=="MemberLost")].lastTransitionTime', "date", priority=1)
READY = '.status.conditions[?(@.type=="Ready")]'
#: Agents of 0.2 take every observedGeneration but 0 for an answer of the hub.
_ANSWERED_FROM_ZERO = frozenset({"TCPLoadBalancer"})


class Crd(msgspec.Struct, frozen=True):
    """The definition of a kind without its schema.

    ``one_write``: spec and status are written together, without a status subresource.
    """

    resource: AnyResource
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    rules: tuple[CelRule, ...] = ()
    one_write: bool = False


def build_crd(crd: Crd) -> JSONObject:
    """Return the CustomResourceDefinition of one kind."""
    resource = crd.resource
    schema = structural_schema(resource.type)
    for place, whole in ((schema["properties"]["spec"], False), (schema, True)):
        if rules := [_rule(rule) for rule in crd.rules if rule.whole is whole]:
            place["x-kubernetes-validations"] = rules
    version: JSONObject = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": [_column(column) for column in crd.columns],
    }
    if "status" in schema["properties"] and not crd.one_write:
        version["subresources"] = {"status": {}}
        if resource.kind not in _ANSWERED_FROM_ZERO:
            _await_first_status(schema["properties"]["status"])
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.full_name},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "shortNames": list(crd.short_names),
                "categories": ["fairlead"],
            },
            "versions": [version],
        },
    }


def structural_schema(wire_type: type[KubeObject]) -> JSONObject:
    """Return the structural schema of one kind, a new one on every call."""
    return msgspec.json.decode(_encoded_schema(wire_type))


@cache
def _encoded_schema(wire_type: type[KubeObject]) -> bytes:
    (root,), components = msgspec.json.schema_components([wire_type])
    schema = _inline(root, components)
    description = schema.get("description", "")
    properties: JSONObject = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    for part in ("spec", "status"):
        if part in schema["properties"]:
            properties[part] = schema["properties"][part]
            properties[part].pop("default", None)
    schema = {"type": "object", "description": description, "required": ["spec"], "properties": properties}
    return msgspec.json.encode(schema)


def _await_first_status(status: JSONObject) -> None:
    """Have an object without a status say that its generation was not seen: tools such as kstatus wait for it."""
    observed = status.get("properties", {}).get("observedGeneration")
    if observed is not None:
        observed["default"] = -1
        status["default"] = {"observedGeneration": -1}


def _inline(node: JSONObject, components: JSONObject) -> JSONObject:
    """Resolve references and unions with null: structural schemas have neither."""
    if "$ref" in node:
        # Keys next to a reference belong to the field and take precedence over those of the type.
        own = {key: value for key, value in node.items() if key != "$ref"}
        node = {**components[node["$ref"].rsplit("/", 1)[1]], **own}
    if "anyOf" in node:
        options = [option for option in node["anyOf"] if option != {"type": "null"}]
        own = {key: value for key, value in node.items() if key != "anyOf"}
        node = {**options[0], **own}
        if "$ref" in node:
            return _inline(node, components)
    out: JSONObject = {key: value for key, value in node.items() if key in _KEPT or key.startswith("x-kubernetes-")}
    if "enum" in out and "type" not in out:
        out["type"] = "integer" if all(isinstance(value, int) for value in out["enum"]) else "string"
    if _is_idle_default(out):
        out.pop("default", None)
    if "properties" in out:
        children = cast("dict[str, JSONObject]", out["properties"])
        descriptions = FIELDS.get(str(node.get("title", "")), {})
        out["properties"] = {
            name: _described(_inline(child, components), descriptions.get(name, "")) for name, child in children.items()
        }
    for part in ("items", "additionalProperties"):
        if child := _mapping(out.get(part)):
            out[part] = _inline(child, components)
    _require_keys(_mapping(out.get("items")), out.get("x-kubernetes-list-map-keys", ()))
    if not out.get("required", True):
        del out["required"]
    if "description" in out:
        out["description"] = " ".join(str(out["description"]).split())
    return out


def _described(field: JSONObject, sentence: str) -> JSONObject:
    """Return ``field`` with ``sentence`` as its description, unless it has one: that of its struct."""
    return {"description": sentence, **field} if sentence and "description" not in field else field


def _require_keys(item: JSONObject, keys: Sequence[str]) -> None:
    """Make the keys of a list-map required, as a structural schema demands of keys that have no default."""
    missing = [key for key in keys if "default" not in item["properties"][key]]
    if missing:
        item["required"] = sorted({*item.get("required", ()), *missing})


def _is_idle_default(node: JSONObject) -> bool:
    """Return whether a default only repeats that the field is absent, and so would be noise in every object."""
    return "default" in node and (
        node["default"] in ("", 0, None, False) or isinstance(node["default"], dict | list | tuple)
    )


def _column(column: Column) -> dict[str, Any]:
    out: JSONObject = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    if column.priority:
        out["priority"] = column.priority
    if column.description:
        out["description"] = column.description
    return out


def _rule(rule: CelRule) -> JSONObject:
    out: JSONObject = {"rule": rule.rule, "message": rule.message}
    if rule.field_path:
        out["fieldPath"] = rule.field_path
    return out


FIELDS: Mapping[str, Mapping[str, str]] = {
    **ANNOUNCING,
    **BACKENDS,
    **CERTIFICATES,
    **CLUSTERS,
    **CONNECTIONS,
    **MACHINES,
    **NAMES,
    **REQUESTS,
    **TENANTS,
}


def fields_of(crd: JSONObject) -> frozenset[str]:
    """Return the paths of all fields, such as ``spec.ports.name``; those of list items without an index."""
    versions = cast("list[JSONObject]", _mapping(crd.get("spec")).get("versions") or [])
    stored = next((version for version in versions if version.get("storage")), cast("JSONObject", {}))
    return frozenset(_below(_mapping(_mapping(stored.get("schema")).get("openAPIV3Schema")), ""))


def newer_fields(expected: JSONObject, present: JSONObject) -> list[str]:
    """Return the fields of ``present`` that ``expected`` lacks, sorted; none when it lacks some of ``expected``."""
    if is_within(expected, present):  # by far the most frequent case, and the cheapest to see
        return []
    expected_fields, present_fields = fields_of(expected), fields_of(present)
    return [] if expected_fields - present_fields else sorted(present_fields - expected_fields)


def is_within(expected: JSONObject, present: JSONObject) -> bool:
    """Return whether each value in the spec of ``expected`` is the same in that of ``present``, which may have more."""
    present_spec = _mapping(present.get("spec"))
    return all(present_spec.get(key) == value for key, value in expected["spec"].items())


def _below(node: JSONObject, path: str) -> set[str]:
    fields: set[str] = set()
    for name, child in _mapping(node.get("properties")).items():
        if path or name in ("spec", "status"):
            child_path = f"{path}.{name}".lstrip(".")
            fields |= {child_path} | _below(_mapping(_mapping(child).get("items") or child), child_path)
    return fields


def _mapping(value: Any) -> JSONObject:
    return cast("JSONObject", value) if isinstance(value, dict) else {}
