"""OpenAPI v3 documents of the served kinds per group version, and a v2 one.

kubectl reads them to learn that the server checks fields (``fieldValidation``), for strategic merge patches and for
``explain``. Documents are made on demand and kept until a CRD changes.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, cast

from podless.kinds.catalog import Catalog
from podless.kinds.kind import Kind
from podless.objects import Obj, encode
from podless.schema.builtin import BuiltinSchemas

_V2, _V3 = "#/definitions/", "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_METHODS = ("get", "put", "post", "patch", "delete")
_OPTIONS = ("dryRun", "fieldManager", "fieldValidation")


def references(node: Any) -> set[str]:
    """Return the names of the definitions that a document references."""
    if isinstance(node, list):
        return {ref for item in cast("list[Any]", node) for ref in references(item)}
    if not isinstance(node, dict):
        return set()
    mapping = cast("Obj", node)
    ref = mapping.get("$ref")
    own = {ref.rpartition("/")[2]} if isinstance(ref, str) else set[str]()
    return own.union(*(references(value) for value in mapping.values()))


def _rebased(node: Any, prefix: str) -> Any:
    """Return a document whose ``$ref`` point below ``prefix``, without the extensions of this server."""
    if isinstance(node, list):
        return [_rebased(item, prefix) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    mapping = cast("Obj", node)
    if isinstance(ref := mapping.get("$ref"), str):
        target: Obj = {"$ref": prefix + ref.rpartition("/")[2]}
        rest = {key: _rebased(value, prefix) for key, value in mapping.items() if key != "$ref"}
        return rest | ({"allOf": [target]} if rest and prefix == _V3 else target)
    return {key: _rebased(value, prefix) for key, value in mapping.items() if key != "x-protobuf"}


class OpenApi:
    """Builds and caches the OpenAPI documents of one server."""

    def __init__(self, catalog: Catalog, schemas: BuiltinSchemas) -> None:
        self._catalog = catalog
        self._schemas = schemas
        self._made: dict[str, bytes] = {}
        self._generation = -1

    def index(self) -> Obj:
        """Return the index of ``/openapi/v3``: the URL of each document."""
        paths = {"api/v1": "/openapi/v3/api/v1"}
        for group, versions in self._catalog.groups().items():
            paths |= {f"apis/{group}/{version}": f"/openapi/v3/apis/{group}/{version}" for version in versions}
        return {"paths": {path: {"serverRelativeURL": f"{url}?hash={self._hash(path)}"} for path, url in paths.items()}}

    def _hash(self, path: str) -> str:
        body = self.v3(path)
        return sha256(body or b"").hexdigest()[:32].upper()

    def v3(self, path: str) -> bytes | None:
        """Return the document of ``api/v1`` or ``apis/group/version``, or None."""
        self._refresh()
        if path in self._made:
            return self._made[path]
        parts = path.split("/")
        group, version = ("", parts[1]) if parts[0] == "api" and len(parts) == 2 else (*parts[1:], "", "")[:2]
        kinds = [kind for kind in self._catalog.all() if (kind.group, kind.version) == (group, version)]
        if not kinds and version not in self._catalog.groups().get(group, []):
            return None
        body = self._made[path] = encode(self._document(kinds))
        return body

    def v2(self) -> bytes:
        """Return the document of ``/openapi/v2`` as JSON."""
        self._refresh()
        if "v2" not in self._made:
            names: set[str] = set()
            paths: Obj = {}
            definitions: Obj = {}
            for kind in self._catalog.all():
                definitions[_name(kind)] = self._definition(kind, _V2)
                names |= references(definitions[_name(kind)])
                paths |= _paths(kind, lambda ref: {"schema": {"$ref": _V2 + ref}})
            definitions |= self._closure(names - definitions.keys(), _V2)
            head: Obj = {"swagger": "2.0", "info": {"title": "Fairlead", "version": "v1"}}
            self._made["v2"] = encode(head | {"paths": paths, "definitions": definitions})
        return self._made["v2"]

    def _refresh(self) -> None:
        if self._generation != self._catalog.generation:
            self._made.clear()
            self._generation = self._catalog.generation

    def _document(self, kinds: list[Kind]) -> Obj:
        schemas: Obj = {}
        names: set[str] = {_META + "DeleteOptions"}
        paths: Obj = {}
        for kind in kinds:
            schemas[_name(kind)] = self._definition(kind, _V3)
            schemas[_name(kind) + "List"] = _list_schema(kind)
            names |= references(schemas[_name(kind)]) | {_META + "ListMeta"}
            paths |= _paths(kind, _content)
        schemas |= self._closure(names - schemas.keys(), _V3)
        head: Obj = {"openapi": "3.0.0", "info": {"title": "Fairlead", "version": "v1"}}
        return head | {"paths": paths, "components": {"schemas": schemas}}

    def _closure(self, names: set[str], prefix: str) -> Obj:
        closure: Obj = {}
        pending = sorted(names)
        while pending:
            name = pending.pop()
            if name not in closure and name in self._schemas.definitions:
                closure[name] = _rebased(self._schemas.definitions[name], prefix)
                pending += sorted(references(closure[name]))
        return closure

    def _definition(self, kind: Kind, prefix: str) -> Obj:
        if kind.built_in:
            definition = dict(cast("Obj", _rebased(self._schemas.definitions[kind.definition], prefix)))
        else:
            definition = dict(kind.schema)
            meta: Obj = {"$ref": prefix + _META + "ObjectMeta"}
            properties: Obj = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
            properties["metadata"] = {"allOf": [meta]} if prefix == _V3 else meta
            definition["properties"] = {
                **properties,
                **{k: v for k, v in (kind.schema.get("properties") or {}).items() if k not in properties},
            }
        definition["x-kubernetes-group-version-kind"] = [_gvk(kind)]
        return definition


def _gvk(kind: Kind) -> Obj:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _name(kind: Kind) -> str:
    """Return the name of a kind's schema: the group of a CRD in reverse DNS order, as in Kubernetes."""
    if kind.definition:
        return kind.definition
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def _list_schema(kind: Kind) -> Obj:
    properties: Obj = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    properties["items"] = {"type": "array", "items": {"$ref": _V3 + _name(kind)}}
    properties["metadata"] = {"$ref": _V3 + _META + "ListMeta"}
    gvk = _gvk(kind) | {"kind": kind.list_kind}
    return {"type": "object", "properties": properties, "x-kubernetes-group-version-kind": [gvk]}


def _content(ref: str) -> Obj:
    return {"content": {"application/json": {"schema": {"$ref": _V3 + ref}}}}


def _paths(kind: Kind, content: Any) -> Obj:
    base = kind.prefix + ("/namespaces/{namespace}" if kind.namespaced else "") + f"/{kind.plural}"
    paths: Obj = {base: {}, base + "/{name}": {}}
    for method in _METHODS:
        where = base if method == "post" else base + "/{name}"
        operation: Obj = {"x-kubernetes-action": method, "x-kubernetes-group-version-kind": _gvk(kind)}
        if method in {"put", "post", "patch"}:
            operation["parameters"] = [
                {"name": name, "in": "query", "schema": {"type": "string"}, "uniqueItems": True} for name in _OPTIONS
            ]
        operation["responses"] = {"200": {"description": "OK"} | content(_name(kind))}
        paths[where][method] = operation
    return paths
