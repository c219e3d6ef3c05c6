"""A removal that the provider refuses: the backend stays registered, and the removal is tried again, not too often."""

from __future__ import annotations

import pytest

from fairlead.errors import Terminal
from fairlead.model.change import Action, Outcome, OutcomeStatus
from fairlead.model.desired import GuardPolicy
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.testing.builders import HTTP, desired, lb_key, target
from fairlead.testing.ledger import PersistentLedger
from fairlead.testing.simulation import SimulatedProcess

pytestmark = pytest.mark.req("T-survivors")
KEY = lb_key()


class Clinging(MemoryProvider):
    """Refuses to remove while ``clings``: item by item, or with ``whole`` the call that asks for it."""

    def __init__(self, *, cloud, whole):
        super().__init__(cloud=cloud)
        self.clings = True
        self.whole = whole
        self.refusals = 0

    async def apply(self, changes):
        removals = [change for change in changes if change.action in (Action.DRAIN, Action.DEREGISTER)]
        if not removals or not self.clings:
            return await super().apply(changes)
        self.refusals += 1
        if self.whole:
            raise Terminal("it is in use")
        rest = iter(await super().apply([change for change in changes if change not in removals]))
        refused = Outcome(OutcomeStatus.REJECTED, "it is in use")
        return [refused if change in removals else next(rest) for change in changes]


@pytest.mark.parametrize("whole", [False, True], ids=["the item is refused", "the call is refused"])
async def test_a_refused_removal_is_tried_again_until_it_succeeds(whole):
    clock = VirtualClock()
    cloud = MemoryCloud(clock=clock)
    provider = Clinging(cloud=cloud, whole=whole)
    async with SimulatedProcess(provider=provider, ledger=PersistentLedger(), clock=clock) as engine:
        engine.put(desired([target("1"), target("2")], guard=GuardPolicy(100, 0)))
        await engine.advance(1)
        engine.put(desired([target("2")], guard=GuardPolicy(100, 0)))
        await engine.advance(1)
        assert provider.refusals == 1
        assert set(cloud.members(KEY)) == {(HTTP, target("1").key), (HTTP, target("2").key)}
        assert engine.last_report(KEY).failure == "it is in use"
        await engine.advance(600)
        assert 2 <= provider.refusals <= 40, "again and again, and not all the time"
        provider.clings = False
        await engine.advance(600)
        assert set(cloud.members(KEY)) == {(HTTP, target("2").key)}
        assert engine.last_report(KEY).failure == ""
