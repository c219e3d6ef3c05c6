"""Nodes and the nodes slices: who is listed, what is one write, and what is kept when information is missing."""

from __future__ import annotations

import msgspec
import pytest
from agent_builders import HUB_NAMESPACE, TENANT, node
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.agent.slices import (
    MAX_ENDPOINTS_PER_SLICE,
    NodeEntry,
    NodesExport,
    NodesPlace,
    build_nodes,
    entries_from_nodes,
)
from fairlead.api.kubernetes import EndpointSlice, Node
from fairlead.api.names import ANNOTATION_STALE
from fairlead.model.keys import IPV4, IPV6
from fairlead.publish.objects import make_conditions, plan_slices
from tests.published import stored_slice

PLACE = NodesPlace(HUB_NAMESPACE, TENANT)
SIX = NodesPlace(HUB_NAMESPACE, TENANT, IPV6)

ENTRY = [
    (node("a", internal="10.0.0.1"), "InternalIP", ("10.0.0.1", True, False)),
    (node("a", internal="10.0.0.1", external="192.0.2.1"), "InternalIP", ("10.0.0.1", True, False)),
    (node("a", internal="10.0.0.1", external="192.0.2.1"), "ExternalIP", ("192.0.2.1", True, False)),
    (node("a", internal="10.0.0.1"), "ExternalIP", ("10.0.0.1", True, False)),
    (node("a", internal="fd00::1"), "InternalIP", ("", True, False)),
    (node("a"), "InternalIP", ("", True, False)),
    (node("a", internal="10.0.0.1", ready="False"), "InternalIP", ("10.0.0.1", False, False)),
    (node("a", internal="10.0.0.1", ready="Unknown"), "InternalIP", ("10.0.0.1", False, False)),
    (node("a", internal="10.0.0.1", unschedulable=True), "InternalIP", ("10.0.0.1", True, False)),
    (node("a", internal="10.0.0.1", taints=["ToBeDeletedByClusterAutoscaler"]), "InternalIP", ("10.0.0.1", True, True)),
    (
        node("a", internal="10.0.0.1", labels={"node.kubernetes.io/exclude-from-external-load-balancers": ""}),
        "InternalIP",
        None,
    ),
]


@pytest.mark.req("K-18")
@pytest.mark.req("K-4")
@pytest.mark.parametrize(("given_node", "prefer", "expected"), ENTRY)
def test_a_node_becomes_an_entry(given_node, prefer, expected):
    result = [(each.address, each.ready, each.going) for each in entries_from_nodes([given_node], prefer=prefer)]
    assert result == ([] if expected is None else [expected])


def build(entries, hub=()):
    return build_nodes(tuple(entries), hub, place=PLACE)


def apply(entries, hub=()):
    """Return the hub's slices afterwards, and how many writes that took."""
    export = build(entries, hub)
    writes = plan_slices(export.slices, hub)
    after = {each.metadata.name: each for each in hub}
    for write in writes:
        if write.action == "apply":
            assert isinstance(write.obj, EndpointSlice)
            after[write.obj.metadata.name] = stored_slice(write.obj)
        else:
            del after[write.obj.metadata.name]
    return list(after.values()), len(writes), export.stale


def ready_addresses(slices):
    return sorted(e.addresses[0] for slice_ in slices for e in slice_.endpoints if e.conditions.ready)


