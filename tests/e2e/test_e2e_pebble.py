"""The whole hub against a real certificate authority: Pebble, which refuses nonces at random and validates slowly.

It is built with Go on request (`make test-acme`); without it this test is left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from conformance.pebble import why_not
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES
from fairlead.api.kubernetes import INGRESSES, SECRETS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.managedcertificate import CERTIFICATE_ISSUERS, MANAGED_CERTIFICATES, ManagedCertificate
from fairlead.api.names import ANNOTATION_CERTIFICATE_ISSUER, DEFAULT_CLASS, SYSTEM_NAMESPACE
from fairlead.api.tenant import TENANTS
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.name_servers import Bind, binary
from fairlead_demo.worlds.processes import wait_until
from fairlead_demo.worlds.web import ingress_address, put
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
ZONE = "pebble.test"
DOMAIN = f"east.{ZONE}"
HOSTS = ("pebble.example.com", "www.pebble.example.com")


@pytest_asyncio.fixture(loop_scope="session")
async def pebble(fleet: Fleet) -> AsyncIterator[Pebble]:
    with tempfile.TemporaryDirectory(prefix="fl-pebble-") as name:
        async with running(fleet, Pebble(Path(name), http_port=80)) as server:
            yield server


@asynccontextmanager
async def running(fleet: Fleet, server: Pebble) -> AsyncGenerator[Pebble]:
    """Run an authority; the issuer that names it goes before it does."""
    try:
        await server.start()
        yield server
    finally:
        await fleet.cluster.delete(CERTIFICATE_ISSUERS, "", OURS)
        await fleet.cluster.delete(SECRETS, SYSTEM_NAMESPACE, f"acme-account-{OURS}")
        await server.close()


@asynccontextmanager
async def zone(fleet: Fleet, bind: Bind) -> AsyncGenerator[None]:
    """Have the hub publish names at a real name server, whose zone has the domain of member east."""
    meta = {"name": OURS, "namespace": SYSTEM_NAMESPACE}
    key = {"metadata": meta, "stringData": {"tsig-secret": bind.secrets["fairlead"]}}
    parameters = {"server": bind.server, "keyName": "fairlead", "credentials": OURS}
    spec = {"zone": bind.zone, "provider": "rfc2136", "parameters": parameters}

    async def domain(name: str) -> None:
        await fleet.cluster.merge_patch(TENANTS, "", "east", {"spec": {"domain": name}}, manager="operator")

    async def issuer(name: str | None) -> None:
        named = {"metadata": {"annotations": {ANNOTATION_CERTIFICATE_ISSUER: name}}}
        await fleet.cluster.merge_patch(LOAD_BALANCER_CLASSES, "", DEFAULT_CLASS, named, manager="operator")

    await fleet.cluster.apply(SECRETS, key, manager="operator")
    await fleet.cluster.apply(DNS_ZONES, {"metadata": {"name": OURS}, "spec": spec}, manager="operator")
    await domain(DOMAIN)
    await issuer(OURS)
    try:
        yield
    finally:
        await issuer(None)
        await domain("")

        async def none_left() -> bool:
            there = await fleet.cluster.list(HOSTNAMES, SYSTEM_NAMESPACE)
            return not any(each.spec.host.endswith(bind.zone) for each in there)

        await wait_until(none_left, "the names are given up")
        await fleet.cluster.delete(DNS_ZONES, "", OURS)
        await fleet.cluster.delete(SECRETS, SYSTEM_NAMESPACE, OURS)


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
        path = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "pebbled", "port": {"number": 80}}}}
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


@pytest.mark.req("K-50", "K-53", "C-53")
@pytest.mark.skipif(binary("named") is None, reason="BIND 9 is not installed: apt-get install bind9, as root")
async def test_a_real_authority_issues_for_a_domain_by_the_zone_that_the_hub_writes(
    fleet: Fleet, tmp_path: Path
) -> None:
    """Pebble asks a real BIND for what proves the star; the Ingress is then served over HTTPS at its generated name."""
    east = fleet.members["east"]
    pod, made, bind = east.new_address(), f"starred-default.{DOMAIN}", Bind(tmp_path / "bind", ZONE)
    await bind.start()
    server = Pebble(tmp_path, http_port=80, dns_server=bind.server)
    try:
        async with echoes((pod, 8080, "starred")), running(fleet, server) as pebble, zone(fleet, bind):
            spec = {"server": pebble.url, "caBundle": pebble.bundle, "solvers": ["DNS01"]}
            body = {"metadata": {"name": OURS}, "spec": spec}
            await fleet.cluster.apply(CERTIFICATE_ISSUERS, body, manager="operator")
            await own_class(east, OURS)
            await service(east, "starred", pod)
            backend = {"service": {"name": "starred", "port": {"number": 80}}}
            rule = {"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
            await put(east, INGRESSES, "starred", {"ingressClassName": OURS, "rules": [rule]})
            client = HttpClient(await ingress_address(east, "starred"))
            root = await pebble.root()
            await answers(lambda: client.get_tls(made, root), (200, "starred"))
            assert await bind.ask(made, "A") == {client.address}
            (there,) = await ours(fleet)
            assert there.status.issued_for == (f"*.{DOMAIN}",)
            await no_ingresses(fleet, east, OURS, "starred")

            async def gone() -> bool:
                return not await ours(fleet)

            await wait_until(gone, "the certificate is gone with the last Ingress of the class")

            async def as_before() -> bool:
                return await bind.names() == {f"ns.{ZONE} A": {"127.0.0.1"}}

            await wait_until(as_before, "the zone has nothing of ours")
        await east.delete("starred")
    finally:
        await bind.kill()
