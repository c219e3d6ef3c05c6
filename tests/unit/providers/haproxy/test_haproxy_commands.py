"""Which commands one change needs, and which targets HAProxy can never serve."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.desired import ProxyProtocol, Target
from fairlead.model.health import HealthCheck
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from fairlead.providers.haproxy.commands import ServerChange, commands_for, is_done, refusal, waits_for_sessions
from fairlead.providers.haproxy.settings import HAProxySettings
from fairlead.providers.haproxy.snapshot import Server

KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")
HTTP = ListenerKey(Protocol.TCP, 80)
SETTINGS = HAProxySettings("/s", {HTTP: "b"}, 30.0, None, ProxyProtocol.NONE, ())
READY = Server("x", "10.0.0.1", 80, 1, False, False, False, False, True, 0)
DRAINING = msgspec.structs.replace(READY, draining=True)
IN_MAINTENANCE = msgspec.structs.replace(READY, maintenance=True)


def row(
    action: Action,
    *,
    draining: bool = False,
    weight: int = 1,
    address: str = "10.0.0.1",
    reason: Reason = Reason.NEW,
    settings: HAProxySettings = SETTINGS,
    drain_over: bool = False,
) -> ServerChange:
    change = TargetChange(KEY, HTTP, Target(TargetKey(address, 80), weight, draining), action, reason)
    return ServerChange(change, settings, "b", "x", drain_over)


def busy(server: Server) -> Server:
    return msgspec.structs.replace(server, sessions=2)


READY_AGAIN = "set server b/x state ready"
DRAIN = "set server b/x state drain"
DELETE = ["set server b/x state maint", "del server b/x"]
CUT = "shutdown sessions server b/x"


@pytest.mark.parametrize(
    ("wanted", "there", "expected"),
    [
        (row(Action.REGISTER), None, ["add server b/x 10.0.0.1:80 weight 1", "enable server b/x"]),
        (row(Action.REGISTER), READY, []),
        (row(Action.REGISTER), IN_MAINTENANCE, [READY_AGAIN]),
        (row(Action.UPDATE), DRAINING, [READY_AGAIN]),
        (row(Action.UPDATE, weight=9), READY, ["set server b/x weight 9"]),
        (
            row(Action.UPDATE),
            msgspec.structs.replace(READY, address="10.9.9.9"),
            ["set server b/x addr 10.0.0.1 port 80"],
        ),
        (row(Action.UPDATE, draining=True), READY, [DRAIN]),
        (row(Action.UPDATE, draining=True), None, []),
        (row(Action.DRAIN), READY, [DRAIN]),
        (row(Action.DRAIN), DRAINING, []),
        (row(Action.DRAIN), None, []),
        (row(Action.DEREGISTER), None, []),
        (row(Action.DEREGISTER), READY, [DRAIN]),
        (row(Action.DEREGISTER), busy(READY), [DRAIN]),
        (row(Action.DEREGISTER), busy(DRAINING), []),
        (row(Action.DEREGISTER), DRAINING, DELETE),
        (row(Action.DEREGISTER), IN_MAINTENANCE, DELETE),
        (row(Action.DEREGISTER, drain_over=True), busy(DRAINING), [CUT]),
        (row(Action.DEREGISTER, reason=Reason.DRAINED), busy(READY), [DRAIN, CUT]),
    ],
)
def test_rows_become_commands(wanted: ServerChange, there: Server | None, expected: list[str]) -> None:
    assert commands_for(wanted, there) == expected
    # A fixed point: nothing is expected when nothing is left to do, or only time can do it.
    assert not (expected and is_done(wanted, there))
    assert expected or is_done(wanted, there) or waits_for_sessions(wanted, there)


def test_checks_and_the_proxy_header_are_asked_for_when_a_server_is_added() -> None:
    settings = msgspec.structs.replace(
        SETTINGS, health_check=HealthCheck(0.5, 1, 3, 2), proxy_protocol=ProxyProtocol.V2
    )
    assert commands_for(row(Action.REGISTER, address="2001:db8::1", settings=settings), None) == [
        "add server b/x [2001:db8::1]:80 weight 1 check inter 500ms fall 3 rise 2 send-proxy-v2",
        "enable health b/x",
        "enable server b/x",
    ]
    half = msgspec.structs.replace(IN_MAINTENANCE, checked=True, check_idle=True)
    assert commands_for(row(Action.REGISTER, settings=settings), half) == ["enable health b/x", READY_AGAIN]


@pytest.mark.parametrize(
    ("at", "weight", "message"),
    [
        (TargetKey("10.0.0.1", 80), 256, ""),
        (TargetKey("2001:db8::1", 65535), 0, ""),
        (TargetKey("web.example", 80), 1, "not an IP address"),
        (TargetKey("10.0.0.1;shutdown sessions server b/x", 80), 1, "not an IP address"),
        (TargetKey("2001:DB8:0::1", 80), 1, "canonical"),
        (TargetKey("fe80::1%eth0;x", 80), 1, "canonical"),
        (TargetKey("10.0.0.1", 0), 1, "not a port"),
        (TargetKey("10.0.0.1", 80), 257, "weight 257"),
    ],
)
def test_what_haproxy_can_never_serve_is_refused(at: TargetKey, weight: int, message: str) -> None:
    change = TargetChange(KEY, HTTP, Target(at, weight), Action.REGISTER, Reason.NEW)
    assert message in refusal(change)
    assert bool(refusal(change)) == bool(message)
