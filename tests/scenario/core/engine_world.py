"""A world for the engine: objects, a ledger and a cloud that outlive it, and a process that may be killed at any call.

In: a seed, which decides what users do and when, and what goes wrong. Out: what is at the cloud in the end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from fairlead.model.change import Action
from fairlead.model.desired import DesiredLoadBalancer
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.testing.builders import HTTP, desired, lb_key, target
from fairlead.testing.faults import Fault, FaultyProvider, ProviderCall
from fairlead.testing.ledger import PersistentLedger
from fairlead.testing.simulation import SimulatedProcess

KEYS = (lb_key("a"), lb_key("b"))
FOREIGN = lb_key("somebody-elses", namespace="theirs")
DRAIN_S = 2.0


@dataclass
class Story:
    """What users do: (seconds to wait before it, key, intended or None for a deletion)."""

    steps: list[tuple[float, LoadBalancerKey, DesiredLoadBalancer | None]]
    ends: dict[LoadBalancerKey, DesiredLoadBalancer | None] = field(default_factory=dict)


def story(seed: int, *, length: int = 5) -> Story:
    """Make up a story; every load balancer ends deleted, or with at least one ready target on each listener."""
    rng = random.Random(seed)
    steps = []
    for _ in range(length):
        key = rng.choice(KEYS)
        intended = None if rng.random() < 0.2 else _intended(rng, key)
        steps.append((rng.choice((0.0, 0.3, 1.0, 3.0)), key, intended))
    ends: dict[LoadBalancerKey, DesiredLoadBalancer | None] = {}
    for key in KEYS:
        gone = rng.random() < 0.3
        numbers = rng.sample(range(1, 7), rng.randint(1, 3))
        end = None if gone else desired([target(str(n)) for n in numbers], key=key, drain_s=DRAIN_S)
        steps.append((rng.choice((0.0, 0.5)), key, end))
        ends[key] = end
    return Story(steps, ends)


def _intended(rng: random.Random, key: LoadBalancerKey) -> DesiredLoadBalancer:
    numbers = rng.sample(range(1, 7), rng.randint(0, 4))
    targets = [target(str(n), draining=rng.random() < 0.2, weight=rng.choice((1, 1, 2))) for n in numbers]
    return desired(
        targets,
        key=key,
        ports=rng.choice(([80], [80], [80, 443])),
        drain_s=rng.choice((0.0, DRAIN_S)),
        address=rng.choice(("192.0.2.1", "192.0.2.1", "192.0.2.2")),
    )


class World:
    """Everything but the process outlives the process."""

    def __init__(self, *, max_batch: int = 0, latency_s: float = 0.0) -> None:
        self.clock = VirtualClock()
        self.cloud = MemoryCloud(clock=self.clock)
        self.provider = FaultyProvider(
            MemoryProvider(cloud=self.cloud, max_batch=max_batch),
            clock=self.clock,
            latency_s=latency_s,
            script=self._script,
        )
        self.ledger = PersistentLedger()
        self.objects: dict[LoadBalancerKey, DesiredLoadBalancer | None] = {}
        self.engine = self._process()
        self.crashed = False
        self.crashes = 0
        self.violations: list[str] = []
        self.crash_at: tuple[int, Fault] | None = None
        self.faults = random.Random(0)
        self.fault_rate = 0.0
        self._served: set[LoadBalancerKey] = set()
        self._add_foreign()

    # --- what goes wrong ---

    def _script(self, call: ProviderCall) -> Fault:
        self.check()
        if call.load_balancer == FOREIGN or any(change.load_balancer == FOREIGN for change in call.changes):
            self.violations.append(f"{call.method} of what is not ours")
        if self.crash_at is not None and self.crash_at[0] == call.number:
            self.crashed = True
            return self.crash_at[1]
        if self.crashed:
            # The process is on its way out: whatever else it begins does not happen.
            return Fault.HANG_BEFORE
        if self.fault_rate and self.faults.random() < self.fault_rate:
            return self.faults.choice((Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.FAIL_HALFWAY))
        return Fault.NONE

    def _add_foreign(self) -> None:
        for key in KEYS:
            self.cloud.add_foreign(key, "by-hand", target("200"))

    def check(self) -> None:
        """Note every promise that is broken right now."""
        for key in self.provider.overlaps:
            self.violations.append(f"two operations on {key}")
        for key in KEYS:
            if self.cloud.foreign(key) != {"by-hand": target("200")}:
                self.violations.append(f"foreign member of {key} touched")
            if self.objects.get(key) is None or self.engine.tracker.state(key) is None:
                self._served.discard(key)
                continue
            members = [each for (listener, _), each in self.cloud.members(key).items() if listener == HTTP]
            if any(not member.draining for member in members):
                self._served.add(key)
            elif key in self._served:
                self.violations.append(f"{key} lost its last ready target")

    # --- the process ---

    def _process(self) -> SimulatedProcess:
        return SimulatedProcess(provider=self.provider, ledger=self.ledger, clock=self.clock)

    async def restart(self) -> None:
        """Kill the process and start another, which knows only what outlived the first."""
        await self.engine.crash()
        self.crashed = False
        self.crash_at = None
        self.crashes += 1
        self.engine = self._process()
        for key, intended in self.objects.items():
            done = self.ledger.recorded(key)
            if done:
                self.engine.tracker.restore(self.ledger.specs[key], done)
            if intended is not None:
                self.engine.put(intended)
            else:
                self.engine.remove(key, though_unknown=True)
        self.engine.worker.trigger()
        self.engine.start()

    async def advance(self, seconds: float) -> None:
        """Let time pass; a crash on the way is followed by a restart at once, and a finished deletion by its end."""
        await self.engine.advance(seconds)
        while self.crashed:
            await self.restart()
            await self.engine.advance(seconds)
        for key in [
            key for key, intended in self.objects.items() if intended is None and key not in self.engine.tracker
        ]:
            del self.objects[key]
        self.check()

    # --- the story ---

    async def play(self, story: Story) -> None:
        """Let users do what the story says, then wait until nothing more can happen."""
        self.engine.start()
        for wait_s, key, intended in story.steps:
            await self.advance(wait_s)
            await self.user(key, intended)
        self.fault_rate = 0.0
        for _ in range(4):
            await self.advance(70.0)
        for key, intended in story.ends.items():
            # What could not be created because its namesake was still on its way out is created now.
            if self.objects.get(key) != intended:
                await self.user(key, intended)
        await self.advance(70.0)
        await self.advance(70.0)
        await self.engine.crash()

    async def user(self, key: LoadBalancerKey, intended: DesiredLoadBalancer | None) -> None:
        """Create, change or delete one object; one that is on its way out cannot be changed back."""
        if intended is None:
            if key in self.objects and self.objects[key] is not None:
                self.objects[key] = None
                self.engine.remove(key, though_unknown=True)
        elif key not in self.objects or self.objects[key] is not None:
            self.objects[key] = intended
            self.engine.put(intended)

    def snapshot(self) -> dict[str, object]:
        """Return what is at the cloud, in a form that compares."""
        return {
            str(key): (each.spec, dict(sorted(self.cloud.members(key).items())))
            for key, each in sorted(self.cloud.load_balancers.items())
        }

    @property
    def removals(self) -> int:
        """Return how many removals of targets were asked for."""
        return sum(change.action is Action.DEREGISTER for call in self.provider.calls for change in call.changes)
