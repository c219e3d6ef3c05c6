"""The hub gets certificates from an authority over the real protocol, and serves them: real processes, real Envoy."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from fairlead.api.gateway import GATEWAY_CLASSES, GATEWAYS, HTTP_ROUTES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.kubernetes import EVENTS, INGRESSES, SECRETS
from fairlead.api.managedcertificate import CERTIFICATE_ISSUERS, MANAGED_CERTIFICATES, ManagedCertificate
from fairlead.api.names import ANNOTATION_CERTIFICATE_ISSUER, GATEWAY_CONTROLLER, SYSTEM_NAMESPACE
from fairlead.errors import Forbidden, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import install_crds
from fairlead_demo.worlds.acme_server import AcmeServer
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import wait_until
from fairlead_demo.worlds.web import ingress_address, put
from podless.offline import gateway_definitions
from tests.e2e.e2e_backends import echoes
from tests.e2e.e2e_http import HttpClient, answers, service
from tests.e2e.e2e_own import no_ingresses, no_web, own_class

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.envoy,
    pytest.mark.timeout(900),
    pytest.mark.skipif(service_port(80) != 80, reason="an authority looks at port 80, which this user may not open"),
]

#: The address of each name, as DNS would have it.
PLACES: dict[str, str] = {}


@pytest_asyncio.fixture(loop_scope="session")
async def authority(fleet: Fleet) -> AsyncIterator[AcmeServer]:
    """An authority of this test alone; the issuers that name it go before it does."""
    async with AcmeServer(where=lambda host: (PLACES[host], 80)) as server:
        yield server
        for there in await fleet.cluster.list(CERTIFICATE_ISSUERS):
            if there.spec.server == server.directory:
                await fleet.cluster.delete(CERTIFICATE_ISSUERS, "", there.metadata.name)
                key = there.spec.account_key_name(there.metadata.name)
                await fleet.cluster.delete(SECRETS, SYSTEM_NAMESPACE, key)


async def issuer(fleet: Fleet, server: AcmeServer, name: str, **spec: Any) -> None:
    body = {"metadata": {"name": name}, "spec": {"server": server.directory, **spec}}
    await fleet.cluster.apply(CERTIFICATE_ISSUERS, body, manager="operator")


async def secure_ingress(member: Member, name: str, host: str, of_issuer: str) -> None:
    """Write an Ingress whose certificate the hub is to get."""
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": name, "port": {"number": 80}}}}
    spec = {
        "ingressClassName": "of-certificates",
        "rules": [{"host": host, "http": {"paths": [path]}}],
        "tls": [{"hosts": [host], "secretName": f"{name}-tls"}],
    }
    meta = {"name": name, "namespace": "default", "annotations": {ANNOTATION_CERTIFICATE_ISSUER: of_issuer}}
    await member.cluster.apply(INGRESSES, {"metadata": meta, "spec": spec}, manager="user")


async def certificates(fleet: Fleet, member: str, host: str) -> list[ManagedCertificate]:
    there = await fleet.cluster.list(MANAGED_CERTIFICATES, f"tenant-{member}")
    return [each for each in there if host in each.spec.hosts]


async def no_certificate(fleet: Fleet, member: str, host: str) -> None:
    """Wait until no certificate is requested."""

    async def gone() -> bool:
        return not await certificates(fleet, member, host)

    await wait_until(gone, f"the certificate for {host} is gone with what asked for it")


@pytest.mark.req("K-53")
async def test_an_ingress_gets_a_certificate_by_http_01_and_is_served_with_it(
    fleet: Fleet, authority: AcmeServer
) -> None:
    east, host = fleet.members["east"], "secure.example.com"
    shop = east.new_address()
    async with echoes((shop, 8080, "secure")):
        await own_class(east, "of-certificates")
        await service(east, "secure", shop)
        authority.faults.bad_nonces = 3
        await secure_ingress(east, "secure", host, "of-ingresses")
        PLACES[host] = await ingress_address(east, "secure")
        client = HttpClient(PLACES[host])
        # HTTP is served before there is an issuer, and before there is a certificate.
        await answers(lambda: client.get(host), (200, "secure"))
        await issuer(fleet, authority, "of-ingresses")
        await answers(lambda: client.get_tls(host, authority.root), (200, "secure"))
        assert await client.get(host) == (200, "secure")

        async def issued() -> bool:
            (there,) = await certificates(fleet, "east", host)
            return there.status.state == "Issued" and there.status.order is None

        await wait_until(issued, "the certificate is issued, and its order is done")
        assert authority.issued == [(host,)]
        await no_ingresses(fleet, east, "of-certificates", "secure")
        await no_certificate(fleet, "east", host)
    await east.delete("secure")


@pytest.mark.req("K-53", "E-16")
async def test_a_gateway_without_http_gets_one_and_no_key_leaves_its_secret(
    fleet: Fleet, authority: AcmeServer
) -> None:
    east, host = fleet.members["east"], "gated.example.com"
    shop = east.new_address()
    async with echoes((shop, 8080, "gated")):
        assert not await install_crds(east.cluster, gateway_definitions(), "admin")
        await put(east, GATEWAY_CLASSES, "fairlead", {"controllerName": GATEWAY_CONTROLLER})
        await service(east, "gated", shop)
        listener = {
            "name": "https",
            "port": 443,
            "protocol": "HTTPS",
            "hostname": host,
            "tls": {"certificateRefs": [{"name": "gated-tls"}]},
        }
        meta = {"name": "gated", "namespace": "default", "annotations": {ANNOTATION_CERTIFICATE_ISSUER: "of-gateways"}}
        spec = {"gatewayClassName": "fairlead", "listeners": [listener]}
        await east.cluster.apply(GATEWAYS, {"metadata": meta, "spec": spec}, manager="user")
        rule = {"backendRefs": [{"name": "gated", "port": 80}]}
        await put(east, HTTP_ROUTES, "gated", {"parentRefs": [{"name": "gated"}], "rules": [rule]})
        # cert-manager answers challenges with a route of its own next to the user's: the exact path counts.
        solver = east.new_address()
        async with echoes((solver, 8080, "solved")):
            await service(east, "solver", solver)
            exact = {"path": {"type": "Exact", "value": "/.well-known/acme-challenge/token"}}
            solves = {"matches": [exact], "backendRefs": [{"name": "solver", "port": 80}]}
            await put(east, HTTP_ROUTES, "cm-acme-http-solver", {"parentRefs": [{"name": "gated"}], "rules": [solves]})

            async def address() -> str:
                try:
                    there = await fleet.cluster.get(HTTP_LOAD_BALANCERS, "tenant-east", "gateway.default.gated")
                except NotFound:
                    return ""
                return there.status.address

            await wait_until(address, "the Gateway has an address")
            PLACES[host] = await address()
            await issuer(fleet, authority, "of-gateways")
            client = HttpClient(PLACES[host])
            await answers(lambda: client.get_tls(host, authority.root), (200, "gated"))
            await answers(
                lambda: client.get_tls(host, authority.root, "/.well-known/acme-challenge/token"), (200, "solved")
            )
        # The port of the challenge is closed again.
        await answers(lambda: client.get(host), (0, ""))
        (there,) = await certificates(fleet, "east", host)
        secret = await fleet.cluster.get(SECRETS, "tenant-east", there.metadata.name)
        encoded = (secret.data or {})["tls.key"]
        secrets = {encoded, *base64.b64decode(encoded).decode().splitlines()[1:-2]}
        _, pages = await fleet.hub.page("/debug/keys/HTTPLoadBalancer/tenant-east/gateway.default.gated")
        events = (await fleet.cluster.raw("GET", EVENTS.path(""))).decode()
        statuses = (await fleet.cluster.raw("GET", MANAGED_CERTIFICATES.path())).decode()
        logs = "".join(log.read_text(errors="replace") for log in fleet.directory.glob("*.log"))
        assert len(logs) > 1000
        for text in (pages, events, statuses, logs):
            assert not any(line in text for line in secrets)
        # The agent of another member may not read it.
        async with Cluster.from_kubeconfig(fleet.directory / "west-at-hub.kubeconfig", name="west") as west:
            for namespace in ("tenant-east", SYSTEM_NAMESPACE):
                with pytest.raises(Forbidden):
                    await west.list(SECRETS, namespace)
            with pytest.raises(Forbidden):
                await west.get(SECRETS, "tenant-east", there.metadata.name)
            with pytest.raises(Forbidden):
                await west.list(MANAGED_CERTIFICATES, "tenant-east")
        await east.cluster.delete(GATEWAYS, "default", "gated")
        for name in ("gated", "cm-acme-http-solver"):
            await east.cluster.delete(HTTP_ROUTES, "default", name)
        await no_certificate(fleet, "east", host)
        await no_web(fleet, east, "gateway.default.gated")
    for name in ("gated", "solver"):
        await east.delete(name)
