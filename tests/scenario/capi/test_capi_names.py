"""Clusters with names: the records are in a real PowerDNS before the first machine, and follow the load balancers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from capi_world import NAMESPACE, World

from fairlead.api.hostname import DNS_ZONES, HOSTNAMES
from fairlead.api.kubernetes import NAMESPACES, SECRETS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.managedcertificate import CERTIFICATE_ISSUERS, MANAGED_CERTIFICATES
from fairlead.api.names import LABEL_TENANT, SYSTEM_NAMESPACE
from fairlead.api.tenant import TENANTS
from fairlead.errors import NotFound
from fairlead_demo.worlds.acme_server import AcmeServer
from tests.scenario.any_api import until
from tests.worlds.listening import listening
from tests.worlds.powerdns import PowerDNS, installed

pytestmark = pytest.mark.skipif(
    not installed(), reason="PowerDNS is not installed: apt-get install pdns-server pdns-backend-sqlite3, as root"
)
ZONE = "clusters.test"
HOST = f"blue.{ZONE}"


@pytest.fixture
async def powerdns(tmp_path: Path) -> AsyncIterator[PowerDNS]:
    server = PowerDNS(tmp_path / "pdns", ZONE)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


@pytest.fixture
async def port(world: World, powerdns: PowerDNS) -> AsyncIterator[int]:
    """Have the controller resolve names by PowerDNS; yields where each address of the pool answers."""

    async def resolve(host: str) -> list[str]:
        values = await powerdns.ask(host, "A")
        if not values:
            raise socket.gaierror(socket.EAI_NONAME, host)
        return ["127.0.0.1"]

    world.resolve = resolve
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with listening(server) as port:
        yield port


async def zone(world: World, powerdns: PowerDNS) -> None:
    """Have the hub write the zone."""
    secret = {
        "metadata": {"name": "powerdns", "namespace": SYSTEM_NAMESPACE},
        "stringData": {"api-key": powerdns.api_key},
    }
    await world.user.apply(SECRETS, secret, manager="operator")
    parameters = {"server": powerdns.server, "url": powerdns.url, "credentials": "powerdns"}
    spec = {"zone": ZONE, "provider": "powerdns", "parameters": parameters}
    await world.user.apply(DNS_ZONES, {"metadata": {"name": "clusters"}, "spec": spec}, manager="operator")


async def until_answered(powerdns: PowerDNS, *addresses: str) -> None:
    async def answered() -> bool:
        return await powerdns.ask(HOST, "A") == set(addresses)

    await until(answered, what=f"{HOST} is {addresses}")


async def without_names(world: World) -> None:
    """Wait until the hub has given up the name, and take its zone away."""

    async def gone() -> bool:
        with contextlib.suppress(NotFound):
            await world.user.get(HOSTNAMES, SYSTEM_NAMESPACE, HOST)
            return False
        return True

    await until(gone, what="the Hostname is gone")
    await world.user.delete(DNS_ZONES, "", "clusters")


@pytest.mark.req("C-34", "C-52", "C-53", "C-54", "C-66", "T-C-21")
async def test_t_c_21_record_and_certificate_exist_before_the_first_machine(
    world: World, powerdns: PowerDNS, port: int
) -> None:
    """The record is made by the hub's names, from what the load balancer shows: that has no word with a DNS server."""

    async def texts(host: str) -> list[str]:
        return [each.strip('"') for each in await powerdns.ask(host, "TXT")]

    async with AcmeServer(where=lambda host: (host, 0), texts=texts) as authority:
        await world.start()
        await world.cluster(controlPlaneEndpoint={"host": HOST, "port": port})
        await world.lb()
        await world.until_condition("EndpointPublished", "True")
        missing = await world.until_condition("IsReachable", "False", reason="NameNotResolved")
        assert HOST in missing.message
        await zone(world, powerdns)
        await world.until_condition("IsReachable", "True")
        assert await powerdns.ask(HOST, "A") == {(await world.get_lb()).status.address}

        # The namespace of the Clusters is a member of its own: it may ask for certificates of its names.
        mine = {"metadata": {"labels": {LABEL_TENANT: "fleet"}}}
        await world.user.merge_patch(NAMESPACES, "", NAMESPACE, mine)
        body = {"metadata": {"name": "fleet"}, "spec": {"namespace": NAMESPACE}}
        await world.user.apply(TENANTS, body, manager="operator")
        issuer = {"server": authority.directory, "solvers": ["DNS01"]}
        body = {"metadata": {"name": "internal"}, "spec": issuer}
        await world.user.apply(CERTIFICATE_ISSUERS, body, manager="operator")
        meta = {"name": "blue-api", "namespace": NAMESPACE}
        body = {"metadata": meta, "spec": {"hosts": [HOST], "issuer": "internal"}}
        await world.user.apply(MANAGED_CERTIFICATES, body, manager="user")

        async def issued() -> bool:
            return (await world.user.get(MANAGED_CERTIFICATES, NAMESPACE, "blue-api")).status.state == "Issued"

        await until(issued, what="the certificate is there")
        secret = await world.user.get(SECRETS, NAMESPACE, "blue-api")
        assert set(secret.data or ()) >= {"tls.crt", "tls.key"}
        assert authority.issued == [(HOST,)]
        # Everything was there before the first machine.
        assert (await world.get_lb()).status.targets == 0
        await world.user.delete(MANAGED_CERTIFICATES, NAMESPACE, "blue-api")
        await world.user.delete(LOAD_BALANCERS, NAMESPACE, "api")
        await without_names(world)
        await world.user.delete(CERTIFICATE_ISSUERS, "", "internal")


@pytest.mark.req("C-52", "C-68")
async def test_a_name_moves_between_load_balancers_without_a_gap(world: World, powerdns: PowerDNS, port: int) -> None:
    await world.start()
    await zone(world, powerdns)
    endpoint = {"host": HOST, "port": port}
    await world.cluster(controlPlaneEndpoint=endpoint)
    await world.lb()
    await world.until_condition("EndpointPublished", "True")
    first = (await world.get_lb()).status.address
    await until_answered(powerdns, first)
    await world.lb("next", additional=True, endpoint=endpoint)
    await world.until_condition("EndpointPublished", "True", name="next")
    second = (await world.get_lb("next")).status.address
    await until_answered(powerdns, first, second)
    await world.user.delete(LOAD_BALANCERS, NAMESPACE, "api")
    await until_answered(powerdns, second)
    assert str((await world.get_cluster()).endpoint) == f"{HOST}:{port}"
    await world.user.delete(LOAD_BALANCERS, NAMESPACE, "next")
    await without_names(world)
