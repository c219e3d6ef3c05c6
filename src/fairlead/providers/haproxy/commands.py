"""The commands for one change of a server, and the verdict on what was read back.

    wanted, missing                 add server, enable health (when checked), enable server
    wanted, there                   set address, weight, state ready: only what differs
    draining                        set state drain; missing is fine, what is about to go is not added
    DEREGISTER, sessions open       set state drain, and wait; when its time is over: shutdown sessions
    DEREGISTER, no sessions         set state maint, del server

A check over HTTPS speaks TLS while the connections of clients pass through as they are; what it asks for is in the
configuration of the backend (option httpchk), since no server that is added at run time can have it.

In: a change, and the server of its name as it was read. Out: commands, and afterwards a verdict on what was read back.
Never: a command about a server that is not named by us.
"""

from __future__ import annotations

from ipaddress import ip_address

import msgspec

from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.desired import HealthCheck, ProxyProtocol
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
        return f"{self.backend}/{self.name}"

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


def commands_for(change: ServerChange, server: Server | None) -> list[str]:
    """Return the commands for one change, given the server that is there; none when it is as it should be."""
    if change.removes:
        return _removal(change, server)
    if change.drains:
        return [f"set server {change.path} state drain"] if server is not None and server.ready else []
    return _addition(change) if server is None else _correction(change, server)


def is_done(change: ServerChange, server: Server | None) -> bool:
    """Return whether what was read back is what the change wanted."""
    if change.removes:
        return server is None
    if change.drains:
        return server is None or not server.ready
    return server is not None and not _correction(change, server)


def waits_for_sessions(change: ServerChange, server: Server | None) -> bool:
    """Return whether a removal has begun and only waits for sessions to end."""
    return change.removes and server is not None and not server.ready and server.sessions != 0


def _addition(change: ServerChange) -> list[str]:
    target, settings = change.change.target, change.settings
    add = [f"add server {change.path} {target.key} weight {target.weight}"]
    add += _check_options(settings.health_check, change.authority)
    if settings.proxy_protocol is not ProxyProtocol.NONE:
        add.append("send-proxy" if settings.proxy_protocol is ProxyProtocol.V1 else "send-proxy-v2")
    health = [f"enable health {change.path}"] if settings.health_check is not None else []
    return [" ".join(add), *health, f"enable server {change.path}"]


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


def _removal(change: ServerChange, server: Server | None) -> list[str]:
    if server is None:
        return []
    if server.sessions == 0 and not server.ready:
        return [f"set server {change.path} state maint", f"del server {change.path}"]
    drain = [f"set server {change.path} state drain"] if server.ready else []
    if server.sessions != 0 and change.cuts_sessions:
        return [*drain, f"shutdown sessions server {change.path}"]
    return drain


def _check_options(check: HealthCheck | None, authority: str) -> list[str]:
    if check is None:
        return []
    # HAProxy has no timeout for checks but in its configuration file: a check is bounded by the interval.
    interval_ms = max(1, round(check.interval_s * 1000))
    options = [f"check inter {interval_ms}ms fall {check.unhealthy_threshold} rise {check.healthy_threshold}"]
    if check.request is not None:
        options.append("check-ssl")
        options.append(f"verify required ca-file {authority}" if check.request.ca_bundle else "verify none")
        if check.request.host:
            options.append(f"check-sni {check.request.host}")
        if check.request.host and check.request.ca_bundle:
            options.append(f"verifyhost {check.request.host}")
    return options
