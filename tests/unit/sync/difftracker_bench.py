"""A worker over a provider that refuses what the test says, and over a ledger that survives."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.errors import Terminal
from fairlead.model.desired import GuardPolicy
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.testing.builders import desired, lb_key, target
from fairlead.testing.faults import FaultyProvider
from fairlead.testing.ledger import PersistentLedger
from fairlead.testing.simulation import SimulatedProcess

KEY = lb_key()
LOOSE = GuardPolicy(100, 0)


def desired_state(*numbers, **text):
    return desired([target(str(number)) for number in numbers], guard=LOOSE, **text)


class Picky(MemoryProvider):
    """Refuses, for good, load balancers at one address; raises ``errors``, once each, for ``KEY``."""

    refused = "192.0.2.66"
    errors: Sequence[Exception] = ()

    async def ensure(self, spec):
        if spec.key == KEY and self.errors:
            error, *self.errors = self.errors
            raise error
        if spec.address == self.refused:
            self.calls["refused"] += 1
            raise Terminal(f"{spec.address} is reserved", reason="QuotaExceeded")
        return await super().ensure(spec)


class Bench:
    """A worker over a ledger that survives and a provider that takes its time."""

    def __init__(self, *, latency_s=0.0, ledger: PersistentLedger | None = None):
        self.clock = VirtualClock()
        self.cloud = MemoryCloud(clock=self.clock)
        self.memory = Picky(cloud=self.cloud)
        self.provider = FaultyProvider(self.memory, clock=self.clock, latency_s=latency_s)
        self.ledger = ledger or PersistentLedger()
        self.engine = SimulatedProcess(provider=self.provider, ledger=self.ledger, clock=self.clock)

    async def __aenter__(self):
        self.engine.start()
        return self

    async def __aexit__(self, *_):
        await self.engine.crash()
        assert self.provider.overlaps == []

    @property
    def methods(self):
        return [call.method for call in self.provider.calls]

    @property
    def rows(self):
        return [
            (change.action.value, change.key.address.removeprefix("10.0.0."))
            for call in self.provider.calls
            for change in call.changes
        ]

    def on(self, key=KEY):
        return {int(at.address.removeprefix("10.0.0.")) for _, at in self.cloud.members(key)}

    async def served(self, *numbers):
        self.engine.put(desired_state(*numbers))
        await self.engine.advance(10)
        assert self.on() == set(numbers)
        self.provider.calls.clear()
