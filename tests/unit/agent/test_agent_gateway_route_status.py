"""Status of routes: an entry for each parent of ours, what the hub refuses, and what belongs to others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.sources.gateway.routes import plan_route
from fairlead.agent.sources.gateway.status import route_status
from fairlead.api.gateway import HTTPRoute, RouteParentStatus, RouteStatus
from fairlead.api.httploadbalancer import RefusedPartStatus
from fairlead.api.intent import NamesStatus
from fairlead.api.meta import WireCondition
from fairlead.api.names import GATEWAY_CONTROLLER
from tests.unit.agent.gateway_builders import LOAD_BALANCER, http_route, ref, service, view

NOW, BEFORE = "2026-03-01T00:00:00Z", "2026-02-01T00:00:00Z"
FOREIGN = msgspec.convert({"parentRef": {"name": "theirs"}, "controllerName": "example.com/other"}, RouteParentStatus)


def with_status(route: HTTPRoute, *entries: RouteParentStatus, generation: int = 3) -> HTTPRoute:
    meta = msgspec.structs.replace(route.metadata, generation=generation)
    return msgspec.structs.replace(route, metadata=meta, status=RouteStatus(list(entries)))


def status(route: HTTPRoute, *, now: str = NOW, **more: Any) -> RouteStatus:
    return route_status(plan_route(view(route, services=(service(),))), route, now=now, **more)


def entries(route: HTTPRoute, **more: Any) -> list[RouteParentStatus]:
    return status(route, **more).parents or []


def conditions(entry: RouteParentStatus) -> dict[str, WireCondition]:
    return {each.type: each for each in entry.conditions or ()}


ROUTE = http_route({"backendRefs": [ref()]})


@pytest.mark.req("G-16", "G-18")
def test_an_entry_is_as_the_parent_was_declared() -> None:
    parents = [{"name": "main", "sectionName": "http"}, {"name": "main", "namespace": "infra", "port": 80}]
    first, second = entries(http_route({"backendRefs": [ref()]}, parents=parents))
    assert msgspec.to_builtins(first.parent_ref) == {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        "name": "main",
        "sectionName": "http",
    }
    assert (second.parent_ref.namespace, second.parent_ref.port, second.parent_ref.section_name) == ("infra", 80, None)
    assert first.controller_name == GATEWAY_CONTROLLER
    assert {each.observed_generation for each in (*conditions(first).values(), *conditions(second).values())} == {3}


@pytest.mark.req("G-18")
def test_entries_of_others_stay_where_they_are() -> None:
    (ours,) = entries(ROUTE, now=BEFORE)
    assert entries(with_status(ROUTE, FOREIGN)) == [FOREIGN, *entries(ROUTE)]
    assert entries(with_status(ROUTE, ours, FOREIGN)) == [ours, FOREIGN]


@pytest.mark.req("G-18")
def test_a_route_of_another_class_is_left_alone() -> None:
    theirs = http_route({"backendRefs": [ref()]}, parents=[{"name": "theirs"}])
    assert status(theirs) == theirs.status
    assert status(with_status(theirs, FOREIGN)) == RouteStatus([FOREIGN])
    assert status(with_status(theirs, *entries(ROUTE), FOREIGN)) == RouteStatus([FOREIGN])


@pytest.mark.req("G-8", "G-16")
def test_times_change_with_the_status_only() -> None:
    before = entries(ROUTE, now=BEFORE)
    assert entries(with_status(ROUTE, *before)) == before
    broken = with_status(http_route({"backendRefs": [ref("none")]}), *before, generation=4)
    (after,) = entries(broken)
    times = {name: (each.last_transition_time, each.observed_generation) for name, each in conditions(after).items()}
    assert times == {"Accepted": (BEFORE, 4), "ResolvedRefs": (NOW, 4)}


@pytest.mark.req("G-17")
def test_a_younger_generation_is_not_written_over() -> None:
    before = entries(with_status(ROUTE, generation=9), now=BEFORE)
    assert entries(with_status(ROUTE, *before)) == before


def test_what_the_hub_refuses_is_reported_at_the_parents_of_that_load_balancer() -> None:
    (entry,) = entries(ROUTE, refused={LOAD_BALANCER: [RefusedPartStatus("route", "r", "rule 1: bad")]})
    accepted = conditions(entry)["Accepted"]
    assert (accepted.status, accepted.reason) == ("False", "UnsupportedValue")
    assert accepted.message == "the load balancer does not serve it: rule 1: bad"
    assert conditions(entry)["ResolvedRefs"].status == "True"
    assert entries(ROUTE, refused={"gateway.infra.other": [RefusedPartStatus("route", "r", "bad")]}) == entries(ROUTE)


@pytest.mark.req("L7-1", "L7-2")
def test_rules_that_the_hub_refuses_are_partially_invalid() -> None:
    parts = [RefusedPartStatus("rule", "r", "rule 2: first"), RefusedPartStatus("rule", "r", "rule 3: second")]
    (entry,) = entries(ROUTE, refused={LOAD_BALANCER: parts})
    shown = conditions(entry)
    assert (shown["Accepted"].status, shown["ResolvedRefs"].status) == ("True", "True")
    partly = shown["PartiallyInvalid"]
    assert (partly.status, partly.reason) == ("True", "UnsupportedValue")
    assert partly.message.startswith("Dropped Rule")
    assert "rule 2: first" in partly.message
    assert "rule 3: second" in partly.message
    (healed,) = entries(with_status(ROUTE, entry), refused={LOAD_BALANCER: []})
    assert "PartiallyInvalid" not in conditions(healed)


@pytest.mark.req("L7-1")
def test_rules_that_member_and_hub_refuse_are_in_one_condition() -> None:
    unknown = {"filters": [{"type": "ExtensionRef"}], "backendRefs": [ref()]}
    route = http_route(unknown, {"backendRefs": [ref()]}, {"backendRefs": [ref()]})
    (entry,) = entries(route, refused={LOAD_BALANCER: [RefusedPartStatus("rule", "r", "rule 2: bad")]})
    message = conditions(entry)["PartiallyInvalid"].message
    assert "ExtensionRef" in message
    assert "rule 2: bad" in message


def test_the_reason_of_the_member_stays_when_the_hub_refuses_too() -> None:
    elsewhere = http_route(parents=[{"name": "main", "sectionName": "none"}])
    (entry,) = entries(elsewhere, refused={LOAD_BALANCER: [RefusedPartStatus("route", "r", "bad")]})
    assert conditions(entry)["Accepted"].reason == "NoMatchingParent"


@pytest.mark.req("KI-9", "KI-10")
def test_a_taken_host_name_is_an_additional_condition() -> None:
    refused = WireCondition("HostnamesAccepted", "False", "HostnameTaken", "shop.example.com has another owner")
    (entry,) = entries(ROUTE, names={LOAD_BALANCER: NamesStatus(conditions=[refused])})
    shown = conditions(entry)["fairlead.dev/HostnamesAccepted"]
    assert (shown.status, shown.reason, shown.message) == ("False", refused.reason, refused.message)
    assert conditions(entry)["Accepted"].status == "True"
    (before,) = entries(ROUTE, names={LOAD_BALANCER: NamesStatus()})
    assert "fairlead.dev/HostnamesAccepted" not in conditions(before)
