"""The condition of a Service with regions: absent while nothing was ever wrong, then kept true; one Warning each."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from regions_builders import RegionKey, pool, pool_service, service

from fairlead.api.meta import WireCondition
from fairlead.api.poolservice import PoolService
from fairlead.regions.plan import CONDITION, AccessView, SelectedPools, describe_regions, next_conditions

WHEN = datetime(2030, 6, 1, tzinfo=UTC)
BOTH = SelectedPools({name: pool(name) for name in ("a", "b")})


def failing(pool_name: str, status: str = "False", reason: str = "Invalid", **more: Any) -> PoolService:
    conditions = [{"type": "Accepted", "status": status, "reason": reason, "message": "why"}]
    return pool_service("test", pool_name, conditions=conditions, **more)


def view(*pool_services: PoolService, wanted: SelectedPools = BOTH, **more: Any) -> AccessView:
    regions = tuple((RegionKey("default", "test", each.spec.nodepool_name), each) for each in pool_services)
    return AccessView(service(), wanted, regions, **more)


@pytest.mark.req("O-25")
def test_what_layer_2_complains_about_is_in_it_and_what_is_pending_is_not() -> None:
    fine = pool_service("test", "a", ingress=["192.0.2.1"])
    assert describe_regions(view(fine, pool_service("test", "b"))) == (True, "AllRegions", "")
    assert describe_regions(view(fine, failing("b", reason="Pending")))[0]
    assert describe_regions(view(fine, failing("b", status="True")))[0]
    assert describe_regions(view(fine, failing("b", deleting=True)))[0]
    well, reason, message = describe_regions(view(fine, failing("b")))
    assert (well, reason) == (False, "RegionsFailing")
    assert message == "1 of 2 regions have an access point; b: Invalid: why"


def test_a_region_that_is_no_longer_wanted_does_not_matter() -> None:
    assert describe_regions(view(failing("b"), wanted=SelectedPools({"a": pool("a")})))[0]


@pytest.mark.req("O-41")
def test_a_name_that_another_object_has_is_in_it() -> None:
    _, _, message = describe_regions(view(conflicts={"b": "test-b"}))
    assert message.endswith("b: PoolService test-b is not managed by Fairlead")


@pytest.mark.req("O-31")
def test_a_selector_that_matches_nothing_comes_first() -> None:
    wanted = SelectedPools({}, "NoMatchNodePool", "no NodePool matches")
    assert describe_regions(view(failing("a"), wanted=wanted)) == (False, "NoMatchNodePool", "no NodePool matches")


def conditions_of(*conditions: WireCondition) -> Any:
    body = [msgspec.to_builtins(condition) for condition in conditions]
    return service(status={"conditions": body})


BAD = (False, "RegionsFailing", "x")
FOREIGN = WireCondition(type="Other", status="True", reason="R")


def test_the_first_trouble_is_written_with_a_warning_and_no_trouble_is_not_written() -> None:
    assert next_conditions(conditions_of(FOREIGN), (True, "AllRegions", ""), WHEN) == (None, None)
    written, warning = next_conditions(conditions_of(FOREIGN), BAD, WHEN)
    assert warning == ("RegionsFailing", "x")
    assert written is not None
    assert written[0] == FOREIGN
    assert (written[1].type, written[1].status, written[1].last_transition_time) == (
        CONDITION, "False", "2030-06-01T00:00:00Z",
    )  # fmt: skip


def test_a_new_message_or_a_recovery_causes_no_new_warning() -> None:
    old = WireCondition(CONDITION, "False", "RegionsFailing", "x", last_transition_time="2029-01-01T00:00:00Z")
    assert next_conditions(conditions_of(old), BAD, WHEN) == (None, None)
    written, warning = next_conditions(conditions_of(old), (False, "RegionsFailing", "y"), WHEN)
    assert warning is None
    assert written is not None
    assert (written[0].message, written[0].last_transition_time) == ("y", "2029-01-01T00:00:00Z")
    assert next_conditions(conditions_of(old), (False, "NoMatchNodePool", "z"), WHEN)[1] == ("NoMatchNodePool", "z")
    written, warning = next_conditions(conditions_of(old), (True, "AllRegions", ""), WHEN)
    assert warning is None
    assert written is not None
    assert (written[0].status, written[0].last_transition_time) == ("True", "2030-06-01T00:00:00Z")


def test_the_finalizer_is_removed_with_the_last_region() -> None:
    old = WireCondition(CONDITION, "True", "AllRegions", "")
    assert next_conditions(conditions_of(FOREIGN, old), None, WHEN) == ([FOREIGN], None)
    assert next_conditions(conditions_of(FOREIGN), None, WHEN) == (None, None)
