"""One call never has more changes than the provider takes, however many load balancers share it."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.change import Action, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.runtime.clock import VirtualClock, settle
from fairlead.sync.execute import Batcher
from fairlead.testing.builders import HTTP, lb_key, target

pytestmark = pytest.mark.req("T-survivors")


def sizes_of_calls(limit: int, requests: list[int]) -> list[int]:
    """Return how many changes each call has when load balancers with so many changes ask in one turn."""
    calls: list[int] = []

    async def call(_failure_domain, changes):
        calls.append(len(changes))
        return [Outcome(OutcomeStatus.DONE)] * len(changes)

    async def ask_all():
        gather = Batcher(call=call, size=limit, clock=VirtualClock())
        await asyncio.gather(
            *(
                gather.apply(
                    "",
                    [
                        TargetChange(lb_key(f"web-{number}"), HTTP, target(str(at)), Action.REGISTER, Reason.NEW)
                        for at in range(count)
                    ],
                )
                for number, count in enumerate(requests)
            )
        )

    asyncio.run(ask_all())
    return calls


@pytest.mark.parametrize(
    ("limit", "requests", "calls"),
    [
        (4, [2, 2, 1], [4, 1]),
        (4, [3, 2], [3, 2]),
        (4, [4, 1], [4, 1]),
        (4, [1, 4], [1, 4]),
        (5, [3, 2], [5]),
        (0, [3, 2, 4], [9]),
    ],
)
def test_a_call_of_several_load_balancers_is_exactly_as_large_as_the_limit_allows(limit, requests, calls):
    assert sizes_of_calls(limit, requests) == calls


@given(st.integers(1, 6), st.lists(st.integers(1, 6), min_size=1, max_size=8))
def test_no_call_of_requests_that_fit_is_over_the_limit(limit, counts):
    requests = [min(count, limit) for count in counts]
    calls = sizes_of_calls(limit, requests)
    assert max(calls) <= limit
    assert sum(calls) == sum(requests)


@pytest.mark.parametrize(("waiting", "calls"), [(1, [1]), (2, [1, 2]), (3, [1, 2])])
async def test_a_full_batch_does_not_wait_for_a_call_under_way(waiting, calls):
    made: list[int] = []
    may_answer = asyncio.Event()

    async def call(_failure_domain, changes):
        made.append(len(changes))
        await may_answer.wait()
        return [Outcome(OutcomeStatus.DONE)] * len(changes)

    gather = Batcher(call=call, size=2, clock=VirtualClock())

    def ask(name):
        change = TargetChange(lb_key(name), HTTP, target("1"), Action.REGISTER, Reason.NEW)
        return asyncio.create_task(gather.apply("", [change]))

    asked = [ask("first")]
    await settle()
    asked += [ask(f"web-{number}") for number in range(waiting)]
    await settle()
    assert made == calls
    may_answer.set()
    await asyncio.gather(*asked)
    assert sum(made) == 1 + waiting
