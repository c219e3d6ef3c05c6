"""One durable engine over a tiny API and a scripted provider, in time that costs nothing: for one scenario each.

In: what is desired, what people do to records, and what the provider answers. Out: calls, records, reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
from records_api import TinyApi
from records_loop import LoopClock, VirtualLoop

from fairlead.api.backendgroup import BACKEND_RECORDS, BackendRecord
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.hub.providers.runner import DurableRunner, TermSettings
from fairlead.kube.cluster import Cluster
from fairlead.model.change import Outcome, TargetChange
from fairlead.model.contract import Capabilities
from fairlead.model.desired import DesiredLoadBalancer, FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured, Observed
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.sync.history import Report
from fairlead.testing.builders import desired
from fairlead.testing.ledger import resource_of

KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")


class Scripted:
    """The memory provider; ``answer`` may say something else for one row, ``before`` may raise for a whole call."""

    def __init__(self, inner: MemoryProvider) -> None:
        self.inner = inner
        self.calls: list[tuple[str, tuple[TargetChange, ...]]] = []
        self.recalled: list[FrontendSpec] = []
        self.let_go_of: list[LoadBalancerKey] = []
        self.answer: Callable[[TargetChange], Outcome | None] = lambda _change: None
        self.before: Callable[[str, Sequence[TargetChange]], None] = lambda _method, _changes: None
        self.latency_s = 0.0

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def on_change(self, notify: Any) -> None:
        self.inner.on_change(notify)

    def restore(self, spec: FrontendSpec, info: Any) -> None:
        self.recalled.append(spec)

    def release(self, key: LoadBalancerKey) -> None:
        self.let_go_of.append(key)

    async def ensure(self, spec: FrontendSpec) -> Ensured:
        await self._call("ensure", ())
        return await self.inner.ensure(spec)

    async def apply(self, changes: Sequence[TargetChange]) -> Sequence[Outcome]:
        await self._call("apply", changes)
        out: list[Outcome] = []
        for change in changes:
            said = self.answer(change)
            out += [said] if said is not None else await self.inner.apply([change])
        return out

    async def observe(self, key: LoadBalancerKey) -> Observed | None:
        return await self.inner.observe(key)

    async def delete(self, key: LoadBalancerKey) -> None:
        await self._call("delete", ())
        await self.inner.delete(key)

    async def _call(self, method: str, changes: Sequence[TargetChange]) -> None:
        self.calls.append((method, tuple(changes)))
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        self.before(method, changes)

    def rows(self) -> list[tuple[str, str]]:
        """Return (action, address) of every row, in the order of the calls."""
        return [(change.action.value, change.key.address) for _, changes in self.calls for change in changes]


class Desk:
    """Everything for one scenario."""

    def __init__(self, loop: VirtualLoop, *, max_batch: int = 0) -> None:
        self.loop = loop
        self.clock = LoopClock(loop)
        self.cloud = MemoryCloud(clock=self.clock)
        self.provider = Scripted(MemoryProvider(cloud=self.cloud, max_batch=max_batch))
        self.api = TinyApi()
        self.api.do_create(
            LOAD_BALANCERS, {"metadata": {"namespace": "shop", "name": "shared"}, "spec": {"className": "m"}}
        )
        self.reports: list[Report] = []
        self.term: int | None = 1
        self.engine: DurableRunner
        self._task: asyncio.Task[None] | None = None
        self._unwatch: Callable[[], None] = lambda: None
        self.start()

    def start(
        self, *, intended: DesiredLoadBalancer | None = None, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        """Begin a term from what is on record and intended; ``meanwhile`` happens before the first call."""

        async def begin() -> None:
            self.engine = DurableRunner(
                TermSettings(
                    name="memory",
                    provider=self.provider,
                    cluster=cast("Cluster", self.api),
                    clock=self.clock,
                    report=self.reports.append,
                    epoch=lambda: self.term,
                    resource_of=resource_of,
                )
            )
            load_balancer = self.api.typed(LOAD_BALANCERS, "shop", "shared")
            frontend = load_balancer.status.frontend_of("memory") if load_balancer is not None else None
            self._unwatch = self.api.watch(self.engine.record_changed)
            self.engine.begin(self.api.records(), {KEY: frontend} if frontend is not None else {})
            meanwhile()
            if intended is not None:
                self.engine.tracker.put(intended)
            self.engine.worker.trigger()
            self._task = asyncio.create_task(self.engine.run())

        self.loop.run_until_complete(begin())

    def stop(self) -> None:
        """Kill the process."""

        async def end() -> None:
            self._unwatch()
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait((self._task,))

        self.loop.run_until_complete(end())

    def intended(self, *targets: Any, after_s: float = 1.0, **text: Any) -> DesiredLoadBalancer:
        """Desire these targets, and let time pass."""
        text = {"drain_s": 0.0, "key": KEY, **text}
        repair_s = text.pop("repair_s", 0.0)
        wanted = msgspec.structs.replace(desired(targets, **text), repair_s=repair_s)
        self.do(lambda: self.engine.tracker.put(wanted), after_s=after_s)
        return wanted

    def do(self, what: Callable[[], object] = lambda: None, *, after_s: float = 1.0) -> None:
        """Do something inside the loop, then let time pass."""

        async def run() -> None:
            what()
            self.engine.worker.trigger()
            await asyncio.sleep(after_s)

        self.loop.run_until_complete(run())

    def records(self) -> dict[str, BackendRecord]:
        return {record.spec.target.address: record for record in self.api.records()}

    def states(self) -> dict[str, str]:
        return {address: each.status.state for address, each in self.records().items()}

    def at_cloud(self) -> set[str]:
        return {at.address for _, at in self.cloud.members(KEY)}

    def delete_record(self, address: str) -> None:
        self.api.do_delete(BACKEND_RECORDS, *self.records()[address].key)


def at(number: int) -> str:
    """Return the address of a backend."""
    return f"10.0.0.{number}"
