"""The Runtime API of a HAProxy with one backend ``b``, as far as the provider uses it, on a real unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from fairlead.runtime.telemetry import stop_listening

MAINTENANCE, DRAIN = 0x01, 0x08
_STATE = "# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_check_state srv_port"


class FakeServer(msgspec.Struct):
    """One server of the backend."""

    address: str
    port: int
    weight: int = 1
    admin: int = MAINTENANCE
    sessions: int = 0


class FakeHAProxy:
    """``refusal`` is the answer to every addition, which then has no effect; ``pid`` changes with a reload."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.servers: dict[str, FakeServer] = {}
        self.refusal = ""
        self.pid = 7
        self.commands: list[str] = []
        #: A reload happens when this many commands have been read.
        self.reload_after = -1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode().strip()
        writer.write("".join(self.answer(command) for command in line.split(";")).encode())
        writer.close()

    def answer(self, command: str) -> str:
        self.commands.append(command)
        if len(self.commands) == self.reload_after:
            self.pid += 1
        match command.split():
            case ["show", "info"]:
                return f"Name: HAProxy\nVersion: 3.0.1\nPid: {self.pid}\nStart_time_sec: 9\nStopping: 0\n\n"
            case ["show", "servers", "state", "b"]:
                rows = (
                    f"3 b 1 {name} {server.address} 2 {server.admin} {server.weight} 0 {server.port}\n"
                    for name, server in self.servers.items()
                )
                return f"1\n{_STATE}\n{''.join(rows)}\n"
            case ["show", "servers", *_]:
                return "Can't find backend.\n\n"
            case ["show", "stat", *_]:
                rows = (f"b,{name},0,{server.sessions}\n" for name, server in self.servers.items())
                return f"# pxname,svname,qcur,scur\n{''.join(rows)}\n"
            case ["add", "server", path, where, "weight", weight, *_] if not self.refusal:
                address, _, port = where.rpartition(":")
                self.servers[path.removeprefix("b/")] = FakeServer(address, int(port), int(weight))
                return "New server registered.\n\n"
            case ["add", *_]:
                return f"{self.refusal}\n\n"
            case [verb, *_, path, "state", _] | [verb, _, path] | [verb, _, _, path]:
                return self._change(verb, self.servers.get(path.removeprefix("b/")), path, command)
            case _:
                raise AssertionError(command)

    def _change(self, verb: str, server: FakeServer | None, path: str, command: str) -> str:
        if server is None:
            return "No such server.\n\n"
        if verb == "del":
            del self.servers[path.removeprefix("b/")]
            return "Server deleted.\n\n"
        if verb == "shutdown":
            server.sessions = 0
        else:
            states = {"maint": MAINTENANCE, "drain": DRAIN}
            server.admin = states.get(command.rpartition(" ")[2], 0)
        return "\n"


@asynccontextmanager
async def fake_haproxy(directory: Path) -> AsyncGenerator[FakeHAProxy]:
    """Run a HAProxy whose socket is in ``directory``."""
    haproxy = FakeHAProxy(directory / "admin.sock")
    server = await asyncio.start_unix_server(haproxy.serve, haproxy.socket)
    try:
        yield haproxy
    finally:
        await stop_listening(server)
