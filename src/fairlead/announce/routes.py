"""Announces addresses as routes, by BGP or through a routing daemon of the operator.

    MachinePlan + serving ──► routes: /32 and /128, or aggregates ──► Speaker: BIRD, FRR, external
                          └─► addresses on ``lo``                        │
    AddressState, SessionState ◄────────────── sessions, looked at ◄─────┘

The order on the machine: an address is on ``lo`` before its route is announced, and stays there after the route was
withdrawn, so that established connections end in their own time. It is removed once the plan no longer has it.

A speaker outlives this process, and the next one adopts it with its routes and sessions: nothing changes at a router.
An error of the speaker is a problem of sessions and addresses, never an end of this process: all else continues.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec
import structlog
from msgspec.structs import replace

from fairlead.errors import FairleadError
from fairlead.model.in_words import listed
from fairlead.model.machine import (
    AddressState,
    AnnouncedAddress,
    BgpAttributes,
    BgpPeerPlan,
    LinkState,
    MachinePlan,
    SessionState,
    Trigger,
)
from fairlead.runtime.commands import run_network_program
from fairlead.runtime.private_file import write_private
from fairlead.runtime.queue import backoff_s

log = structlog.get_logger(__name__)

#: How often sessions are looked at; a speaker that ended is noticed at once.
_LOOK_S = 1.0
_FIRST_BACK_OFF_S = 0.1
_LAST_BACK_OFF_S = 5.0
_BFD_MARGIN_S = 0.2
#: Longer than a restart of this process takes; renewed several times in that.
_LIFETIME_S, _RENEW_S = 30, 5.0


class AnnouncedRoute(msgspec.Struct, frozen=True):
    """A route to announce; ``prefix`` is a CIDR.

    ``mortal``: other machines announce it, too, so it is to go when this process is dead for a while. ``proven``: the
    proxy is known to serve it, and it is not only kept as a former process left it. ``members``: the /32 and /128 of
    the addresses that it is announced for.
    """

    prefix: str
    attributes: BgpAttributes = BgpAttributes()
    mortal: bool = False
    proven: bool = True
    members: tuple[str, ...] = ()


class Speaker(Protocol):
    """A program that announces routes to routers. All errors are ``FairleadError`` with a next step."""

    async def adopted(self) -> Collection[str] | None:
        """Return the prefixes that the running speaker announces; None when none runs."""
        ...

    async def apply(self, peers: Sequence[BgpPeerPlan], routes: Sequence[AnnouncedRoute]) -> None:
        """Announce exactly ``routes`` to ``peers``; starts the speaker if it does not run.

        Sessions and routes that do not change are not touched: the router sees no update for them.
        """
        ...

    async def renew(self) -> None:
        """Keep mortal routes for another while; called once a second."""
        ...

    async def sessions(self) -> Sequence[SessionState]:
        """Return the sessions with the peers that were applied last."""
        ...

    async def wait_gone(self) -> None:
        """Return when the speaker does not run."""
        ...

    async def stop(self) -> None:
        """End the speaker: routers drop its routes."""
        ...


class _Verdict(NamedTuple):
    """Whether an address is announced, why, for the case that this is new, and what is wrong."""

    announced: bool
    trigger: str
    cause: str
    problem: str = ""


class RouteAnnouncer:
    """Announces the addresses of one kind (an ``Announcer``); ``directory`` is private to it and its speaker."""

    def __init__(
        self,
        announcement: Literal["BGP", "External"],
        speaker: Speaker,
        directory: Path,
        *,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._kind = announcement
        self._speaker = speaker
        self._directory = directory
        self._on_change = on_change
        self._local = LocalAddresses(directory / "addresses")
        self._passwords = _Passwords(directory / "passwords")
        self._lock = asyncio.Lock()
        self._plan: MachinePlan | None = None
        self._serving: Mapping[str, bool] = {}
        #: None until the speaker was looked at for the first time.
        self._prefixes: frozenset[str] | None = None
        #: What a former process left behind was withdrawn, as far as it must not be announced.
        self._withdrew = False
        #: Those that it announced then.
        self._adopted: frozenset[str] = frozenset()
        self._states: dict[str, AddressState] = {}
        self._sessions: tuple[SessionState, ...] = ()
        self._problem = ""
        #: A route of something that does not serve here could not be withdrawn: it has to expire.
        self._overdue = False
        self._renewal_problem = ""
        self._stopped = False

    async def apply(
        self,
        plan: MachinePlan,
        *,
        serving: Mapping[str, bool],
        unhealthy: Collection[str] | None = (),  # noqa: ARG002 - a plan that asks for health has it in ``serving``
    ) -> None:
        """Follow ``plan``; see ``Announcer``."""
        async with self._lock:
            self._plan, self._serving, self._stopped = plan, dict(serving), False
            await self._follow()

    def due_back(self) -> bool:
        """Return False: machines announce routes side by side."""
        return False

    def addresses(self) -> Sequence[AddressState]:
        """Return the state of each address of the plan that is announced as a route here."""
        return tuple(self._states.values())

    def sessions(self) -> Sequence[SessionState]:
        """Return the sessions with routers."""
        return self._sessions

    def links(self) -> Sequence[LinkState]:
        """Return nothing: routes do not depend on single interfaces."""
        return ()

    async def run(self) -> None:
        """Keep the speaker running and look at its sessions, until cancelled; the speaker then continues."""
        failures = 0
        while True:
            ended = await self._ended_soon()
            if ended or self._problem:
                failures += 1
                pause_s = backoff_s(failures, base_s=_FIRST_BACK_OFF_S, limit_s=_LAST_BACK_OFF_S)
                await asyncio.sleep(max(pause_s, self._noticed_s()))
                async with self._lock:
                    if self._active():
                        await self._follow()
            elif all(session.up for session in self._sessions):
                failures = 0
            await self._look()

    async def withdraw(self) -> None:
        """Withdraw all routes, and end the speaker."""
        async with self._lock:
            self._stopped = True
            await self._follow()
            if self._problem:
                await self._speaker.stop()
            self._sessions = ()

    def _active(self) -> bool:
        """Return whether the speaker has to run."""
        return not self._stopped and self._plan is not None and bool(self._peers(self._plan) or self._ours(self._plan))

    def _noticed_s(self) -> float:
        """Return how long routers take to notice by BFD that the speaker ended.

        A speaker that is back sooner loses the session a second time, and routers then drop the routes that graceful
        restart keeps.
        """
        peers = self._peers(self._plan) if self._plan is not None else ()
        return max((3 * peer.bfd_interval_ms / 1000 + _BFD_MARGIN_S for peer in peers if peer.bfd), default=0.0)

    async def _ended_soon(self) -> bool:
        """Wait for a moment; return whether the speaker ended meanwhile although it has to run."""
        if not self._active() or self._problem:
            await asyncio.sleep(_LOOK_S)
            return False
        try:
            async with asyncio.timeout(_LOOK_S):
                await self._speaker.wait_gone()
        except TimeoutError:
            return False
        async with self._lock:  # an apply may have ended it, or is starting it again
            if not self._active():
                return False
        log.error("the speaker has ended; starting it again", directory=str(self._directory))
        self._sessions = tuple(
            replace(session, up=False, state="Down", problem="the speaker has ended, and is started again")
            for session in self._sessions
        )
        self._refresh()
        self._on_change()
        return True

    def _ours(self, plan: MachinePlan) -> list[AnnouncedAddress]:
        """Return the addresses that this machine announces as routes of this kind."""
        return [
            address
            for address in plan.addresses
            if address.announcement == self._kind and plan.machine in address.machines
        ]

    def _peers(self, plan: MachinePlan) -> Sequence[BgpPeerPlan]:
        return plan.bgp_peers if self._kind == "BGP" else ()

    async def _follow(self) -> None:
        """Make speaker and addresses follow the plan; an error becomes the problem of all sessions and addresses."""
        plan = self._plan
        if plan is None:
            return
        try:
            first = self._prefixes is None
            if self._prefixes is None:
                self._prefixes = self._adopted = frozenset(await self._speaker.adopted() or ())
            ours = self._ours(plan)
            routed = {
                address.address
                for address in plan.addresses
                if address.announcement in ("BGP", "External") and plan.machine in address.machines
            }
            routes = self._routes(plan, ours)
            # Planned here and not served. A route that left the plan is gone everywhere: it takes no others with it.
            self._overdue = not {prefix_of(address) for address in ours} & self._prefixes <= {
                route.prefix for route in routes
            }
            peers = self._passwords.filled(self._peers(plan))
            if not self._withdrew and await self._speaker.adopted() is not None:
                # An address that is back on ``lo`` must not bring back a route that ended with it.
                await self._speaker.apply(peers, [route for route in routes if route.prefix in self._prefixes])
            self._withdrew = True
            await self._local.add([address.address for address in ours])
            if self._active() or await self._speaker.adopted() is not None:
                await self._speaker.apply(peers, routes)
            if not self._active():
                await self._speaker.stop()
            self._prefixes, self._overdue = frozenset(route.prefix for route in routes), False
            await self._local.keep_only(routed)
            self._problem = ""
            if first and self._adopted:
                await self._look()  # or the addresses would look as if they had been withdrawn for a moment
        except FairleadError as error:
            self._fail(error.sentence, error.detail)
        except OSError as error:
            path = error.filename or self._directory
            self._fail(f"{path}: {error.strerror or error}; make the directory of the machine writable")
        self._refresh()

    def _fail(self, sentence: str, detail: str = "") -> None:
        if sentence != self._problem:
            log.error("routes cannot be announced", kind=self._kind, sentence=sentence, detail=detail)
        self._problem = sentence

    def _routes(self, plan: MachinePlan, ours: Sequence[AnnouncedAddress]) -> list[AnnouncedRoute]:
        if plan.drained or self._stopped:
            return []
        before = self._prefixes or frozenset()
        routes: dict[str, AnnouncedRoute] = {}
        for address in sorted(ours, key=lambda address: address.address):
            prefix = prefix_of(address)
            if not self._serving.get(address.address, prefix in before):
                continue
            mortal, proven = len(address.machines) > 1, address.address in self._serving
            member = _cidr(address.address)
            if (other := routes.get(prefix)) is None:
                routes[prefix] = AnnouncedRoute(prefix, address.bgp or BgpAttributes(), mortal, proven, (member,))
            else:
                mortal, proven = other.mortal and mortal, other.proven or proven
                routes[prefix] = replace(other, mortal=mortal, proven=proven, members=(*other.members, member))
        return [routes[prefix] for prefix in sorted(routes)]

    async def _look(self) -> None:
        plan = self._plan
        if not self._overdue:
            await self._renew()
        sessions: Sequence[SessionState] = ()
        if plan is not None and (peers := self._peers(plan)) and not self._stopped:
            try:
                sessions = () if self._problem else await self._speaker.sessions()
            except FairleadError as error:
                log.warning("sessions cannot be read", sentence=error.sentence, detail=error.detail)
                return
            there = {session.peer for session in sessions}
            sessions = [
                *sessions,
                *(
                    SessionState(peer=peer.name, state="Idle", problem=self._problem or _NO_PASSWORD)
                    for peer in peers
                    if peer.name not in there
                ),
            ]
        if (new := tuple(sorted(sessions, key=lambda session: session.peer))) != self._sessions:
            self._sessions = new
            self._refresh()
            self._on_change()

    async def _renew(self) -> None:
        """Renew the lifetime of routes, also while the speaker refuses a change: the routes that it has serve."""
        problem = ""
        try:
            await self._speaker.renew()
        except FairleadError as error:
            problem = error.sentence
        if problem != self._renewal_problem:
            log.warning("lifetime of routes", sentence=problem or "routes are renewed again")
        self._renewal_problem = problem

    def _refresh(self) -> None:
        """Compute the states of all addresses again."""
        plan = self._plan
        if plan is None:
            return
        before = list(self._states.values())
        states: dict[str, AddressState] = {}
        for address in self._ours(plan):
            now = self._judged(plan, address)
            old = self._states.get(address.address)
            if old is not None and old.announced == now.announced:
                if now.announced or old.trigger == now.trigger:
                    states[address.address] = replace(old, problem=now.problem)
                    continue
            elif old is None and now.announced and prefix_of(address) in self._adopted:
                now = now._replace(trigger=Trigger.ADOPTED, cause="adopted after a restart")
            states[address.address] = AddressState(
                address=address.address,
                announced=now.announced,
                interface="lo",
                since=old.since if old is not None and old.announced == now.announced else time.time(),
                cause=now.cause,
                trigger=now.trigger,
                problem=now.problem,
            )
        self._states = states
        if list(states.values()) != before:
            self._on_change()

    def _judged(self, plan: MachinePlan, address: AnnouncedAddress) -> _Verdict:
        prefix = prefix_of(address)
        in_speaker = prefix in (self._prefixes or ())
        serves = self._serving.get(address.address)
        wanted = set(address.bgp.peers if address.bgp is not None else ())
        sessions = [session for session in self._sessions if not wanted or session.peer in wanted]
        up = [session.peer for session in sessions if session.up]
        if in_speaker and (up or self._kind == "External"):
            aggregated = serves is False and not plan.drained
            note = f"{prefix} is announced for other addresses in it; this machine does not serve this one"
            trigger, cause = (
                (Trigger.SESSION_UP, f"sessions with {listed(up, 5)}") if up else (Trigger.ROUTED, "route written")
            )
            return _Verdict(True, trigger, cause, note if aggregated else "")
        if self._stopped:
            return _Verdict(False, Trigger.STOPPED, "planned stop")
        if plan.drained:
            return _Verdict(False, Trigger.DRAINED, "the machine is drained")
        if self._problem:
            return _Verdict(False, Trigger.SPEAKER_FAILED, "the speaker failed", self._problem)
        if serves is None:
            return _Verdict(False, Trigger.UNKNOWN, "the proxy has not reported yet")
        if not serves:
            return _Verdict(False, Trigger.NOT_SERVING, "the proxy does not serve the address")
        if not sessions:
            problem = "no BGPPeer of its Advertisement selects this machine; create one, or correct its spec.machines"
            selected = not wanted and self._peers(plan)
            return _Verdict(False, Trigger.NO_SESSION, "no session with a router", "" if selected else problem)
        why = next((session.problem for session in sessions if session.problem), "")
        problem = why and f"no session with a router is up: {why}"
        return _Verdict(False, Trigger.NO_SESSION, "no session with a router is up", problem)


_NO_PASSWORD = "the hub has no password for this session yet; create the Secret in spec.passwordSecret of the BGPPeer"  # noqa: S105 - a sentence


def prefix_of(address: AnnouncedAddress) -> str:
    """Return the prefix that is announced for an address."""
    return _cidr(address.bgp.aggregate if address.bgp is not None and address.bgp.aggregate else address.address)


class _Passwords:
    """The passwords of sessions: the hub may be unable to read one, which must not end the session."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: dict[str, str] | None = None

    def filled(self, peers: Sequence[BgpPeerPlan]) -> list[BgpPeerPlan]:
        """Return the peers with their last passwords in place of those that the hub cannot read now.

        Peers whose password was never known are left out.
        """
        if self._last is None:
            lines = (line.partition(" ") for line in _read(self._path))
            self._last = {name: password for name, _, password in lines}
        passwords = {
            peer.name: self._last.get(peer.name, "") if peer.keep_password else peer.password for peer in peers
        }
        if (stored := {name: password for name, password in passwords.items() if password}) != self._last:
            _write(self._path, [f"{name} {password}" for name, password in stored.items()])
            self._last = stored
        return [
            replace(peer, password=passwords[peer.name], keep_password=False)
            for peer in peers
            if passwords[peer.name] or not peer.keep_password
        ]


