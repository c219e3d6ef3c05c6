"""Routes for a routing daemon that the operator runs on the machine, such as that of the cluster's network.

    table:7771                    a kernel table; the daemon learns the routes of the table
    include:/etc/bird/fairlead,birdc configure
                                  files fairlead.ipv4 and fairlead.ipv6 with static routes in the syntax of BIRD, and a
                                  command after each change

The daemon has the sessions and decides which routers get the routes. A table has no attributes. Files have communities,
local preference and MED; a path is prepended by the daemon's own filter, which has its AS number.

Routes in files that other machines announce, too, lead to the neighbour of an address on ``lo`` with a lifetime. Routes
in a table stay: the kernel removes routes with an address, but only those of its main table.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from fairlead.announce.bird import static_route
from fairlead.announce.routes import AnnouncedRoute, Lifetime, Speaker, ip_batch, ip_lines
from fairlead.errors import BadConfiguration, Retry
from fairlead.model.machine import BgpPeerPlan, SessionState
from fairlead.runtime.commands import run_command
from fairlead.runtime.private_file import write_private

#: The default location of routes.
DEFAULT_TABLE = 7771
#: Marks our routes in the table; no other program is known to use this number.
_PROTOCOL = 117
_COMMAND_S = 30.0
#: The address with a lifetime, and the next hop. Not those of our own BIRD, which may run, too.
ALIVE, NEXT_HOP = "192.0.0.17/30", "192.0.0.18"


def external_speaker(text: str) -> Speaker:
    """Return the speaker that ``table:NUMBER`` or ``include:PATH,COMMAND`` describes.

    Raises:
        BadConfiguration: the text is neither of them.
    """
    kind, _, value = text.partition(":")
    if kind == "table" and value.isdigit() and 1 <= int(value) <= 4_294_967_295 and int(value) not in (253, 254, 255):
        return KernelTable(int(value))
    if kind == "include" and value.startswith("/"):
        path, _, reload = value.partition(",")
        return IncludeFiles(Path(path), reload)
    raise BadConfiguration(
        f"{text!r} is not a place for external routes: write table:{DEFAULT_TABLE}, or include:/PATH,COMMAND"
    )


class _OperatorsDaemon:
    """The operations that need no action, because the operator's daemon has the sessions."""

    async def renew(self) -> None:
        """Do nothing: the routes of the operator's daemon stay."""

    async def sessions(self) -> Sequence[SessionState]:
        """Return an empty result: the daemon has the sessions."""
        return ()

    async def wait_gone(self) -> None:
        """Never return: no process of ours runs that could end."""
        await asyncio.Event().wait()

    async def apply(self, peers: Sequence[BgpPeerPlan], routes: Sequence[AnnouncedRoute]) -> None:
        """Announce exactly ``routes``; the daemon decides to which routers."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Remove all routes."""
        await self.apply((), ())


class KernelTable(_OperatorsDaemon):
    """Routes in a kernel table of their own."""

    def __init__(self, table: int = DEFAULT_TABLE) -> None:
        self._table = table

    async def adopted(self) -> Collection[str] | None:
        """Return the prefixes in the table; None when there are none."""
        lines = [
            line
            for family in ("-4", "-6")
            for line in await ip_lines(family, "route", "show", "table", str(self._table), "proto", str(_PROTOCOL))
        ]
        prefixes = [line.split()[0] for line in lines if line.strip()]
        return [str(ipaddress.ip_network(prefix)) for prefix in prefixes] or None

    async def apply(self, peers: Sequence[BgpPeerPlan], routes: Sequence[AnnouncedRoute]) -> None:  # noqa: ARG002 - the daemon has the sessions
        """Make the table have exactly ``routes``."""
        wanted, present = {route.prefix for route in routes}, set(await self.adopted() or ())
        place = f"dev lo table {self._table} proto {_PROTOCOL}"
        commands = [f"route delete {prefix} {place}" for prefix in sorted(present - wanted)]
        commands += [f"route replace {prefix} {place}" for prefix in sorted(wanted - present)]
        if commands:
            await ip_batch(commands)


class IncludeFiles(_OperatorsDaemon):
    """Static routes in two files that a BIRD includes; ``reload`` is the command that makes it read them."""

    def __init__(self, path: Path, reload: str = "") -> None:
        self._lifetime = Lifetime()
        self._paths = {family: path.with_name(f"{path.name}.ipv{family}") for family in (4, 6)}
        self._reload = shlex.split(reload)
        #: Run after a start, too: the daemon may not have read the last change.
        self._unread = True

    async def renew(self) -> None:
        """Renew the address with a lifetime when that is due."""
        await self._lifetime.renew()

    async def adopted(self) -> Collection[str] | None:
        """Return the prefixes in the files; None when there are none."""
        return re.findall(r"^route (\S+) ", self._text(), re.MULTILINE) or None

    async def apply(self, peers: Sequence[BgpPeerPlan], routes: Sequence[AnnouncedRoute]) -> None:  # noqa: ARG002 - the daemon has the sessions
        """Write the files and run the command, if they change."""
        await self._lifetime.keep_for(routes, ALIVE, left_behind=f" via {NEXT_HOP}" in self._text())
        for family, path in self._paths.items():
            lines = [
                static_route(route, own_attributes=False, next_hop=NEXT_HOP)
                for route in routes
                if (":" in route.prefix) == (family == 6)
            ]
            text = "".join(f"{line}\n" for line in ("# Generated by fairlead; changes are overwritten.", *lines))
            if not path.exists() or path.read_text() != text:
                write_private(path, text)
                path.chmod(0o644)  # the daemon may run as another user; there is no secret in it
                self._unread = True
        if self._unread and self._reload:
            try:
                async with asyncio.timeout(_COMMAND_S):
                    ended = await run_command(*self._reload)
            except (OSError, TimeoutError) as error:
                raise Retry(f"{self._reload[0]}, which reads the external routes, failed", detail=str(error)) from None
            if ended.code:
                last = (ended.errors.strip() or ended.output.strip()).decode(errors="replace").split("\n")[-1]
                raise Retry(
                    f"{self._reload[0]}, which reads the external routes, failed: {last}; correct its configuration"
                )
        self._unread = False
        self._lifetime.end(routes)

    def _text(self) -> str:
        return "".join(path.read_text() for path in self._paths.values() if path.exists())
