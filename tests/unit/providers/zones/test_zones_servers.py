"""A DNS server without names is not asked, and its connections are closed."""

from __future__ import annotations

from typing import Any

from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.zones.provider import FOLLOW_S, DNSProvider
from fairlead.providers.zones.settings import ServerSettings
from fairlead.runtime.clock import VirtualClock, settle


class Server:
    """A server whose zone no other client changes."""

    immediate = True

    def __init__(self) -> None:
        self.asked = 0
        self.closed = False

    async def check(self) -> int:
        return 7

    async def serial(self) -> int:
        self.asked += 1
        return 7

    async def read(self, _keys: object) -> dict[str, str]:
        return {}

    async def close(self) -> None:
        self.closed = True


def spec_of(server: str, name: str = "www") -> FrontendSpec:
    parameters = {"zone": "example.test", "host": f"{name}.example.test", "ownerId": "us", "server": server}
    key = LoadBalancerKey("Hostname", "fairlead-system", name)
    return FrontendSpec(key, "", (), health_check=None, parameters=parameters)


async def test_queries_of_a_former_server_end() -> None:
    servers: dict[str, Server] = {}

    def make(settings: ServerSettings) -> Any:
        return servers.setdefault(settings.host, Server())

    clock = VirtualClock()
    provider = DNSProvider(make=make, own=frozenset(), clock=clock)
    await provider.start()
    try:
        await provider.validate(spec_of("192.0.2.9"))
        await provider.ensure(spec_of("192.0.2.1"))
        await provider.ensure(spec_of("192.0.2.1", "api"))
        await clock.advance(2 * FOLLOW_S)
        first = servers["192.0.2.1"]
        assert (first.asked, servers["192.0.2.9"].asked) == (2, 0), "one that was only checked is not followed"
        # One of two names moves to another server: both are asked.
        await provider.ensure(spec_of("192.0.2.2"))
        await clock.advance(FOLLOW_S)
        second = servers["192.0.2.2"]
        assert (first.asked, second.asked) == (3, 1)
        provider.release(spec_of("", "api").key)
        await clock.advance(2 * FOLLOW_S)
        await settle()
        assert (first.asked, first.closed) == (3, True)
        assert (second.asked, second.closed) == (3, False)
    finally:
        await provider.close()
    assert servers["192.0.2.2"].closed
