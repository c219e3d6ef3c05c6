"""A Cluster with a name of the user: its record is in a real PowerDNS before the first machine exists."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from capi_world import World

from fairlead.api.dnszone import DNS_ZONES
from fairlead.api.hostname import HOSTNAMES
from fairlead.api.kubernetes import SECRETS
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.errors import NotFound
from fairlead.testing.worlds.powerdns import PowerDNS, installed
from tests.scenario.any_api import until

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


@pytest.mark.req("C-34", "C-52", "C-53", "C-54", "C-66", "T-C-21")
async def test_t_c_21_a_name_is_reachable_once_its_record_is_there(world: World, powerdns: PowerDNS) -> None:
    """The record by the hub's zone, not by the load balancer; certificates of names have tests of their own."""

    async def resolve(host: str) -> list[str]:
        """Ask PowerDNS; every address of the pool is this machine here."""
        values = await powerdns.ask(host, "A")
        if not values:
            raise socket.gaierror(socket.EAI_NONAME, host)
        return ["127.0.0.1"]

    world.resolve = resolve
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await world.start()
        await world.cluster(controlPlaneEndpoint={"host": HOST, "port": port})
        await world.lb()
        await world.until_condition("EndpointPublished", "True")
        missing = await world.until_condition("IsReachable", "False", reason="NameNotResolved")
        assert HOST in missing.message
        address = (await world.get_lb()).status.address
        secret = {
            "metadata": {"name": "powerdns", "namespace": SYSTEM_NAMESPACE},
            "stringData": {"api-key": powerdns.api_key},
        }
        await world.user.apply(SECRETS, secret, manager="operator")
        parameters = {"server": powerdns.server, "url": powerdns.url, "credentials": "powerdns"}
        zone = {"zone": ZONE, "provider": "powerdns", "parameters": parameters}
        await world.user.apply(DNS_ZONES, {"metadata": {"name": "clusters"}, "spec": zone}, manager="operator")
        meta = {"name": HOST, "namespace": SYSTEM_NAMESPACE}
        await world.user.apply(
            HOSTNAMES, {"metadata": meta, "spec": {"host": HOST, "addresses": [address]}}, manager="operator"
        )
        await world.until_condition("IsReachable", "True")
        assert await powerdns.ask(HOST, "A") == {address}
        # Everything was there before the first machine.
        assert (await world.get_lb()).status.targets == 0
        await world.user.delete(HOSTNAMES, SYSTEM_NAMESPACE, HOST)

        async def gone() -> bool:
            with contextlib.suppress(NotFound):
                await world.user.get(HOSTNAMES, SYSTEM_NAMESPACE, HOST)
                return False
            return True

        await until(gone, what="the Hostname is gone")
        await world.user.delete(DNS_ZONES, "", "clusters")
