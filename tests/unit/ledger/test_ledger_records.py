"""The durable ledger at each step of a record: the intent before the call, the fences, the outcome after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import msgspec
import pytest
from ledger_api import RecordApi

from fairlead.api.backendgroup import BackendRecord
from fairlead.api.meta import JSONObject
from fairlead.api.names import FINALIZER_DEREGISTER
from fairlead.errors import Conflict, Retry, Terminal
from fairlead.kube.cluster import Cluster
from fairlead.ledger.records import RecordEvent, RecordsLedger
from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import Target
from fairlead.model.keys import ListenerKey
from fairlead.model.observed import Ensured
from fairlead.runtime.clock import VirtualClock
from fairlead.testing.builders import HTTP, desired, lb_key, target
from fairlead.testing.ledger import resource_of

SPEC = desired([]).spec
RUNNING = Outcome(OutcomeStatus.RUNNING, "task 7 runs", 1.0)
REFUSED = Outcome(OutcomeStatus.REJECTED, "no such pool")


def change(
    action: Action = Action.REGISTER, *, backend: Target | None = None, reason: Reason = Reason.NEW
) -> TargetChange:
    return TargetChange(lb_key(), HTTP, backend or target("1"), action, reason)


class Books:
    """A ledger with its API; ``events`` is what it reported of other clients."""

    def __init__(self, *, by_address: bool = False, ensure_only_asks: bool = False) -> None:
        self._ensure_only_asks = ensure_only_asks
        self.api = RecordApi()
        self.term: int | None = 1
        self.events: list[RecordEvent] = []
        self.ledger = self.start(by_address=by_address)

    def start(self, *, by_address: bool = False) -> RecordsLedger:
        return RecordsLedger(
            cluster=cast("Cluster", self.api),
            provider="webhook",
            epoch=lambda: self.term,
            resource_of=resource_of,
            clock=VirtualClock(),
            on_event=lambda event, _record: self.events.append(event),
            by_address=by_address,
            ensure_only_asks=self._ensure_only_asks,
        )

    @property
    def only(self) -> BackendRecord:
        (record,) = self.api.records()
        return record

    def edit(self, patch: JSONObject) -> None:
        self.api.edit(self.only.metadata.name, patch)

    async def record(self, *changes: TargetChange) -> TargetChange | Outcome:
        answers = await self.ledger.record(SPEC, changes)
        return answers[-1]

    async def settle(self, row: TargetChange, outcome: Outcome = DONE) -> Outcome:
        (answer,) = await self.ledger.settle(SPEC, [row], [outcome])
        return answer

    async def register(self, row: TargetChange | None = None) -> TargetChange:
        recorded = await self.record(row or change())
        assert isinstance(recorded, TargetChange)
        assert await self.settle(recorded) == DONE
        return recorded


@pytest.fixture
def books() -> Books:
    return Books()


def raising(verb: str, error: Exception) -> Callable[[str, str], None]:
    def before_call(called: str, _name: str) -> None:
        if called == verb:
            raise error

    return before_call


async def test_a_registration_is_pending_with_its_finalizer_before_and_registered_after(books: Books):
    recorded = await books.record(change())
    assert isinstance(recorded, TargetChange)
    assert recorded.facts is not None
    assert recorded.facts.record_id == books.only.metadata.uid
    assert (books.only.status.state, books.only.metadata.finalizers) == ("Pending", [FINALIZER_DEREGISTER])
    assert books.only.metadata.labels == {
        "app.kubernetes.io/managed-by": "fairlead",
        "fairlead.dev/load-balancer": "web",
    }
    assert await books.settle(recorded) == DONE
    assert (books.only.status.state, books.only.status.message) == ("Registered", "")
    assert books.ledger.of(change()) == books.only


async def test_recorded_entries_are_not_written_again(books: Books):
    await books.register()
    books.api.calls.clear()
    await books.record(change(Action.UPDATE, reason=Reason.CHANGED))
    assert books.api.calls == []


async def test_an_update_is_pending_and_leaves_nothing_of_the_old_spec(books: Books):
    heavy = msgspec.structs.replace(target("1"), parameters=(("zone", "a"),))
    await books.register(change(backend=heavy))
    await books.record(change(Action.UPDATE, backend=target("1", weight=5), reason=Reason.CHANGED))
    assert (books.only.status.state, books.only.spec.target.weight, books.only.spec.parameters) == ("Pending", 5, {})


async def test_a_change_of_owners_alone_keeps_the_state(books: Books):
    await books.register()
    owned = msgspec.structs.replace(target("1"), owners=("group",))
    await books.record(change(Action.UPDATE, backend=owned, reason=Reason.OWNERS_CHANGED))
    assert (books.only.status.state, books.only.spec.owners) == ("Registered", ["group"])


async def test_a_finalizer_that_was_taken_away_is_put_back(books: Books):
    await books.register()
    books.edit({"metadata": {"finalizers": ["another"]}})
    books.ledger = books.start()
    books.ledger.load(books.api.records())
    await books.record(change())
    assert books.only.metadata.finalizers == ["another", FINALIZER_DEREGISTER]


async def test_a_record_whose_creation_got_no_answer_is_used(books: Books):
    await books.register()
    books.ledger = books.start()
    assert isinstance(await books.record(change()), TargetChange)
    assert len(books.ledger) == 1


async def test_drain_then_deregister_ends_with_no_record(books: Books):
    await books.register()
    row = change(Action.DRAIN, reason=Reason.TERMINATING)
    assert isinstance(await books.record(row), TargetChange)
    assert (books.only.status.state, books.only.status.reason) == ("Draining", "Terminating")
    assert isinstance(await books.record(row), TargetChange)
    assert await books.settle(row) == DONE
    gone = await books.record(change(Action.DEREGISTER, reason=Reason.DRAINED))
    assert isinstance(gone, TargetChange)
    assert (books.only.status.state, books.only.deleting) == ("Deregistering", True)
    assert await books.settle(gone) == DONE
    assert books.api.objects == {}
    assert len(books.ledger) == 0


@pytest.mark.parametrize("action", [Action.DRAIN, Action.DEREGISTER, Action.ENSURE, Action.DELETE])
async def test_without_a_record_there_is_nothing_to_take_away(books: Books, action: Action):
    assert await books.record(change(action)) == DONE
    assert await books.settle(change(action), RUNNING) == RUNNING
    assert books.api.objects == {}


async def test_another_finalizer_keeps_the_record_after_its_deregistration(books: Books):
    await books.register()
    books.edit({"metadata": {"finalizers": [FINALIZER_DEREGISTER, "another"]}})
    books.ledger = books.start()
    books.ledger.load(books.api.records())
    gone = await books.record(change(Action.DEREGISTER, reason=Reason.ABSENT))
    assert isinstance(gone, TargetChange)
    await books.settle(gone)
    assert books.only.metadata.finalizers == ["another"]
    assert len(books.ledger) == 1


async def test_a_record_that_was_forgotten_by_hand_is_not_deregistered(books: Books):
    await books.register()
    books.edit({"metadata": {"finalizers": None}})
    books.ledger.load(books.api.records())
    assert await books.record(change(Action.DEREGISTER)) == DONE
    assert books.api.objects == {}


async def test_a_deletion_in_progress_is_read_again_and_holds_up_a_registration(books: Books):
    await books.register()
    books.edit({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}})
    books.ledger.observed(None, books.only)
    answer = await books.record(change())
    assert isinstance(answer, Outcome)
    assert "is being deregistered" in answer.message
    assert books.events == [RecordEvent.DELETED, RecordEvent.DELETED]
    assert isinstance(await books.record(change(Action.DEREGISTER)), TargetChange)


async def test_a_namesake_is_not_released_by_the_answer_about_the_old_one(books: Books):
    await books.register()
    gone = await books.record(change(Action.DEREGISTER))
    assert isinstance(gone, TargetChange)
    assert gone.facts is not None
    old = msgspec.structs.replace(gone, facts=msgspec.structs.replace(gone.facts, record_id="another"))
    answer = await books.settle(old)
    assert answer.status is OutcomeStatus.RETRY
    assert books.only.metadata.finalizers == [FINALIZER_DEREGISTER]


@pytest.mark.req("T-survivors", "I-5")
async def test_who_does_not_lead_writes_nothing(books: Books):
    recorded = await books.record(change())
    assert isinstance(recorded, TargetChange)
    books.term = None
    with pytest.raises(Retry, match="does not lead"):
        await books.record(change())
    assert (await books.settle(recorded)).status is OutcomeStatus.RETRY
    assert books.only.status.state == "Pending"


async def test_a_record_of_a_newer_leader_is_left_alone(books: Books):
    books.term = 2
    await books.register()
    books.term = 1
    answer = await books.record(change(Action.DRAIN))
    assert isinstance(answer, Outcome)
    assert "a higher epoch" in answer.message


@pytest.mark.req("T-survivors", "I-5")
async def test_a_conflict_is_a_retry_and_what_was_written_between_is_known(books: Books):
    await books.register()
    books.edit({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}})
    answer = await books.record(change(Action.DRAIN))
    assert isinstance(answer, Outcome)
    assert answer.status is OutcomeStatus.RETRY
    assert books.events == [RecordEvent.DELETED]
    assert books.ledger.of(change()) == books.only
    books.edit({"status": {"message": "by hand"}})
    assert (await books.settle(change(Action.DRAIN), REFUSED)).status is OutcomeStatus.RETRY
    assert books.events == [RecordEvent.DELETED]


@pytest.mark.parametrize(("error", "after_s"), [(Terminal("no"), 0.0), (Retry("busy", after_s=3.0), 3.0)])
async def test_one_record_that_cannot_be_written_leaves_the_others(books: Books, error: Exception, after_s: float):
    books.api.before_call = raising("create", error)
    failed = await books.record(change())
    assert isinstance(failed, Outcome)
    assert failed.retry_after_s == after_s


async def test_a_record_that_is_gone_when_its_outcome_is_stored_is_forgotten(books: Books):
    await books.register()
    books.api.objects.clear()
    assert await books.settle(change(), REFUSED) == REFUSED
    assert len(books.ledger) == 0


async def test_a_refusal_fails_what_was_never_registered_and_progress_is_pending_again(books: Books):
    recorded = await books.record(change())
    assert isinstance(recorded, TargetChange)
    await books.settle(recorded, REFUSED)
    assert (books.only.status.state, books.only.status.message) == ("Failed", "no such pool")
    await books.settle(recorded, RUNNING)
    assert (books.only.status.state, books.only.status.message) == ("Pending", "task 7 runs")
    await books.settle(recorded, msgspec.structs.replace(RUNNING, message="task 7 still runs"))
    assert books.only.status.message == "task 7 runs"
    await books.settle(recorded)
    await books.settle(recorded, REFUSED)
    assert (books.only.status.state, books.only.status.message) == ("Registered", "no such pool")


async def test_the_providers_memory_replaces_what_it_gave_before(books: Books):
    recorded = await books.register()
    await books.settle(
        recorded, msgspec.structs.replace(DONE, generated_address="eni-1", injected_info={"a": "1", "b": "2"})
    )
    await books.settle(recorded, msgspec.structs.replace(DONE, injected_info={"b": "3"}))
    assert (books.only.status.generated_address, books.only.status.injected_info) == ("eni-1", {"b": "3"})


async def test_two_records_of_one_address_take_turns():
    books = Books(by_address=True)
    first, second = change(), change()
    second = msgspec.structs.replace(second, listener=ListenerKey(HTTP.protocol, 443))
    await books.register(first)
    await books.register(second)
    drain = msgspec.structs.replace(first, action=Action.DRAIN)
    assert await books.record(drain) == DONE
    leaving = msgspec.structs.replace(first, target=msgspec.structs.replace(first.target, draining=True))
    assert await books.record(leaving) == DONE
    assert await books.record(msgspec.structs.replace(first, action=Action.DEREGISTER)) == DONE
    assert len(books.ledger) == 1
    last = await books.record(msgspec.structs.replace(second, action=Action.DEREGISTER))
    assert isinstance(last, TargetChange)
    for _ in range(2):
        waits = await books.record(first)
        assert isinstance(waits, Outcome)
        assert waits.status is OutcomeStatus.RUNNING
        assert "with the same address" in waits.message
    await books.settle(last)
    assert isinstance(await books.record(first), TargetChange)


async def test_a_backend_that_drains_from_the_start_is_recorded_as_draining(books: Books):
    await books.register(change(backend=target("1", draining=True)))
    assert books.only.status.state == "Draining"


async def test_records_of_other_providers_are_ignored(books: Books):
    await books.register()
    load_balancer = msgspec.structs.replace(books.only.spec.load_balancer, provider="haproxy")
    foreign = msgspec.structs.replace(
        books.only, spec=msgspec.structs.replace(books.only.spec, load_balancer=load_balancer)
    )
    ledger = books.start()
    assert ledger.load([foreign]) == []
    ledger.observed(foreign, None)
    ledger.observed(None, None)
    assert ledger.load([books.only]) == [books.only]
    ledger.observed(books.only, None)
    assert books.events == [RecordEvent.GONE]


async def test_records_learn_the_load_balancers_identity_and_forget_it_with_it(books: Books):
    await books.register()
    await books.ledger.ensuring(SPEC)
    await books.ledger.ensured(SPEC, Ensured(addresses=("192.0.2.1",), info={"arn": "lb-1"}))
    assert books.only.spec.load_balancer.info == {"arn": "lb-1"}
    books.api.calls.clear()
    await books.ledger.ensured(SPEC, Ensured(addresses=("192.0.2.1",)))
    assert books.api.calls == []
    books.ledger.forget(SPEC.key)
    assert books.ledger.frontends.get(SPEC.key).state == ""


async def test_a_conflict_without_a_deletion_causes_no_event(books: Books):
    await books.register()
    books.edit({"status": {"message": "by hand"}})
    books.api.before_call = raising("patch", Conflict("late"))
    assert isinstance(await books.record(change(Action.DRAIN)), Outcome)
    assert books.events == []


async def test_a_change_is_recorded_before_its_provider_is_called():
    books = Books(ensure_only_asks=True)
    await books.ledger.ensuring(SPEC)
    assert books.api.calls == []
    await books.ledger.ensured(SPEC, Ensured(info={"zone": "a"}))
    written = len(books.api.calls)
    await books.ledger.ensuring(msgspec.structs.replace(SPEC, parameters={"zone": "b"}))
    assert len(books.api.calls) > written
    assert books.ledger.frontends.get(SPEC.key).state == "Ensuring"
    assert books.ledger.frontends.info(SPEC.key) == {"zone": "a"}
