"""The schemas of the built-in kinds: data that ships with the package, compiled on demand.

In: ``kubernetes.json`` (see ``refresh.py``). Out: nodes by definition name, and the raw definitions for OpenAPI.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

from podless.objects import Obj, decode, encode
from podless.schema.node import Compiler, SchemaNode

META = "io.k8s.apimachinery.pkg.apis.meta.v1."
APIEXT = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
OPAQUE = (META + "FieldsV1", APIEXT + "JSON", APIEXT + "JSONSchemaPropsOrBool", APIEXT + "JSONSchemaPropsOrArray")


class BuiltinSchemas:
    """The definitions and their compiled nodes: all servers of a process share them, and nothing changes them."""

    def __init__(self) -> None:
        self.definitions = _read()
        self._compiler = _compiler()

    def node(self, definition: str) -> SchemaNode:
        """Return the compiled schema of a definition such as ``io.k8s.api.core.v1.Service``."""
        return self._compiler.named(definition)

    def of_custom_resource(self, schema: Obj) -> SchemaNode:
        """Return the compiled schema of a CRD with apiVersion, kind and metadata; cached by content."""
        return _custom_resource(encode(schema))


@cache
def _read() -> dict[str, Obj]:
    return cast("dict[str, Obj]", decode(Path(__file__).with_name("kubernetes.json").read_bytes()))


@cache
def _compiler() -> Compiler:
    return Compiler(_adjusted(_read()))


@lru_cache(maxsize=256)
def _custom_resource(schema: bytes) -> SchemaNode:
    compiler = _compiler()
    node = compiler.compile(decode(schema))
    text = compiler.compile({"type": "string"})
    metadata = compiler.named(META + "ObjectMeta")
    node.properties = {**node.properties, "apiVersion": text, "kind": text, "metadata": metadata}
    return node


def _adjusted(raw: dict[str, Obj]) -> dict[str, Obj]:
    """Return the definitions with the constraints that the published document has only in prose."""
    schemas: dict[str, Obj] = dict(raw)
    anything: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}
    for name in OPAQUE:
        schemas[name] = anything
    schemas["io.k8s.apimachinery.pkg.runtime.RawExtension"] = {"type": "object"} | anything
    # A quantity may be a number; it is stored as it was written.
    schemas["io.k8s.apimachinery.pkg.api.resource.Quantity"] = {
        "x-kubernetes-int-or-string": True,
        "format": "quantity",
    }
    return schemas
