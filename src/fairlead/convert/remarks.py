"""Remarks about a conversion: *lost* (Gateway API cannot express it) and *note* (to be checked by hand).

In: an Ingress, an annotation or field, a sentence. Out: values in the order in which they were noted.
"""

from __future__ import annotations

import msgspec

from fairlead.api.ingress import IngressObject


class Remark(msgspec.Struct, frozen=True):
    """One sentence about one Ingress; ``lost``: the converted objects do not do what the Ingress did."""

    ingress: str
    what: str
    message: str
    lost: bool

    def __str__(self) -> str:
        kind = "lost" if self.lost else "note"
        return f"{kind}: Ingress {self.ingress}: {self.what}: {self.message}"


class Remarks:
    """Collects remarks; each is there once."""

    def __init__(self) -> None:
        self._noted: dict[Remark, None] = {}

    def lost(self, ingress: IngressObject, what: str, message: str) -> None:
        """Note that something is not converted."""
        self._noted[Remark(str(ingress.key), what, message, lost=True)] = None

    def note(self, ingress: IngressObject, what: str, message: str) -> None:
        """Note something to look at, or to do by hand, where nothing is lost."""
        self._noted[Remark(str(ingress.key), what, message, lost=False)] = None

    def all(self) -> tuple[Remark, ...]:
        """Return all of them: what is lost first."""
        return tuple(sorted(self._noted, key=lambda each: not each.lost))
