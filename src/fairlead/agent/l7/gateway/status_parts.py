"""The parts of a status that are ours, sorted for comparison.

In: the status of a Gateway, ListenerSet or GatewayClass, ours or as it is. Out: the same with our conditions alone,
sorted, for comparison: others may add conditions of their own, and the API server orders maps as it likes. Pure.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.api.meta import JSONObject, Wire

#: The types of conditions that we write on objects of Gateway API.
OURS = frozenset(
    {"Accepted", "Programmed", "ResolvedRefs", "Conflicted", "InsecureFrontendValidationMode", "SupportedVersion"}
)


def of_ours(status: Wire) -> JSONObject:
    """Return what of a status is compared."""
    shown: JSONObject = msgspec.to_builtins(status)
    listeners: list[JSONObject] = [{**each, **_conditions(each)} for each in shown.get("listeners") or ()]
    return {
        **{name: value for name, value in shown.items() if value not in (None, [], 0)},
        **_conditions(shown),
        "listeners": sorted(listeners, key=lambda each: str(each["name"])),
    }


def _conditions(holder: JSONObject) -> JSONObject:
    ours: list[Any] = [each for each in holder.get("conditions") or () if each["type"] in OURS]
    return {"conditions": sorted(ours, key=lambda each: str(each["type"]))}
