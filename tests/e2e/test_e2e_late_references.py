"""A Secret or a ReferenceGrant that comes late is one change of each kind at Envoy, whatever waits for it."""

from __future__ import annotations

import asyncio
import base64

import pytest

from fairlead.api.gateway import GATEWAY_CLASSES, GATEWAYS, HTTP_ROUTES, REFERENCE_GRANTS
from fairlead.api.kubernetes import NAMESPACES, SECRETS
from fairlead.api.names import GATEWAY_CONTROLLER
from fairlead.kube.discovery import install_crds
from fairlead_demo.worlds.certificates import self_signed
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.web import gateway_address, put
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
HOST = "late.example.com"
KINDS = ("listener", "routes", "secret", "cluster", "endpoints")


async def grant(member: Member, elsewhere: str) -> None:
    """Let Gateways of the namespace default name the Secret."""
    spec = {
        "from": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "default"}],
        "to": [{"group": "", "kind": "Secret", "name": "late-tls"}],
    }
    body = {"metadata": {"name": "late", "namespace": elsewhere}, "spec": spec}
    await member.cluster.apply(REFERENCE_GRANTS, body, manager="user")


async def secret(member: Member, elsewhere: str) -> bytes:
    """Write the Secret; return its certificate."""
    chain, key = self_signed(HOST)
    data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}
    body = {"metadata": {"name": "late-tls", "namespace": elsewhere}, "type": "kubernetes.io/tls", "data": data}
    await member.cluster.apply(SECRETS, body, manager="user")
    return chain


async def pushes(fleet: Fleet) -> dict[str, float]:
    """Return how many responses changed something at Envoy, by kind."""
    name = "fairlead_xds_changing_pushes_total"
    return {kind: await fleet.hub.metric(name, f'type="{kind}"') for kind in KINDS}


@pytest.mark.req("K-53")
@pytest.mark.parametrize("last", ["Secret", "ReferenceGrant"])
async def test_what_comes_late_is_one_push_of_each_kind(fleet: Fleet, last: str) -> None:
    # A namespace of its own for each: the real API takes its time to delete one.
    east, elsewhere = fleet.members["east"], f"late-{last.lower()}"
    pod = east.new_address()
    async with echoes((pod, 8080, "late")):
        assert not await install_crds(east.cluster, gateway_definitions(), "admin")
        await east.namespace(elsewhere)
        await put(east, GATEWAY_CLASSES, "fairlead", {"controllerName": GATEWAY_CONTROLLER})
        await service(east, "late", pod)
        tls = {"certificateRefs": [{"name": "late-tls", "namespace": elsewhere}]}
        listeners = [
            {"name": "http", "port": 80, "protocol": "HTTP"},
            {"name": "https", "port": 443, "protocol": "HTTPS", "hostname": HOST, "tls": tls},
        ]
        await put(east, GATEWAYS, "late", {"gatewayClassName": "fairlead", "listeners": listeners})
        rules = [{"backendRefs": [{"name": "late", "port": 80}]}]
        await put(east, HTTP_ROUTES, "late", {"parentRefs": [{"name": "late"}], "rules": rules})
        chain = await secret(east, elsewhere) if last == "ReferenceGrant" else b""
        if last == "Secret":
            await grant(east, elsewhere)
        client = HttpClient(await gateway_address(east, "late"))
        await answers(lambda: client.get(HOST), (200, "late"))
        await asyncio.sleep(2)  # what came with the Gateway has been pushed
        before = await pushes(fleet)
        chain = chain or await secret(east, elsewhere)
        if last == "ReferenceGrant":
            await grant(east, elsewhere)
        await answers(lambda: client.get_tls(HOST, chain), (200, "late"))
        await asyncio.sleep(2)  # what else it would push
        more = {kind: number - before[kind] for kind, number in (await pushes(fleet)).items()}
        assert more == {"listener": 1, "routes": more["routes"], "secret": 1, "cluster": 0, "endpoints": 0}
        assert more["routes"] <= 1
        for kind in (GATEWAYS, HTTP_ROUTES):
            await east.cluster.delete(kind, "default", "late")
        await no_web(fleet, east, "gateway.default.late")
    await east.delete("late")
    await east.cluster.delete(REFERENCE_GRANTS, elsewhere, "late")
    await east.cluster.delete(SECRETS, elsewhere, "late-tls")
    await east.cluster.delete(NAMESPACES, "", elsewhere)
