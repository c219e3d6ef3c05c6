"""A Gateway of a member cluster gets traffic through the hub's Envoy: HTTP, HTTPS and TCP, with real processes."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from fairlead.api.gateway import GATEWAY_CLASSES, GATEWAYS, HTTP_ROUTES, TCP_ROUTES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import SECRETS
from fairlead.api.names import GATEWAY_CONTROLLER
from fairlead.kube.discovery import install_crds
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import run_fairlead, wait_until
from fairlead_demo.worlds.web import certificate, gateway_address, put
from podless.offline import gateway_definitions
from tests.e2e.e2e_backends import echoes
from tests.e2e.e2e_http import HttpClient, answers, service
from tests.e2e.e2e_own import no_web

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.envoy,
    pytest.mark.skipif(
        service_port(80) != 80, reason="a Gateway is served at ports 80 and 443, which this user may not open"
    ),
]
LISTENERS = (
    {"name": "http", "port": 80, "protocol": "HTTP"},
    {
        "name": "https",
        "port": 443,
        "protocol": "HTTPS",
        "hostname": "shop.example.com",
        "tls": {"mode": "Terminate", "certificateRefs": [{"name": "gw-cert"}]},
    },
    {"name": "tcp", "port": 9000, "protocol": "TCP"},
)
#: The objects of this test by their kinds; other tests have others.
ROUTES = {GATEWAYS.kind: ("gw-web",), HTTP_ROUTES.kind: ("gw-shop", "gw-more", "gw-last"), TCP_ROUTES.kind: ("gw-raw",)}


async def http_route(
    member: Member, weights: Mapping[str, int], *, name: str = "gw-shop", host: str = "shop.example.com"
) -> None:
    """Write an HTTPRoute that shares the requests by weight."""
    spec = {
        "parentRefs": [{"name": "gw-web", "sectionName": section} for section in _sections(host)],
        "hostnames": [host],
        "rules": [{"backendRefs": [{"name": to, "port": 80, "weight": weight} for to, weight in weights.items()]}],
    }
    await put(member, HTTP_ROUTES, name, spec)


def _sections(host: str) -> tuple[str, ...]:
    """Return the listeners that take a host: that of HTTPS has one of its own."""
    return ("http", "https") if host == "shop.example.com" else ("http",)


async def explained(fleet: Fleet, member: Member, address: str) -> None:
    """Explain the Gateway and its route as people type it: at the hub by the load balancer, at the member by status."""
    at_member = ("--kubeconfig", str(fleet.apis.kubeconfig(member.name)))
    for subject in ("gateway/gw-web", "httproute/gw-shop"):
        ended, out, problem = await run_fairlead("explain", subject, "--kubeconfig", str(fleet.kubeconfig))
        assert (ended, problem) == (0, ""), (out, problem)
        assert out.startswith("HTTPLoadBalancer/tenant-east/")
    _, out, _ = await run_fairlead("explain", "gateway/gw-web", *at_member)
    assert out.startswith(f"Gateway default/gw-web: class fairlead, address {address}\n")
    assert "Programmed" in out
    _, out, _ = await run_fairlead("explain", "httproute/gw-shop", *at_member, "-o", "json")
    row = json.loads(out)
    accepted = {(each["parent"], each["status"]) for each in row["conditions"] if each["type"] == "Accepted"}
    assert accepted == {("gw-web", "True")}
    assert "attached to gw-web by its reference: fairlead explain gateway/gw-web -n default" in row["notes"]


async def partly_invalid(member: Member, client: HttpClient) -> None:
    """Rules that the proxies cannot have answer 500, the others serve, and the route's status says which they are."""

    def headers(name: str) -> dict[str, object]:
        change = {"set": [{"name": name, "value": "0"}]}
        return {"type": "RequestHeaderModifier", "requestHeaderModifier": change}

    path = {"type": "ReplaceFullPath", "replaceFullPath": "/x HTTP/1.1"}
    filters = {
        "host": headers("Host"),
        "length": headers("Content-Length"),
        "rewrite": {"type": "URLRewrite", "urlRewrite": {"path": path}},
    }
    to_shop = [{"name": "gw-shop", "port": 80}]

    def rule(name: str, *of: object) -> dict[str, object]:
        return {"matches": [{"path": {"value": f"/{name}"}}], "filters": list(of), "backendRefs": to_shop}

    regex = {"matches": [{"path": {"type": "RegularExpression", "value": "/a(?=b)"}}], "backendRefs": to_shop}
    rules = [*(rule(name, change) for name, change in filters.items()), regex, rule("good")]
    spec = {"parentRefs": [{"name": "gw-web", "sectionName": "http"}], "hostnames": ["partly.example.com"]}
    await put(member, HTTP_ROUTES, "gw-partly", {**spec, "rules": rules})
    await answers(lambda: client.get("partly.example.com", "/good"), (200, "shop"))
    for name in filters:
        assert (await client.get("partly.example.com", f"/{name}"))[0] == 500

    async def conditions() -> dict[str, tuple[str, str]]:
        parents = (await member.cluster.get(HTTP_ROUTES, "default", "gw-partly")).status.parents or []
        return {each.type: (each.status, each.message) for entry in parents for each in entry.conditions or ()}

    async def reported() -> bool:
        return "PartiallyInvalid" in await conditions()

    await wait_until(reported, "the route says which rules are refused")
    shown = await conditions()
    assert shown["Accepted"][0] == "True"
    status, message = shown["PartiallyInvalid"]
    assert status == "True"
    assert all(part in message for part in ("rule 1", "rule 2", "Content-Length", "rule 3", "rule 4"))
    await member.cluster.delete(HTTP_ROUTES, "default", "gw-partly")
    await answers(lambda: client.get("partly.example.com", "/good"), (404, ""))


