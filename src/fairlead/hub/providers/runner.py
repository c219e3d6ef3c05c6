"""One provider with all that drives it: tracker, ledger and worker.

A ``ProviderRunner`` serves a provider whose whole state we serve ourselves: memory is ledger enough. A
``DurableRunner`` serves all others: it begins each term of leadership from the records, and works only while we lead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager

import structlog

from fairlead.api.backendrecord import BackendRecord, RecordOrigin
from fairlead.api.tcploadbalancer import Frontend
from fairlead.hub.providers.restore import place_of, registered_of, restore
from fairlead.ledger.memory import MemoryLedger
from fairlead.ledger.records import RecordEvent, RecordsLedger
from fairlead.ledger.store import Store
from fairlead.model.change import TargetChange
from fairlead.model.contract import Lifecycle, Provider, Restorable
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.runtime.loop import BUG_RETRY_S
from fairlead.sync.readback import Readback
from fairlead.sync.report import Report
from fairlead.sync.tracker import Tracker
from fairlead.sync.worker import Worker

log = structlog.get_logger(__name__)

#: How long one call of a provider may take before it counts as lost.
CALL_LIMIT_S = 120.0


class ProviderRunner:
    """Brings the load balancers of one provider to where they should be."""

    durable = False
    #: What is on record is known; until then nobody may say that there is nothing.
    loaded = True

    def __init__(self, *, provider: Provider, clock: Clock, report: Callable[[Report], None]) -> None:
        self.provider = provider
        self.tracker = Tracker()
        self.worker = Worker(tracker=self.tracker, provider=provider, ledger=MemoryLedger(), clock=clock, report=report)


class DurableRunner(ProviderRunner):
    """Does so with a ledger that outlives us."""

    durable = True

    def __init__(
        self,
        *,
        name: str,
        provider: Provider,
        store: Store,
        clock: Clock,
        report: Callable[[Report], None],
        epoch: Callable[[], int | None],
        changed: Callable[[LoadBalancerKey], None] = lambda _key: None,
        origin: Callable[[TargetChange], RecordOrigin | None] = lambda _change: None,
        limit_s: float | None = CALL_LIMIT_S,
        parallel: int = 10,
    ) -> None:
        super().__init__(provider=provider, clock=clock, report=report)
        self.name = name
        self._store = store
        self._clock = clock
        self._report = report
        self._epoch = epoch
        self._changed = changed
        self._origin = origin
        self._limit_s = limit_s
        self._parallel = parallel
        self._started = False
        #: What the watch has shown since what is on record began to be read.
        self._meanwhile: list[tuple[BackendRecord | None, BackendRecord | None]] | None = None
        self.begin((), {})
        self.loaded = False
        provider.on_change(self._noticed)

    def begin(self, records: Iterable[BackendRecord], frontends: Mapping[LoadBalancerKey, Frontend]) -> None:
        """Begin a term: all that this process believed is replaced by what is on record."""
        self.ledger = RecordsLedger(
            store=self._store,
            provider=self.name,
            epoch=self._epoch,
            clock=self._clock,
            told=self._told,
            origin=self._origin_of,
            by_address=self.provider.capabilities.generates_addresses,
        )
        self.tracker = Tracker(keeps_refused=True)
        for key, frontend in frontends.items():
            self.ledger.frontends.load(key, frontend)
        self._restore(self.ledger.load(records), frontends)
        self.worker = Worker(
            tracker=self.tracker,
            provider=self.provider,
            ledger=self.ledger,
            clock=self._clock,
            report=self._report,
            parallel=self._parallel,
            may_call=lambda: self._epoch() is not None,
            limit_s=self._limit_s,
        )
        self.readback = Readback(
            provider=self.provider,
            tracker=self.tracker,
            clock=self._clock,
            trigger=self.worker.trigger,
            epoch_of=lambda key: self.ledger.frontends.get(key).epoch,
            lives=self.ledger.frontends.lives,
            changed=self._changed,
            account=self.worker.account,
        )
        self.loaded = True
        for old, new in self._meanwhile or ():
            self.ledger.observed(old, new)

    @contextmanager
    def catching_up(self) -> Generator[None]:
        """Keep for ``begin`` what the watch shows while what is on record is read: it may be younger."""
        self._meanwhile = []
        try:
            yield
        finally:
            self._meanwhile = None

    async def run(self) -> None:
        """Work until cancelled; only while we lead."""
        await self._start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.worker.run())
            group.create_task(self.readback.run())

    async def _start(self) -> None:
        while isinstance(self.provider, Lifecycle) and not self._started:
            try:
                await self.provider.start()
                self._started = True
            except Exception as error:
                # Promise 7, and somebody else's code: one provider that does not start must not stop the others.
                log.exception("provider does not start", provider=self.name, error=str(error))
                await self._clock.sleep(BUG_RETRY_S)

    def record_changed(self, old: BackendRecord | None, new: BackendRecord | None) -> None:
        """Take note of what the watch shows; before a term has begun nobody needs it."""
        if self.loaded:
            self.ledger.observed(old, new)
        elif self._meanwhile is not None:
            self._meanwhile.append((old, new))

    def _origin_of(self, change: TargetChange) -> RecordOrigin | None:
        return self._origin(change) if self.provider.capabilities.generates_addresses else None

    def _told(self, happened: RecordEvent, record: BackendRecord) -> None:
        place = place_of(record)
        match happened:
            case RecordEvent.APPEARED:
                key, listener, _ = place
                if key not in self.tracker:
                    self._restore([record], {})
                    self._changed(key)
                else:
                    self.tracker.adopt(key, listener, registered_of(record, self._clock))
            case RecordEvent.EDITED:
                key, listener, _ = place
                self.tracker.adopt(key, listener, registered_of(record, self._clock), anew=True)
            case RecordEvent.DELETED:
                self.tracker.recall(*place)
            case RecordEvent.GONE:
                self.tracker.forget(*place)
        self.worker.trigger()

    def _restore(self, records: Iterable[BackendRecord], frontends: Mapping[LoadBalancerKey, Frontend]) -> None:
        """Believe what is on record, and remind the provider of it."""
        for one in restore(self.tracker, records, frontends, self._clock):
            if isinstance(self.provider, Restorable):
                self.provider.recall(one.spec, one.info)

    def _noticed(self, key: LoadBalancerKey) -> None:
        self.readback.notice(key)
        self._changed(key)
