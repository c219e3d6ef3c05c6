"""What does a protobuf body say? Some kubectl commands send nothing else.

In: the Kubernetes envelope (four bytes of prefix and a ``runtime.Unknown``). Out: the object as JSON would have it.
The field numbers stand beside the schemas (``x-protobuf``), so one small reader knows every built-in kind. Answers
are always JSON.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast

from fairlead.apiserver.failure import bad_request
from fairlead.apiserver.objects import Obj, decode

MAGIC = b"k8s\x00"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_REF = "#/definitions/"
# Go writes empty texts always, and these numbers also when they are not set.
_ABSENT = dict.fromkeys(("nodePort", "healthCheckNodePort", "generation", "hostPort"), (None, 0))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (number, value) of a message: numbers for varints and fixed ones, bytes for the rest."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise IndexError(size)
            yield number, data[at : at + size]
            at += size
        elif wire in {1, 5}:
            size = 8 if wire == 1 else 4
            yield number, data[at : at + size]
            at += size
        else:
            raise ValueError(wire)


class ProtobufReader:
    """Reads bodies by the definitions of one server."""

    def __init__(self, definitions: dict[str, Obj]) -> None:
        self._definitions = definitions
        self._kinds: dict[tuple[str, str], str] = {}
        for name, definition in definitions.items():
            for gvk in definition.get("x-kubernetes-group-version-kind") or ():
                group_version = f"{gvk['group']}/{gvk['version']}" if gvk["group"] else gvk["version"]
                self._kinds[group_version, gvk["kind"]] = name

    def read(self, body: bytes) -> Obj:
        """Return the object in ``body``; raises 400."""
        try:
            return self._envelope(body)
        except (IndexError, ValueError, struct.error, UnicodeDecodeError) as error:
            raise bad_request(f"unable to decode the protobuf body: {error}") from error

    def _envelope(self, body: bytes) -> Obj:
        if not body.startswith(MAGIC):
            raise ValueError("it does not start with the Kubernetes prefix")
        api_version = kind = ""
        raw = b""
        for number, value in fields(body[len(MAGIC) :]):
            if number == 1 and isinstance(value, bytes):
                for inner, text in fields(value):
                    if isinstance(text, bytes) and inner == 1:
                        api_version = text.decode()
                    elif isinstance(text, bytes) and inner == 2:
                        kind = text.decode()
            elif number == 2 and isinstance(value, bytes):
                raw = value
        name = self._kinds.get((api_version, kind))
        if kind == "DeleteOptions":
            name = _META + "DeleteOptions"
        if name is None:
            raise ValueError(f"the kind {kind!r} of {api_version!r} is not known here; send JSON")
        return {"kind": kind, "apiVersion": api_version} | self._message(raw, name)

    def _message(self, data: bytes, name: str) -> Obj:
        definition = self._definitions[name]
        found: Obj = {}
        self._fill(found, data, definition.get("x-protobuf") or {}, definition.get("properties") or {})
        return found

    def _fill(self, found: Obj, data: bytes, table: Obj, properties: Obj) -> None:
        for number, value in fields(data):
            entry = table.get(str(number))
            if isinstance(entry, dict):
                self._fill(found, cast("bytes", value), cast("Obj", entry), properties)
                continue
            schema = cast("Obj", properties.get(entry) or {}) if entry else {}
            if not schema or entry is None:
                continue
            if schema.get("type") == "array":
                found.setdefault(entry, []).append(self._value(value, cast("Obj", schema["items"])))
            elif isinstance(schema.get("additionalProperties"), dict):
                key, item = self._pair(cast("bytes", value), cast("Obj", schema["additionalProperties"]))
                found.setdefault(entry, {})[key] = item
            elif (read := self._value(value, schema)) not in _ABSENT.get(entry, (None, "")):
                found[entry] = read

    def _pair(self, data: bytes, schema: Obj) -> tuple[str, Any]:
        key, item = "", self._value(b"", schema)
        for number, value in fields(data):
            if number == 1:
                key = cast("bytes", value).decode()
            elif schema.get("type") == "array":
                # Lists in maps are wrapped in a message of their own.
                item = [self._value(inner, cast("Obj", schema["items"])) for _, inner in fields(cast("bytes", value))]
            else:
                item = self._value(value, schema)
        return key, item

    def _value(self, value: int | bytes, schema: Obj) -> Any:
        ref = schema.get("$ref")
        if isinstance(ref, str):
            return self._referenced(cast("bytes", value), ref.removeprefix(_REF))
        kind = schema.get("type")
        if isinstance(value, int):
            if kind == "boolean":
                return bool(value)
            return value - (1 << 64) if value >> 63 else value
        if kind == "number":
            return struct.unpack("<d" if len(value) == 8 else "<f", value)[0]
        if schema.get("format") == "byte":
            return base64.b64encode(value).decode()
        return value.decode()

    def _referenced(self, data: bytes, name: str) -> Any:
        short = name.rpartition(".")[2]
        parts = dict(fields(data))
        if name in {_META + "Time", _META + "MicroTime"}:
            return _time(parts, micro=short == "MicroTime")
        if short == "Quantity":
            return cast("bytes", parts.get(1, b"")).decode()
        if short == "IntOrString":
            return cast("bytes", parts.get(3, b"")).decode() if parts.get(1) else parts.get(2, 0)
        if short in {"FieldsV1", "RawExtension", "JSON"}:
            return decode(cast("bytes", parts.get(1, b"null")))
        return self._message(data, name)


def _time(parts: dict[int, Any], *, micro: bool) -> str | None:
    if not parts.get(1):
        return None
    moment = datetime.fromtimestamp(parts[1], UTC)
    if micro:
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(parts.get(2, 0)) // 1000:06d}Z"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
