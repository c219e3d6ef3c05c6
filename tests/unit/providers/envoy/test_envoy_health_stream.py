"""Health streams: what is asked, what is taken from a report, and what a report costs."""

from __future__ import annotations

import pytest

from fairlead.api.meta import JSONObject
from fairlead.model.desired import FrontendSpec, Listener, ProxyProtocol, Target
from fairlead.model.health import HealthCheck
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from fairlead.model.observed import Seen
from fairlead.providers.envoy import health_board
from fairlead.providers.envoy.clusters import EndpointSet, GroupChecks, TargetPort, check_of, next_pace
from fairlead.providers.envoy.health_board import HealthStream, report_interval_s
from fairlead.providers.envoy.resources import packaged_schema, resource_name
from tests.envoy_json import to_json

pytestmark = pytest.mark.req("X-1")
SCHEMA = packaged_schema()
REPORT = "envoy.service.health.v3.HealthCheckRequestOrEndpointHealthResponse"
SPECIFIER = "envoy.service.health.v3.HealthCheckSpecifier"
ONE, TWO = TargetKey("10.0.0.1", 8080), TargetKey("2001:db8::2", 8080)
KEY = LoadBalancerKey("TCPLoadBalancer", "shop", "web")
NAME = "TCPLoadBalancer/shop/web/TCP/80"
#: When the first check of two targets has ended, if it was asked for at 0.
CHECKED_S = 1.3


class Group:
    """One group: its ports by name, and a stream."""

    def __init__(self) -> None:
        self.ports: dict[str, tuple[FrontendSpec, ListenerKey, TargetPort]] = {}
        self.published = True
        self.encoded = 0
        self.checks = GroupChecks(self._find, published=lambda: self.published)
        self.stream = HealthStream(checks=self.checks, schema=SCHEMA, node_id="p1")

    def _find(self, name, pace):
        self.encoded += 1
        return check_of(SCHEMA, *self.ports[name], pace) if name in self.ports else None

    def put(self, *targets: Target, key: LoadBalancerKey = KEY, protocol: Protocol = Protocol.TCP, **spec) -> str:
        listener = Listener(80, protocol)
        name = resource_name(key, listener.key)
        frontend = FrontendSpec(key=key, group="g", listeners=(listener,), **spec)
        dns = {target.key for target in targets if target.key.address[0].isalpha()}
        self.ports[name] = (frontend, listener.key, TargetPort(name, EndpointSet(targets), dns))
        self.checks.touch([name])
        return name

    def asked(self, now: float = 0.0):
        specifier = self.stream.pump(now=now)
        if specifier is None:
            return None
        return {
            check["cluster_name"]: [
                endpoint["address"]["socket_address"]["address"]
                for group in check["locality_endpoints"]
                for endpoint in group["endpoints"]
            ]
            for check in checks_in(specifier)
        }


def checks_in(specifier: bytes | None) -> list[JSONObject]:
    """Return the checks that Envoy is asked for."""
    assert specifier is not None
    checks = to_json(SCHEMA, SPECIFIER, specifier).get("cluster_health_checks", [])
    assert isinstance(checks, list)
    return checks


def entry(key: TargetKey, status: str):
    where = {"address": key.address, "port_value": key.port}
    return {"endpoint": {"address": {"socket_address": where}}, "health_status": status}


def report(**clusters: dict[TargetKey, str]) -> bytes:
    """What Envoy sends: every endpoint twice, once next to its cluster."""
    entries = {name: [entry(*item) for item in seen.items()] for name, seen in clusters.items()}
    response = {
        "endpoints_health": [each for some in entries.values() for each in some],
        "cluster_endpoints_health": [
            {"cluster_name": name, "locality_endpoints_health": [{"endpoints_health": some}]}
            for name, some in entries.items()
        ],
    }
    return SCHEMA.encode(REPORT, {"endpoint_health_response": response})


def seen_by(group: Group, at_s: float = CHECKED_S, **statuses: str) -> list[Seen]:
    group.stream.on_report(
        report(**{NAME: {ONE: statuses.get("one", "HEALTHY"), TWO: statuses.get("two", "HEALTHY")}}), now=at_s
    )
    return [group.stream.seen(NAME, key) for key in (ONE, TWO)]


