"""Ingresses of two member clusters get traffic through the hub's Envoy, over HTTP and HTTPS, with real processes."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fairlead.api.kubernetes import INGRESS_CLASSES, INGRESSES, SECRETS, SERVICES
from fairlead.api.names import (
    ANNOTATION_BACKEND_TLS,
    ANNOTATION_EXTERNAL_AUTH,
    ANNOTATION_LIMITS,
    ANNOTATION_TARGET,
    INGRESS_CONTROLLER,
)
from fairlead_demo.worlds.certificates import self_signed
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import run_fairlead, wait_until
from fairlead_demo.worlds.web import certificate, ingress_address
from tests.e2e.e2e_backends import Echo, echoes
from tests.e2e.e2e_http import HttpClient, answers, service
from tests.e2e.e2e_own import changes_of_envoy, no_ingresses, no_nodes, own_class

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.envoy,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        service_port(80) != 80, reason="an Ingress is served at ports 80 and 443, which this user may not open"
    ),
]


async def ingress(member: Member, of_class: str, name: str, hosts: dict[str, dict[str, str]], **spec: Any) -> None:
    """Write an Ingress of a class: for each host its paths (all of type Prefix) and their Services."""
    rules = [
        {
            "host": host,
            "http": {
                "paths": [
                    {"path": path, "pathType": "Prefix", "backend": {"service": {"name": to, "port": {"number": 80}}}}
                    for path, to in paths.items()
                ]
            },
        }
        for host, paths in hosts.items()
    ]
    body = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"ingressClassName": of_class, "rules": rules, **spec},
    }
    await member.cluster.apply(INGRESSES, body, manager="user")


async def client_of(member: Member, name: str) -> HttpClient:
    """Return a client of the address that an Ingress shows, once it has one."""
    return HttpClient(await ingress_address(member, name))


@pytest.mark.req("E-13", "E-14", "K-36", "K-41", "K-43", "K-46", "K-55", "GI-3", "GI-4", "GI-9", "E-19")
async def test_ingresses_of_two_members_by_host_and_path(fleet: Fleet) -> None:
    east, west = fleet.members["east"], fleet.members["west"]
    shop, cart, other = east.new_address(), east.new_address(), west.new_address()
    async with echoes((shop, 8080, "shop"), (cart, 8080, "cart"), (other, 8080, "west")):
        for member in (east, west):
            await own_class(member, "of-paths")
        await service(east, "web-shop", shop)
        await service(east, "web-cart", cart)
        await service(west, "web-shop", other)
        hosts = {"shop.example.com": {"/": "web-shop", "/cart": "web-cart"}, "*.shop.example.com": {"/": "web-cart"}}
        await ingress(east, "of-paths", "web-paths", hosts)
        await ingress(west, "of-paths", "web-paths", {"shop.example.com": {"/": "web-shop"}})
        in_east, in_west = await client_of(east, "web-paths"), await client_of(west, "web-paths")
        assert in_east.address != in_west.address
        await answers(lambda: in_east.get("shop.example.com"), (200, "shop"))
        # Its backend may be healthy a moment later.
        await answers(lambda: in_east.get("shop.example.com", "/cart/1"), (200, "cart"))
        assert await in_east.get("shop.example.com", "/cartoon") == (200, "shop")
        assert await in_east.get("a.shop.example.com") == (200, "cart")
        assert (await in_east.get("a.b.shop.example.com"))[0] == 404
        assert (await in_east.get("unknown.example.com"))[0] == 404
        await answers(lambda: in_west.get("shop.example.com"), (200, "west"))
        # A backend of an Ingress has no address of its own.
        assert await fleet.at_hub("east", "default.web-shop") is None
        for member in (east, west):
            await member.cluster.delete(INGRESSES, "default", "web-paths")
        await answers(lambda: in_east.get("shop.example.com"), (404, ""), (0, ""))
        for member in (east, west):
            await no_ingresses(fleet, member, "of-paths")
            for name in ("web-shop", "web-cart"):
                await member.delete(name)


async def explained(fleet: Fleet, member: Member, address: str) -> None:
    """An Ingress is explained at the hub by its load balancer, and at its member by what that knows."""

    async def explain(subject: str, *options: str) -> str:
        ended, out, problem = await run_fairlead("explain", subject, *options)
        assert (ended, problem) == (0, ""), (out, problem)
        return out

    at_hub = await explain("ingress/web-asked", "--kubeconfig", str(fleet.kubeconfig))
    assert at_hub.startswith("HTTPLoadBalancer/tenant-east/")
    again = await explain(f"ing/{member.name}/default/web-asked", "--kubeconfig", str(fleet.kubeconfig))
    assert again.splitlines()[0] == at_hub.splitlines()[0]
    at_member = ("--kubeconfig", str(fleet.apis.kubeconfig(member.name)))
    lines = (await explain("ingress/web-asked", *at_member)).splitlines()
    assert lines[0] == f"Ingress default/web-asked: class of-route, address {address}"
    assert lines[-1].endswith("fairlead explain ingress/web-asked -n default --kubeconfig HUB.kubeconfig")


@pytest.mark.req("K-41", "K-46")
async def test_route_says_what_a_request_meets_and_the_proxy_does_just_that(fleet: Fleet) -> None:
    """The verb as people type it, next to the same requests through Envoy."""
    east = fleet.members["east"]
    kubeconfig = str(fleet.kubeconfig)

    async def route(url: str, *options: str, code: int = 0) -> Any:
        ended, out, problem = await run_fairlead(
            "route", "GET", url, *options, "-o", "json", "--kubeconfig", kubeconfig
        )
        assert (ended, problem) == (code, ""), (out, problem)
        return json.loads(out)["answers"]

    shop = east.new_address()
    async with echoes((shop, 8080, "shop")):
        await own_class(east, "of-route")
        await service(east, "web-asked", shop)
        await service(east, "web-idle")
        hosts = {"asked.example.com": {"/": "web-asked", "/idle": "web-idle", "/missing": "missing"}}
        await ingress(east, "of-route", "web-asked", hosts)
        client = await client_of(east, "web-asked")
        await answers(lambda: client.get("asked.example.com"), (200, "shop"))
        (row,) = await route("http://asked.example.com/a", "-H", "x: y")
        assert (row["member"], row["address"], row["outcome"]) == ("east", client.address, "Forwarded")
        assert row["originOfRoute"] == "Ingress default/web-asked"
        assert [(each["service"], each["ready"]) for each in row["backends"]] == [("default/web-asked", 1)]
        await explained(fleet, east, client.address)
        for path, status in (("/idle", 503), ("/missing", 500)):
            (row,) = await route(f"http://asked.example.com{path}", code=4)
            assert row["status"] == (await client.get("asked.example.com", path))[0] == status
        (row,) = await route("http://unknown.example.com/", "--address", client.address, code=4)
        assert row["status"] == (await client.get("unknown.example.com"))[0] == 404
        ended, out, _ = await run_fairlead("route", "GET", "http://asked.example.com/", "--kubeconfig", kubeconfig)
        assert ended == 0
        assert "Goes to a backend:" in out
        await no_ingresses(fleet, east, "of-route", "web-asked")
        for name in ("web-asked", "web-idle"):
            await east.delete(name)


@pytest.mark.req("X-31", "X-39")
async def test_an_ingress_whose_only_backend_is_dead_is_not_called_serving(fleet: Fleet) -> None:
    east, kubeconfig = fleet.members["east"], ("--kubeconfig", str(fleet.kubeconfig))
    shop, dead = east.new_address(), east.new_address()

    async def status() -> tuple[int, list[str]]:
        ended, out, _ = await run_fairlead("status", "-o", "json", *kubeconfig)
        return ended, [each for each in json.loads(out)["problems"] if each.startswith("Ingress east/default/web-dead")]

    async def needs_attention() -> bool:
        ended, problems = await status()
        return ended == 4 and len(problems) == 1 and "dead.example.com" in problems[0]

    async def well() -> bool:
        return (await status())[1] == []

    async def warned() -> bool:
        return "ServingStopped" in await east.events("web-dead") or "NotServing" in await east.events("web-dead")

    async def explained_as_well() -> bool:
        options = ("--kubeconfig", str(fleet.apis.kubeconfig("east")), "-o", "json")
        _, out, _ = await run_fairlead("explain", "ingress/web-dead", *options)
        events = json.loads(out)["events"]
        return events[-1]["reason"] == "EnsuredLoadBalancer" and all(each["type"] == "Normal" for each in events)

    async with echoes((shop, 8080, "shop")):
        await own_class(east, "of-dead")
        await service(east, "web-alive", shop)
        await service(east, "web-dead", dead)
        await ingress(east, "of-dead", "web-alive", {"alive.example.com": {"/": "web-alive"}})
        await ingress(east, "of-dead", "web-dead", {"dead.example.com": {"/": "web-dead"}})
        client = await client_of(east, "web-dead")
        await answers(lambda: client.get("alive.example.com"), (200, "shop"))
        await answers(lambda: client.get("dead.example.com"), (503, "no healthy upstream"))
        await wait_until(needs_attention, "status names the Ingress")
        await wait_until(warned, "the Ingress has a Warning")
        assert "ServingStopped" not in await east.events("web-alive")
        ended, out, _ = await run_fairlead("route", "GET", "http://dead.example.com/", "-o", "json", *kubeconfig)
        (row,) = json.loads(out)["answers"]
        assert (ended, row["status"]) == (4, 503)
        async with echoes((dead, 8080, "again")):
            await answers(lambda: client.get("dead.example.com"), (200, "again"))
            await wait_until(well, "status no longer names the Ingress")
            await wait_until(explained_as_well, "the Warning is over")
        for name in ("web-alive", "web-dead"):
            await east.cluster.delete(INGRESSES, "default", name)
        await no_ingresses(fleet, east, "of-dead")
        for name in ("web-alive", "web-dead"):
            await east.delete(name)


@pytest.mark.req("E-16", "GI-5", "GI-7", "GI-9", "G-43", "K-53")
async def test_https_a_rotated_certificate_and_pods_that_come_and_go(fleet: Fleet) -> None:
    east = fleet.members["east"]
    first, second = east.new_address(), east.new_address()
    async with echoes((first, 8080, "first")) as running:
        await own_class(east, "of-tls")
        await service(east, "web-tls", first)
        old = await certificate(east, "tls.example.com", "web-tls")
        default = {"service": {"name": "web-tls", "port": {"number": 80}}}
        tls = [{"hosts": ["tls.example.com"], "secretName": "web-tls"}]
        await ingress(
            east, "of-tls", "web-tls", {"tls.example.com": {"/x": "web-tls"}}, tls=tls, defaultBackend=default
        )
        client = await client_of(east, "web-tls")
        await answers(lambda: client.get_tls("tls.example.com", old, "/x"), (200, "first"))
        assert await client.get_tls("tls.example.com", old, "/elsewhere") == (200, "first")
        assert await client.get("any.example.com") == (200, "first")
        # Without a server name, or with one that has no Secret, Envoy shows the fallback certificate.
        for name in (None, "unknown.example.com"):
            assert b"fallback.fairlead.invalid" in await client.certificate(name)
        assert b"tls.example.com" in await client.certificate("tls.example.com")
        new = await certificate(east, "tls.example.com", "web-tls")
        await answers(lambda: client.get_tls("tls.example.com", new, "/x"), (200, "first"))
        await answers(lambda: client.get_tls("tls.example.com", old, "/x"), (0, ""))
        running.append(await Echo(second, 8080, "second").start())
        await east.endpoints("web-tls", 8080, second)
        await answers(lambda: client.get_tls("tls.example.com", new, "/x"), (200, "second"))
        await service(east, "web-empty")
        await ingress(east, "of-tls", "web-empty", {"empty.example.com": {"/": "web-empty", "/none": "missing"}})
        await answers(lambda: client.get("empty.example.com"), (503, "no healthy upstream"))
        assert (await client.get("empty.example.com", "/none"))[0] == 500
        await no_ingresses(fleet, east, "of-tls", "web-tls", "web-empty")
        for name in ("web-tls", "web-empty"):
            await east.delete(name)
        await east.cluster.delete(SECRETS, "default", "web-tls")


@pytest.mark.req("F-10")
async def test_backends_that_ask_for_a_client_certificate_are_reached_over_tls(fleet: Fleet, tmp_path: Path) -> None:
    east = fleet.members["east"]
    pod, client_pair, server_pair = east.new_address(), self_signed("client"), self_signed("web.internal")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name, part in zip(("chain", "key"), server_pair, strict=True):
        (tmp_path / name).write_bytes(part)
    context.load_cert_chain(tmp_path / "chain", tmp_path / "key")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=client_pair[0].decode())
    backend = await Echo(pod, 8080, "over tls", tls=context).start()
    await own_class(east, "of-mtls")
    await service(east, "mtls", pod)
    try:
        await ingress(east, "of-mtls", "mtls", {"mtls.example.com": {"/": "mtls"}})
        client = await client_of(east, "mtls")
        request = json.dumps({"hostname": "web.internal", "secret": "mtls"})
        patch = {"metadata": {"annotations": {ANNOTATION_BACKEND_TLS: request}}}
        await east.cluster.merge_patch(INGRESSES, "default", "mtls", patch, manager="user")
        # Without the Secret there is no request in plain text.
        await answers(lambda: client.get("mtls.example.com"), (500, ""))
        entries = {"tls.crt": client_pair[0], "tls.key": client_pair[1], "ca.crt": server_pair[0]}
        data = {name: base64.b64encode(part).decode() for name, part in entries.items()}
        body = {"metadata": {"name": "mtls", "namespace": "default"}, "type": "kubernetes.io/tls", "data": data}
        await east.cluster.apply(SECRETS, body, manager="user")
        await answers(lambda: client.get("mtls.example.com"), (200, "over tls"))
        annotations = {ANNOTATION_BACKEND_TLS: request, ANNOTATION_TARGET: "Pod"}
        await east.service("mtls-l4", {"port": 80, "targetPort": 8080}, annotations=annotations)
        await east.endpoints("mtls-l4", 8080, pod)
        connections = HttpClient(await east.address("mtls-l4"))
        await answers(lambda: connections.get("mtls.example.com"), (200, "over tls"))
        data["ca.crt"] = base64.b64encode(self_signed("web.internal")[0]).decode()
        await east.cluster.apply(SECRETS, body, manager="user")
        # New connections trust the new authorities alone.
        await answers(lambda: status_of(client, "mtls.example.com"), (503, ""))
    finally:
        await no_ingresses(fleet, east, "of-mtls", "mtls")
        await east.delete("mtls")
        await east.delete("mtls-l4")
        await east.cluster.delete(SECRETS, "default", "mtls")
        await backend.stop()


async def status_of(client: HttpClient, host: str) -> tuple[int, str]:
    return (await client.get(host))[0], ""


@pytest.mark.req("K-38", "E-19")
async def test_a_service_that_only_pods_reach_is_reached_by_the_nodes_of_its_member(fleet: Fleet) -> None:
    """The nodes are the backends in this member: a copy of the Service opens a port at each of them."""
    west = fleet.members["west"]
    node = west.new_address()
    await own_class(west, "of-nodes")
    spec = {"type": "ClusterIP", "ports": [{"port": 80, "targetPort": 8080}], "selector": {"app": "inside"}}
    meta = {"name": "inside", "namespace": "default"}
    await west.cluster.apply(SERVICES, {"metadata": meta, "spec": spec}, manager="user")
    await ingress(west, "of-nodes", "inside", {"inside.example.com": {"/": "inside"}})

    async def copied() -> bool:
        return any(
            each.metadata.name == "inside-fairlead-nodes" for each in await west.cluster.list(SERVICES, "default")
        )

    await wait_until(copied, "the copy of the Service is there")
    port = (await west.get("inside-fairlead-nodes")).spec.ports[0].node_port
    async with echoes((node, port, "inside")):
        await west.node("inside-node", node)
        client = await client_of(west, "inside")
        await answers(lambda: client.get("inside.example.com"), (200, "inside"))
    assert (await west.get("inside")).spec.type == "ClusterIP"
    await no_ingresses(fleet, west, "of-nodes", "inside")

    async def gone() -> bool:
        return not await copied()

    await wait_until(gone, "nothing needs the copy any more")
    await no_nodes(west, "inside-node")
    await west.delete("inside")


@pytest.mark.req("GI-7", "K-31", "I-6")
async def test_a_hub_that_starts_again_with_many_tls_hosts_closes_none_of_their_listeners(fleet: Fleet) -> None:
    """The hub reads certificates one by one: until it has them, the proxies keep what they have."""
    east = fleet.members["east"]
    pod = east.new_address()
    hosts = [f"h{number}.many.example.com" for number in range(50)]
    chain, key = self_signed("*.many.example.com")
    data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}
    async with echoes((pod, 8080, "many")):
        await own_class(east, "of-many")
        await service(east, "many", pod)
        for host in hosts:
            body = {"metadata": {"name": host, "namespace": "default"}, "type": "kubernetes.io/tls", "data": data}
            await east.cluster.apply(SECRETS, body, manager="user")
        tls = [{"hosts": [host], "secretName": host} for host in hosts]
        await ingress(east, "of-many", "many", {host: {"/": "many"} for host in hosts}, tls=tls)
        client = await client_of(east, "many")
        for host in hosts:
            await answers(lambda host=host: client.get_tls(host, chain), (200, "many"))
        before = await _listener_changes(fleet)
        seen: Counter[tuple[int, str]] = Counter()

        async def ask() -> None:
            for host in itertools.cycle(hosts):
                seen[await client.get_tls(host, chain)] += 1

        asking = asyncio.create_task(ask())
        try:
            await fleet.hub.kill()
            await fleet.hub.start_ready()

            async def connected() -> bool:
                return await fleet.hub.metric("fairlead_xds_streams") == 1

            await wait_until(connected, "Envoy is back at the hub")
            asked = seen.total()

            async def more() -> bool:
                return asking.done() or seen.total() >= asked + len(hosts)

            await wait_until(more, "every host was asked after that")
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        assert set(seen) == {(200, "many")}, seen
        assert await changes_of_envoy(fleet) == 0
        assert await _listener_changes(fleet) == before
        await no_ingresses(fleet, east, "of-many", "many")
        await east.delete("many")
        for host in hosts:
            await east.cluster.delete(SECRETS, "default", host)


async def _listener_changes(fleet: Fleet) -> list[str]:
    """Return how many listeners Envoy has added, changed and removed since it was started."""
    page = await fleet.hub.envoy_page("/stats?filter=listener_manager.listener_(added|modified|removed)")
    return sorted(page.split("\n"))


@pytest.mark.req("F-18", "F-19")
async def test_an_ingress_asks_a_service_within_the_limits_of_its_class(fleet: Fleet) -> None:
    east = fleet.members["east"]
    shop, auth = east.new_address(), east.new_address()
    limits = {ANNOTATION_LIMITS: json.dumps({"requestsPerSecond": 1000, "burst": 1000, "key": "client"})}
    asked = {ANNOTATION_EXTERNAL_AUTH: json.dumps({"service": "guard", "port": 80, "path": "/check"})}

    async def of_class(annotations: dict[str, str]) -> None:
        meta, spec = {"name": "asked", "annotations": annotations}, {"controller": INGRESS_CONTROLLER}
        await east.cluster.apply(INGRESS_CLASSES, {"metadata": meta, "spec": spec}, manager="user")

    async with echoes((shop, 8080, "shop")):
        async with echoes((auth, 8080, "who are you?")) as (guard,):
            await of_class(limits)
            await service(east, "guarded", shop)
            await service(east, "guard", auth)
            await ingress(east, "asked", "guarded", {"guarded.example.com": {"/": "guarded"}})
            client = await client_of(east, "guarded")
            await answers(lambda: client.get("guarded.example.com"), (200, "shop"))
            patch = {"metadata": {"name": "guarded", "namespace": "default", "annotations": asked}}
            await east.cluster.apply(INGRESSES, patch, manager="user-of-auth")
            guard.status = "401 Unauthorized"
            await answers(lambda: client.get("guarded.example.com"), (401, "who are you?"))
            guard.status = "200 OK"
            await answers(lambda: client.get("guarded.example.com"), (200, "shop"))
        # The service is gone: nothing reaches the backend.

        async def closed() -> bool:
            return (await client.get("guarded.example.com"))[0] == 503

        await wait_until(closed, "requests are refused without the service")
        limits = {ANNOTATION_LIMITS: json.dumps({"requestsPerSecond": 1})}
        await of_class(limits)

        async def limited() -> bool:
            return 429 in [(await client.get("guarded.example.com"))[0] for _ in range(5)]

        await wait_until(limited, "requests above the limit are refused")
        await no_ingresses(fleet, east, "asked", "guarded")
