"""What is said to HAProxy and what it says, without any HAProxy."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import BadConfiguration, Bug, Retry
from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.contract import Validates
from fairlead.model.desired import FrontendSpec, HealthCheck, Listener, Owner, ProxyProtocol, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from fairlead.providers.haproxy.names import prefix, server_name, target_of
from fairlead.providers.haproxy.provider import HAProxyProvider
from fairlead.providers.haproxy.rows import Row, commands, done, refusal, waits
from fairlead.providers.haproxy.runtime_api import RuntimeApi, _lines
from fairlead.providers.haproxy.settings import Settings, settings_from_spec
from fairlead.providers.haproxy.state import Server, snapshot_from_text

KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")
HTTP = ListenerKey(Protocol.TCP, 80)
SETTINGS = Settings("/s", {HTTP: "b"}, 30.0, None, ProxyProtocol.NONE, ())
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
    settings: Settings = SETTINGS,
    cut: bool = False,
) -> Row:
    change = TargetChange(KEY, HTTP, Target(TargetKey(address, 80), weight, draining), action, reason)
    return Row(change, settings, "b", "x", cut)


def busy(server: Server) -> Server:
    return msgspec.structs.replace(server, sessions=2)


READY_AGAIN = "set server b/x state ready"
DRAIN = "set server b/x state drain"
DELETE = ["set server b/x state maint", "del server b/x"]
CUT = "shutdown sessions server b/x"


@pytest.mark.parametrize(
    ("wanted", "there", "said"),
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
        (row(Action.DEREGISTER, cut=True), busy(DRAINING), [CUT]),
        (row(Action.DEREGISTER, reason=Reason.DRAINED), busy(READY), [DRAIN, CUT]),
    ],
)
def test_rows_become_commands(wanted: Row, there: Server | None, said: list[str]) -> None:
    assert commands(wanted, there) == said
    # A fixed point: nothing is said when nothing is left to do, or only time can do it.
    assert not (said and done(wanted, there))
    assert said or done(wanted, there) or waits(wanted, there)


def test_checks_and_the_proxy_header_are_asked_for_when_a_server_is_added() -> None:
    settings = msgspec.structs.replace(
        SETTINGS, health_check=HealthCheck(0.5, 1, 3, 2), proxy_protocol=ProxyProtocol.V2
    )
    assert commands(row(Action.REGISTER, address="2001:db8::1", settings=settings), None) == [
        "add server b/x [2001:db8::1]:80 weight 1 check inter 500ms fall 3 rise 2 send-proxy-v2",
        "enable health b/x",
        "enable server b/x",
    ]
    half = msgspec.structs.replace(IN_MAINTENANCE, checked=True, check_idle=True)
    assert commands(row(Action.REGISTER, settings=settings), half) == ["enable health b/x", READY_AGAIN]


@pytest.mark.parametrize(
    ("at", "weight", "words"),
    [
        (TargetKey("10.0.0.1", 80), 256, ""),
        (TargetKey("2001:db8::1", 65535), 0, ""),
        (TargetKey("web.example", 80), 1, "no IP address"),
        (TargetKey("10.0.0.1;shutdown sessions server b/x", 80), 1, "no IP address"),
        (TargetKey("2001:DB8:0::1", 80), 1, "canonical"),
        (TargetKey("fe80::1%eth0;x", 80), 1, "canonical"),
        (TargetKey("10.0.0.1", 0), 1, "no port"),
        (TargetKey("10.0.0.1", 80), 257, "weights"),
    ],
)
def test_what_haproxy_can_never_serve_is_refused(at: TargetKey, weight: int, words: str) -> None:
    change = TargetChange(KEY, HTTP, Target(at, weight), Action.REGISTER, Reason.NEW)
    assert words in refusal(change)
    assert bool(refusal(change)) == bool(words)


@given(st.ip_addresses(), st.integers(1, 65535))
def test_names_say_what_they_stand_for(address: object, port: int) -> None:
    target = TargetKey(str(address).split("%", maxsplit=1)[0], port)
    name = server_name("", KEY, HTTP, target)
    assert target_of(name, prefix("", KEY, HTTP)) == target
    assert target_of(name, prefix("other", KEY, HTTP)) is None
    assert not set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789-._:")


def test_no_two_owners_share_a_prefix() -> None:
    """B32: separators inside names move nothing from one part into another."""
    keys = [LoadBalancerKey("k", "a", "b-c"), LoadBalancerKey("k", "a-b", "c"), LoadBalancerKey("k", "a", "B-c")]
    ports = [HTTP, ListenerKey(Protocol.TCP, 8080), ListenerKey(Protocol.UDP, 80)]
    found = {prefix(installation, key, port) for installation in ("", "k") for key in keys for port in ports}
    assert len(found) == 18


@pytest.mark.parametrize(
    "name", ["theirs", "fl-", "fl-1234567890-10.0.0.1_80", "fl-1234567890-", "fl-xx-10.0.0.1_80", "fl-10.0.0.1_80"]
)
def test_other_names_are_foreign(name: str) -> None:
    assert target_of(name, prefix("", KEY, HTTP)) is None


@pytest.mark.parametrize(
    ("parameters", "listeners", "words"),
    [
        ({}, (80,), "parameters.socket is missing"),
        ({"socket": "admin.sock", "backend": "b"}, (80,), "absolute path"),
        ({"socket": "/" + "x" * 120, "backend": "b"}, (80,), "107 bytes"),
        ({"socket": "/s"}, (80,), "existing.backend is missing"),
        ({"socket": "/s", "backend": "b"}, (80, 443), r"existing\.backend\.80 is missing"),
        ({"socket": "/s", "backend": "b;shutdown"}, (80,), "cannot be the name"),
        ({"socket": "/s", "backend": "b\nquit"}, (80,), "cannot be the name"),
        ({"socket": "/s", "backend": "b", "drainTimeout": "soon"}, (80,), "drainTimeout"),
        (
            {"socket": "/s", "backend": "b", "sockt": "/t"},
            (80,),
            r"parameters\.sockt is unknown .* did you mean socket",
        ),
        ({"socket": "/s", "backend": "{shop}"}, (80,), r"'\{shop\}' is unknown; .* \{member\}, \{namespace\}"),
        ({"socket": "/s", "backend": "b{"}, (80,), "cannot be the name"),
    ],
)
def test_mistakes_name_the_field(parameters: dict[str, str], listeners: tuple[int, ...], words: str) -> None:
    spec = FrontendSpec(KEY, "group", tuple(map(Listener, listeners)), parameters=parameters)
    with pytest.raises(BadConfiguration, match=words):
        settings_from_spec(spec)


@pytest.mark.req("L-37")
async def test_mistakes_are_refused_before_anything_is_made() -> None:
    provider = HAProxyProvider()
    assert isinstance(provider, Validates)
    good = FrontendSpec(KEY, "group", (Listener(80),), parameters={"socket": "/s", "backend": "b"})
    await provider.validate(good)
    await provider.validate_backends(good, backend_type="Pod", parameters={"weight": "3"})
    bad = msgspec.structs.replace(good, parameters={"socket": "/s", "backend": "b", "sockt": "/t"})
    with pytest.raises(BadConfiguration, match=r"parameters\.sockt is unknown"):
        await provider.validate(bad, old=good)
    with pytest.raises(BadConfiguration, match=r"parameters\.wieght of backends is unknown .* there is weight"):
        await provider.validate_backends(good, backend_type="Pod", parameters={"wieght": "3"})


def test_a_service_has_no_field_for_its_backend_so_its_class_is_named() -> None:
    key = LoadBalancerKey("TCPLoadBalancer", "tenant-east", "shop.web")
    spec = FrontendSpec(key, "group", (Listener(80),), parameters={"socket": "/s"})
    with pytest.raises(BadConfiguration, match=r"its class's parameters\.backend is missing"):
        settings_from_spec(spec)


@pytest.mark.req("L-10")
def test_one_class_serves_many_services_by_placeholders() -> None:
    owner = Owner(member="east", kind="Service", namespace="shop", name="web")
    parameters = {"socket": "/s", "backend": "{member}.{namespace}-{name}:{port}", "backend.443": "{name}-tls"}
    spec = FrontendSpec(KEY, "group", (Listener(80), Listener(443)), parameters=parameters, owner=owner)
    settings = settings_from_spec(spec)
    assert list(settings.backends.values()) == ["east.shop-web:80", "web-tls"]
    retired = Listener(8080).key
    assert settings.backend_of(retired, removal=False) == ""
    assert settings.backend_of(retired, removal=True) == "east.shop-web:8080"
    # What was asked for once is where it is, whatever its owner is called by then.
    anonymous = settings_from_spec(msgspec.structs.replace(spec, owner=Owner()))
    assert anonymous.where_it_was(settings.info).backends == settings.backends


def test_each_listener_has_its_backend_and_udp_has_none() -> None:
    parameters = {"socket": "/s", "backend.80": "plain", "backend.443": "tls"}
    spec = FrontendSpec(KEY, "group", (Listener(80), Listener(443)), parameters=parameters)
    assert list(settings_from_spec(spec).backends.values()) == ["plain", "tls"]
    udp = msgspec.structs.replace(spec, listeners=(Listener(53, Protocol.UDP),))
    with pytest.raises(BadConfiguration, match="TCP only"):
        settings_from_spec(udp)


def test_commands_share_lines_that_haproxy_can_take() -> None:
    words = [f"add server b/{number} 10.0.0.1:80 weight 1" for number in range(1000)]
    lines = list(_lines(words))
    assert ";".join(lines).split(";") == words
    assert max(map(len, lines)) <= 12_000
    assert len(lines) == 4
    for smuggled in ("a;b", "a\nb", "a\\", "a << b"):
        with pytest.raises(Bug):
            list(_lines([smuggled]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Pid: 7\n\n1\n# be_id be_name srv_id\n3 b 1\n", "cannot read"),
        ("Pid: 7\n\n1\n# be_id be_name srv_name srv_admin_state\n3 b x many\n", "cannot read"),
        ("", "does not speak"),
        ("HTTP/1.1 400 Bad Request\r\n", "does not speak"),
        ("Permission denied\n", "level admin"),
    ],
)
def test_another_program_on_the_socket_is_noticed(text: str, words: str) -> None:
    with pytest.raises(Retry, match=words):
        snapshot_from_text(text, "b", socket="/s")


def test_complaints_do_not_hide_what_is_there() -> None:
    text = (
        "unknown keyword 'foo'; did you mean: bar\n\nName: HAProxy\nVersion: 3.0.1\nPid: 7\nStart_time_sec: 9\n"
        "Stopping: 0\n\n1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight "
        "srv_check_state srv_port some_new_field\n3 b 1 x 2001:DB8::1 2 8 5 6 80 -\n"
        "3 other 1 y 10.0.0.1 2 0 5 0 80 -\n\n"
    )
    found = snapshot_from_text(text, "b", socket="/s")
    assert (found.epoch, found.version, found.words) == ("7@9", "3.0.1", ("unknown keyword 'foo'; did you mean: bar",))
    assert found.servers is not None
    assert list(found.servers) == ["x"]
    assert (found.servers["x"].address, found.servers["x"].draining, found.servers["x"].check_idle) == (
        "2001:db8::1",
        True,
        False,
    )


async def test_a_socket_that_is_not_there_is_named() -> None:
    with pytest.raises(Retry, match=r"/nowhere/admin\.sock"):
        await RuntimeApi("/nowhere/admin.sock").run(["show info"])
