"""The engine: which keys reach a source, and what becomes of its answers."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from agent_builders import HUB_NAMESPACE, clusters, engine_of, enqueued

from fairlead.agent.engine import (
    HTTP_LANE,
    NOT_CURRENT_RETRY_S,
    REFUSED_RETRY_S,
    SERVICES_LANE,
    CountPace,
    Engine,
    Source,
)
from fairlead.agent.identity import Key
from fairlead.agent.sources.caches import ServiceCaches
from fairlead.errors import Invalid, NotFound, Wait
from fairlead.runtime.clock import VirtualClock

ROUTE: Key = ("HTTPRoute", "shop", "web")


class Routes(Source):
    """A source of one kind, whose answers the tests choose."""

    name = "Routes"
    lane = HTTP_LANE
    publishes = frozenset({"HTTPRoute"})
    reports = frozenset({"HTTPRoute", "Gateway"})

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.published: list[Key] = []
        self.rejections: list[str] = []
        self.error: Exception | None = None
        self.held = False
        self.read = True

    @property
    def ready(self) -> bool:
        return self.read

    def all_keys(self) -> Iterable[Key]:
        return [ROUTE]

    async def publish(self, key: Key) -> bool:
        self.published.append(key)
        if self.error is not None:
            raise self.error
        return self.held

    async def report(self, key: Key) -> float | None:
        raise NotFound("gone")

    def refused(self, key: Key, why: str) -> None:
        self.rejections.append(why)


class World:
    """An engine with one source, in a term."""

    def __init__(self) -> None:
        both = clusters()
        self.leaves = False
        self.engine = engine_of(
            ServiceCaches(hub_namespace=HUB_NAMESPACE, member=both["member"], hub=both["hub"]), **both
        )
        self.engine._leaving = lambda: self.leaves
        self.source = Routes(self.engine)
        self.engine._begun.add(self.source.name)


@pytest.fixture
async def world() -> World:
    return World()


async def test_a_key_is_enqueued_for_what_its_source_does_with_it(world: World) -> None:
    for key in (ROUTE, ("Gateway", "shop", "edge"), ("Unknown", "shop", "web")):
        world.engine.enqueue(key)
    assert await enqueued(world.engine, HTTP_LANE) == {ROUTE}
    assert len(world.engine.lanes[HTTP_LANE].reports) == 2
    assert not any(len(queue) for queue in world.engine.lanes[SERVICES_LANE][:2])


async def test_a_removal_that_waits_is_retried(world: World) -> None:
    assert await world.engine._publish(ROUTE) is None
    world.source.held = True
    assert await world.engine._publish(ROUTE) == NOT_CURRENT_RETRY_S


async def test_nothing_is_published_for_a_tenant_that_leaves(world: World) -> None:
    world.leaves = True
    assert await world.engine._publish(ROUTE) is None
    assert world.source.published == []


async def test_a_rejection_of_the_hub_is_reported_until_it_ends(world: World) -> None:
    world.source.error = Invalid("spec.rules: too many")
    assert await world.engine._publish(ROUTE) == REFUSED_RETRY_S
    assert "spec.rules: too many" in world.engine.refusal_of(ROUTE)
    world.source.error = None
    await world.engine._publish(ROUTE)
    await world.engine._publish(ROUTE)
    assert world.engine.refusal_of(ROUTE) == ""
    assert [bool(why) for why in world.source.rejections] == [True, False]


async def test_a_source_that_has_not_read_everything_waits(world: World) -> None:
    world.source.read = False
    with pytest.raises(Wait, match="Routes"):
        await world.engine._publish(ROUTE)
    assert world.source.kind_came.is_set(), "all keys are enqueued again"
    world.source.read = True
    with pytest.raises(Wait, match="Routes"):
        await world.engine._publish(ROUTE)
    assert world.source.published == []


async def test_an_object_that_is_gone_ends_its_report(world: World) -> None:
    assert await world.engine._report(ROUTE) is None


def _written_at(changes_s: dict[float, int], until_s: float) -> list[tuple[float, int]]:
    """Return when which count was written, of counts that change at these times and are looked at every 50 ms."""
    clock = VirtualClock()
    pace, begin_s = CountPace(clock), clock.monotonic()
    written, writes = 0, list[tuple[float, int]]()
    while (now_s := clock.monotonic() - begin_s) < until_s:
        count = max((each for at_s, each in changes_s.items() if at_s <= now_s + 1e-6), default=0)
        if not pace.wait_s(ROUTE, written, count) and count != written:
            pace.written(ROUTE)
            written = count
            writes.append((round(now_s, 2), count))
        clock.jump(0.05)
    return writes


def test_one_changed_count_is_written_once_it_has_settled() -> None:
    assert _written_at({0.0: 1}, 3.0) == [(0.1, 1)]


def test_counts_that_settle_again_within_a_second_are_written_at_its_end() -> None:
    assert _written_at({0.0: 1, 0.5: 2, 0.8: 3}, 3.0) == [(0.1, 1), (1.1, 3)]


def test_the_last_of_many_changes_is_written_soon() -> None:
    assert _written_at({0.0: 1, 0.2: 2, 0.3: 3}, 3.0) == [(0.1, 1), (0.7, 3)]


def test_counts_that_never_settle_are_written_all_the_same() -> None:
    every_look = {number * 0.05: number for number in range(1, 120)}
    writes = _written_at(every_look, 6.0)
    assert [round(at_s) for at_s, _ in writes] == [2, 4]


def test_a_count_that_changes_back_is_not_written() -> None:
    clock = VirtualClock()
    pace = CountPace(clock)
    assert pace.wait_s(ROUTE, 1, 2) > 0
    assert pace.wait_s(ROUTE, 1, 1) == 0
    clock.jump(5.0)
    # The next change has to settle like any other.
    assert pace.wait_s(ROUTE, 1, 3) == pytest.approx(CountPace.SETTLE_S)
