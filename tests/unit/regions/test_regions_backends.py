"""The backends of one region: exactly those on its nodes, in one order, bounded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from regions_builders import membership, node, slice_of

from fairlead.api.kubernetes import NodeAddress
from fairlead.regions.source import BACKENDS_LIMIT_BYTES, Backends, build_backends, decode_backends, pool_node

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
    result = {name: build_backends(name, [slice_of(*pods)], who) for name in ("east", "west")}
    addresses = {name: {e.address for g in result[name].groups for e in g.endpoints} for name in result}
    assert not addresses["east"] & addresses["west"]
    for address, at, _ in pods:
        place = places.get(at, "")
        assert all((address in addresses[name]) == (name == place) for name in addresses)


@given(PLACES, PODS)
def test_the_order_of_a_slice_does_not_matter(places: dict[str, str], pods: list[Any]) -> None:
    who = membership(**places)
    each = build_backends("east", [slice_of(*pods)], who).encode()
    assert each == build_backends("east", [slice_of(*reversed(pods))], who).encode()
    assert (decode_backends(each) or Backends()).encode() == each


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
    given = build_backends("east", [slice_of(*pods)], who).encode()
    other = build_backends("east", [slice_of(*pods[1:])], who).encode()
    assert max(len(given), len(other)) < BACKENDS_LIMIT_BYTES
    assert given != other


def test_nodes_that_may_not_take_traffic_are_none() -> None:
    assert pool_node(node("n", {"node.kubernetes.io/exclude-from-external-load-balancers": ""})) is None
    assert pool_node(node("n", ready=False)) is not None


@pytest.mark.req("K-4")
def test_a_node_of_both_families_has_an_address_of_each() -> None:
    given = node("n")
    addresses = [
        NodeAddress(type="ExternalIP", address="2001:db8::1"),
        NodeAddress(type="InternalIP", address="10.1.0.1"),
        NodeAddress(type="InternalIP", address="fd00::1"),
    ]
    status = msgspec.structs.replace(given.status, addresses=addresses)
    both = pool_node(msgspec.structs.replace(given, status=status))
    assert both is not None
    assert (both.address, both.second_address) == ("10.1.0.1", "fd00::1")
    single = pool_node(given)
    assert single is not None
    assert b"secondAddress" not in msgspec.json.encode(single), "what is written for one family stays as it was"
