"""The conditions of a load balancer of a Cluster."""

from __future__ import annotations

import pytest
from capi_builders import cluster, group, lb, machine, view

from fairlead.capi.plan import active, build_conditions, plan_load_balancer
from fairlead.capi.view import Probe

GOOD = {
    "address": "192.0.2.1",
    "conditions": [{"type": "Programmed", "status": "True"}, {"type": "Serving", "status": "True"}],
}
ONE = {"10.0.0.1:6443": "m-1"}


def conditions(given):
    plan = plan_load_balancer(given)
    return {each.type.value: (each.status, each.reason.value, each.message) for each in build_conditions(given, plan)}


def served(**spec):
    return lb(status=GOOD, endpoint={"host": "192.0.2.1", "port": 6443}, **spec)


@pytest.mark.req("C-19", "C-20", "C-21", "C-22")
def test_all_is_well():
    given = view(
        machine("m-1", "10.0.0.1", marked=["api"]),
        groups=[group(ONE)],
        load_balancer=served(),
        cluster=cluster(endpoint="192.0.2.1"),
        probe=Probe(reached=True),
    )
    assert {kind: status for kind, (status, _, _) in conditions(given).items()} == dict.fromkeys(
        ("Exists", "MatchesConfig", "EndpointPublished", "IsReachable", "MembersResolved", "Healthy"), True
    )


@pytest.mark.req("C-32")
def test_an_endpoint_without_members_is_ready_for_the_first_machine():
    shown = conditions(view(load_balancer=served(), cluster=cluster(endpoint="192.0.2.1")))
    assert shown["EndpointPublished"][0] is True
    assert shown["Healthy"][:2] == (None, "NoTargets")


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"load_balancer": served(), "cluster": cluster(endpoint="192.0.2.9")}, "EndpointConflict"),
        ({"load_balancer": served(), "claimed_by": "other"}, "EndpointClaimed"),
        ({"load_balancer": lb(status={"address": ""})}, "Pending"),
        ({"load_balancer": served(), "cluster": None}, "NoSuchCluster"),
        ({"load_balancer": served()}, "Pending"),
        (
            {
                "load_balancer": lb(endpoint={"host": "192.0.2.1", "port": 6443}),
                "cluster": cluster(endpoint="192.0.2.1"),
            },
            "Pending",
        ),
    ],
)
@pytest.mark.req("C-22", "C-25", "C-67")
def test_an_endpoint_that_is_not_published(others, reason):
    assert conditions(view(**others))["EndpointPublished"][:2] == (False, reason)


@pytest.mark.req("C-66")
@pytest.mark.parametrize(
    ("probe", "status", "reason"),
    [
        (None, None, "Pending"),
        (Probe(reached=False, message="no answer"), False, "NotReachable"),
        (Probe(reached=False, resolved=False, message="no name"), False, "NameNotResolved"),
    ],
)
def test_reachability_is_what_was_probed(probe, status, reason):
    assert conditions(view(load_balancer=served(), probe=probe))["IsReachable"][:2] == (status, reason)


@pytest.mark.req("C-66")
def test_a_name_the_hub_may_not_write_is_reported_if_unresolved():
    names = {"conditions": [{"type": "HostnamesAccepted", "status": "False", "message": "it has another owner"}]}
    given = lb(status={**GOOD, "names": names})
    unresolved = Probe(reached=False, resolved=False, message="no name")
    shown = conditions(view(load_balancer=given, probe=unresolved))["IsReachable"]
    assert shown == (False, "NameNotResolved", "it has another owner")
    unreached = Probe(reached=False, message="no answer")
    assert conditions(view(load_balancer=given, probe=unreached))["IsReachable"][2] == "no answer"


@pytest.mark.req("C-21", "T-C-17")
def test_what_others_changed_is_shown():
    drifted = {**GOOD, "conditions": [{"type": "Drifted", "status": "True", "message": "a backend is missing"}]}
    shown = conditions(view(load_balancer=lb(status=drifted)))
    assert shown["MatchesConfig"] == (False, "Drifted", "a backend is missing")


@pytest.mark.req("C-8")
def test_a_selector_that_reaches_another_cluster_is_named():
    red = machine("w-2", labels={"role": "x", "cluster.x-k8s.io/cluster-name": "red"}, cluster="red")
    shown = conditions(view(red, load_balancer=served(selector={"matchLabels": {"role": "x"}})))
    assert shown["MembersResolved"][:2] == (False, "OtherClusters")
    assert "w-2" in shown["MembersResolved"][2]


@pytest.mark.req("C-60", "T-C-19")
def test_members_without_addresses_are_named():
    shown = conditions(view(machine("m-1", marked=["api"]), groups=[group(ONE)], load_balancer=served()))
    assert shown["MembersResolved"][:2] == (False, "MembersUnknown")


@pytest.mark.req("C-18", "C-62")
def test_a_member_that_is_seen_unhealthy_is_not_active():
    sick = {**GOOD, "unhealthyTargets": ["10.0.0.1:6443 (TCP/6443)"]}
    given = view(machine("m-1", "10.0.0.1", marked=["api"]), groups=[group(ONE)], load_balancer=lb(status=sick))
    plan = plan_load_balancer(given)
    assert active(given, plan) == 0
    assert conditions(given)["Healthy"] == (False, "SomeMembersDown", "0 of 1 members take traffic")


@pytest.mark.req("C-62")
@pytest.mark.parametrize(
    ("status", "reason", "count"),
    [
        ("True", "Serving", 1),
        ("Unknown", "NotChecked", 1),
        ("Unknown", "WaitingForFirstCheck", 0),
        ("False", "NoHealthyTargets", 0),
        ("False", "NoTargets", 0),
    ],
)
def test_a_member_that_no_proxy_has_seen_healthy_takes_no_traffic(status, reason, count):
    shown = [{"type": "Programmed", "status": "True"}, {"type": "Serving", "status": status, "reason": reason}]
    given = view(
        machine("m-1", "10.0.0.1", marked=["api"]),
        groups=[group(ONE)],
        load_balancer=lb(status={**GOOD, "conditions": shown}, endpoint={"host": "192.0.2.1", "port": 6443}),
        cluster=cluster(endpoint="192.0.2.1"),
    )
    assert active(given, plan_load_balancer(given)) == count
    assert conditions(given)["Healthy"][0] is bool(count)


@pytest.mark.req("C-18", "C-37", "T-C-09")
@pytest.mark.parametrize(
    ("listed", "disabled", "state", "targets", "count"),
    [
        ({}, False, "adding", 1, 0),
        ({"10.0.0.1:6443": "Registered"}, False, "active", 1, 1),
        ({"10.0.0.1:6443": "Registered"}, True, "disabling", 1, 0),
    ],
)
def test_targets_are_those_that_are_chosen_and_active_ones_those_that_are_in_place(
    listed, disabled, state, targets, count
):
    annotations = {"loadbalancer.cluster.x-k8s.io/disabled": ""} if disabled else None
    member = machine("m-1", "10.0.0.1", marked=["api"], annotations=annotations)
    given = view(member, groups=[group(ONE, listed=listed)], load_balancer=served())
    plan = plan_load_balancer(given)
    assert [each.state for each in plan.members] == [state]
    assert (len(plan.selection.members), active(given, plan)) == (targets, count)
