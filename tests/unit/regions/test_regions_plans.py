"""The pure plans: names and identities, backends, one region, what a Service shows. Tables and properties."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from regions_builders import RegionKey, membership, node, pool, pool_service, service, slice_of

from fairlead.api.poolservice import PoolService
from fairlead.regions.access_condition import AccessView
from fairlead.regions.access_plan import plan_access
from fairlead.regions.backends import BACKENDS_LIMIT_BYTES, Backends, build_backends, decode_backends, pool_node
from fairlead.regions.identity import pool_service_names, region_of
from fairlead.regions.pools import Membership, Pool, claims_of
from fairlead.regions.region_plan import RegionView, plan_region
from fairlead.regions.service_annotations import aggregated
from fairlead.regions.service_plan import Wanted, plan_service

NOW = "2030-06-01T00:00:00.000000Z"
WHEN = datetime(2030, 6, 1, tzinfo=UTC)
NAMES = st.from_regex(r"[a-z]([-a-z]{0,6}[a-z])?", fullmatch=True)


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("O-28", "W-O-1", "W-O-12")
@given(NAMES, NAMES, NAMES, NAMES)
def test_two_pairs_never_share_their_second_name(a: str, b: str, c: str, d: str) -> None:
    one, other = pool_service_names(a, b, "x"), pool_service_names(c, d, "x")
    assert one[0] == f"{a}-{b}"
    if (a, b) != (c, d):
        assert one[1] != other[1]
        assert one[2] != other[2]


@pytest.mark.req("W-O-12")
def test_names_are_never_too_long() -> None:
    for one in pool_service_names("s" * 63, "p" * 253, "class"):
        assert len(one) <= 253


@pytest.mark.req("O-42", "W-O-8")
@pytest.mark.parametrize("tampered", ["labels", "references", "pool", "class", "both labels and references"])
def test_one_of_ours_is_known_whatever_one_part_of_it_says(tampered: str) -> None:
    one = pool_service("test", "np1", of=service())
    wrong = {**(one.metadata.labels or {}), "openyurt.io/service-name": "mock", "openyurt.io/pool-name": "np9"}
    meta = one.metadata
    if "labels" in tampered:
        meta = msgspec.structs.replace(meta, labels=wrong)
    if "references" in tampered:
        meta = msgspec.structs.replace(meta, owner_references=None)
    spec = one.spec
    if tampered == "pool":
        spec = msgspec.structs.replace(spec, nodepool_name="np9")
    if tampered == "class":
        spec = msgspec.structs.replace(spec, load_balancer_class="other")
    assert region_of(PoolService(metadata=meta, spec=spec)) == RegionKey("default", "test", "np1")


# --- pools and backends ---------------------------------------------------------------------------------------------


@pytest.mark.req("O-5")
def test_a_node_is_in_one_pool() -> None:
    older, younger = pool("b", region="r", created="1"), pool("a", region="r", created="2")
    openyurt = Pool(name="yurt", created="9")
    assert claims_of(node("n", region="r"), [younger, older]).pools == ("b", "a")
    labels = {"region": "r", "apps.openyurt.io/nodepool": "yurt"}
    assert claims_of(node("n", **labels), [younger, older, openyurt]).owner == "yurt"
    assert claims_of(node("n", region="s"), [younger, older, openyurt]).owner == ""
    everything = Pool(name="all", node_selector={})
    assert claims_of(node("n", region="r"), [everything]).owner == ""


PLACES = st.dictionaries(st.sampled_from(["n1", "n2", "n3", "n4"]), st.sampled_from(["east", "west", ""]))
PODS = st.lists(
    st.tuples(
        st.sampled_from([f"10.0.0.{n}" for n in range(6)]), st.sampled_from(["n1", "n2", "n3", "n4"]), st.booleans()
    ),
    unique_by=lambda pod: pod[0],
    max_size=6,
)


@pytest.mark.req("O-5", "O-55")
@given(PLACES, PODS)
def test_a_backend_is_in_one_region_at_most_and_in_its_nodes(places: dict[str, str], pods: list[Any]) -> None:
    who = membership(**places)
    found = {name: build_backends(name, [slice_of(*pods)], who) for name in ("east", "west")}
    addresses = {name: {e.address for g in found[name].groups for e in g.endpoints} for name in found}
    assert not addresses["east"] & addresses["west"]
    for address, at, _ in pods:
        place = places.get(at, "")
        assert all((address in addresses[name]) == (name == place) for name in addresses)


@given(PLACES, PODS)
def test_the_order_of_a_slice_does_not_matter(places: dict[str, str], pods: list[Any]) -> None:
    who = membership(**places)
    one = build_backends("east", [slice_of(*pods)], who).encode()
    assert one == build_backends("east", [slice_of(*reversed(pods))], who).encode()
    assert (decode_backends(one) or Backends()).encode() == one


def test_a_lost_node_takes_nothing_along() -> None:
    who = membership(n1="east")
    pods = [("10.0.0.1", "n1", True), ("10.0.0.2", "gone", True)]
    before = build_backends("east", [slice_of(*pods)], membership(n1="east", gone="east"))
    after = build_backends("east", [slice_of(*pods)], who, before=before)
    assert after == before
    assert build_backends("west", [slice_of(*pods)], who, before=Backends()).groups == ()


def test_too_many_backends_become_a_hash_that_moves() -> None:
    pods = [(f"10.{n >> 8}.{n & 255}.1", "n1", True) for n in range(3000)]
    who = membership(n1="east")
    one = build_backends("east", [slice_of(*pods)], who).encode()
    other = build_backends("east", [slice_of(*pods[1:])], who).encode()
    assert max(len(one), len(other)) < BACKENDS_LIMIT_BYTES
    assert one != other


def test_nodes_that_may_not_take_traffic_are_none() -> None:
    assert pool_node(node("n", **{"node.kubernetes.io/exclude-from-external-load-balancers": ""})) is None
    assert pool_node(node("n", ready=False)) is not None


def test_membership_follows_every_change() -> None:
    made = Membership()
    assert made.put("n1", claims_of(node("n1", region="a"), [pool("a")])) == ("", "a")
    assert made.put("n1", claims_of(node("n1", region="b"), [pool("b")])) == ("a", "b")
    assert (made.nodes_of("a"), made.nodes_of("b")) == (frozenset(), frozenset({"n1"}))
    assert made.put("n1", None) == ("b", "")
    assert not made.knows("n1")


# --- one Service, one region ----------------------------------------------------------------------------------------


@pytest.mark.req("O-27", "O-32", "O-33", "O-9")
def test_what_a_service_needs() -> None:
    pools = [pool("a", app="deploy"), pool("b", app="deploy", deleting=True), pool("c")]
    plan = plan_service(service(), pools, [], left=0)
    assert (plan.finalizer, sorted(plan.wanted.pools)) == ("add", ["a"])
    held = service(finalizers=["fairlead.dev/pool-services"], deleting=True)
    assert plan_service(held, pools, ["a"], left=1).finalizer == ""
    assert plan_service(held, pools, [], left=0).finalizer == "remove"
    broken = plan_service(service(selector="a in ("), pools, ["c"], left=1)
    assert (list(broken.wanted.pools), broken.wanted.problem) == (["c"], "InvalidSelector")


def view(**more: Any) -> RegionView:
    source = more.pop("service", service())
    key = RegionKey("default", "test", "np1")
    wanted = more.pop("pool", pool("np1", app="deploy"))
    return RegionView(key=key, service=source, pool=wanted, backends=more.pop("backends", Backends()), **more)


def applied(of: RegionView) -> RegionView:
    """Do what a plan says, as an API server would, and return the view after that."""
    present = {one.metadata.name: one for one in of.present}
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
        assert len([one for one in after.present if one.spec.load_balancer_class == "elb"]) == 1


@pytest.mark.req("O-11", "O-17")
def test_renew_time_moves_with_content_alone() -> None:
    whole = applied(view())
    assert whole.present[0].spec.renew_time == NOW
    later = "2031-01-01T00:00:00.000000Z"
    one = whole.present[0]
    wrong = pool_service("test", "x").metadata.labels
    label = msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, labels=wrong))
    (write,) = plan_region(msgspec.structs.replace(whole, present=(label,)), now=later).writes
    assert "spec" not in write.body
    assert write.modified == "labels"
    who = membership(n1="np1")
    moved = msgspec.structs.replace(whole, backends=build_backends("np1", [slice_of(("10.0.0.1", "n1", True))], who))
    (write,) = plan_region(moved, now=later).writes
    assert write.body["spec"] == {"renewTime": later}
    assert not write.modified


@pytest.mark.req("O-20")
def test_nothing_is_deleted_while_it_is_shown_or_something_cannot_be_seen() -> None:
    shown = service(status={"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}})
    one = pool_service("test", "np1", of=service(), ingress=["1.1.1.1"])
    waiting = plan_region(view(service=shown, pool=None, present=(one,)), now=NOW)
    assert (waiting.writes, bool(waiting.waits)) == ((), True)
    frozen = plan_region(view(pool=None, present=(one,), frozen="the API is away"), now=NOW)
    assert (frozen.writes, frozen.waits) == ((), "the API is away")
    assert [write.action for write in plan_region(view(pool=None, present=(one,)), now=NOW).writes] == ["delete"]
    gone = service(deleting=True, status={"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}})
    assert [write.action for write in plan_region(view(service=gone, pool=None, present=(one,)), now=NOW).writes] == [
        "delete"
    ]


# --- what a Service shows -------------------------------------------------------------------------------------------


ADDRESSES = st.lists(st.sampled_from(["1.1.1.1", "2.2.2.2", "10.0.0.1", "9.9.9.9"]), max_size=2, unique=True)


@pytest.mark.req("O-35", "O-39", "W-O-4")
@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), ADDRESSES), ADDRESSES, st.permutations(["a", "b", "c"]))
def test_what_is_shown_is_stable_complete_and_spares_others(
    regions: dict[str, list[str]], foreign: list[str], order: list[str]
) -> None:
    found = tuple(
        (RegionKey("default", "test", name), pool_service("test", name, of=service(), ingress=regions[name]))
        for name in order
        if name in regions
    )
    wanted = Wanted({name: pool(name) for name in ("a", "b", "c")})
    source = service(status={"loadBalancer": {"ingress": [{"ip": one} for one in foreign]}})
    for _ in range(2):
        plan = plan_access(AccessView(source, wanted, found), now=WHEN)
        raw = json.loads(msgspec.json.encode(source))
        for step in plan.steps:
            annotations = step.patch.get("metadata", {}).get("annotations", {})
            raw["metadata"].setdefault("annotations", {}).update(annotations)
            raw["status"] = {**raw.get("status", {}), **step.patch.get("status", {})}
            shown = {one["ip"] for one in (raw["status"].get("loadBalancer") or {}).get("ingress") or ()}
            record = json.loads(raw["metadata"]["annotations"].get("fairlead.dev/access-points") or "{}")
            # Whatever moment we die at, each address that we have shown is recorded as ours.
            assert shown - set(foreign) <= {address for addresses in record.values() for address in addresses}
        raw["metadata"]["annotations"] = {k: v for k, v in raw["metadata"]["annotations"].items() if v is not None}
        source = service(annotations=raw["metadata"]["annotations"], status=raw.get("status"))
    union = {address for addresses in regions.values() for address in addresses}
    now_shown = [one.address for one in source.status.load_balancer.ingress or ()]
    assert set(now_shown) == union | set(foreign)
    assert len(now_shown) == len(set(now_shown))
    if union:
        assert now_shown == sorted(now_shown, key=lambda text: [int(part) for part in text.split(".")])
    assert plan_access(AccessView(source, wanted, found), now=WHEN).steps == ()


@pytest.mark.req("W-O-3", "O-36", "O-37", "O-38")
def test_labels_only_where_they_are_legal() -> None:
    both = [
        pool_service("t", "a", aggregateToLabels={"id": "1", "kind": "x", "bad key": "1", "n": "y" * 64}),
        pool_service("t", "b", aggregateToLabels={"id": "2", "kind": "x"}, aggregateToAnnotations={"id": "3"}),
    ]
    labels, annotations = aggregated(both)
    assert labels == {"aggregated.kind": "x"}
    assert annotations == {"aggregated.id": "1,2,3", "aggregated.n": "y" * 64}
