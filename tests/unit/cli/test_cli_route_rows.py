"""What a request meets, at which of several load balancers, and what becomes of it."""

from __future__ import annotations

import pytest
from cli_route_objects import API, SHOP, ask, held, ingress_route, prefix

from fairlead.api.httploadbalancer import FailingRoute, RefusedPartStatus
from fairlead.cli.route import MOST_ANSWERS, HeldHTTP, RouteOutcome
from fairlead.model.http import Attachment, BackendRef, Route, RouteKind, Rule
from tests.fleet_objects import condition


@pytest.mark.req("K-41", "K-46")
def test_a_request_is_followed_from_the_load_balancer_to_its_targets() -> None:
    (row,) = ask("GET", "https://shop.example.com/cart/7")
    assert (row.load_balancer, row.member, row.origin, row.address) == (
        "httplb/tenant-east/ingressclass.edge",
        "east",
        "IngressClass edge",
        "127.200.0.2",
    )
    assert row.listener == "https-shop (HTTPS 443, host shop.example.com)"
    assert (row.origin_of_route, row.rule, row.match, row.condition) == (
        "Ingress default/web",
        1,
        0,
        "PathPrefix /cart",
    )
    assert (row.outcome, row.status, row.taken, row.next_step) == (RouteOutcome.FORWARDED, 0, True, "")
    assert [(each.service, each.weight, each.percent, each.ready) for each in row.backends] == [
        ("default/cart", 9, 90.0, 2),
        ("default/canary", 1, 10.0, 0),
    ]
    assert row.notes == ["10 % of the requests are answered 503: default/canary:80 has no target"]
    assert [(each.rule, each.reason) for each in row.outranked] == [(0, "matches too, but the path is less specific")]


@pytest.mark.parametrize(
    ("method", "url", "outcome", "status", "reason", "step"),
    [
        ("GET", "http://shop.example.com/old", RouteOutcome.REDIRECTED, 0, "takes it", ""),
        ("GET", "http://shop.example.com/a%2fb", RouteOutcome.REDIRECTED, 307, "escaped slash", ""),
        ("GET", "http://shop.example.com/none", RouteOutcome.ANSWERED, 500, "that could be resolved",
         "in east: kubectl describe ingress web -n default"),
        ("GET", "http://shop.example.com/empty", RouteOutcome.ANSWERED, 503, "no backend has a ready target",
         "no endpoint of Service default/empty is ready in east: kubectl get endpointslices -n default"),
        ("GET", "http://api.example.com/v1", RouteOutcome.ANSWERED, 404, "no rule", "nearest ones"),
        ("GET", "http://shop.example.org/", RouteOutcome.ANSWERED, 404, "no route for this host",
         "add the host to an Ingress or a route in east, or ask for the nearest: shop.example.com"),
        ("GET", "https://shop.example.org/", RouteOutcome.CLOSED, 0, "no HTTPS listener", "with a certificate for it"),
        ("GET", "http://shop.example.com:81/", RouteOutcome.CLOSED, 0, "no listener has port 81",
         "has the ports 80, 443"),
        ("GET", "https://shop.example.com:80/", RouteOutcome.CLOSED, 0, "speaks HTTP, not HTTPS", "use http, or"),
        ("GET", "http://shop.example.com:443/", RouteOutcome.CLOSED, 0, "speaks TLS, not HTTP", "use https, or"),
        ("GET", "https://db.example.com/", RouteOutcome.FORWARDED, 0, "passed through", ""),
    ],
)  # fmt: skip
@pytest.mark.req("K-41")
def test_what_becomes_of_a_request(
    method: str, url: str, outcome: RouteOutcome, status: int, reason: str, step: str
) -> None:
    (row,) = ask(method, url)
    assert (row.outcome, row.status) == (outcome, status), row
    assert reason in row.reason
    assert step in row.next_step
    assert bool(row.next_step) == (not row.taken)


def test_a_host_that_belongs_to_another_listener_is_misdirected() -> None:
    (row,) = ask("GET", "https://shop.example.com/", headers=["Host: db.example.com"])
    assert (row.status, row.outcome) == (421, RouteOutcome.ANSWERED)
    assert "server name" in row.next_step


