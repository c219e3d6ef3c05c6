"""An engine whose load balancers are read back, with a provider that can hide them, hang, or know another epoch."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from fairlead.model.desired import GuardPolicy
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.sync.readback import CERTAIN_S, Readback
from fairlead.testing.builders import desired, lb_key, target
from fairlead.testing.faults import FaultyProvider
from fairlead.testing.ledger import PersistentLedger
from fairlead.testing.simulation import SimulatedProcess

KEY = lb_key()
#: As long as it takes at most from a notice to the second look, at ticks of five seconds.
SOON_S = 3 * CERTAIN_S


def desired_state(*numbers, existing=False, **text):
    wanted = desired([target(str(at)) for at in numbers], guard=GuardPolicy(100, 0), **text)
    return msgspec.structs.replace(wanted, spec=msgspec.structs.replace(wanted.spec, existing=existing))


class Forgetful(MemoryProvider):
    """Shows nothing of load balancers in ``hidden``; for each look at one of them one is taken off."""

    def __init__(self, **text):
        super().__init__(**text)
        self.hidden = {}
        self.hangs = set()
        self.bugs = set()
        #: Does not say which targets there are.
        self.lists = True
        #: Looks at these are never answered; at those in ``deaf`` not even when they are cancelled.
        self.never = set()
        self.deaf = set()
        self.may_end = asyncio.Event()
        self.observed = []

    async def observe(self, key):
        self.observed.append(key)
        if key in self.bugs:
            raise ZeroDivisionError("a provider's own mistake")
        return await self._seen(key)

    async def _seen(self, key):
        if key.namespace in self.hangs or key in self.never:
            await asyncio.get_running_loop().create_future()
        while key in self.deaf and not self.may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.may_end.wait()
        if self.hidden.get(key, 0) > 0:
            self.hidden[key] -= 1
            return None
        seen = await super().observe(key)
        return seen if self.lists or seen is None else msgspec.structs.replace(seen, targets=None)


class Watched:
    """An engine that reads back what it has done."""

    def __init__(self):
        self.clock = VirtualClock()
        self.cloud = MemoryCloud(clock=self.clock)
        self.memory = Forgetful(cloud=self.cloud)
        self.provider = FaultyProvider(self.memory, clock=self.clock)
        self.engine = SimulatedProcess(provider=self.provider, ledger=PersistentLedger(), clock=self.clock)
        self.reported = []
        #: What the histories are to have.
        self.noted = []
        #: The epoch in which the targets of each load balancer are registered, and all that were ever stored.
        self.epochs = {}
        self.stored = []

        async def set_epoch(key, epoch):
            self.stored.append((key, epoch))
            self.epochs[key] = epoch

        self.readback = Readback(
            provider=self.memory,
            tracker=self.engine.tracker,
            clock=self.clock,
            trigger=self.engine.worker.trigger,
            epoch_of=lambda key: self.epochs.get(key, ""),
            set_epoch=set_epoch,
            changed=self.reported.append,
            note=lambda key, text: self.noted.append((key, text)),
            failure_domain=lambda key: key.namespace,
        )
        self.memory.on_change(self.readback.notice)

    async def __aenter__(self):
        self.engine.start()
        self._task = asyncio.create_task(self.readback.run())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()
        await asyncio.wait((self._task,))
        await self.engine.crash()
        assert self.provider.overlaps == []

    @property
    def drift(self):
        return self.readback.drifts.get(KEY)

    def on(self, key=KEY):
        return {int(at.address.removeprefix("10.0.0.")) for _, at in self.cloud.members(key)}

    async def served(self, *desired_states):
        self.engine.put(*desired_states)
        await self.engine.advance(SOON_S)
        self.provider.calls.clear()
        self.engine.reports.clear()
        self.reported.clear()
