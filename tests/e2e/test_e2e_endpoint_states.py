"""Which endpoints get new connections: rows of kube-proxy's table, with real hub, agent, Envoy, HAProxy and traffic."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import wait_until
from tests.e2e.e2e_backends import UdpEcho, ask, ask_udp, echoes, http, ready, refused
from tests.e2e.e2e_haproxy import Edge, add_class, edge_class, no_class, on_haproxy, started
from tests.e2e.e2e_own import no_nodes, no_services

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.envoy, pytest.mark.timeout(900)]

#: (ready, serving, terminating) of one endpoint.
State = tuple[bool, bool, bool]
READY: State = (True, True, False)
SERVING: State = (False, True, True)
GONE: State = (False, False, True)
UNREADY: State = (False, True, False)
#: The states of two pods, one row after the other, and which of them get new connections.
ROWS: list[tuple[State, State, set[int]]] = [
    (READY, SERVING, {0}),
    (UNREADY, SERVING, {1}),
    (GONE, SERVING, {1}),
    (SERVING, SERVING, {0, 1}),
    (GONE, READY, {1}),
    (GONE, GONE, set()),
    (READY, READY, {0, 1}),
]


async def report(
    member: Member, name: str, pods: list[str], states: list[State], *, protocol: str = "TCP", target: str = ""
) -> None:
    """Have the member list ``pods`` of a Service in these states, and none when there are no states."""
    endpoints = [
        {
            "addresses": [pod],
            "conditions": dict(zip(("ready", "serving", "terminating"), state, strict=True)),
            "targetRef": {"kind": "Pod", "name": f"{target or name}-{pod}", "uid": f"{target or name}-{pod}"},
        }
        for pod, state in zip(pods, states, strict=False)
    ]
    body = {
        "metadata": {"name": f"{name}-1", "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "", "port": 8080, "protocol": protocol}],
    }
    await member.cluster.apply(ENDPOINT_SLICES, body, manager="endpointslice-controller", force=True)


async def answered_by(address: str, port: int, pods: list[str], expected: set[int]) -> None:
    """Wait until exactly these pods answer new connections, or until none is accepted."""

    async def so() -> bool:
        if not expected:
            return await refused_or_closed(address, port)
        with contextlib.suppress(OSError, AssertionError, EOFError, TimeoutError):
            return {await ask(address, port) for _ in range(8)} == {pods[each] for each in expected}
        return False

    await wait_until(so, f"{expected or 'none'} of {pods} answer at {address}")


async def refused_or_closed(address: str, port: int) -> bool:
    """Return whether a new connection gets no answer: it is refused, or closed at once."""
    if await refused(address, port):
        return True
    try:
        await ask(address, port, timeout_s=5)
    except (OSError, AssertionError, EOFError, TimeoutError):
        return True
    return False


@pytest.mark.req("L4-1", "L4-2")
async def test_envoy_sends_new_connections_where_kube_proxy_would(fleet: Fleet) -> None:
    east = fleet.members["east"]
    pods = [east.new_address() for _ in range(2)]
    async with echoes(*((pod, 8080, pod) for pod in pods)):
        await report(east, "states", pods, [READY, READY])
        await east.service("states", http())
        address = await ready(east, "states", 80)
        for first, second, expected in ROWS:
            await report(east, "states", pods, [first, second])
            await answered_by(address, 80, pods, expected)
    await no_services(fleet, east, "states")


@pytest.mark.req("L4-1")
async def test_a_new_service_whose_only_pod_is_terminating_answers(fleet: Fleet) -> None:
    east = fleet.members["east"]
    pod = east.new_address()
    async with echoes((pod, 8080, pod)):
        await report(east, "lingering", [pod], [SERVING])
        await east.service("lingering", http())
        address = await ready(east, "lingering", 80)
        await answered_by(address, 80, [pod], {0})
    await no_services(fleet, east, "lingering")


@pytest.mark.req("L4-2")
async def test_an_address_that_another_pod_has_is_not_served(fleet: Fleet) -> None:
    """The last pod vanishes without a word, and the next program at its address is another Service's."""
    east = fleet.members["east"]
    pod = east.new_address()
    async with echoes((pod, 8080, pod)):
        await report(east, "former", [pod], [READY])
        await east.service("former", http())
        address = await ready(east, "former", 80)
        await report(east, "former", [pod], [])

        async def held() -> bool:
            at_hub = await fleet.at_hub("east", "default.former")
            return at_hub is not None and any(each.type == "Guarded" for each in at_hub.status.conditions or ())

        await wait_until(held, "the last endpoint is kept, as the list may be wrong")
        assert await ask(address, 80) == pod
        await report(east, "successor", [pod], [READY])
        await answered_by(address, 80, [pod], set())
    await no_services(fleet, east, "former")


