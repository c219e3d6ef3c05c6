"""Messages of Envoy as JSON, for golden files and for tests that look into one."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format

from fairlead.providers.envoy.resources import Schema


def to_json(schema: Schema, type_name: str, encoded: bytes) -> dict[str, Any]:
    """Return the fields of a message, by their names in the schema."""
    message = schema._class(type_name).FromString(encoded)
    return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=schema._pool)
