"""Records are written before a call and kept as long as needed: finalizers, crashes between calls, namesakes."""

from __future__ import annotations

import asyncio

import pytest
from records_desk import KEY, Desk
from records_story import backend

from fairlead.api.backendgroup import BACKEND_RECORDS
from fairlead.api.names import FINALIZER_DEREGISTER
from fairlead.errors import Unreachable
from fairlead.model.change import Outcome, OutcomeStatus
from fairlead.model.desired import GuardPolicy
from fairlead.providers.memory import MemoryProvider
from fairlead.testing.builders import HTTP, lb_key

LOOSE = GuardPolicy(100, 0)


@pytest.fixture
def desk(virtual):
    desk = Desk(virtual)
    yield desk
    desk.stop()


def at(number):
    return f"10.0.0.{number}"


@pytest.mark.req("A-42")
def test_the_finalizer_is_there_before_the_call_and_goes_after_the_backend(desk):
    held = []

    def look(_method, changes):
        for change in changes:
            record = desk.records()[change.key.address]
            held.append((change.action.value, FINALIZER_DEREGISTER in record.metadata.finalizers, record.deleting))

    desk.provider.before = look
    desk.intended(backend(1), backend(2), guard=LOOSE)
    desk.intended(backend(2), guard=LOOSE)
    assert held == [("Register", True, False), ("Register", True, False), ("Deregister", True, True)]
    assert set(desk.records()) == {at(2)}


@pytest.mark.req("A-42", "A-34")
def test_a_finalizer_is_removed_later_and_no_backend_is_forgotten(desk):
    desk.intended(backend(1), backend(2), guard=LOOSE)
    refused = []

    async def fail(when, what, number=0):
        record = desk.records().get(at(1))
        if (when, what) == ("before", "patch BackendRecord") and record is not None and record.deleting:
            refused.append(desk.clock.monotonic())
            if len(refused) <= 3:
                raise Unreachable("The hub's API answers 503.")
        return number

    desk.api.at_call = fail
    desk.intended(backend(2), guard=LOOSE, after_s=0.04)
    assert desk.at_cloud() == {at(2)}
    assert set(desk.records()) == {at(1), at(2)}
    desk.do(after_s=30)
    assert len(refused) == 4
    assert set(desk.records()) == {at(2)}


@pytest.mark.req("A-42")
def test_does_not_strip_replacement_pod_finalizer(desk):
    """While a backend is being deregistered its record is torn away, and a namesake takes its place."""
    desk.intended(backend(1), backend(2), guard=LOOSE)
    first = desk.records()[at(1)].metadata.uid
    reported, second = [], []

    def tear(_method, changes):
        reported.extend(change.facts.record_id for change in changes if change.action == "Deregister")
        if reported and not second:
            key = desk.records()[at(1)].key
            old = desk.api.objects["BackendRecord", *key]
            desk.api.do_patch(BACKEND_RECORDS, *key, {"metadata": {"finalizers": None}})
            assert at(1) not in desk.records()
            meta = {"namespace": key[0], "name": key[1], "finalizers": [FINALIZER_DEREGISTER]}
            body = {**old, "metadata": meta, "status": {"state": "Registered"}}
            second.append(desk.api.do_create(BACKEND_RECORDS, body).metadata.uid)

    desk.provider.before = tear
    desk.intended(backend(2), guard=LOOSE, after_s=60)
    assert reported == [first, *second], "the namesake keeps its finalizer until it has been deregistered itself"
    assert set(desk.records()) == {at(2)}


class Mute(MemoryProvider):
    """Does all it is asked, and never answers to ``mute``."""

    mute = ""

    async def ensure(self, spec):
        return await self._said("ensure", await super().ensure(spec))

    async def apply(self, changes):
        return await self._said("apply", await super().apply(changes))

    async def _said(self, method, answer):
        if method == self.mute:
            await asyncio.Event().wait()
        return answer


@pytest.mark.req("A-33", "A-15")
@pytest.mark.parametrize("wanted", [True, False], ids=["still-wanted", "not-wanted-any-more"])
@pytest.mark.parametrize(
    ("call", "done", "there"),
    [("ensure", False, None), ("ensure", True, set()), ("apply", False, set()), ("apply", True, {1})],
    ids=["before-ensure", "after-ensure", "before-apply", "after-apply"],
)
def test_at67_what_was_made_and_not_recorded_is_adopted_or_taken_away(desk, call, done, there, wanted):
    """The process dies around a call; the next one makes good, and what is not ours is as it was."""
    desk.cloud.add_foreign(KEY, "by-hand", backend(200))
    desk.provider.inner = inner = Mute(cloud=desk.cloud)
    inner.mute = call if done else ""
    desk.provider.latency_s = 0.0 if done else 1.0
    intended = desk.intended(backend(1), guard=LOOSE, after_s=1.5 if call == "apply" else 0.5)
    desk.stop()
    assert (KEY in desk.cloud.load_balancers) == (there is not None)
    assert desk.at_cloud() == {at(number) for number in there or ()}
    inner.mute = ""
    desk.provider.latency_s = 0.0
    desk.start(intended=intended if wanted else None)
    if not wanted:
        desk.do(lambda: desk.engine.tracker.remove(KEY, though_unknown=True))
    desk.do(after_s=60)
    assert desk.at_cloud() == ({at(1)} if wanted else set())
    assert (KEY in desk.cloud.load_balancers) == wanted
    assert desk.states() == ({at(1): "Registered"} if wanted else {})
    assert desk.cloud.foreign(KEY) == {"by-hand": backend(200)}
    assert len(desk.engine.tracker) == wanted


@pytest.mark.req("A-33")
def test_at70_what_has_no_record_is_not_ours_whatever_it_is_called(desk):
    theirs = lb_key("theirs")
    desk.intended(backend(1), backend(2), guard=LOOSE)
    desk.cloud.drift(KEY, HTTP, backend(9).key, backend(9))
    desk.cloud.load_balancers[theirs] = desk.cloud.load_balancers[KEY]
    desk.stop()
    desk.start()
    desk.intended(backend(2), guard=LOOSE, after_s=200)
    assert desk.at_cloud() == {at(2), at(9)}
    assert theirs in desk.cloud.load_balancers
    assert at(9) not in {address for _, address in desk.provider.rows()}


@pytest.mark.req("A-35", "A-36", "A-51")
def test_a_rejected_address_delays_no_other_change(desk):
    desk.intended(*(backend(number) for number in range(1, 6)), guard=LOOSE)
    desk.provider.answer = lambda change: (
        Outcome(OutcomeStatus.REJECTED, "10.0.0.66 is reserved") if change.key.address == at(66) else None
    )
    desk.intended(backend(66), *(backend(number) for number in range(3, 9)), guard=LOOSE, after_s=20)
    assert desk.at_cloud() == {at(number) for number in range(3, 9)}
    asked = [address for _, address in desk.provider.rows()].count(at(66))
    assert asked == 1, "a refusal is not asked about again and again"
    assert len(desk.engine.worker.quarantine) == 1
    assert desk.records()[at(66)].status.message == "10.0.0.66 is reserved"