@pytest.mark.req("L4-1", "L4-2")
async def test_datagrams_go_where_kube_proxy_would_send_them(fleet: Fleet) -> None:
    east = fleet.members["east"]
    pods = [east.new_address() for _ in range(2)]
    async with contextlib.AsyncExitStack() as stack:
        for pod in pods:
            transport, _ = await datagram_server(pod)
            stack.callback(transport.close)
        await report(east, "datagrams", pods, [READY, SERVING], protocol="UDP")
        await east.service("datagrams", {"port": 5353, "targetPort": 8080, "protocol": "UDP"})
        address = await east.address("datagrams")

        async def from_pods(expected: set[int]) -> None:
            async def so() -> bool:
                heard: set[str] = set()
                for _ in range(8):
                    with contextlib.suppress(OSError, TimeoutError):
                        heard.add((await ask_udp(address, 5353, b"x", timeout_s=1)).decode().partition(":")[0])
                return heard == {pods[each] for each in expected}

            await wait_until(so, f"{expected or 'none'} of {pods} answer datagrams")

        await from_pods({0})
        for first, second, expected in ((GONE, SERVING, {1}), (GONE, GONE, set[int]()), (READY, READY, {0, 1})):
            await report(east, "datagrams", pods, [first, second], protocol="UDP")
            await from_pods(expected)
    await no_services(fleet, east, "datagrams")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def edge(fleet: Fleet) -> AsyncIterator[Edge]:
    # Short: the path of a unix socket has room for 107 bytes.
    with tempfile.TemporaryDirectory(prefix="fl-edge-") as name:
        edge = started(Path(name), ["edge-states"])
        try:
            await add_class(fleet, "edge-states", edge_class(str(edge.haproxy.socket)))
            yield edge
            await no_class(fleet, "edge-states")
        finally:
            edge.haproxy.stop()


@pytest.mark.req("L4-1", "L4-2")
async def test_haproxy_sends_new_connections_where_kube_proxy_would(fleet: Fleet, edge: Edge) -> None:
    west = fleet.members["west"]
    pods = [west.new_address() for _ in range(2)]
    async with echoes(*((pod, 8080, pod) for pod in pods)):
        await report(west, "edge-states", pods, [READY, READY])
        await on_haproxy(west, edge, "edge-states", *pods, class_name="edge-states")
        for first, second, expected in ROWS:
            await report(west, "edge-states", pods, [first, second])
            await edge.serves("edge-states", *(pods[each] for each in expected))
    await no_services(fleet, west, "edge-states")


