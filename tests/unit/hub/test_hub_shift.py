"""Shifts of weights at a real API: what is on record before it is in force, and what a hub that dies leaves."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hub_parts import GLOBAL as KEY
from hub_parts import GlobalHub, apply_global, global_api, show_members

from fairlead.api.globalservice import GLOBAL_SERVICES
from fairlead.model.contract import AllocationKind
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.model.observed import Counted, Totals
from fairlead.providers.memory import MemoryProvider
from fairlead.runtime.clock import VirtualClock, settle
from fairlead.testing.builders import endpoint_slice
from fairlead.translate.shift import is_unapplied


class Hub(GlobalHub):
    """A hub whose proxies have applied all weights, unless ``unapplied`` says why not."""

    unapplied = ""

    def __init__(self, cluster):
        super().__init__(cluster)
        self.intent._shifts._unapplied = self._why_unapplied

    async def _why_unapplied(self, _key):
        return self.unapplied

    def weights(self):
        shares = self.desired.spec.shares
        assert shares is not None
        return {locality.name: locality.weight for locality in shares.localities}

    async def step(self):
        await self.read()
        await self.intent._shifts.step(KEY)
        if is_unapplied((await self.read()).status.shift):
            await self.intent._shifts.step(KEY)
        return (await self.read()).status.shift


def api(west, east):
    return global_api(*weighted(west, east), west="Serving", east="Standby")


def weighted(west, east):
    return {"tenant": "west", "weight": west}, {"tenant": "east", "weight": east}


async def apply(cluster, west, east, **shift):
    await apply_global(cluster, *weighted(west, east), **({"shift": shift} if shift else {}))


@pytest.mark.req("MC-14")
async def test_a_shift_goes_on_with_another_hub_after_every_step():
    async with api(100, 0) as cluster:
        await apply(cluster, 10, 90, step=30, every="1m")
        first = Hub(cluster)
        await first.reconcile()
        assert first.weights() == {"west": 1000, "east": 0}, "nothing moves before the first step is on record"
        seen = []
        for number in range(4):
            hub = Hub(cluster)
            assert isinstance(hub.context.clock, VirtualClock)
            await hub.context.clock.advance(60.0 * number)
            shift = await hub.step()
            seen.append((shift.state, shift.moved, hub.weights()["east"]))
            assert await hub.step() == shift, "its time has not come"
        assert seen[:3] == [("Shifting", 30, 300), ("Shifting", 60, 600), ("Done", 90, 90)]
        assert seen[3] == seen[2]


@pytest.mark.req("MC-14")
async def test_a_hub_that_dies_before_the_spec_is_on_record_moves_nothing():
    async with api(100, 0) as cluster:
        await apply(cluster, 0, 100, step=50)
        hub = Hub(cluster)
        obj = await hub.read()
        await hub.intent._shifts.begin(obj)
        other = Hub(cluster)
        obj = await other.reconcile()
        assert [member.weight for member in obj.status.accepted.members] == [0, 100]
        assert other.weights() == {"west": 1000, "east": 0}
        # Without spec.shift, the weights are in force at once.
        await cluster.merge_patch(GLOBAL_SERVICES, KEY.namespace, KEY.name, {"spec": {"shift": None}}, manager="u")
        obj = await other.reconcile()
        assert not obj.status.shift.members
        version = obj.metadata.resource_version
        assert (await other.reconcile()).metadata.resource_version == version, "nothing is written again"
        assert other.weights() == {"west": 0, "east": 100}


@pytest.mark.req("MC-14")
async def test_failed_connections_since_the_last_step_stop_it():
    async with api(100, 0) as cluster:
        await apply(cluster, 0, 100, step=20, every="1m", stopOn="failed>1%")
        hub = Hub(cluster)
        await hub.reconcile()
        watched, failing = hub.context.watched, {Counted(KEY): Totals(connections=100, failed=50)}
        assert (await hub.step()).moved == 0, "errors are not known yet"
        watched.add(failing)  # from before it was watched
        await hub.step()
        assert (await hub.step()).moved == 20
        await hub.step()
        watched.add({Counted(KEY): Totals(connections=1000, failed=10)})
        assert (await hub.step()).state == "Shifting"
        watched.add({Counted(KEY): Totals(connections=100, failed=5)})
        shift = await hub.step()
        assert (shift.state, shift.moved) == ("Stopped", 0)
        assert "1.4 %" in shift.message
        assert hub.weights() == {"west": 1000, "east": 0}


async def counted_steps(hub, *counts):
    """Return the shift after the first two readings of proxies, and then after each of ``counts``."""
    await hub.reconcile()
    await hub.step()
    hub.context.watched.add({})
    await hub.step()
    shifts = []
    for counted in counts:
        hub.context.watched.add(counted)
        shifts.append(await hub.step())
    return shifts


@pytest.mark.req("MC-14")
async def test_errors_of_a_service_with_few_clients_stop_it_after_some_steps():
    async with api(100, 0) as cluster:
        await apply(cluster, 0, 100, step=20, every="1m", stopOn="failed>1%")
        hub, all_failed = Hub(cluster), {Counted(KEY): Totals(connections=9, failed=9)}
        (first,) = await counted_steps(hub, all_failed)
        assert first.moved == 20, "errors from before the first step are not its own"
        assert isinstance(hub.context.clock, VirtualClock)
        moved = []
        for _ in range(4):
            await hub.step()
            hub.context.watched.add(all_failed)
            await hub.context.clock.advance(60)
            shift = await hub.step()
            moved.append((shift.state, shift.moved))
        assert moved[:3] == [("Shifting", 40), ("Shifting", 60), ("Stopped", 0)], "before all steps that were judged"


@pytest.mark.req("MC-14")
async def test_a_step_that_proxies_lack_is_not_judged_and_no_hub_advances():
    async with api(100, 0) as cluster:
        await apply(cluster, 0, 100, step=20, every="5s", stopOn="failed>1%")
        bad = {Counted(KEY): Totals(connections=100, failed=50)}
        hub = other = Hub(cluster)
        (first,) = await counted_steps(hub, {})
        assert (first.moved, bool(first.stepped_at)) == (20, True)
        assert isinstance(hub.context.clock, VirtualClock)
        hub.unapplied = "1 of 2 proxies have it"
        hub.context.watched.add({Counted(KEY): Totals(connections=100)})
        await hub.context.clock.advance(5)
        waiting = await hub.step()
        assert (waiting.moved, waiting.stepped_at) == (20, first.stepped_at), "a proxy that connects may lack a step"
        assert hub.unapplied in waiting.message
        hub.unapplied = ""
        await hub.intent._shifts.step(KEY)
        hub.unapplied = "1 of 2 proxies have it"
        second = (await hub.read()).status.shift
        assert (second.moved, second.stepped_at) == (40, "")
        for other in (hub, Hub(cluster)):
            other.unapplied = hub.unapplied
            assert isinstance(other.context.clock, VirtualClock)
            for _ in range(3):
                await other.context.clock.advance(60)
                second = await other.step()
            assert (second.state, second.moved, second.stepped_at) == ("Shifting", 40, "")
            assert hub.unapplied in second.message

        async def read():
            # The last errors of the step before, which proxies have counted until they got the weights.
            other.context.watched.add(bad)

        other.context.watched.read, other.unapplied = read, ""
        third = await other.step()
        assert (third.state, third.moved, third.message) == ("Shifting", 40, "")
        assert third.stepped_at
        other.context.watched.add({Counted(KEY): Totals(connections=100)})
        await other.context.clock.advance(5)
        assert (await other.step()).moved == 60
        other.context.watched.add(bad)
        stopped = await other.step()
        assert (stopped.state, stopped.moved) == ("Stopped", 40)


@pytest.mark.req("MC-14")
@pytest.mark.parametrize("localities", [True, False])
async def test_weights_are_applied_once_all_connected_proxies_have_acknowledged_them(localities):
    class Provider(MemoryProvider):
        acknowledged = proxies = 2

        @property
        def capabilities(self):
            given = msgspec.structs.replace(super().capabilities, allocation=AllocationKind.ADDRESS)
            return msgspec.structs.replace(given, localities=localities)

        async def observe(self, key):
            seen = await super().observe(key)
            assert seen is not None
            programmed = 0 < self.proxies == self.acknowledged
            counts = {"programmed": programmed, "proxies": self.proxies, "acknowledged": self.acknowledged}
            return msgspec.structs.replace(seen, **counts)

    async with api(100, 0) as cluster:
        await apply(cluster, 0, 100, step=20, every="1m")
        provider = Provider()
        hub = GlobalHub(cluster, served={"memory": provider})
        assert isinstance(hub.context.clock, VirtualClock)
        runner = hub.context.providers.served["memory"]

        async def step():
            await hub.read()
            await hub.intent._shifts.step(KEY)
            return (await hub.read()).status.shift

        async def put():
            runner.tracker.put(hub.desired)
            runner.worker.trigger()
            await settle()

        await hub.reconcile()
        patch = {"status": {"provisioned": [{"provider": "memory", "serving": True}]}}
        await cluster.merge_patch(
            GLOBAL_SERVICES, KEY.namespace, KEY.name, patch, subresource="status", manager="fairlead-hub"
        )
        working = asyncio.create_task(runner.worker.run())
        try:
            assert (await step()).moved == 0, "the provider has not got the load balancer"
            await put()
            assert (await step()).moved == 20
            waiting = await step()
            assert not waiting.stepped_at, "the provider has the weights before"
            assert "provider" in waiting.message
            provider.acknowledged = 1
            await put()
            assert "1 of 2" in (await step()).message
            provider.acknowledged = provider.proxies = 0
            assert "no proxy is connected" in (await step()).message
            provider.acknowledged = provider.proxies = 1
            applied = await step()
            assert (applied.moved, applied.message) == (20, "")
            assert applied.stepped_at, "a proxy that left holds nothing back"
        finally:
            working.cancel()


@pytest.mark.req("MC-14")
async def test_5xx_counts_failed_connections_where_nothing_speaks_http():
    async with api(100, 0) as cluster:
        await apply(cluster, 0, 100, step=20, every="1m", stopOn="5xx>1%")
        good, bad = Totals(connections=100), Totals(connections=100, failed=5)
        hub = Hub(cluster)
        # The first count after a step is the base of those that follow.
        first, _, second = await counted_steps(hub, *({Counted(KEY): part} for part in (good, good, bad)))
        assert first.moved == 20
        assert (second.state, second.moved) == ("Stopped", 0)
        assert "connections failed" in second.message


@pytest.mark.req("MC-14")
async def test_a_condition_on_connections_moves_nothing_while_clients_only_send_requests():
    async with api(100, 0) as cluster:
        await apply(cluster, 0, 100, step=20, every="1m", stopOn="failed>1%")
        hub, route = Hub(cluster), Counted(LoadBalancerKey("HTTPLoadBalancer", "tenant-west", "public"), "web")
        hub.intent._shifts._errors._routes = lambda _key: [route]
        requests = {route: Totals(connections=40, requests=(0, 100, 0, 0, 0))}
        (shift,) = await counted_steps(hub, requests)
        assert (shift.state, shift.moved) == ("Shifting", 0)
        assert "spec.shift.stopOn" in shift.message
        assert "use 5xx>1%" in shift.message
        # Connections of TCPRoutes, and of the load balancer, count.
        hub.context.watched.add({Counted(KEY): Totals(connections=100)})
        assert (await hub.step()).moved == 20


@pytest.mark.req("MC-14")
async def test_a_class_that_counts_no_failed_connections_needs_a_route_over_http():
    async with api(100, 0) as cluster:
        await apply(cluster, 0, 100, step=20, every="1m", stopOn="5xx>1%")
        hub = Hub(cluster)
        known = hub.context.providers.capabilities
        for name, capabilities in known.items():
            known[name] = msgspec.structs.replace(capabilities, localities=False)
        (shift,) = await counted_steps(hub, {})
        assert (shift.state, shift.moved) == ("Shifting", 0)
        assert "no route" in shift.message


@pytest.mark.req("MC-14")
async def test_no_step_is_taken_while_a_proxy_does_not_report_errors():
    async with api(100, 0) as cluster:
        await apply(cluster, 0, 100, step=20, every="1m", stopOn="failed>1%")
        hub = Hub(cluster)
        await hub.reconcile()
        watched = hub.context.watched
        watched.problem = lambda: "proxy p1 does not answer"
        for _ in range(3):
            await hub.step()
            # A reading of all proxies that has nothing of this one.
            watched.add({})
        shift = await hub.step()
        assert (shift.state, shift.moved) == ("Shifting", 0)
        assert "p1" in shift.message
        watched.problem = lambda: ""
        assert (await hub.step()).moved == 20
        await hub.step()
        # Errors that the others report count meanwhile.
        watched.problem = lambda: "proxy p1 does not answer"
        watched.add({Counted(KEY): Totals(connections=100, failed=5)})
        assert (await hub.step()).state == "Stopped"


@pytest.mark.req("MC-14")
async def test_errors_of_a_route_that_is_deleted_after_a_step_count():
    async with api(100, 0) as cluster:
        await apply(cluster, 0, 100, step=20, every="1m", stopOn="5xx>1%")
        hub = Hub(cluster)
        await hub.reconcile()
        watched, lb = hub.context.watched, LoadBalancerKey("HTTPLoadBalancer", "tenant-west", "public")
        routes = [Counted(lb, "old"), Counted(lb, "new")]
        hub.intent._shifts._errors._routes = lambda _key: routes
        await hub.step()
        watched.add({})
        await hub.step()
        watched.add({routes[0]: Totals(requests=(0, 900, 0, 0, 0))})
        assert (await hub.step()).moved == 20
        await hub.step()
        watched.add({routes[0]: Totals(requests=(0, 0, 0, 0, 50))})
        del routes[0]
        watched.add({routes[0]: Totals(requests=(0, 100, 0, 0, 0))})
        shift = await hub.step()
        assert (shift.state, shift.moved) == ("Stopped", 0)
        assert "of 150" in shift.message


@pytest.mark.req("MC-14")
async def test_a_shift_waits_until_the_status_has_a_new_member():
    async with api(100, 0) as cluster:
        await apply(cluster, 0, 100, step=20, every="1m")
        await show_members(cluster, west="Serving")
        hub = Hub(cluster)
        await hub.reconcile()
        assert (await hub.step()).moved == 0
        await show_members(cluster, west="Serving", east="Standby")
        assert (await hub.step()).moved == 20


@pytest.mark.req("MC-13")
async def test_the_connections_of_a_drained_member_are_counted_until_it_leaves():
    async with api(50, 50) as cluster:
        members = [{"tenant": "west", "drain": True}, {"tenant": "east"}]
        patch = {"spec": {"members": members}}
        await cluster.merge_patch(GLOBAL_SERVICES, KEY.namespace, KEY.name, patch, manager="operator")
        hub = Hub(cluster)
        await hub.reconcile()
        watched, west = hub.context.watched, Counted(KEY, target=TargetKey("10.1.0.1", 8080))
        watched.active = lambda counted: 3 if counted == west else 9
        assert await hub.intent._count(KEY)
        assert hub.intent._open == {}, "nothing has been read yet"
        watched.add({})
        assert await hub.intent._count(KEY)
        assert hub.intent._open == {KEY: {"west": 3}}
        watched.problem = lambda: "proxy p1 does not answer"
        assert await hub.intent._count(KEY)
        assert hub.intent._open == {KEY: {}}, "connections at that proxy are unknown"
        watched.problem = lambda: ""
        assert await hub.intent._count(KEY)
        assert hub.intent._open == {KEY: {"west": 3}}
        # What is read one by one is only what is watched now.
        pods = endpoint_slice("west", ["10.1.0.2"], namespace="tenant-west", load_balancer="shop.web")
        hub.context.inventory.slices._store.put(pods)
        await hub.reconcile()
        await hub.intent._count(KEY)
        assert {subject.target.address for subject in watched._sums} == {"10.1.0.2"}
        hub.context.inventory.slices._store.remove(pods.key)
        await hub.reconcile()
        assert await hub.intent._count(KEY) is None
        assert (hub.intent._open, watched.with_targets()) == ({}, set()), "connections without an endpoint are unknown"
        hub.context.inventory.slices._store.put(pods)
        await hub.reconcile()
        assert await hub.intent._count(KEY)
        patch = {"spec": {"members": [{"tenant": "east"}]}}
        await cluster.merge_patch(GLOBAL_SERVICES, KEY.namespace, KEY.name, patch, manager="operator")
        await hub.reconcile()
        assert await hub.intent._count(KEY) is None
        assert hub.intent._open == {}
