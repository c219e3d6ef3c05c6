from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead.api.kubernetes import CRDS, EVENTS, LEASES, SERVICES, Lease, Service
from fairlead.api.meta import KubeObject, Resource
from fairlead.errors import AlreadyExists, Conflict, Invalid, NamespaceNotFound, NotFound, NotServed, Unauthorized
from fairlead.kube.cache import CacheSettings, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.kube.discovery import AccessNeed, check_access, install_crds
from fairlead.kube.events import EventRecorder
from fairlead.kube.lease import Heartbeat, LeaderElector
from fairlead.kube.writes import Applier


def service(namespace: str, name: str, *, port: int = 80, **meta: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "name": name, **meta},
        "spec": {"ports": [{"name": "http", "port": port}]},
    }


async def until(done: Callable[[], bool], limit_s: float = 180.0) -> None:
    async with asyncio.timeout(limit_s):
        while not done():  # noqa: ASYNC110 - the other side is a server
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(*runs: Any) -> AsyncGenerator[None]:
    tasks = [asyncio.create_task(run) for run in runs]
    try:
        yield
        for task in tasks:
            assert not task.done() or task.exception() is None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def crd(group: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}},
            "status": {"type": "object", "properties": {"state": {"type": "string"}}},
        },
    }
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [version],
        },
    }


def things(group: str) -> Resource[KubeObject]:
    return Resource(group, "v1alpha1", "Thing", "things", True, KubeObject)


async def test_version_and_rights(cluster: Cluster) -> None:
    assert (await cluster.version()).startswith("v1.")
    assert await cluster.can_i("create", "", "services", "default")
    assert await check_access(cluster, [AccessNeed("patch", SERVICES, "", "status")]) == []


async def test_create_get_replace_patch_delete(cluster: Cluster, namespace: str) -> None:
    created: Service = await cluster.create(SERVICES, service(namespace, "web"))
    assert created.metadata.uid
    assert created.spec.ports
    assert created.spec.ports[0].target_port == 80  # defaulted
    with pytest.raises(AlreadyExists):
        await cluster.create(SERVICES, service(namespace, "web"))
    patched = await cluster.merge_patch(SERVICES, namespace, "web", {"metadata": {"labels": {"a": "b"}}})
    assert patched.metadata.labels == {"a": "b"}
    ops = [{"op": "add", "path": "/metadata/labels/c", "value": "d"}]
    patched = await cluster.json_patch(SERVICES, namespace, "web", ops)
    assert patched.metadata.labels == {"a": "b", "c": "d"}
    stale = service(namespace, "web", resourceVersion=created.metadata.resource_version)
    with pytest.raises(Conflict):
        await cluster.replace(SERVICES, stale)
    with pytest.raises(Conflict):
        await cluster.delete(SERVICES, namespace, "web", uid="00000000-0000-0000-0000-000000000000")
    assert await cluster.delete(SERVICES, namespace, "web", uid=created.metadata.uid)
    assert not await cluster.delete(SERVICES, namespace, "web")
    with pytest.raises(NotFound, match="no such object"):
        await cluster.get(SERVICES, namespace, "web")


async def test_apply_owns_its_fields(cluster: Cluster, namespace: str) -> None:
    first = await cluster.apply(SERVICES, service(namespace, "web", labels={"x": "one"}), manager="one")
    again = await cluster.apply(SERVICES, service(namespace, "web", labels={"x": "one"}), manager="one")
    assert again.metadata.resource_version == first.metadata.resource_version
    other = {"metadata": {"namespace": namespace, "name": "web", "labels": {"x": "two"}}}
    with pytest.raises(Conflict, match="one"):
        await cluster.apply(SERVICES, other, manager="two", force=False)
    taken = await cluster.apply(SERVICES, other, manager="two")
    assert taken.metadata.labels == {"x": "two"}
    gone = await cluster.apply(SERVICES, {"metadata": {"namespace": namespace, "name": "web"}}, manager="two")
    assert not gone.metadata.labels


async def test_errors_are_of_the_right_class(cluster: Cluster, config: ClusterConfig, namespace: str) -> None:
    with pytest.raises(Invalid):
        await cluster.create(SERVICES, service(namespace, "web", port=99999))
    with pytest.raises(NamespaceNotFound, match=r'namespace "no-such-place" does not exist'):
        await cluster.create(SERVICES, service("no-such-place", "web"))
    with pytest.raises(NotServed, match="does not serve Thing"):
        await cluster.list(things("nobody.example"))
    unknown = ClusterConfig(
        server=config.server, sign_in=bearer("wrong", tls=(await config.sign_in(None)).ssl), user="unknown_user"
    )
    async with Cluster(unknown, name="contract") as unknown_user:
        with pytest.raises(Unauthorized, match="unknown_user"):
            await unknown_user.list(SERVICES)


