"""cert-manager's own controllers in a member, issuing from Pebble through our Envoy: they know nothing of Fairlead.

Both are built with Go on request (`make test-acme`); without them this test is left out.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml
from aiohttp import web

from conformance import certmanager
from conformance.pebble import why_not as why_no_pebble
from fairlead.api.kubernetes import INGRESSES, PODS, SECRETS, SERVICES
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES
from fairlead.api.meta import KubeObject, Resource
from fairlead.errors import NotFound
from fairlead.kube.discovery import install_crds
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import Child, wait_until
from fairlead_demo.worlds.web import ingress_address, put
from podless.offline import gateway_definitions
from tests.contract.acme.acme_pebble import Pebble
from tests.e2e.e2e_backends import echoes
from tests.e2e.e2e_http import HttpClient, answers, service
from tests.e2e.e2e_own import no_ingresses, own_class

_WHY_NOT = certmanager.why_not() or why_no_pebble()
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.envoy,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "-"),
    pytest.mark.skipif(service_port(80) != 80, reason="an authority looks at port 80, which this user may not open"),
]
OURS, HOST = "of-cert-manager", "managed.example.com"
ISSUERS: Resource[KubeObject] = Resource("cert-manager.io", "v1", "Issuer", "issuers", True, KubeObject)
CERTIFICATES: Resource[KubeObject] = Resource("cert-manager.io", "v1", "Certificate", "certificates", True, KubeObject)
_SOLVER = "acme.cert-manager.io/http01-solver=true"
_SOLVER_PORT = 8089


class SolverPods:
    """The kubelet of solver pods: each runs here, at an address of its own, and is an endpoint of its Service."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._running: dict[str, web.AppRunner] = {}

    async def look(self) -> None:
        """Start what cert-manager has asked for."""
        cluster = self._member.cluster
        for pod in await cluster.list(PODS, "default", label_selector=_SOLVER):
            if pod.metadata.name in self._running or pod.deleting:
                continue
            raw = msgspec.json.decode(await cluster.raw("GET", PODS.path("default", pod.metadata.name)))
            given = dict(each.lstrip("-").split("=", 1) for each in raw["spec"]["containers"][0]["args"])
            address = self._member.new_address()
            self._running[pod.metadata.name] = await _answering(address, given["token"], given["key"])
            ready = [{"type": "Ready", "status": "True"}]
            status = {"status": {"phase": "Running", "podIP": address, "conditions": ready}}
            await cluster.merge_patch(PODS, "default", pod.metadata.name, status, subresource="status")
            for each in await cluster.list(SERVICES, "default", label_selector=_SOLVER):
                await self._member.endpoints(each.metadata.name, _SOLVER_PORT, address, port_name="http")

    async def close(self) -> None:
        for runner in self._running.values():
            await runner.cleanup()


async def _answering(address: str, token: str, key: str) -> web.AppRunner:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=key)

    app = web.Application()
    app.router.add_get(f"/.well-known/acme-challenge/{token}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, address, _SOLVER_PORT).start()
    return runner


@pytest_asyncio.fixture(loop_scope="session")
async def pebble() -> AsyncIterator[Pebble]:
    with tempfile.TemporaryDirectory(prefix="fl-pebble-") as name:
        server = Pebble(Path(name), http_port=80)
        try:
            await server.start()
            yield server
        finally:
            await server.close()


def _absolute(kubeconfig: Path, copy: Path) -> Path:
    """Write a copy that names files by their whole paths: cert-manager reads others from where it was started."""
    config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    for cluster in (each["cluster"] for each in config["clusters"]):
        if authority := cluster.get("certificate-authority"):
            cluster["certificate-authority"] = str(kubeconfig.parent / authority)
    copy.write_text(yaml.safe_dump(config), encoding="utf-8")
    return copy


@pytest_asyncio.fixture(loop_scope="session")
async def east(fleet: Fleet, pebble: Pebble) -> AsyncIterator[Member]:
    """Member east with cert-manager, as its user has installed it."""
    member = fleet.members["east"]
    definitions: list[Any] = [yaml.safe_load(each.read_text(encoding="utf-8")) for each in certmanager.definitions()]
    assert await install_crds(member.cluster, [*gateway_definitions(), *definitions], "helm") == []
    program = str(certmanager.directory() / certmanager.PROGRAM)
    kubeconfig = _absolute(fleet.apis.kubeconfig("east"), fleet.directory / "cert-manager.kubeconfig")
    options = ("--kubeconfig", str(kubeconfig), "--nameserver", pebble.dns_server)
    child = Child("cert-manager", [program, *options], log=fleet.directory / "cert-manager.log")
    await child.start()
    try:
        yield member
    finally:
        await child.kill()


async def ingress(member: Member) -> None:
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "managed", "port": {"number": 80}}}}
    body = {
        "metadata": {"name": "managed", "namespace": "default", "annotations": {"cert-manager.io/issuer": "pebble"}},
        "spec": {
            "ingressClassName": OURS,
            "rules": [{"host": HOST, "http": {"paths": [path]}}],
            "tls": [{"hosts": [HOST], "secretName": "managed-tls"}],
        },
    }
    await member.cluster.apply(INGRESSES, body, manager="user")


@pytest.mark.req("K-53")
async def test_cert_manager_issues_for_an_ingress_through_the_proxies(
    fleet: Fleet, east: Member, pebble: Pebble
) -> None:
    pod, pods = east.new_address(), SolverPods(east)
    acme = {
        "server": pebble.url,
        "caBundle": base64.b64encode(pebble.bundle.encode()).decode(),
        "privateKeySecretRef": {"name": "pebble-account"},
        "solvers": [{"http01": {"ingress": {"ingressClassName": OURS, "serviceType": "ClusterIP"}}}],
    }
    try:
        async with echoes((pod, 8080, "managed")):
            await own_class(east, OURS)
            await service(east, "managed", pod)
            await ingress(east)
            client = HttpClient(await ingress_address(east, "managed"))
            await pebble.record("add-a", host=f"{HOST}.", addresses=[client.address])
            await put(east, ISSUERS, "pebble", {"acme": acme})

            async def issued() -> bool:
                await pods.look()
                try:
                    return bool((await east.cluster.get(SECRETS, "default", "managed-tls")).data)
                except NotFound:
                    return False

            await wait_until(issued, "cert-manager has written the Secret", timeout_s=300)
            root = await pebble.root()
            await answers(lambda: client.get_tls(HOST, root), (200, "managed"))
            # The hub was asked for nothing.
            there = await fleet.cluster.list(MANAGED_CERTIFICATES, "tenant-east")
            assert not any(HOST in each.spec.hosts for each in there)

            async def solved() -> bool:
                there = await east.cluster.list(INGRESSES, "default")
                return [each.metadata.name for each in there if each.spec.ingress_class_name == OURS] == ["managed"]

            await wait_until(solved, "the Ingress of the solver is gone")
            await east.cluster.delete(ISSUERS, "default", "pebble")
            await no_ingresses(fleet, east, OURS, "managed")
    finally:
        await pods.close()
    await east.cluster.delete(CERTIFICATES, "default", "managed-tls")
    for name in ("managed-tls", "pebble-account"):
        await east.cluster.delete(SECRETS, "default", name)
    await east.delete("managed")
