"""Few calls for many load balancers: who shares one, what becomes of each when it fails, and who may stop it."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.errors import Bug, Retry, Terminal
from fairlead.model.change import Action, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.runtime.clock import VirtualClock, settle
from fairlead.sync.execute import PATIENCE_S, Batcher
from fairlead.testing.builders import HTTP, lb_key, target


def rows(name, *numbers):
    return [TargetChange(lb_key(name), HTTP, target(str(number)), Action.REGISTER, Reason.NEW) for number in numbers]


class Counter:
    """A provider that answers when the test lets it, with whatever the test says."""

    def __init__(self, *, size=0):
        self.clock = VirtualClock()
        self.gather = Batcher(call=self.call, size=size, clock=self.clock)
        self.calls: list[list[tuple[str, str]]] = []
        self.failure_domains: list[str] = []
        self.busy: set[str] = set()
        self.cancelled = 0
        self.held: asyncio.Event | None = None
        self.error = lambda _names: None
        self.short = False

    async def call(self, failure_domain, changes):
        names = {change.load_balancer.name for change in changes}
        assert not names & self.busy, "two calls about one load balancer"
        self.busy |= names
        self.failure_domains.append(failure_domain)
        self.calls.append([(change.load_balancer.name, change.key.address) for change in changes])
        try:
            if self.held is not None:
                await self.held.wait()
            if (error := self.error(names)) is not None:
                raise error
            outcomes = [
                Outcome(OutcomeStatus.DONE, f"{change.load_balancer.name} {change.key.address}") for change in changes
            ]
            return outcomes[:-1] if self.short and len(names) > 1 else outcomes
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.busy -= names

    def ask(self, name, *numbers, failure_domain="", alone=False):
        return asyncio.create_task(self.gather.apply(failure_domain, rows(name, *numbers), alone=alone))

    def hold(self):
        self.held = asyncio.Event()

    def let_go(self):
        assert self.held is not None
        self.held.set()
        self.held = None

    @property
    def shapes(self):
        return [sorted({name for name, _ in call}) for call in self.calls]


@pytest.fixture
def counter():
    return Counter()


def message(task):
    return [outcome.message for outcome in task.result()]


@pytest.mark.req("A-12")
async def test_what_comes_in_one_turn_is_one_call_and_everybody_gets_their_own_answers(counter):
    asked = [counter.ask("a", 1, 2), counter.ask("b", 3), counter.ask("c", 4, 5)]
    await asyncio.gather(*asked)
    assert counter.shapes == [["a", "b", "c"]]
    assert [message(each) for each in asked] == [
        ["a 10.0.0.1", "a 10.0.0.2"],
        ["b 10.0.0.3"],
        ["c 10.0.0.4", "c 10.0.0.5"],
    ]


@pytest.mark.req("A-11", "A-12")
async def test_what_comes_during_a_call_waits_for_it_and_goes_together(counter):
    counter.hold()
    first = counter.ask("a", 1)
    await settle()
    more = [counter.ask(name, 1) for name in "bcd"]
    await settle()
    assert counter.shapes == [["a"]]
    counter.let_go()
    await asyncio.gather(first, *more)
    assert counter.shapes == [["a"], ["b", "c", "d"]]


async def test_a_call_that_takes_long_is_not_waited_for(counter):
    counter.hold()
    slow = counter.ask("a", 1)
    await settle()
    counter.held, still = None, counter.held
    other = counter.ask("b", 1)
    await counter.clock.advance(PATIENCE_S / 2)
    assert not other.done()
    await counter.clock.advance(PATIENCE_S / 2)
    assert message(other) == ["b 10.0.0.1"]
    assert not slow.done()
    still.set()
    await slow


async def test_batches_respect_the_limit_and_full_ones_are_sent_at_once():
    counter = Counter(size=4)
    counter.hold()
    first = counter.ask("a", 1)
    await settle()
    more = [counter.ask("b", 1, 2), counter.ask("c", 1, 2), counter.ask("d", 1, 2, 3)]
    await settle()
    assert counter.shapes == [["a"], ["b", "c"]], "d is less than a batch, and waits"
    counter.let_go()
    await asyncio.gather(first, *more)
    assert [len(call) for call in counter.calls] == [1, 4, 3]


async def test_failure_domains_do_not_meet(counter):
    counter.hold()
    held = [
        counter.ask("a", 1, failure_domain="one"),
        counter.ask("b", 1, failure_domain="two"),
        counter.ask("c", 1, failure_domain="one"),
    ]
    await settle()
    assert (counter.shapes, counter.failure_domains) == ([["a", "c"], ["b"]], ["one", "two"])
    late = counter.ask("d", 1, failure_domain="three")
    await settle()
    assert counter.failure_domains == ["one", "two", "three"], "a call at one failure domain keeps nobody of another"
    counter.let_go()
    await asyncio.gather(*held, late)


@pytest.mark.req("A-36", "I-7")
@pytest.mark.parametrize("error", [Terminal("malformed"), ZeroDivisionError("a slip"), Bug("impossible")])
async def test_a_refusal_or_a_mistake_is_only_of_those_that_it_is_about(counter, error):
    counter.error = lambda names: error if "bad" in names else None
    asked = {name: counter.ask(name, 1) for name in ("a", "bad", "c")}
    await asyncio.wait(asked.values())
    assert message(asked["a"]) == ["a 10.0.0.1"]
    assert message(asked["c"]) == ["c 10.0.0.1"]
    assert asked["bad"].exception() is error
    assert counter.shapes == [["a", "bad", "c"], ["a"], ["bad"], ["c"]]


async def test_an_answer_of_the_wrong_length_is_believed_for_no_load_balancer(counter):
    counter.short = True
    asked = [counter.ask("a", 1), counter.ask("b", 2)]
    await asyncio.gather(*asked)
    assert [message(each) for each in asked] == [["a 10.0.0.1"], ["b 10.0.0.2"]]
    assert counter.shapes == [["a", "b"], ["a"], ["b"]]


async def test_a_lost_answer_is_lost_for_all_and_each_then_goes_alone_until_it_has_one(counter):
    counter.error = lambda names: Retry("no answer", reason="Timeout") if "bad" in names else None
    asked = [counter.ask(name, 1) for name in ("a", "bad", "c")]
    await asyncio.wait(asked)
    assert [(each.exception().sentence, each.exception().reason) for each in asked] == [("no answer", "Timeout")] * 3
    again = [counter.ask(name, 1) for name in ("a", "bad", "c")]
    await asyncio.wait(again)
    assert (message(again[0]), message(again[2])) == (["a 10.0.0.1"], ["c 10.0.0.1"])
    assert again[1].exception().sentence == "no answer"
    assert counter.shapes[1:] == [["a"], ["bad"], ["c"]]
    third = [counter.ask(name, 1) for name in ("a", "bad", "c")]
    await asyncio.wait(third)
    # Who was alone went at once; the others had an answer, and share a call again.
    assert counter.shapes[4:] == [["bad"], ["a", "c"]]


async def test_a_caller_that_has_to_wait_is_not_blamed(counter):
    counter.error = lambda _names: Retry("too many requests", after_s=30.0)
    asked = [counter.ask(name, 1) for name in ("a", "b")]
    await asyncio.wait(asked)
    assert [each.exception().after_s for each in asked] == [30.0, 30.0]
    counter.error = lambda _names: None
    await asyncio.gather(counter.ask("a", 1), counter.ask("b", 1))
    assert counter.shapes == [["a", "b"], ["a", "b"]]


async def test_alone_is_alone(counter):
    await asyncio.gather(counter.ask("a", 1), counter.ask("b", 1, alone=True), counter.ask("c", 1))
    assert sorted(counter.shapes) == [["a", "c"], ["b"]]


class TestCancelled:
    async def test_while_it_waits_it_is_in_no_call(self, counter):
        counter.hold()
        first = counter.ask("a", 1)
        await settle()
        gone, stays = counter.ask("b", 1), counter.ask("c", 1)
        await settle()
        gone.cancel()
        await settle()
        counter.let_go()
        await asyncio.gather(first, stays)
        assert gone.cancelled()
        assert counter.shapes == [["a"], ["c"]]

    async def test_in_the_turn_in_which_it_would_have_gone(self, counter):
        gone, stays = counter.ask("a", 1), counter.ask("b", 1)
        await asyncio.sleep(0)
        gone.cancel()
        assert message(await finished(stays)) == ["b 10.0.0.1"]
        await asyncio.wait((gone,))
        assert gone.cancelled()
        assert counter.cancelled == 0

    async def test_during_the_call_it_ends_with_the_call_and_the_others_get_their_answers(self, counter):
        counter.hold()
        gone, stays = counter.ask("a", 1), counter.ask("b", 1)
        await settle()
        gone.cancel()
        await settle()
        # Its load balancer is in a call: the one that cancelled it must not begin another one about it.
        assert not gone.done()
        counter.let_go()
        assert message(await finished(stays)) == ["b 10.0.0.1"]
        await asyncio.wait((gone,))
        assert gone.cancelled()
        assert counter.cancelled == 0

    async def test_a_call_ends_with_its_last_caller(self, counter):
        counter.hold()
        asked = [counter.ask("a", 1), counter.ask("b", 1)]
        await settle()
        for each in asked:
            each.cancel()
        await asyncio.wait(asked)
        assert counter.cancelled == 1
        assert counter.busy == set()
        assert all(each.cancelled() for each in asked)

    async def test_before_the_call_has_even_begun(self, counter):
        asked = [counter.ask("a", 1), counter.ask("b", 1)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for each in asked:
            each.cancel()
        await asyncio.wait(asked)
        await settle()
        assert counter.busy == set()
        assert message(await finished(counter.ask("a", 2))) == ["a 10.0.0.2"], "nothing keeps the next one"

    async def test_a_call_that_was_given_up_inside_is_a_lost_answer(self, counter):
        counter.error = lambda _names: asyncio.CancelledError()
        asked = [counter.ask("a", 1), counter.ask("b", 1)]
        await asyncio.wait(asked)
        assert [type(each.exception()) for each in asked] == [Retry, Retry]


async def finished(task):
    await asyncio.wait((task,))
    return task


async def test_nothing_is_kept_of_failure_domains_that_are_idle(counter):
    await asyncio.gather(*(counter.ask(f"lb-{n}", 1, failure_domain=f"failure domain-{n}") for n in range(20)))
    await settle()
    assert counter.gather._failure_domains == {}
