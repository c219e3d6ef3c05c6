from __future__ import annotations

import asyncio

import msgspec
import pytest
from kube_scripted import ScriptedApi, service

from fairlead.api.kubernetes import NAMESPACES, NODES, SECRETS, SERVICES, Service
from fairlead.api.meta import ObjectKey
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.errors import NamespaceNotFound
from fairlead.kube.cache import ObjectStore, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.transport import LineSplitter, LineTooLong, TruncatedLine
from fairlead.kube.writes import Applier, shared_key


async def test_the_same_content_is_written_once(cluster: Cluster) -> None:
    applier = Applier(cluster, manager="m")
    assert await applier.ensure(SERVICES, service("web"))
    for _ in range(5):
        assert not await applier.ensure(SERVICES, service("web"))
    assert cluster.writes == 1
    assert await applier.ensure(SERVICES, service("web", type="ClusterIP"))
    assert cluster.writes == 2


async def test_the_order_of_keys_is_not_a_change(cluster: Cluster) -> None:
    applier = Applier(cluster, manager="m")
    await applier.ensure(SERVICES, {"metadata": {"name": "w", "namespace": "a"}, "spec": {"x": 1, "y": 2}})
    assert not await applier.ensure(SERVICES, {"spec": {"y": 2, "x": 1}, "metadata": {"namespace": "a", "name": "w"}})


async def test_a_forgotten_object_is_written_again(cluster: Cluster) -> None:
    applier = Applier(cluster, manager="m")
    await applier.ensure(SERVICES, service("web"))
    applier.forget(SERVICES, "a", "web")
    await applier.ensure(SERVICES, service("web"))
    assert cluster.writes == 2


async def test_cluster_scoped_objects_have_no_namespace(cluster: Cluster) -> None:
    applier = Applier(cluster, manager="m")
    await applier.ensure(NODES, {"metadata": {"name": "n1"}})
    assert not await applier.ensure(NODES, {"metadata": {"name": "n1"}})


@pytest.mark.req("I-10")
async def test_with_a_cache_what_others_did_is_repaired_once(api: ScriptedApi, cluster: Cluster) -> None:
    cache: WatchCache[Service] = WatchCache(cluster, SERVICES)
    task = asyncio.create_task(cache.run())
    await cache.wait_synced(5)
    applier = Applier(cluster, manager="m", caches={SERVICES: cache})

    async def seen() -> None:
        stored = api.objects["services"].get(("a", "web"))
        version = stored["metadata"]["resourceVersion"] if stored else ""

        def shown() -> str:
            obj = cache.get("a", "web")
            return obj.metadata.resource_version if obj else ""

        await api.until(lambda: shown() == version)

    assert await applier.ensure(SERVICES, service("web"))
    assert not await applier.ensure(SERVICES, service("web"))  # the cache has perhaps not seen it yet
    await seen()
    assert not await applier.ensure(SERVICES, service("web"))

    api.put("services", service("web", type="ExternalName"))
    await seen()
    assert await applier.ensure(SERVICES, service("web"))
    await seen()
    assert not await applier.ensure(SERVICES, service("web"))

    api.put(
        "services", {**service("web"), "apiVersion": "v1", "kind": "Service", "status": {"x": 1}}
    )  # not ours: one request, which changes nothing
    await seen()
    assert not await applier.ensure(SERVICES, service("web"))
    writes = cluster.writes
    assert not await applier.ensure(SERVICES, service("web"))
    assert cluster.writes == writes

    api.drop("services", "a", "web")
    await seen()
    assert await applier.ensure(SERVICES, service("web"))
    task.cancel()


