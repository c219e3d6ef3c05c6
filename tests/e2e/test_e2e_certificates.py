"""The hub gets certificates from an authority over the real protocol, and serves them: real processes, real Envoy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from fairlead.api.certificateissuer import CERTIFICATE_ISSUERS
from fairlead.api.ingress import INGRESS_CLASSES, INGRESSES
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES, ManagedCertificate
from fairlead.api.names import (
    ANNOTATION_CERTIFICATE_ISSUER,
    INGRESS_CONTROLLER,
)
from fairlead.testing.acme_server import AcmeServer
from fairlead.testing.worlds.fleet import Fleet
from fairlead.testing.worlds.loopback import service_port
from fairlead.testing.worlds.member import Member
from fairlead.testing.worlds.processes import wait_until
from fairlead.testing.worlds.web import ingress_address, put
from tests.e2e.e2e_backends import echoes
from tests.e2e.e2e_http import HttpClient, answers, service

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.envoy,
    pytest.mark.timeout(900),
    pytest.mark.skipif(service_port(80) != 80, reason="an authority looks at port 80, which this user may not open"),
]

#: The address of each name, as DNS would have it.
PLACES: dict[str, str] = {}


@pytest_asyncio.fixture(loop_scope="session")
async def authority() -> AsyncIterator[AcmeServer]:
    async with AcmeServer(where=lambda host: (PLACES.get(host, "127.0.0.1"), 80)) as server:
        yield server


async def issuer(fleet: Fleet, server: AcmeServer, name: str, **spec: Any) -> None:
    body = {"metadata": {"name": name}, "spec": {"server": server.directory, **spec}}
    await fleet.cluster.apply(CERTIFICATE_ISSUERS, body, manager="operator")


async def secure_ingress(member: Member, name: str, host: str, of_issuer: str) -> None:
    """Write an Ingress whose certificate the hub is to get."""
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": name, "port": {"number": 80}}}}
    spec = {
        "ingressClassName": "fairlead",
        "rules": [{"host": host, "http": {"paths": [path]}}],
        "tls": [{"hosts": [host], "secretName": f"{name}-tls"}],
    }
    meta = {"name": name, "namespace": "default", "annotations": {ANNOTATION_CERTIFICATE_ISSUER: of_issuer}}
    await member.cluster.apply(INGRESSES, {"metadata": meta, "spec": spec}, manager="user")


async def certificates(fleet: Fleet, member: str, host: str) -> list[ManagedCertificate]:
    there = await fleet.cluster.list(MANAGED_CERTIFICATES, f"tenant-{member}")
    return [each for each in there if host in each.spec.hosts]


@pytest.mark.req("K-53")
async def test_an_ingress_gets_a_certificate_by_http_01_and_is_served_with_it(
    fleet: Fleet, authority: AcmeServer
) -> None:
    east, host = fleet.members["east"], "secure.example.com"
    shop = east.new_address()
    async with echoes((shop, 8080, "secure")):
        await put(east, INGRESS_CLASSES, "fairlead", {"controller": INGRESS_CONTROLLER})
        await service(east, "secure", shop)
        authority.wrong.bad_nonces = 3
        await secure_ingress(east, "secure", host, "of-ingresses")
        PLACES[host] = await ingress_address(east, "secure")
        client = HttpClient(PLACES[host])
        # HTTP is served before there is an issuer, and before there is a certificate.
        await answers(lambda: client.get(host), (200, "secure"))
        await issuer(fleet, authority, "of-ingresses")
        await answers(lambda: client.get_tls(host, authority.root), (200, "secure"))
        assert await client.get(host) == (200, "secure")
        (there,) = await certificates(fleet, "east", host)
        assert there.status.state == "Issued"
        assert there.status.order is None
        assert authority.issued == [(host,)]
        await east.cluster.delete(INGRESSES, "default", "secure")

        async def gone() -> bool:
            return not await certificates(fleet, "east", host)

        await wait_until(gone, "the certificate of an Ingress that is gone is gone")
