"""Numbers in annotations of an Ingress: one that cannot be read is a loss, and reported as such."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.ingress import IngressObject
from fairlead.convert.remarks import Remarks
from fairlead.model.numbers import whole_number


def number_of(ingress: IngressObject, annotations: Mapping[str, str], name: str, default: int, remarks: Remarks) -> int:
    """Return the number in the annotation ``name``, and ``default`` when there is none."""
    text = annotations.get(name, "")
    number = whole_number(text)
    if text and number is None:
        remarks.lost(ingress, name, f"{text[:40]!r} is no number: {default} is used")
    return default if number is None else number
