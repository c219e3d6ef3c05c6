"""Changes that wait for one zone go out together; a refusal or an end of one is not that of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fairlead.errors import Retry
from fairlead.model.change import DONE, Outcome, OutcomeStatus
from fairlead.providers.zones.connection import PAUSE_S, UpdateBatcher
from fairlead.providers.zones.plan import Holder, RecordChange
from fairlead.providers.zones.settings import ServerSettings
from fairlead.runtime.clock import SystemClock, VirtualClock

ZONE = ServerSettings("example.test", "192.0.2.53", 53)


def row(host: str) -> RecordChange:
    return RecordChange(f"{host}.example.test", "A", "192.0.2.1", 60, Holder("us", "x"), True, "example.test")


class Zone:
    """Counts updates; the first waits for ``free``; ``refuses`` is a host that makes an update fail."""

    def __init__(self) -> None:
        self.free, self.begun = asyncio.Event(), asyncio.Event()
        self.updates: list[list[str]] = []
        self.refuses = ""
        self.error = Retry("refused", reason="DNS422")

    async def run(self, settings: ServerSettings, rows: Sequence[RecordChange]) -> list[Outcome]:
        hosts = [each.host.partition(".")[0] for each in rows]
        self.updates.append(hosts)
        self.begun.set()
        if len(self.updates) == 1:
            await self.free.wait()
        if self.refuses in hosts:
            raise self.error
        return [Outcome(OutcomeStatus.REJECTED, host) if host.startswith("bad") else DONE for host in hosts]


async def start(zone: Zone, *hosts: str) -> list[asyncio.Task[list[Outcome]]]:
    batcher = UpdateBatcher(zone.run, clock=SystemClock())
    tasks = [asyncio.create_task(batcher.change(ZONE, [row(host)])) for host in hosts]
    await zone.begun.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def test_what_comes_meanwhile_goes_out_in_one_update_and_each_gets_its_own_outcome():
    zone = Zone()
    tasks = await start(zone, "a", "b", "bad", "c")
    zone.free.set()
    answers = await asyncio.gather(*tasks)
    assert zone.updates == [["a"], ["b", "bad", "c"]]
    assert answers == [[DONE], [DONE], [Outcome(OutcomeStatus.REJECTED, "bad")], [DONE]]


@pytest.mark.req("EDGE-14")
async def test_a_refused_update_is_bisected_so_that_only_its_cause_fails():
    zone = Zone()
    zone.refuses = "c"
    tasks = await start(zone, "a", "b", "c", "d")
    zone.free.set()
    answers = await asyncio.gather(*tasks)
    assert zone.updates[1:] == [["b", "c", "d"], ["b"], ["c", "d"], ["c"], ["d"]]
    assert answers == [[DONE], [DONE], [Outcome(OutcomeStatus.RETRY, "refused")], [DONE]]


@pytest.mark.req("EDGE-14")
async def test_one_refused_name_of_a_batch_of_one_caller_does_not_stop_the_others():
    zone = Zone()
    zone.refuses = "c"
    zone.free.set()
    outcomes = await UpdateBatcher(zone.run, clock=SystemClock()).change(ZONE, [row(host) for host in "abcd"])
    assert [outcome.status for outcome in outcomes] == [OutcomeStatus.DONE] * 2 + [
        OutcomeStatus.RETRY,
        OutcomeStatus.DONE,
    ]


async def test_a_zone_that_refuses_every_name_is_not_asked_for_each_of_hundreds():
    async def refuse(settings: ServerSettings, rows: Sequence[RecordChange]) -> list[Outcome]:
        calls.append(len(rows))
        raise Retry("refused", reason="DNSRefused")

    calls: list[int] = []
    outcomes = await UpdateBatcher(refuse, clock=SystemClock()).change(
        ZONE, [row(f"n{number}") for number in range(200)]
    )
    assert {outcome.status for outcome in outcomes} == {OutcomeStatus.RETRY}
    assert len(calls) < 40


async def test_a_server_that_does_not_answer_is_not_asked_for_each():
    zone = Zone()
    zone.refuses, zone.error = "c", Retry("no answer", reason="DNSTimeout")
    tasks = await start(zone, "a", "b", "c")
    zone.free.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert zone.updates == [["a"], ["b", "c"]]
    assert [isinstance(each, Retry) for each in answers] == [False, True, True]


async def test_who_is_cancelled_while_waiting_is_in_no_update():
    zone = Zone()
    tasks = await start(zone, "a", "b", "c")
    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)
    zone.free.set()
    assert await tasks[0] == [DONE]
    assert await tasks[2] == [DONE]
    assert zone.updates == [["a"], ["c"]]


async def test_the_end_of_the_one_who_runs_is_a_retry_for_the_others():
    gate = asyncio.Event()

    async def slow(settings: ServerSettings, rows: Sequence[RecordChange]) -> list[Outcome]:
        gate.set()
        await asyncio.Event().wait()
        return []

    batcher = UpdateBatcher(slow, clock=SystemClock())
    first = asyncio.create_task(batcher.change(ZONE, [row("a")]))
    await gate.wait()
    gate.clear()
    others = [asyncio.create_task(batcher.change(ZONE, [row(host)])) for host in ("b", "c")]
    await asyncio.sleep(0)
    first.cancel()
    await gate.wait()
    others[0].cancel()
    with pytest.raises(Retry, match="interrupted"):
        await others[1]


async def test_while_many_change_the_next_update_waits_so_that_more_go_out_together():
    clock, updates = VirtualClock(), list[list[str]]()

    async def run(settings: ServerSettings, rows: Sequence[RecordChange]) -> list[Outcome]:
        updates.append([each.host.partition(".")[0] for each in rows])
        return [DONE] * len(rows)

    batcher = UpdateBatcher(run, clock=clock)
    await batcher.change(ZONE, [row("alone")])
    await batcher.change(ZONE, [row("again")])
    assert updates == [["alone"], ["again"]]
    await batcher.change(ZONE, [row("a"), row("b"), row("c")])
    waiting = [asyncio.create_task(batcher.change(ZONE, [row(host)])) for host in ("d", "e")]
    await clock.advance(PAUSE_S * 0.9)
    assert len(updates) == 3
    await clock.advance(PAUSE_S * 0.2)
    await asyncio.gather(*waiting)
    assert updates[3:] == [["d", "e"]]
