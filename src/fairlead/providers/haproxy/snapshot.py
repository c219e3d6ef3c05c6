"""The state of a backend: the names of our servers, what HAProxy prints, and the canonical form of both.

Our servers are named ``fl-<10 hex digits of installation, load balancer and listener>-<address>_<port>``. The suffix
``.<6 hex digits>`` of check and protocol follows once these have changed: HAProxy changes neither at run time, so
another server takes over. A server with another name is not ours, even with the address of one of ours.

In: the text of ``show info``, ``show servers state <backend>`` and ``show stat <backend> 4 -1``, in one piece; fields
are found by their names in the header lines, because their number differs between versions. Out: a
``BackendSnapshot``, and ``Observed``: our servers with the address, weight and health that HAProxy reports, all others
by name only, and the epoch of the process. Never: a comparison with the desired state, which is the core's.
Source: https://docs.haproxy.org/2.6/management.html#9.1
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from ipaddress import ip_address

import msgspec
from msgspec.structs import replace

from fairlead.errors import Retry
from fairlead.model.in_words import whole_number
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Observed, ObservedTarget
from fairlead.providers.haproxy.runtime_api import RuntimeApi
from fairlead.providers.haproxy.settings import HAProxySettings

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
    has_list = False
    into = state
    for line in text.splitlines():
        if line.startswith("# be_id "):
            header, into, has_list = line.removeprefix("# ").split(" "), state, True
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
            f"HAProxy at {socket} allows only reading; its stats socket needs 'level admin'", reason="HAProxyPermission"
        )
    if "Pid" not in info:
        raise Retry(f"the process at {socket} does not speak HAProxy's Runtime API; check parameters.socket")
    sessions = {
        row.get("svname", ""): _count(row, "scur") + _count(row, "qcur") for row in stat if row.get("pxname") == backend
    }
    missing = "Can't find backend." in messages
    if not missing and not (has_list and text.endswith("\n\n")):
        # Half a list would say that servers are gone which are still there.
        raise Retry(
            f"HAProxy at {socket} broke off its list of the servers of backend {backend}; check that it runs (a reload "
            "takes a moment)",
            reason="HAProxyUnreachable",
        )
    try:
        mine = [row for row in state if row["be_name"] == backend]
        servers = {row["srv_name"]: _server(row, sessions) for row in mine}
        number = mine[0]["be_id"] if mine else ""
    except (KeyError, ValueError) as error:
        raise Retry(
            f"HAProxy at {socket} returned a list of servers that cannot be read; check its version",
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
        raise Retry(f"HAProxy at {socket} returned a table that cannot be read", detail=str(error)) from error


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


NO_ADDRESS = "the class has no address; set parameters.address to the address of HAProxy's frontend"


async def read(api: RuntimeApi, backend: str) -> BackendSnapshot:
    """Read one backend, in a conversation of its own."""
    async with api.lock:
        return await run_and_read(api, backend)


async def run_and_read(
    api: RuntimeApi, backend: str, commands: Sequence[str] = (), *, sessions: bool = False
) -> BackendSnapshot:
    """Run ``commands``, then read one backend, with the open sessions of its servers on demand; holds no lock."""
    sessions_of = api.backend_numbers.get(backend, backend) if sessions else ""
    text = await api.run([*commands, *show(backend, sessions_of=sessions_of)])
    snapshot = snapshot_from_text(text, backend, socket=api.path)
    uncounted = any(server.sessions < 0 for server in (snapshot.servers or {}).values())
    if not sessions or not uncounted or snapshot.number == sessions_of:
        return snapshot
    # A frontend has the same name, and that is the one that was counted; each reload assigns new numbers.
    api.backend_numbers[backend] = snapshot.number
    text = await api.run(show(backend, sessions_of=snapshot.number))
    counted = snapshot_from_text(text, backend, socket=api.path)
    return replace(counted, messages=snapshot.messages)


async def observe_load_balancer(
    api: RuntimeApi,
    key: LoadBalancerKey,
    settings: HAProxySettings,
    *,
    registered: frozenset[tuple[ListenerKey, TargetKey]],
) -> Observed:
    """Read all backends of ``key``; ``registered`` is what should be there at least.

    A backend that is missing hides nothing of the others, and the epoch is known in any case: a reload that loses one
    backend has emptied the others.
    """
    targets: list[ObservedTarget] = []
    foreign: set[str] = set()
    epoch = absent = ""
    outdated = 0
    for listener, backend in settings.backends.items():
        snapshot = await read(api, backend)
        epoch = settings.epoch(snapshot.epoch)
        if snapshot.servers is None:
            # A listener that is no longer wanted has nothing to look for in a backend that is gone.
            absent = absent or ("" if listener in settings.retired else backend)
            continue
        ours = prefix(settings.installation, key, listener)
        for name, servers in snapshot.by_target.items():
            target = target_of(name, ours)
            if target is None:
                foreign.update(f"{backend}/{server.name}" for server in servers)
                continue
            current = server_name(settings.installation, key, listener, target, settings.tag)
            # One that is outdated serves until the current one is there.
            targets.append(_observed(listener, max(servers, key=lambda server: (server.ready, server.name == current))))
            if (listener, target) in registered and all(server.name != current for server in servers):
                outdated += 1
    missing = len(registered - {(target.listener, target.key) for target in targets})
    message = "" if settings.addresses else NO_ADDRESS
    if missing:
        message = f"{missing} of our servers are missing: HAProxy was reloaded, or they were removed by hand"
    elif outdated:
        message = f"{outdated} of our servers have an earlier health check or PROXY protocol and are being replaced"
    if absent:
        message = no_backend(settings.socket, absent)
    complete = not (missing or absent or outdated)
    return Observed(
        addresses=settings.addresses,
        programmed=complete,
        proxies=1,
        acknowledged=int(complete),
        message=message,
        targets=tuple(sorted(targets, key=lambda target: (target.listener, target.key))),
        foreign=tuple(sorted(foreign)),
        epoch=epoch,
    )


def no_backend(socket: str, backend: str) -> str:
    """Return what to do about a backend that is not there."""
    return f"HAProxy at {socket} has no backend {backend}; add it to its configuration and reload, or correct the name"


def _observed(listener: ListenerKey, server: Server) -> ObservedTarget:
    target = TargetKey(server.address, server.port)
    healthy = server.running if server.checked and server.ready else None
    return ObservedTarget(listener, target, server.weight, not server.ready, healthy)


_DIGITS = 10


def prefix(installation: str, key: LoadBalancerKey, listener: ListenerKey) -> str:
    """Return how all names of one listener's servers begin."""
    # The length of each part goes in, so that no two different lists of parts read alike.
    parts = (installation, *key, listener.protocol.value, str(listener.port))
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return f"fl-{hashlib.blake2s(text.encode()).hexdigest()[:_DIGITS]}-"


def server_name(
    installation: str, key: LoadBalancerKey, listener: ListenerKey, target: TargetKey, tag: str = ""
) -> str:
    """Return the name of the server for one target; ``tag`` identifies its check and protocol."""
    name = f"{prefix(installation, key, listener)}{target.address}_{target.port}"
    return f"{name}.{tag}" if tag else name


def untagged(name: str) -> str:
    """Return the name of a server without the tag for its check and protocol: the same for all of its target."""
    target, separator, port = name.rpartition("_")
    return f"{target}{separator}{port.partition('.')[0]}"


def target_of(name: str, prefix: str) -> TargetKey | None:
    """Return the target of one of our names; None when the name is not ours."""
    address, separator, port = name.removeprefix(prefix).rpartition("_")
    number = whole_number(port.partition(".")[0], most=65_535)
    if not name.startswith(prefix) or not separator or number is None:
        return None
    return TargetKey(address, number)


def targets_of(names: Iterable[str], prefix: str) -> list[TargetKey]:
    """Return the targets of those names that are ours, each once, in the same order."""
    return list(dict.fromkeys(target for name in names if (target := target_of(name, prefix)) is not None))