@pytest.mark.req("K-36", "K-41", "K-43", "K-46", "G-16", "G-22", "G-61", "L7-1", "L7-2", "L7-8")
async def test_a_gateway_serves_http_https_and_tcp_and_follows_its_routes(fleet: Fleet) -> None:
    """The kinds are installed while the agent runs; routes change; the agent is killed; the Gateway goes."""
    east = fleet.members["east"]
    shop, canary = east.new_address(), east.new_address()
    async with echoes((shop, 8080, "shop"), (canary, 8080, "canary")):
        await service(east, "gw-shop", shop)
        await service(east, "gw-canary", canary)
        assert await install_crds(east.cluster, gateway_definitions(), "user") == []
        chain = await certificate(east, "shop.example.com", "gw-cert")
        await put(east, GATEWAY_CLASSES, "fairlead", {"controllerName": GATEWAY_CONTROLLER})
        await put(east, GATEWAYS, "gw-web", {"gatewayClassName": "fairlead", "listeners": list(LISTENERS)})
        await http_route(east, {"gw-shop": 1})
        tcp = {"parentRefs": [{"name": "gw-web"}], "rules": [{"backendRefs": [{"name": "gw-canary", "port": 80}]}]}
        await put(east, TCP_ROUTES, "gw-raw", tcp)
        client = HttpClient(await gateway_address(east, "gw-web"))
        await answers(lambda: client.get("shop.example.com"), (200, "shop"))
        await answers(lambda: client.get_tls("shop.example.com", chain), (200, "shop"))
        await answers(lambda: client.get("any.example.com", port=9000), (200, "canary"))
        assert (await client.get("unknown.example.com"))[0] == 404
        # A changed weight counts, and then a route next to it.
        await http_route(east, {"gw-shop": 0, "gw-canary": 1})
        await answers(lambda: client.get("shop.example.com"), (200, "canary"))
        await http_route(east, {"gw-shop": 1}, name="gw-more", host="more.example.com")
        await answers(lambda: client.get("more.example.com"), (200, "shop"))
        await attached(east, 2)
        await statuses_are_current(east)
        await explained(fleet, east, client.address)
        await partly_invalid(east, client)
        # Killed and started again the agent changes nothing at the hub, nor in the member.
        before = await versions(fleet, east)
        await east.agent.kill()
        await east.agent.start()
        await http_route(east, {"gw-shop": 1}, name="gw-last", host="last.example.com")
        await answers(lambda: client.get("last.example.com"), (200, "shop"))
        after = await versions(fleet, east)
        assert {name: after.get(name) for name in before if name != "Gateway gw-web"} == {
            name: version for name, version in before.items() if name != "Gateway gw-web"
        }
        # A deleted Gateway takes everything along, and its address answers no more.
        await east.cluster.delete(GATEWAYS, "default", "gw-web")
        await answers(lambda: client.get("shop.example.com"), (0, ""))

        async def nothing() -> bool:
            return not await versions(fleet, east, routes_only=True)

        await wait_until(nothing, "the hub has no route of the Gateway any more")
        for name in ROUTES[HTTP_ROUTES.kind]:
            await east.cluster.delete(HTTP_ROUTES, "default", name)
        await east.cluster.delete(TCP_ROUTES, "default", "gw-raw")
        await no_web(fleet, east, "gateway.default.gw-web")
        for name in ("gw-shop", "gw-canary"):
            await east.delete(name)
        await east.cluster.delete(SECRETS, "default", "gw-cert")


async def attached(member: Member, routes: int) -> None:
    """Wait until the HTTP listener of the Gateway has this many routes."""

    async def counted() -> bool:
        shown = await member.cluster.get(GATEWAYS, "default", "gw-web")
        return [each.attached_routes for each in shown.status.listeners or () if each.name == "http"] == [routes]

    await wait_until(counted, f"{routes} routes are attached")


async def statuses_are_current(member: Member) -> None:
    """Wait until every route shows what became of its present version."""

    async def current() -> bool:
        there = [
            each
            for kind in (HTTP_ROUTES, TCP_ROUTES)
            for each in await member.cluster.list(kind, "default")
            if each.metadata.name in ROUTES[kind.kind]
        ]
        return all(
            {condition.observed_generation for entry in each.status.parents or () for condition in entry.conditions}
            == {each.metadata.generation}
            for each in there
        )

    await wait_until(current, "all routes have a current status")


async def versions(fleet: Fleet, member: Member, *, routes_only: bool = False) -> dict[str, str]:
    """Return the resourceVersions of what is published for Gateway API, and of what users see."""
    published = await fleet.cluster.list(LOAD_BALANCER_ROUTES, f"tenant-{member.name}")
    ours = [each for each in published if each.spec.origin.name in ROUTES.get(each.spec.origin.kind, ())]
    shown = {f"at hub {each.metadata.name}": each.metadata.resource_version for each in ours}
    if routes_only:
        return shown
    for each in await fleet.cluster.list(HTTP_LOAD_BALANCERS, f"tenant-{member.name}"):
        # The hub counts routes in its status: the generation is that of the spec, which the agent writes.
        if each.metadata.name == "gateway.default.gw-web":
            shown[f"at hub {each.metadata.name}"] = str(each.metadata.generation)
    for kind in (GATEWAYS, HTTP_ROUTES, TCP_ROUTES):
        for each in await member.cluster.list(kind, "default"):
            if each.metadata.name not in ROUTES[kind.kind]:
                continue
            shown[f"{kind.kind} {each.metadata.name}"] = each.metadata.resource_version
    return shown
