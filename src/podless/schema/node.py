"""The compiled form of an OpenAPI schema, for built-in kinds and CRDs alike.

In: an OpenAPI v2 definition or a CRD's ``openAPIV3Schema``. Out: a tree of ``SchemaNode``. Never looks at an object.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from podless.objects import Obj

_CEL_RESERVED = frozenset(
    """
    as break const continue else false for function if import in let loop namespace null package return true var void
    while
    """.split()  # noqa: SIM905 - shorter to read
)
_CEL_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_CEL_ESCAPED = re.compile("|".join(re.escape(text) for text in _CEL_ESCAPES))


def escape(name: str) -> str:
    """Return the name of a property in CEL rules: ``__namespace__`` for ``namespace``."""
    if name in _CEL_RESERVED:
        return f"__{name}__"
    return _CEL_ESCAPED.sub(lambda match: _CEL_ESCAPES[match.group()], name)


#: An escaped character, a class of characters, or the end of the text.
_PATTERN_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$", re.DOTALL)


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern with the semantics of Go: ``$`` matches only at the end of the text.

    Raises:
        re.error: it is not a regular expression.
    """
    return re.compile(_PATTERN_PART.sub(lambda part: r"\Z" if part.group() == "$" else part.group(), pattern))


@dataclass(slots=True, eq=False)
class SchemaNode:
    """One compiled node of a schema; ``type`` is empty when any type is allowed."""

    type: str = ""
    properties: dict[str, SchemaNode] = field(default_factory=dict[str, "SchemaNode"])
    additional: SchemaNode | None = None
    items: SchemaNode | None = None
    preserve: bool = False
    embedded: bool = False
    int_or_string: bool = False
    nullable: bool = False
    required: tuple[str, ...] = ()
    enum: list[Any] = field(default_factory=list[Any])
    format: str = ""
    pattern: re.Pattern[str] | None = None
    pattern_text: str = ""
    limits: dict[str, Any] = field(default_factory=dict[str, Any])
    default: Any = None
    list_type: str = "atomic"
    map_keys: tuple[str, ...] = ()
    atomic_map: bool = False
    merge_key: str = ""
    merge_strategy: frozenset[str] = frozenset()
    rules: tuple[Obj, ...] = ()
    branches: dict[str, list[SchemaNode]] = field(default_factory=dict[str, list["SchemaNode"]])
    description: str = ""
    has_defaults: bool = False
    has_rules: bool = False
    escaped: dict[str, str] = field(default_factory=dict[str, str])
    """The escaped names of properties in CEL rules, by property."""
    has_escaped: bool = False

    def child(self, key: str) -> SchemaNode | None:
        """Return the node of a key: a property or an additional property; None for an unknown key."""
        return self.properties.get(key) or self.additional


LIMITS = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "uniqueItems",
)


class Compiler:
    """Compiles schema documents to nodes; ``definitions`` are the targets of ``$ref``."""

    def __init__(self, definitions: dict[str, Obj] | None = None) -> None:
        self._definitions = definitions or {}
        self._named: dict[str, SchemaNode] = {}

    def named(self, name: str) -> SchemaNode:
        """Return the node of a definition; recursive definitions share one node."""
        node = self._named.get(name)
        if node is None:
            node = self._named[name] = SchemaNode()
            self._fill(node, self._definitions[name])
        return node

    def compile(self, schema: Obj) -> SchemaNode:
        """Return the node of a schema document."""
        node = SchemaNode()
        self._fill(node, schema)
        return node

    def _fill(self, node: SchemaNode, schema: Obj) -> None:
        ref = schema.get("$ref")
        if isinstance(ref, str):
            name = ref.rpartition("/")[2]
            schema = {**self._definitions[name], **{k: v for k, v in schema.items() if k != "$ref"}}
        node.type = schema.get("type", "")
        node.description = schema.get("description", "")
        node.format = schema.get("format", "")
        node.preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        node.embedded = bool(schema.get("x-kubernetes-embedded-resource"))
        node.int_or_string = bool(schema.get("x-kubernetes-int-or-string")) or node.format == "int-or-string"
        node.nullable = bool(schema.get("nullable"))
        node.required = tuple(schema.get("required") or ())
        node.enum = list(schema.get("enum") or ())
        if schema.get("pattern"):
            node.pattern, node.pattern_text = compile_pattern(schema["pattern"]), schema["pattern"]
        node.limits = {name: schema[name] for name in LIMITS if schema.get(name) is not None}
        node.default = schema.get("default")
        self._fill_merging(node, schema)
        self._fill_children(node, schema)

    def _fill_merging(self, node: SchemaNode, schema: Obj) -> None:
        node.list_type = schema.get("x-kubernetes-list-type") or "atomic"
        node.map_keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        node.atomic_map = schema.get("x-kubernetes-map-type") == "atomic"
        node.merge_key = schema.get("x-kubernetes-patch-merge-key") or ""
        node.merge_strategy = frozenset((schema.get("x-kubernetes-patch-strategy") or "").split(",")) - {""}
        node.rules = tuple(schema.get("x-kubernetes-validations") or ())
        node.has_rules = bool(node.rules)
        node.has_defaults = node.default is not None

    def _fill_children(self, node: SchemaNode, schema: Obj) -> None:
        for name, sub in (schema.get("properties") or {}).items():
            node.properties[name] = self.compile_or_named(sub)
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            node.additional = self.compile_or_named(extra)
        elif extra is True:
            node.additional = SchemaNode(preserve=True)
        if isinstance(schema.get("items"), dict):
            node.items = self.compile_or_named(schema["items"])
        for keyword in ("allOf", "anyOf", "oneOf"):
            if schema.get(keyword):
                node.branches[keyword] = [self.compile(sub) for sub in schema[keyword]]
        if isinstance(schema.get("not"), dict):
            node.branches["not"] = [self.compile(schema["not"])]
        below = [*node.properties.values(), *(sub for sub in (node.additional, node.items) if sub)]
        node.has_defaults = node.has_defaults or any(sub.has_defaults for sub in below)
        node.has_rules = node.has_rules or any(sub.has_rules for sub in below)
        node.escaped = {name: text for name in node.properties if (text := escape(name)) != name}
        node.has_escaped = bool(node.escaped) or any(sub.has_escaped for sub in below)

    def compile_or_named(self, schema: Obj) -> SchemaNode:
        """Return the shared node of a plain ``$ref``, or a new node when there are keywords next to it."""
        ref = schema.get("$ref")
        if isinstance(ref, str) and not any(key.startswith("x-") or key == "default" for key in schema):
            return self.named(ref.rpartition("/")[2])
        return self.compile(schema)
