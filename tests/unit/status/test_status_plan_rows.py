"""The rows of a plan: fields that differ, and what lets a held change through."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.hub.inspect.preview import Previewed
from fairlead.model.change import Action, FrontendChange, Reason
from fairlead.model.desired import FrontendSpec, Locality, Shares
from fairlead.status.plan_rows import Field, fields_of, flat, held_message, rows_of
from fairlead.sync.plan import LoadBalancerState, Plan
from fairlead.testing.builders import lb_key

LB = Previewed(key=lb_key(), provider="haproxy", plan=Plan(lb_key()))


def test_specs_are_flattened_in_the_spelling_of_our_resources() -> None:
    assert flat({"health_check": {"interval_s": 2.0, "off": False}, "parameters": {"my_key": "x"}, "ranges": []}) == {
        "healthCheck.intervalSeconds": "2.0",
        "parameters.my_key": "x",
    }


def test_only_fields_that_differ_are_rows_with_what_is_there() -> None:
    old, new = {"weight": "1", "kept": "x", "gone": "y"}, {"weight": "2", "kept": "x", "added": "z"}
    assert fields_of(old, {"weight": "3"}, new) == [
        Field("added", "", None, "z"),
        Field("gone", "y", None, ""),
        Field("weight", "1", "3", "2"),
    ]
    assert fields_of(old, None, new)[2].there is None


@pytest.mark.parametrize(
    ("held_by", "paused", "message"),
    [
        ("LastTargets", ("LoadBalancerClass/edge",), "why"),
        ("Paused", (), "why"),
        ("Paused", ("LoadBalancerClass/edge",),
         "LoadBalancerClass/edge is paused, apply the held changes with: fairlead resume LoadBalancerClass/edge"),
    ],
)  # fmt: skip
def test_a_pause_names_what_is_paused(held_by: str, paused: tuple[str, ...], message: str) -> None:
    assert held_message(msgspec.structs.replace(LB, paused=paused), held_by, "why") == message


@pytest.mark.req("MC-17")
def test_a_change_of_tiers_is_a_row_for_each_member() -> None:
    def spec(near: int, far: int) -> FrontendSpec:
        localities = (Locality("east", 60, near), Locality("west", 40, far), Locality("zero", 0))
        return FrontendSpec(key=lb_key(), group="east", listeners=(), shares=Shares(localities))

    change = FrontendChange(lb_key(), spec(1, 0), Action.ENSURE, Reason.CHANGED)
    side = LoadBalancerState(recorded_spec=spec(0, 1))
    (row,) = rows_of(msgspec.structs.replace(LB, plan=Plan(lb_key(), frontend=change), side=side))
    assert [(field.field, field.ledger, field.wanted) for field in row.fields] == [
        ("members.east", "weight 60, tier 0", "weight 60, tier 1"),
        ("members.west", "weight 40, tier 1", "weight 40, tier 0"),
    ]
