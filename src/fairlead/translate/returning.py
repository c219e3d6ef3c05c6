"""The health of one member of a GlobalService over time: down at once, and back only with care.

    up ──no healthy endpoint─────► down ──healthy──► waiting ──returnDelay──► ramping ──returnRamp──► up
                                     ▲                  │                        │
                                     └──── not healthy ─┴────────────────────────┘

A member that waits is the last resort: it gets connections when no other member has a healthy endpoint. While it ramps,
its part of its share grows from a tenth to the whole. A member that falls back ``FLAPS`` times in ``WINDOW_S`` flaps,
until it is up again. A member that was never healthy has nothing to return from.

In: what proxies see of the member, at increasing times. Out: ``Returning``, and when the next step is due. Pure.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from fairlead.api.globalservice import GlobalMember, GlobalMemberStatus
from fairlead.model.observed import MemberSeen
from fairlead.translate.view import Returning

#: So many relapses within so many seconds are flapping.
FLAPS = 3
WINDOW_S = 60.0
#: The part of its share with which a ramp begins.
FIRST_PART = 0.1
#: The steps of a ramp.
_STEPS = 12


class MemberReturn(msgspec.Struct):
    """The recent health of one member.

    ``limited``: it is down by its minHealthyPercent; ``checked``: a proxy has reported its health to this process.
    """

    state: Literal["new", "up", "down", "waiting", "ramping"] = "new"
    since_s: float = 0.0
    limited: bool = False
    flaps: bool = False
    checked: bool = False
    relapses_s: list[float] = []

    @classmethod
    def recorded(cls, status: GlobalMemberStatus, member: GlobalMember, *, now_s: float) -> MemberReturn:
        """Return the health of a member whose status an earlier process has written."""
        state = status.state
        if state in {"Down", "Flapping"}:
            return cls("down", now_s, limited=bool(member.min_healthy_percent), flaps=state == "Flapping")
        if state == "NoEndpoints" and status.served:
            return cls("down", now_s)
        if state == "Returning":
            return cls("ramping", now_s)
        return cls("up" if status.served else "new")

    def see(
        self, member: GlobalMember, seen: MemberSeen | None, *, now_s: float, delay_s: float, ramp_s: float
    ) -> float | None:
        """Take in what proxies see now; return in how many seconds the next step is due, None for never.

        The proxy that sees most endpoints healthy counts: one that alone reaches too few uses other members by itself.
        """
        limit = member.min_healthy_percent
        if self.limited and not limit:
            # The member was down by a limit that no longer applies.
            self.state, self.limited, self.flaps = "up", False, False
        if seen is None or not seen.known:
            if self.state == "waiting":
                self.since_s = now_s
            return delay_s if self.state == "waiting" else self._due_s(now_s, delay_s, ramp_s)
        self.checked = True
        self.limited = 100 * seen.healthy < limit * seen.known
        if not seen.healthy or self.limited:
            self._fall(now_s)
            return None
        if self.state == "down":
            self.state, self.since_s = "waiting", now_s
        if self.state == "waiting" and now_s - self.since_s >= delay_s:
            self.state, self.since_s = "ramping", now_s
        if self.state == "new" or (self.state == "ramping" and now_s - self.since_s >= ramp_s):
            self.state, self.flaps, self.relapses_s = "up", False, []
        return self._due_s(now_s, delay_s, ramp_s)

    def lose_endpoints(self, now_s: float) -> None:
        """Take in that the member has no endpoint: those that it gets later return with care as well.

        Where nothing checks endpoints, a member could never be seen to be healthy again.
        """
        if self.checked:
            self.limited = False
            self._fall(now_s)

    def _fall(self, now_s: float) -> None:
        if self.state in {"waiting", "ramping"}:
            self.relapses_s = [at_s for at_s in self.relapses_s if now_s - at_s < WINDOW_S] + [now_s]
            self.flaps = self.flaps or len(self.relapses_s) >= FLAPS
        if self.state != "new" or self.limited:
            self.state, self.since_s = "down", now_s

    def returning(self, *, now_s: float, ramp_s: float) -> Returning | None:
        """Return how much of its share the member gets, None for all of it."""
        if self.state in {"new", "up"}:
            return None
        if self.state == "ramping" and ramp_s:
            step = int(_STEPS * min(1.0, (now_s - self.since_s) / ramp_s))
            return Returning(FIRST_PART + (1 - FIRST_PART) * step / _STEPS)
        return Returning(0.0, flaps=self.flaps)

    def _due_s(self, now_s: float, delay_s: float, ramp_s: float) -> float | None:
        if self.state == "waiting":
            return max(0.1, self.since_s + delay_s - now_s)
        return max(0.1, ramp_s / _STEPS) if self.state == "ramping" else None
