"""The rows of ``fairlead explain``."""

from __future__ import annotations

import msgspec
import pytest
from cli_builders import NOW, SINCE, lb, previewed, record, rows

from fairlead.api.httploadbalancer import RefusedPartStatus
from fairlead.api.meta import WireCondition
from fairlead.api.tcploadbalancer import DrainingTargets
from fairlead.cli.explain import Explained, explained, lines_of
from fairlead.model.change import Action, Held, Reason, TargetChange
from fairlead.model.observed import NAMED, Observed, ObservedTarget
from fairlead.testing.builders import HTTP, target


def test_a_backend_that_is_as_it_should_be_waits_for_nothing() -> None:
    there = Observed(targets=(ObservedTarget(HTTP, target("1").key, healthy=True),))
    shown = previewed(lb(target("1")), lb(target("1")), records=(record("1"),), observed=there, class_name="edge")
    (row,) = rows(shown).values()
    assert (row.state, row.since, row.reason, row.healthy, row.waits_for) == ("Registered", SINCE, "New", True, [])
    assert (row.source, row.listener) == ("Pod/shop/web-1", "TCP/80")
    lines = lines_of(explained(shown, now=NOW, leading=True), now=NOW)
    assert lines[0] == "TCPLoadBalancer/shop/web: class edge, provider haproxy"
    assert "  TCP/80  10.0.0.1:8080  Registered, healthy  30s  Pod/shop/web-1 New" in lines


def test_json_has_stable_names() -> None:
    body = msgspec.to_builtins(explained(previewed(lb(target("1")), None), now=NOW, leading=True))
    assert set(body) == {
        "loadBalancer", "className", "provider", "conditions", "backends", "leftOut", "notes", "announced", "shift",
        "members",
    }  # fmt: skip
    assert set(body["backends"][0]) == {
        "listener", "address", "source", "state", "since", "reason", "owners", "healthy", "waitsFor",
    }  # fmt: skip


def test_the_hubs_own_load_balancers_have_no_records() -> None:
    good = (WireCondition(type="Programmed", status="True", reason="Programmed"),)
    shown = previewed(lb(target("1"), target("2", draining=True)), None, served=True, conditions=good)
    shown = msgspec.structs.replace(shown, plan=msgspec.structs.replace(shown.plan, frontend=None, changes=()))
    result: Explained = explained(shown, now=NOW, leading=True)
    assert [(row.state, row.waits_for) for row in result.backends] == [("Served", []), ("Draining", [])]
    assert result.notes == []


@pytest.mark.req("F-4")
@pytest.mark.parametrize(("reset", "how"), [(False, "closed gracefully"), (True, "reset")])
def test_a_drain_says_how_its_connections_end(reset: bool, how: str) -> None:
    desired = lb(target("1", draining=True))
    desired = msgspec.structs.replace(
        desired, spec=msgspec.structs.replace(desired.spec, drain_s=30.0, drain_reset=reset)
    )
    shown = previewed(desired, None, served=True)
    shown = msgspec.structs.replace(shown, draining=DrainingTargets(1, 3, "2026-01-01T00:00:00Z"))
    (note,) = explained(shown, now=NOW, leading=True).notes
    assert "1 target with 3 connections" in note
    assert f"{how} 30 s after it began" in note


@pytest.mark.req("X-1")
def test_a_backend_that_the_hubs_own_proxies_cannot_reach_is_unhealthy() -> None:
    good = (WireCondition(type="Programmed", status="True", reason="Programmed"),)
    shown = previewed(lb(target("1"), target("2")), None, served=True, conditions=good)
    plan = msgspec.structs.replace(shown.plan, frontend=None, changes=())
    shown = msgspec.structs.replace(shown, plan=plan, unhealthy=frozenset({"10.0.0.2:8080 (TCP/80)"}))
    result: Explained = explained(shown, now=NOW, leading=True)
    assert [(row.address, row.state, row.healthy) for row in result.backends] == [
        ("10.0.0.1:8080", "Served", None),
        ("10.0.0.2:8080", "Unhealthy", False),
    ]
    assert any("10.0.0.2:8080  Unhealthy  " in line for line in lines_of(result, now=NOW))


@pytest.mark.parametrize(
    ("programmed", "states"),
    [
        (("True", "Programmed"), ["Served", "NotRegistered"]),
        (("False", "RoutesRefused"), ["Served", "NotRegistered"]),
        (("False", "Pending"), ["Pending", "NotRegistered"]),
    ],
)
def test_served_parts_are_reported_with_rejected_routes(programmed: tuple[str, str], states: list[str]) -> None:
    condition = WireCondition(type="Programmed", status=programmed[0], reason=programmed[1])
    shown = previewed(lb(target("1"), target("2")), None, served=True, conditions=(condition,))
    new = TargetChange(shown.key, HTTP, target("2"), Action.REGISTER, Reason.NEW)
    plan = msgspec.structs.replace(shown.plan, frontend=None, changes=(), held=(Held(new, "Paused", "it is paused"),))
    result = explained(msgspec.structs.replace(shown, plan=plan), now=NOW, leading=True)
    assert [row.state for row in result.backends] == states


@pytest.mark.req("X-1", "X-32")
def test_a_backend_is_unhealthy_behind_its_own_listener_only() -> None:
    refused = (
        WireCondition(type="Programmed", status="False", reason="RoutesRefused", message="1 route is not served"),
    )
    shown = previewed(lb(target("1"), target("2")), None, served=True, conditions=refused)
    shown = msgspec.structs.replace(shown, unhealthy=frozenset({"10.0.0.1:8080 (TCP/443)", "10.0.0.2:8080 (TCP/80)"}))
    states = [row.state for row in explained(shown, now=NOW, leading=True).backends]
    assert states == ["Served", "Unhealthy"]


@pytest.mark.req("X-1")
def test_unlisted_unhealthy_targets_are_not_taken_for_healthy() -> None:
    shown = previewed(lb(target("1")), None, served=True)
    shown = msgspec.structs.replace(shown, unhealthy=frozenset(f"10.0.1.{n}:8080 (TCP/80)" for n in range(NAMED)))
    result = explained(shown, now=NOW, leading=True)
    assert any("others may be unhealthy too" in note for note in result.notes)
    assert [row.state for row in result.backends] == ["Unknown"]


@pytest.mark.req("X-1", "X-32")
def test_a_listener_without_a_healthy_target_says_nothing_of_the_others() -> None:
    conditions = (
        WireCondition(type="Programmed", status="True", reason="Programmed"),
        WireCondition(type="Serving", status="False", reason="NoHealthyTargets"),
    )
    shown = previewed(lb(target("1"), target("2")), None, served=True, conditions=conditions)
    shown = msgspec.structs.replace(shown, unhealthy=frozenset({"10.0.0.9:8080 (TCP/443)"}))
    assert [row.state for row in explained(shown, now=NOW, leading=True).backends] == ["Served", "Served"]


def test_parts_that_are_not_served_are_named_once() -> None:
    programmed = WireCondition(
        type="Programmed", status="False", reason="RoutesRefused", message="1 route is not served: shop.web: bad"
    )
    parts = (
        RefusedPartStatus(kind="listener", name="https", reason="no certificate"),
        RefusedPartStatus(kind="route", name="shop.web", reason="bad"),
    )
    shown = explained(previewed(lb(), None, conditions=(programmed,), refused=parts), now=NOW, leading=True)
    assert [note for note in shown.notes if "is not served" in note] == ["listener https is not served: no certificate"]
