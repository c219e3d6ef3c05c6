"""Routes of one member to Services that others export: real agents, a real hub and Envoy, real requests."""

from __future__ import annotations

from collections import Counter

import pytest

from fairlead.api.gateway import GATEWAYS, HTTP_ROUTES, TCP_ROUTES
from fairlead.api.kubernetes import CRDS, SERVICES
from fairlead.api.meta import JSONObject
from fairlead.api.multicluster import MULTICLUSTER_VERSIONS, SERVICE_EXPORTS, SERVICE_IMPORTS
from fairlead.api.tenant import TENANTS
from fairlead.errors import NotFound, NotServed
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import run_fairlead, wait_until
from fairlead_demo.worlds.web import gateway_address, put, put_class
from tests.e2e.e2e_backends import ask, echoes
from tests.e2e.e2e_http import HttpClient, answers, service
from tests.e2e.e2e_own import no_web
from tests.scenario.multicluster.multicluster_world import definition

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.envoy,
    pytest.mark.skipif(
        service_port(80) != 80, reason="a Gateway is served at ports 80 and 443, which this user may not open"
    ),
]
LISTENERS = ({"name": "http", "port": 80, "protocol": "HTTP"}, {"name": "tcp", "port": 9000, "protocol": "TCP"})
HOST = "set.example.com"
IMPORT: JSONObject = {"group": SERVICE_IMPORTS.group, "kind": SERVICE_IMPORTS.kind, "name": "set-web", "port": 80}


async def with_kinds_of_the_standard(fleet: Fleet, member: Member) -> None:
    """Put a member into the cluster set."""
    for kind in (SERVICE_EXPORTS, SERVICE_IMPORTS):
        await member.cluster.apply(CRDS, definition(kind, MULTICLUSTER_VERSIONS), manager="admin")

    async def served() -> bool:
        try:
            await member.cluster.list(SERVICE_EXPORTS)
            await member.cluster.list(SERVICE_IMPORTS)
        except (NotFound, NotServed):
            return False
        return True

    await wait_until(served, f"the kinds of the standard are served in {member.name}")
    spec: JSONObject = {"spec": {"clusterSet": "prod", "reachability": "Pods"}}
    await fleet.cluster.merge_patch(TENANTS, "", member.name, spec, manager="operator")


async def counted(client: HttpClient, requests: int) -> Counter[str]:
    """Return how many of so many requests each backend answered; another answer counts as its status."""
    answered = Counter[str]()
    for _ in range(requests):
        status, body = await client.get(HOST)
        answered[body if status == 200 else str(status)] += 1
    return answered


@pytest.mark.req("MC-7", "MC-1", "GM-7")
async def test_routes_reach_exactly_the_members_that_export(fleet: Fleet) -> None:
    east, west = fleet.members["east"], fleet.members["west"]
    pods = {"east": east.new_address(), "west": west.new_address(), "local": east.new_address()}
    async with echoes(*((pod, 8080, name) for name, pod in pods.items())):
        for member in (east, west):
            await with_kinds_of_the_standard(fleet, member)
            await service(member, "set-web", pods[member.name])
        await service(east, "set-local", pods["local"])
        await put_class(east, GATEWAYS)
        await put(east, GATEWAYS, "set-gw", {"gatewayClassName": "fairlead", "listeners": list(LISTENERS)})
        await put(west, SERVICE_EXPORTS, "set-web", {})
        to_import = {"parentRefs": [{"name": "set-gw", "sectionName": "http"}], "hostnames": [HOST]}
        await put(east, HTTP_ROUTES, "set-http", {**to_import, "rules": [{"backendRefs": [IMPORT]}]})
        raw = {"parentRefs": [{"name": "set-gw", "sectionName": "tcp"}], "rules": [{"backendRefs": [IMPORT]}]}
        await put(east, TCP_ROUTES, "set-raw", raw)
        client = HttpClient(await gateway_address(east, "set-gw"))
        # East has a Service of this name, too, and does not export it.
        await answers(lambda: client.get(HOST), (200, "west"))
        assert await counted(client, 20) == Counter(west=20)

        async def raw_answers() -> bool:
            return await ask(client.address, 9000) == "west"

        await wait_until(raw_answers, "the TCPRoute leads to the import")

        async def listed() -> bool:
            _, out, _ = await run_fairlead("status", "--kubeconfig", str(fleet.kubeconfig))
            rows = [line.split()[1:] for line in out.splitlines() if line.startswith("default/set-web")]
            return rows == [["prod", "west", "east,", "west", "Exported"]]

        await wait_until(listed, "status lists the exported Service")

        await put(east, SERVICE_EXPORTS, "set-web", {})
        await wait_until(lambda: both(client), "both members answer")
        # Weights of backendRefs are exact, however many members are behind one of them.
        refs = [{**IMPORT, "weight": 1}, {"name": "set-local", "port": 80, "weight": 1}]
        await put(east, HTTP_ROUTES, "set-http", {**to_import, "rules": [{"backendRefs": refs}]})
        await wait_until(lambda: answered_by(client, "local"), "the other backend answers, too")
        shares = await counted(client, 200)
        assert shares.keys() == {"east", "west", "local"}
        assert 60 <= shares["local"] <= 140, shares
        await put(east, HTTP_ROUTES, "set-http", {**to_import, "rules": [{"backendRefs": [IMPORT]}]})

        await west.cluster.delete(SERVICE_EXPORTS, "default", "set-web")
        await wait_until(lambda: only(client, "east"), "only the member that still exports answers")
        await east.cluster.delete(SERVICE_EXPORTS, "default", "set-web")
        await wait_until(lambda: only(client, "500"), "no member exports any longer")
    for kind, name in ((HTTP_ROUTES, "set-http"), (TCP_ROUTES, "set-raw"), (GATEWAYS, "set-gw")):
        await east.cluster.delete(kind, "default", name)
    await no_web(fleet, east, "gateway.default.set-gw")
    for member, name in ((east, "set-web"), (east, "set-local"), (west, "set-web")):
        await member.cluster.delete(SERVICES, "default", name)
    for member in (east, west):
        spec: JSONObject = {"spec": {"clusterSet": None, "reachability": None}}
        await fleet.cluster.merge_patch(TENANTS, "", member.name, spec, manager="operator")


async def both(client: HttpClient) -> bool:
    return (await counted(client, 20)).keys() == {"east", "west"}


async def answered_by(client: HttpClient, name: str) -> bool:
    return name in await counted(client, 10)


async def only(client: HttpClient, name: str) -> bool:
    return (await counted(client, 10)).keys() == {name}