@pytest.mark.req("L4-1")
async def test_nodes_of_local_traffic_are_in_the_state_of_their_pods(fleet: Fleet) -> None:
    west = fleet.members["west"]
    nodes = {f"state-{number}": west.new_address() for number in (1, 2)}
    for name, address in nodes.items():
        await west.node(name, address)
    service = await west.service("local-states", http(), externalTrafficPolicy="Local")
    port = service.spec.ports[0].node_port
    assert port

    async def pods_in(*states: State) -> None:
        endpoints = [
            {
                "addresses": [f"10.99.0.{number}"],
                "conditions": dict(zip(("ready", "serving", "terminating"), state, strict=True)),
                "nodeName": name,
            }
            for number, (name, state) in enumerate(zip(nodes, states, strict=True), start=1)
        ]
        body = {
            "metadata": {
                "name": "local-states-1",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": "local-states"},
            },
            "addressType": "IPv4",
            "endpoints": endpoints,
            "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        }
        await west.cluster.apply(ENDPOINT_SLICES, body, manager="endpointslice-controller", force=True)

    addresses = list(nodes.values())
    async with echoes(*((address, port, address) for address in addresses)):
        await pods_in(READY, READY)
        address = await ready(west, "local-states", 80)
        for first, second, expected in ((READY, SERVING, {0}), (GONE, SERVING, {1}), (GONE, GONE, set[int]())):
            await pods_in(first, second)
            await answered_by(address, 80, addresses, expected)
    await no_services(fleet, west, "local-states")
    await no_nodes(west, *nodes)


async def datagram_server(pod: str) -> tuple[asyncio.DatagramTransport, UdpEcho]:
    """Run a UDP server that answers with the address of its pod."""
    loop = asyncio.get_running_loop()
    return await loop.create_datagram_endpoint(lambda: UdpEcho(pod), local_addr=(pod, 8080))


@pytest.mark.req("L4-1")
async def test_datagrams_of_one_client_port_reach_another_pod_when_theirs_died(fleet: Fleet) -> None:
    east = fleet.members["east"]
    pods = [east.new_address() for _ in range(2)]
    servers = {pod: (await datagram_server(pod))[0] for pod in pods}
    try:
        await report(east, "sticky", pods, [READY, READY], protocol="UDP")
        await east.service("sticky", {"port": 5354, "targetPort": 8080, "protocol": "UDP"})
        address = await east.address("sticky")
        heard: list[str] = []

        class Client(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
                _ = addr
                heard.append(data.decode().partition(":")[0])

        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Client, remote_addr=(address, 5354))

        async def answer_of(*expected: str) -> bool:
            transport.sendto(b"x")
            return bool(heard) and heard[-1] in expected

        await wait_until(lambda: answer_of(*pods), "a pod answers")
        first = heard[-1]
        servers[first].close()
        states = [GONE if pod == first else READY for pod in pods]
        await report(east, "sticky", pods, states, protocol="UDP")
        (other,) = set(pods) - {first}
        await wait_until(lambda: answer_of(other), "the other pod answers the same client port")
        transport.close()
    finally:
        for server in servers.values():
            server.close()
    await no_services(fleet, east, "sticky")


@pytest.mark.req("L4-9")
async def test_a_service_created_again_while_its_agent_is_down_reaches_no_former_pod(fleet: Fleet) -> None:
    east = fleet.members["east"]
    former, current = [east.new_address() for _ in range(3)], [east.new_address() for _ in range(3)]
    async with echoes(*((pod, 8080, pod) for pod in (*former, *current))):
        await report(east, "again", former, [READY] * 3)
        await east.service("again", http(80))
        await ready(east, "again", 80)
        await east.agent.kill()
        await east.delete("again")
        await east.service("again", http(81))
        await report(east, "again", current, [READY] * 3)
        await east.agent.start()
        address = await east.address("again")
        heard: set[str] = set()

        async def answered() -> bool:
            with contextlib.suppress(OSError, AssertionError, EOFError, TimeoutError):
                heard.add(await ask(address, 81))
            return len(heard) == len(current)

        await wait_until(answered, "all of its pods answer")
        assert heard == set(current)
    await no_services(fleet, east, "again")


@pytest.mark.req("L4-8")
async def test_the_former_pods_answer_until_one_of_the_new_ones_is_healthy(fleet: Fleet) -> None:
    """The list is replaced in one write; the new pods are ready for the member, and closed for Envoy at first."""
    east = fleet.members["east"]
    blue, green = ([east.new_address() for _ in range(2)] for _ in range(2))
    async with echoes(*((pod, 8080, pod) for pod in blue)):
        await report(east, "colours", blue, [READY] * 2)
        await east.service("colours", http())
        address = await ready(east, "colours", 80)
        await answered_by(address, 80, blue, {0, 1})
        await report(east, "colours", green, [READY] * 2)

        async def held() -> bool:
            assert await ask(address, 80) in blue, "no connection goes to what is not healthy"
            at_hub = await fleet.at_hub("east", "default.colours")
            conditions = {each.type: each for each in (at_hub.status.conditions or ()) if at_hub is not None}
            guarded = conditions.get("Guarded")
            return guarded is not None and "health check" in guarded.message and conditions["Serving"].status != "True"

        await wait_until(held, "Guarded says that the former pods serve")
        async with echoes((green[1], 8080, green[1])):
            await answered_by(address, 80, green, {1})
    await no_services(fleet, east, "colours")
