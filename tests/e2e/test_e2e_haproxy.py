"""Services on a HAProxy of an operator: real hub, agents, HAProxy and HTTP, and nothing but ordinary Services.

The member is ``west``, whose agent prefers nodes: that pods are the targets is the class's doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.testing.builders import slice_body
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import run_fairlead, wait_until
from fairlead_demo.worlds.traffic import Traffic
from tests.e2e.e2e_backends import Echo, ask, refused
from tests.e2e.e2e_haproxy import (
    ADDRESS,
    Edge,
    add_class,
    all_registered,
    edge_class,
    no_class,
    on_haproxy,
    record_versions,
    started,
    without_ages,
)
from tests.e2e.e2e_own import no_services

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.envoy, pytest.mark.timeout(900)]

NAMES = ("edge-shop", "rolling", "lasting", "reloaded", "moving")
#: A TCPLoadBalancer that an operator wrote, of a member without an agent: a Service's class cannot change.
MOVING = "tenant-mover/moving"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def edge(fleet: Fleet) -> AsyncIterator[Edge]:
    # Short: the path of a unix socket has room for 107 bytes.
    with tempfile.TemporaryDirectory(prefix="fl-edge-") as name:
        edge = started(Path(name), NAMES)
        try:
            await add_class(fleet, "edge-haproxy", edge_class(str(edge.haproxy.socket)))
            yield edge
        finally:
            edge.haproxy.stop()


@contextlib.asynccontextmanager
async def pods(member: Member, count: int) -> AsyncGenerator[list[Echo]]:
    """Run backends that answer with their address."""
    addresses = [member.new_address() for _ in range(count)]
    servers = [await Echo(address, 8080, address).start() for address in addresses]
    try:
        yield servers
    finally:
        for server in servers:
            await server.stop()


@pytest.mark.req("A-2", "A-5", "I-4", "OP-11")
async def test_an_ordinary_service_is_served_by_haproxy_and_leaves_nothing_behind(fleet: Fleet, edge: Edge) -> None:
    theirs = edge.theirs("edge-shop")
    async with pods(fleet.members["west"], 2) as servers:
        addresses = {server.host for server in servers}
        west = fleet.members["west"]
        await west.endpoints("edge-shop", 8080, *addresses)
        await on_haproxy(west, edge, "edge-shop", *addresses)
        service = await west.get("edge-shop")
        (ingress,) = tuple(service.status.load_balancer.ingress or ())
        assert (ingress.ip, ingress.ip_mode) == (ADDRESS, "Proxy")
        assert [(port.port, port.protocol) for port in ingress.ports or ()] == [(edge.ports["edge-shop"], "TCP")]
        assert {await ask(ADDRESS, edge.ports["edge-shop"]) for _ in range(6)} == addresses
        # Both policies reach every pod in one hop.
        port = {"port": edge.ports["edge-shop"], "targetPort": 8080}
        await west.service(
            "edge-shop", port, loadBalancerClass="fairlead.dev/edge-haproxy", externalTrafficPolicy="Local"
        )

        async def is_local() -> bool:
            load_balancer = await fleet.at_hub("west", "default.edge-shop")
            accepted = load_balancer.status.accepted if load_balancer is not None else None
            return accepted is not None and accepted.external_traffic_policy == "Local"

        await wait_until(is_local, "the hub serves the other policy")
        assert edge.ours("edge-shop") == addresses
        assert {await ask(ADDRESS, edge.ports["edge-shop"]) for _ in range(6)} == addresses
        assert edge.theirs("edge-shop") == theirs
        await figures_are_shown(fleet, edge)

        async def said_to_be_ensured() -> bool:
            return "EnsuredLoadBalancer" in await west.events("edge-shop")

        await wait_until(said_to_be_ensured, "an Event says that the load balancer has its address")
        await no_services(fleet, west, "edge-shop")
        assert edge.servers("edge-shop") == theirs
        assert await record_versions(fleet, "tenant-west", "default.edge-shop") == {}


async def figures_are_shown(fleet: Fleet, edge: Edge) -> None:
    """Use the Service until ``fairlead top`` lists it; its metrics have counted no less."""
    key, pages = "TCPLoadBalancer/tenant-west/default.edge-shop", fleet.hub.pages

    async def listed() -> bool:
        for _ in range(5):
            await ask(ADDRESS, edge.ports["edge-shop"])
        code, out, error = await run_fairlead("top", "--once", "-o", "json", "--hub-url", f"http://{pages}")
        assert code == 0, error
        rows = [each for each in json.loads(out)["loadBalancers"] if each["id"] == key]
        return any(each["bytesOut"] > 0 and each["connections"] > 0 for each in rows)

    await wait_until(listed, "fairlead top lists the load balancer")
    async with aiohttp.ClientSession() as session, session.get(f"http://{pages}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    named = [line for line in lines if line.startswith("fairlead_traffic_connections_total") and "edge-shop" in line]
    assert [float(line.rpartition(" ")[2]) > 0 for line in named] == [True]


@pytest.mark.req("I-9")
async def test_b35_pods_roll_under_load_and_no_request_fails(fleet: Fleet, edge: Edge) -> None:
    west = fleet.members["west"]
    async with pods(west, 4) as old, pods(west, 4) as new:
        there = [server.host for server in old]
        await west.endpoints("rolling", 8080, *there)
        await on_haproxy(west, edge, "rolling", *there)
        traffic = Traffic(host=ADDRESS, port=edge.ports["rolling"], new_per_s=100, kept=0)
        traffic.start()
        for before, after in zip(old, new, strict=True):
            there = [*there, after.host]
            await west.endpoints("rolling", 8080, *there)
            await edge.serves("rolling", *there)
            there.remove(before.host)
            await west.endpoints("rolling", 8080, *there)
            await edge.serves("rolling", *there)
        await edge.serves("rolling", *(server.host for server in new))

        async def reached() -> bool:
            return set(traffic.count.by_pod) >= {server.host for server in new}

        await wait_until(reached, "the traffic reaches every new pod")
        await traffic.stop()
        assert traffic.count.failed == 0, traffic.count.failures
        await no_services(fleet, west, "rolling")


@pytest.mark.req("I-8", "A-31")
async def test_hub_and_agent_killed_and_started_again_change_nothing(fleet: Fleet, edge: Edge) -> None:
    west = fleet.members["west"]
    async with pods(west, 3) as servers:
        await west.endpoints("lasting", 8080, *(server.host for server in servers))
        await on_haproxy(west, edge, "lasting", *(server.host for server in servers))
        version = (await west.get("lasting")).metadata.resource_version
        await edge.checked("default-lasting")
        await all_registered(fleet, "tenant-west", "default.lasting")
        before = edge.haproxy.ask("show servers state default-lasting")
        records = await record_versions(fleet, "tenant-west", "default.lasting")
        traffic = Traffic(host=ADDRESS, port=edge.ports["lasting"], kept=0)
        traffic.start()
        await asyncio.gather(fleet.hub.kill(), west.agent.kill())
        await fleet.hub.start_ready()
        await west.agent.start()
        # A change that comes after says that both are at work again.
        await west.service("proof", {"port": 1, "targetPort": 1}, loadBalancerClass="fairlead.dev/no-such")

        async def shown() -> bool:
            return "NoSuchClass" in await west.events("proof")

        await wait_until(shown, "both are at work again")
        await traffic.stop()
        assert traffic.count.failed == 0, traffic.count.failures
        # Field 10 counts the seconds since the last change of a server, and those alone have passed.
        assert without_ages(edge.haproxy.ask("show servers state default-lasting")) == without_ages(before)
        assert records
        assert await record_versions(fleet, "tenant-west", "default.lasting") == records
        assert (await west.get("lasting")).metadata.resource_version == version
        await no_services(fleet, west, "proof", "lasting")


@pytest.mark.req("I-4")
async def test_haproxy_reloaded_is_healed_from_the_ledger(fleet: Fleet, edge: Edge) -> None:
    west = fleet.members["west"]
    async with pods(west, 2) as servers:
        await west.endpoints("reloaded", 8080, *(server.host for server in servers))
        await on_haproxy(west, edge, "reloaded", *(server.host for server in servers))
        theirs = edge.theirs("reloaded")
        edge.haproxy.reload()
        await edge.serves("reloaded", *(server.host for server in servers))
        assert edge.theirs("reloaded") == theirs
        answers = {await ask(ADDRESS, edge.ports["reloaded"]) for _ in range(6)}
        assert answers == {server.host for server in servers}
        await no_services(fleet, west, "reloaded")


MISTAKES = [
    ("socket", {"socket": "/nowhere/admin.sock"}, "there is no socket /nowhere/admin.sock"),
    ("nobackend", {}, "has no backend default-nobackend; add it to its configuration and reload"),
    ("typo", {"adress": "192.0.2.1"}, "parameters.adress is unknown to provider haproxy; did you mean address?"),
    ("address", {"backend": "b0", "address": None}, "set parameters.address to the address of HAProxy's frontend"),
]


@pytest.mark.parametrize(("name", "parameters", "expected"), MISTAKES)
async def test_a_mistake_in_the_class_is_shown_on_the_service(
    fleet: Fleet, edge: Edge, name: str, parameters: dict[str, str | None], expected: str
) -> None:
    west = fleet.members["west"]
    spec = edge_class(str(edge.haproxy.socket))
    known = spec["parameters"]
    assert isinstance(known, dict)
    spec["parameters"] = {key: value for key, value in {**known, **parameters}.items() if value is not None}
    await add_class(fleet, f"wrong-{name}", spec)
    await west.service(name, {"port": 80, "targetPort": 8080}, loadBalancerClass=f"fairlead.dev/wrong-{name}")

    async def shown() -> bool:
        return any(expected in message for message in (await west.events(name)).values())

    await wait_until(shown, f"an Event of the Service says: {expected}")
    assert all("TCPLoadBalancer" not in message for message in (await west.events(name)).values())
    await no_services(fleet, west, name)
    await no_class(fleet, f"wrong-{name}")


async def test_unknown_classes_and_providers_are_named_by_field_on_the_service(fleet: Fleet, edge: Edge) -> None:
    west = fleet.members["west"]
    await add_class(fleet, "from-the-moon", {"provider": "moon"})
    expected = {
        "no-such": "spec.loadBalancerClass: there is no LoadBalancerClass 'no-such' at the hub",
        "from-the-moon": "names provider 'moon', which this hub does not run",
        "edge-haproxy": "spec.loadBalancerIP: the hub gives none to LoadBalancerClass 'edge-haproxy'",
    }
    for name, sentence in expected.items():
        port = {"port": 80, "targetPort": 8080, "nodePort": 0}
        asked = "192.0.2.9" if name == "edge-haproxy" else ""
        await west.service(f"asks-{name}", port, loadBalancerClass=f"fairlead.dev/{name}", loadBalancerIP=asked or None)

        async def shown(name: str = name, sentence: str = sentence) -> bool:
            return any(sentence in message for message in (await west.events(f"asks-{name}")).values())

        await wait_until(shown, f"an Event of the Service says: {sentence}")
        await no_services(fleet, west, f"asks-{name}")
    await no_class(fleet, "from-the-moon")


async def at_hub(fleet: Fleet) -> TCPLoadBalancer:
    load_balancer: TCPLoadBalancer = await fleet.cluster.get(TCP_LOAD_BALANCERS, *MOVING.split("/"))
    return load_balancer


@pytest.mark.req("I-6", "I-9")
async def test_b31_moved_from_envoy_to_haproxy_and_back_every_request_is_answered(fleet: Fleet, edge: Edge) -> None:
    """Every client that asks at the address that is shown at that moment gets an answer, at every moment."""
    namespace, name = MOVING.split("/")
    port = edge.ports["moving"]
    parameters = {"socket": str(edge.haproxy.socket), "backend": "default-moving", "address": ADDRESS}
    await add_class(
        fleet, "moving-haproxy", {"provider": "haproxy", "parameters": parameters, "drain": "1s", "tenants": ["mover"]}
    )
    async with pods(fleet.members["east"], 2) as servers:
        await fleet.tenant_kubeconfig("mover")
        endpoints = slice_body(name, [server.host for server in servers], namespace=namespace, load_balancer=name)
        await fleet.cluster.apply(ENDPOINT_SLICES, endpoints, manager="operator")
        await move(fleet, "envoy", port)
        first = (await at_hub(fleet)).status.address
        failed: list[str] = []
        shown = [first]
        stop = asyncio.Event()

        async def browse() -> None:
            while not stop.is_set():
                address = (await at_hub(fleet)).status.address
                if address not in shown[-1:]:
                    shown.append(address)
                try:
                    await ask(address, port)
                except (OSError, EOFError, AssertionError, TimeoutError) as error:
                    failed.append(f"{address}: {error!r}")

        user = asyncio.ensure_future(browse())
        try:
            await move(fleet, "moving-haproxy", port)
            await edge.serves("moving", *(server.host for server in servers))

            async def closed() -> bool:
                return await refused(first, port)

            await wait_until(closed, "Envoy has closed it")
            await move(fleet, "envoy", port)
            await edge.serves("moving")
        finally:
            stop.set()
            await user
        assert failed == []
        assert shown == [first, ADDRESS, first]
        await fleet.cluster.delete(TCP_LOAD_BALANCERS, namespace, name)
        await fleet.gone("mover", name)
        assert await record_versions(fleet, namespace, name) == {}
    await no_class(fleet, "moving-haproxy")


async def move(fleet: Fleet, class_name: str, port: int) -> None:
    """Ask for a class, and wait until that one serves and no other provider has anything of it on record."""
    namespace, name = MOVING.split("/")
    spec = {"className": class_name, "targets": "Pod", "ports": [{"port": port}]}
    body = {"metadata": {"namespace": namespace, "name": name}, "spec": spec}
    await fleet.cluster.apply(TCP_LOAD_BALANCERS, body, manager="operator")
    provider = "envoy" if class_name == "envoy" else "haproxy"

    async def there() -> bool:
        load_balancer = await at_hub(fleet)
        programmed = [
            condition.status == "True" and condition.observed_generation == load_balancer.metadata.generation
            for condition in load_balancer.status.conditions or ()
            if condition.type == "Programmed"
        ]
        return (
            load_balancer.status.serving_provider == provider
            and programmed == [True]
            and set(load_balancer.status.recorded_providers) == {provider} - {"envoy"}
        )

    await wait_until(there, f"{name} is served by {class_name}")
