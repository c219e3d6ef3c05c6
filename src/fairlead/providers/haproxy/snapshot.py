"""Parses what HAProxy prints about a backend.

In: the text of ``show info``, ``show servers state <backend>`` and ``show stat <backend> 4 -1``, in one piece. Out: a
``BackendSnapshot``. Fields are found by their names in the header lines, since their number differs between versions.
Never: any input or output.
Source: https://docs.haproxy.org/2.6/management.html#9.1
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from ipaddress import ip_address

import msgspec

from fairlead.errors import Retry
from fairlead.model.in_words import whole_number
from fairlead.providers.haproxy.names import untagged

_MAINTENANCE = 0x01 | 0x02 | 0x04 | 0x20 | 0x40
_DRAIN = 0x08 | 0x10
_CHECK_CONFIGURED = 0x02
_CHECK_ENABLED = 0x04
_STOPPED = 0
_VERSION = re.compile(r"(\d+)\.(\d+)")


class Server(msgspec.Struct, frozen=True):
    """One server of a backend. ``sessions`` counts those that are open or queued; -1 when that was not asked."""

    name: str
    address: str
    port: int
    weight: int
    maintenance: bool
    draining: bool
    checked: bool
    check_idle: bool
    running: bool
    sessions: int = -1

    @property
    def ready(self) -> bool:
        """Return whether it takes new connections: neither drained nor in maintenance."""
        return not self.maintenance and not self.draining


class BackendSnapshot(msgspec.Struct, frozen=True, dict=True):
    """One backend at one moment. ``epoch`` is another one after each reload; ``servers`` None: no such backend."""

    epoch: str
    version: str
    stopping: bool
    servers: Mapping[str, Server] | None
    #: HAProxy's number of the backend: its name may be a frontend's, too.
    number: str = ""
    #: The lines that belong to none of the lists: HAProxy's replies to commands.
    messages: tuple[str, ...] = ()

    @cached_property
    def by_target(self) -> Mapping[str, Sequence[Server]]:
        """Return the servers by their names without tags: those of one target together."""
        servers: dict[str, list[Server]] = {}
        for name, server in (self.servers or {}).items():
            servers.setdefault(untagged(name), []).append(server)
        return servers

    @property
    def version_number(self) -> tuple[int, int] | None:
        """Return major and minor version; None when ``version`` does not begin with them."""
        match = _VERSION.match(self.version)
        return (int(match[1]), int(match[2])) if match is not None else None


def show(backend: str, *, sessions_of: str = "") -> list[str]:
    """Return the commands whose answers ``snapshot_from_text`` reads; ``sessions_of``: the backend's name or number."""
    return ["show info", f"show servers state {backend}", *([f"show stat {sessions_of} 4 -1"] if sessions_of else [])]


def snapshot_from_text(text: str, backend: str, *, socket: str) -> BackendSnapshot:
    """Read the answers to ``show``; replies to earlier commands are in ``messages``."""
    info: dict[str, str] = {}
    messages: list[str] = []
    state: list[dict[str, str]] = []
    stat: list[dict[str, str]] = []
    header: list[str] = []
    into = state
    for line in text.splitlines():
        if line.startswith("# be_id "):
            header, into = line.removeprefix("# ").split(" "), state
        elif line.startswith("# pxname,"):
            header, into = line.removeprefix("# ").split(","), stat
        elif not line.strip():
            header = []
        elif header:
            fields = line.split(" ") if into is state else _cells(line, socket)
            into.append(dict(zip(header, fields, strict=False)))
        elif ": " in line and (line[0].isalpha() and line.split(": ", 1)[0] not in info) and not is_complaint(line):
            key, _, value = line.partition(": ")
            info[key] = value
        elif line != "1":
            messages.append(line.strip())
    if "Permission denied" in messages:
        raise Retry(
            f"HAProxy at {socket} lets us only read; its stats socket needs 'level admin'", reason="HAProxyPermission"
        )
    if "Pid" not in info:
        raise Retry(f"what answers on {socket} does not speak HAProxy's Runtime API; check parameters.socket")
    sessions = {
        row.get("svname", ""): _count(row, "scur") + _count(row, "qcur") for row in stat if row.get("pxname") == backend
    }
    missing = "Can't find backend." in messages
    try:
        mine = [row for row in state if row["be_name"] == backend]
        servers = {row["srv_name"]: _server(row, sessions) for row in mine}
        number = mine[0]["be_id"] if mine else ""
    except (KeyError, ValueError) as error:
        raise Retry(
            f"HAProxy at {socket} lists its servers in a way that we cannot read; is it another version?",
            detail=f"{type(error).__name__} {error}",
        ) from error
    return BackendSnapshot(
        epoch=f"{info['Pid']}@{info.get('Start_time_sec', info.get('Uptime_sec', ''))}",
        version=info.get("Version", ""),
        stopping=info.get("Stopping", "0") != "0",
        servers=None if missing else servers,
        number=number,
        messages=tuple(messages),
    )


def _cells(line: str, socket: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error as error:
        raise Retry(f"HAProxy at {socket} answers with a table that we cannot read", detail=str(error)) from error


def is_complaint(line: str) -> bool:
    """Return whether a line with a colon is a complaint and not a line of ``show info``."""
    return line.startswith(("'", "[")) or "unknown keyword" in line.lower()


def _server(row: Mapping[str, str], sessions: Mapping[str, int]) -> Server:
    admin = int(row["srv_admin_state"])
    check = int(row["srv_check_state"])
    return Server(
        name=row["srv_name"],
        address=_canonical(row["srv_addr"]),
        port=int(row["srv_port"]),
        weight=int(row["srv_uweight"]),
        maintenance=bool(admin & _MAINTENANCE),
        draining=bool(admin & _DRAIN),
        checked=bool(check & _CHECK_CONFIGURED),
        check_idle=bool(check & _CHECK_CONFIGURED) and not check & _CHECK_ENABLED,
        running=int(row["srv_op_state"]) != _STOPPED,
        sessions=sessions.get(row["srv_name"], -1),
    )


def _count(row: Mapping[str, str], field: str) -> int:
    return whole_number(row.get(field, "")) or 0


def _canonical(address: str) -> str:
    try:
        return str(ip_address(address))
    except ValueError:
        return address
