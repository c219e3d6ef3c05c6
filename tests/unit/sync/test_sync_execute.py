"""One plan becomes calls: which phases are carried out, in which order, and what each leaves behind when it fails."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.errors import Bug, Retry, Terminal, Throttled
from fairlead.model.change import Action, Outcome, OutcomeStatus
from fairlead.model.desired import GuardPolicy
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.runtime.clock import VirtualClock
from fairlead.sync.execute import Concurrency, Executor, Operation, Quarantine
from fairlead.sync.plan import Tracker, plan_load_balancer
from fairlead.testing.builders import HTTP, desired, lb_key, target
from fairlead.testing.ledger import PersistentLedger

KEY = lb_key()
ANY = GuardPolicy(100, 0)


class Scripted(MemoryProvider):
    """Records its calls; ``errors`` are raised by method, ``outcomes`` are given by target."""

    def __init__(self, *, cloud, span=False, max_batch=0):
        super().__init__(cloud=cloud, max_batch=max_batch)
        self.sent = []
        self.errors = {}
        self.outcomes = {}
        self.refused_batches = False
        self.released = []
        self._span = span

    @property
    def capabilities(self):
        return msgspec.structs.replace(super().capabilities, batches_span_load_balancers=self._span)

    def release(self, key):
        self.released.append(key)

    async def ensure(self, spec):
        return await self._sent("ensure", super().ensure(spec))

    async def delete(self, key):
        return await self._sent("delete", super().delete(key))

    async def apply(self, changes):
        self.sent.append([(change.action, change.key.address.rpartition(".")[2]) for change in changes])
        if "apply" in self.errors:
            raise self.errors["apply"]
        if self.refused_batches and any(change.key in self.faults.rejected for change in changes):
            raise Terminal("the batch is refused")
        answers = await super().apply([change for change in changes if change.key not in self.outcomes])
        rest = iter(answers)
        return [self.outcomes.get(change.key) or next(rest) for change in changes]

    async def _sent(self, method, call):
        self.sent.append(method)
        if method in self.errors:
            call.close()
            raise self.errors[method]
        return await call


class Bench:
    def __init__(self, kind=Scripted, **provider):
        self.clock = VirtualClock()
        self.cloud = MemoryCloud(clock=self.clock)
        self.provider = kind(cloud=self.cloud, **provider)
        self.tracker = Tracker()
        self.ledger = PersistentLedger()
        self.quarantine = Quarantine()
        self.slots = Concurrency(parallel=1)
        self.leads = True
        self.executor = Executor(
            tracker=self.tracker,
            provider=self.provider,
            ledger=self.ledger,
            clock=self.clock,
            quarantine=self.quarantine,
            slots=self.slots,
            may_call=lambda: self.leads,
            limit_s=None,
        )

    async def run(self, wanted=None):
        """Carry out the plan for ``wanted`` (None: its deletion); returns the operation and its outcome."""
        if wanted is None:
            self.tracker.remove(KEY)
        else:
            self.tracker.put(wanted)
        state = self.tracker.state(KEY)
        assert state is not None
        self.provider.sent.clear()
        plan = plan_load_balancer(KEY, state, now_s=self.clock.monotonic())
        slot = self.slots.take("")
        operation = Operation(plan, state, slot)
        try:
            return operation, await self.executor.run(operation)
        finally:
            slot.give()

    def there(self):
        """Return the last parts of the addresses that are registered."""
        return sorted(at.address.rpartition(".")[2] for _, at in self.cloud.members(KEY))


@pytest.fixture
async def bench():
    return Bench()


def with_targets(*names, **more):
    return desired([target(name) for name in names], guard=ANY, **more)


def actions(call):
    return [action for action, _ in call]


@pytest.mark.req("I-9")
async def test_the_phases_are_ensure_add_remove_delete(bench):
    operation, outcome = await bench.run(with_targets("1", "2"))
    assert (outcome, bench.provider.sent[0], actions(bench.provider.sent[1])) == (
        None,
        "ensure",
        [Action.REGISTER, Action.REGISTER],
    )
    assert (len(operation.done), operation.frontend_done) == (2, True)
    await bench.run(with_targets("2", "3"))
    assert bench.provider.sent == [[(Action.REGISTER, "3")], [(Action.DEREGISTER, "1")]]
    operation, outcome = await bench.run()
    assert [call if isinstance(call, str) else actions(call) for call in bench.provider.sent] == [
        [Action.DEREGISTER, Action.DEREGISTER],
        "delete",
    ]
    assert operation.frontend_done
    assert KEY not in bench.tracker


async def test_a_refused_load_balancer_is_parked_and_its_backends_go_on_as_it_was(bench):
    await bench.run(with_targets("1"))
    bench.provider.errors["ensure"] = Terminal("port 81 is taken")
    operation, outcome = await bench.run(with_targets("1", "2", ports=(80, 81)))
    assert outcome is None
    assert bench.quarantine.refusal(KEY).message == "port 81 is taken"
    assert {(change.listener, change.key) for change in operation.done} == {(HTTP, target("2").key)}
    assert not operation.frontend_done


@pytest.mark.parametrize("error", [Retry("down"), Terminal("the ledger refuses")])
async def test_a_frontend_that_fails_is_reported_after_its_backends_were_changed(bench, error):
    await bench.run(with_targets("1"))

    async def ensuring(_spec):
        raise error

    bench.ledger.ensuring = ensuring
    with pytest.raises(type(error), match=error.sentence):
        await bench.run(with_targets("1", "2", ports=(80, 81)))
    assert bench.there() == ["1", "2"]


@pytest.mark.parametrize(
    ("made_before", "more_targets", "error"),
    [(False, True, Retry("down")), (True, False, Retry("down")), (True, True, Throttled("429", after_s=1.0))],
    ids=["never made", "no backends to change", "asked to wait"],
)
async def test_a_frontend_that_fails_ends_the_operation_when_nothing_else_can_go_on(
    bench, made_before, more_targets, error
):
    if made_before:
        await bench.run(with_targets("1"))
    bench.provider.errors["ensure"] = error
    with pytest.raises(Retry):
        await bench.run(with_targets("1", *(["2"] if more_targets else []), address="192.0.2.9"))
    assert bench.provider.sent == ["ensure"]


@pytest.mark.req("I-9")
async def test_what_failed_to_be_added_replaces_nothing(bench):
    await bench.run(desired([target("1")]))
    bench.provider.outcomes[target("2").key] = Outcome(OutcomeStatus.RETRY, "busy")
    operation, outcome = await bench.run(desired([target("2")]))
    assert (outcome.status, outcome.message) == (OutcomeStatus.RETRY, "busy")
    assert (bench.provider.sent, operation.done) == ([[(Action.REGISTER, "2")]], [])
    assert bench.there() == ["1"]


async def test_removals_that_are_safe_alone_are_not_held_by_an_addition_that_failed(bench):
    await bench.run(with_targets("1"))
    bench.provider.outcomes[target("2").key] = Outcome(OutcomeStatus.RETRY, "busy")
    _, outcome = await bench.run(with_targets("2"))
    assert outcome.message == "busy"
    assert bench.there() == []


@pytest.mark.parametrize(
    ("outcomes", "first"),
    [
        ({"2": OutcomeStatus.RUNNING, "3": OutcomeStatus.RETRY}, OutcomeStatus.RETRY),
        ({"2": OutcomeStatus.RUNNING, "1": OutcomeStatus.RETRY}, OutcomeStatus.RETRY),
        ({"2": OutcomeStatus.RUNNING}, OutcomeStatus.RUNNING),
    ],
    ids=["in one phase", "in a later phase", "nothing has failed"],
)
async def test_failures_are_returned_before_what_is_under_way(bench, outcomes, first):
    await bench.run(with_targets("1", "9"))
    bench.provider.outcomes = {target(name).key: Outcome(status) for name, status in outcomes.items()}
    _, outcome = await bench.run(with_targets("2", "3", "9"))
    assert outcome.status is first


async def test_nothing_is_deleted_while_a_backend_of_ours_may_be_registered(bench):
    await bench.run(with_targets("1"))
    bench.provider.outcomes[target("1").key] = Outcome(OutcomeStatus.RETRY, "busy")
    _, outcome = await bench.run()
    assert (outcome.message, "delete" in bench.provider.sent, KEY in bench.tracker) == ("busy", False, True)


async def test_what_existed_before_is_released_and_not_deleted(bench):
    wanted = with_targets("1")
    wanted = msgspec.structs.replace(wanted, spec=msgspec.structs.replace(wanted.spec, existing=True))
    await bench.run(wanted)
    await bench.run()
    assert "delete" not in bench.provider.sent
    assert (bench.provider.released, KEY in bench.cloud.load_balancers, KEY in bench.tracker) == ([KEY], True, False)


async def test_an_answer_that_was_lost_leaves_the_frontend_to_be_ensured_again(bench):
    bench.provider.errors["ensure"] = Retry("no answer")
    with pytest.raises(Retry):
        await bench.run(with_targets("1"))
    assert bench.tracker.state(KEY).ensure_again


async def test_a_replica_that_does_not_lead_calls_nothing(bench):
    bench.leads = False
    with pytest.raises(Retry) as caught:
        await bench.run(with_targets("1"))
    assert (caught.value.reason, bench.provider.sent) == ("NotLeading", [])


async def test_targets_without_a_load_balancer_to_be_on_are_a_mistake(bench):
    await bench.run(with_targets("1"))
    state = bench.tracker.state(KEY)
    state.recorded_spec = None
    with pytest.raises(Bug, match="no frontend spec on record"):
        await bench.run()


# --- one batch -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_batch", "sizes"), [(0, [5]), (2, [2, 2, 1]), (5, [5]), (9, [5])])
async def test_batches_have_the_size_that_the_provider_takes(max_batch, sizes):
    bench = Bench(max_batch=max_batch)
    await bench.run(with_targets("1", "2", "3", "4", "5"))
    assert [len(call) for call in bench.provider.sent[1:]] == sizes


async def test_what_the_ledger_could_not_store_is_not_called(bench):
    stored = bench.ledger.record

    async def record(spec, changes):
        return [
            Outcome(OutcomeStatus.RETRY, "conflict") if change.key == target("1").key else change
            for change in await stored(spec, changes)
        ]

    bench.ledger.record = record
    operation, outcome = await bench.run(with_targets("1", "2"))
    assert (outcome.message, bench.provider.sent[1]) == ("conflict", [(Action.REGISTER, "2")])
    assert [change.key for change in operation.done] == [target("2").key]
    assert bench.tracker.state(KEY).recorded[HTTP][target("1").key].unknown, "it may have been stored all the same"


async def test_owners_are_for_the_ledger_only(bench):
    first = msgspec.structs.replace(target("1"), owners=("BackendGroup/shop/shop",))
    await bench.run(desired([first], guard=ANY))
    owned = msgspec.structs.replace(target("1"), owners=("BackendGroup/shop/web",))
    operation, outcome = await bench.run(desired([owned], guard=ANY))
    assert (outcome, bench.provider.sent, len(operation.done)) == (None, [], 1)


@pytest.mark.parametrize("span", [False, True], ids=["called directly", "gathered"])
async def test_a_refused_batch_is_halved_until_the_invalid_entry_is_found(span):
    bench = Bench(span=span)
    bench.provider.faults.rejected = frozenset({target("3").key})
    bench.provider.refused_batches = True
    operation, outcome = await bench.run(with_targets("1", "2", "3", "4"))
    assert outcome.status is OutcomeStatus.REJECTED
    assert bench.there() == ["1", "2", "4"]
    batches = [[name for _, name in call] for call in bench.provider.sent[1:]]
    assert batches[-4:] == [["1", "2"], ["3", "4"], ["3"], ["4"]]
    assert (len(bench.quarantine), len(operation.done)) == (1, 3)


async def test_with_too_many_invalid_entries_the_provider_is_at_fault_and_not_they(bench):
    bench.provider.errors["apply"] = Terminal("the token is wrong")
    _, outcome = await bench.run(with_targets(*(str(number) for number in range(1, 17))))
    assert outcome.status is OutcomeStatus.REJECTED
    assert len(bench.quarantine) == 8
    outcomes = {status: count for (_, status), count in bench.executor.outcomes.items()}
    assert outcomes == {OutcomeStatus.REJECTED: 8, OutcomeStatus.RETRY: 8}


@pytest.mark.parametrize(("asked_s", "after_s"), [(0.0, 30.0), (90.0, 90.0)])
async def test_a_refused_removal_is_tried_again_later(bench, asked_s, after_s):
    await bench.run(with_targets("1", "2"))
    bench.provider.outcomes[target("1").key] = Outcome(OutcomeStatus.REJECTED, "in use", asked_s)
    _, outcome = await bench.run(with_targets("2"))
    assert (outcome.status, outcome.message, outcome.retry_after_s) == (OutcomeStatus.RETRY, "in use", after_s)
    assert len(bench.quarantine) == 0


async def test_calls_and_rows_are_counted_by_their_result(bench):
    await bench.run(with_targets("1"))
    bench.provider.errors["apply"] = Retry("down")
    with pytest.raises(Retry):
        await bench.run(with_targets("1", "2"))
    bench.provider.errors = {"ensure": Terminal("no")}
    await bench.run(with_targets("1", "2", address="192.0.2.9"))
    counted = {labels: bench.executor.timings.total(*labels) for labels in bench.executor.timings}
    assert counted == {
        ("ensure", "success"): 1, ("ensure", "refused"): 1, ("apply", "success"): 2, ("apply", "error"): 1,
    }  # fmt: skip
    assert dict(bench.executor.outcomes) == {(Action.REGISTER, OutcomeStatus.DONE): 2}


async def test_a_gathered_call_gives_its_place_to_others_and_takes_one_for_the_call():
    bench = Bench(span=True)
    taken = []
    apply = bench.provider.apply

    async def counted(changes):
        taken.append(bench.slots.taken(""))
        return await apply(changes)

    bench.provider.apply = counted
    await bench.run(with_targets("1"))
    assert taken == [1]
    assert bench.slots.taken("") == 0


class Remote(Scripted):
    """A provider whose connection can be tested before anything is recorded."""

    async def reach(self, spec):
        assert spec.key == KEY
        self.sent.append("reach")
        if "reach" in self.errors:
            raise self.errors["reach"]


async def test_new_load_balancers_are_recorded_once_the_provider_is_reached():
    bench = Bench(Remote)
    bench.provider.errors["reach"] = Retry("no connection")
    with pytest.raises(Retry, match="no connection"):
        await bench.run(desired([target("1")]))
    assert (bench.provider.sent, bench.ledger.specs) == (["reach"], {})
    bench.provider.errors["reach"] = Terminal("parameters.url is missing")
    await bench.run(desired([target("1")]))
    assert (bench.provider.sent, bench.ledger.specs) == (["reach"], {})
    assert bench.quarantine.refusal(KEY) is not None
    del bench.provider.errors["reach"]
    await bench.run(desired([target("1")]))
    assert bench.provider.sent[:2] == ["reach", "ensure"]
    assert KEY in bench.ledger.specs
    changed = desired([target("1")])
    await bench.run(msgspec.structs.replace(changed, spec=msgspec.structs.replace(changed.spec, group="other")))
    assert "reach" not in bench.provider.sent, "what is on record is asked for"
