"""A world for the durable engine: objects, records and a cloud that outlive it, and a process that dies at any call.

In: a seed, which decides what users do, what goes wrong and how calls interleave. Out: what is there in the end, and
every promise that was broken on the way. An external call is one to the API or to the provider; each has two moments
at which the process may die: before anything has happened, and after everything has.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from records_api import TinyApi
from records_loop import LoopClock, VirtualLoop
from records_story import KEYS, Intended, Step

from fairlead.api.backendgroup import BACKEND_RECORDS, BackendRecord
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.names import FINALIZER_DEREGISTER
from fairlead.errors import Retry
from fairlead.hub.providers.runner import DurableRunner, TermSettings, place_of
from fairlead.kube.cluster import Cluster
from fairlead.model.change import Action, Outcome, TargetChange
from fairlead.model.contract import Capabilities
from fairlead.model.desired import DesiredLoadBalancer, FrontendSpec, Target
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured, Observed
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.sync.history import Report
from fairlead.testing.builders import HTTP, target
from fairlead.testing.ledger import resource_of

FOREIGN = ("by-hand", target("200"))


class SimProvider:
    """The memory provider behind the world's call counter; checks at each call that the ledger came first."""

    def __init__(self, world: World, inner: MemoryProvider) -> None:
        self._world = world
        self._inner = inner
        self.busy: set[LoadBalancerKey] = set()

    @property
    def capabilities(self) -> Capabilities:
        return self._inner.capabilities

    def on_change(self, notify: Any) -> None:
        self._inner.on_change(notify)

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        return await self._call("ensure", {spec.key}, (), self._inner.ensure(spec))

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        keys = {change.load_balancer for change in changes}
        return await self._call("apply", keys, changes, self._inner.apply(changes))

    async def delete(self, key: LoadBalancerKey) -> None:
        await self._call("delete", {key}, (), self._inner.delete(key))

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        return await self._inner.observe(key)

    async def _call(self, method: str, keys: set[LoadBalancerKey], changes: Sequence[TargetChange], call: Any) -> Any:
        world = self._world
        world.mixed += len(keys) > 1
        for key in keys & self.busy:
            world.broken(f"two operations on {key} at once")
        self.busy |= keys
        try:
            for key in keys:
                world.check_intent(method, key, [change for change in changes if change.load_balancer == key])
            try:
                number = await world.at_call("before", method)
            except BaseException:
                call.close()
                raise
            answer = await call
            world.provider_calls += 1
            world.check()
            await world.at_call("after", method, number)
            return answer
        finally:
            self.busy -= keys