def entries(*numbers, not_ready=()):
    return [NodeEntry(f"n{i:05}", f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}", i not in not_ready) for i in numbers]


@pytest.mark.req("K-16")
@pytest.mark.req("K-17")
@pytest.mark.req("K-18")
@pytest.mark.req("K-32")
@pytest.mark.parametrize(
    ("before", "after", "writes", "ready"),
    [
        (entries(1, 2), entries(1, 2), 0, 2),
        (entries(1, 2), entries(1, 2, 3), 1, 3),
        (entries(1, 2, 3), entries(1, 3), 1, 2),
        (entries(1, 2, 3), entries(1, 2, 3, not_ready={2}), 1, 2),
        (entries(1, 2, 3), entries(3, 2, 1), 0, 3),
        (entries(*range(2500)), entries(*range(1, 2500)), 1, 2499),
        (entries(*range(1, 2500)), entries(*range(2500)), 1, 2500),
        (entries(*range(1001)), entries(*range(1000)), 1, 1000),
    ],
)
def test_one_change_is_one_write(before, after, writes, ready):
    hub, _, _ = apply(before)
    hub, count, stale = apply(after, hub)
    assert (count, len(ready_addresses(hub)), stale) == (writes, ready, "")
    assert all(len(each.endpoints) <= MAX_ENDPOINTS_PER_SLICE for each in hub)


MISSING = [
    ([], "lists no node"),
    (entries(1, 2, not_ready={1, 2}), "no node of the member is Ready"),
    ([NodeEntry("other", "", True)], "no node of the member shows an IPv4 address"),
    ([NodeEntry("n00001", "10.0.0.1", True, True)], "no node of the member is Ready"),
]


@pytest.mark.req("I-1")
@pytest.mark.req("B01")
@pytest.mark.req("B03")
@pytest.mark.req("K-18")
@pytest.mark.parametrize(("after", "sentence"), MISSING)
def test_when_no_node_is_left_the_last_set_stays_and_says_so(after, sentence):
    hub, _, _ = apply(entries(1, 2))
    stale_hub, count, stale = apply(after, hub)
    assert count == 1
    assert sentence in stale
    assert ready_addresses(stale_hub) == ready_addresses(hub)
    assert stale_hub[0].endpoints == hub[0].endpoints
    assert stale_hub[0].annotation(ANNOTATION_STALE) == stale
    again, count, _ = apply(after, stale_hub)
    assert count == 0
    back, count, stale = apply(entries(1, 2), again)
    assert (count, stale) == (1, "")
    assert back[0].annotation(ANNOTATION_STALE) == ""


@pytest.mark.req("I-1")
def test_a_node_whose_address_is_missing_keeps_the_last_one():
    hub, _, _ = apply(entries(1, 2))
    hub, count, _ = apply([NodeEntry("n00001", "", True), *entries(2)], hub)
    assert count == 0
    assert ready_addresses(hub) == ["10.0.0.1", "10.0.0.2"]


def test_without_any_node_ever_an_empty_slice_says_why():
    hub, count, stale = apply([])
    assert count == 1
    assert hub[0].endpoints == []
    assert hub[0].annotation(ANNOTATION_STALE) == stale != ""


@given(
    steps=st.lists(
        st.lists(
            st.builds(
                lambda i, ready, going, known: NodeEntry(f"n{i}", f"10.0.0.{i}" if known else "", ready, going),
                st.integers(1, 6),
                st.booleans(),
                st.booleans(),
                st.booleans(),
            ),
            unique_by=lambda entry: entry.name,
        ),
        max_size=6,
    ),
    data=st.data(),
)
@settings(max_examples=80, deadline=None)
@pytest.mark.req("I-1")
def test_any_history_reaches_a_fixed_point_and_never_loses_the_last_node(steps, data):
    hub = []
    for step in steps:
        before = ready_addresses(hub)
        hub, _, stale = apply(data.draw(st.permutations(step)), hub)
        assert apply(data.draw(st.permutations(step)), hub)[1] == 0
        if stale:
            assert ready_addresses(hub) == before
        else:
            assert ready_addresses(hub)


@pytest.mark.req("T-survivors", "K-18")
def test_a_node_that_is_being_deleted_gets_nothing_new_and_serves_what_it_has():
    leaving = NodeEntry("a", "10.0.0.1", ready=True, going=True)
    broken = NodeEntry("b", "10.0.0.2", ready=False)
    both = NodeEntry("c", "10.0.0.3", ready=False, going=True)
    (nodes,) = build([leaving, broken, both, NodeEntry("d", "10.0.0.4", ready=True)]).slices
    conditions = {endpoint.node_name: endpoint.conditions for endpoint in nodes.endpoints}
    assert {
        name: (state.ready is not False, state.serving is not False, state.terminating is True)
        for name, state in conditions.items()
    } == {"a": (False, True, True), "b": (False, False, False), "c": (False, False, True), "d": (True, True, False)}


def dual(name, *addresses):
    """Return a node with these addresses of type InternalIP."""
    given = [{"type": "InternalIP", "address": address} for address in addresses]
    ready = [{"type": "Ready", "status": "True"}]
    body = {"metadata": {"name": name}, "status": {"addresses": given, "conditions": ready}}
    return msgspec.convert(body, type=Node)


@pytest.mark.req("K-4", "K-30")
def test_a_node_of_both_families_has_an_entry_in_each():
    nodes = [dual("a", "10.0.0.1", "fd00::1"), dual("b", "fd00::2"), dual("c", "10.0.0.3")]
    four = entries_from_nodes(nodes, prefer="InternalIP", family=IPV4)
    six = entries_from_nodes(nodes, prefer="InternalIP", family=IPV6)
    assert [each.address for each in four] == ["10.0.0.1", "", "10.0.0.3"]
    assert [each.address for each in six] == ["fd00::1", "fd00::2", ""]


@pytest.mark.req("K-4", "K-30")
def test_slices_of_ipv6_have_names_and_a_label_of_their_own():
    (made,) = build_nodes([NodeEntry("a", "fd00::1", True)], (), place=SIX, needed=False).slices
    assert (made.metadata.name, made.address_type) == ("fairlead-nodes-ipv6-0", "IPv6")
    assert made.label("fairlead.dev/nodes-ipv6") == "true"
    assert made.label("fairlead.dev/nodes") == "", "a hub of version 0.1 would take it for one of IPv4"
    assert (SIX.index_of(made), PLACE.index_of(made)) == (0, None)


@pytest.mark.req("K-4", "K-30", "I-1")
def test_only_a_lost_address_family_is_a_problem():
    entries = [NodeEntry("a", "", True)]
    assert build_nodes(entries, (), place=SIX, needed=False) == NodesExport(())
    (before,) = build_nodes([NodeEntry("a", "fd00::1", True)], (), place=SIX, needed=False).slices
    (kept,) = build_nodes([NodeEntry("b", "", True)], [stored_slice(before)], place=SIX, needed=False).slices
    assert kept.endpoints == before.endpoints
    assert "shows an IPv6 address" in kept.annotation(ANNOTATION_STALE)


@pytest.mark.req("L4-5")
@pytest.mark.parametrize("kept_node", ["n1", "d8"], ids=["it-was-deleted", "it-lost-the-address"])
def test_nodes_that_show_the_other_family_alone_have_lost_this_one(kept_node):
    """The node list is complete: that none has an IPv6 address now is knowledge, and no missing information."""
    (before,) = build_nodes([NodeEntry("d8", "fd00::8", True)], (), place=SIX, needed=False).slices
    now = entries_from_nodes([dual(kept_node, "10.0.0.1"), dual("n2", "10.0.0.2")], prefer="InternalIP", family=IPV6)
    export = build_nodes(now, [stored_slice(before)], place=SIX, needed=False)
    assert export.stale == ""
    (after,) = export.slices
    assert after.endpoints is not None
    (gone,) = after.endpoints
    assert (gone.addresses, gone.conditions) == (
        ["fd00::8"],
        make_conditions(ready=False, serving=False, terminating=True),
    )
    assert build_nodes(now, [stored_slice(after)], place=SIX, needed=False) == export
    back = entries_from_nodes([dual("n1", "10.0.0.1", "fd00::1")], prefer="InternalIP", family=IPV6)
    assert ready_addresses(build_nodes(back, [stored_slice(after)], place=SIX, needed=False).slices) == ["fd00::1"]


@pytest.mark.req("L4-5")
def test_a_node_that_lost_a_family_is_not_listed_with_others():
    both = [dual("a", "10.0.0.1", "fd00::1"), dual("b", "10.0.0.2", "fd00::2")]
    (before,) = build_nodes(
        entries_from_nodes(both, prefer="InternalIP", family=IPV6), (), place=SIX, needed=False
    ).slices
    lost = entries_from_nodes([both[0], dual("b", "10.0.0.2")], prefer="InternalIP", family=IPV6)
    (after,) = build_nodes(lost, [stored_slice(before)], place=SIX, needed=False).slices
    assert ready_addresses([after]) == ["fd00::1"]
    # One that shows no address at all is not known to have lost it.
    silent = entries_from_nodes([both[0], dual("b")], prefer="InternalIP", family=IPV6)
    (kept,) = build_nodes(silent, [stored_slice(before)], place=SIX, needed=False).slices
    assert ready_addresses([kept]) == ["fd00::1", "fd00::2"]


@pytest.mark.req("X-2")
def test_nothing_stays_in_use_where_nothing_was():
    export = build_nodes([], [], place=PLACE)
    assert "there is no backend yet" in export.stale
    assert "stay in use" not in export.stale