async def test_pages_and_selectors(cluster: Cluster, namespace: str) -> None:
    bodies = [service(namespace, f"s{n}", labels={"odd": str(n % 2)}) for n in range(7)]
    await asyncio.gather(*(cluster.create(SERVICES, body) for body in bodies))
    listing = await cluster.listing(SERVICES, namespace, page_size=3)
    assert [item.metadata.name for item in listing.items] == [f"s{n}" for n in range(7)]
    odd = await cluster.list(SERVICES, namespace, label_selector="odd=1")
    assert [item.metadata.name for item in odd] == ["s1", "s3", "s5"]
    services = await cluster.list(SERVICES, namespace, field_selector="metadata.name=s4")
    assert [item.metadata.name for item in services] == ["s4"]


async def test_a_cache_follows(cluster: Cluster, namespace: str) -> None:
    for name in ("a", "b"):
        await cluster.create(SERVICES, service(namespace, name))
    cache: WatchCache[Service] = WatchCache(cluster, SERVICES, namespace=namespace)
    seen: list[tuple[str, str]] = []
    cache.on_change(lambda old, new: seen.append((old.metadata.name if old else "", new.metadata.name if new else "")))
    async with running(cache.run()):
        await cache.wait_synced(10)
        assert sorted(seen) == [("", "a"), ("", "b")]
        await cluster.merge_patch(SERVICES, namespace, "a", {"metadata": {"labels": {"x": "y"}}})
        await cluster.delete(SERVICES, namespace, "b")
        await cluster.create(SERVICES, service(namespace, "c"))
        await until(lambda: len(seen) == 5)
        assert seen[2:] == [("a", "a"), ("b", ""), ("", "c")]
        assert {obj.metadata.name for obj in cache.values()} == {"a", "c"}
        assert cache.problem == ""
        assert cache.age_s < 10


async def test_a_cache_starts_with_watchlist_or_with_a_list(cluster: Cluster, namespace: str) -> None:
    await cluster.create(SERVICES, service(namespace, "a"))
    streamed = WatchCache(cluster, SERVICES, namespace=namespace)
    listed: WatchCache[Service] = WatchCache(
        cluster, SERVICES, namespace=namespace, settings=CacheSettings(page_size=1)
    )
    listed._offers_watch_list = False
    async with running(streamed.run(), listed.run()):
        await streamed.wait_synced(10)
        await listed.wait_synced(10)
        await cluster.create(SERVICES, service(namespace, "b"))
        await until(lambda: len(streamed) == len(listed) == 2)
        assert streamed.get(namespace, "a") == listed.get(namespace, "a")


async def test_a_selection_loses_what_no_longer_matches(cluster: Cluster, namespace: str) -> None:
    await cluster.create(SERVICES, service(namespace, "a", labels={"mine": "yes"}))
    cache: WatchCache[Service] = WatchCache(cluster, SERVICES, namespace=namespace, label_selector="mine=yes")
    async with running(cache.run()):
        await cache.wait_synced(10)
        assert len(cache) == 1
        await cluster.merge_patch(SERVICES, namespace, "a", {"metadata": {"labels": {"mine": "no"}}})
        await until(lambda: len(cache) == 0)


async def test_custom_resources_from_nothing(cluster: Cluster, namespace: str) -> None:
    group = f"{namespace}.example"
    cache: WatchCache[KubeObject] = WatchCache(cluster, things(group), settings=CacheSettings(terminal_retry_s=0.3))
    async with running(cache.run()):
        await until(lambda: "does not serve Thing" in cache.problem)
        assert await install_crds(cluster, [crd(group)], "tester") == []
        assert await install_crds(cluster, [crd(group)], "tester") == []
        body = {"metadata": {"namespace": namespace, "name": "one"}, "spec": {"size": 3}}
        await cluster.apply(things(group), body, manager="m")
        await cache.wait_synced(10)
        await until(lambda: len(cache) == 1)
        with pytest.raises(Invalid, match="size"):
            await cluster.apply(things(group), {**body, "spec": {"size": 0}}, manager="m")
        status = {"metadata": body["metadata"], "status": {"state": "good"}}
        done = await cluster.apply(things(group), status, manager="s", subresource="status")
        assert done.metadata.generation == 1
    await cluster.delete(CRDS, "", f"things.{group}")


