"""One Service over two members: real agents, a real hub and Envoy, real connections and requests."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Any, NamedTuple

import pytest

from fairlead.api.drill import DRILLS
from fairlead.api.globalservice import GLOBAL_SERVICES, GlobalService
from fairlead.api.kubernetes import INGRESSES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject, Resource
from fairlead.api.tenant import TENANTS
from fairlead.api.times import parsed_time
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import run_fairlead, wait_until
from fairlead_demo.worlds.traffic import Traffic
from fairlead_demo.worlds.web import ingress_address, put
from tests.e2e.e2e_backends import ask, echoes, http, ready, refused
from tests.e2e.e2e_http import HttpClient, answers
from tests.e2e.e2e_own import own_class

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.envoy, pytest.mark.timeout(900)]


def body(name: str, *members: JSONObject, **spec: object) -> JSONObject:
    """Return a GlobalService in the namespace of east."""
    meta = {"name": name, "namespace": "tenant-east"}
    return {"metadata": meta, "spec": {"service": f"default/{name}", "members": list(members), **spec}}


async def served(fleet: Fleet, name: str, shares: str) -> GlobalService:
    """Return the GlobalService once it serves with these shares."""

    async def so() -> bool:
        status = (await fleet.cluster.get(GLOBAL_SERVICES, "tenant-east", name)).status
        serving = any(each.type == "Serving" and each.status == "True" for each in status.conditions or ())
        return serving and status.shares == shares

    await wait_until(so, f"GlobalService {name} serves {shares}")
    return await fleet.cluster.get(GLOBAL_SERVICES, "tenant-east", name)


async def counted(address: str, connections: int = 100) -> Counter[str]:
    """Return how many of so many connections each backend answered; one that none answers counts as ""."""
    answered: Counter[str] = Counter()
    for _ in range(connections // 20):
        names = await asyncio.gather(*(ask(address, 80) for _ in range(20)), return_exceptions=True)
        answered.update("" if isinstance(name, BaseException) else name for name in names)
    return answered


async def shared(address: str, **percent: int) -> None:
    """Wait until 100 connections are divided like this, give or take two: the proxy follows the object."""

    async def so() -> bool:
        answered = await counted(address)
        return answered.keys() == percent.keys() and all(abs(answered[name] - percent[name]) <= 2 for name in percent)

    await wait_until(so, f"connections are divided like {percent}")


@pytest.mark.req("MC-17")
async def test_proxies_prefer_the_members_of_their_region(fleet: Fleet) -> None:
    """The same object has other tiers once the region of its class is another one, as at a hub elsewhere."""
    east, west = fleet.members["east"], fleet.members["west"]
    pod, node = east.new_address(), west.new_address()
    port = (await west.service("near", http(80, 5678))).spec.ports[0].node_port
    assert port

    async def write(resource: Resource[Any], name: str, **spec: object) -> None:
        await fleet.cluster.apply(resource, {"metadata": {"name": name}, "spec": spec}, manager="operator")

    async def served_by(shares: str, name: str) -> None:
        address = (await served(fleet, "near", shares)).status.address
        await wait_until(lambda: all_answer(address, name), f"{name} answers all connections")

    async with echoes((pod, 5678, "east"), (node, port, "west")) as (at_east, _):
        await west.node("near-node", node)
        await east.endpoints("near", 5678, pod)
        await east.service("near", http(80, 5678))
        for name in ("east", "west"):
            await write(TENANTS, name, region=f"region-{name}")
        await write(LOAD_BALANCER_CLASSES, "near", provider="envoy", region="region-east")
        members: list[JSONObject] = [{"tenant": "east", "weight": 10}, {"tenant": "west", "weight": 90}]
        nearest = body("near", *members, className="near", trafficDistribution="PreferSameRegion")
        await fleet.cluster.apply(GLOBAL_SERVICES, nearest, manager="operator")
        await served_by("east 100%, west standby", "east")
        await write(LOAD_BALANCER_CLASSES, "near", provider="envoy", region="region-west")
        await served_by("east standby, west 100%", "west")
        await write(LOAD_BALANCER_CLASSES, "near", provider="envoy", region="region-east")
        await served_by("east 100%, west standby", "east")
        await at_east.stop()
        await served_by("east down, west 100%", "west")
        await fleet.cluster.delete(GLOBAL_SERVICES, "tenant-east", "near")
    for name in ("east", "west"):
        await write(TENANTS, name)
    for member in (east, west):
        await member.delete("near")
        await fleet.gone(member.name, "default.near")


async def all_answer(address: str, name: str) -> bool:
    return await answers_of(address, {name})


async def answers_of(address: str, names: set[str]) -> bool:
    return set(await counted(address, 20)) == names


@pytest.mark.req("K-56", "MC-9", "MC-10", "MC-12", "MC-13")
async def test_two_members_share_one_address_by_weight(fleet: Fleet) -> None:
    east, west = fleet.members["east"], fleet.members["west"]
    pods, node = [east.new_address() for _ in range(3)], west.new_address()
    service = await west.service("shared", http(80, 5678))
    port = service.spec.ports[0].node_port
    assert port

    async def apply(*members: JSONObject) -> None:
        await fleet.cluster.apply(GLOBAL_SERVICES, body("shared", *members), manager="operator")

    two, weighted = [{"tenant": "east", "weight": 75}, {"tenant": "west", "weight": 25}], "east 75%, west 25%"
    async with echoes((pods[0], 5678, "east"), (node, port, "west")):
        await west.node("shared-node", node)
        await east.endpoints("shared", 5678, *pods)
        async with echoes(*((pod, 5678, "east") for pod in pods[1:])):
            await east.service("shared", http(80, 5678))
            single = Traffic(host=await ready(east, "shared", 80), kept=0)
            single.start()
            await apply(*two)
            address = (await served(fleet, "shared", weighted)).status.address
            await shared(address, east=75, west=25)
            # From now on under load, until the GlobalService is deleted.
            both = Traffic(host=address, kept=0)
            both.start()
            await apply({**two[0], "drain": True}, two[1])
            await served(fleet, "shared", "east draining, west 100%")
            await wait_until(lambda: all_answer(address, "west"), "the member that is not drained answers alone")

            async def shown() -> bool:
                members = (await fleet.cluster.get(GLOBAL_SERVICES, "tenant-east", "shared")).status.members or ()
                return any(member.message.endswith("; 0 connections open") for member in members)

            await wait_until(shown, "the connections that east still has are shown")
            # Of no use to clients: the last good version stays.
            await apply({**two[0], "weight": 0}, {**two[1], "weight": 0})
            assert await counted(address, 20) == Counter(west=20)
            await apply({**two[0], "minHealthyPercent": 50}, two[1])
            await served(fleet, "shared", weighted)
            await both.stop()
            await single.stop()
        # Two of three pods of east are dead: all of east is down, and not only these two.
        await served(fleet, "shared", "east down, west 100%")
        await wait_until(lambda: all_answer(address, "west"), "the member that is not down answers alone")
        await apply(*two)
        await served(fleet, "shared", weighted)
        again = Traffic(host=await east.address("shared"), kept=0)
        again.start()
        await fleet.cluster.delete(GLOBAL_SERVICES, "tenant-east", "shared")
        await wait_until(lambda: refused(address, 80), "nobody listens at the address of the GlobalService")
        await again.stop()
    for traffic in (single, both, again):
        assert traffic.count.failed == 0, traffic.count.failures
        assert traffic.count.sent > 0
    for member in (east, west):
        await member.delete("shared")
        await fleet.gone(member.name, "default.shared")


async def ingress(member: Member, of_class: str, name: str) -> None:
    """Write an Ingress of a class of its own to the Service of this name."""
    await own_class(member, of_class)
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": name, "port": {"number": 80}}}}
    rules = [{"host": "shop.example.com", "http": {"paths": [path]}}]
    await put(member, INGRESSES, name, {"ingressClassName": of_class, "rules": rules})


async def requested(address: str, requests: int = 100) -> Counter[str]:
    """Return how many of so many requests each backend answered; another answer counts as its status."""
    client, answered = HttpClient(address), Counter[str]()
    for _ in range(requests // 20):
        answers = await asyncio.gather(*(client.get("shop.example.com") for _ in range(20)))
        answered.update(body if status == 200 else str(status) for status, body in answers)
    return answered


@pytest.mark.req("K-55", "MC-9", "MC-10", "MC-11", "MC-13")
async def test_requests_of_a_route_go_to_all_members_of_its_service(fleet: Fleet) -> None:
    east, west = fleet.members["east"], fleet.members["west"]
    pod, node = east.new_address(), west.new_address()
    in_west = (await west.service("routed", http(80, 5678))).spec.ports[0].node_port
    assert in_west
    await ingress(east, "of-members", "routed")

    async def apply(*members: JSONObject) -> None:
        await fleet.cluster.apply(GLOBAL_SERVICES, body("routed", *members), manager="operator")

    async with echoes((pod, 5678, "east"), (node, in_west, "west")) as (at_east, _):
        await west.node("routed-node", node)
        await east.endpoints("routed", 5678, pod)
        await east.service("routed", http(80, 5678))
        address = await ingress_address(east, "routed")
        await answers(lambda: HttpClient(address).get("shop.example.com"), (200, "east"))
        load = Traffic(host=address, authority="shop.example.com", kept=2)
        load.start()
        await apply({"tenant": "east", "weight": 75}, {"tenant": "west", "weight": 25})
        await served(fleet, "routed", "east 75%, west 25%")
        await wait_until(lambda: answered_by(address, "west"), "west answers requests of a route of east")
        counts = await requested(address)
        assert counts.keys() == {"east", "west"}
        assert abs(counts["east"] - 75) <= 3
        await apply({"tenant": "east"}, {"tenant": "west", "priority": 1})
        await served(fleet, "routed", "east 100%, west standby")
        await wait_until(lambda: only(address, "east"), "the first priority serves alone")
        # Nothing has seen it yet: what is refused is tried at the other member.
        await at_east.stop()
        assert await requested(address) == Counter(west=100)
        await at_east.start()
        await wait_until(lambda: only(address, "east"), "the first priority serves again")
        await apply({"tenant": "east", "drain": True}, {"tenant": "west", "priority": 1})
        await wait_until(lambda: only(address, "west"), "the member that is not drained serves")
        await apply({"tenant": "east"}, {"tenant": "west", "priority": 1})
        await wait_until(lambda: only(address, "east"), "the member serves again")
        await fleet.cluster.delete(GLOBAL_SERVICES, "tenant-east", "routed")
        await wait_until(lambda: only(address, "east"), "the Service is single again")
        await load.stop()
    assert load.count.failed == 0, load.count.failures
    assert set(load.count.by_pod) == {"east", "west"}
    await east.cluster.delete(INGRESSES, "default", "routed")
    for member in (east, west):
        await member.delete("routed")
        await fleet.gone(member.name, "default.routed")


async def listening(address: str) -> bool:
    return not await refused(address, 80)


async def answered_by(address: str, name: str) -> bool:
    return name in await requested(address, 20)


async def only(address: str, name: str) -> bool:
    return set(await requested(address, 20)) == {name}


@pytest.mark.req("MC-15", "MC-18", "MC-19")
async def test_members_with_killed_agents_are_served_from_the_record_by_health(fleet: Fleet) -> None:
    east, west = fleet.members["east"], fleet.members["west"]
    pod, node = east.new_address(), west.new_address()
    in_west = (await west.service("dark", http(80, 5678))).spec.ports[0].node_port
    assert in_west
    both = "east 50%, west 50%"

    async def silent() -> set[str]:
        status = (await fleet.cluster.get(GLOBAL_SERVICES, "tenant-east", "dark")).status
        return {member.tenant for member in status.members or () if member.silent_since}

    async def returning() -> bool:
        return "returning" in (await fleet.cluster.get(GLOBAL_SERVICES, "tenant-east", "dark")).status.shares

    async def all_silent() -> bool:
        # A hub that has just started trusts the Tenants, which are written after what depends on them.
        tenants = [await fleet.cluster.get(TENANTS, "", member.name) for member in (east, west)]
        return await silent() == {"east", "west"} and all(tenant.status.state == "Stale" for tenant in tenants)

    async def none_silent() -> bool:
        return not await silent()

    async with echoes((pod, 5678, "east"), (node, in_west, "west")) as (_, at_west):
        await west.node("dark-node", node)
        await east.endpoints("dark", 5678, pod)
        await east.service("dark", http(80, 5678))
        await ready(east, "dark", 80)
        await fleet.cluster.apply(
            GLOBAL_SERVICES,
            body("dark", {"tenant": "east"}, {"tenant": "west"}, returnDelay="2s", returnRamp="15s"),
            manager="operator",
        )
        address = (await served(fleet, "dark", both)).status.address
        load = Traffic(host=address, kept=1)
        load.start()
        for member in (east, west):
            await member.agent.kill()
        await wait_until(all_silent, "both agents are silent")
        await served(fleet, "dark", both)
        await load.stop()
        assert load.count.failed == 0, load.count.failures
        assert set(load.count.by_pod) == {"east", "west"}
        # Whatever the new hub and the new Envoy serve is from the record.
        await fleet.hub.close()
        await fleet.hub.start_ready()
        await wait_until(lambda: listening(address), "the new Envoy listens")
        await served(fleet, "dark", both)
        assert await all_silent()
        await wait_until(lambda: answers_of(address, {"east", "west"}), "the new Envoy serves both members")
        await at_west.stop()
        await served(fleet, "dark", "east 100%, west down")
        await wait_until(lambda: all_answer(address, "east"), "the member that is not down answers alone")
        await at_west.start()
        await wait_until(returning, "west returns with a part of its share")
        await served(fleet, "dark", both)
        for member in (east, west):
            await member.agent.start()
        await wait_until(none_silent, "both agents report again")
    await fleet.cluster.delete(GLOBAL_SERVICES, "tenant-east", "dark")
    for member in (east, west):
        await member.delete("dark")
        await fleet.gone(member.name, "default.dark")


@pytest.mark.req("MC-14")
async def test_a_shift_survives_the_death_of_the_hub_and_cuts_nothing(fleet: Fleet) -> None:
    east, west = fleet.members["east"], fleet.members["west"]
    pod, node = east.new_address(), west.new_address()
    port = (await west.service("moved", http(80, 5678))).spec.ports[0].node_port
    assert port
    async with echoes((pod, 5678, "east"), (node, port, "west")):
        await west.node("moved-node", node)
        await east.endpoints("moved", 5678, pod)
        await east.service("moved", http(80, 5678))
        members = [{"tenant": "east", "weight": 100}, {"tenant": "west", "weight": 0}]
        await fleet.cluster.apply(GLOBAL_SERVICES, body("moved", *members), manager="operator")
        address = (await served(fleet, "moved", "east 100%, west standby")).status.address
        load = Traffic(host=address, kept=0)
        load.start()
        hub = ("--kubeconfig", str(fleet.kubeconfig), "--output", "json")
        how = ("--step", "30", "--every", "3s", "--stop-on", "failed>5%")
        code, _, problem = await run_fairlead("shift", "default/moved", "east=10", "west=90", *how, *hub)
        assert code == 0, problem

        async def moving() -> bool:
            return bool((await fleet.cluster.get(GLOBAL_SERVICES, "tenant-east", "moved")).status.shift.moved)

        await wait_until(moving, "the first step is taken")
        await fleet.hub.kill()
        before = (await fleet.cluster.get(GLOBAL_SERVICES, "tenant-east", "moved")).status.shift
        assert before.state == "Shifting"
        _, out, _ = await run_fairlead(
            "explain", "gsvc/moved", "-n", "tenant-east", "--kubeconfig", str(fleet.kubeconfig)
        )
        assert f"{before.moved} of 90 % moved" in out
        assert await counted(address, 20)
        await fleet.hub.start_ready()
        await served(fleet, "moved", "east 10%, west 90%")
        await shared(address, east=10, west=90)
        await load.stop()
    assert load.count.failed == 0, load.count.failures
    await fleet.cluster.delete(GLOBAL_SERVICES, "tenant-east", "moved")
    for member in (east, west):
        await member.delete("moved")
        await fleet.gone(member.name, "default.moved")


@pytest.mark.req("MC-14")
async def test_a_shift_goes_back_and_stops_on_errors_of_routes(fleet: Fleet) -> None:
    east, west = fleet.members["east"], fleet.members["west"]
    pod, node = east.new_address(), west.new_address()
    port = (await west.service("failing", http(80, 5678))).spec.ports[0].node_port
    assert port
    await ingress(east, "of-shift", "failing")
    async with echoes((pod, 5678, "east"), (node, port, "west")) as (_, at_west):
        at_west.status = "500 Internal Server Error"
        await west.node("failing-node", node)
        await east.endpoints("failing", 5678, pod)
        await east.service("failing", http(80, 5678))
        address = await ingress_address(east, "failing")
        await answers(lambda: HttpClient(address).get("shop.example.com"), (200, "east"))
        members = [{"tenant": "east", "weight": 100}, {"tenant": "west", "weight": 0}]
        await fleet.cluster.apply(GLOBAL_SERVICES, body("failing", *members), manager="operator")
        await served(fleet, "failing", "east 100%, west standby")
        answered, ended = Counter[str](), asyncio.Event()

        async def load() -> None:
            while not ended.is_set():
                answered.update(await requested(address, 20))

        loading = asyncio.create_task(load())
        hub = ("--kubeconfig", str(fleet.kubeconfig), "--output", "json")
        # Errors are looked at every few seconds, so the second step is not due before the first was judged.
        how = ("--step", "30", "--every", "60s", "--stop-on", "5xx>5%")
        code, _, problem = await run_fairlead("shift", "default/failing", "east=10", "west=90", *how, *hub)
        assert code == 0, problem

        async def stopped() -> bool:
            obj = await fleet.cluster.get(GLOBAL_SERVICES, "tenant-east", "failing")
            return obj.status.shift.state == "Stopped"

        await wait_until(stopped, "the shift stops")
        shift = (await fleet.cluster.get(GLOBAL_SERVICES, "tenant-east", "failing")).status.shift
        assert shift.moved == 0
        assert "5xx" in shift.message
        await wait_until(lambda: only(address, "east"), "all requests are at the last good step")
        ended.set()
        await loading
        assert answered["500"]
        assert answered["east"]
    await fleet.cluster.delete(GLOBAL_SERVICES, "tenant-east", "failing")
    await east.cluster.delete(INGRESSES, "default", "failing")
    for member in (east, west):
        await member.delete("failing")
        await fleet.gone(member.name, "default.failing")


@pytest.mark.req("MC-13")
@pytest.mark.skipif(os.geteuid() != 0, reason="closing a connection needs CAP_NET_ADMIN")
async def test_connections_of_a_drained_member_are_closed_in_time(fleet: Fleet) -> None:
    east, west = fleet.members["east"], fleet.members["west"]
    pod, node = east.new_address(), west.new_address()
    port = (await west.service("held", http(80, 5678))).spec.ports[0].node_port
    assert port
    async with echoes((pod, 5678, "east"), (node, port, "west")):
        await west.node("held-node", node)
        await east.endpoints("held", 5678, pod)
        await east.service("held", http(80, 5678))
        own = await ready(east, "held", 80)
        members = [{"tenant": "east"}, {"tenant": "west"}]
        await fleet.cluster.apply(GLOBAL_SERVICES, body("held", *members, drain="2s"), manager="operator")
        address = (await served(fleet, "held", "east 50%, west 50%")).status.address
        held = [await Held.opened(own), *[await Held.opened(address) for _ in range(12)]]
        hub = ("--kubeconfig", str(fleet.kubeconfig))
        code, out, problem = await run_fairlead("member", "drain", "east", *hub)
        assert code == 0, (out, problem)
        await served(fleet, "held", "east draining, west 100%")

        counts = [0]

        async def closed() -> bool:
            # One after the other: all are closed once no more follow.
            await asyncio.sleep(1)
            counts.append(sum(each.reader.at_eof() for each in held))
            return counts[-2] == counts[-1] > 0

        await wait_until(closed, "connections of the drained member are closed")
        assert held[0].reader.at_eof() is False, "the own load balancer of the member keeps its connections"
        open_ones = [each for each in held if not each.reader.at_eof()]
        assert await open_ones[0].answer() == "east"
        assert {await each.answer() for each in open_ones[1:]} == {"west"}
        for each in held:
            each.writer.close()
        await run_fairlead("member", "undrain", "east", *hub)
        await served(fleet, "held", "east 50%, west 50%")
        await wait_until(lambda: answers_of(address, {"east", "west"}), "both members get connections again")
    await fleet.cluster.delete(GLOBAL_SERVICES, "tenant-east", "held")
    for member in (east, west):
        await member.delete("held")
        await fleet.gone(member.name, "default.held")


class Held(NamedTuple):
    """A connection to a load balancer that has asked for nothing yet."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def opened(cls, address: str) -> Held:
        """Open a connection, and keep it."""
        return cls(*await asyncio.open_connection(address, service_port(80)))

    async def answer(self) -> str:
        """Return what a request on it is answered with."""
        self.writer.write(b"GET / HTTP/1.1\r\nHost: held\r\nConnection: close\r\n\r\n")
        answered = await self.reader.read()
        return answered.rpartition(b"\r\n\r\n")[2].decode()


