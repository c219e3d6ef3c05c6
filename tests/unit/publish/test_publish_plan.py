"""What has to be written: order, what is foreign, what is being deleted, what stays."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import pytest
from publish_builders import is_ours, load_balancer, publication, slice_of

from fairlead.api.meta import KubeObject
from fairlead.publish.objects import Present, Publication, PublishPlan, plan_publication, plan_removal
from tests.published import stored_load_balancer, stored_slice

T = TypeVar("T", bound=KubeObject)

THERE = Present(stored_load_balancer(load_balancer()), (stored_slice(slice_of("a", "10.0.0.1")),))


def deleting(obj: T) -> T:
    meta = msgspec.structs.replace(obj.metadata, deletion_timestamp="2030-01-01T00:00:00Z")
    return msgspec.structs.replace(obj, metadata=meta)


def foreign(obj: T) -> T:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, labels={}))


def steps(plan: PublishPlan) -> list[tuple[str, str]]:
    return [(write.action, write.obj.metadata.name) for write in plan.writes]


def plan(desired: Publication, present: Present) -> PublishPlan:
    return plan_publication(desired, present, is_ours=is_ours)


@pytest.mark.req("I-9")
def test_the_load_balancer_first_then_what_is_new_then_what_goes() -> None:
    desired = publication(slice_of("b", "10.0.0.2"), slice_of("c"), port=81)
    assert steps(plan(desired, THERE)) == [("apply", "shop.web"), ("apply", "b"), ("apply", "c"), ("delete", "a")]


@pytest.mark.req("I-10")
def test_nothing_is_written_when_nothing_differs() -> None:
    assert plan(publication(slice_of("a", "10.0.0.1")), THERE) == PublishPlan()


def test_slices_that_are_not_decided_stay() -> None:
    assert plan(Publication(load_balancer(), None), THERE) == PublishPlan()


@pytest.mark.req("I-4")
def test_an_object_that_is_not_ours_is_a_conflict_and_stays() -> None:
    of_load_balancer = msgspec.structs.replace(THERE, load_balancer=foreign(stored_load_balancer(load_balancer())))
    assert plan(publication(), of_load_balancer) == PublishPlan(conflict="TCPLoadBalancer shop.web")
    of_slice = msgspec.structs.replace(THERE, slices=(foreign(THERE.slices[0]),))
    assert plan(publication(slice_of("a")), of_slice) == PublishPlan(conflict="EndpointSlice a")
    assert steps(plan(publication(slice_of("b")), of_slice)) == [("apply", "b")]
    both = Present(of_load_balancer.load_balancer, of_slice.slices)
    assert plan_removal(both, reason="gone", is_ours=is_ours) == PublishPlan()


@pytest.mark.req("KI-2")
def test_an_object_in_deletion_is_not_written() -> None:
    present = Present(deleting(stored_load_balancer(load_balancer())), THERE.slices)
    assert plan(publication(slice_of("b"), port=81), present) == PublishPlan()
    going = msgspec.structs.replace(THERE, slices=(deleting(THERE.slices[0]),))
    assert plan(publication(slice_of("a", "10.0.0.9")), going) == PublishPlan()
    assert plan(publication(), going) == PublishPlan()


def test_a_removal_begins_with_the_load_balancer() -> None:
    removal = plan_removal(THERE, reason="the Service is gone", is_ours=is_ours)
    assert steps(removal) == [("delete", "shop.web"), ("delete", "a")]
    assert {write.reason for write in removal.writes} == {"the Service is gone"}
    assert plan_removal(Present(None), reason="x", is_ours=is_ours) == PublishPlan()
