"""A Service of both families has two addresses that answer, and one may go without the other noticing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from fairlead.api.hostname import DNS_ZONES
from fairlead.api.kubernetes import EVENTS, INGRESS_CLASSES, INGRESSES, SECRETS
from fairlead.api.names import INGRESS_CONTROLLER, SYSTEM_NAMESPACE
from fairlead_demo.worlds.apis import Apis
from fairlead_demo.worlds.loopback import free_port, service_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.name_servers import Bind, binary
from fairlead_demo.worlds.objects import ready_endpoint, write_slice
from fairlead_demo.worlds.processes import wait_until
from tests.e2e import e2e_http
from tests.e2e.e2e_backends import answers, ask, echoes, http, refused
from tests.e2e.e2e_http import HttpClient, service
from tests.e2e.e2e_one_cluster import OneCluster, running

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.req("K-4", "K-58", "OP-12")]

#: The one IPv6 address that every machine has.
V6 = "::1"
#: Ranges of the network namespace in which a real API server runs.
PODS, POOL = "fd00:66::", "fd00:66:0:1::/64"


def endpoint_of(apis: Apis) -> str:
    """Return an IPv6 address that may be an endpoint: a real API server refuses loopback there."""
    return V6 if apis.kind == "embedded" else f"{PODS}a"


async def shown(member: Member, name: str) -> list[str]:
    """Return the addresses in the status of a Service, in their order."""
    return [each.ip for each in (await member.get(name)).status.load_balancer.ingress or () if each.ip]


async def test_a_dual_stack_service_answers_at_both_addresses(one_cluster: Apis) -> None:
    port, six, four = free_port(V6), free_port(V6), free_port()
    pod_six = endpoint_of(one_cluster)
    async with running(one_cluster, f"{V6}/128") as cluster:
        member, pod = cluster.member, cluster.member.new_address()
        async with echoes((pod_six, six, "over IPv6"), (pod, four, "over IPv4")):
            await member.endpoints("web", six, pod_six, family="IPv6", part="six")
            await member.endpoints("web", four, pod)
            await member.service("web", http(port), ipFamilyPolicy="PreferDualStack", ipFamilies=["IPv6", "IPv4"])
            await answers(V6, port, "over IPv6")
            first, second = await both_addresses(member, "web")
            assert first == V6
            # Its pods are in slices of both families; they are reached by the first one.
            await answers(second, port, "over IPv6")

            await the_other_is_refused(cluster, port)
            await a_family_goes_and_comes_back(cluster, port, second)


async def both_addresses(member: Member, name: str) -> list[str]:
    async def two() -> bool:
        return len(await shown(member, name)) == 2

    await wait_until(two, f"{name} shows two addresses")
    return await shown(member, name)


async def the_other_is_refused(cluster: OneCluster, port: int) -> None:
    """The one IPv6 address is taken: who needs both gets none, and who prefers both gets the other."""
    member = cluster.member
    families = ["IPv4", "IPv6"]
    await member.service("needs", http(port), ipFamilyPolicy="RequireDualStack", ipFamilies=families)
    await member.service("prefers", http(port), ipFamilyPolicy="PreferDualStack", ipFamilies=families)

    async def said() -> bool:
        return "all 1 IPv6 addresses" in (await member.events("needs")).get("AddressPoolExhausted", "")

    await wait_until(said, "an Event says which family is used up")
    await member.address("prefers")
    assert [":" in each for each in await shown(member, "prefers")] == [False]
    assert await shown(member, "needs") == []


async def a_family_goes_and_comes_back(cluster: OneCluster, port: int, address: str) -> None:
    """The listener of a family is one of its own: connections of the other are not closed with it."""
    member = cluster.member
    reader, writer = await asyncio.open_connection(V6, port)
    try:
        await member.service("web", http(port), ipFamilyPolicy="SingleStack", ipFamilies=["IPv6"])

        async def closed() -> bool:
            return await refused(address, port) and await shown(member, "web") == [V6]

        await wait_until(closed, "the IPv4 address is closed")
        await member.service("web", http(port), ipFamilyPolicy="PreferDualStack", ipFamilies=["IPv6", "IPv4"])
        again = (await both_addresses(member, "web"))[1]
        await answers(again, port, "over IPv6")
        writer.write(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")
        assert b"200 OK" in await reader.read(), "the connection was there all the time"
    finally:
        writer.close()


async def test_the_families_that_a_real_api_server_gives_a_service(one_real: Apis) -> None:
    async with running(one_real, POOL) as cluster:
        member, pod = cluster.member, cluster.member.new_address()
        async with echoes((f"{PODS}a", 8080, "over IPv6"), (pod, 8080, "over IPv4")):
            for name in ("both", "six"):
                await member.endpoints(name, 8080, f"{PODS}a", family="IPv6", part="six")
                await member.endpoints(name, 8080, pod)
            await member.service("both", http(), ipFamilyPolicy="RequireDualStack")
            await member.service("six", http(), ipFamilyPolicy="SingleStack", ipFamilies=["IPv6"])
            four, six = await both_addresses(member, "both")
            assert (":" in four, ip_address(six) in ip_network(POOL)) == (False, True)
            for address in (four, six):
                await answers(address, 80, "over IPv4")
            await answers(await member.address("six"), 80, "over IPv6")
            assert [":" in each for each in await shown(member, "six")] == [True]

            await member.service("both", http(), ipFamilyPolicy="SingleStack")

            async def single() -> bool:
                return await shown(member, "both") == [four]

            await wait_until(single, "the second address has gone")
            await answers(four, 80, "over IPv4")


HOST = "both.example.test"


async def resolves(bind: Bind, *addresses: str) -> None:
    """Wait until the name has these addresses in its zone: those of IPv4 as A, those of IPv6 as AAAA."""
    wanted = [{each for each in addresses if (":" in each) is six} for six in (False, True)]

    async def so() -> bool:
        return [await bind.ask(HOST, "A"), await bind.ask(HOST, "AAAA")] == wanted

    await wait_until(so, f"{HOST} resolves to {addresses}")


@pytest.mark.skipif(binary("named") is None, reason="BIND 9 is not installed: apt-get install bind9, as root")
@pytest.mark.skipif(service_port(80) != 80, reason="an Ingress is served at port 80, which this user may not open")
@pytest.mark.req("C-54")
async def test_a_name_of_both_families_resolves_to_both(one_cluster: Apis, tmp_path: Path) -> None:
    bind = Bind(tmp_path / "bind")
    await bind.start()
    try:
        async with running(one_cluster, f"{V6}/128") as cluster:
            await zone(cluster, bind)
            pod = cluster.member.new_address()
            async with echoes((pod, 8080, "resolved")):
                await a_service_of_both_families(cluster, bind, pod)
                await an_ingress_of_both_families(cluster, bind, pod)
    finally:
        await bind.kill()


async def zone(cluster: OneCluster, bind: Bind) -> None:
    at_hub = cluster.member.cluster
    secret = {"metadata": {"name": "dns", "namespace": SYSTEM_NAMESPACE}}
    await at_hub.apply(SECRETS, {**secret, "stringData": {"tsig-secret": bind.secrets["fairlead"]}}, manager="kubectl")
    parameters = {"server": bind.server, "keyName": "fairlead", "credentials": "dns"}
    spec = {"zone": bind.zone, "provider": "rfc2136", "parameters": parameters}
    await at_hub.apply(DNS_ZONES, {"metadata": {"name": "test"}, "spec": spec}, manager="kubectl")


async def a_service_of_both_families(cluster: OneCluster, bind: Bind, pod: str) -> None:
    """A and AAAA follow the addresses of a Service; a family that goes takes its record with it."""
    member, port = cluster.member, free_port(V6)
    named = {"fairlead.dev/hostname": HOST}
    await member.endpoints("web", 8080, pod)
    await member.service("web", http(port), ipFamilyPolicy="RequireDualStack", ipFamilies=["IPv4", "IPv6"],
                         annotations=named)  # fmt: skip
    four, six = await both_addresses(member, "web")
    await resolves(bind, four, six)
    for type_ in ("A", "AAAA"):
        for address in await bind.ask(HOST, type_):
            await answers(address, port, "resolved")
    await member.service("web", http(port), ipFamilyPolicy="SingleStack", ipFamilies=["IPv4"], annotations=named)
    await resolves(bind, four)
    await member.service("web", http(port), ipFamilyPolicy="RequireDualStack", ipFamilies=["IPv4", "IPv6"],
                         annotations=named)  # fmt: skip
    await resolves(bind, *await both_addresses(member, "web"))
    await member.delete("web")
    await resolves(bind)


async def an_ingress_of_both_families(cluster: OneCluster, bind: Bind, pod: str) -> None:
    member = cluster.member
    await service(member, "shop", pod)
    families = {"name": "both", "annotations": {"fairlead.dev/ip-families": "IPv4,IPv6"}}
    body = {"metadata": families, "spec": {"controller": INGRESS_CONTROLLER}}
    await member.cluster.apply(INGRESS_CLASSES, body, manager="user")
    to = {"service": {"name": "shop", "port": {"number": 80}}}
    rules = [{"host": HOST, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": to}]}}]
    ingress = {
        "metadata": {"name": "shop", "namespace": "default"},
        "spec": {"ingressClassName": "both", "rules": rules},
    }
    await member.cluster.apply(INGRESSES, ingress, manager="user")

    async def addresses() -> list[str]:
        there = await member.cluster.get(INGRESSES, "default", "shop")
        return [each.ip for each in there.status.load_balancer.ingress or () if each.ip]

    async def two() -> bool:
        return len(await addresses()) == 2

    await wait_until(two, "the Ingress shows two addresses")
    await resolves(bind, *await addresses())
    for type_ in ("A", "AAAA"):
        (address,) = await bind.ask(HOST, type_)
        client = HttpClient(address)
        await e2e_http.answers(lambda client=client: client.get(HOST), (200, "resolved"))


async def all_answers(address: str, port: int, *bodies: str) -> None:
    """Wait until these are what new connections get, each of them sometimes."""

    async def so() -> bool:
        got: set[str] = set()
        with contextlib.suppress(OSError, AssertionError, EOFError, TimeoutError):
            got = {await ask(address, port) for _ in range(8 * len(bodies))}
        return got == set(bodies)

    await wait_until(so, f"{bodies} answer at {address} port {port}")


@pytest.mark.req("K-30", "K-33")
async def test_nodes_are_reached_in_the_families_of_the_service(one_cluster: Apis) -> None:
    """A node port answers at the nodes' addresses of the Service's families only, as with kube-proxy."""
    port, node_port, node_six = free_port(V6), 31_866, endpoint_of(one_cluster)
    async with running(one_cluster, f"{V6}/128") as cluster:
        member = cluster.member
        both, four = member.new_address(), member.new_address()
        await member.node("both", both, node_six)
        await member.node("four", four)
        ports = http(port, nodePort=node_port)
        nodes = {"fairlead.dev/target": "Node"}
        async with echoes((node_six, node_port, "both over IPv6"), (four, node_port, "four over IPv4")):
            await member.service("web", ports, ipFamilyPolicy="SingleStack", ipFamilies=["IPv6"], annotations=nodes)
            await all_answers(V6, port, "both over IPv6")

            async def said() -> bool:
                # Events from before, when the hub had the nodes of one family only, do not count.
                events = json.loads(await member.cluster.raw("GET", EVENTS.path("default")))["items"]
                return any("(four)" in each["message"] for each in events if each["involvedObject"]["name"] == "web")

            await wait_until(said, "an Event names the node without an IPv6 address")

            families = ["IPv6", "IPv4"]
            await member.service("web", ports, ipFamilyPolicy="RequireDualStack", ipFamilies=families,
                                 annotations=nodes)  # fmt: skip
            for address in await both_addresses(member, "web"):
                await all_answers(address, port, "both over IPv6", "four over IPv4")

            pod = {**ready_endpoint("fd00:1::7"), "nodeName": "both"}
            await write_slice(member.cluster, "web", [pod], port=8080, family="IPv6")
            await member.service("web", ports, ipFamilyPolicy="RequireDualStack", ipFamilies=families,
                                 annotations=nodes, externalTrafficPolicy="Local")  # fmt: skip
            for address in await both_addresses(member, "web"):
                await all_answers(address, port, "both over IPv6")
