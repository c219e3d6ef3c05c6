"""Drills at a real API: what a hub that dies at any step leaves, what ends them, and those of schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hub_parts import GLOBAL as KEY
from hub_parts import GlobalHub, global_api, show_members

from fairlead.api.drill import DRILL_SCHEDULES, DRILLS
from fairlead.api.globalservice import GLOBAL_SERVICES
from fairlead.api.meta import ObjectKey
from fairlead.api.times import parsed_time
from fairlead.errors import Conflict
from fairlead.kube.cluster import Undecodable
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.model.observed import Counted, MemberSeen, Totals
from fairlead.runtime.clock import VirtualClock

BEGAN = datetime.now(UTC)
ROUTE = Counted(LoadBalancerKey("HTTPLoadBalancer", "tenant-west", "public"), "web")
WEST, EAST = (Counted(KEY, target=TargetKey(f"10.{number}.0.1", 8080)) for number in (1, 2))


class Hub(GlobalHub):
    """One process of a hub, some time after the test began."""

    def __init__(self, cluster, after_s=0.0):
        super().__init__(cluster)
        self.objects, self.drills = self.intent._global_objects.drills, self.intent._drills
        self.after_s = after_s
        self.objects.now = lambda: BEGAN + timedelta(seconds=self.after_s)

    async def read(self):
        present: list[tuple[Any, list[Any]]] = [
            (self.objects.drills, await self.cluster.list(DRILLS)),
            (self.objects.schedules, await self.cluster.list(DRILL_SCHEDULES)),
        ]
        for cache, listing in present:
            for gone in {obj.key for obj in cache.values()} - {obj.key for obj in listing}:
                cache._notify(cache._store.remove(gone), None)
            for obj in listing:
                cache._notify(cache._store.put(obj), obj)
        return await super().read()

    async def pass_s(self, seconds):
        assert isinstance(self.context.clock, VirtualClock)
        await self.context.clock.advance(seconds)

    async def step(self, name="d"):
        await self.read()
        await self.drills.reconcile(name)
        return (await self.cluster.get(DRILLS, "", name)).status

    def localities(self):
        shares = self.desired.spec.shares
        assert shares is not None
        return {locality.name: (locality.tier, locality.dark) for locality in shares.localities}

    def count(self, **connections):
        """Have the proxies report connections of members. None of them failed."""
        whole = sum(connections.values())
        listed = {"west": WEST, "east": EAST}
        by_member = {listed[name]: Totals(connections=number) for name, number in connections.items()}
        self.context.watched.add({Counted(KEY): Totals(connections=whole), **by_member})


def api():
    """Run an API with a GlobalService of two members that serve."""
    return global_api({"tenant": "west"}, {"tenant": "east"}, west="Serving", east="Serving")


async def create(cluster, name="d", **spec):
    await cluster.create(DRILLS, {"metadata": {"name": name}, "spec": {"member": "west", "duration": "60s", **spec}})


SERVING, OUT = {"west": (0, False), "east": (0, False)}, {"west": (1, False), "east": (0, False)}


@pytest.mark.req("MC-25")
@pytest.mark.parametrize("killed", [0, 1, 2, 3])
async def test_a_hub_killed_at_any_step_leads_to_the_same_end(killed):
    times = (0, 31, 92, 123)
    async with api() as cluster:
        await create(cluster)
        seen, hub = [], Hub(cluster)
        for number, after_s in enumerate(times):
            if number == killed:
                hub = Hub(cluster)
            hub.after_s = after_s
            status = await hub.step()
            seen.append((status.state, hub.localities()))
        assert seen == [("Before", SERVING), ("Drilling", OUT), ("After", SERVING), ("Inconclusive", SERVING)]
        version = (await cluster.get(DRILLS, "", "d")).metadata.resource_version
        await Hub(cluster, 500).step()
        assert (await cluster.get(DRILLS, "", "d")).metadata.resource_version == version, "nothing is written again"


@pytest.mark.req("MC-25")
async def test_the_member_serves_at_the_recorded_end_without_any_write():
    async with api() as cluster:
        await create(cluster)
        hub = Hub(cluster)
        await hub.step()
        hub.after_s = 31
        await hub.step()
        assert 55 < (hub.view.due_s or 0) <= 60, "the GlobalService is decided again when the drill ends"
        # Another replica, which may not write, sees the same.
        other = Hub(cluster, 90)
        await other.read()
        assert other.localities() == OUT
        other.after_s = 92
        assert other.localities() == SERVING
        await cluster.delete(DRILLS, "", "d")
        await hub.read()
        assert hub.localities() == SERVING, "a drill that is deleted has ended"


@pytest.mark.req("MC-25")
async def test_a_hub_that_is_behind_does_not_make_a_drill_longer():
    async with api() as cluster:
        await create(cluster)
        behind, hub = Hub(cluster), Hub(cluster)
        await hub.step()
        await behind.read()
        hub.after_s = 31
        started = await hub.step()
        assert parsed_time(started.started_at) == hub.objects.now().replace(microsecond=0)
        behind.after_s = 61
        with pytest.raises(Conflict):
            await behind.drills.reconcile("d")
        assert (await cluster.get(DRILLS, "", "d")).status == started


@pytest.mark.req("MC-25")
@pytest.mark.parametrize(
    ("cache", "name", "text", "refused"),
    [
        ("tenants", "west", "{}", True),
        ("tenants", "east", "{}", False),
        ("tenants", "", "{}", True),
        ("drills", "other", "{}", True),
        ("drills", "other", '{"spec": {"member": 1}, "status": {"state": "Drilling"}}', True),
        ("drills", "other", '{"spec": {"member": 1}, "status": {"state": "Passed"}}', False),
        ("schedules", "weekly", "{}", True),
        ("schedules", "weekly", '{"spec": {"drill": {"member": "west"}, "blockedWindows": 1}}', True),
        ("schedules", "weekly", '{"spec": {"drill": {"member": "east"}, "blockedWindows": 1}}', False),
        # Without a drill, the windows are those of all members.
        ("schedules", "weekly", '{"spec": {"blockedWindows": 1}}', True),
        ("schedules", "weekly", '{"spec": {"drill": {"member": 1}}}', True),
    ],
)
async def test_a_drill_is_refused_while_what_may_forbid_it_cannot_be_read(cache, name, text, refused):
    async with api() as cluster:
        await create(cluster)
        hub = Hub(cluster)
        caches = {
            "tenants": hub.context.inventory.tenants,
            "drills": hub.objects.drills,
            "schedules": hub.objects.schedules,
        }
        caches[cache].broken[ObjectKey("", name)] = Undecodable("spec is broken", text.encode())
        status = await hub.step()
        assert (status.state == "Refused", "spec is broken" in status.message) == (refused, refused)


@pytest.mark.req("MC-25")
async def test_a_drill_is_refused_while_the_watch_of_schedules_fails():
    async with api() as cluster:
        await create(cluster)
        hub = Hub(cluster)
        hub.objects.schedules.problem = "The hub may not watch drillschedules."
        status = await hub.step()
        assert (status.state, "may not watch" in status.message) == ("Refused", True)


@pytest.mark.req("MC-25")
async def test_figures_are_those_of_each_phase_by_member():
    async with api() as cluster:
        await create(cluster)
        hub = Hub(cluster)
        for after_s, before, during in ((0, 1000, 10), (31, 1000, 30), (92, 1000, 50)):
            hub.after_s = after_s
            await hub.step()
            hub.count(west=before)  # on its way while the phase began
            await hub.step()
            hub.count(west=during, east=during)
            await hub.step()
        hub.after_s = 123
        status = await hub.step()
        assert status.state == "Passed"
        (service,) = status.services
        phases = {phase.phase: phase for phase in service.phases}
        assert {name: phase.connections for name, phase in phases.items()} == {
            "Before": 20,
            "Drilling": 60,
            "After": 100,
        }
        by_member = {each.tenant: each.connections for each in phases["Drilling"].members}
        assert by_member == {"west": 30, "east": 30}
        assert hub.context.watched._watched == {}, "nothing is read for a drill that has ended"


@pytest.mark.req("MC-25")
async def test_errors_end_a_drill_as_failed():
    async with api() as cluster:
        await create(cluster, stopOn="failed>1%")
        hub = Hub(cluster)
        await hub.step()
        hub.after_s = 31
        await hub.step()
        for _ in range(2):
            hub.count(east=100)
            assert (await hub.step()).state == "Drilling"
        hub.context.watched.add({Counted(KEY): Totals(connections=50, failed=5)})
        status = await hub.step()
        assert status.state == "After"
        assert "%" in status.message
        assert hub.localities() == SERVING
        hub.after_s = 65
        assert (await hub.step()).state == "Failed"


@pytest.mark.req("MC-25")
@pytest.mark.parametrize(
    ("stop_on", "counted", "refusal"),
    [
        ("failed>1%", {ROUTE: Totals(connections=9, requests=(0, 50, 0, 0, 0))}, "use 5xx>1%"),
        ("5xx>1%", {ROUTE: Totals(requests=(0, 50, 0, 0, 1))}, "answers were 5xx"),
        # A Service without routes over HTTP.
        ("5xx>1%", {Counted(KEY): Totals(connections=50, failed=1)}, "connections failed"),
        ("5xx>1%", {Counted(KEY): Totals(connections=50)}, ""),
        ("failed>1%", {}, ""),
    ],
)
async def test_a_stop_condition_that_fails_or_cannot_be_measured_refuses_a_drill(stop_on, counted, refusal):
    async with api() as cluster:
        await create(cluster, stopOn=stop_on)
        hub = Hub(cluster)
        hub.drills._routes = hub.drills._errors._routes = lambda _key: [ROUTE]
        for reading in ({}, {}, counted):
            assert (await hub.step()).state == "Before"
            hub.context.watched.add(reading)
        hub.after_s = 31
        status = await hub.step()
        assert status.state == ("Refused" if refusal else "Drilling")
        assert refusal in status.message
        assert ("spec.stopOn" in status.message) == bool(refusal)


@pytest.mark.req("MC-25")
async def test_a_drill_ends_when_no_other_member_can_serve():
    async with api() as cluster:
        await create(cluster)
        hub = Hub(cluster)
        await hub.step()
        hub.after_s = 31
        await hub.step()
        await show_members(cluster, west="Drilled", east="Down")
        status = await hub.step()
        assert status.state == "After"
        assert "no member other than west" in status.message


@pytest.mark.req("MC-25")
async def test_errors_that_stay_unknown_end_a_drill_that_depends_on_them():
    async with api() as cluster:
        await create(cluster, stopOn="failed>1%")
        hub = Hub(cluster)
        await hub.step()
        hub.after_s = 31
        await hub.step()
        hub.context.watched.problem = lambda: "proxy p1 does not answer"
        assert (await hub.step()).state == "Drilling"
        await hub.pass_s(31)
        status = await hub.step()
        assert status.state == "After"
        assert "p1" in status.message


@pytest.mark.req("MC-25")
async def test_a_second_drill_is_refused_while_one_is_under_way():
    async with api() as cluster:
        await create(cluster)
        hub = Hub(cluster)
        await hub.step()
        await create(cluster, "second", member="east")
        status = await hub.step("second")
        assert status.state == "Refused"
        assert "drill d" in status.message


@pytest.mark.req("MC-25")
async def test_a_dark_member_is_down_for_its_proxies_and_returns_with_care():
    async with api() as cluster:
        await create(cluster, mode="Dark")
        hub = Hub(cluster)
        healthy = {name: MemberSeen(name, 1, 1, 0, 1) for name in ("west", "east")}
        obj = await cluster.get(GLOBAL_SERVICES, KEY.namespace, KEY.name)
        await hub.step()
        hub.after_s = 31
        await hub.step()
        hub.intent._global_views.judge(obj, healthy)
        assert hub.localities() == {"west": (1, True), "east": (0, False)}
        assert hub.view.returning["west"].part == 0
        hub.after_s = 92
        assert (await hub.step()).state == "After"
        hub.intent._global_views.judge(obj, healthy)
        assert hub.localities() == OUT, "healthy for less than returnDelay"
        await hub.pass_s(16)
        hub.intent._global_views.judge(obj, healthy)
        assert hub.localities() == SERVING


@pytest.mark.req("MC-26")
async def test_a_schedule_begins_one_drill_however_many_hubs_see_it():
    async with api() as cluster:
        drill = {"member": "west", "duration": "10s"}
        spec = {"schedule": "* * * * *", "drill": drill, "historyLimit": 1}
        await cluster.create(DRILL_SCHEDULES, {"metadata": {"name": "often"}, "spec": spec})
        first, second = Hub(cluster, 3600), Hub(cluster, 3600)
        for hub in (first, second):
            await hub.read()
        for hub in (first, second):
            assert await hub.drills.begin_scheduled("often")
        (made,) = await cluster.list(DRILLS)
        assert (made.spec.member, made.spec.duration) == ("west", "10s")
        status = (await cluster.get(DRILL_SCHEDULES, "", "often")).status
        assert status.last_drill == made.metadata.name
        assert status.last_schedule_time < status.next_schedule_time
        # Later ones take its place in the history.
        for after_s in (3660, 3720):
            hub = Hub(cluster, after_s)
            for obj in await cluster.list(DRILLS):
                patch = {"status": {"state": "Passed"}}
                await cluster.merge_patch(DRILLS, "", obj.metadata.name, patch, subresource="status", manager="t")
            await hub.read()
            await hub.drills.begin_scheduled("often")
        names = [obj.metadata.name for obj in await cluster.list(DRILLS)]
        assert len(names) == 2
        assert made.metadata.name not in names


@pytest.mark.req("MC-26")
async def test_a_schedule_that_says_no_time_shows_why_and_begins_nothing():
    async with api() as cluster:
        spec = {"schedule": "99 * * * *", "drill": {"member": "west"}}
        await cluster.create(DRILL_SCHEDULES, {"metadata": {"name": "wrong"}, "spec": spec})
        hub = Hub(cluster, 60)
        await hub.read()
        assert await hub.drills.begin_scheduled("wrong") is None
        assert "spec.schedule" in (await cluster.get(DRILL_SCHEDULES, "", "wrong")).status.message
        assert await cluster.list(DRILLS) == []
