"""What happened in the fleet: each change once, in words, for those who may see its object, and never without bound."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.times import wire_time
from fairlead.hub.inventory import IntentObjects, Inventory
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.model.change import HistoryKind
from fairlead.model.keys import LoadBalancerKey
from fairlead.page.timeline import EVERYBODY, MOST_EVENTS, Audience, Event, EventKind, Timeline
from fairlead.runtime.clock import SystemClock, VirtualClock
from fairlead.sync.history import History
from fairlead_demo.worlds.processes import wait_until
from tests.scenario.installed_kinds import server_with_kinds

ADMIN = "for-these-tests-only"
WEB = LoadBalancerKey("TCPLoadBalancer", "tenant-east", "shop.web")
EAST = Audience("tcploadbalancers", "tenant-east")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def inventory() -> Inventory:
    return Inventory(Cluster(ClusterConfig(server="http://192.0.2.1", sign_in=bearer("none")), name="hub"))


@pytest.fixture
def history(clock) -> History:
    return History(now=clock.now)


@pytest.fixture
def timeline(inventory, history, clock) -> Timeline:
    return Timeline(inventory, history, clock=clock, now=clock.now)


def items(timeline: Timeline) -> list[Any]:
    return [shown.item for key in timeline.all_keys() if (shown := timeline.visible_item(key)) is not None]


def event(number: int, audience: Audience = EAST) -> Event:
    return Event(EventKind.CHANGE, f"web-{number}", "created", audience)


@pytest.mark.req("OP-10")
async def test_what_happens_again_is_counted_with_its_last_time(timeline, clock):
    for _ in range(3):
        timeline.note(event(1))
        timeline.note(event(2))
        await clock.advance(60)
    assert [(item.subject, item.count) for item in items(timeline)] == [("web-1", 3), ("web-2", 3)]
    assert items(timeline)[0].at == wire_time(clock.now() - timedelta(seconds=60))


@pytest.mark.req("OP-10")
def test_events_are_bounded_and_a_busy_member_takes_no_place_of_others(timeline):
    gone: list[Any] = []
    west = Audience("tcploadbalancers", "tenant-west")
    timeline.note(event(0, west))
    timeline.watch(lambda key: gone.append(key) if timeline.visible_item(key) is None else None)
    for number in range(MOST_EVENTS + 50):
        timeline.note(event(number))
    assert len(items(timeline)) == MOST_EVENTS
    assert len(gone) == 51
    assert [item.subject for item in items(timeline)][:2] == ["web-0", "web-51"]


@pytest.mark.req("OP-10")
def test_a_flapping_object_takes_no_place_of_others_of_any_member(timeline):
    for number in range(MOST_EVENTS - 100):
        timeline.note(event(number))
    for number in range(60):
        timeline.note(event(number, Audience("httploadbalancers", "tenant-west")))
    for number in range(3 * MOST_EVENTS):
        flapping = Event(EventKind.HEALTH, "web", f"does not serve: attempt {number}", EAST)
        timeline.note(flapping)
        timeline.note(event(number % 3))
    listed = [item.subject for item in items(timeline)]
    assert len(listed) == MOST_EVENTS
    assert set(listed) == {"web", *(f"web-{number}" for number in range(MOST_EVENTS - 100))}
    assert listed.count("web") == MOST_EVENTS - (MOST_EVENTS - 100) - 60
    # A member with many objects makes room for one with few.
    for number in range(300):
        timeline.note(event(number, Audience("tcploadbalancers", "tenant-south")))
    spaces = Counter(timeline.visible_item(key).namespace for key in timeline.all_keys())
    assert (spaces["tenant-south"], spaces["tenant-west"]) == (300, 60)


def test_names_of_members_and_objects_that_are_gone_are_not_kept(timeline):
    for number in range(3 * MOST_EVENTS):
        timeline.note(event(number, Audience("tcploadbalancers", f"tenant-{number}")))
    assert len(timeline._of) == len(timeline._sizes) == MOST_EVENTS


@pytest.mark.req("OP-10")
def test_proxies_and_leaders_come_and_go(timeline):
    timeline.look(["default/a", "default/b"], "hub-1")
    timeline.look(["default/b"], "hub-2")
    timeline.look(["default/b"], "hub-2")
    said = [(item.subject, item.text) for item in items(timeline)]
    assert said == [
        ("proxy default/a", "connected"),
        ("proxy default/b", "connected"),
        ("hub hub-1", "leads"),
        ("proxy default/a", "disconnected from this hub"),
        ("hub hub-2", "leads"),
    ]
    audiences = {timeline.visible_item(key)[1:] for key in timeline.all_keys()}
    assert audiences == {EVERYBODY, ("tenants", "")}


@pytest.mark.req("OP-10")
async def test_histories_are_part_of_it_also_those_of_an_earlier_process(inventory, clock):
    history = History(now=clock.now)
    history.note(WEB, HistoryKind.FAILED, "failed: the provider refuses port 80")
    await clock.advance(3600)
    later = History(now=clock.now)
    later.load(WEB, history.of(WEB))
    timeline = Timeline(inventory, later, clock=clock, now=clock.now)
    later.note(WEB, HistoryKind.WOKEN, "an endpoint changed")
    later.note(WEB, HistoryKind.APPLIED, "Register 1 (New)")
    said = {(item.text, item.state, item.link) for item in items(timeline)}
    assert said == {
        ("Register 1 (New)", "Serving", str(WEB)),
        ("failed: the provider refuses port 80", "NeedsAttention", str(WEB)),
    }
    assert {timeline.visible_item(key)[1:] for key in timeline.all_keys()} == {EAST}
    assert {item.at for item in items(timeline)} == {
        wire_time(clock.now()), wire_time(clock.now() - timedelta(seconds=3600)),
    }  # fmt: skip


@pytest.mark.req("OP-10")
async def test_objects_say_what_changed_and_how_they_fare():
    server = await server_with_kinds(admin_token=ADMIN)
    await server.start()
    async with Cluster(ClusterConfig(server=server.url, sign_in=bearer(ADMIN)), name="hub") as cluster:
        await cluster.create(NAMESPACES, {"metadata": {"name": "tenant-east"}})
        body = {"metadata": {"namespace": "tenant-east", "name": "old"}, "spec": {"ports": [{"port": 80}]}}
        await cluster.create(TCP_LOAD_BALANCERS, body)
        inventory, clock = Inventory(cluster), SystemClock()
        cache: WatchCache[TCPLoadBalancer] = WatchCache(cluster, TCP_LOAD_BALANCERS, indexes=IntentObjects.indexes())
        inventory.register(
            IntentObjects(cache, TCP_LOAD_BALANCERS, serves=lambda _lb: True, recorded=lambda lb: lb.status.accepted)
        )
        # Times of objects are whole seconds: what was there before is not new.
        started = clock.now() + timedelta(seconds=1)
        timeline = Timeline(inventory, History(now=clock.now), clock=clock, now=lambda: started)
        said: list[str] = []

        def changed(key: Any) -> None:
            if (shown := timeline.visible_item(key)) is not None:
                item: Any = shown.item
                said.append(f"{item.kind} {item.subject}: {item.text}")

        timeline.watch(changed)

        async def until(text: str) -> None:
            async def there() -> bool:
                return text in said

            await wait_until(there, text)

        async with asyncio.TaskGroup() as group:
            task = group.create_task(cache.run())
            await cache.wait_synced(60)
            key = ("tenant-east", "old")
            spec = {"spec": {"ports": [{"port": 81}], "sessionAffinity": "ClientIP"}}
            await cluster.merge_patch(TCP_LOAD_BALANCERS, *key, spec)
            await until("change tenant-east/old: changed: ports, sessionAffinity")
            for value, verb in (("true", "paused"), (None, "resumed")):
                pause = {"metadata": {"annotations": {"fairlead.dev/paused": value}}}
                await cluster.merge_patch(TCP_LOAD_BALANCERS, *key, pause)
                await until(f"change tenant-east/old: {verb}")
            for status, text in (("False", "does not serve: none is healthy"), ("True", "serves")):
                programmed = {"type": "Programmed", "status": "True", "reason": "Programmed"}
                serving = {"type": "Serving", "status": status, "reason": "Why", "message": "none is healthy"}
                body = {"status": {"observedGeneration": 2, "targets": "1/1", "conditions": [programmed, serving]}}
                await cluster.merge_patch(TCP_LOAD_BALANCERS, *key, body, subresource="status")
                await until(f"health tenant-east/old: {text}")
            await cluster.delete(TCP_LOAD_BALANCERS, *key)
            await until("change tenant-east/old: deleted")
            assert not any(line.endswith("created") for line in said)
            task.cancel()
    await server.stop()
