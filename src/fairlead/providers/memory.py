"""The reference provider for tests, with faults that can be injected.

Its load balancers are in a ``MemoryCloud``, which outlives the provider as a real load balancer outlives the hub's
process. ``Faults`` says what goes wrong: latency, errors, answers lost after success, half-done batches, 429,
late visibility, rejected items. In: the ``Provider`` protocol, a seed. Out: the same run for the same seed and calls.
It never touches backends that it has not registered itself, and never reads a clock other than the one it is given.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

import msgspec
from msgspec.structs import replace

from fairlead.errors import Retry, Terminal, Throttled
from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, TargetChange
from fairlead.model.contract import EVERY_FEATURE, Capabilities
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Ensured, Observed, ObservedTarget
from fairlead.runtime.clock import Clock, SystemClock

Notify = Callable[[LoadBalancerKey], None]
Members = dict[ListenerKey, dict[TargetKey, Target]]


class Faults(msgspec.Struct, kw_only=True):
    """Faults to inject; change it at any time. Rates are probabilities from 0 to 1, one draw for each call."""

    seed: int = 0
    latency_s: tuple[float, float] = (0.0, 0.0)
    #: Nothing was done, and the call says so.
    error_rate: float = 0.0
    #: Everything was done, and the answer is lost.
    lost_answer_rate: float = 0.0
    #: The first items of a batch were done, and then the call failed.
    half_done_rate: float = 0.0
    #: One item of a batch fails on its own; one draw for each item.
    item_error_rate: float = 0.0
    #: More calls than this in one second are answered with 429; 0 means no limit.
    calls_per_s: int = 0
    #: What was done shows in ``observe`` only after this long.
    visible_after_s: float = 0.0
    #: These addresses are refused for good.
    rejected: frozenset[TargetKey] = frozenset()
    #: Why no further load balancer is made (a quota); empty when there is room.
    refuse_new: str = ""
    #: Every call fails with this sentence until it is empty again.
    down: str = ""


class _LoadBalancer(msgspec.Struct):
    spec: FrontendSpec
    members: Members = msgspec.field(default_factory=dict[ListenerKey, dict[TargetKey, Target]])


class MemoryCloud:
    """The load balancers themselves, and what others did to them; it outlives any number of providers."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.epoch = 1
        self.load_balancers: dict[LoadBalancerKey, _LoadBalancer] = {}
        #: Targets that its health checks do not reach.
        self.unhealthy: set[TargetKey] = set()
        self._foreign: dict[LoadBalancerKey, dict[str, Target]] = {}
        self._history: dict[LoadBalancerKey, list[tuple[float, Observed | None]]] = {}
        self._notify: list[Notify] = []

    def members(self, key: LoadBalancerKey) -> dict[tuple[ListenerKey, TargetKey], Target]:
        """Return our targets as they really are, whatever ``observe`` shows yet."""
        load_balancer = self.load_balancers.get(key)
        if load_balancer is None:
            return {}
        return {
            (listener, target_key): target
            for listener, members in load_balancer.members.items()
            for target_key, target in members.items()
        }

    def foreign(self, key: LoadBalancerKey) -> dict[str, Target]:
        """Return a copy of the targets that are not ours, by name."""
        return dict(self._foreign.get(key, {}))

    def add_foreign(self, key: LoadBalancerKey, name: str, target: Target) -> None:
        """Register a target that is not ours, as another program would."""
        self._foreign.setdefault(key, {})[name] = target
        self.changed((key,))

    def drift(self, key: LoadBalancerKey, listener: ListenerKey, at: TargetKey, target: Target | None) -> None:
        """Change (or with None remove) a target of ours, as another program would."""
        members = self.load_balancers[key].members.setdefault(listener, {})
        if target is None:
            members.pop(at, None)
        else:
            members[at] = target
        self.changed((key,))

    def delete(self, key: LoadBalancerKey) -> None:
        """Delete a whole load balancer, as another program would."""
        self.load_balancers.pop(key, None)
        self.changed((key,))

    def restart(self) -> None:
        """Lose all targets of ours, as a proxy that is reloaded loses what was added at run time."""
        self.epoch += 1
        for load_balancer in self.load_balancers.values():
            load_balancer.members.clear()
        self.changed(self.load_balancers)

    def changed(self, keys: Iterable[LoadBalancerKey]) -> None:
        """Store what there is now, and notify all subscribers."""
        for key in list(keys):
            history = self._history.setdefault(key, [])
            history.append((self.clock.monotonic(), self._read(key)))
            del history[:-64]
            for notify in self._notify:
                notify(key)

    def subscribe(self, notify: Notify) -> None:
        """Call ``notify`` with each load balancer that changes."""
        self._notify.append(notify)

    def seen(self, key: LoadBalancerKey, *, delay_s: float) -> Observed | None:
        """Return what could be seen of it ``delay_s`` ago."""
        if delay_s <= 0:
            return self._read(key)
        until_s = self.clock.monotonic() - delay_s
        seen: Observed | None = None
        for at_s, observed in self._history.get(key, ()):
            if at_s <= until_s:
                seen = observed
        return seen

    def _read(self, key: LoadBalancerKey) -> Observed | None:
        load_balancer = self.load_balancers.get(key)
        if load_balancer is None:
            return None
        targets = tuple(
            ObservedTarget(listener, at, target.weight, target.draining, False if at in self.unhealthy else None)
            for (listener, at), target in sorted(self.members(key).items())
        )
        return Observed(
            addresses=_addresses(load_balancer.spec),
            programmed=True,
            proxies=1,
            acknowledged=1,
            targets=targets,
            foreign=tuple(sorted(self._foreign.get(key, {}))),
            epoch=str(self.epoch),
        )


