"""One simulated process with tracker, worker and provider in virtual time, which can crash at any call.

In: a provider and a ledger that outlive it, and desired load balancers. Out: reports. ``crash`` cancels everything that
is in progress, and discards the tracker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from fairlead.model.contract import Ledger, Provider
from fairlead.model.desired import DesiredLoadBalancer
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import VirtualClock, settle
from fairlead.sync.history import Report
from fairlead.sync.plan import Tracker
from fairlead.sync.worker import Worker


class SimulatedProcess:
    """Tracker and worker of one process; an async context manager."""

    def __init__(self, *, provider: Provider, ledger: Ledger, clock: VirtualClock, parallel: int = 8) -> None:
        self.reports: list[Report] = []
        self.tracker = Tracker()
        self.worker = Worker(
            tracker=self.tracker,
            provider=provider,
            ledger=ledger,
            clock=clock,
            report=self.reports.append,
            parallel=parallel,
        )
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        await self.crash()

    def start(self) -> None:
        """Start the worker."""
        self._task = asyncio.create_task(self.worker.run(), name="engine")

    async def crash(self) -> None:
        """Cancel everything that is in progress, as if the process were killed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled() and (error := self._task.exception()) is not None:
                raise error
            self._task = None

    def put(self, *desired: DesiredLoadBalancer) -> None:
        """Set the desired state of load balancers."""
        for load_balancer in desired:
            if self.tracker.put(load_balancer):
                self.worker.trigger()

    def remove(self, *keys: LoadBalancerKey, though_unknown: bool = False) -> None:
        """Delete the desired state of load balancers."""
        for key in keys:
            if self.tracker.remove(key, though_unknown=though_unknown):
                self.worker.trigger()

    async def advance(self, seconds: float = 0.0) -> None:
        """Advance virtual time by ``seconds``; zero runs everything that is ready."""
        if seconds:
            await self._clock.advance(seconds)
        await settle()

    def last_report(self, key: LoadBalancerKey) -> Report:
        """Return the last report about ``key``."""
        return next(report for report in reversed(self.reports) if report.load_balancer == key)

    def sentences(self, keys: Iterable[LoadBalancerKey] = ()) -> list[str]:
        """Return the sentences of all reports, or of those about ``keys``, oldest first."""
        wanted = set(keys)
        return [report.sentence for report in self.reports if not wanted or report.load_balancer in wanted]
