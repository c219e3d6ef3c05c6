"""A link to an API server that can reset, stall and go dark, between a real process and a real server.

    open     bytes flow
    reset    every connection is reset, and so is each new one
    stall    connections are accepted, and what is sent stays on the way until the link is open again
    dark     what is sent is lost, and neither end learns of it: a connection of that time is silent forever

In: a kubeconfig. Out: a kubeconfig that leads through the link.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from fairlead.runtime.telemetry import stop_listening
from fairlead_demo.worlds.loopback import free_port

_CHUNK = 65_536
_RESET = struct.pack("ii", 1, 0)


class LinkState(StrEnum):
    """What becomes of bytes."""

    OPEN = "open"
    RESET = "reset"
    STALL = "stall"
    DARK = "dark"


class Link:
    """One link; ``state`` is changed by ``become``."""

    def __init__(self, kubeconfig: Path) -> None:
        content: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
        cluster: dict[str, str] = content["clusters"][0]["cluster"]
        server = urlsplit(cluster["server"])
        self._host, self._port = server.hostname, server.port
        self._listen = free_port()
        cluster["server"] = f"https://{self._host}:{self._listen}"
        self.kubeconfig = kubeconfig.with_suffix(".link")
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(yaml.safe_dump(content))
        self.state = LinkState.OPEN
        self._open = asyncio.Event()
        self._open.set()
        self._connections: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._dark: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Accept connections."""
        self._server = await asyncio.start_server(self._connected, self._host, self._listen)

    def become(self, state: LinkState) -> None:
        """Change what becomes of bytes, also of those on connections that are open."""
        self.state = state
        if state is LinkState.STALL:
            self._open.clear()
        else:
            self._open.set()
        if state is LinkState.DARK:
            self._dark.update(self._connections)
        if state is LinkState.RESET:
            for writers in self._connections.values():
                for writer in writers:
                    _reset(writer)

    async def close(self) -> None:
        """Reset all connections, and accept no more."""
        self.become(LinkState.RESET)
        if self._server is not None:
            await stop_listening(self._server)
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._connections[task] = [writer]
        try:
            if self.state is LinkState.RESET:
                _reset(writer)
                return
            if self.state is LinkState.DARK:
                self._dark.add(task)
                while await reader.read(_CHUNK):
                    pass
                return
            await self._open.wait()
            there, forth = await asyncio.open_connection(self._host, self._port)
            self._connections[task].append(forth)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, forth, task))
                group.create_task(self._pump(there, writer, task))
        except* OSError:
            pass  # the server is not there, or one end has been reset: so is the other
        finally:
            self._dark.discard(task)
            for connected in self._connections.pop(task):
                _reset(connected)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: asyncio.Task[None]
    ) -> None:
        while data := await reader.read(_CHUNK):
            await self._open.wait()
            if connection not in self._dark:
                writer.write(data)
                await writer.drain()
        raise ConnectionResetError


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        ours = writer.get_extra_info("socket")
        if ours is not None:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