class MemoryProvider:
    """A provider of load balancers in a ``MemoryCloud``; counts its ``calls`` by method."""

    def __init__(self, *, cloud: MemoryCloud | None = None, faults: Faults | None = None, max_batch: int = 0) -> None:
        self.cloud = cloud or MemoryCloud()
        self.faults = faults or Faults()
        self.calls: Counter[str] = Counter()
        #: Calls that began while another one about the same load balancer was under way: the core must make none.
        self.overlaps = 0
        self._clock = self.cloud.clock
        self._random = random.Random(self.faults.seed)  # noqa: S311 - a test double, on purpose repeatable
        self._busy: Counter[LoadBalancerKey] = Counter()
        self._recent: list[float] = []
        self._max_batch = max_batch

    @property
    def capabilities(self) -> Capabilities:
        """Return all that needs no data plane."""
        return replace(EVERY_FEATURE, max_batch=self._max_batch, batches_span_load_balancers=True)

    def on_change(self, notify: Notify) -> None:
        """Call ``notify`` on changes, ours and others'."""
        self.cloud.subscribe(notify)

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        """Make or change the frontend; ``Terminal`` when ``refuse_new`` says why there is no room."""
        async with self._call("ensure", (spec.key,)):
            load_balancer = self.cloud.load_balancers.get(spec.key)
            if load_balancer is None and self.faults.refuse_new:
                raise Terminal(f"{spec.key}: {self.faults.refuse_new}", reason="QuotaExceeded")
            if load_balancer is None:
                self.cloud.load_balancers[spec.key] = _LoadBalancer(spec)
            else:
                load_balancer.spec = spec
            self.cloud.changed((spec.key,))
        return Ensured(_addresses(spec), info={"name": str(spec.key)})

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        """Change targets, item by item."""
        async with self._call("apply", {change.load_balancer for change in changes}):
            half = bool(changes) and self._draw(self.faults.half_done_rate)
            stop = self._random.randrange(len(changes)) if half else len(changes)
            outcomes = [self._apply_change(change) for change in changes[:stop]]
            self.cloud.changed({change.load_balancer for change in changes})
            if half:
                raise Retry(
                    f"memory provider: injected failure after {stop} of {len(changes)} items", reason="Injected"
                )
        return outcomes

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        """Read back, as late as ``visible_after_s`` says."""
        async with self._call("observe", ()):
            return self.cloud.seen(key, delay_s=self.faults.visible_after_s)

    async def delete(self, key: LoadBalancerKey) -> None:
        """Remove it with our targets; those that are not ours are left alone."""
        async with self._call("delete", (key,)):
            if self.cloud.load_balancers.pop(key, None) is not None:
                self.cloud.changed((key,))

    # --- inside -----------------------------------------------------------------------------------------------

    def _apply_change(self, change: TargetChange) -> Outcome:
        where = f"{change.key} on listener {change.listener} of {change.load_balancer}"
        if self._draw(self.faults.item_error_rate):
            return Outcome(OutcomeStatus.RETRY, f"{where}: injected failure of one item; it is tried again")
        load_balancer = self.cloud.load_balancers.get(change.load_balancer)
        if change.is_removal:
            members = load_balancer.members.get(change.listener, {}) if load_balancer else {}
            if change.action is Action.DEREGISTER:
                members.pop(change.key, None)
            elif change.key in members:
                members[change.key] = replace(change.target, draining=True)
            return DONE
        if change.key in self.faults.rejected:
            return Outcome(OutcomeStatus.REJECTED, f"{where}: this provider refuses the address; use another")
        if load_balancer is None:
            return Outcome(OutcomeStatus.RETRY, f"{where}: there is no such load balancer; it must be ensured again")
        load_balancer.members.setdefault(change.listener, {})[change.key] = change.target
        return DONE

    def _draw(self, rate: float) -> bool:
        # Without a rate nothing is drawn, so that one fault more does not change where the others strike.
        return rate > 0 and self._random.random() < rate

    @asynccontextmanager
    async def _call(self, method: str, keys: Iterable[LoadBalancerKey]) -> AsyncGenerator[None]:
        """Surround one call with its faults, and count it when it overlaps with another one."""
        keys = tuple(keys)
        self.overlaps += any(self._busy[key] for key in keys)
        self._busy.update(keys)
        try:
            # Count, wait, throttle and fail, in this order.
            self.calls[method] += 1
            low_s, high_s = self.faults.latency_s
            if high_s > 0:
                await self._clock.sleep(self._random.uniform(low_s, high_s))
            if self.faults.down:
                raise Retry(self.faults.down, reason="Unreachable")
            if self.faults.calls_per_s:
                now_s = self._clock.monotonic()
                self._recent = [at_s for at_s in self._recent if at_s > now_s - 1.0]
                if len(self._recent) >= self.faults.calls_per_s:
                    after_s = self._recent[0] + 1.0 - now_s
                    raise Throttled(f"memory provider: more than {self.faults.calls_per_s} calls/s", after_s=after_s)
                self._recent.append(now_s)
            if self._draw(self.faults.error_rate):
                raise Retry(f"memory provider: injected failure of {method}; nothing was done", reason="Injected")
            yield
            if self._draw(self.faults.lost_answer_rate):
                raise Retry(f"memory provider: no answer to {method} in time; it may have been done", reason="Timeout")
        finally:
            self._busy.subtract(keys)


def _addresses(spec: FrontendSpec) -> tuple[str, ...]:
    address = spec.parameters.get("address", "")
    return spec.addresses or ((address,) if address else ())


def create(*, clock: Clock | None = None) -> MemoryProvider:
    """Make one with a cloud of its own and no faults (entry point ``memory``)."""
    return MemoryProvider(cloud=MemoryCloud(clock=clock))
