"""Read protobuf bodies, which some kubectl commands send.

In: the Kubernetes envelope (four bytes of prefix and a ``runtime.Unknown``). Out: the object as JSON would have it.
The field numbers are with the schemas (``x-protobuf``). There is no generated code: the message classes of all built-in
kinds are built from the schemas when the first such body arrives. Never writes protobuf: responses are JSON.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple, cast

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from podless.failure import bad_request
from podless.objects import Obj, decode

_Proto = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "string": _Proto.TYPE_STRING,
    "bytes": _Proto.TYPE_BYTES,
    "bool": _Proto.TYPE_BOOL,
    "int32": _Proto.TYPE_INT32,
    "int64": _Proto.TYPE_INT64,
    "double": _Proto.TYPE_DOUBLE,
}


class ProtoField(NamedTuple):
    """One field; ``type`` is a key of ``SCALARS`` or the name of another message of the same tables."""

    number: int
    name: str
    type: str = "string"
    repeated: bool = False


def message_classes(messages: Mapping[str, Iterable[ProtoField]]) -> dict[str, type[Message]]:
    """Return one proto2 message class for each name."""
    file = descriptor_pb2.FileDescriptorProto(name="tables.proto", syntax="proto2")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field in fields:
            label = _Proto.LABEL_REPEATED if field.repeated else _Proto.LABEL_OPTIONAL
            proto = message.field.add(name=field.name, number=field.number, label=label)
            proto.type = SCALARS.get(field.type, _Proto.TYPE_MESSAGE)
            if field.type not in SCALARS:
                proto.type_name = f".{field.type}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClassesForFiles([file.name], pool)


MAGIC = b"k8s\x00"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_UNKNOWN, _ENTRY, _LIST, _INLINE = "Unknown", "Entry_", "List_", "inline_"
_RAW, _TIME = (ProtoField(1, "raw", "bytes"),), (ProtoField(1, "seconds", "int64"), ProtoField(2, "nanos", "int32"))
#: The envelope, and the messages that are one scalar in JSON.
_MESSAGES: dict[str, tuple[ProtoField, ...]] = {
    _UNKNOWN: (ProtoField(1, "typeMeta", "TypeMeta"), ProtoField(2, "raw", "bytes")),
    "TypeMeta": (ProtoField(1, "apiVersion"), ProtoField(2, "kind")),
    "Time": _TIME,
    "MicroTime": _TIME,
    "Quantity": (ProtoField(1, "string"),),
    "IntOrString": (ProtoField(1, "type", "int64"), ProtoField(2, "intVal", "int32"), ProtoField(3, "strVal")),
    "FieldsV1": _RAW,
    "RawExtension": _RAW,
    "JSON": _RAW,
}
_SCALARS = {("string", "byte"): "bytes", ("integer", "int32"): "int32"}
_SCALARS_BY_TYPE = {"boolean": "bool", "integer": "int64", "number": "double"}
# Go always writes empty strings, and these numbers even when they are unset.
_ABSENT: dict[str, tuple[Any, ...]] = dict.fromkeys(
    ("nodePort", "healthCheckNodePort", "generation", "hostPort"), (None, 0)
)


class ProtobufReader:
    """Decodes protobuf bodies by the definitions of one server."""

    def __init__(self, definitions: dict[str, Obj]) -> None:
        self._definitions = definitions
        self._kinds: dict[tuple[str, str], str] = {}
        for name, definition in definitions.items():
            for gvk in definition.get("x-kubernetes-group-version-kind") or ():
                group_version = f"{gvk['group']}/{gvk['version']}" if gvk["group"] else gvk["version"]
                self._kinds[group_version, gvk["kind"]] = name

    @cached_property
    def _classes(self) -> dict[str, type[Message]]:
        messages = {
            message: fields
            for name, definition in self._definitions.items()
            for message, fields in _tables(
                _message_name(name), definition.get("x-protobuf") or {}, definition.get("properties") or {}
            )
        }
        return message_classes(messages | _MESSAGES)

    def read(self, body: bytes) -> Obj:
        """Return the object in ``body``; raises 400."""
        try:
            if not body.startswith(MAGIC):
                raise ValueError("the body does not start with the Kubernetes prefix")
            envelope: Any = self._classes[_UNKNOWN].FromString(body[len(MAGIC) :])
            api_version, kind = envelope.typeMeta.apiVersion, envelope.typeMeta.kind
            name = _META + kind if kind == "DeleteOptions" else self._kinds.get((api_version, kind))
            if name is None:
                raise ValueError(f"the kind {kind!r} of {api_version!r} is not known here; send JSON")
            message = self._classes[_message_name(name)].FromString(envelope.raw)
            return {"kind": kind, "apiVersion": api_version} | _object(message)
        except (DecodeError, ValueError, OverflowError, OSError, RecursionError, msgspec.DecodeError) as error:
            raise bad_request(f"unable to decode the protobuf body: {error}") from error


def _message_name(definition: str) -> str:
    short = definition.rpartition(".")[2]
    return short if short in _MESSAGES else definition.replace(".", "_").replace("-", "_")


def _tables(message: str, table: Obj, properties: Obj) -> Iterator[tuple[str, tuple[ProtoField, ...]]]:
    """Yield the fields of a message and of the messages that it needs: map entries, and those inlined in JSON."""
    fields: list[ProtoField] = []
    for number, name in table.items():
        part = f"{message}_{number}"
        if isinstance(name, dict):
            fields.append(ProtoField(int(number), _INLINE + number, part))
            yield from _tables(part, cast("Obj", name), properties)
        elif schema := cast("Obj", properties.get(name) or {}):
            values = cast("Obj", schema.get("additionalProperties") or {})
            items = cast("Obj", (values or schema).get("items") or {})
            type_ = _type(items or values or schema)
            if values and items:
                yield _LIST + part, (ProtoField(1, "items", type_, repeated=True),)
                type_ = _LIST + part
            if values:
                yield _ENTRY + part, (ProtoField(1, "key"), ProtoField(2, "value", type_))
                type_ = _ENTRY + part
            fields.append(ProtoField(int(number), name, type_, repeated=bool(values or items)))
    yield message, tuple(fields)


def _type(schema: Obj) -> str:
    """Return the protobuf type of one value."""
    if ref := schema.get("$ref"):
        return _message_name(str(ref).removeprefix("#/definitions/"))
    kind = str(schema.get("type"))
    return _SCALARS.get((kind, str(schema.get("format")))) or _SCALARS_BY_TYPE.get(kind, "string")


def _object(message: Message) -> Obj:
    obj: Obj = {}
    for field, value in message.ListFields():
        if field.name.startswith(_INLINE):
            obj |= _object(value)
        elif field.message_type is not None and field.message_type.name.startswith(_ENTRY):
            obj[field.name] = {pair.key: _json(pair.value) for pair in value}
        elif (read := _json(value)) not in _ABSENT.get(field.name, (None, "")):
            obj[field.name] = read
    return obj


def _json(value: Any) -> Any:
    """Return one value, or a list of them, as JSON has it."""
    if isinstance(value, Message):
        if value.DESCRIPTOR.name.startswith(_LIST):
            return list(cast("Any", value).items)
        return _AS_JSON.get(value.DESCRIPTOR.name, _object)(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value if isinstance(value, (str, int, float)) else [_json(item) for item in value]


def _time(value: Any, digits: str = "") -> str | None:
    moment = datetime.fromtimestamp(value.seconds, UTC)
    return moment.strftime(f"%Y-%m-%dT%H:%M:%S{digits}Z") if value.seconds else None


def _raw(value: Any) -> Any:
    return decode(value.raw or b"null")


_AS_JSON: dict[str, Callable[[Any], Any]] = {
    "Time": _time,
    "MicroTime": lambda value: _time(value, f".{value.nanos // 1000:06d}"),
    "Quantity": lambda value: value.string,
    "IntOrString": lambda value: value.strVal if value.type else value.intVal,
    "FieldsV1": _raw,
    "RawExtension": _raw,
    "JSON": _raw,
}
