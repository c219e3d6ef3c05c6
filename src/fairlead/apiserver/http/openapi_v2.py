"""The OpenAPI v2 document as protobuf: the operations that patch, and no more.

kubectl reads it only to learn whether the server checks fields itself, when the v3 document does not name a kind.
In: the served kinds. Out: the bytes of ``openapi.v2.Document`` (paths, no definitions).
Source: https://github.com/google/gnostic-models/blob/main/openapiv2/OpenAPIv2.proto
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from google.protobuf.message import Message

from fairlead.apiserver.http.messages import ProtoField, message_classes
from fairlead.apiserver.kinds.kind import Kind
from fairlead.apiserver.objects import Obj

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
# Go cannot parse an "@" in the media type of an answer, so it is written with a dot there, as real servers do.
ANSWER_TYPE = MEDIA_TYPE.replace("@", ".")
_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force")
_MESSAGES = {
    "Document": (
        ProtoField(1, "swagger"),
        ProtoField(2, "info", "Info"),
        ProtoField(8, "paths", "Paths"),
        ProtoField(9, "definitions", "Definitions"),
    ),
    "Info": (ProtoField(1, "title"), ProtoField(2, "version")),
    "Paths": (ProtoField(2, "path", "NamedPathItem", repeated=True),),
    "NamedPathItem": (ProtoField(1, "name"), ProtoField(2, "value", "PathItem")),
    "PathItem": (ProtoField(8, "patch", "Operation"),),
    "Operation": (
        ProtoField(8, "parameters", "ParametersItem", repeated=True),
        ProtoField(13, "vendor_extension", "NamedAny", repeated=True),
    ),
    "ParametersItem": (ProtoField(1, "parameter", "Parameter"),),
    "Parameter": (ProtoField(2, "non_body_parameter", "NonBodyParameter"),),
    "NonBodyParameter": (ProtoField(3, "query", "QueryParameter"),),
    "QueryParameter": (ProtoField(2, "in"), ProtoField(4, "name"), ProtoField(6, "type")),
    "NamedAny": (ProtoField(1, "name"), ProtoField(2, "value", "Any")),
    "Any": (ProtoField(2, "yaml"),),
    "Definitions": (),
}


@cache
def _document_class() -> type[Message]:
    return message_classes(_MESSAGES)["Document"]


def _parameter(name: str) -> Obj:
    query = {"in": "query", "name": name, "type": "string"}
    return {"parameter": {"non_body_parameter": {"query": query}}}


def _path(kind: Kind) -> Obj:
    gvk = f"group: {kind.group!r}\nkind: {kind.kind}\nversion: {kind.version}\n"
    extension = {"name": "x-kubernetes-group-version-kind", "value": {"yaml": gvk}}
    operation = {"parameters": [_parameter(name) for name in _PARAMETERS], "vendor_extension": [extension]}
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    return {"name": f"{kind.prefix}{scope}/{kind.plural}/{{name}}", "value": {"patch": operation}}


def v2_protobuf(kinds: Iterable[Kind]) -> bytes:
    """Return the document for ``kinds``."""
    info, paths = {"title": "Fairlead", "version": "v1"}, {"path": [_path(kind) for kind in kinds]}
    document = _document_class()(swagger="2.0", info=info, paths=paths, definitions={})
    return document.SerializeToString(deterministic=True)
