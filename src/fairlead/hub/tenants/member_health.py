"""The state of each member's agent: engaged, stale or lost, by when this hub saw its lease change.

    engaged ──40 s of silence──► stale ──5 min──► lost      any renewal ──► engaged

An unreachable member is served from its last state; only ``drainWhenLost`` and ``dropWhenLost`` take it out of service.
Time in which this hub could not read the leases does not count for them. While no hub runs, or the hub cannot read the
leases, no agent is heard: a recorded state gets worse only once this hub has listened for as long as makes an agent
stale. In: leases. Out: a state for each tenant namespace, and a wake-up when one changes. Ages are monotonic; when a
lease is first seen, the API server's timestamp says how old it is. Never: trusts a time that an agent wrote; the hub
compares it with the server's, and reports a wrong clock.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec
import structlog

from fairlead.api.names import AGENT_LEASE
from fairlead.api.tenant import (
    LOST_AFTER_S,
    STALE_AFTER_S,
    StampedLease,
    Tenant,
    TenantSpec,
    TenantState,
    age_s,
    state_by_age,
)
from fairlead.api.times import seconds_from_duration, wire_time
from fairlead.kube.cache import WatchCache
from fairlead.kube.transport import NOTICEABLE_S
from fairlead.runtime.clock import Clock
from fairlead.translate.view import MemberState

CHECK_EVERY_S = 5.0
#: Instead of a time: a silent member is kept in service.
_NEVER = "never"
_WORSE: tuple[TenantState, ...] = ("Engaged", "Stale", "Lost")

log = structlog.get_logger(__name__)


class _Heard(msgspec.Struct):
    renew_time: str
    at_s: float
    listened_s: float
    at: str
    ahead_s: float
    #: Seconds since then in which the hub could not read leases.
    deaf_s: float = 0.0


class MemberHealth:
    """The last sign of life of each agent; ``leases`` are from the API server that stamps them."""

    def __init__(
        self, *, clock: Clock, changed: Callable[[str], None], leases: WatchCache[StampedLease] | None = None
    ) -> None:
        self._clock = clock
        self._changed = changed
        self._leases = leases
        self._server_now: Callable[[], datetime] = clock.now if leases is None else leases.cluster.server_clock.now
        self._heard: dict[str, _Heard] = {}
        self._reported: dict[str, tuple[TenantState, float]] = {}

    def lease_changed(self, _old: StampedLease | None, new: StampedLease | None) -> None:
        """Record a renewal; a deleted lease changes nothing."""
        if new is None or new.metadata.name != AGENT_LEASE or not new.spec.renew_time:
            return
        namespace, renewed = new.metadata.namespace, new.spec.renew_time
        heard, now_s = self._heard.get(namespace), self._clock.monotonic()
        if heard is not None and heard.renew_time == renewed:
            return
        past_s = (age_s(new, self._server_now()) or 0.0) if heard is None else 0.0
        stored = new.stored_at or self._server_now()
        # A clock at the limit must not be reported at every beat.
        limit_s = NOTICEABLE_S * (2 / 3 if heard is not None and heard.ahead_s else 1)
        ahead_s = new.clock_ahead_s if abs(new.clock_ahead_s) >= limit_s else 0.0
        self._heard[namespace] = _Heard(renewed, now_s - past_s, now_s, wire_time(stored), ahead_s)
        self._report(namespace)

    def forget(self, namespace: str) -> None:
        """Forget a member whose Tenant was deleted."""
        self._heard.pop(namespace, None)
        self._reported.pop(namespace, None)

    def age_s(self, namespace: str) -> float | None:
        """Return the seconds since the agent last reported, None when it never has."""
        heard = self._heard.get(namespace)
        return None if heard is None else self._clock.monotonic() - heard.at_s

    def last_sync(self, namespace: str) -> str:
        """Return when the API server stored the agent's last renewal (RFC 3339), empty when there is none."""
        heard = self._heard.get(namespace)
        return heard.at if heard else ""

    def clock_ahead_s(self, namespace: str) -> float:
        """Return by how many seconds the agent's clock is ahead of the API server's; 0 when hardly noticeable."""
        heard = self._heard.get(namespace)
        return heard.ahead_s if heard is not None else 0.0

    def state(self, namespace: str, on_record: TenantState = "") -> TenantState:
        """Return the state for the status; ``on_record``: the present one of the status."""
        known = self._reported.get(namespace)
        if known is not None and known[0] != self._state(namespace):
            # A change is shown before it is reported. A renewal before the next look must not hide it.
            del self._reported[namespace]
        return self._state(namespace, on_record)

    def _state(self, namespace: str, on_record: TenantState = "") -> TenantState:
        state, heard = state_by_age(self.age_s(namespace)), self._heard.get(namespace)
        if heard is None or self._clock.monotonic() - heard.listened_s >= STALE_AFTER_S:
            return state
        worse = on_record in _WORSE and state in _WORSE and _WORSE.index(state) > _WORSE.index(on_record)
        return on_record if worse else state

    def view(self, tenant: Tenant | None, namespace: str, *, drain: str = "", drop: str = "") -> MemberState:
        """Return the state of the member as its load balancers show it.

        ``drain`` and ``drop`` replace drainWhenLost and dropWhenLost of the Tenant: a time, or "never".
        """
        if tenant is not None and tenant.draining:
            return MemberState(f"Tenant {tenant.metadata.name} is being removed; its backends are drained", True)
        state = self.state(namespace, tenant.status.state if tenant is not None else "")
        if state not in ("Stale", "Lost"):
            return MemberState()
        name = tenant.metadata.name if tenant else namespace
        # The time, not the age: an age would cause a write at every reconcile.
        since = self.last_sync(namespace)
        text = f"the agent of {name} last reported at {since}"
        spec = tenant.spec if tenant is not None else TenantSpec()
        lost_s = self._silent_s(namespace) if state == "Lost" else 0.0
        for done, field, of_service, of_tenant in (
            ("dropped", "dropWhenLost", drop, spec.drop_when_lost),
            ("drained", "drainWhenLost", drain, spec.drain_when_lost),
        ):
            after = of_service or of_tenant
            if after not in {"", _NEVER} and lost_s >= max(LOST_AFTER_S, seconds_from_duration(after)):
                text = f"{text}; {done} by spec.{field}{'' if of_service else ' of the Tenant'}"
                return MemberState(text, drained=True, dropped=done == "dropped", silent_since=since)
        return MemberState(f"{text}; its last state is served", silent_since=since)

    async def run(self) -> None:
        """Notice silences until cancelled."""
        looked_s = self._clock.monotonic()
        while True:
            await self._clock.sleep(CHECK_EVERY_S)
            before_s, looked_s = looked_s, self._clock.monotonic()
            for namespace, heard in list(self._heard.items()):
                if self._leases is not None and self._leases.problem:
                    heard.deaf_s += looked_s - max(before_s, heard.listened_s)
                    heard.listened_s = looked_s
                self._report(namespace)

    def _silent_s(self, namespace: str) -> float:
        """Return for how many seconds the agent has been silent while this hub could hear it."""
        heard = self._heard.get(namespace)
        return 0.0 if heard is None else self._clock.monotonic() - heard.at_s - heard.deaf_s

    def _has_just_listened(self, namespace: str) -> bool:
        """Return whether the hub has just listened long enough to confirm a silence that began before it listened."""
        heard = self._heard[namespace]
        listened_s = self._clock.monotonic() - heard.listened_s
        return heard.at_s < heard.listened_s and STALE_AFTER_S <= listened_s < STALE_AFTER_S + 2 * CHECK_EVERY_S

    def _report(self, namespace: str) -> None:
        state, ahead_s = self._state(namespace), self.clock_ahead_s(namespace)
        known = self._reported.get(namespace)
        before_s = known[1] if known is not None else 0.0
        skew_changed = bool(ahead_s) != bool(before_s) or abs(ahead_s - before_s) >= NOTICEABLE_S
        if skew_changed and ahead_s:
            log.warning("a member's clock is wrong", namespace=namespace, ahead_s=round(ahead_s))
        as_known = known is not None and known[0] == state and not skew_changed
        # Lost members are reported at every check, since a drain may be due; unchanged statuses are not written.
        if not as_known or state == "Lost" or self._has_just_listened(namespace):
            self._reported[namespace] = (state, ahead_s)
            self._changed(namespace)