def both() -> Group:
    group = Group()
    group.put(Target(ONE), Target(TWO))
    assert group.asked() == {NAME: [ONE.address, TWO.address]}
    return group


def test_the_check_is_the_clusters_own():
    group = Group()
    check = HealthCheck(interval_s=3, timeout_s=0.5, unhealthy_threshold=4, healthy_threshold=2)
    group.put(Target(ONE), health_check=check, proxy_protocol=ProxyProtocol.V2)
    (asked,) = checks_in(group.stream.pump(now=0.0))
    assert asked["health_checks"] == [
        {
            "timeout": "0.500s",
            "interval": "3s",
            "interval_jitter_percent": 10,
            "no_traffic_interval": "3s",
            "unhealthy_threshold": 4,
            "healthy_threshold": 2,
            "tcp_health_check": {},
        }
    ]
    assert asked["transport_socket_matches"][0]["transport_socket"]["name"] == (
        "envoy.transport_sockets.upstream_proxy_protocol"
    )


@pytest.mark.parametrize(
    ("targets", "more"),
    [
        pytest.param([], {}, id="no-targets"),
        pytest.param([Target(ONE, draining=True), Target(TWO, weight=0)], {}, id="none-in-rotation"),
        pytest.param([Target(ONE)], {"health_check": None}, id="off"),
        pytest.param([Target(ONE)], {"protocol": Protocol.UDP}, id="udp"),
        pytest.param([Target(TargetKey("db.example", 1)), Target(ONE)], {}, id="dns-name"),
    ],
)
def test_what_envoy_cannot_check_for_us_is_never_asked(targets, more):
    group = Group()
    group.put(*targets, **more)
    assert group.asked() is None
    group.put(Target(ONE), key=LoadBalancerKey("TCPLoadBalancer", "shop", "other"))
    assert list(group.asked() or ()) == ["TCPLoadBalancer/shop/other/TCP/80"]


def test_nothing_is_asked_before_all_that_is_wanted_is_known():
    group = Group()
    group.published = False
    group.put(Target(ONE))
    assert group.asked() is None
    group.published = True
    assert group.asked() == {NAME: [ONE.address]}


def test_the_next_specifier_waits_for_a_report_and_has_all_changes():
    group = both()
    assert group.asked() is None
    group.put(Target(ONE))
    other = group.put(Target(TWO), key=LoadBalancerKey("TCPLoadBalancer", "shop", "other"))
    assert group.asked() is None
    group.stream.on_report(b"", now=0.5)
    assert group.asked(0.5) == {NAME: [ONE.address], other: [TWO.address]}
    group.stream.on_report(b"", now=1.0)
    assert group.asked(1.0) is None


def test_the_more_targets_there_are_the_longer_the_next_specifier_waits():
    group = Group()
    group.put(*(Target(TargetKey(f"10.0.{number >> 8}.{number & 255}", 80)) for number in range(10_000)))
    assert group.asked() is not None
    woken: list[int] = []
    other = group.put(Target(TWO), key=LoadBalancerKey("TCPLoadBalancer", "shop", "other"))
    group.stream.wake = lambda: woken.append(1)
    for early_s in (0.5, 2.9):
        group.stream.on_report(b"", now=early_s)
        assert (woken, group.asked(early_s)) == ([], None)
    group.stream.on_report(b"", now=3.0)
    assert woken
    assert other in (group.asked(3.0) or ())


def test_no_specifier_waits_longer_than_a_quarter_of_a_minute(monkeypatch):
    monkeypatch.setattr(health_board, "_PAUSE_PER_TARGET_S", 1.0)
    group = Group()
    group.put(*(Target(TargetKey(f"10.0.0.{number}", 80)) for number in range(100)))
    assert group.asked() is not None
    group.put(Target(ONE))
    group.stream.on_report(b"", now=14.9)
    assert group.asked(14.9) is None
    group.stream.on_report(b"", now=15.0)
    assert group.asked(15.0) is not None


