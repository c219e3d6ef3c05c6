"""How each member's agent is: engaged, stale or lost, by the age of its lease.

    engaged ──40 s of silence──► stale ──5 min──► lost      any renewal ──► engaged

An unreachable member is served on from its last state; only the tenant's own ``drainWhenLost`` takes it out.
In: leases. Out: a state for each tenant namespace, and a wake-up when one changes. Ages are monotonic: only the very
first sight of a lease believes a wall clock.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from fairlead.api.durations import seconds_from_duration
from fairlead.api.kubernetes import Lease
from fairlead.api.names import AGENT_LEASE
from fairlead.api.tenant import Tenant, TenantState
from fairlead.runtime.clock import Clock
from fairlead.translate.view import MemberState

STALE_AFTER_S = 40.0
LOST_AFTER_S = 300.0
CHECK_EVERY_S = 5.0


class _Heard(msgspec.Struct):
    renew_time: str
    at_s: float


class MemberHealth:
    """The last sign of life of each agent."""

    def __init__(self, *, clock: Clock, changed: Callable[[str], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._heard: dict[str, _Heard] = {}
        self._reported: dict[str, TenantState] = {}

    def lease_changed(self, _old: Lease | None, new: Lease | None) -> None:
        """Record a renewal; a deleted lease leaves what was known."""
        if new is None or new.metadata.name != AGENT_LEASE or not new.spec.renew_time:
            return
        namespace, renewed = new.metadata.namespace, new.spec.renew_time
        heard = self._heard.get(namespace)
        if heard is None:
            age_s = max(0.0, (self._clock.now() - _time(renewed, self._clock.now())).total_seconds())
            self._heard[namespace] = _Heard(renewed, self._clock.monotonic() - age_s)
        elif heard.renew_time != renewed:
            self._heard[namespace] = _Heard(renewed, self._clock.monotonic())
        self._report(namespace)

    def age_s(self, namespace: str) -> float | None:
        """Return the seconds since the agent was heard, None when it never was."""
        heard = self._heard.get(namespace)
        return None if heard is None else self._clock.monotonic() - heard.at_s

    def last_sync(self, namespace: str) -> str:
        """Return the time of the agent's last renewal as it wrote it, empty when there is none."""
        heard = self._heard.get(namespace)
        return heard.renew_time if heard else ""

    def state(self, namespace: str) -> TenantState:
        """Return the state for the status."""
        age_s = self.age_s(namespace)
        if age_s is None:
            return "Pending"
        if age_s < STALE_AFTER_S:
            return "Engaged"
        return "Stale" if age_s < LOST_AFTER_S else "Lost"

    def view(self, tenant: Tenant | None, namespace: str) -> MemberState:
        """Return what a load balancer of this member has to know."""
        state = self.state(namespace)
        if state not in ("Stale", "Lost"):
            return MemberState()
        name = tenant.metadata.name if tenant else namespace
        # The time, not the age: a message that changes by itself would be a write at every reconcile.
        message = f"the agent of {name} was last heard at {self.last_sync(namespace)}; its last state is served on"
        drain = tenant.spec.drain_when_lost if tenant else ""
        age_s = self.age_s(namespace) or 0.0
        if state == "Lost" and drain and age_s >= max(LOST_AFTER_S, seconds_from_duration(drain)):
            return MemberState(f"{message.rsplit(';', 1)[0]}; drained as the Tenant's spec.drainWhenLost says", True)
        return MemberState(message)

    async def run(self) -> None:
        """Notice silences until cancelled."""
        while True:
            await self._clock.sleep(CHECK_EVERY_S)
            for namespace in list(self._heard):
                self._report(namespace)

    def _report(self, namespace: str) -> None:
        state = self.state(namespace)
        # Lost members are reported at every check, since a drain may be due; what has not changed is not written.
        if self._reported.get(namespace) != state or state == "Lost":
            self._reported[namespace] = state
            self._changed(namespace)


def _time(text: str, fallback: datetime) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return fallback
    return time if time.tzinfo is not None else fallback
