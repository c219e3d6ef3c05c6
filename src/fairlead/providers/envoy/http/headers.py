"""The fields that change headers.

In: a HeaderModifier of requests or responses. Out: the fields of a Route or of a weighted cluster, which have the same
names. A percent sign begins a command in Envoy, so it is doubled.
"""

from __future__ import annotations

from typing import Literal

from fairlead.model.http import Filters, HeaderModifier, HeaderValue
from fairlead.providers.envoy.schema import Fields


def header_fields(filters: Filters) -> dict[str, object]:
    """Build what changes the headers of requests and responses; empty when nothing does."""
    return {**_modifier(filters.request_headers, "request"), **_modifier(filters.response_headers, "response")}


def _modifier(modifier: HeaderModifier | None, side: Literal["request", "response"]) -> dict[str, object]:
    if modifier is None:
        return {}
    changes = [_option(header, "OVERWRITE_IF_EXISTS_OR_ADD") for header in modifier.set]
    changes += [_option(header, "APPEND_IF_EXISTS_OR_ADD") for header in modifier.add]
    fields: dict[str, object] = {}
    if changes:
        fields[f"{side}_headers_to_add"] = changes
    if modifier.remove:
        fields[f"{side}_headers_to_remove"] = list(modifier.remove)
    return fields


def _option(header: HeaderValue, action: str) -> Fields:
    return {
        "header": {"key": header.name, "value": header.value.replace("%", "%%")},
        "append_action": action,
        "keep_empty_value": True,
    }