def test_a_change_encodes_its_own_cluster_only():
    group = both()
    group.put(Target(TWO), key=LoadBalancerKey("TCPLoadBalancer", "shop", "other"))
    group.stream.on_report(b"", now=0.5)
    group.asked(0.5)
    before = group.encoded
    group.put(Target(ONE))
    group.stream.on_report(b"", now=1.0)
    assert len(group.asked(1.0) or ()) == 2
    assert group.encoded == before + 1


def test_a_new_target_is_waited_for_until_its_first_check_has_ended():
    group = both()
    assert seen_by(group, 0.5) == [Seen.WAITING, Seen.WAITING]
    assert seen_by(group, 0.6, two="TIMEOUT") == [Seen.WAITING, Seen.UNHEALTHY]
    assert seen_by(group, CHECKED_S, two="TIMEOUT") == [Seen.HEALTHY, Seen.UNHEALTHY]


def test_the_end_of_the_wait_is_a_change_though_the_report_is_the_same():
    group = both()
    same = report(**{NAME: {ONE: "HEALTHY", TWO: "HEALTHY"}})
    assert group.stream.on_report(same, now=0.5) == set(), "both are waited for, as before"
    assert group.stream.on_report(same, now=1.0) == set()
    assert group.stream.on_report(same, now=CHECKED_S) == {NAME}
    assert group.stream.on_report(same, now=2.0) == set()


def test_only_what_has_changed_is_decoded(monkeypatch):
    group = both()
    other = group.put(Target(TWO), key=LoadBalancerKey("TCPLoadBalancer", "shop", "other"))
    group.stream.on_report(b"", now=0.5)
    group.asked(0.5)
    decoded = []
    read = SCHEMA.read_cluster_health
    monkeypatch.setattr(SCHEMA, "read_cluster_health", lambda raw: decoded.append(1) or read(raw))
    mine = {ONE: "HEALTHY", TWO: "HEALTHY"}
    assert group.stream.on_report(report(**{NAME: mine, other: {TWO: "HEALTHY"}}), now=5.0) == {NAME, other}
    assert len(decoded) == 2
    assert group.stream.on_report(report(**{NAME: mine, other: {TWO: "UNHEALTHY"}}), now=6.0) == {other}
    assert len(decoded) == 3
    assert group.stream.seen(other, TWO) is Seen.UNHEALTHY


def test_unasked_messages_are_not_accepted():
    group = both()
    assert group.stream.on_report(report(**{"TCPLoadBalancer/evil/web/TCP/80": {ONE: "UNHEALTHY"}}), now=2.0) == {NAME}
    assert group.stream.seen("TCPLoadBalancer/evil/web/TCP/80", ONE) is Seen.WAITING
    assert group.stream.seen(NAME, TargetKey("10.9.9.9", 1)) is Seen.WAITING


def test_a_cluster_that_is_gone_is_forgotten():
    group = both()
    assert seen_by(group) == [Seen.HEALTHY, Seen.HEALTHY]
    del group.ports[NAME]
    group.checks.touch([NAME])
    assert group.asked(2.0) == {}
    assert group.stream.seen(NAME, ONE) is Seen.WAITING
    assert group.checks.targets == 0
    assert group.stream.close() == frozenset()
    assert group.checks.readers == []


@pytest.mark.parametrize("raw", [b"\x12", b"\x12\x05ab", b"\x08\x01", b"\x12\x04\x12\x02\x0a\x09", b"\xff" * 9])
def test_a_report_that_cannot_be_read_is_an_error(raw):
    with pytest.raises(ValueError, match=r"field|decode|not a"):
        both().stream.on_report(raw, now=1.0)


def test_many_targets_are_reported_less_often():
    counts = (0, 1_499, 1_500, 4_500, 1_000_000)
    assert [report_interval_s(targets, quick=True) for targets in counts] == [0.5, 0.5, 1, 2, 2]
    assert [report_interval_s(targets, quick=False) for targets in counts] == [0.5, 1.499, 1.5, 4.5, 5]