class World:
    """Everything but the process outlives the process."""

    def __init__(self, loop: VirtualLoop, *, seed: int = 0, latency: bool = True, max_batch: int = 0) -> None:
        self.rng = random.Random(seed)
        random.seed(seed)  # back-off is jittered
        self.clock = LoopClock(loop)
        self.cloud = MemoryCloud(clock=self.clock)
        self.memory = MemoryProvider(cloud=self.cloud, max_batch=max_batch)
        self.api = TinyApi()
        self.api.at_call = self.at_call
        self.api.lag_s = lambda: self.rng.choice((0.0, 0.01, 0.5))
        self.objects: dict[LoadBalancerKey, Intended] = {}
        self.violations: list[str] = []
        self.checks = 0
        self.calls = 0
        self.provider_calls = 0
        #: Calls about more than one load balancer.
        self.mixed = 0
        self.fault_rate = 0.0
        #: (number of the call, "before" or "after") at which the process dies.
        self.die_at: tuple[int, str] | None = None
        self.dead = False
        self.died = asyncio.Event()
        self.crashes = 0
        self.term = 0
        self.latency = latency
        self.reports: list[Report] = []
        self._served: set[LoadBalancerKey] = set()
        self._task: asyncio.Task[None] | None = None
        for key in KEYS:
            self.cloud.add_foreign(key, *FOREIGN)

    # --- what goes wrong --------------------------------------------------------------------------------------

    async def at_call(self, when: str, _what: str, number: int = 0) -> int:
        """Be at one of the two moments of one external call; returns its number."""
        if self.dead:
            await asyncio.get_running_loop().create_future()
        if when == "before":
            self.calls += 1
            number = self.calls
            if self.latency:
                await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.01, 0.2)))
        if self.die_at == (number, when):
            self.die_at = None
            self.dead = True
            self.died.set()
            await asyncio.get_running_loop().create_future()
        if self.fault_rate and self.rng.random() < self.fault_rate:
            # Before: nothing has happened. After: all of it has, and the answer is lost.
            raise Retry("no answer", reason="Injected")
        return number

    # --- promises ---------------------------------------------------------------------------------------------

    def broken(self, what: str) -> None:
        self.violations.append(f"call {self.calls}: {what}")

    def check_intent(self, method: str, key: LoadBalancerKey, changes: Sequence[TargetChange]) -> None:
        """Intent first: what a provider is asked for is on record when it is asked."""
        self.checks += 1
        held = {place_of(record): record for record in self.api.records()}
        if method == "ensure" and not self._frontend(key):
            self.broken(f"ensure of {key} before it was on record")
        for change in changes:
            record = held.get((key, change.listener, change.key))
            if record is None:
                self.broken(f"{change.action} of {change.key} without a record")
            elif FINALIZER_DEREGISTER not in (record.metadata.finalizers or ()):
                self.broken(f"{change.action} of {change.key}, whose record may vanish")
            elif change.action is Action.DEREGISTER and not record.deleting:
                self.broken(f"{change.key} is deregistered, and its record does not say so")
            elif change.action in (Action.REGISTER, Action.UPDATE) and record.deleting and key not in self.excused:
                # A person may delete a record between its intent and the call; then it is taken back at once.
                self.broken(f"{change.key} is registered while it is being deregistered")

    def check(self) -> None:
        """Look at everything from outside, after every call of the provider."""
        self.checks += 1
        held = {place_of(record) for record in self.api.records()}
        for key in KEYS:
            if self.cloud.foreign(key) != dict([FOREIGN]):
                self.broken(f"a foreign member of {key} was touched")
            members = self.cloud.members(key)
            for listener, at in members:
                if (key, listener, at) not in held:
                    self.broken(f"{at} of {key} is registered, and nobody knows")
            if self.objects.get(key) is None:
                self._served.discard(key)
            elif any(listener == HTTP and not each.draining for (listener, _), each in members.items()):
                self._served.add(key)
            elif key in self._served and key not in self.excused:
                self.broken(f"{key} lost its last ready backend")

    @property
    def excused(self) -> set[LoadBalancerKey]:
        """Return the load balancers whose backends a person deletes, or whose addresses change hands."""
        return self._excused

    _excused: set[LoadBalancerKey]

    def _frontend(self, key: LoadBalancerKey) -> str:
        load_balancer: LoadBalancer | None = self.api.typed(LOAD_BALANCERS, key.namespace, key.name)
        entry = load_balancer.status.frontend_of("memory") if load_balancer is not None else None
        return str(entry.asked) if entry is not None else ""

    # --- the process ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a term: read what is on record, then what is wanted, then work."""
        self.term += 1
        self.dead = False
        self.died.clear()
        term = self.term
        provider = SimProvider(self, self.memory)
        self.engine = DurableRunner(
            TermSettings(
                name="memory",
                provider=provider,
                cluster=cast("Cluster", self.api),
                clock=self.clock,
                report=self.reports.append,
                epoch=lambda: term,
                resource_of=resource_of,
            )
        )
        frontends = {}
        for key in KEYS:
            load_balancer: LoadBalancer | None = self.api.typed(LOAD_BALANCERS, key.namespace, key.name)
            if load_balancer is not None and (entry := load_balancer.status.frontend_of("memory")) is not None:
                frontends[key] = entry
        self.engine.begin(self.api.records(), frontends)
        self._unwatch = self.api.watch(self.engine.record_changed)
        for key in {*self.objects, *self.engine.tracker}:
            self._reconcile(key)
        self.engine.worker.trigger()
        self._task = asyncio.create_task(self.engine.run())

    async def stop(self) -> None:
        """Kill the process at once."""
        self.dead = True
        self._unwatch()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            if not self._task.cancelled() and (error := self._task.exception()) is not None:
                raise error

    async def let_pass(self, seconds: float) -> None:
        """Let time pass; a process that dies on the way is followed by the next one at once."""
        end_s = self.clock.monotonic() + seconds
        while (left_s := end_s - self.clock.monotonic()) > 1e-6:
            died = asyncio.ensure_future(self.died.wait())
            await asyncio.wait((died,), timeout=left_s)
            died.cancel()
            if self.died.is_set():
                self.crashes += 1
                await self.stop()
                self.start()
        self._let_go()

    def _let_go(self) -> None:
        for key in [
            key for key, intended in self.objects.items() if intended is None and key not in self.engine.tracker
        ]:
            del self.objects[key]
            self.api.do_delete(LOAD_BALANCERS, key.namespace, key.name)

    # --- users ------------------------------------------------------------------------------------------------

    def _reconcile(self, key: LoadBalancerKey) -> None:
        intended = self.objects.get(key)
        changed = self.engine.tracker.put(intended) if intended is not None else self.engine.tracker.remove(key)
        if changed:
            self.engine.worker.trigger()

    def user(self, what: str, key: LoadBalancerKey, detail: Any) -> None:
        """Create, change or delete one object, or delete one record by hand."""
        if what == "delete record":
            mine = sorted(record.key for record in self.api.records() if place_of(record)[0] == key)
            if mine:
                self._excused.add(key)
                self.api.do_delete(BACKEND_RECORDS, *mine[int(detail * len(mine))])
            return
        if what == "delete":
            if self.objects.get(key) is not None:
                self.objects[key] = None
                self._reconcile(key)
            return
        if key in self.objects and self.objects[key] is None:
            return  # it is on its way out, and cannot be changed back
        if key not in self.objects:
            meta = {"namespace": key.namespace, "name": key.name}
            self.api.do_create(LOAD_BALANCERS, {"metadata": meta, "spec": {"className": "m"}})
        self._note_replacements(key, detail)
        self.objects[key] = detail
        self._reconcile(key)

    def _note_replacements(self, key: LoadBalancerKey, intended: DesiredLoadBalancer) -> None:
        """An address that goes from one pod to another is deregistered in between, whatever the guard says."""
        sources = {place_of(record): record.spec.target.source for record in self.api.records()}
        for listener, each in intended.targets.items():
            for at, item in each.items():
                if item.source and sources.get((key, listener, at), item.source) not in ("", item.source):
                    self._excused.add(key)
        before = self.objects.get(key)
        for listener, each in (before.targets if before is not None else {}).items():
            for at, item in each.items():
                after = intended.targets.get(listener, {}).get(at)
                if after is not None and item.source != after.source:
                    self._excused.add(key)

    async def play(self, steps: Sequence[Step], ends: dict[LoadBalancerKey, Intended]) -> None:
        """Let users do what the story says, then wait until nothing more can happen."""
        self._excused = set()
        self.start()
        for wait_s, what, key, detail in steps:
            await self.let_pass(wait_s)
            self.user(what, key, detail)
        for _ in range(40):
            await self.let_pass(5.0)
            self.fault_rate = 0.0
            for key, intended in ends.items():
                # What could not be created because its namesake was still on its way out is created now.
                if intended is not None and self.objects.get(key) != intended:
                    self.user("intended", key, intended)
            if self.as_wanted(ends):
                break
        await self.stop()

    def as_wanted(self, ends: dict[LoadBalancerKey, Intended]) -> bool:
        """Say whether everything is as the story ends, at the cloud and in the ledger."""
        return not self.differences(ends)

    def differences(self, ends: dict[LoadBalancerKey, Intended]) -> list[str]:
        """Return where cloud or ledger are not as the story ends, in words."""
        out: list[str] = []
        records = {place_of(record): record for record in self.api.records()}
        wanted: dict[Any, Target] = {}
        for key, intended in ends.items():
            load_balancer = self.cloud.load_balancers.get(key)
            if (load_balancer.spec if load_balancer else None) != (intended.spec if intended else None):
                out.append(f"{key} is not as it should be")
            for listener, targets in (intended.targets if intended is not None else {}).items():
                wanted |= {(key, listener, at): each for at, each in targets.items()}
            # Owners are the ledger's business: the provider does not learn of them.
            members = {(key, *place): _as_sent(each) for place, each in self.cloud.members(key).items()}
            if members != {place: _as_sent(each) for place, each in wanted.items() if place[0] == key}:
                out.append(f"{key} has {sorted(map(str, members))}")
            if (key in self.objects) != (intended is not None):
                out.append(f"{key} has not let go of its object")
        if records.keys() != wanted.keys():
            out.append("records without backends, or backends without records")
        for place, each in wanted.items():
            record: BackendRecord | None = records.get(place)
            if record is None:
                continue
            if (record.status.state, tuple(sorted(record.spec.owners))) != ("Registered", each.owners):
                out.append(f"record {record.key}: {record.status.state}, owners {record.spec.owners}")
        return out


def _as_sent(target: Target) -> Target:
    return msgspec.structs.replace(target, owners=(), source="")
