"""The protocol of DNS servers that hold the records of names.

In: names, edits. Out: what is in the zone, and what the server answers. Errors are ``Retry`` (may pass) or ``Terminal``
(needs the operator), with the next step in the sentence. Never: a decision about what should be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from fairlead.providers.zones.rrsets import Edit, RRKey, RRSets


class ZoneServer(Protocol):
    """One zone at one server. ``immediate``: what was written is answered at once, so that ``kept`` is ``answers``."""

    @property
    def immediate(self) -> bool:
        """Return whether what was written is answered at once."""
        ...

    async def check(self) -> int:
        """Raise what is wrong with zone, server or credentials, as far as reading can show it; returns the serial."""
        ...

    async def serial(self) -> int:
        """Return the serial of the zone, which moves with each change of it."""
        ...

    async def read(self, keys: Iterable[RRKey]) -> RRSets:
        """Return what the zone has of ``keys``; a set without records may be left out.

        Where a CNAME is asked for, records of every other type of its name are in the answer too.
        """
        ...

    async def answers(self, keys: Iterable[RRKey]) -> RRSets:
        """Return what the server answers to a question for ``keys``."""
        ...

    async def kept(self, keys: Iterable[RRKey]) -> RRSets:
        """Return what there is of ``keys`` where they are written, by which an update is judged."""
        ...

    async def update(self, edits: Sequence[Edit], there: RRSets) -> bool:
        """Make ``edits``; False when the zone is no longer as in ``there``, and nothing was done."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
