"""Conflicts between listeners that cannot be served together.

    HTTP            one listener for each hostname of a port
    HTTPS and TLS   the same together
    TCP, UDP        one listener for each port

Within a Gateway all that exclude each other are refused. Between a Gateway and its ListenerSets, and within and
between these, the first one is served. In: listeners in order of precedence. Out: reasons. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

ConflictReason = Literal["HostnameConflict", "ProtocolConflict"]

_FAMILIES = {"HTTP": "HTTP", "HTTPS": "TLS", "TLS": "TLS", "TCP": "TCP", "UDP": "UDP"}
_ONE_PER_PORT = frozenset({"TCP", "UDP"})


class Opening(NamedTuple):
    """The port that a listener of a known protocol opens; ``hostname`` empty is every host."""

    port: int
    protocol: str
    hostname: str

    @property
    def family(self) -> str:
        """Return which protocols it can share its port with."""
        return _FAMILIES[self.protocol]

    @property
    def place(self) -> tuple[int, bool]:
        """Return the port number with its kind: TCP and UDP have numbers of their own."""
        return self.port, self.protocol == "UDP"


def conflicts_within(openings: Sequence[Opening]) -> list[ConflictReason | None]:
    """Return for each listener of one Gateway why it is refused, None for those that no other excludes."""
    families: dict[tuple[int, bool], Counter[str]] = {}
    for each in openings:
        families.setdefault(each.place, Counter())[each.family] += 1
    hosts = Counter((each.place, each.hostname.lower()) for each in openings)

    def reason(each: Opening) -> ConflictReason | None:
        family = families[each.place]
        if len(family) > 1 or (each.family in _ONE_PER_PORT and family[each.family] > 1):
            return "ProtocolConflict"
        return "HostnameConflict" if hosts[each.place, each.hostname.lower()] > 1 else None

    return [reason(each) for each in openings]


class Precedence:
    """The places that are taken: who comes first has them."""

    def __init__(self, openings: Iterable[Opening]) -> None:
        self._families: dict[tuple[int, bool], str] = {}
        self._hosts: set[tuple[tuple[int, bool], str]] = set()
        for each in openings:
            self.take(each)

    def take(self, opening: Opening) -> ConflictReason | None:
        """Take the place of a listener; return why that is not possible, None when it was."""
        place, host = opening.place, (opening.place, opening.hostname.lower())
        family = self._families.setdefault(place, opening.family)
        taken = host in self._hosts
        if family != opening.family or (taken and opening.family in _ONE_PER_PORT):
            return "ProtocolConflict"
        if taken:
            return "HostnameConflict"
        self._hosts.add(host)
        return None
