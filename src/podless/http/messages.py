"""Build protobuf message classes at run time from tables of fields, where no generated code exists.

In: fields by message name. Out: classes of the ``protobuf`` package, in a descriptor pool of their own. Never reads or
writes bytes itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

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
