"""Which commands does one row of a plan need, and has it had its effect?

    wanted, missing                 add server, enable health (when checked), enable server
    wanted, there                   set address, weight, state ready: only what differs
    draining                        set state drain; missing is fine, nobody adds what is about to go
    DEREGISTER, sessions open       set state drain, and wait; when its time is over: shutdown sessions
    DEREGISTER, no sessions         set state maint, del server

In: a row, and the server of its name as it was read. Out: commands, and afterwards a verdict on what was read back.
Never: a command about a server that is not named by us.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

import msgspec

from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.desired import HealthCheck, ProxyProtocol
from fairlead.providers.haproxy.settings import Settings
from fairlead.providers.haproxy.state import Server

_HEAVIEST = 256


class Row(msgspec.Struct, frozen=True):
    """One change, and the server that stands for its target."""

    change: TargetChange
    settings: Settings
    backend: str
    name: str
    #: Its sessions have had their time.
    cut: bool = False

    @property
    def path(self) -> str:
        """Return how commands name the server."""
        return f"{self.backend}/{self.name}"

    @property
    def removes(self) -> bool:
        """Say whether the server is to be gone in the end."""
        return self.change.action is Action.DEREGISTER

    @property
    def drains(self) -> bool:
        """Say whether the server is to stay, without new connections."""
        return self.change.action is Action.DRAIN or (not self.removes and self.change.target.draining)

    @property
    def cuts(self) -> bool:
        """Say whether sessions are ended now."""
        return self.cut or self.change.reason is Reason.DRAINED


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
    if not 0 <= change.target.weight <= _HEAVIEST:
        return f"HAProxy knows weights from 0 to {_HEAVIEST}, not {change.target.weight}"
    return ""


def commands(row: Row, server: Server | None) -> list[str]:
    """Return what is to be said about one row, given what is there; nothing when it is as it should be."""
    if row.removes:
        return _removal(row, server)
    if row.drains:
        return [f"set server {row.path} state drain"] if server is not None and server.ready else []
    return _addition(row) if server is None else _correction(row, server)


def done(row: Row, server: Server | None) -> bool:
    """Say whether what was read back is what the row wanted."""
    if row.removes:
        return server is None
    if row.drains:
        return server is None or not server.ready
    return server is not None and not _correction(row, server)


def waits(row: Row, server: Server | None) -> bool:
    """Say whether a removal has begun and has only sessions to wait for."""
    return row.removes and server is not None and not server.ready and server.sessions != 0


def _addition(row: Row) -> list[str]:
    target = row.change.target
    words = [f"add server {row.path} {_where(target.key.address, target.key.port)} weight {target.weight}"]
    words += _check_words(row.settings.health_check)
    if row.settings.proxy_protocol is not ProxyProtocol.NONE:
        words.append("send-proxy" if row.settings.proxy_protocol is ProxyProtocol.V1 else "send-proxy-v2")
    health = [f"enable health {row.path}"] if row.settings.health_check is not None else []
    return [" ".join(words), *health, f"enable server {row.path}"]


def _correction(row: Row, server: Server) -> list[str]:
    """Return what brings a server that is there to what is wanted; also one that was added by half."""
    target = row.change.target
    found: list[str] = []
    if (server.address, server.port) != (target.key.address, target.key.port):
        found.append(f"set server {row.path} addr {target.key.address} port {target.key.port}")
    if server.weight != target.weight:
        found.append(f"set server {row.path} weight {target.weight}")
    if server.check_idle and row.settings.health_check is not None:
        found.append(f"enable health {row.path}")
    if not server.ready:
        found.append(f"set server {row.path} state ready")
    return found


def _removal(row: Row, server: Server | None) -> list[str]:
    if server is None:
        return []
    if server.sessions == 0 and not server.ready:
        return [f"set server {row.path} state maint", f"del server {row.path}"]
    begin = [f"set server {row.path} state drain"] if server.ready else []
    if server.sessions != 0 and row.cuts:
        return [*begin, f"shutdown sessions server {row.path}"]
    return begin


def _check_words(check: HealthCheck | None) -> list[str]:
    if check is None:
        return []
    # HAProxy has no time out of its own for checks but in the configuration: it is bounded by the interval.
    interval_ms = max(1, round(check.interval_s * 1000))
    return [f"check inter {interval_ms}ms fall {check.unhealthy_threshold} rise {check.healthy_threshold}"]


def _where(address: str, port: int) -> str:
    return f"[{address}]:{port}" if isinstance(ip_address(address), IPv6Address) else f"{address}:{port}"
