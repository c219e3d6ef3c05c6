"""The data planes: one that keeps its state, as an appliance, and one for each hub replica, as its Envoys.

In: calls of the providers of processes. Out: what is registered where, with a call for each change. A killed process
reaches neither. Never: forgets, or remembers, what a real one would not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

from fairlead.errors import Retry, Throttled
from fairlead.model.change import Action, Outcome, OutcomeStatus, TargetChange
from fairlead.model.contract import EVERY_FEATURE, AllocationKind, Capabilities
from fairlead.model.desired import FrontendSpec, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Ensured, Observed
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from tests.simulate.loop import OUTSIDE, Process, SimLoop

Members = dict[tuple[ListenerKey, TargetKey], Target]
#: (plane, key, listener, target key, what it was, what it is)
Changed = Callable[[str, LoadBalancerKey, ListenerKey, TargetKey, Target | None, Target | None], None]


class Trouble:
    """What goes wrong in calls of providers; nothing at first."""

    rate = 0.0


class Plane:
    """What one data plane serves: addresses and targets of load balancers."""

    def __init__(self, name: str, changed: Changed) -> None:
        self.name = name
        self.specs: dict[LoadBalancerKey, FrontendSpec] = {}
        self.members: dict[LoadBalancerKey, Members] = {}
        self._changed = changed

    def show(self, cloud: MemoryCloud, key: LoadBalancerKey, also: Members) -> None:
        """Serve ``key`` as it is in ``cloud`` from now on, and ``also`` targets that the hub has not read."""
        there = cloud.load_balancers.get(key)
        old, new = self.members.get(key, {}), {**also, **cloud.members(key)}
        if there is None:
            self.specs.pop(key, None)
            self.members.pop(key, None)
        else:
            self.specs[key] = there.spec
            self.members[key] = new
        for at in old.keys() | new.keys():
            if old.get(at) != new.get(at):
                self._changed(self.name, key, *at, old.get(at), new.get(at))

    def ready(self, key: LoadBalancerKey, listener: ListenerKey) -> set[str]:
        """Return the targets of a listener that get new connections."""
        members = self.members.get(key, {})
        return {str(at) for (each, at), target in members.items() if each == listener and not target.draining}


class SimProvider(MemoryProvider):
    """A provider of one process: late, failing at times, and mute once its process is dead."""

    def __init__(
        self,
        process: Process,
        loop: SimLoop,
        cloud: MemoryCloud,
        plane: Plane,
        trouble: Trouble,
        seed: str,
        *,
        serves_whole_state: bool,
    ) -> None:
        super().__init__(cloud=cloud)
        self._process = process
        self._loop = loop
        self._plane = plane
        self._trouble = trouble
        self._draws = random.Random(seed)
        self._whole = serves_whole_state
        self.published = not serves_whole_state
        self._kept: dict[LoadBalancerKey, Members] = {}

    @property
    def capabilities(self) -> Capabilities:
        if not self._whole:
            return msgspec.structs.replace(EVERY_FEATURE, max_batch=0)
        return msgspec.structs.replace(EVERY_FEATURE, allocation=AllocationKind.ADDRESS, serves_whole_state=True)

    def keep(self, key: LoadBalancerKey, *, unread: bool) -> None:
        """Leave what the data plane has of a load balancer as it is."""
        if unread and self.published and key in self.cloud.load_balancers:
            return  # it was read before
        if unread:
            self._kept.setdefault(key, dict(self._plane.members.get(key, {})))
        elif self._kept.pop(key, None) is not None and self.published:
            self._plane.show(self.cloud, key, {})

    def on_change(self, notify: Callable[[LoadBalancerKey], None]) -> None:
        process, loop = self._process, self._loop

        def changed(key: LoadBalancerKey) -> None:
            if process.alive:
                loop.call_later(0.01, notify, key, context=process.context.copy())

        self.cloud.subscribe(changed)

    async def start(self) -> None:
        """Get ready."""

    def publish(self) -> None:
        """Serve all that there is, and every change from now on."""
        self.published = True
        for key in sorted({*self._plane.specs, *self.cloud.load_balancers}):
            self._show(key)

    async def close(self) -> None:
        """Leave the data plane as it is."""

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        lost = await self._enter("ensure")
        answer = await super().ensure(spec)
        self._show(spec.key)
        self._after(lost)
        return answer

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        lost = await self._enter("apply")
        outcomes = await super().apply(changes)
        for key in dict.fromkeys(change.load_balancer for change in changes):
            self._show(key)
        self._after(lost)
        return outcomes

    async def delete(self, key: LoadBalancerKey) -> None:
        lost = await self._enter("delete")
        await super().delete(key)
        self._kept.pop(key, None)  # it is known to be unwanted
        self._show(key)
        self._after(lost)

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        await self._enter("observe")
        return await super().observe(key)

    async def _enter(self, method: str) -> bool:
        """Wait a little, and perhaps fail; return whether the answer is to be lost."""
        await self._process.clock.sleep(0.001 + 0.02 * self._draws.random())
        if self._trouble.rate and not self._whole and self._draws.random() < self._trouble.rate:
            match self._draws.randrange(4):
                case 0:
                    raise Retry(f"no answer to {method}", reason="Timeout")
                case 1:
                    raise Throttled("too many calls", after_s=1.0)
                case 2:
                    await self._process.clock.sleep(5.0 * self._draws.random())
                case _:
                    return True
        return False

    def _after(self, lost: bool) -> None:
        if lost:
            raise Retry("the answer was lost", reason="Timeout")

    def _show(self, key: LoadBalancerKey) -> None:
        if self.published and (key not in self._kept or key in self.cloud.load_balancers):
            self._plane.show(self.cloud, key, self._kept.get(key, {}))


__all__ = ["OUTSIDE", "Action", "OutcomeStatus", "Plane", "SimProvider", "Trouble"]
