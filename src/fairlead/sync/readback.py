"""What was changed behind our back, and when that is our business.

    the provider lost its memory (another epoch)   what is on record is registered again
    an entry of ours is missing or different       told as drift; with ensurePolicy Always it is registered again
    members that are not ours                      counted, never touched

In: notices of the provider, and time. Out: doubts in the tracker, which the worker resolves. Never: a removal, and
never a repair of what a person changed by hand while the policy is IfNotSucc.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from fairlead.errors import FairleadError
from fairlead.model.contract import Provider
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Observed
from fairlead.runtime.clock import Clock
from fairlead.sync.tracker import Side, Tracker

log = structlog.get_logger(__name__)

#: How often everything is read back, when nothing says that it should be.
LOOK_EVERY_S = 60.0
_TICK_S = 5.0


class Drift(msgspec.Struct, frozen=True):
    """How one load balancer differs from the ledger; each ordered. ``vanished``: it is not there at all."""

    missing: tuple[tuple[ListenerKey, TargetKey], ...] = ()
    changed: tuple[tuple[ListenerKey, TargetKey], ...] = ()
    foreign: tuple[str, ...] = ()
    vanished: bool = False

    @property
    def ours(self) -> int:
        """Return how many entries of ours are not as recorded."""
        return len(self.missing) + len(self.changed) + self.vanished

    @property
    def sentence(self) -> str:
        """Say it in one sentence; empty when nothing of ours differs."""
        if self.vanished:
            return "the load balancer is gone: somebody deleted it behind our back"
        parts = [f"{len(self.missing)} of our backends were removed"] if self.missing else []
        parts += [f"{len(self.changed)} were changed"] if self.changed else []
        return f"{' and '.join(parts)} behind our back" if parts else ""


def drift_of(side: Side, observed: Observed | None) -> Drift:
    """Compare what is on record with what is there; what is under way is not compared."""
    if observed is None:
        return Drift(vanished=side.done_spec is not None)
    if observed.targets is None:
        return Drift(foreign=observed.foreign)
    there = {(one.listener, one.key): one for one in observed.targets}
    missing: list[tuple[ListenerKey, TargetKey]] = []
    changed: list[tuple[ListenerKey, TargetKey]] = []
    for listener, targets in side.done.items():
        for key, registered in targets.items():
            if registered.unsure or registered.deregistering or registered.leaving_since is not None:
                continue
            found = there.get((listener, key))
            if found is None:
                missing.append((listener, key))
            elif found.weight != registered.target.weight or found.draining != registered.target.draining:
                changed.append((listener, key))
    return Drift(tuple(sorted(missing)), tuple(sorted(changed)), observed.foreign)


class Readback:
    """Reads the load balancers of one provider back. ``lives`` stores the epoch in which targets are registered."""

    def __init__(
        self,
        *,
        provider: Provider,
        tracker: Tracker,
        clock: Clock,
        trigger: Callable[[], None],
        epoch_of: Callable[[LoadBalancerKey], str],
        lives: Callable[[LoadBalancerKey, str], Awaitable[None]],
        changed: Callable[[LoadBalancerKey], None] = lambda _key: None,
    ) -> None:
        self._provider = provider
        self._tracker = tracker
        self._clock = clock
        self._trigger = trigger
        self._epoch_of = epoch_of
        self._lives = lives
        self._changed = changed
        self._noticed: dict[LoadBalancerKey, None] = {}
        self._wake = asyncio.Event()
        self._looked_s: dict[LoadBalancerKey, float] = {}
        self._repaired_s: dict[LoadBalancerKey, float] = {}
        self.drifts: dict[LoadBalancerKey, Drift] = {}
        self.repairs = 0

    def notice(self, key: LoadBalancerKey) -> None:
        """Look at ``key`` soon: its provider says that something changed."""
        self._noticed[key] = None
        self._wake.set()

    async def run(self) -> None:
        """Read back until cancelled."""
        while True:
            sleeper = asyncio.ensure_future(self._clock.sleep(_TICK_S))
            waiter = asyncio.ensure_future(self._wake.wait())
            try:
                await asyncio.wait((sleeper, waiter), return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleeper.cancel()
                waiter.cancel()
            self._wake.clear()
            for key in self._due():
                await self.look(key)

    def _due(self) -> list[LoadBalancerKey]:
        now_s = self._clock.monotonic()
        due = dict(self._noticed)
        self._noticed.clear()
        for key in self._tracker:
            side = self._tracker.side(key)
            every_s = LOOK_EVERY_S
            if side is not None and side.desired is not None and side.desired.repair_s:
                every_s = min(every_s, side.desired.repair_s)
            # What has never been looked at is looked at now: its provider may have restarted while we were away.
            if now_s - self._looked_s.get(key, -every_s) >= every_s:
                due[key] = None
        for gone in self._looked_s.keys() - set(self._tracker):
            self._forget(gone)
        return list(due)

    async def look(self, key: LoadBalancerKey) -> None:
        """Read one load balancer back, and have done about it what is our business."""
        side = self._tracker.side(key)
        if side is None or side.done_spec is None:
            return
        try:
            observed = await self._provider.observe(key)
            side = self._tracker.side(key)
            if side is None:
                return
            self._looked_s[key] = self._clock.monotonic()
            await self._compare(key, side, observed)
        except FairleadError as error:
            log.debug("not read back", load_balancer=str(key), error=error.sentence)

    async def _compare(self, key: LoadBalancerKey, side: Side, observed: Observed | None) -> None:
        epoch = observed.epoch if observed is not None else ""
        before = self._epoch_of(key)
        if epoch and before and epoch != before:
            log.info("the provider has lost its state; registering again", load_balancer=str(key))
            self._tracker.doubt(key)
            self._trigger()
        if epoch and epoch != before:
            await self._lives(key, epoch)
        drift = drift_of(side, observed)
        if drift != self.drifts.get(key, _NONE):
            self.drifts[key] = drift
            self._changed(key)
        self._repair(key, side, drift, listed=observed is not None and observed.targets is not None)

    def _repair(self, key: LoadBalancerKey, side: Side, drift: Drift, *, listed: bool) -> None:
        every_s = side.desired.repair_s if side.desired is not None else 0.0
        now_s = self._clock.monotonic()
        since_s = self._repaired_s.setdefault(key, now_s)
        if not every_s or now_s - since_s < every_s or not (drift.ours or not listed):
            return
        self._repaired_s[key] = now_s
        self.repairs += 1
        # Of a provider that cannot list them everything is registered again, as its driver expects.
        everything = drift.vanished or not listed
        self._tracker.doubt(key, None if everything else (*drift.missing, *drift.changed))
        self._trigger()

    def _forget(self, key: LoadBalancerKey) -> None:
        for known in (self._looked_s, self._repaired_s, self.drifts):
            known.pop(key, None)


_NONE = Drift()
