"""A node is in one pool at most, and membership follows every change."""

from __future__ import annotations

import pytest
from regions_builders import node, pool

from fairlead.regions.source import Membership, RegionPool, claims_of


@pytest.mark.req("O-5")
def test_a_node_is_in_one_pool() -> None:
    older, younger = pool("b", region="r", created="1"), pool("a", region="r", created="2")
    openyurt = RegionPool(name="yurt", created="9")
    assert claims_of(node("n", region="r"), [younger, older]).pools == ("b", "a")
    labels = {"region": "r", "apps.openyurt.io/nodepool": "yurt"}
    assert claims_of(node("n", labels), [younger, older, openyurt]).owner == "yurt"
    assert claims_of(node("n", region="s"), [younger, older, openyurt]).owner == ""
    everything = RegionPool(name="all", node_selector={})
    assert claims_of(node("n", region="r"), [everything]).owner == ""


def test_membership_follows_every_change() -> None:
    made = Membership()
    assert made.put("n1", claims_of(node("n1", region="a"), [pool("a")])) == ("", "a")
    assert made.put("n1", claims_of(node("n1", region="b"), [pool("b")])) == ("a", "b")
    assert (made.nodes_of("a"), made.nodes_of("b")) == (frozenset(), frozenset({"n1"}))
    assert made.put("n1", None) == ("b", "")
    assert not made.knows("n1")
