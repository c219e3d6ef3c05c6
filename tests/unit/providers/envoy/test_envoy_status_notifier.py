"""Changes of status are reported once, and a push alone is none."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Health, Observed
from fairlead.providers.envoy.provider import StatusNotifier

KEY = LoadBalancerKey("TCPLoadBalancer", "shop", "web")


class Reports:
    """A status that changes, and the load balancers that were reported."""

    def __init__(self) -> None:
        self.now: Observed | None = Observed(programmed=True, proxies=1, acknowledged=1)
        self.reported: asyncio.Queue[LoadBalancerKey] = asyncio.Queue()
        self.notifier = StatusNotifier(observe=lambda _key: self.now, late_s=0.0)
        self.notifier.subscribe(self.reported.put_nowait)

    async def next_round(self) -> list[LoadBalancerKey]:
        # Two rounds of the loop: the callback that was there before us has run.
        for _ in range(2):
            await asyncio.sleep(0)
        return [self.reported.get_nowait() for _ in range(self.reported.qsize())]


async def test_a_status_is_reported_once_when_it_differs() -> None:
    reports = Reports()
    reports.notifier.hint([KEY])
    reports.notifier.hint([KEY])
    assert await reports.next_round() == [KEY]
    reports.notifier.hint([KEY])
    assert await reports.next_round() == []
    reports.now = None
    reports.notifier.hint([KEY])
    assert await reports.next_round() == [KEY]
    reports.notifier.close()


async def test_a_push_is_not_reported_unless_its_acknowledgement_stays_away() -> None:
    reports = Reports()
    reports.notifier.hint([KEY])
    assert await reports.next_round() == [KEY]
    reports.now = Observed(programmed=False, proxies=1, acknowledged=0)
    reports.notifier.expect_ack(KEY)
    reports.notifier.hint([KEY])
    async with asyncio.timeout(180):
        assert await reports.reported.get() == KEY
    reports.now = Observed(programmed=False, proxies=1, acknowledged=0, rejected="no")
    reports.notifier.expect_ack(KEY)
    reports.notifier.hint([KEY])
    assert await reports.next_round() == [KEY], "a refusal is reported at once"
    reports.notifier.close()


async def test_what_one_caller_reads_is_still_reported_to_others() -> None:
    reports = Reports()
    waits, serves = Observed(proxies=1), Observed(programmed=True, proxies=1, acknowledged=1)
    reports.now = waits
    reports.notifier.hint([KEY])
    assert await reports.next_round() == [KEY]
    reports.now = serves
    reports.notifier.read(KEY, serves)
    reports.notifier.hint([KEY])
    assert await reports.next_round() == [KEY], "the first one does not know yet"
    reports.notifier.read(KEY, waits)
    reports.notifier.read(KEY, serves)
    reports.notifier.hint([KEY])
    assert await reports.next_round() == [KEY], "one has read it between a push and its acknowledgement"
    reports.notifier.hint([KEY])
    assert await reports.next_round() == []
    reports.notifier.close()


def checked(healthy: int, *, unknown: int = 0, unhealthy: tuple[str, ...] = ()) -> Observed:
    health = Health(True, message="m", total=healthy + len(unhealthy), healthy=healthy, unhealthy=unhealthy)
    health = msgspec.structs.replace(health, unknown=unknown)
    return Observed(programmed=True, proxies=1, acknowledged=1, health=health)


async def test_a_replaced_target_is_not_reported_while_it_awaits_its_first_check() -> None:
    reports = Reports()
    reports.notifier = StatusNotifier(observe=lambda _key: reports.now, late_s=60)
    reports.notifier.subscribe(reports.reported.put_nowait)
    reports.now = checked(10)
    reports.notifier.hint([KEY])
    assert await reports.next_round() == [KEY]
    reports.notifier.expect_ack(KEY)
    pushed = msgspec.structs.replace(checked(9, unknown=1), programmed=False, acknowledged=0)
    for reports.now in (pushed, checked(9, unknown=1), checked(10)):
        reports.notifier.hint([KEY])
        assert await reports.next_round() == []
    reports.now = checked(9, unknown=1, unhealthy=("10.0.0.1:80",))
    reports.notifier.hint([KEY])
    assert await reports.next_round() == [KEY], "a target that fails is reported at once"
    reports.now = checked(11)
    reports.notifier.hint([KEY])
    assert await reports.next_round() == [KEY], "another count is reported once the target is checked"
    reports.notifier.close()


async def test_a_target_whose_first_check_does_not_end_is_reported_late() -> None:
    reports = Reports()
    reports.now = checked(10)
    reports.notifier.hint([KEY])
    assert await reports.next_round() == [KEY]
    reports.notifier.expect_ack(KEY)
    reports.now = checked(9, unknown=1)
    reports.notifier.hint([KEY])
    async with asyncio.timeout(180):
        assert await reports.reported.get() == KEY
    reports.notifier.close()


async def test_a_push_has_its_own_time_whenever_another_was_pushed_before() -> None:
    reports = Reports()
    reports.notifier = StatusNotifier(observe=lambda _key: reports.now, late_s=60)
    reports.notifier.subscribe(reports.reported.put_nowait)
    reports.notifier.hint([KEY])
    assert await reports.next_round() == [KEY]
    for name in ("other", KEY.name):
        reports.notifier.expect_ack(LoadBalancerKey(KEY.kind, KEY.namespace, name))
    reports.notifier._expecting[LoadBalancerKey(KEY.kind, KEY.namespace, "other")] = (0.0, 0.0)
    reports.now = Observed(programmed=False, proxies=1, acknowledged=0)
    reports.notifier._late()
    reports.notifier.hint([KEY])
    assert KEY not in await reports.next_round(), "the other one is late, and this one is not"
    reports.notifier.close()


async def test_more_unknown_targets_do_not_change_the_status() -> None:
    reports = Reports()
    reports.now = Observed(programmed=True, health=Health(unknown=1))
    reports.notifier.hint([KEY])
    assert await reports.next_round() == [KEY]
    reports.now = Observed(programmed=True, health=Health(unknown=2))
    reports.notifier.hint([KEY])
    assert await reports.next_round() == []
    reports.now = Observed(programmed=True, health=Health(unknown=2, total=1))
    reports.notifier.hint([KEY])
    assert await reports.next_round() == [KEY]
    reports.notifier.close()


@pytest.mark.req("K-31")
async def test_thousands_of_acknowledgements_at_once_leave_others_their_turn() -> None:
    def slowly(_key: LoadBalancerKey) -> Observed:
        until = time.thread_time() + 0.001
        while time.thread_time() < until:
            pass
        return Observed(programmed=True, proxies=1, acknowledged=1)

    notifier = StatusNotifier(observe=slowly)
    keys = {LoadBalancerKey(KEY.kind, KEY.namespace, f"lb-{number}") for number in range(200)}
    reported: set[LoadBalancerKey] = set()
    notifier.subscribe(reported.add)
    notifier.hint(keys)
    seen: list[int] = []
    async with asyncio.timeout(180):
        while reported < keys:
            await asyncio.sleep(0)
            seen.append(len(reported))
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) <= 20, "a turn is short"
    assert reported == keys
    notifier.close()


@pytest.mark.req("K-31")
async def test_acknowledgements_of_many_proxies_cost_few_comparisons() -> None:
    compared = 0

    def slowly(_key: LoadBalancerKey) -> Observed:
        nonlocal compared
        compared += 1
        until = time.thread_time() + 0.005
        while time.thread_time() < until:
            pass
        return Observed(programmed=True, proxies=1000, acknowledged=compared)

    notifier = StatusNotifier(observe=slowly)
    for _ in range(1000):
        notifier.hint([KEY])
        await asyncio.sleep(0)
    notifier.close()
    assert 1 <= compared < 500
