from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kube_scripted import ScriptedApi, method

from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.transport import RetryPolicy
from fairlead.runtime.clock import VirtualClock, settle
from tests.call_count import count_calls

WEB: dict[str, Any] = {
    "kind": "Service", "api_version": "v1", "namespace": "a", "name": "web", "uid": "u1",
    "type": "Warning", "reason": "NoAddress", "message": "The pool is empty.",
}  # fmt: skip


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def cluster(api: ScriptedApi, clock: VirtualClock) -> AsyncIterator[Cluster]:
    async with api.cluster(clock=clock, policy=RetryPolicy(attempts=1)) as cluster:
        yield cluster


@pytest.fixture
async def recorder(cluster: Cluster) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(cluster, component="fairlead-hub", limit=10)
    task = asyncio.create_task(recorder.run())
    yield recorder
    assert not task.done()
    task.cancel()


def emit(recorder: EventRecorder, **changes: Any) -> None:
    """Say what ``WEB`` says, with ``changes``."""
    recorder.emit(**{**WEB, **changes})


def stored(api: ScriptedApi) -> list[dict[str, Any]]:
    return list(api.objects.get("events", {}).values())


async def test_an_event_as_kubectl_describe_reads_it(
    api: ScriptedApi, recorder: EventRecorder, clock: VirtualClock
) -> None:
    recorder.emit(**WEB)
    await clock.advance_until(lambda: len(stored(api)) == 1)
    (event,) = stored(api)
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Service", "namespace": "a", "name": "web",
                                       "uid": "u1"}  # fmt: skip
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "NoAddress", "The pool is empty.")
    assert event["count"] == 1
    assert event["source"] == {"component": "fairlead-hub"}
    assert event["metadata"]["namespace"] == "a"
    assert event["lastTimestamp"].startswith("2030-01-01T00:00:")


async def test_repeats_are_counted_and_written_once_a_minute(
    api: ScriptedApi, recorder: EventRecorder, clock: VirtualClock
) -> None:
    recorder.emit(**WEB)
    await clock.advance_until(lambda: len(stored(api)) == 1)
    for _ in range(100):
        recorder.emit(**WEB)
        await clock.advance(0.1)
    assert len(api.seen) == 1
    await clock.advance_until(lambda: stored(api)[0]["count"] == 101)
    assert len(api.seen) == 2
    assert len(stored(api)) == 1


async def test_the_same_before_the_first_write_is_one_event(
    api: ScriptedApi, recorder: EventRecorder, clock: VirtualClock
) -> None:
    for _ in range(3):
        recorder.emit(**WEB)
    await clock.advance_until(lambda: len(stored(api)) == 1)
    assert stored(api)[0]["count"] == 3


async def test_an_expired_event_is_created_again(
    api: ScriptedApi, recorder: EventRecorder, clock: VirtualClock
) -> None:
    recorder.emit(**WEB)
    await clock.advance_until(lambda: len(stored(api)) == 1)
    api.objects["events"].clear()
    await clock.advance(4000)
    recorder.emit(**WEB)
    await clock.advance_until(lambda: len(stored(api)) == 1)
    assert stored(api)[0]["count"] == 2


async def test_a_cluster_scoped_object_has_its_events_in_default(
    api: ScriptedApi, recorder: EventRecorder, clock: VirtualClock
) -> None:
    emit(recorder, kind="Node", namespace="", name="n" * 253, message="x" * 5000)
    await clock.advance_until(lambda: len(stored(api)) == 1)
    (event,) = stored(api)
    assert event["metadata"]["namespace"] == "default"
    assert len(event["metadata"]["name"]) <= 253
    assert len(event["message"]) == 1024


async def test_failures_are_retried_a_few_times_and_never_raised(
    api: ScriptedApi, recorder: EventRecorder, clock: VirtualClock
) -> None:
    api.answer(method("POST"), 503, times=3)
    recorder.emit(**WEB)
    await clock.advance_until(lambda: len(stored(api)) == 1)
    api.answer(method("POST"), 503, times=9999)
    emit(recorder, reason="Other")
    await clock.advance_until(lambda: recorder.dropped == 1)
    api.faults.clear()
    api.answer(method("POST"), 403, "Forbidden")
    emit(recorder, reason="Third")
    await clock.advance_until(lambda: recorder.dropped == 2)
    emit(recorder, reason="Fourth")
    await clock.advance_until(lambda: len(stored(api)) == 2)


async def test_memory_is_bounded(api: ScriptedApi, cluster: Cluster, clock: VirtualClock) -> None:
    recorder = EventRecorder(cluster, component="x", limit=10)
    for number in range(25):
        emit(recorder, name=f"s{number}")
    assert recorder.dropped == 15
    task = asyncio.create_task(recorder.run())
    await clock.advance_until(lambda: len(stored(api)) == 10)
    await settle()
    emit(recorder, name="new")  # what has been written makes room
    await clock.advance_until(lambda: len(stored(api)) == 11)
    assert recorder.dropped == 15
    task.cancel()


async def test_an_event_without_room_costs_as_much_among_many_as_among_few(cluster: Cluster) -> None:
    def cost(limit: int) -> int:
        recorder = EventRecorder(cluster, component="x", limit=limit)
        for number in range(limit):
            emit(recorder, name=f"s{number}")
        calls = count_calls(lambda: emit(recorder, name="new"))
        assert recorder.dropped == 1
        return calls

    assert cost(500) == cost(10)


async def test_events_are_rate_limited(api: ScriptedApi, cluster: Cluster, clock: VirtualClock) -> None:
    recorder = EventRecorder(cluster, component="x", qps=1, burst=2)
    for number in range(6):
        emit(recorder, name=f"s{number}")
    task = asyncio.create_task(recorder.run())
    started = clock.monotonic()
    await clock.advance_until(lambda: len(stored(api)) == 6)
    assert clock.monotonic() - started >= 4
    task.cancel()


@pytest.mark.req("X-39")
async def test_the_last_event_about_an_object_is_the_one_that_holds(
    api: ScriptedApi, recorder: EventRecorder, clock: VirtualClock
) -> None:
    async def emitted(kind: str, count: int) -> None:
        emit(recorder, type=kind)
        await clock.advance_until(lambda: any((e["type"], e["count"]) == (kind, count) for e in stored(api)))

    began_s = clock.monotonic()
    for count in (1, 2):
        await emitted("Warning", count)
        await emitted("Normal", count)
    assert clock.monotonic() - began_s < 60.0
    by_type = {event["type"]: event["lastTimestamp"] for event in stored(api)}
    assert by_type["Normal"] >= by_type["Warning"]


@pytest.mark.req("CORE-17")
async def test_events_of_one_namespace_do_not_hold_up_those_of_another(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock
) -> None:
    recorder = EventRecorder(cluster, component="x", qps=1, burst=1, limit=100)
    for number in range(300):
        emit(recorder, name=f"s{number}")
    emit(recorder, namespace="quiet", name="web")
    started_s = clock.monotonic()
    task = asyncio.create_task(recorder.run())
    await clock.advance_until(lambda: any(event["metadata"]["namespace"] == "quiet" for event in stored(api)))
    assert clock.monotonic() - started_s < 5
    task.cancel()
