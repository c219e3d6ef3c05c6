"""What ``fairlead route`` prints for people."""

from __future__ import annotations

import pytest
from cli_route_objects import SHOP, ask, held, ingress_route, prefix

from fairlead.cli.output import say
from fairlead.cli.route import HeldHTTP, lines_of, parse_request
from fairlead.model.http import BackendRef

CART = "http://shop.example.com/cart"


def printed(url: str, *load_balancers: HeldHTTP, wide: bool = False) -> str:
    return "\n".join(lines_of(ask("GET", url, *load_balancers), parse_request("GET", url), wide=wide))


def test_the_way_of_a_request() -> None:
    assert printed(CART).splitlines() == [
        "GET http://shop.example.com/cart",
        "  load balancer  httplb/tenant-east/ingressclass.edge (IngressClass edge), address 127.200.0.2",
        "  member         east",
        "  listener       http (HTTP 80)",
        "  host           shop.example.com",
        "  route          Ingress default/web (ingress.default.web.1)",
        "  rule           1, match 0: PathPrefix /cart",
        "Goes to a backend:",
        "  BACKEND            WEIGHT    READY  UNHEALTHY  SERVICE",
        "  default/cart:80    9 (90 %)  2      -          default/cart",
        "  default/canary:80  1 (10 %)  0      -          default/canary",
        "Earlier rules that do not match:",
        "  Ingress default/web rule 3  PathPrefix /empty              the path is not PathPrefix /empty",
        "  Ingress default/web rule 5  PathPrefix /post, method POST  the path is not PathPrefix /post",
        "Later rules that match too:",
        "  Ingress default/web rule 0  PathPrefix /  matches too, but the path is less specific",
        "Note: 10 % of the requests are answered 503: default/canary:80 has no target",
    ]


def test_what_nothing_takes_ends_with_the_next_step() -> None:
    lines = printed("http://shop.example.org/").splitlines()
    assert lines[-2] == "Is answered 404: no route for this host."
    assert lines[-1].startswith("Next: add the host to an Ingress")


def test_redirects_and_closed_connections() -> None:
    assert "then           answered with 302, a redirect: scheme https" in printed("http://shop.example.com/old")
    assert "Is redirected." in printed("http://shop.example.com/old")
    assert "Is redirected with 307: the path holds an escaped slash" in printed("http://shop.example.com/a%2fb")
    assert "Gets no answer: no listener has port 81" in printed("http://shop.example.com:81/")


def test_several_load_balancers_are_listed_with_the_flag_that_chooses() -> None:
    lines = printed(CART, held(SHOP), held(SHOP, namespace="tenant-west")).splitlines()
    assert lines[1].startswith("2 load balancers accept it; choose one with --address")
    assert [line.split()[-1] for line in lines if line.startswith("  member")] == ["east", "west"]


def test_without_any_load_balancer_it_says_so() -> None:
    assert "kubectl get httplb -A" in lines_of([], parse_request("GET", CART), wide=False)[1]


def test_of_many_rules_the_first_are_shown_unless_it_is_wide() -> None:
    rules = [prefix(f"/p{number}", BackendRef("default/shop:80")) for number in range(9)]
    many = held(ingress_route("many", "x.org", *rules))
    short = printed("http://x.org/", many).splitlines()
    assert "  and 4 others; see all with -o wide" in short
    assert len(printed("http://x.org/", many, wide=True).splitlines()) == len(short) + 3


def test_nothing_of_a_request_or_an_object_acts_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    route = ingress_route("web\x1b[2J", "x.org", prefix("/", BackendRef("default/shop:80")))
    say(lines_of(ask("GET", "http://x.org/", held(route)), parse_request("GET", "http://x.org/"), wide=True))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "web\\x1b[2J" in out
