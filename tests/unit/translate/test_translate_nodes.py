"""At which addresses the nodes of a member are reached: of the families of the Service, one for each node."""

from __future__ import annotations

import pytest

from fairlead.model.condition import ConditionReason
from fairlead.model.keys import IPV4, IPV6
from fairlead.testing.builders import endpoint, endpoint_slice, ready_nodes
from fairlead.translate.endpoints import (
    Admission,
    EndpointState,
    TargetPolicy,
    addresses_in,
    admit,
    local_addresses,
    node_families,
    nodes_from_slices,
    targets_from_nodes,
    without_family,
)

pytestmark = [pytest.mark.req("K-4"), pytest.mark.req("K-30")]

#: A mixed cluster: "a" has both families, "b" IPv4, "c" IPv6.
MIXED = ready_nodes([("a", "10.0.0.1"), ("a", "fd00::1"), ("b", "10.0.0.2"), ("c", "fd00::3")])


@pytest.mark.parametrize(
    ("families", "addresses", "without"),
    [
        ((IPV4,), ["10.0.0.1", "10.0.0.2"], "nodes without an IPv4 address take no traffic (c)"),
        ((IPV6,), ["fd00::1", "fd00::3"], "nodes without an IPv6 address take no traffic (b)"),
        ((IPV4, IPV6), ["10.0.0.1", "10.0.0.2", "fd00::3"], ""),
        ((IPV6, IPV4), ["10.0.0.2", "fd00::1", "fd00::3"], ""),
        ((), [], ""),
    ],
)
def test_a_node_is_reached_once_in_the_first_family_that_it_has(families, addresses, without):
    assert sorted(addresses_in(MIXED, families)) == addresses
    problem = without_family(MIXED, families)
    assert (problem is None) == (without == "")
    if problem is not None:
        assert problem.message.startswith(without)
        assert problem.reason is ConditionReason.UNSUPPORTED_ADDRESS_FAMILY


def test_a_member_without_the_family_reads_what_to_change():
    problem = without_family(ready_nodes([(f"n{number}", f"10.0.0.{number}") for number in range(1, 6)]), (IPV6,))
    assert problem is not None
    assert problem.message.startswith("no node of the member has an IPv6 address (n1, n2, n3 and more have none)")
    assert "spec.ipFamilies" in problem.message
    assert without_family(ready_nodes([]), (IPV6,)) is None


@pytest.mark.parametrize(
    ("families", "ipv6", "expected"),
    [((), True, (IPV4,)), ((IPV6, IPV4), True, (IPV6, IPV4)), ((IPV6, IPV4), False, (IPV4,)), ((IPV6,), False, ())],
)
def test_a_provider_without_ipv6_reaches_nodes_over_ipv4(families, ipv6, expected):
    assert node_families(families, ipv6=ipv6) == expected


@pytest.mark.req("K-33")
def test_local_nodes_have_an_endpoint_of_the_family_and_are_ready_themselves():
    slices = [
        endpoint_slice("s", ["10.0.0.1", "10.0.0.2", endpoint("10.0.0.3", ready=False)]),
        endpoint_slice("six", ["fd00::4"], family=IPV6),
    ]
    nodes = ready_nodes(["10.0.0.2", "10.0.0.3", ("both", "10.0.0.4"), ("both", "fd00::4")])
    # The Service has an endpoint of IPv6 alone on the node of both: its IPv4 node port answers nothing there.
    assert local_addresses(slices, nodes, (IPV4, IPV6)) == {
        "fd00::4": EndpointState.READY,
        "10.0.0.2": EndpointState.READY,
        "10.0.0.3": EndpointState.UNREADY,
    }


@pytest.mark.req("L4-1")
def test_a_local_node_is_in_the_state_of_the_best_of_its_endpoints():
    terminating = {"ready": False, "serving": True, "terminating": True}
    slices = [
        endpoint_slice("a", [endpoint("10.0.0.1", ready=False), endpoint("10.0.0.2", **terminating)]),
        endpoint_slice("b", [endpoint("10.0.0.1", **terminating), endpoint("10.0.0.2", ready=True)]),
    ]
    assert local_addresses(slices, ready_nodes(["10.0.0.1", "10.0.0.2"]), (IPV4,)) == {
        "10.0.0.1": EndpointState.SERVING,
        "10.0.0.2": EndpointState.READY,
    }


@pytest.mark.req("K-18")
def test_a_node_that_is_not_ready_takes_no_traffic():
    slices = [
        endpoint_slice("n", ["10.0.0.1", endpoint("10.0.0.2", ready=False)], nodes=True),
        endpoint_slice("n6", [{**endpoint("fd00::1"), "nodeName": "a"}], nodes=True, family=IPV6),
    ]
    nodes = nodes_from_slices(slices)
    assert nodes.ready == {IPV4: {"10.0.0.1": "10.0.0.1"}, IPV6: {"a": "fd00::1"}}


def test_each_family_says_for_itself_that_it_is_out_of_date():
    old = {"fairlead.dev/stale": "no node is Ready"}
    slices = [
        endpoint_slice("n", ["10.0.0.1"], nodes=True),
        endpoint_slice("n6", ["fd00::1"], nodes=True, family=IPV6, annotations=old),
    ]
    assert nodes_from_slices(slices).stale == {IPV6: "no node is Ready"}


@pytest.mark.req("L4-5", "L4-2")
def test_a_node_that_is_reported_as_leaving_is_known_to_go():
    slices = [
        endpoint_slice(
            "n",
            [
                endpoint("10.0.0.1", ready=False, serving=True, terminating=True),
                endpoint("10.0.0.2", ready=False, serving=False, terminating=True),
                endpoint("10.0.0.3", ready=False, serving=False),
            ],
            nodes=True,
        )
    ]
    assert addresses_in(nodes_from_slices(slices), (IPV4,)) == {
        "10.0.0.1": EndpointState.SERVING,
        "10.0.0.2": EndpointState.GONE,
    }


def test_an_address_of_a_node_is_admitted_once_for_all_load_balancers():
    addresses = dict.fromkeys((f"10.9.8.{number}" for number in range(10)), EndpointState.READY)
    before = admit.cache_info().misses
    for node_port in range(30000, 30100):
        admission = Admission(TargetPolicy())
        assert len(targets_from_nodes(addresses, node_port, admission)) == len(addresses)
        assert not admission.refused
    assert admit.cache_info().misses - before == len(addresses)
