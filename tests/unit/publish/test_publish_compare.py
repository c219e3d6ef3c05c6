"""What counts as a difference, and which reason is logged for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from publish_builders import LABELS, load_balancer, slice_of

from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.meta import OwnerReference
from fairlead.publish.objects import load_balancer_difference, slice_difference
from tests.published import stored_load_balancer, stored_slice

OWNER = OwnerReference(api_version="fairlead.dev/v1alpha1", kind="PoolService", name="web-east", uid="u1")
STALE = {"fairlead.dev/stale": "no node is Ready"}


def test_missing_entries_are_new() -> None:
    assert load_balancer_difference(load_balancer(), None) == "new"
    assert slice_difference(slice_of("a"), None) == "new"


@pytest.mark.req("KI-6")
def test_fields_added_by_others_are_not_a_difference() -> None:
    assert load_balancer_difference(load_balancer(), stored_load_balancer(load_balancer())) == ""
    assert slice_difference(slice_of("a", "10.0.0.1"), stored_slice(slice_of("a", "10.0.0.1"))) == ""


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        ({"finalizers": []}, "finalizer removed"),
        ({"labels": {}}, "labels changed"),
        ({"annotations": {}}, "annotations changed"),
        ({"owner_references": None}, "owners changed"),
    ],
)
def test_metadata_that_is_ours_is_put_back(meta: dict[str, Any], reason: str) -> None:
    desired = load_balancer(annotations={"fairlead.dev/origin": "x"}, owner_references=[OWNER])
    stored = stored_load_balancer(desired)
    changed = msgspec.structs.replace(stored, metadata=msgspec.structs.replace(stored.metadata, **meta))
    assert load_balancer_difference(desired, stored) == ""
    assert load_balancer_difference(desired, changed) == reason


def test_a_changed_spec_names_its_fields() -> None:
    assert load_balancer_difference(load_balancer(81), stored_load_balancer(load_balancer(80))) == "changed: ports"


@pytest.mark.parametrize(
    ("desired", "present", "reason"),
    [
        (slice_of("a", "10.0.0.1"), slice_of("a", "10.0.0.2", "10.0.0.3"), "endpoints changed: 1 added, 2 removed"),
        (slice_of("a", port=81), slice_of("a", port=80), "ports changed"),
        (slice_of("a", annotations=STALE), slice_of("a"), "no node is Ready"),
        (slice_of("a"), slice_of("a", annotations=STALE), "no longer stale"),
        (slice_of("a"), slice_of("a", labels={**LABELS, "fairlead.dev/load-balancer": "b"}), "labels changed"),
        (slice_of("a", owner_references=[OWNER]), slice_of("a"), "owners changed"),
    ],
)
def test_slices(desired: Any, present: Any, reason: str) -> None:
    assert slice_difference(desired, stored_slice(present)) == reason


def test_an_endpoint_that_only_became_unready_is_a_change_without_counts() -> None:
    desired, present = slice_of("a", "10.0.0.1"), stored_slice(slice_of("a", "10.0.0.1"))
    unready = [msgspec.structs.replace(each, conditions=None) for each in present.endpoints or ()]
    assert slice_difference(desired, msgspec.structs.replace(present, endpoints=unready)) == "endpoints changed"


@pytest.mark.req("L4-9")
@pytest.mark.parametrize(("written", "differs"), [("", False), ("first", True), ("second", False)])
def test_a_slice_without_the_uid_of_an_earlier_release_is_not_rewritten(written: str, differs: bool) -> None:
    def of_uid(uid: str) -> EndpointSlice:
        listed = slice_of("a", "10.0.0.1")
        labels = {**(listed.metadata.labels or {}), **({"fairlead.dev/origin-uid": uid} if uid else {})}
        return msgspec.structs.replace(listed, metadata=msgspec.structs.replace(listed.metadata, labels=labels))

    assert bool(slice_difference(of_uid("second"), of_uid(written))) is differs