def test_of_what_does_not_fit_the_nearest_comes_first() -> None:
    both = ingress_route("both", "x.org", prefix("/b", BackendRef("default/shop:80")),
                         prefix("/a", BackendRef("default/shop:80"), method="PUT"))  # fmt: skip
    (row,) = ask("GET", "http://x.org/a", held(both))
    assert [(each.condition, each.reason) for each in row.passed] == [
        ("PathPrefix /a, method PUT", "the method is not PUT"),
        ("PathPrefix /b", "the path is not PathPrefix /b"),
    ]


def test_matching_load_balancers_of_several_are_shown() -> None:
    east, west = held(SHOP), held(SHOP, namespace="tenant-west", address="127.200.0.3")
    other = held(API, namespace="tenant-other")
    assert [row.member for row in ask("GET", "http://shop.example.com/", west, other, east)] == ["east", "west"]


def test_when_none_takes_it_those_are_shown_that_have_the_host() -> None:
    east, other = held(SHOP), held(API, namespace="tenant-other")
    (row,) = ask("GET", "http://api.example.com/v2", east, other)
    assert (row.member, row.status) == ("other", 404)
    many = [held(SHOP, namespace=f"tenant-{number:02}") for number in range(MOST_ANSWERS + 5)]
    assert len(ask("GET", "http://nowhere.example.com/", *many)) == MOST_ANSWERS


def test_nothing_is_served_of_it_yet() -> None:
    (row,) = ask("GET", "http://shop.example.com/", HeldHTTP(held(SHOP).obj, None))
    assert (row.outcome, row.reason) == (RouteOutcome.CLOSED, "not served yet")
    assert row.next_step == "see what it waits for: fairlead status --problems"


def test_what_the_proxies_say_of_it_is_shown() -> None:
    lb = held(
        SHOP,
        unhealthy_targets=["10.0.0.2:8080 (default/cart:80)", "10.0.0.3:8080 (default/shop:80)"],
        refused=(
            RefusedPartStatus("route", SHOP.name, "its path is no path"),
            RefusedPartStatus("route", "another", "no"),
        ),
        conditions=[condition("Programmed", "False", "NoAddress", "no address is left")],
    )
    (row,) = ask("GET", "http://shop.example.com/cart", lb)
    assert row.backends[0].unhealthy == ["10.0.0.2:8080"]
    assert row.notes[1:] == [
        "the load balancer is not Programmed: NoAddress: no address is left",
        f"the proxies do not serve route {SHOP.name}: its path is no path",
    ]


@pytest.mark.req("X-31", "X-32")
@pytest.mark.parametrize("named", [True, False])
def test_a_request_whose_backends_are_all_dead_is_answered_503(named: bool) -> None:
    backend = SHOP.rules[0].backends[0].backend
    every = [f"10.0.0.{number}:8080 ({backend})" for number in range(1, 9)]
    (well,) = ask("GET", "http://shop.example.com/", held(SHOP))
    assert (well.outcome, well.backends[0].unhealthy) == (RouteOutcome.FORWARDED, [])
    failing = () if named else (FailingRoute(SHOP.name, "Ingress", "default", "shop", (), (backend,)),)
    lb = held(SHOP, unhealthy_targets=every if named else None, failing_routes=failing)
    (row,) = ask("GET", "http://shop.example.com/", lb)
    assert (row.outcome, row.status, row.taken) == (RouteOutcome.ANSWERED, 503, False)


@pytest.mark.parametrize(("kind", "code"), [("HTTP", 500), ("GRPC", 503)])
def test_a_share_without_a_backend_is_answered_as_its_kind_of_route_asks(kind: RouteKind, code: int) -> None:
    rule = Rule(backends=(BackendRef("default/shop:80"), BackendRef()))
    route = Route("r", kind, (Attachment("http", ("shop.example.com",)),), (rule,))
    (row,) = ask("POST", "http://shop.example.com/s/m", held(route), headers=["content-type: application/grpc"])
    assert row.notes == [f"50 % of the requests are answered {code}: a backend has no target"]
