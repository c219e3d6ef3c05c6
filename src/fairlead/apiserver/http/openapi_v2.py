"""What does a client get that asks for OpenAPI v2 as protobuf? The operations that patch, and no more.

kubectl reads this document only to learn whether the server checks fields itself, when the v3 document does not
name a kind.
In: the served kinds. Out: the bytes of ``openapi.v2.Document`` (paths, no definitions).
Source: https://github.com/google/gnostic-models/blob/main/openapiv2/OpenAPIv2.proto
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.apiserver.kinds.kind import Kind

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
# Go cannot parse an "@" in the media type of an answer, so it is written with a dot there, as real servers do.
ANSWER_TYPE = MEDIA_TYPE.replace("@", ".")
_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force")


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _field(number: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _parameter(name: str) -> bytes:
    query = _field(2, "query") + _field(4, name) + _field(6, "string")
    return _field(8, _field(1, _field(2, _field(3, query))))


def _path(kind: Kind) -> bytes:
    gvk = f"group: {kind.group!r}\nkind: {kind.kind}\nversion: {kind.version}\n"
    extension = _field(13, _field(1, "x-kubernetes-group-version-kind") + _field(2, _field(2, gvk)))
    operation = b"".join(_parameter(name) for name in _PARAMETERS) + extension
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    name = f"{kind.prefix}{scope}/{kind.plural}/{{name}}"
    return _field(2, _field(1, name) + _field(2, _field(8, operation)))


def v2_protobuf(kinds: Iterable[Kind]) -> bytes:
    """Return the document for ``kinds``."""
    info = _field(1, "Fairlead") + _field(2, "v1")
    paths = b"".join(_path(kind) for kind in kinds)
    return _field(1, "2.0") + _field(2, info) + _field(8, paths) + _field(9, b"")
