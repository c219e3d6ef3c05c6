"""The next step that is named for a request without a matching route."""

from __future__ import annotations

from cli_route_objects import SHOP, ask, held, ingress_route

from fairlead.cli.route import nearest_first
from fairlead.model.http import BackendRef, Rule
from fairlead.providers.envoy.http.route_lookup import Passed, RouteDecision


def test_a_host_that_is_like_no_other_gets_the_list_of_those_that_there_are() -> None:
    routes = [ingress_route(f"w{number}", f"w{number}.example.com", Rule()) for number in range(7)]
    (row,) = ask("GET", "http://q/", held(*routes))
    hosts = ", ".join(f"w{number}.example.com" for number in range(5))
    assert row.next_step == f"add the host to an Ingress or a route in east; it has {hosts} and 2 more"


def test_without_any_host_only_the_change_is_named() -> None:
    (row,) = ask("GET", "http://q/", held())
    assert row.next_step == "add the host to an Ingress or a route in east"


def test_what_holds_the_most_conditions_is_nearest_when_nothing_takes_it() -> None:
    passed = (Passed("a", 0, 0, "path", 0), Passed("b", 0, 0, "header", 2), Passed("c", 0, 0, "method", 1))
    assert [each.route for each in nearest_first(RouteDecision(404, "", passed=passed))] == ["b", "c", "a"]
    taken = RouteDecision(0, "", rule=Rule(backends=(BackendRef("x"),)), passed=passed)
    assert nearest_first(taken) == passed


def test_a_rule_without_any_backend_leads_to_the_object_it_is_from() -> None:
    (row,) = ask("GET", "http://shop.example.com/none", held(SHOP))
    assert row.next_step.startswith("see its Events for the reason")