def test_lines_are_the_same_however_they_are_cut() -> None:
    data = b'{"a":1}\n\n{"b":2}\r\n{"c":3}\n{"unfinished"'
    for size in range(1, len(data) + 1):
        splitter = LineSplitter()
        lines = [line for at in range(0, len(data), size) for line in splitter.feed(data[at : at + size])]
        assert [line.strip() for line in lines] == [b'{"a":1}', b'{"b":2}', b'{"c":3}']
        assert splitter.feed(b"}\n") == [b'{"unfinished"}']


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.kube.transport.LINE_LIMIT_BYTES", 100)
    monkeypatch.setattr("fairlead.kube.transport.NO_LINE_BYTES", 300)
    splitter = LineSplitter()
    assert splitter.feed(b"x" * 90 + b"\n") == [b"x" * 90]
    for _ in range(3):
        assert splitter.feed(b"x" * 90) == []
    with pytest.raises(LineTooLong):
        splitter.feed(b"x" * 90)


@pytest.mark.req("S-1")
@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_line_that_is_too_long_costs_only_itself(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("fairlead.kube.transport.LINE_LIMIT_BYTES", 200)
    start = b'{"type": "ADDED", "object": {"kind": "A", "metadata": {"uid": "u", "resourceVersion": "7", "name": "b", '
    data = b'{"a":1}\n' + start + b'"labels": {"x": "' + b"x" * 2000 + b'"}}}}\n{"c":3}\n'
    splitter = LineSplitter()
    lines = [line for at in range(0, len(data), size) for line in splitter.feed(data[at : at + size])]
    first, cut, last = lines
    assert (first, last) == (b'{"a":1}', b'{"c":3}')
    assert isinstance(cut, TruncatedLine)
    frame = cut.frame()
    assert (frame.type, msgspec.json.decode(frame.object)) == (
        "ADDED",
        {"metadata": {"name": "b", "resourceVersion": "7"}},
    )
    assert "MiB" in frame.problem


def test_a_failing_index_leaves_the_store_as_it_was() -> None:
    def explode(obj: Service) -> list[str]:
        if obj.spec.type == "bad":
            raise ValueError(obj.spec.type)
        return [obj.spec.type]

    import msgspec

    store: ObjectStore[Service] = ObjectStore({"type": explode})
    good = msgspec.convert({"metadata": {"name": "x", "namespace": "a"}, "spec": {"type": "one"}}, Service)
    bad = msgspec.convert({"metadata": {"name": "x", "namespace": "a"}, "spec": {"type": "bad"}}, Service)
    store.put(good)
    with pytest.raises(ValueError, match="bad"):
        store.put(bad)
    assert store.by_index("type", "one") == [good]
    assert store.get(ObjectKey("a", "x")) is good


async def test_an_object_that_was_deleted_before_the_cache_showed_it_is_written_again(
    api: ScriptedApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache: WatchCache[Service] = WatchCache(cluster, SERVICES)
    task = asyncio.create_task(cache.run())
    await cache.wait_synced(5)
    applier = Applier(cluster, manager="m", caches={SERVICES: cache})
    await applier.ensure(SERVICES, service("web"))
    await api.until(lambda: cache.get("a", "web") is not None)
    api.drop("services", "a", "web")
    await api.until(lambda: cache.get("a", "web") is None)
    assert not await applier.ensure(SERVICES, service("web")), "the cache may not show the write yet"
    monkeypatch.setattr("fairlead.kube.writes.LAG_S", -1.0)
    api.put("services", service("other"))
    await api.until(lambda: cache.get("a", "other") is not None)
    assert await applier.ensure(SERVICES, service("web"))
    assert ("a", "web") in api.objects["services"]
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.req("F-23")
async def test_all_hubs_share_one_key(embedded: Cluster) -> None:
    with pytest.raises(NamespaceNotFound):
        await shared_key(embedded, "k")
    await embedded.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
    keys = await asyncio.gather(*(shared_key(embedded, "k") for _ in range(3)))
    assert len(set(keys)) == 1
    assert len(keys[0]) == 64
    assert await shared_key(embedded, "other") not in keys
    damaged = {"metadata": {"namespace": SYSTEM_NAMESPACE, "name": "k"}, "data": {"key": ""}}
    await embedded.apply(SECRETS, damaged, manager="somebody", force=True)
    assert await shared_key(embedded, "k") == ""
