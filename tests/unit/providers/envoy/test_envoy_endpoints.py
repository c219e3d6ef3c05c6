"""Endpoints are the bytes that protobuf itself would write, the same for the same targets."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.desired import Target
from fairlead.model.keys import TargetKey
from fairlead.providers.envoy.clusters import EndpointSet
from fairlead.providers.envoy.resources import packaged_schema

ASSIGNMENT = "envoy.config.endpoint.v3.ClusterLoadAssignment"

addresses = st.one_of(st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str))
targets = st.builds(
    Target,
    key=st.builds(TargetKey, addresses, st.integers(1, 65_535)),
    weight=st.integers(0, 65_535),
    draining=st.booleans(),
)
target_lists = st.lists(targets, max_size=8, unique_by=lambda target: target.key)


def built_by_protobuf(name: str, chosen: Sequence[Target]) -> bytes:
    endpoints: list[dict[str, object]] = []
    for target in sorted(chosen, key=lambda target: target.key):
        where = {"address": target.key.address, "port_value": target.key.port}
        endpoint: dict[str, object] = {"endpoint": {"address": {"socket_address": where}}}
        if target.draining or not target.weight:
            endpoint["health_status"] = "DRAINING"
        if target.weight > 1:
            endpoint["load_balancing_weight"] = {"value": target.weight}
        endpoints.append(endpoint)
    fields: dict[str, object] = {"cluster_name": name}
    if endpoints:
        fields["endpoints"] = [{"lb_endpoints": endpoints}]
    return packaged_schema().encode(ASSIGNMENT, fields)


@given(target_lists, st.randoms(use_true_random=True))
@pytest.mark.req("K-30")
def test_endpoints_are_what_protobuf_would_write_in_any_order(chosen: list[Target], rng: random.Random) -> None:
    expected = built_by_protobuf("k/n/a/TCP/80", chosen)
    assert EndpointSet(chosen).assignment("k/n/a/TCP/80") == expected
    shuffled = chosen[:]
    rng.shuffle(shuffled)
    assert EndpointSet(shuffled).assignment("k/n/a/TCP/80") == expected


@given(target_lists, target_lists)
def test_endpoints_depend_on_what_is_there_not_on_what_was(before: list[Target], after: list[Target]) -> None:
    endpoints = EndpointSet(before)
    for target in before:
        assert endpoints.drop(target.key)
        assert not endpoints.drop(target.key)
    for target in after:
        assert endpoints.put(target)
        assert not endpoints.put(target)
    assert endpoints.assignment("x") == EndpointSet(after).assignment("x")
