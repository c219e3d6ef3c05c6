"""The whole hub against a real certificate authority: Pebble, which refuses nonces at random and validates slowly.

It is built with Go on request (`make test-acme`); without it this test is left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from conformance.pebble import why_not
from fairlead.api.certificateissuer import CERTIFICATE_ISSUERS
from fairlead.api.ingress import INGRESSES
from fairlead.api.kubernetes import SECRETS
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES, ManagedCertificate
from fairlead.api.names import ANNOTATION_CERTIFICATE_ISSUER, SYSTEM_NAMESPACE
from fairlead.testing.worlds.fleet import Fleet
from fairlead.testing.worlds.loopback import service_port
from fairlead.testing.worlds.processes import wait_until
from fairlead.testing.worlds.web import ingress_address
from tests.contract.acme.acme_pebble import Pebble
from tests.e2e.e2e_backends import echoes
from tests.e2e.e2e_http import HttpClient, answers, service
from tests.e2e.e2e_own import no_ingresses, own_class

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.envoy,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.skipif(service_port(80) != 80, reason="an authority looks at port 80, which this user may not open"),
]
OURS = "of-pebble"
HOSTS = ("pebble.example.com", "www.pebble.example.com")


@pytest_asyncio.fixture(loop_scope="session")
async def pebble(fleet: Fleet) -> AsyncIterator[Pebble]:
    with tempfile.TemporaryDirectory(prefix="fl-pebble-") as name:
        server = Pebble(Path(name), http_port=80)
        try:
            await server.start()
            yield server
        finally:
            await fleet.cluster.delete(CERTIFICATE_ISSUERS, "", OURS)
            await fleet.cluster.delete(SECRETS, SYSTEM_NAMESPACE, f"acme-account-{OURS}")
            await server.close()


async def ours(fleet: Fleet) -> list[ManagedCertificate]:
    there = await fleet.cluster.list(MANAGED_CERTIFICATES, "tenant-east")
    return [each for each in there if each.spec.issuer == OURS]


@pytest.mark.req("K-53")
async def test_a_real_authority_issues_for_an_ingress_through_the_proxies(fleet: Fleet, pebble: Pebble) -> None:
    east = fleet.members["east"]
    pod = east.new_address()
    spec = {"server": pebble.url, "caBundle": pebble.bundle}
    async with echoes((pod, 8080, "proven")):
        await own_class(east, OURS)
        await service(east, "pebbled", pod)
        path = {
            "path": "/",
            "pathType": "Prefix",
            "backend": {"service": {"name": "pebbled", "port": {"number": 80}}},
        }
        body = {
            "metadata": {
                "name": "pebbled",
                "namespace": "default",
                "annotations": {ANNOTATION_CERTIFICATE_ISSUER: OURS},
            },
            "spec": {
                "ingressClassName": OURS,
                "rules": [{"host": host, "http": {"paths": [path]}} for host in HOSTS],
                "tls": [{"hosts": list(HOSTS), "secretName": "pebbled-tls"}],
            },
        }
        await east.cluster.apply(INGRESSES, body, manager="user")
        client = HttpClient(await ingress_address(east, "pebbled"))
        for host in HOSTS:
            await pebble.record("add-a", host=f"{host}.", addresses=[client.address])
        await fleet.cluster.apply(CERTIFICATE_ISSUERS, {"metadata": {"name": OURS}, "spec": spec}, manager="operator")

        async def issued() -> bool:
            return [each.status.state for each in await ours(fleet)] == ["Issued"]

        # Pebble refuses three nonces of ten, and a refused one is replaced; a failed order would wait for a minute.
        await wait_until(issued, "Pebble has issued", timeout_s=240)
        root = await pebble.root()
        for host in HOSTS:
            await answers(lambda host=host: client.get_tls(host, root), (200, "proven"))
        (there,) = await ours(fleet)
        assert there.status.order is None
        assert there.status.issued_for == tuple(sorted(HOSTS))
        await no_ingresses(fleet, east, OURS, "pebbled")

        async def gone() -> bool:
            return not await ours(fleet)

        await wait_until(gone, "the certificate is gone with its Ingress")
    await east.delete("pebbled")
