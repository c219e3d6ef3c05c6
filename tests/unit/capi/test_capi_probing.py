"""What a probe of an endpoint says."""

from __future__ import annotations

import asyncio
import socket

from fairlead.api.capiside import ControlPlaneEndpoint
from fairlead.capi.facts import probe_endpoint, why_not_ready
from tests.worlds.listening import listening


async def here(_host: str) -> list[str]:
    return ["127.0.0.1"]


async def nowhere(host: str) -> list[str]:
    raise socket.gaierror(socket.EAI_NONAME, host)


async def test_unresolved_and_unreachable_names_are_reported_apart():
    probe = await probe_endpoint(ControlPlaneEndpoint("blue.example", 6443), resolve=nowhere)
    assert (probe.reached, probe.resolved) == (False, False)
    assert "status.address" in probe.message


async def test_a_connection_is_enough_to_be_reached_and_not_to_be_ready():
    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with listening(await asyncio.start_server(refuse, "127.0.0.1", 0)) as port:
        endpoint = ControlPlaneEndpoint("blue.example", port)
        assert (await probe_endpoint(endpoint, resolve=here)).reached
        assert "/readyz" in await why_not_ready(endpoint, "", resolve=here)
    closed = await probe_endpoint(endpoint, resolve=here)
    assert (closed.reached, closed.resolved) == (False, True)
