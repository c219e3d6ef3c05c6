"""The ledger that remembers nothing, for providers whose whole state dies with us."""

from __future__ import annotations

from fairlead.ledger.frontends import MemoryLedger
from fairlead.model.change import DONE, Action, Reason, TargetChange
from fairlead.testing.builders import HTTP, desired, lb_key, target


async def test_changes_are_returned_unchanged():
    ledger, spec = MemoryLedger(), desired([]).spec
    changes = [TargetChange(lb_key(), HTTP, target("1"), Action.REGISTER, Reason.NEW)]
    assert list(await ledger.record(spec, changes)) == changes
    assert list(await ledger.settle(spec, changes, [DONE])) == [DONE]
