"""A worker over a provider whose faults the test scripts, in virtual time."""

from __future__ import annotations

from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.testing.builders import HTTP, lb_key, target
from fairlead.testing.faults import Fault, FaultyProvider
from fairlead.testing.ledger import PersistentLedger
from fairlead.testing.simulation import SimulatedProcess

KEY = lb_key()


class Bench:
    """A worker over a provider whose faults the test scripts."""

    def __init__(self, *, latency_s=0.0, max_batch=0, parallel=8):
        self.clock = VirtualClock()
        self.cloud = MemoryCloud(clock=self.clock)
        memory = MemoryProvider(cloud=self.cloud, max_batch=max_batch)
        self.provider = FaultyProvider(memory, clock=self.clock, latency_s=latency_s)
        self.ledger = PersistentLedger()
        self.engine = SimulatedProcess(provider=self.provider, ledger=self.ledger, clock=self.clock, parallel=parallel)

    def fail(self, *faults):
        """Let the next calls end so; the ones after them work."""
        left = list(faults)
        self.provider.script = lambda _call: left.pop(0) if left else Fault.NONE

    def methods(self):
        return [call.method for call in self.provider.calls]

    def on(self, key=KEY, listener=HTTP):
        return {at for each, at in self.cloud.members(key) if each == listener}

    def target(self, number, key=KEY):
        return self.cloud.members(key)[HTTP, target(number).key]
