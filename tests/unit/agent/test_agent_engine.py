"""The engine: which keys reach a source, and what becomes of its answers."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from agent_builders import HUB_NAMESPACE, clusters, engine_of, enqueued

from fairlead.agent.engine import HTTP_LANE, NOT_CURRENT_RETRY_S, REFUSED_RETRY_S, SERVICES_LANE, Engine, Source
from fairlead.agent.identity import Key
from fairlead.agent.sources.service.caches import ServiceCaches
from fairlead.errors import Invalid, NotFound, Wait

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
        self.engine = engine_of(ServiceCaches(hub_namespace=HUB_NAMESPACE, **both), **both)
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
