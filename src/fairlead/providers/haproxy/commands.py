"""The commands for one change of a server, and the verdict on what was read back.

    wanted, missing                 add server, enable health (when checked), enable server
    wanted, there                   set address, weight, state ready: only what differs
    draining                        set state drain; missing is fine, what is about to go is not added
    DEREGISTER, sessions open       set state drain, and wait; when its time is over: shutdown sessions
    DEREGISTER, no sessions         set state maint, del server
    wanted, there with other        add the server under its new name; once that one is up, or the drain time is over,
    check or protocol               remove the earlier one as for DEREGISTER

A check over HTTPS speaks TLS while the connections of clients pass through as they are; what it asks for is in the
configuration of the backend (option httpchk), since no server that is added at run time can have it.

In: a change, and the servers of its target as they were read. Out: commands, and afterwards a verdict on what was read
back.
Never: a command about a server that is not named by us.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

import msgspec

from fairlead.model.change import Action, Reason, TargetChange
from fairlead.providers.haproxy.authorities import authority_name
from fairlead.providers.haproxy.settings import HAProxySettings
from fairlead.providers.haproxy.snapshot import Server

_MAX_WEIGHT = 256


class ServerChange(msgspec.Struct, frozen=True):
    """One change, and the HAProxy server of its target."""

    change: TargetChange
    settings: HAProxySettings
    backend: str
    name: str
    #: The drain time of its sessions is over.
    drain_over: bool = False

    @property
    def path(self) -> str:
        """Return how commands name the server."""
        return self.path_of(self.name)

    def path_of(self, name: str) -> str:
        """Return how commands name one of the servers of its target."""
        return f"{self.backend}/{name}"

    @property
    def authority(self) -> str:
        """Return the name of the authority that HTTPS checks of its load balancer trust."""
        return authority_name(self.settings.installation, self.change.load_balancer, self.settings.authority)

    @property
    def removes(self) -> bool:
        """Return whether the server is to be gone in the end."""
        return self.change.action is Action.DEREGISTER

    @property
    def drains(self) -> bool:
        """Return whether the server is to stay, without new connections."""
        return self.change.action is Action.DRAIN or (not self.removes and self.change.target.draining)

    @property
    def cuts_sessions(self) -> bool:
        """Return whether open sessions are ended now."""
        return self.drain_over or self.change.reason is Reason.DRAINED


def refusal(change: TargetChange) -> str:
    """Return why HAProxy can never serve this target; empty when it can."""
    try:
        address = ip_address(change.key.address)
    except ValueError:
        return f"{change.key.address[:60]!r} is no IP address; HAProxy servers are added by address only"
    if str(address) != change.key.address or getattr(address, "scope_id", None):
        return f"the address {change.key.address[:60]} is not in its canonical form {address}"
    if not 1 <= change.key.port <= 65535:
        return f"{change.key.port} is no port"
    if not 0 <= change.target.weight <= _MAX_WEIGHT:
        return f"HAProxy knows weights from 0 to {_MAX_WEIGHT}, not {change.target.weight}"
    return ""


def commands_for(change: ServerChange, server: Server | None, outdated: Sequence[Server] = ()) -> list[str]:
    """Return the commands for one change, none when all is as it should be.

    ``server`` is the one of its name, ``outdated`` are those of the same target with an earlier check or protocol.
    """
    if change.removes:
        return [text for each in _all(server, outdated) for text in _removal(change, each)]
    if change.drains:
        return [f"set server {change.path_of(each.name)} state drain" for each in _all(server, outdated) if each.ready]
    if server is None:
        return _addition(change)
    replaced = outdated if takes_over(change, server) else ()
    return [*_correction(change, server), *(text for each in replaced for text in _removal(change, each))]


def takes_over(change: ServerChange, server: Server | None) -> bool:
    """Return whether outdated servers of the target may go: traffic would reach it through this one."""
    return server is not None and server.ready and (server.running or not server.checked or change.drain_over)


def is_done(change: ServerChange, server: Server | None, outdated: Sequence[Server] = ()) -> bool:
    """Return whether what was read back is what the change wanted."""
    if change.removes:
        return server is None and not outdated
    if change.drains:
        return not any(each.ready for each in _all(server, outdated))
    return server is not None and not _correction(change, server) and not outdated


def waits_for_sessions(change: ServerChange, server: Server | None, outdated: Sequence[Server] = ()) -> bool:
    """Return whether a removal or replacement has begun and only waits: for sessions to end, or for a check."""
    if change.removes:
        left = _all(server, outdated)
        return bool(left) and all(not each.ready and each.sessions != 0 for each in left)
    if change.drains or not outdated or server is None or _correction(change, server):
        return False
    return not takes_over(change, server) or all(not each.ready and each.sessions != 0 for each in outdated)


def _all(server: Server | None, outdated: Sequence[Server]) -> list[Server]:
    return [*([server] if server is not None else []), *outdated]


def _addition(change: ServerChange) -> list[str]:
    target, settings = change.change.target, change.settings
    add = f"add server {change.path} {target.key} weight {target.weight} {settings.server_options(change.authority)}"
    health = [f"enable health {change.path}"] if settings.health_check is not None else []
    return [add.rstrip(), *health, f"enable server {change.path}"]


def _correction(change: ServerChange, server: Server) -> list[str]:
    """Return what brings a server that is there to what is wanted; also one that was added by half."""
    target = change.change.target
    commands: list[str] = []
    if (server.address, server.port) != (target.key.address, target.key.port):
        commands.append(f"set server {change.path} addr {target.key.address} port {target.key.port}")
    if server.weight != target.weight:
        commands.append(f"set server {change.path} weight {target.weight}")
    if server.check_idle and change.settings.health_check is not None:
        commands.append(f"enable health {change.path}")
    if not server.ready:
        commands.append(f"set server {change.path} state ready")
    return commands


def _removal(change: ServerChange, server: Server) -> list[str]:
    path = change.path_of(server.name)
    if server.sessions == 0 and not server.ready:
        return [f"set server {path} state maint", f"del server {path}"]
    drain = [f"set server {path} state drain"] if server.ready else []
    if server.sessions != 0 and change.cuts_sessions:
        return [*drain, f"shutdown sessions server {path}"]
    return drain
