"""The targets of a load balancer that count when its health is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.model.condition import ConditionReason as R
from fairlead.model.desired import FrontendSpec, HealthCheck, Listener, Target
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
from fairlead.model.keys import LoadBalancerKey, TargetKey, backend_key
from fairlead.model.observed import Health, Seen
from fairlead.providers.envoy.fleet_local import LocalFleet
from fairlead.providers.envoy.frontends import EnvoyFrontend
from fairlead.providers.envoy.health_board import HealthBoard, HealthStream
from fairlead.providers.envoy.http.frontend import HttpFrontend
from fairlead.providers.envoy.schema import packaged_schema
from fairlead.providers.envoy.serving import check_of

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
        route = Route("r", "HTTP", (Attachment("http"),), rules)
        names = sorted({"shop", *(("api",) if TO_BOTH in rules else ()), *(("copy",) if COPIED in rules else ())})
        l7 = L7Config((L7Listener("http", 80),), (route,), tuple(map(Backend, names)))
        spec = FrontendSpec(
            key=KEY, group="t", listeners=(Listener(80),), address="192.0.2.1", health_check=HealthCheck(), l7=l7
        )
        serving = HttpFrontend(SCHEMA, LocalFleet(data_dir=Path("data")), spec)
        serving.update(spec, bind_addresses=spec.addresses)
        self.frontend = EnvoyFrontend(spec, "t", spec.addresses, serving)
        for number, name in enumerate(names):
            if name in targets:
                serving.ports[backend_key(name)].put(Target(TargetKey(f"10.0.0.{number}", 80)))
        ports = {port.name: (spec, key, port) for key, port in serving.ports.items()}
        self.board = HealthBoard(schema=SCHEMA, find=ports.get)
        self.board.touch("t", ports)
        self.stream: HealthStream = self.board.open("t", "proxy-1")
        self.checked = [name for name, place in ports.items() if check_of(SCHEMA, *place) is not None]
        assert self.stream.pump(now=0.0) is not None

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
            if port.name in self.checked
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
