"""Drift: changes from outside Fairlead, and when they are repaired.

    the provider lost its state (another epoch)    recorded entries are registered again
    an entry of ours is missing or different       reported as drift; with ensurePolicy Always, or once when a repair
                                                   is asked for, it is registered again
    a load balancer that we created is gone        reported; created again when two reads, some time apart, miss it
    one that existed before us is gone             reported: its owner creates it again
    targets that are not ours                      counted, never touched

In: change notices of the provider, and time. Out: unknown targets in the tracker, which the worker resolves; drift and
the observed state, so that the status writer never waits for the provider. Never: a removal, or a repair of backends
that a person changed by hand while the policy is IfNotSucc. A failure domain that hangs does not delay others, and an
unanswered read ends after READ_LIMIT_S.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

import msgspec
import structlog

from fairlead.api.hostname import HOSTNAMES
from fairlead.errors import FairleadError
from fairlead.model.contract import Provider
from fairlead.model.desired import Targets
from fairlead.model.in_words import counted
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Observed, with_health
from fairlead.runtime.clock import Clock, wait_for
from fairlead.runtime.queue import doubled_s
from fairlead.sync.execute import in_time
from fairlead.sync.plan import LoadBalancerState, Registered, Tracker


class Drift(msgspec.Struct, frozen=True):
    """The differences of one load balancer from the ledger; each field is sorted.

    ``gone``: the load balancer does not exist; ``kept_by_others``: it existed before Fairlead, and its owner has to
    create it again. ``is_name``: its backends are the records of a Hostname; without records, the name does not exist.
    """

    missing: tuple[tuple[ListenerKey, TargetKey], ...] = ()
    changed: tuple[tuple[ListenerKey, TargetKey], ...] = ()
    foreign: tuple[str, ...] = ()
    gone: bool = False
    kept_by_others: bool = False
    #: Entries that have our names, but are neither recorded nor desired.
    unrecorded: tuple[tuple[ListenerKey, TargetKey], ...] = ()
    is_name: bool = False

    @property
    def ours(self) -> int:
        """Return the number of own entries that differ from the record."""
        return len(self.missing) + len(self.changed) + self.gone

    @property
    def sentence(self) -> str:
        """Return the differences in one sentence; empty if no own entry differs."""
        if self.gone:
            what = "all records of the name were" if self.is_name else "the load balancer is gone: it was"
            return f"{what} deleted outside Fairlead"
        noun = "record" if self.is_name else "backend"
        parts = [f"{counted(len(self.missing), noun)} removed"] if self.missing else []
        parts += [f"{counted(len(self.changed), noun)} changed"] if self.changed else []
        return f"{' and '.join(parts)} outside Fairlead" if parts else ""

    @property
    def outlook(self) -> str:
        """Return the next step, by Fairlead or by an operator; empty if no own entry differs."""
        if not self.ours:
            return ""
        if self.is_name:
            return (
                "the hub writes the records again once their absence is certain; delete this object to remove them"
                if self.gone
                else "fairlead repair writes them again"
            )
        if not self.gone:
            return "kept until fairlead repair, unless the class's ensurePolicy is Always"
        if self.kept_by_others:
            return "Fairlead did not create the load balancer. Have its owner recreate it, or delete this object"
        return "the hub recreates the load balancer once its absence is certain; delete this object to remove it"


def drift_of(state: LoadBalancerState, observed: Observed | None) -> Drift:
    """Compare the recorded with the observed state, except for changes in progress."""
    spec = state.recorded_spec
    is_name = spec is not None and spec.key.kind == HOSTNAMES.kind
    if observed is None:
        made = state.made
        return Drift(gone=made is not None, kept_by_others=made is not None and made.existing, is_name=is_name)
    if observed.targets is None:
        return Drift(foreign=observed.foreign)
    observed_targets = {(target.listener, target.key): target for target in observed.targets}
    missing: list[tuple[ListenerKey, TargetKey]] = []
    changed: list[tuple[ListenerKey, TargetKey]] = []
    for listener, targets in state.recorded.items():
        for key, registered in targets.items():
            if registered.unknown or registered.deregistering or registered.draining_since is not None:
                continue
            entry = observed_targets.get((listener, key))
            if entry is None:
                missing.append((listener, key))
            elif entry.weight != registered.target.weight or entry.draining != registered.target.draining:
                changed.append((listener, key))
    known = {place for targets in (state.recorded, _wanted(state)) for place in _places(targets)}
    unrecorded = tuple(sorted(observed_targets.keys() - known))
    return Drift(
        tuple(sorted(missing)), tuple(sorted(changed)), observed.foreign, unrecorded=unrecorded, is_name=is_name
    )


def _wanted(state: LoadBalancerState) -> Mapping[ListenerKey, Targets]:
    return state.desired.targets if state.desired is not None else {}


def _places(targets: Mapping[ListenerKey, Iterable[TargetKey]]) -> Iterator[tuple[ListenerKey, TargetKey]]:
    return ((listener, key) for listener, keys in targets.items() for key in keys)


def without_changed(
    drift: Drift, before: Mapping[ListenerKey, Mapping[TargetKey, Registered]], state: LoadBalancerState
) -> Drift:
    """Return ``drift`` without the entries that the worker changed during the read, because the read has older data."""

    def unchanged(place: tuple[ListenerKey, TargetKey]) -> bool:
        listener, key = place
        return before.get(listener, {}).get(key) is state.recorded.get(listener, {}).get(key)

    return msgspec.structs.replace(
        drift,
        missing=tuple(filter(unchanged, drift.missing)),
        changed=tuple(filter(unchanged, drift.changed)),
        unrecorded=tuple(filter(unchanged, drift.unrecorded)),
    )


log = structlog.get_logger(__name__)

#: How often everything is read back without a notice, in seconds.
LOOK_EVERY_S = 60.0
#: Minimum time between the two reads that prove a load balancer missing, because a slow provider may not show it for a
#: moment. The time doubles, up to the maximum, each time the load balancer was created again without success.
CERTAIN_S = 5.0
_LONGEST_S = 3600.0
#: Time limit of one read. A read changes nothing, so its limit is lower than that of a write.
READ_LIMIT_S = 30.0
_TICK_S = 5.0


class _Gone(msgspec.Struct):
    """A missing load balancer: since when (None: not conclusive yet), and how often it was created again."""

    since_s: float | None = None
    remade: int = 0

    @property
    def certain_s(self) -> float:
        return doubled_s(self.remade + 1, base_s=CERTAIN_S, limit_s=_LONGEST_S)


class Readback:
    """Reads the load balancers of one provider back. ``set_epoch`` stores the epoch in which targets are registered;
    ``failure_domain`` returns the failure domain of a load balancer; ``note`` is called with its history entries.
    """

    def __init__(
        self,
        *,
        provider: Provider,
        tracker: Tracker,
        clock: Clock,
        trigger: Callable[[], None],
        epoch_of: Callable[[LoadBalancerKey], str],
        set_epoch: Callable[[LoadBalancerKey, str], Awaitable[None]],
        changed: Callable[[LoadBalancerKey], None] = lambda _key: None,
        note: Callable[[LoadBalancerKey, str], None] = lambda _key, _text: None,
        failure_domain: Callable[[LoadBalancerKey], str] = lambda _key: "",
    ) -> None:
        self._provider = provider
        self._tracker = tracker
        self._clock = clock
        self._trigger = trigger
        self._epoch_of = epoch_of
        self._set_epoch = set_epoch
        self._changed = changed
        self._note = note
        self._failure_domain = failure_domain
        self._noticed: dict[LoadBalancerKey, None] = {}
        self._wake = asyncio.Event()
        self._looked_s: dict[LoadBalancerKey, float] = {}
        self._repaired_s: dict[LoadBalancerKey, float] = {}
        self._gone: dict[LoadBalancerKey, _Gone] = {}
        #: The epoch for which all entries were registered again.
        self._lost: dict[LoadBalancerKey, str] = {}
        #: Failure domains that are being read back.
        self._looking: set[str] = set()
        # All keys at once: until they have been read back, users see the state from an earlier process.
        self._scan_at_s = clock.monotonic()
        self._unread_since_s: dict[LoadBalancerKey, float] = {}
        #: The last observation without its targets; a text is the reason why the load balancer cannot be read.
        self.seen: dict[LoadBalancerKey, Observed | str | None] = {}
        self.drifts: dict[LoadBalancerKey, Drift] = {}
        #: The last repair request that was answered, by the drift found then.
        self.answered: dict[LoadBalancerKey, str] = {}
        self.repairs = 0

    def notice(self, key: LoadBalancerKey) -> None:
        """Schedule a read of ``key``, because its provider has reported a change."""
        self._noticed[key] = None
        self._wake.set()

    async def run(self) -> None:
        """Read load balancers back until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                delay_s = max(0.0, self._scan_at_s - self._clock.monotonic())
                await wait_for(self._wake, self._clock, delay_s)
                self._wake.clear()
                for failure_domain, keys in self._due().items():
                    self._looking.add(failure_domain)
                    group.create_task(self._look_at(failure_domain, keys))

    async def _look_at(self, failure_domain: str, keys: list[LoadBalancerKey]) -> None:
        try:
            for key in keys:
                await self.look(key)
        finally:
            self._looking.discard(failure_domain)
            if self._noticed:
                self._wake.set()

    def _due(self) -> dict[str, list[LoadBalancerKey]]:
        """Return the keys to read by failure domain, without the ones being read."""
        now_s = self._clock.monotonic()
        noticed, self._noticed = self._noticed, {}
        keys = dict.fromkeys(key for key in noticed if key in self._tracker)
        if now_s >= self._scan_at_s:
            # Read everything only now and then: a notice concerns one of very many.
            self._scan_at_s = now_s + _TICK_S
            keys |= dict.fromkeys(key for key in self._tracker if self._is_due(key, now_s))
            for forgotten in (
                self._looked_s.keys() | self.seen.keys() | self.drifts.keys() | self.answered.keys()
            ) - set(self._tracker):
                for known in (
                    self._looked_s,
                    self._repaired_s,
                    self._gone,
                    self._lost,
                    self._unread_since_s,
                    self.seen,
                    self.drifts,
                    self.answered,
                ):
                    known.pop(forgotten, None)
        due: dict[str, list[LoadBalancerKey]] = {}
        for key in keys:
            failure_domain = self._failure_domain(key)
            if failure_domain not in self._looking:
                due.setdefault(failure_domain, []).append(key)
            elif key in noticed:
                self._noticed[key] = None
        return due

    def _is_due(self, key: LoadBalancerKey, now_s: float) -> bool:
        # Keys that were never read are read now: their provider may have restarted in the meantime.
        every_s = self._every_s(key, self._tracker.state(key))
        return now_s - self._looked_s.get(key, -every_s) >= every_s

    def _every_s(self, key: LoadBalancerKey, state: LoadBalancerState | None) -> float:
        every_s = LOOK_EVERY_S
        if self._asked(key, state):
            return 0.0
        if state is not None and state.desired is not None and state.desired.repair_s:
            every_s = min(every_s, state.desired.repair_s)
        if key in self._unread_since_s and not isinstance(self.seen.get(key), str):
            # Read once more to confirm the failure.
            every_s = min(every_s, CERTAIN_S)
        if (missing := self._gone.get(key)) is not None and missing.since_s is not None:
            every_s = min(every_s, missing.certain_s)
        return every_s

    async def look(self, key: LoadBalancerKey) -> None:
        """Read one load balancer back; record its drift, and schedule repairs."""
        state = self._tracker.state(key)
        if state is None or state.recorded_spec is None:
            return
        before = {listener: dict(targets) for listener, targets in state.recorded.items()}
        began_s = self._clock.monotonic()
        try:
            call = self._provider.observe(key)
            observed = await in_time(call, clock=self._clock, limit_s=READ_LIMIT_S, reads=True)
            self._unread_since_s.pop(key, None)
            await self._compare(key, before, observed)
        except FairleadError as error:
            log.debug("not read back", load_balancer=str(key), error=error.sentence)
            self._unread(key, error.sentence)
            if self._clock.monotonic() - began_s >= READ_LIMIT_S:
                # Other keys of its failure domain waited for this one: it takes its next turn like them.
                self._looked_s[key] = self._clock.monotonic()
        except Exception as error:
            # A provider's bug with one load balancer must not stop the others.
            log.exception("bug", load_balancer=str(key), error=str(error))
            self._looked_s[key] = self._clock.monotonic()

    def _unread(self, key: LoadBalancerKey, why: str) -> None:
        """Record the read failure once it has lasted longer than a reload."""
        now_s = self._clock.monotonic()
        since_s = self._unread_since_s.setdefault(key, now_s)
        if now_s - since_s >= CERTAIN_S and self._is_news(key, why):
            self._changed(key)

    async def _compare(
        self,
        key: LoadBalancerKey,
        before: Mapping[ListenerKey, Mapping[TargetKey, Registered]],
        observed: Observed | None,
    ) -> None:
        self._looked_s[key] = self._clock.monotonic()
        epoch = observed.epoch if observed is not None else ""
        recorded = self._epoch_of(key)
        state = self._tracker.state(key)
        if state is not None and epoch and epoch != recorded:
            if not recorded or self._is_registered_again(key, epoch, state):
                await self._set_epoch(key, epoch)
            state = self._tracker.state(key)
        if state is None:
            return
        drift = without_changed(drift_of(state, observed), before, state)
        spec = state.recorded_spec
        listeners = [listener.key for listener in spec.listeners] if spec is not None else []
        news = self._is_news(key, with_health(observed, listeners) if observed is not None else None)
        if drift != self.drifts.get(key, _NONE):
            if drift.ours:
                self._note(key, f"{drift.sentence}; {drift.outlook}")
            elif self.drifts.get(key, _NONE).ours:
                self._note(key, "everything of ours is there as it was recorded again")
            self.drifts[key] = drift
            news = True
        if news:
            self._changed(key)
        self._make_again(key, state, drift)
        self._repair(key, state, drift, listed=observed is not None and observed.targets is not None)

    def _is_registered_again(self, key: LoadBalancerKey, epoch: str, state: LoadBalancerState) -> bool:
        """Register all recorded targets again, once for each ``epoch``; return whether that was done.

        The epoch is stored afterwards, so that the next process notices the loss if this one ends before.
        """
        if self._lost.get(key) != epoch:
            log.info("the provider has lost its state; registering again", load_balancer=str(key))
            self._note(key, "the provider lost its registrations; all records are registered again")
            self._lost[key] = epoch
            self._tracker.mark_unknown(key)
            self._trigger()
        return not any(registered.unknown for targets in state.recorded.values() for registered in targets.values())

    def _is_news(self, key: LoadBalancerKey, seen: Observed | str | None) -> bool:
        """Store the observation for the status; return whether it changed."""
        if isinstance(seen, Observed):
            seen = msgspec.structs.replace(seen, targets=None, foreign=())
        before = self.seen.get(key)
        self.seen[key] = seen
        return seen != before

    def _make_again(self, key: LoadBalancerKey, state: LoadBalancerState, drift: Drift) -> None:
        if not drift.gone or drift.kept_by_others or state.desired is None:
            self._gone.pop(key, None)
            return
        now_s = self._clock.monotonic()
        missing = self._gone.setdefault(key, _Gone())
        if state.ensure_again:
            # The load balancer is being created, so its absence proves nothing.
            missing.since_s = None
        elif missing.since_s is None:
            missing.since_s = now_s
        elif now_s - missing.since_s >= missing.certain_s:
            log.info("deleted outside Fairlead; creating the load balancer again", load_balancer=str(key))
            missing.since_s = None
            missing.remade += 1
            self._tracker.mark_missing(key)
            self._trigger()

    def _asked(self, key: LoadBalancerKey, state: LoadBalancerState | None) -> str:
        """Return the pending repair request (annotation); empty if there is none."""
        request = state.desired.repair if state is not None and state.desired is not None else ""
        return request if request != self.answered.get(key, "") else ""

    def _repair(self, key: LoadBalancerKey, state: LoadBalancerState, drift: Drift, *, listed: bool) -> None:
        every_s = state.desired.repair_s if state.desired is not None else 0.0
        now_s = self._clock.monotonic()
        since_s = self._repaired_s.setdefault(key, now_s)
        request = self._asked(key, state)
        if request:
            self.answered[key] = request
            self._changed(key)
        paused = state.desired is not None and state.desired.paused
        due = bool(every_s) and not paused and now_s - since_s >= every_s
        if not (due or request) or not (drift.ours or not listed) or drift.kept_by_others:
            return
        self._repaired_s[key] = now_s
        self.repairs += 1
        self._note(key, f"changes by others are repaired: {'requested' if request else 'ensurePolicy Always'}")
        # If the provider cannot list its entries, all of them are registered again, as its driver expects.
        everything = drift.gone or not listed
        self._tracker.mark_unknown(key, None if everything else (*drift.missing, *drift.changed))
        self._trigger()


_NONE = Drift()