async def test_finalizers_hold_an_object(cluster: Cluster, namespace: str) -> None:
    await cluster.create(SERVICES, service(namespace, "a", finalizers=["fairlead.dev/test"]))
    assert await cluster.delete(SERVICES, namespace, "a")
    held: Service = await cluster.get(SERVICES, namespace, "a")
    assert held.deleting
    await cluster.merge_patch(SERVICES, namespace, "a", {"metadata": {"finalizers": None}})
    with pytest.raises(NotFound):
        await cluster.get(SERVICES, namespace, "a")


async def test_no_write_when_nothing_changed(cluster: Cluster, namespace: str) -> None:
    cache: WatchCache[Service] = WatchCache(cluster, SERVICES, namespace=namespace)
    async with running(cache.run()):
        await cache.wait_synced(10)
        applier = Applier(cluster, manager="m", caches={SERVICES: cache})
        before = cluster.writes
        assert await applier.ensure(SERVICES, service(namespace, "a"))
        for _ in range(10):
            assert not await applier.ensure(SERVICES, service(namespace, "a"))
        assert cluster.writes - before == 1
        await until(lambda: len(cache) == 1)
        await cluster.delete(SERVICES, namespace, "a")
        await until(lambda: len(cache) == 0)
        assert not await _is_there(cluster, namespace, "a")
        await applier.ensure(SERVICES, service(namespace, "a"))
        applier.forget(SERVICES, namespace, "a")
        assert await applier.ensure(SERVICES, service(namespace, "a")) in {True, False}
        assert await _is_there(cluster, namespace, "a")


async def _is_there(cluster: Cluster, namespace: str, name: str) -> bool:
    try:
        await cluster.get(SERVICES, namespace, name)
    except NotFound:
        return False
    return True


@pytest.mark.req("I-5")
async def test_one_leader_and_a_quick_hand_over(cluster: Cluster, namespace: str) -> None:
    leading: list[tuple[str, int]] = []
    at_once: list[str] = []

    def candidate(identity: str) -> asyncio.Task[None]:
        async def work(epoch: int) -> None:
            leading.append((identity, epoch))
            at_once.append(identity)
            assert len(at_once) == 1
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                at_once.remove(identity)

        elector = LeaderElector(
            cluster, namespace=namespace, name="hub", identity=identity, lease_s=3, renew_s=2, retry_s=0.1
        )
        return asyncio.create_task(elector.run(work))

    each, two = candidate("one"), candidate("two")
    await until(lambda: len(leading) == 1)
    first = each if leading[0][0] == "one" else two
    first.cancel()
    await asyncio.wait({first})
    await until(lambda: len(leading) == 2)
    assert leading[1][0] != leading[0][0]
    assert leading[1][1] > leading[0][1]
    await cluster.delete(LEASES, namespace, "hub")
    await until(lambda: len(leading) == 3)
    assert leading[2][1] > leading[1][1]
    for task in (each, two):
        task.cancel()
    await asyncio.wait({each, two})


async def test_a_heartbeat(cluster: Cluster, namespace: str) -> None:
    beat = Heartbeat(
        cluster, namespace=namespace, name="agent", identity="a", interval_s=0.05, annotations=lambda: {"n": "1"}
    )
    async with running(beat.run()):
        await until(lambda: beat.beats >= 3)
    lease: Lease = await cluster.get(LEASES, namespace, "agent")
    assert lease.spec.holder_identity == "a"
    assert lease.metadata.annotations == {"n": "1"}
    assert beat.problem == ""


async def test_events_arrive(cluster: Cluster, namespace: str) -> None:
    web = await cluster.create(SERVICES, service(namespace, "web"))
    recorder = EventRecorder(cluster, component="fairlead-test", repeat_s=0.05)

    def emit() -> None:
        recorder.emit(
            kind="Service",
            api_version="v1",
            namespace=namespace,
            name="web",
            uid=web.metadata.uid,
            type="Normal",
            reason="Ready",
            message="It has an address.",
        )

    before = cluster.writes
    async with running(recorder.run()):
        emit()
        await until(lambda: cluster.writes == before + 1)
        emit()
        await until(lambda: cluster.writes == before + 2)
    assert recorder.dropped == 0
    # A real server writes Events of its own about Services.
    assert len(await cluster.list(EVENTS, namespace, field_selector="reason=Ready")) == 1