def test_reports_come_often_only_while_new_targets_wait_for_their_checks():
    group, at_s = Group(), 0.0
    many = [Target(TargetKey(f"10.1.{number // 250}.{number % 250}", 80)) for number in range(4_000)]
    name = group.put(*many)

    def run(seconds: int, *extra: Target) -> list[str]:
        """Let the proxy report for some time, and return how often it was asked to with each new specifier."""
        nonlocal at_s
        asked: list[str] = []
        if extra:
            group.put(*many, *extra)
        raw = report(**{name: {target.key: "HEALTHY" for target in (*many, *extra)}})
        for _ in range(seconds):
            if (specifier := group.stream.pump(now=at_s)) is not None:
                asked.append(to_json(SCHEMA, SPECIFIER, specifier)["interval"])
            at_s += 1
            group.stream.on_report(raw, now=at_s)
        return asked

    assert run(300) == ["1.500s", "4s"], "a specifier costs the proxy time, so there is one for each pace"
    assert run(300, Target(ONE)) == ["1.500s", "4.001s"]
    assert run(300) == []


def test_few_targets_are_asked_for_once():
    group = both()
    for at_s in range(1, 300):
        seen_by(group, at_s)
        assert group.asked(float(at_s)) is None


# --- a proxy that reports no more ---


def test_a_silent_proxy_is_overdue_after_ten_seconds():
    group = Group()
    name = group.put(Target(ONE))
    group.asked()
    assert not group.stream.is_overdue(now=1000.0), "it may be busy with its configuration before its first report"
    group.stream.on_report(report(**{name: {ONE: "HEALTHY"}}), now=CHECKED_S)
    assert not group.stream.is_overdue(now=CHECKED_S + 9.9)
    assert not group.stream.is_overdue(now=CHECKED_S + 11, acknowledged_s=CHECKED_S + 2), "it takes over configuration"
    assert group.stream.is_overdue(now=CHECKED_S + 10)
    revision = group.stream.revision
    assert group.stream.fall_silent() == {name}
    assert group.stream.revision > revision
    assert group.stream.seen(name, ONE) is Seen.SILENT
    assert group.stream.summary() == {name: (frozenset({ONE}), [], [ONE])}
    assert not group.stream.is_overdue(now=1000.0), "once"


def test_a_proxy_that_reports_again_is_believed_again_though_it_reports_the_same():
    group = Group()
    name = group.put(Target(ONE))
    group.asked()
    same = report(**{name: {ONE: "HEALTHY"}})
    group.stream.on_report(same, now=CHECKED_S)
    group.stream.fall_silent()
    assert group.stream.on_report(same, now=60.0) == {name}
    assert group.stream.seen(name, ONE) is Seen.HEALTHY
    assert not group.stream.is_overdue(now=69.0)
    assert group.stream.on_report(same, now=61.0) == set()


def test_a_proxy_without_checks_owes_no_report():
    group = Group()
    name = group.put(Target(ONE))
    group.asked()
    group.stream.on_report(report(**{name: {ONE: "HEALTHY"}}), now=CHECKED_S)
    del group.ports[name]
    group.checks.touch([name])
    group.asked(now=CHECKED_S + 1)
    assert not group.stream.is_overdue(now=1000.0)


def test_the_more_targets_a_proxy_checks_the_longer_healthy_ones_go_unchecked() -> None:
    group = Group()
    group.put(Target(ONE))

    def first_check() -> tuple[object, ...]:
        field = group.checks.current()[NAME].field
        (check,) = checks_in(field)[0]["health_checks"]
        return tuple(check.get(f"{name}interval") for name in ("", "no_traffic_", "no_traffic_healthy_"))

    assert first_check() == ("2s", "2s", None)
    many = [Target(TargetKey(f"10.1.{number // 250}.{number % 250}", 80)) for number in range(5_000)]
    group.put(*many, key=LoadBalancerKey("TCPLoadBalancer", "shop", "many"))
    encoded = group.encoded
    assert first_check() == ("2s", "2s", "10s"), "what fails is checked as often as before"
    assert group.encoded == encoded + 3, "the changed one, and both for their pace"
    assert [next_pace(3, targets) for targets in (3_999, 2_001, 2_000, 4_000, 90_000)] == [3, 3, 2, 4, 5]
