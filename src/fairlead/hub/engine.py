"""One provider with all that drives it: tracker, ledger and worker."""

from __future__ import annotations

from collections.abc import Callable

from fairlead.ledger.memory import MemoryLedger
from fairlead.model.contract import Provider
from fairlead.runtime.clock import Clock
from fairlead.sync.tracker import Tracker
from fairlead.sync.worker import Report, Worker


class Engine:
    """Brings the load balancers of one provider to where they should be."""

    def __init__(self, *, provider: Provider, clock: Clock, report: Callable[[Report], None]) -> None:
        self.provider = provider
        self.tracker = Tracker()
        self.worker = Worker(tracker=self.tracker, provider=provider, ledger=MemoryLedger(), clock=clock, report=report)
