"""The targets of a load balancer that count when its health is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.condition import ConditionReason as R
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.health import HealthCheck
from fairlead.model.http import (
    Attachment,
    Backend,
    BackendRef,
    Filters,
    L7Config,
    L7Listener,
    Mirror,
    Redirect,
    Route,
    Rule,
)
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey, backend_key
from fairlead.model.observed import Health, Seen
from fairlead.providers.envoy.clusters import TargetPort, check_of
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.frontends import EnvoyFrontend, JudgedHealth
from fairlead.providers.envoy.health_board import HealthBoard, HealthStream
from fairlead.providers.envoy.http.frontend import HttpFrontend
from fairlead.providers.envoy.resources import packaged_schema

SCHEMA = packaged_schema()
KEY = LoadBalancerKey("HTTPLoadBalancer", "shop", "web")
REPORT = "envoy.service.health.v3.HealthCheckRequestOrEndpointHealthResponse"
#: Long after every first check.
LATER_S = 60.0
TO_BOTH = Rule(backends=(BackendRef("shop"), BackendRef("api")))
COPIED = Rule(backends=(BackendRef("shop"),), filters=Filters(mirrors=(Mirror("copy"),)))


class Proxy:
    """One proxy of one load balancer, whose backends ``shop``, ``api`` and ``copy`` have a target each."""

    def __init__(self, *rules: Rule, targets: tuple[str, ...] = ("shop", "api", "copy")) -> None:
        spec = self.spec_of(rules)
        names = sorted(backend.name for backend in spec.l7.backends) if spec.l7 is not None else []
        serving = HttpFrontend(SCHEMA, LocalFleet(data_dir=Path("data")), spec)
        serving.update(spec, bind_addresses=spec.addresses)
        self.frontend = EnvoyFrontend(spec, ("t",), spec.addresses, serving)
        for number, name in enumerate(names):
            if name in targets:
                serving.ports[backend_key(name)].put(Target(TargetKey(f"10.0.0.{number}", 80)))
        self.board = HealthBoard(schema=SCHEMA, find=self.find)
        self.board.touch("t", [port.name for port in serving.ports.values()])
        self.stream: HealthStream = self.board.open("t", "proxy-1")
        assert self.stream.pump(now=0.0) is not None

    @staticmethod
    def spec_of(rules: tuple[Rule, ...]) -> FrontendSpec:
        route = Route("r", "HTTP", (Attachment("http"),), rules)
        names = sorted({"shop", *(("api",) if TO_BOTH in rules else ()), *(("copy",) if COPIED in rules else ())})
        l7 = L7Config((L7Listener("http", 80),), (route,), tuple(map(Backend, names)))
        return FrontendSpec(
            key=KEY, group="t", listeners=(Listener(80),), address="192.0.2.1", health_check=HealthCheck(), l7=l7
        )

    def serve(self, *rules: Rule) -> None:
        """Serve other rules, as ``EnvoyFrontends.ensure`` does."""
        spec, before = self.spec_of(rules), self.frontend
        changes = before.serving.update(spec, bind_addresses=spec.addresses)
        self.frontend = EnvoyFrontend(spec, ("t",), spec.addresses, before.serving, before.judged)
        self.board.touch("t", {change.name for change in changes})

    def find(self, name: str) -> tuple[FrontendSpec, ListenerKey, TargetPort] | None:
        ports = self.frontend.ports.items()
        return next(((self.frontend.spec, key, port) for key, port in ports if port.name == name), None)

    def sees(self, statuses: dict[str, str], *, at: float = LATER_S) -> Health:
        """Report every target, as healthy unless said otherwise; returns what follows."""
        clusters = [
            {
                "cluster_name": port.name,
                "locality_endpoints_health": [
                    {
                        "endpoints_health": [
                            {
                                "endpoint": {
                                    "address": {
                                        "socket_address": {"address": target.key.address, "port_value": target.key.port}
                                    }
                                },
                                "health_status": statuses.get(key.backend, "HEALTHY"),
                            }
                            for target in port.targets.targets()
                        ]
                    }
                ],
            }
            for key, port in self.frontend.ports.items()
            if check_of(SCHEMA, self.frontend.spec, key, port) is not None
        ]
        raw = SCHEMA.encode(REPORT, {"endpoint_health_response": {"cluster_endpoints_health": clusters}})
        self.board.report("t", self.stream, raw, now=at)
        return self.board.health(self.frontend, expected=True)


@pytest.mark.req("X-1")
@pytest.mark.parametrize(
    ("rules", "statuses", "serving", "reason", "counts"),
    [
        ((TO_BOTH,), {}, True, R.SERVING, (2, 2)),
        ((TO_BOTH,), {"shop": "UNHEALTHY"}, True, R.SOME_BACKENDS_UNHEALTHY, (1, 2)),
        ((COPIED,), {}, True, R.SERVING, (1, 1)),
        ((COPIED,), {"copy": "UNHEALTHY"}, True, R.SERVING, (1, 1)),
        ((COPIED,), {"shop": "UNHEALTHY"}, False, R.NO_HEALTHY_TARGETS, (0, 1)),
        (
            (COPIED, Rule(backends=(BackendRef("copy"),))),
            {"shop": "UNHEALTHY"},
            True,
            R.SOME_BACKENDS_UNHEALTHY,
            (1, 2),
        ),
        ((COPIED, Rule(backends=(BackendRef("copy", 0),))), {"shop": "UNHEALTHY"}, False, R.NO_HEALTHY_TARGETS, (0, 1)),
    ],
    ids=[
        "all",
        "one of two is dead",
        "with a mirror",
        "a dead mirror",
        "only the mirror lives",
        "it is also chosen",
        "chosen with no weight",
    ],
)
def test_only_backends_that_routes_choose_count(
    rules: tuple[Rule, ...], statuses: dict[str, str], serving: bool, reason: R, counts: tuple[int, int]
) -> None:
    seen = Proxy(*rules).sees(statuses)
    assert (seen.serving, seen.reason, (seen.healthy, seen.total)) == (serving, reason, counts)


def test_since_when_a_target_is_unhealthy_is_that_of_the_first_report_of_it() -> None:
    proxy = Proxy(TO_BOTH)
    shop, api = (next(iter(proxy.frontend.ports[backend_key(name)].targets.targets())).key for name in ("shop", "api"))
    proxy.sees({})
    assert proxy.board.unhealthy(proxy.frontend) == {}
    proxy.sees({"shop": "UNHEALTHY"}, at=100.0)
    proxy.sees({"shop": "UNHEALTHY", "api": "UNHEALTHY"}, at=200.0)
    both = {(backend_key("shop"), shop): 100.0, (backend_key("api"), api): 200.0}
    assert proxy.board.unhealthy(proxy.frontend) == both
    proxy.sees({"api": "UNHEALTHY"}, at=300.0)
    proxy.sees({"shop": "UNHEALTHY", "api": "UNHEALTHY"}, at=400.0)
    assert proxy.board.unhealthy(proxy.frontend) == {**both, (backend_key("shop"), shop): 400.0}
    proxy.board.close("t", proxy.stream)
    assert proxy.board.unhealthy(proxy.frontend) == {}
    # Proxies of other replicas report what they see, and not since when.
    proxy.board.elsewhere = lambda _group: [lambda _name, key: Seen.UNHEALTHY if key == api else Seen.HEALTHY]
    assert proxy.board.unhealthy(proxy.frontend) == {(backend_key("api"), api): None}


@pytest.mark.req("X-1")
def test_a_mirror_without_a_target_is_nothing_that_is_missing() -> None:
    seen = Proxy(COPIED, targets=("shop",)).sees({})
    assert (seen.serving, seen.reason) == (True, R.SERVING)
    alone = Proxy(COPIED, targets=("copy",)).sees({})
    assert (alone.serving, alone.reason) == (False, R.NO_TARGETS)


def test_a_mirror_of_a_redirect_alone_leads_to_no_backend() -> None:
    redirect = Rule(filters=Filters(redirect=Redirect(scheme="https"), mirrors=(Mirror("shop"),)))
    seen = Proxy(redirect).sees({"shop": "UNHEALTHY"})
    assert (seen.serving, seen.reason) == (None, R.NOT_CHECKED)
    assert "no route has a backend" in seen.message


BACKENDS = ("shop", "api", "copy")
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("target"), st.sampled_from(BACKENDS), st.integers(0, 2), st.sampled_from("rdx")),
        st.tuples(st.just("report"), st.dictionaries(st.sampled_from(BACKENDS), st.just("UNHEALTHY"))),
        st.tuples(st.just("rules"), st.sampled_from([(TO_BOTH,), (COPIED,), (TO_BOTH, COPIED)])),
        st.tuples(st.sampled_from(["pump", "silence", "second", "close"])),
    ),
    max_size=25,
)


def change_target(proxy: Proxy, backend: str, number: int, how: str) -> None:
    key = backend_key(backend)
    if (port := proxy.frontend.ports.get(key)) is None:
        return
    where = TargetKey(f"10.0.0.{number}", 80)
    changed = port.drop(where) if how == "x" else port.put(Target(where, draining=how == "d"))
    if changed:
        proxy.frontend.judged.moved.add(key)
        proxy.board.touch("t", [port.name])


@given(CHANGES)
@settings(max_examples=150, deadline=None)
def test_health_judged_bit_by_bit_is_health_judged_at_once(changes: list[tuple[Any, ...]]) -> None:
    proxy, now = Proxy(TO_BOTH, COPIED), 100.0
    second: list[HealthStream] = []
    for what, *rest in changes:
        now += 5.0
        match what:
            case "target":
                change_target(proxy, *rest)
            case "report":
                proxy.sees(*rest, at=now)
            case "rules":
                proxy.serve(*rest[0])
            case "pump":
                proxy.stream.pump(now=now)
            case "silence":
                proxy.board.fall_silent(proxy.stream)
            case "second":
                second.append(proxy.board.open("t", "proxy-2"))
            case _:
                if second:
                    proxy.board.close("t", second.pop())
        for expected in (True, False):
            bit_by_bit = proxy.board.health(proxy.frontend, expected=expected)
            proxy.frontend.judged = JudgedHealth()
            assert proxy.board.health(proxy.frontend, expected=expected) == bit_by_bit


@pytest.mark.req("X-1")
def test_health_of_one_changed_backend_is_judged_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy(TO_BOTH, COPIED)
    proxy.sees({})
    asked: list[str] = []
    seen = proxy.stream.seen

    def counted(name: str, target: TargetKey) -> Seen:
        asked.append(name)
        return seen(name, target)

    monkeypatch.setattr(proxy.stream, "seen", counted)
    proxy.board.health(proxy.frontend, expected=True)
    assert asked == []
    change_target(proxy, "shop", 7, "r")
    proxy.board.health(proxy.frontend, expected=True)
    assert set(asked) == {proxy.frontend.ports[backend_key("shop")].name}
    proxy.sees({})
    asked.clear()
    proxy.sees({"api": "UNHEALTHY"})
    assert set(asked) == {proxy.frontend.ports[backend_key("api")].name}


@pytest.mark.req("F-1")
def test_a_target_that_is_not_registered_waits_even_where_nothing_is_checked() -> None:
    proxy, shop = Proxy(TO_BOTH), backend_key("shop")
    port = proxy.frontend.ports[shop]
    port.check = None
    target = port.targets.targets()[0]
    assert proxy.board.seen_of(proxy.frontend, shop, target.key) is Seen.UNCHECKED
    assert proxy.board.seen_of(proxy.frontend, shop, TargetKey("10.9.9.9", 80)) is Seen.WAITING
    port.put(msgspec.structs.replace(target, draining=True))
    assert proxy.board.seen_of(proxy.frontend, shop, target.key) is Seen.WAITING
