"""One provider with all that drives it: tracker, ledger and worker.

A ``ProviderRunner`` serves a provider whose whole state we serve ourselves: its ledger is in memory. A
``DurableRunner`` serves all others: it begins each term of leadership from the records, and works only while we lead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from fairlead.api.backendgroup import BackendRecord
from fairlead.api.intent import Provisioned
from fairlead.hub.providers.term import DrainStarts, Term, TermSettings
from fairlead.ledger.memory import MemoryLedger
from fairlead.ledger.records import RecordsLedger
from fairlead.model.contract import Lifecycle, Provider
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.runtime.loop import BUG_RETRY_S
from fairlead.sync.history import Report
from fairlead.sync.readback import Readback
from fairlead.sync.tracker import Tracker
from fairlead.sync.worker import Worker

log = structlog.get_logger(__name__)


class ProviderRunner:
    """Reconciles the load balancers of one provider."""

    durable = False

    def __init__(self, *, provider: Provider, clock: Clock, report: Callable[[Report], None]) -> None:
        self.provider = provider
        self._tracker = Tracker()
        self._worker = Worker(
            tracker=self._tracker, provider=provider, ledger=MemoryLedger(), clock=clock, report=report
        )

    @property
    def loaded(self) -> bool:
        """Return whether what is on record is known; before that, an empty tracker proves nothing."""
        return True

    @property
    def tracker(self) -> Tracker:
        """Return what is desired, and what was done."""
        return self._tracker

    @property
    def worker(self) -> Worker:
        """Return what calls the provider."""
        return self._worker


class DurableRunner(ProviderRunner):
    """Does so with BackendRecords as its ledger."""

    durable = True

    def __init__(self, settings: TermSettings) -> None:
        self.provider = settings.provider
        self.name = settings.name
        self._settings = settings
        self._started = False
        self._loaded = False
        self._drains = DrainStarts(settings.clock)
        self._term = Term(settings, self._drains, (), {})
        settings.provider.on_change(self._provider_changed)

    @property
    def loaded(self) -> bool:
        """Return whether a term has begun."""
        return self._loaded

    @property
    def tracker(self) -> Tracker:
        """Return what is desired, and what was done, in this term."""
        return self._term.tracker

    @property
    def worker(self) -> Worker:
        """Return what calls the provider in this term."""
        return self._term.worker

    @property
    def ledger(self) -> RecordsLedger:
        """Return the records of this term."""
        return self._term.ledger

    @property
    def readback(self) -> Readback:
        """Return what was read back from the provider in this term."""
        return self._term.readback

    def begin(self, records: Iterable[BackendRecord], frontends: Mapping[LoadBalancerKey, Provisioned]) -> None:
        """Begin a term: the state in memory is replaced by what is on record."""
        self._term = Term(self._settings, self._drains, records, frontends)
        self._loaded = True

    def end(self) -> None:
        """End the term: what is on record is not known any more."""
        self._loaded = False

    async def run(self) -> None:
        """Work until cancelled; only while we lead."""
        await self._start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.ledger.frontends.rewrite_old())
            group.create_task(self.worker.run())
            group.create_task(self.readback.run())

    async def _start(self) -> None:
        while isinstance(self.provider, Lifecycle) and not self._started:
            try:
                await self.provider.start()
                self._started = True
            except Exception as error:
                # Promise 7, and code of third parties: one provider that does not start must not stop the others.
                log.exception("provider does not start", provider=self.name, error=str(error))
                await self._settings.clock.sleep(BUG_RETRY_S)

    def record_changed(self, old: BackendRecord | None, new: BackendRecord | None) -> None:
        """Follow what the watch shows; a term begins with what it has shown before."""
        self._drains.note(old, new)
        if self._loaded:
            self.ledger.observed(old, new)

    def _provider_changed(self, key: LoadBalancerKey) -> None:
        self.readback.notice(key)
        self._settings.changed(key)
