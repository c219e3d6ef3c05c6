from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from kube_scripted import ScriptedApi, bookmark, line, service

from fairlead.api.kubernetes import SERVICES, Service
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import Overlay
from fairlead.runtime.clock import VirtualClock

NOW = "2030-01-01T00:00:00Z"


class World:
    """An API whose watch shows writes only when the test says so."""

    def __init__(self, api: ScriptedApi, cluster: Cluster) -> None:
        self.api = api
        self.clock = VirtualClock()
        self.cache = WatchCache(
            cluster,
            SERVICES,
            clock=self.clock,
            transform=without_labels,
            indexes={"type": lambda service: [service.spec.type]},
        )
        self.overlay = Overlay(self.cache)

    def write(self, name: str, port: int, **spec: str) -> Service:
        """Write without an event of the watch; return the server's answer."""
        obj = self.api.put("services", service(name, port=port, **spec), notify=False)
        return msgspec.json.decode(msgspec.json.encode(obj), type=Service)

    async def show(self, name: str) -> None:
        """Let the cache see the object as it is at the server."""
        obj = self.api.objects["services"]["a", name]
        self.api.notify("services", line("MODIFIED", obj))
        version = obj["metadata"]["resourceVersion"]
        await self.api.until(lambda: self.version(name) == version)

    async def hear(self) -> None:
        """Let the cache hear something about no object."""
        before_s = self.cache.age_s
        self.api.notify("services", bookmark(self.api.version))
        await self.api.until(lambda: self.cache.age_s < before_s)

    def version(self, name: str) -> str:
        cached = self.cached(name)
        return cached.metadata.resource_version if cached is not None else ""

    def cached(self, name: str) -> Service | None:
        return self.cache.get("a", name)

    def port(self, name: str = "web") -> int | None:
        obj = self.overlay.get("a", name)
        return obj.spec.ports[0].port if obj is not None and obj.spec.ports else None

    def of_type(self, kind: str) -> list[str]:
        return [obj.metadata.name for obj in self.overlay.by_index("type", kind)]


def without_labels(obj: Service) -> Service:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, labels=None))


@pytest.fixture
async def world(api: ScriptedApi, cluster: Cluster) -> AsyncIterator[World]:
    api.put("services", service("web", port=1))
    world = World(api, cluster)
    task = asyncio.create_task(world.cache.run())
    await world.cache.wait_synced(5)
    yield world
    task.cancel()
    await asyncio.wait({task})


async def test_own_writes_are_read_before_the_cache_shows_them(world: World) -> None:
    answer = world.write("web", 2)
    assert world.overlay.written(answer, before=world.overlay.get("a", "web")) == answer
    assert (world.port(), len(world.overlay)) == (2, 1)
    await world.show("web")
    assert (world.port(), len(world.overlay)) == (2, 0)


async def test_several_writes_stand_until_the_last_one_is_shown(world: World) -> None:
    world.overlay.written(world.write("web", 2), before=world.overlay.get("a", "web"))
    shown = dict(world.api.objects["services"]["a", "web"])
    before = world.overlay.get("a", "web")
    world.overlay.written(world.write("web", 3), before=before)
    world.api.notify("services", line("MODIFIED", shown))
    await world.api.until(lambda: world.version("web") == shown["metadata"]["resourceVersion"])
    assert world.port() == 3
    await world.show("web")
    assert len(world.overlay) == 0


async def test_what_others_wrote_after_us_wins(world: World) -> None:
    world.overlay.written(world.write("web", 2), before=world.cached("web"))
    world.write("web", 9)
    await world.show("web")
    assert (world.port(), len(world.overlay)) == (9, 0)


async def test_a_cache_that_was_faster_than_the_answer_is_believed(world: World) -> None:
    before, answer = world.cached("web"), world.write("web", 2)
    world.write("web", 9)
    await world.show("web")
    world.overlay.written(answer, before=before)
    assert (world.port(), len(world.overlay)) == (9, 0)


async def test_an_answer_that_the_cache_shows_already_is_not_kept(world: World) -> None:
    cached = world.cached("web")
    assert cached is not None
    world.overlay.written(cached, before=cached)
    assert len(world.overlay) == 0


async def test_created_objects_are_listed(world: World) -> None:
    world.overlay.written(world.write("new", 5), before=None)
    assert world.port("new") == 5
    assert world.of_type("LoadBalancer") == ["new", "web"]
    await world.show("new")
    assert (world.port("new"), len(world.overlay)) == (5, 0)


async def test_an_index_shows_the_values_that_were_written(world: World) -> None:
    world.overlay.written(world.write("web", 1, type="ClusterIP"), before=world.cached("web"))
    assert (world.of_type("LoadBalancer"), world.of_type("ClusterIP")) == ([], ["web"])


async def test_deleted_objects_are_leaving_until_the_cache_shows_it(world: World) -> None:
    cached = world.cached("web")
    assert cached is not None
    world.overlay.deleted(cached, at=NOW)
    going = world.overlay.get("a", "web")
    assert going is not None
    assert going.metadata.deletion_timestamp == NOW
    world.api.drop("services", "a", "web")
    await world.api.until(lambda: world.cached("web") is None)
    assert world.overlay.get("a", "web") is None
    assert len(world.overlay) == 0


async def test_what_the_cache_never_showed_is_gone_when_deleted(world: World) -> None:
    made = world.overlay.written(world.write("new", 5), before=None)
    world.overlay.deleted(made, at=NOW)
    assert world.overlay.get("a", "new") is None


async def test_a_write_that_was_undone_is_forgotten_once_the_cache_was_heard_long_after(world: World) -> None:
    world.overlay.written(world.write("new", 5), before=None)
    await world.clock.advance(60)
    assert world.port("new") == 5  # nothing was heard meanwhile, so it may still come
    await world.hear()
    assert world.overlay.get("a", "new") is None
    assert len(world.overlay) == 0


async def test_answers_are_transformed_as_the_cache_does(world: World) -> None:
    answer = world.write("web", 2)
    labelled = msgspec.structs.replace(answer, metadata=msgspec.structs.replace(answer.metadata, labels={"a": "b"}))
    assert world.overlay.written(labelled, before=world.cached("web")) == answer
