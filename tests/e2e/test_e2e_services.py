"""Services of member clusters get working addresses: every scenario with real processes and real traffic."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import pytest

from fairlead.api.names import ANNOTATION_ADDRESS, LABEL_ORIGIN_NAME
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.processes import wait_until
from fairlead_demo.worlds.traffic import Traffic
from tests.e2e.e2e_backends import UdpEcho, ask, ask_udp, echoes, http, ready, refused
from tests.e2e.e2e_own import no_nodes, no_services

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.envoy, pytest.mark.timeout(900)]


@pytest.mark.req("E-1", "E-4", "K-8", "K-15", "K-23", "K-24", "K-54")
async def test_a_service_gets_an_address_that_works_and_leaves_nothing_behind(fleet: Fleet) -> None:
    east = fleet.members["east"]
    pod = east.new_address()
    async with echoes((pod, 5678, "hello-shared")):
        await east.endpoints("basic", 5678, pod)
        await east.service("basic", http(80, 5678))
        address = await ready(east, "basic", 80)
        assert await ask(address, 80) == "hello-shared"
        at_hub = await fleet.at_hub("east", "default.basic")
        assert at_hub is not None
        assert at_hub.label(LABEL_ORIGIN_NAME) == "basic"
        assert at_hub.status.address == address

        async def said_to_answer() -> bool:
            return f"answers at {address}" in (await east.events("basic")).get("EnsuredLoadBalancer", "")

        await wait_until(said_to_answer, "an Event says that the address answers")
        await no_services(fleet, east, "basic")

        async def closed() -> bool:
            return await refused(address, 80)

        await wait_until(closed, "nobody listens there any more")


@pytest.mark.req("E-2", "KI-3")
async def test_each_of_several_named_ports_answers_for_itself(fleet: Fleet) -> None:
    east = fleet.members["east"]
    pod = east.new_address()
    async with echoes((pod, 8081, "one"), (pod, 8082, "two")):
        await east.endpoints("ports", 8081, pod, port_name="one", part="one")
        await east.endpoints("ports", 8082, pod, port_name="two", part="two")
        await east.service("ports", http(80, 8081, name="one"), http(81, 8082, name="two"))
        address = await ready(east, "ports", 80)
        await ready(east, "ports", 81)
        assert {await ask(address, 80) for _ in range(10)} == {"one"}
        assert {await ask(address, 81) for _ in range(10)} == {"two"}
    await no_services(fleet, east, "ports")


@pytest.mark.req("E-3", "E-4", "K-14", "K-16", "K-17", "K-18", "K-30")
async def test_nodes_come_fail_and_go_under_traffic(fleet: Fleet) -> None:
    west = fleet.members["west"]
    nodes = {name: west.new_address() for name in ("n1", "n2", "n3", "n4")}
    service = await west.service("nodes", http())
    port = service.spec.ports[0].node_port
    assert port
    async with echoes(*((address, port, name) for name, address in nodes.items())):
        for name in ("n1", "n2", "n3"):
            await west.node(name, nodes[name])
        address = await ready(west, "nodes", 80)

        async def answered_by(*names: str) -> None:
            async def exactly() -> bool:
                return {await ask(address, 80) for _ in range(4 * len(names))} == set(names)

            await wait_until(exactly, f"exactly {names} answer")

        await answered_by("n1", "n2", "n3")
        traffic = Traffic(host=address, kept=0)
        traffic.start()
        await west.node("n4", nodes["n4"])
        await answered_by("n1", "n2", "n3", "n4")
        await west.node("n1", nodes["n1"], ready=False)
        await answered_by("n2", "n3", "n4")
        await no_nodes(west, "n2")
        await answered_by("n3", "n4")
        await traffic.stop()
        assert traffic.count.failed == 0, traffic.count.failures
        assert traffic.count.sent > 0
    await no_services(fleet, west, "nodes")
    await no_nodes(west, *nodes)


@pytest.mark.req("E-5", "I-6")
async def test_two_services_have_two_addresses_and_deleting_one_leaves_the_other_alone(fleet: Fleet) -> None:
    east = fleet.members["east"]
    pods = {name: east.new_address() for name in ("first", "second")}
    async with echoes(*((address, 8080, name) for name, address in pods.items())):
        addresses: dict[str, str] = {}
        for name, pod in pods.items():
            await east.endpoints(name, 8080, pod)
            await east.service(name, http())
            addresses[name] = await ready(east, name, 80)
        assert addresses["first"] != addresses["second"]
        for name, address in addresses.items():
            assert {await ask(address, 80) for _ in range(10)} == {name}
        await no_services(fleet, east, "first")
        assert await east.address("second") == addresses["second"]
        assert await ask(addresses["second"], 80) == "second"
    await no_services(fleet, east, "second")


@pytest.mark.req("E-6", "K-1", "K-6", "K-26", "KI-5")
async def test_the_same_name_in_two_members_and_names_made_to_collide(fleet: Fleet) -> None:
    east, west = fleet.members["east"], fleet.members["west"]
    for namespace in ("a", "a-b"):
        await east.namespace(namespace)
    places = [("a", "b-c"), ("a-b", "c"), ("default", "same")]
    pods = {place: east.new_address() for place in places}
    node = west.new_address()
    service = await west.service("same", http())
    node_port = service.spec.ports[0].node_port
    servers = [(address, 8080, "/".join(("east", *place))) for place, address in pods.items()]
    async with echoes(*servers, (node, node_port, "west/default/same")):
        await west.node("same-node", node)
        for (namespace, name), pod in pods.items():
            await east.endpoints(name, 8080, pod, namespace=namespace)
            await east.service(name, http(), namespace=namespace)
        seen = {}
        for namespace, name in places:
            address = await ready(east, name, 80, namespace=namespace)
            seen[address] = {await ask(address, 80) for _ in range(5)} == {f"east/{namespace}/{name}"}
        address = await ready(west, "same", 80)

        async def only_west() -> bool:
            return {await ask(address, 80) for _ in range(5)} == {"west/default/same"}

        await wait_until(only_west, "the west answers for itself")
        seen[address] = True
        assert len(seen) == 4
        assert all(seen.values())
    await no_services(fleet, west, "same")
    await no_nodes(west, "same-node")
    for namespace, name in places:
        await no_services(fleet, east, name, namespace=namespace)


@pytest.mark.req("E-7", "K-13", "K-19", "K-20", "KI-11")
async def test_foreign_entries_are_unchanged(fleet: Fleet) -> None:
    east = fleet.members["east"]
    pod = east.new_address()
    await east.service("cluster-ip", http(), type="ClusterIP")
    await east.service("node-port", http(), type="NodePort")
    await east.service("elsewhere", type="ExternalName", externalName="example.com")
    await east.service("other-class", http(), loadBalancerClass="example.com/other")
    async with echoes((pod, 8080, "asked")):
        await east.endpoints("asked", 8080, pod)
        # Scenario 1 of the seed: a NodePort Service that asks for it. The others have been reconciled by then.
        await east.service("asked", http(), type="NodePort", annotations={"kubernetes.io/service.class": "kubelb"})

        async def annotated() -> bool:
            return bool((await east.get("asked")).annotation(ANNOTATION_ADDRESS))

        await wait_until(annotated, "the NodePort Service shows its address")
        service = await east.get("asked")
        assert not service.status.load_balancer.ingress
        for name in ("cluster-ip", "node-port", "elsewhere", "other-class"):
            assert await fleet.at_hub("east", f"default.{name}") is None
            assert not (await east.get(name)).status.load_balancer.ingress
    await no_services(fleet, east, "cluster-ip", "node-port", "elsewhere", "other-class", "asked")


@pytest.mark.req("E-8", "E-9", "KI-4")
async def test_udp_answers_and_tcp_there_does_not(fleet: Fleet) -> None:
    east = fleet.members["east"]
    pod = east.new_address()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: UdpEcho("udp"), local_addr=(pod, 9999))
    try:
        await east.endpoints("udp", 9999, pod, protocol="UDP")
        await east.service("udp", http(9999, 9999, protocol="UDP"))
        address = await east.address("udp")

        async def answers() -> bool:
            with contextlib.suppress(TimeoutError, OSError):
                return await ask_udp(address, 9999, b"hello") == b"udp:hello"
            return False

        await wait_until(answers, "UDP answers")
        assert all([await refused(address, 9999) for _ in range(5)])
    finally:
        transport.close()
    await no_services(fleet, east, "udp")


@pytest.mark.req("E-10", "K-33", "K-34")
async def test_the_proxy_protocol_names_the_client_to_the_backend(fleet: Fleet) -> None:
    east = fleet.members["east"]
    plain, named = east.new_address(), east.new_address()
    client = "127.0.0.77"
    async with echoes((plain, 8080, "plain"), (named, 8080, "named")) as (first, second):
        await east.endpoints("plain", 8080, plain)
        await east.service("plain", http(), externalTrafficPolicy="Local")
        await east.endpoints("named", 8080, named)
        annotations = {"fairlead.dev/proxy-protocol": "v2"}
        await east.service("named", http(), externalTrafficPolicy="Local", annotations=annotations)
        addresses = [await ready(east, "plain", 80), await ready(east, "named", 80)]
        first.first_bytes.clear()
        second.first_bytes.clear()
        for address in addresses:
            await ask(address, 80, source=client)
        assert first.first_bytes[-1].startswith(b"GET")
        header = second.first_bytes[-1]
        assert header.startswith(b"\r\n\r\n\x00\r\nQUIT\n")
        assert header[16:20] == bytes(map(int, client.split(".")))
        assert client not in second.peers
        at_hub = await fleet.at_hub("east", "default.plain")
        assert at_hub is not None
        assert at_hub.spec.external_traffic_policy == "Local"
    await no_services(fleet, east, "plain", "named")


@pytest.mark.req("E-11")
async def test_session_affinity_keeps_a_client_on_one_target(fleet: Fleet) -> None:
    east = fleet.members["east"]
    pods = [east.new_address() for _ in range(3)]
    async with echoes(*((address, 8080, address) for address in pods)):
        await east.endpoints("sticky", 8080, *pods)
        await east.service("sticky", http(), sessionAffinity="ClientIP")
        address = await ready(east, "sticky", 80)

        async def only_one() -> bool:
            return len(Counter([await ask(address, 80) for _ in range(20)])) == 1

        await wait_until(only_one, "20 of 20 requests reach the same target")
        clients = [f"127.0.0.{last}" for last in range(10, 40)]
        assert len({await ask(address, 80, source=client) for client in clients}) > 1
    await no_services(fleet, east, "sticky")


@pytest.mark.req("K-25", "KI-2")
async def test_a_changed_request_changes_the_address_and_a_withdrawn_one_removes_it(fleet: Fleet) -> None:
    east = fleet.members["east"]
    pod = east.new_address()
    async with echoes((pod, 8080, "moved")):
        await east.endpoints("moved", 8080, pod)
        await east.service("moved", http())
        old = await ready(east, "moved", 80)
        wanted = fleet.pool.rpartition(".")[0] + ".250"
        await east.service("moved", http(), annotations={"fairlead.dev/address-request": wanted})

        async def moved() -> bool:
            return await east.address("moved") == wanted

        await wait_until(moved, "the Service shows the address that it asks for")
        assert await ask(wanted, 80) == "moved"

        async def closed() -> bool:
            return await refused(old, 80)

        await wait_until(closed, "the old address is closed")
        await east.service("moved", http(), type="ClusterIP")
        await fleet.gone("east", "default.moved")

        async def cleared() -> bool:
            return not (await east.get("moved")).status.load_balancer.ingress

        await wait_until(cleared, "the address is taken from the status")
    await no_services(fleet, east, "moved")
