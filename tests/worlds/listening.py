"""Servers of tests that end completely.

Python 3.11 loses a connection that is accepted while its server is closed: it stays open, and another test reports it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fairlead.runtime.telemetry import stop_listening


@asynccontextmanager
async def listening(server: asyncio.Server) -> AsyncGenerator[int]:
    """Yield the port of ``server``, and close it with everything that it has accepted."""
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await stop_listening(server)
