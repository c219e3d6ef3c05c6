"""JSON merge patch (RFC 7386): null removes, mappings merge, everything else replaces."""

from __future__ import annotations

from typing import Any, cast

from podless.objects import Obj


def merge_patch(document: Any, patch: Any) -> Any:
    """Return ``document`` with ``patch`` merged in (``document`` is consumed)."""
    if not isinstance(patch, dict):
        return patch
    target: Obj = cast("Obj", document) if isinstance(document, dict) else {}
    for key, value in cast("Obj", patch).items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            target[key] = merge_patch(target.get(key), value)
        else:
            target[key] = value
    return target