@pytest.mark.req("MC-25", "MC-26")
@pytest.mark.parametrize("mode", ["Drain", "Dark"])
async def test_a_drill_ends_though_the_hub_dies_and_fails_no_connection(fleet: Fleet, mode: str) -> None:
    east, west = fleet.members["east"], fleet.members["west"]
    pod, node = east.new_address(), west.new_address()
    port = (await west.service("drilled", http(80, 5678))).spec.ports[0].node_port
    assert port
    both, hub = "east 50%, west 50%", ("--kubeconfig", str(fleet.kubeconfig))
    async with echoes((pod, 5678, "east"), (node, port, "west")):
        await west.node("drilled-node", node)
        await east.endpoints("drilled", 5678, pod)
        await east.service("drilled", http(80, 5678))
        members = [{"tenant": "east"}, {"tenant": "west"}]
        spec = body("drilled", *members, returnDelay="1s", returnRamp="2s")
        await fleet.cluster.apply(GLOBAL_SERVICES, spec, manager="operator")
        address = (await served(fleet, "drilled", both)).status.address
        load = Traffic(host=address, kept=1)
        load.start()
        drill = ("drill", "member", "west", "--service", "default/drilled", "--mode", mode.lower(), *hub)
        code, preview, problem = await run_fairlead(*drill, "--preview")
        assert (code, "The drill can begin" in preview) == (0, True), (preview, problem)
        assert await fleet.cluster.list(DRILLS) == []
        command = asyncio.create_task(run_fairlead(*drill, "--for", "20s", "--stop-on", "5xx>1%"))
        await served(fleet, "drilled", "east 100%, west drilled")
        ((name, recorded),) = [(begun.metadata.name, begun.status) for begun in await fleet.cluster.list(DRILLS)]
        await wait_until(lambda: answers_of(address, {"east"}), "only east gets connections")
        await fleet.hub.kill()
        assert (recorded.state, bool(recorded.ends_at)) == ("Drilling", True)

        async def over() -> bool:
            ends = parsed_time(recorded.ends_at)
            return ends is not None and fleet.cluster.server_clock.now() > ends

        await wait_until(over, "the time of the drill is over while no hub runs")
        await fleet.hub.start_ready()
        await served(fleet, "drilled", both)
        await wait_until(lambda: answers_of(address, {"east", "west"}), "both members get connections")

        # The command has waited all the time; no hub measured the drill to its end.
        code, report, problem = await command
        assert (code, report.splitlines()[:1]) == (4, [f"# Drill {name}: Inconclusive"]), problem
        assert await run_fairlead("drill", "history", name, *hub) == (code, report, "")
        await load.stop()
    assert load.count.failed == 0, load.count.failures
    await fleet.cluster.delete(DRILLS, "", name)
    await fleet.cluster.delete(GLOBAL_SERVICES, "tenant-east", "drilled")
    for member in (east, west):
        await member.delete("drilled")
        await fleet.gone(member.name, "default.drilled")
