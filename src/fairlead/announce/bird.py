"""BIRD 2 as the speaker: a process of its own with a generated file, controlled through its socket.

    bird.conf   sessions, and each route with its attributes in a static protocol; only its owner can read it
    bird.ctl    control socket: ``configure`` applies the file; ``show protocols all`` has the sessions

Everything that may change without a session, such as a route, its attributes and the peers that get it, is in the
static protocols. The filters of sessions never change, because BIRD sends all routes again when a filter does.
BIRD imports nothing, and does not touch the kernel's routes.

Routes that other machines announce, too, lead to the neighbour of an address on ``lo`` with a lifetime.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import os
import re
import shutil
import socket
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec.structs import replace

from fairlead.announce.routes import AnnouncedRoute, Lifetime
from fairlead.errors import BadConfiguration, Retry
from fairlead.model.in_words import host_port
from fairlead.model.machine import BgpAttributes, BgpPeerPlan, SessionState
from fairlead.runtime.commands import Running, find_detached, prefer, start_detached, stop_process, wait_gone
from fairlead.runtime.private_file import write_private

_CONFIGURATION = "bird.conf"
_PID_FILE = "bird.pid"
_LOG = "bird.log"
_LOG_BYTES = 1_000_000
#: The most AS numbers by which a route's path may be prepended.
_MOST_PREPENDED = 16
#: After a crash, routers keep the routes for so long; we are back much earlier, or not at all.
_RESTART_S = 30
#: How long a restarted BIRD waits for routers that are down before it announces to the others.
_RESTART_WAIT_S = 5
_ANSWER_S = 10.0
_STARTED_S = 10.0
#: The priority of a speaker: on a busy machine BFD would be late, and remove healthy routes.
SPEAKER_NICENESS = -10
#: A session that gets no answer for so long has a problem.
_SILENT_S = 3.0
_LONGEST_SYMBOL = 50

#: The address with a lifetime, and the next hop of routes that end with it. IANA has assigned their network to nothing;
#: in 192.0.0.0/24, hosts use 192.0.0.0/29, and 192.0.0.9 and 192.0.0.10 are anycast services.
ALIVE, NEXT_HOP = "192.0.0.13/30", "192.0.0.14"

#: Codes of answers that are errors.
_ERRORS = 8000
_HEADER = re.compile(r"(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)?\s*(.*)")
_BAD_AS = re.compile(r"<RMT> (\S+): Error: Bad peer AS: (\d+)")


class Bird:
    """The BIRD of a directory, which is made if it is missing."""

    def __init__(self, directory: Path, *, binary: Path | None = None) -> None:
        self._directory = directory
        self._binary = binary
        self._lifetime = Lifetime()
        self._running: Running | None = None
        self._peers: Sequence[BgpPeerPlan] = ()
        self._configured = ""

    async def adopted(self) -> Collection[str] | None:
        """Return the prefixes that the running BIRD announces; None when none runs."""
        if self._find() is None:
            return None
        try:
            return prefixes_in((self._directory / _CONFIGURATION).read_text())
        except FileNotFoundError:
            return ()

    async def apply(self, peers: Sequence[BgpPeerPlan], routes: Sequence[AnnouncedRoute]) -> None:
        """Announce exactly ``routes`` to ``peers``; sessions and routes that do not change are not touched."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._directory / _CONFIGURATION
        text = configuration(peers, routes, directory=self._directory, router_id=_router_id(path, peers))
        running = self._find()
        adopting = running is not None and not self._configured
        left_behind = adopting and f" via {NEXT_HOP}" in path.read_text()
        await self._lifetime.keep_for(routes, ALIVE, left_behind=left_behind)
        if text != self._configured or running is None:
            candidate = path.with_suffix(".new")
            write_private(candidate, text)
            if running is not None:
                await self._ask(f'configure check "{candidate}"')
            candidate.replace(path)
            if running is None:
                await self._start()
            else:
                await self._ask("configure")
            self._configured = text
        self._lifetime.end(routes)
        self._peers = tuple(peers)

    async def renew(self) -> None:
        """Renew the address with a lifetime when that is due."""
        await self._lifetime.renew()

    async def sessions(self, peers: Sequence[BgpPeerPlan] | None = None) -> Sequence[SessionState]:
        """Return the sessions with these peers, with those that were applied last unless given."""
        peers = self._peers if peers is None else peers
        protocols = parse_protocols(await self._ask("show protocols all"))
        bfd = _parse_bfd(await self._ask("show bfd sessions")) if any(peer.bfd for peer in peers) else {}
        other_numbers = _bad_as_numbers(self._directory / _LOG)
        return [session_of(peer, protocols, bfd, other_numbers) for peer in peers]

    async def wait_gone(self) -> None:
        """Return when BIRD has stopped running."""
        if (running := self._find()) is not None:
            await wait_gone(running)

    async def stop(self) -> None:
        """Stop BIRD gracefully: routers drop its routes at once."""
        if (running := self._find()) is not None:
            await stop_process(running)
        self._running, self._configured = None, ""
        self._lifetime.end()

    def _find(self) -> Running | None:
        if self._running is None or not self._running.alive():
            self._running = find_detached(self._directory, pid_file=_PID_FILE, option="-c", file=_CONFIGURATION)
        return self._running

    async def _start(self) -> None:
        binary = self._binary or find_binary("bird", "bird2", "BIRD 2")
        path, control = self._directory / _CONFIGURATION, self._directory / "bird.ctl"
        # -R: routers that kept our routes after a crash see no withdrawal; without such routers it has no effect.
        command = [str(binary), "-f", "-R", "-c", str(path), "-s", str(control)]
        control.unlink(missing_ok=True)
        self._running = await start_detached(self._directory, command, pid_file=_PID_FILE, log="bird.out")
        if self._running is not None:
            prefer(self._running.pid, SPEAKER_NICENESS)
        deadline = time.monotonic() + _STARTED_S
        while self._running is not None and self._running.alive() and time.monotonic() < deadline:
            if control.exists():
                try:
                    await self._ask("show status")
                except Retry:
                    pass  # not listening yet
                else:
                    return
            await asyncio.sleep(0.02)
        lines = (self._directory / "bird.out").read_text(errors="replace").split("\n")
        output = next((line for line in reversed(lines) if line.strip()), "no message")
        raise Retry(f"BIRD does not start: {output.strip()}; see {self._directory / _LOG}")

    async def _ask(self, command: str) -> list[str]:
        """Return the lines of the answer to a command.

        Raises:
            Retry: BIRD does not answer, or refuses the command.
        """
        lines: list[str] = []
        try:
            async with asyncio.timeout(_ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(self._directory / "bird.ctl", limit=1 << 20)
                with closing(writer):
                    await _answer(reader)
                    writer.write(f"{command}\n".encode())
                    code, lines = await _answer(reader)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            raise Retry(
                "BIRD does not answer at its control socket", detail=str(error) or type(error).__name__
            ) from None
        if code >= _ERRORS:
            raise Retry(f"BIRD refuses its configuration: {lines[-1]}", detail=command)
        return lines


async def _answer(reader: asyncio.StreamReader) -> tuple[int, list[str]]:
    """Read one answer: lines ``0001-text``, `` text`` with the same code, and finally ``0001 text``."""
    lines: list[str] = []
    while True:
        line = (await reader.readuntil()).decode(errors="replace").rstrip("\n")
        if line[:4].isdigit() and line[4:5] in {"-", " "}:
            lines.append(line[5:])
            if line[4] == " ":
                return int(line[:4]), lines
        else:
            lines.append(line[1:])


def find_binary(name: str, package: str, title: str, *directories: str) -> Path:
    """Find a program, also where only root has it in its path.

    Raises:
        BadConfiguration: it is missing.
    """
    path = os.pathsep.join([*directories, os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
    if (binary := shutil.which(name, path=path)) is None:
        raise BadConfiguration(f"{title} is not installed on this machine: run  apt-get install {package}  as root")
    return Path(binary)


def _router_id(path: Path, peers: Iterable[BgpPeerPlan]) -> str:
    """Return the router ID of this machine: that of the last file, since another one would end all sessions."""
    if path.exists() and (match := re.search(r"^router id (\S+);$", path.read_text(), re.MULTILINE)):
        return match.group(1)
    return router_id(peers)


def router_id(peers: Iterable[BgpPeerPlan]) -> str:
    """Return an ID for this machine: the address from which it reaches a router, or digits of its host name."""
    for peer in peers:
        if "." in peer.address and (address := source_of(peer.address)):
            return address
    digest = hashlib.sha256(socket.gethostname().encode()).digest()
    return str(ipaddress.IPv4Address(bytes([1 + digest[0] % 126, *digest[1:4]])))


def source_of(address: str) -> str:
    """Return our own address from which the kernel sends packets to ``address``; empty without a route."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


# --- the file -----------------------------------------------------------------------------------------------------


def configuration(
    peers: Sequence[BgpPeerPlan], routes: Sequence[AnnouncedRoute], *, directory: Path, router_id: str
) -> str:
    """Return the content of ``bird.conf``."""
    lines = [
        "# Generated by fairlead; changes are overwritten.",
        f'log "{directory / _LOG}" {_LOG_BYTES} "{directory / _LOG}.1"',
        "  { info, remote, warning, error, auth, fatal, bug };",
        "timeformat protocol iso long;",
        f"router id {router_id};",
        f"graceful restart wait {_RESTART_WAIT_S};",
        "attribute int fairlead_prepend;",
        "attribute int fairlead_med;",
        "attribute clist fairlead_peers;",
        "protocol device { scan time 5; }",
        "protocol bfd fairlead_bfd { }",
        *_statics(routes),
    ]
    if unnumbered := sorted({peer.interface for peer in peers if peer.interface and not peer.address}):
        # Routers find us by router advertisements; a lifetime of 0 keeps them from using us as their default router.
        lines.append("protocol radv fairlead_radv {")
        lines += [
            f'  interface "{name}" {{ min ra interval 3; max ra interval 5; default lifetime 0; }};'
            for name in unnumbered
        ]
        lines.append("}")
    for peer in peers:
        lines += _session(peer)
    return "\n".join([*lines, ""])


def prefixes_in(text: str) -> list[str]:
    """Return the prefixes that a ``bird.conf`` announces."""
    return re.findall(r"^  route (\S+) (?:unreachable|via)", text, re.MULTILINE)


def symbol_of(peer: str) -> str:
    """Return the name of a session in BIRD, which allows only short names."""
    if len(peer) > _LONGEST_SYMBOL:
        peer = f"{peer[: _LONGEST_SYMBOL - 9]}-{hashlib.sha256(peer.encode()).hexdigest()[:8]}"
    return f"router:{peer}"


def _statics(routes: Sequence[AnnouncedRoute]) -> Iterator[str]:
    for version in (4, 6):
        yield f"protocol static fairlead{version} {{"
        yield f"  ipv{version};"
        yield from (f"  {static_route(route)}" for route in routes if (":" in route.prefix) == (version == 6))
        yield "}"


def static_route(route: AnnouncedRoute, *, own_attributes: bool = True, next_hop: str = NEXT_HOP) -> str:
    """Return a static route of BIRD; ``own_attributes``: what only our own BIRD reads, too.

    ``next_hop`` is that of a mortal route.
    """
    attributes = " ".join(_attributes(route.attributes, own_attributes=own_attributes))
    hop = f"via {next_hop}" if route.mortal else "unreachable"
    return f"route {route.prefix} {hop}" + (f" {{ {attributes} }};" if attributes else ";")


def _attributes(attributes: BgpAttributes, *, own_attributes: bool) -> Iterator[str]:
    for community in attributes.communities:
        kind = "bgp_large_community" if community.count(":") == 2 else "bgp_community"
        yield f"{kind}.add(({community.replace(':', ', ')}));"
    if attributes.local_preference is not None:
        yield f"bgp_local_pref = {attributes.local_preference};"
    if attributes.med is not None:
        # BIRD sends no MED to other AS numbers but that of a filter.
        yield f"{'fairlead' if own_attributes else 'bgp'}_med = {attributes.med};"
    if own_attributes and attributes.prepend:
        yield f"fairlead_prepend = {attributes.prepend};"
    if own_attributes and attributes.peers:
        peers = "-empty-"
        for peer in attributes.peers:
            peers = f"add({peers}, {_pair(peer)})"
        yield f"fairlead_peers = {peers};"


def _pair(peer: str) -> str:
    """Return a pair of numbers for a peer, for the attribute of a route."""
    digest = hashlib.sha256(peer.encode()).digest()
    return f"({int.from_bytes(digest[:2], 'big')}, {int.from_bytes(digest[2:4], 'big')})"


def _session(peer: BgpPeerPlan) -> Iterator[str]:
    name = symbol_of(peer.name)
    source = source_of(peer.address) if peer.hops > 1 else ""
    yield f"protocol bgp '{name}' {{"
    yield f"  local {source} as {peer.local_asn};" if source else f"  local as {peer.local_asn};"
    if peer.address:
        yield f"  neighbor {peer.address} port {peer.port} as {peer.asn};"
    else:
        yield f"  neighbor range fe80::/10 as {peer.asn};"
        yield f'  dynamic name "{name}_";  # names of BGPPeers have no underscore'
    if peer.interface:
        yield f'  interface "{peer.interface}";'
    yield "  direct;" if peer.hops == 1 else f"  multihop {peer.hops};"
    if peer.password:
        yield f'  password "{peer.password}";'
    if peer.ttl_security:
        yield "  ttl security yes;"
    yield f"  hold time {peer.hold_s};"
    # The defaults are made for routers that carry the Internet: 63 seconds until a session is back.
    yield "  connect delay time 1; connect retry time 2; error wait time 1, 2;"
    yield f"  graceful restart {'on' if peer.graceful_restart else 'off'}; graceful restart time {_RESTART_S};"
    if peer.bfd and (source or peer.hops == 1):  # over several hops BIRD requires the source
        # Not graceful: a cut link must take the route away, and to a router it looks like a crash.
        yield f"  bfd {{ interval {peer.bfd_interval_ms} ms; multiplier 3; }};"
    families = (4,) if "." in peer.address else (6, 4)
    for version in families:
        yield f"  ipv{version} {{"
        yield "    import none;"
        yield "    next hop self;"
        if version == 4 and len(families) == 2:
            yield "    extended next hop on;"
        yield "    export filter {"
        yield f'      if proto != "fairlead{version}" then reject;'
        yield f"      if defined(fairlead_peers) && !(fairlead_peers ~ [{_pair(peer.name)}]) then reject;"
        yield "      if defined(fairlead_prepend) then {"
        for count in range(1, _MOST_PREPENDED + 1):
            yield f"        if fairlead_prepend >= {count} then bgp_path.prepend({peer.local_asn});"
        yield "      }"
        yield "      if defined(fairlead_med) then bgp_med = fairlead_med;"
        yield "      bgp_origin = ORIGIN_IGP;"
        yield "      accept;"
        yield "    };"
        yield "  };"
    yield "}"


# --- sessions -----------------------------------------------------------------------------------------------------


class BirdProtocol(msgspec.Struct, frozen=True):
    """One protocol of ``show protocols all``; ``fields`` are its ``name: value`` lines, of channels too."""

    name: str
    since: float
    info: str
    fields: Mapping[str, str]
    exported: int = 0


def parse_protocols(lines: Iterable[str]) -> list[BirdProtocol]:
    """Return the BGP sessions of an answer to ``show protocols all``."""
    protocols: list[BirdProtocol] = []
    for line in lines:
        if (match := _HEADER.fullmatch(line.rstrip())) is not None:
            name, kind, _table, _state, since, info = match.groups()
            if kind == "BGP":
                seconds = time.mktime(time.strptime(since, "%Y-%m-%d %H:%M:%S"))
                protocols.append(BirdProtocol(name, seconds, info.strip(), {}))
            else:
                protocols.append(BirdProtocol("", 0, "", {}))
        elif protocols and ":" in line:
            key, _, value = line.strip().partition(":")
            last = protocols[-1]
            fields = {key: value.strip(), **last.fields}  # the first one is that of the session
            routes = re.search(r"(\d+) exported", value) if key == "Routes" else None
            exported = last.exported + (int(routes.group(1)) if routes else 0)
            protocols[-1] = replace(last, fields=fields, exported=exported)
    return [protocol for protocol in protocols if protocol.name]


def _parse_bfd(lines: Iterable[str]) -> dict[str, str]:
    """Return the state of each BFD session by address."""
    cells = (line.split() for line in lines)
    return {row[0]: row[2] for row in cells if len(row) >= 3 and row[0][:1] in "0123456789abcdef"}


def _bad_as_numbers(path: Path) -> dict[str, str]:
    """Return the AS numbers that routers sent in place of the configured ones, by name of the session."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 16_384))
            text = file.read().decode(errors="replace")
    except OSError:
        return {}
    return {match.group(1): match.group(2) for match in _BAD_AS.finditer(text)}


def session_of(
    peer: BgpPeerPlan, protocols: Iterable[BirdProtocol], bfd: Mapping[str, str], bad_as: Mapping[str, str]
) -> SessionState:
    """Return the session of a peer; of a dynamic one that of the router that is connected."""
    name = symbol_of(peer.name)
    ours = [protocol for protocol in protocols if protocol.name == name or protocol.name.startswith(f"{name}_")]
    if not ours:
        return SessionState(peer=peer.name, state="Idle", problem="BIRD does not have the session yet")
    best = max(ours, key=lambda protocol: (protocol.info == "Established", protocol.name != name))
    state = best.fields.get("BGP state", "Down")
    up = state == "Established"
    error = best.fields.get("Last error", "")
    address = peer.address or best.fields.get("Neighbor address", "").partition("%")[0]
    begins = not error and time.time() - best.since < _SILENT_S
    problem = "" if up or begins else session_problem(peer, state, error, bad_as.get(best.name, ""))
    return SessionState(
        peer=peer.name,
        state=state,
        up=up,
        since=best.since,
        announced=best.exported if up else 0,
        bfd=bfd.get(address, "Down") if peer.bfd else "",
        next_hop=best.fields.get("Source address", "").partition("%")[0] if up else "",
        problem=problem,
    )


def session_problem(peer: BgpPeerPlan, state: str, error: str, bad_as: str = "") -> str:
    """Return the problem of a session, and the next step.

    ``error`` is the last one, in the words of the speaker; ``bad_as`` the AS number that the router sent.
    """
    reason = error.lower()
    router = f"router {peer.name} ({peer.address or peer.interface})"
    our_as = f"AS {peer.local_asn}"
    if "bad peer as" in reason and not reason.startswith("received"):
        answers = f"answers with AS {bad_as}" if bad_as else "answers with another AS number"
        return f"{router} {answers}, but spec.asn of the BGPPeer is {peer.asn}; correct one of them"
    if "bad peer as" in reason:
        return f"{router} rejects {our_as}; correct spec.localASN of the BGPPeer, or the neighbor's AS at the router"
    if "reset by peer" in reason or "connection rejected" in reason:
        return f"{router} closes the connection; configure this machine as its neighbor with {our_as}"
    if "refused" in reason:
        return f"{router} has nothing that listens on port {peer.port}; start BGP there, or correct spec.port"
    if "unreachable" in reason or "no route" in reason:
        return f"{router} cannot be reached; check the link, and the route to it on this machine"
    if "link down" in reason:
        return f"the link to {router} is down; check interface and cable of this machine"
    if error:
        return f"the session with {router} is down: {error}; check the router's log"
    if state == "Passive":
        return (
            f"no router on {peer.interface} has started a session; configure BGP on the router's interface, or set "
            "spec.address to its link-local address"
        )
    if state == "Idle":
        return f"{router} is on no network of this machine; add an address of its network, or set spec.hops"
    port = host_port(peer.address, peer.port)
    if peer.password:
        return (
            f"{router} does not answer at {port}; check that it has the same password, which drops packets without an "
            "answer, and that it can be reached"
        )
    return f"{router} does not answer at {port}; check that it can be reached, and whether it requires a password"
