"""Changes of status are reported once, and a push alone is none."""

from __future__ import annotations

import asyncio

from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.providers.envoy.status_notifier import StatusNotifier

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
    async with asyncio.timeout(60):
        assert await reports.reported.get() == KEY
    reports.now = Observed(programmed=False, proxies=1, acknowledged=0, rejected="no")
    reports.notifier.expect_ack(KEY)
    reports.notifier.hint([KEY])
    assert await reports.next_round() == [KEY], "a refusal is reported at once"
    reports.notifier.close()
