"""The DNS servers that are connected to: one for each zone that names are written in.

In: settings. Out: servers, made when they are needed. Never: a connection to a server that no name is written at any
more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from fairlead.providers.zones.settings import ServerSettings
from fairlead.providers.zones.zone_server import ZoneServer
from fairlead.runtime.background import watched


class ZoneServers:
    """The servers of one provider; ``make`` returns a new one."""

    def __init__(self, make: Callable[[ServerSettings], ZoneServer]) -> None:
        self._make = make
        self._servers: dict[ServerSettings, ZoneServer] = {}
        self._used: set[ServerSettings] = set()

    def get(self, settings: ServerSettings) -> ZoneServer:
        """Return the server of a zone."""
        if settings not in self._servers:
            self._servers[settings] = self._make(settings)
        return self._servers[settings]

    def in_use(self, used: AbstractSet[ServerSettings]) -> Mapping[ServerSettings, ZoneServer]:
        """Return those of ``used`` that are there; those that were in use before and are not any more are closed."""
        for settings in self._used - used:
            # One that was never in use stays: its first name may just be asking it.
            watched("close of a DNS server", self._servers.pop(settings).close(), zone=settings.zone)
        self._used = {settings for settings in used if settings in self._servers}
        return {settings: self._servers[settings] for settings in self._used}

    async def close(self) -> None:
        """Close all connections."""
        for server in self._servers.values():
            await server.close()