class LocalAddresses:
    """The addresses that we added to ``lo``; the file names them before they are added, and until they are removed.

    With scope ``host`` (IPv4) and no preferred life (IPv6), the kernel never chooses one as the source of a connection.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._added: set[str] = set()

    async def add(self, addresses: Collection[str]) -> None:
        """Add addresses to ``lo`` that are missing there."""
        if missing := sorted(set(addresses) - self._added):
            _write(self._path, sorted({*_read(self._path), *missing}))
            options = {address: "scope host" if "." in address else "nodad preferred_lft 0" for address in missing}
            await ip_batch([f"address replace {_cidr(address)} dev lo {option}" for address, option in options.items()])
            self._added.update(missing)

    async def keep_only(self, addresses: Collection[str]) -> None:
        """Remove the addresses that we added, but for these."""
        recorded = _read(self._path)
        if gone := sorted(set(recorded).difference(addresses)):
            await ip_batch([f"address delete {_cidr(address)} dev lo" for address in gone], gone_is_fine=True)
            self._added.difference_update(gone)
            _write(self._path, sorted(set(recorded).difference(gone)))


@lru_cache(maxsize=100_000)
def _cidr(address: str) -> str:
    """Return the CIDR of an address or a network. Thousands of addresses are asked for again with each plan."""
    return str(ipaddress.ip_network(address, strict=False))


class Lifetime:
    """Addresses on ``lo`` that the kernel removes when this process no longer renews them.

    A speaker outlives this process when nothing is left that serves. So mortal routes depend on such addresses, in the
    way of each speaker, and end with them. Speakers have addresses of their own: one may let its routes end alone.
    """

    def __init__(self) -> None:
        self._addresses: frozenset[str] = frozenset()
        self._renew_at_s = 0.0
        #: A former process let the lifetime end.
        self._let_end = False

    async def keep(self, addresses: Collection[str]) -> None:
        """Renew exactly these addresses, those that are new at once. Others expire."""
        if not self._addresses.issuperset(addresses):
            self._renew_at_s = 0.0
        self._addresses = frozenset(addresses)
        await self.renew()

    async def keep_for(self, routes: Sequence[AnnouncedRoute], address: str, *, left_behind: bool) -> None:
        """Have an address before mortal routes depend on it; ``left_behind``: those of a former process do.

        Not if the former process let it end and nothing is known to serve: that would announce what is dead.
        """
        mortal = [route for route in routes if route.mortal]
        if left_behind and not self._addresses:
            self._let_end = address not in await local_addresses()
        if mortal and not (self._let_end and not any(route.proven for route in mortal)):
            self._let_end = False
            await self.keep([address])

    async def renew(self) -> None:
        """Renew the addresses when that is due."""
        if self._addresses and time.monotonic() >= self._renew_at_s:
            await set_lifetime(self._addresses, f"valid_lft {_LIFETIME_S} preferred_lft 0")
            self._renew_at_s = time.monotonic() + _RENEW_S

    def end(self, routes: Sequence[AnnouncedRoute] = ()) -> None:
        """Renew no longer, unless one of ``routes`` is mortal."""
        if not any(route.mortal for route in routes):
            self._addresses = frozenset()


async def set_lifetime(addresses: Collection[str], lifetime: str) -> None:
    """Give addresses on ``lo``, with their lengths of prefix, a lifetime in the words of ``ip``."""
    options = {address: "scope host" if "." in address else "nodad" for address in sorted(addresses)}
    if options:
        await ip_batch([f"address replace {address} dev lo {option} {lifetime}" for address, option in options.items()])


async def local_addresses() -> set[str]:
    """Return the addresses on ``lo``, with their lengths of prefix."""
    return {line.split()[3] for line in await ip_lines("-o", "address", "show", "dev", "lo") if " inet" in line}


_NO_TABLE = ("FIB table does not exist", "Dump terminated")
_GONE = ("Cannot assign requested address", "No such process", "Address not found")


async def ip_batch(commands: Sequence[str], *, gone_is_fine: bool = False) -> None:
    """Execute commands of ``ip``, all of them even if one fails.

    Raises:
        BadConfiguration: ``ip`` is missing, or we may not change addresses.
        Retry: a command failed.
    """
    text = "".join(f"{command}\n" for command in commands)
    await run_network_program("ip", "-force", "-batch", "-", text=text, ignored=_GONE if gone_is_fine else ())


async def ip_lines(*arguments: str) -> list[str]:
    """Return what ``ip`` shows; nothing of a table that does not exist yet."""
    output = await run_network_program("ip", *arguments, ignored=_NO_TABLE)
    return output.decode(errors="replace").splitlines()


def _read(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        return []


def _write(path: Path, lines: Collection[str]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, "".join(f"{line}\n" for line in lines))
