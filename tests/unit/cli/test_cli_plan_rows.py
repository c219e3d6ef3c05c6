"""The rows of ``fairlead plan``, its lines and its JSON."""

from __future__ import annotations

import msgspec
import pytest
from cli_builders import KEY, lb, previewed

from fairlead.api.intent import HeldChange
from fairlead.cli.changes import drift_row, drift_summary, lines_of, plan_of, summary
from fairlead.ledger.frontends import held_changes
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed, ObservedTarget
from fairlead.sync.plan import LoadBalancerState, plan_load_balancer
from fairlead.testing.builders import HTTP, target
from fairlead.translate.view import Decision


def test_each_row_has_its_reason_and_its_fields_old_new_and_there() -> None:
    there = Observed(targets=(ObservedTarget(HTTP, target("1").key, weight=3),))
    shown = previewed(lb(target("1", weight=10), target("2")), lb(target("1")), observed=there)
    plan = plan_of(shown)
    assert [(row.action, row.reason, row.target, row.held_by) for row in plan.rows] == [
        ("Update", "Changed", "10.0.0.1:8080", ""),
        ("Register", "New", "10.0.0.2:8080", ""),
    ]
    (weight,) = plan.rows[0].fields
    assert (weight.field, weight.ledger, weight.there, weight.wanted) == ("weight", "1", "3", "10")
    assert lines_of(plan) == [
        "TCPLoadBalancer/shop/web (provider haproxy)",
        "  ~ Update    TCP/80 10.0.0.1:8080  Changed: differs from the record",
        "      weight: 1 -> 10 (there: 3)",
        "  + Register  TCP/80 10.0.0.2:8080  New: desired, but not recorded",
        "      draining: - -> no",
        "      weight: - -> 1",
    ]


def test_a_load_balancer_whose_answer_was_lost_is_asked_for_again() -> None:
    side = LoadBalancerState(desired=lb(), recorded_spec=lb().spec, ensure_again=True)
    shown = msgspec.structs.replace(previewed(lb(), lb()), side=side, plan=plan_load_balancer(KEY, side, now_s=0.0))
    assert lines_of(plan_of(shown))[1:] == [
        "  ~ Ensure  the load balancer itself  Changed: differs from the record",
        "      unchanged: requested before, and no answer is recorded",
    ]


def test_json_has_stable_names() -> None:
    body = msgspec.to_builtins(plan_of(previewed(lb(target("1")), lb())))
    assert set(body) == {"loadBalancer", "provider", "problem", "unread", "rows", "moreHeld", "drift", "repair"}
    (row,) = body["rows"]
    assert set(row) == {"action", "reason", "heldBy", "message", "listener", "target", "source", "fields"}
    assert set(row["fields"][0]) == {"field", "ledger", "there", "wanted"}
    assert row["fields"][0]["there"] is None, "nobody could read it"


def test_what_a_guard_holds_is_marked_with_its_words() -> None:
    plan = plan_of(previewed(lb(), lb(target("1"))))
    assert [(row.action, row.held_by) for row in plan.rows] == [("Deregister", "LastTargets")]
    text = "\n".join(lines_of(plan))
    assert "= hold Deregister  TCP/80 10.0.0.1:8080" in text
    assert "held: LastTargets, listener TCP/80 would be left with 0 ready targets" in text
    assert summary([plan]) == "Nothing would change, 1 held; 1 load balancer compared."


def test_a_pause_holds_the_load_balancer_itself_and_says_who_and_how_it_ends() -> None:
    wanted = lb(target("1"), address="192.0.2.9", paused=True)
    plan = plan_of(previewed(wanted, lb(target("1"), target("2")), paused=("LoadBalancerClass/edge",)))
    assert [(row.action, row.held_by, row.target) for row in plan.rows] == [
        ("Ensure", "Paused", ""),
        ("Deregister", "Paused", "10.0.0.2:8080"),
    ]
    assert {row.message for row in plan.rows} == {
        "LoadBalancerClass/edge is paused, apply the held changes with: fairlead resume LoadBalancerClass/edge"
    }
    assert [(field.field, field.ledger, field.wanted) for field in plan.rows[0].fields] == [
        ("address", "192.0.2.1", "192.0.2.9")
    ]


def test_a_load_balancer_that_is_refused_has_a_problem_and_no_rows() -> None:
    refusal = Condition(ConditionType.ACCEPTED, False, ConditionReason.NO_SUCH_CLASS, "there is no class x")
    nothing = plan_load_balancer(KEY, LoadBalancerState(awaiting_desired=True), now_s=0.0)
    plan = plan_of(previewed(None, None, translation=Decision(None, (refusal,)), plan=nothing))
    assert plan.problem == "NoSuchClass: there is no class x"
    assert "  ! nothing is planned: NoSuchClass: there is no class x" in lines_of(plan)


@pytest.mark.req("X-8")
@pytest.mark.parametrize(
    ("count", "text"), [(0, "No load balancers found"), (3, "Nothing would change; 3 load balancers compared.")]
)
def test_no_change_is_reported_in_one_line(count: int, text: str) -> None:
    assert summary([plan_of(previewed(lb(), lb()))] * count).startswith(text)


def test_everything_is_counted_by_what_it_does() -> None:
    plans = [
        plan_of(previewed(lb(target("1", weight=2), target("3")), lb(target("1")))),
        plan_of(previewed(None, lb(target("1")))),
    ]
    assert summary(plans) == "1 to add, 1 to change, 2 to remove; 2 load balancers compared."


@pytest.mark.req("X-8")
def test_a_held_drain_of_the_hubs_own_proxies_is_shown_as_one() -> None:
    listed = HeldChange(
        action="Drain",
        reason="Absent",
        held_by="Paused",
        message="",
        protocol="TCP",
        port=80,
        address="10.0.0.1",
        backend_port=8080,
    )
    shown = previewed(lb(), lb(), served=True)
    plan = msgspec.structs.replace(shown.plan, held=held_changes(KEY, [listed]))
    (row,) = plan_of(msgspec.structs.replace(shown, plan=plan)).rows
    assert [(field.field, field.ledger, field.wanted) for field in row.fields] == [("draining", "no", "yes")]


def test_names_are_not_counted_as_load_balancers() -> None:
    name = msgspec.structs.replace(
        previewed(None, None), key=LoadBalancerKey("Hostname", "fairlead-system", "www"), provider="", translation=None
    )
    plans = [plan_of(name), plan_of(previewed(lb(), lb()))]
    assert summary(plans).endswith("; 1 load balancer and 1 name compared.")
    assert lines_of(plans[0])[0] == "Hostname/fairlead-system/www (in no DNSZone)"
    unread = msgspec.structs.replace(name, unread="it does not answer")
    assert drift_summary([drift_row(unread)]).endswith("1 name could not be read back.")
