"""What has to be written for one region of a Service."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from regions_builders import RegionKey, membership, pool, pool_service, service, slice_of

from fairlead.api.poolservice import PoolService
from fairlead.regions.plan import RegionView, plan_region
from fairlead.regions.source import Backends, build_backends

NOW = "2030-06-01T00:00:00.000000Z"


def view(**more: Any) -> RegionView:
    source = more.pop("service", service())
    key = RegionKey("default", "test", "np1")
    wanted = more.pop("pool", pool("np1", app="deploy"))
    return RegionView(key=key, service=source, pool=wanted, backends=more.pop("backends", Backends()), **more)


def applied(of: RegionView) -> RegionView:
    """Do what a plan says, as an API server would, and return the view after that."""
    present = {each.metadata.name: each for each in of.present}
    for write in plan_region(of, now=NOW).writes:
        if write.action == "delete":
            del present[write.name]
            continue
        there = present.get(write.name)
        raw = json.loads(msgspec.json.encode(there)) if there is not None else {}
        raw.setdefault("metadata", {"uid": f"uid-{write.name}", "resourceVersion": "1"})
        for part in ("metadata", "spec"):
            for field, value in write.body.get(part, {}).items():
                old = raw.setdefault(part, {}).get(field)
                raw[part][field] = {**old, **value} if isinstance(value, dict) and isinstance(old, dict) else value
        present[write.name] = msgspec.convert(raw, type=PoolService)
    return msgspec.structs.replace(of, present=tuple(present.values()))


TAMPERED = st.fixed_dictionaries(
    {},
    optional={
        "class_name": st.sampled_from(["elb", "other"]),
        "references": st.none(),
        "labels": st.just({"poolservice.openyurt.io/managed-by": "load-balancer-set-controller"}),
        "ingress": st.just(["1.1.1.1"]),
        "annotations": st.just({"fairlead.dev/service": "{}", "other.io/kept": "yes"}),
    },
)


@pytest.mark.req("O-42", "O-43", "W-O-2", "O-39")
@given(st.booleans(), TAMPERED, st.booleans())
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(there: bool, tampered: dict[str, Any], wanted: bool) -> None:
    present = (pool_service("test", "np1", of=service(), **tampered),) if there else ()
    after = view(present=present, pool=pool("np1", app="deploy") if wanted else None)
    for _ in range(3):
        after = applied(after)
    assert plan_region(after, now=NOW).writes == ()
    if wanted:
        assert len([each for each in after.present if each.spec.load_balancer_class == "elb"]) == 1


@pytest.mark.req("O-11", "O-17")
def test_renew_time_moves_with_content_alone() -> None:
    whole = applied(view())
    assert whole.present[0].spec.renew_time == NOW
    later = "2031-01-01T00:00:00.000000Z"
    given = whole.present[0]
    wrong = pool_service("test", "x").metadata.labels
    label = msgspec.structs.replace(given, metadata=msgspec.structs.replace(given.metadata, labels=wrong))
    (write,) = plan_region(msgspec.structs.replace(whole, present=(label,)), now=later).writes
    assert "spec" not in write.body
    assert write.modified == "labels"
    who = membership(n1="np1")
    moved = msgspec.structs.replace(whole, backends=build_backends("np1", [slice_of(("10.0.0.1", "n1", True))], who))
    (write,) = plan_region(moved, now=later).writes
    assert write.body["spec"] == {"renewTime": later}
    assert not write.modified


@pytest.mark.req("T-survivors")
@pytest.mark.req("O-20")
def test_nothing_is_deleted_while_it_is_shown_or_something_cannot_be_seen() -> None:
    shown = service(status={"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}})
    given = pool_service("test", "np1", of=service(), ingress=["1.1.1.1"])
    waiting = plan_region(view(service=shown, pool=None, present=(given,)), now=NOW)
    assert (waiting.writes, bool(waiting.waits)) == ((), True)
    frozen = plan_region(view(pool=None, present=(given,), frozen="the API is away"), now=NOW)
    assert (frozen.writes, frozen.waits) == ((), "the API is away")
    assert [write.action for write in plan_region(view(pool=None, present=(given,)), now=NOW).writes] == ["delete"]
    gone = service(deleting=True, status={"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}})
    assert [write.action for write in plan_region(view(service=gone, pool=None, present=(given,)), now=NOW).writes] == [
        "delete"
    ]


@pytest.mark.req("T-survivors", "O-20", "O-34")
def test_old_class_serves_until_the_new_class_has_an_access_point() -> None:
    before, now = service(class_name="old"), service(class_name="elb")
    old = pool_service("test", "np1", of=before, class_name="old", ingress=["1.1.1.1"])
    made = applied(view(service=now, present=(old,)))
    assert {each.spec.load_balancer_class for each in made.present} == {"old", "elb"}
    waiting = applied(made)
    assert {each.spec.load_balancer_class for each in waiting.present} == {"old", "elb"}, (
        "no client is answered there yet"
    )
    ready = msgspec.structs.replace(
        made,
        present=tuple(
            pool_service("test", "np1", name=each.metadata.name, of=now, ingress=["2.2.2.2"])
            if each.spec.load_balancer_class == "elb"
            else each
            for each in made.present
        ),
    )
    assert {each.spec.load_balancer_class for each in applied(ready).present} == {"elb"}
    shown = service(class_name="elb", status={"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}})
    plan = plan_region(msgspec.structs.replace(ready, service=shown), now=NOW)
    assert [write.action for write in plan.writes if write.action == "delete"] == []
    assert "1.1.1.1 is still in the status" in plan.waits


@pytest.mark.req("O-11")
@pytest.mark.parametrize("field", ["nodepoolName", "loadBalancerClass"])
def test_only_repairs_that_providers_read_move_the_renew_time(field: str) -> None:
    of = service()
    whole = applied(view())
    present = whole.present[0]
    wrong = {"nodepoolName": {"nodepool_name": "other"}, "loadBalancerClass": {"load_balancer_class": "other"}}[field]
    tampered = msgspec.structs.replace(present, spec=msgspec.structs.replace(present.spec, **wrong))
    later = "2031-01-01T00:00:00.000000Z"
    (write,) = plan_region(msgspec.structs.replace(whole, service=of, present=(tampered,)), now=later).writes
    assert write.body["spec"]["renewTime"] == later
    assert write.modified == f"spec.{field}"
