"""Who is a member, and at which address."""

from __future__ import annotations

import pytest
from capi_builders import lb, machine

from fairlead.api.clusterapi import MachineAddress
from fairlead.capi.view import address_of, all_addresses, select, selector_of, selector_text, stays_in_cluster


@pytest.mark.req("C-16", "C-17", "T-C-01")
def test_the_default_selector_is_the_cluster_and_the_name_of_the_load_balancer():
    selection = select(lb(), [machine("m-1"), machine("m-2", behind="other"), machine("m-3", cluster="red")])
    assert selection.text == "cluster.x-k8s.io/cluster-name=blue,loadbalancer.cluster.x-k8s.io/name=api"
    assert [each.metadata.name for each in selection.members] == ["m-1"]
    assert selection.foreign == ()


@pytest.mark.req("C-16")
def test_an_explicit_selector_is_kept():
    selector = {"matchLabels": {"role": "ingress"}, "matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    mine = {"role": "ingress", "zone": "a", "cluster.x-k8s.io/cluster-name": "blue"}
    selection = select(lb(selector=selector), [machine("w-1", labels=mine), machine("m-1")])
    assert [each.metadata.name for each in selection.members] == ["w-1"]
    assert selection.text == "role=ingress,zone"


@pytest.mark.req("C-8")
def test_an_object_of_another_cluster_is_never_a_member():
    selector = {"matchLabels": {"role": "ingress"}}
    blue = machine("w-1", labels={"role": "ingress", "cluster.x-k8s.io/cluster-name": "blue"})
    red = machine("w-2", labels={"role": "ingress", "cluster.x-k8s.io/cluster-name": "red"}, cluster="red")
    selection = select(lb(selector=selector), [red, blue])
    assert [each.metadata.name for each in selection.members] == ["w-1"]
    assert selection.foreign == ("w-2",)


def test_a_selector_that_cannot_be_read_selects_nothing_and_says_why():
    selector = {"matchExpressions": [{"key": "zone", "operator": "Near"}]}
    selection = select(lb(selector=selector), [machine("m-1")])
    assert selection.members == ()
    assert selection.problem.startswith("spec.selector: operator 'Near' of zone")


def test_terms_are_shown_as_kubectl_takes_them():
    terms = [
        {"key": "a", "operator": "In", "values": ["1", "2"]},
        {"key": "b", "operator": "DoesNotExist"},
        {"key": "c", "operator": "NotIn", "values": ["3"]},
    ]
    assert selector_text(selector_of(lb(selector={"matchExpressions": terms}))) == "a in (1,2),!b,c notin (3)"


def test_only_a_selector_with_the_own_cluster_stays_in_it():
    assert stays_in_cluster(lb())
    assert not stays_in_cluster(lb(selector={"matchLabels": {"role": "x"}}))
    assert not stays_in_cluster(lb(selector={"matchLabels": {"cluster.x-k8s.io/cluster-name": "red"}}))


@pytest.mark.req("C-69")
@pytest.mark.parametrize(
    ("addresses", "like", "chosen"),
    [
        ((), "", ""),
        ((("Hostname", "m-1"),), "", ""),
        ((("ExternalIP", "198.51.100.1"), ("InternalIP", "10.0.0.1")), "", "10.0.0.1"),
        ((("ExternalIP", "198.51.100.1"), ("InternalDNS", "m-1.local")), "", "198.51.100.1"),
        ((("InternalIP", "2001:db8::1"), ("InternalIP", "10.0.0.1")), "192.0.2.1", "10.0.0.1"),
        ((("InternalIP", "2001:db8::1"), ("InternalIP", "10.0.0.1")), "2001:db8::9", "2001:db8::1"),
        ((("InternalIP", "2001:db8::1"),), "192.0.2.1", "2001:db8::1"),
        ((("InternalIP", "10.0.0.2"), ("InternalIP", "10.0.0.1")), "api.example", "10.0.0.2"),
    ],
)
def test_the_address_of_a_member(addresses, like, chosen):
    given = [MachineAddress(*each) for each in addresses]
    assert address_of(given, like=like) == chosen


def test_all_addresses_are_shown_once():
    given = [
        MachineAddress("InternalIP", "10.0.0.1"),
        MachineAddress("ExternalIP", "10.0.0.1"),
        MachineAddress("Hostname", "m"),
    ]
    assert all_addresses(given) == ["10.0.0.1"]
    assert all_addresses(None) == []
