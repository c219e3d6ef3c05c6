"""The writes about a load balancer of a Cluster, planned from one view."""

from __future__ import annotations

import pytest
from capi_builders import cluster, group, lb, machine, view

from fairlead.capi.plan import plan_load_balancer

FIRST = {"10.0.0.1:6443": "m-1"}
BOTH = {**FIRST, "10.0.0.2:6443": "m-2"}


def states(plan):
    return {each.name: each.state for each in plan.members}


@pytest.mark.req("C-43")
def test_a_new_member_is_marked_first_and_added_next():
    fresh = plan_load_balancer(view(machine("m-1", "10.0.0.1")))
    assert [each.target.metadata.name for each in fresh.holds] == ["m-1"]
    assert fresh.groups["api"].static == frozenset()
    marked = machine("m-1", "10.0.0.1", marked=["api"])
    plan = plan_load_balancer(view(marked))
    assert plan.groups["api"].static == {"10.0.0.1:6443"}
    assert plan.groups["api"].members == FIRST
    assert states(plan) == {"m-1": "adding"}


def test_a_member_that_is_registered_is_active_and_nothing_is_written():
    plan = plan_load_balancer(view(machine("m-1", "10.0.0.1", marked=["api"]), groups=[group(FIRST)]))
    assert states(plan) == {"m-1": "active"}
    assert (plan.holds, plan.releases) == ((), ())
    assert plan.groups["api"].static == {"10.0.0.1:6443"}


@pytest.mark.req("C-45", "C-46", "C-48", "T-C-13")
def test_a_member_that_is_deleted_drains_goes_and_is_released_last():
    leaving = machine("m-1", "10.0.0.1", marked=["api"], deleting=True)
    plan = plan_load_balancer(view(leaving, groups=[group(FIRST)]))
    assert (plan.groups["api"].draining, plan.releases) == ({"10.0.0.1:6443"}, ())
    waiting = group(FIRST, draining=["10.0.0.1:6443"], in_effect=False)
    plan = plan_load_balancer(view(leaving, groups=[waiting]))
    assert (plan.groups["api"].static, plan.releases) == ({"10.0.0.1:6443"}, ())
    drained = group(FIRST, draining=["10.0.0.1:6443"])
    plan = plan_load_balancer(view(leaving, groups=[drained]))
    assert (plan.groups["api"].static, plan.groups["api"].members, plan.releases) == (frozenset(), FIRST, ())
    on_its_way = group(FIRST, static=[], listed={"10.0.0.1:6443": "Deregistering"})
    assert plan_load_balancer(view(leaving, groups=[on_its_way])).releases == ()
    not_yet = group(FIRST, static=[], in_effect=False)
    assert plan_load_balancer(view(leaving, groups=[not_yet])).releases == ()
    plan = plan_load_balancer(view(leaving, groups=[group(FIRST, static=[])]))
    (release,) = plan.releases
    assert release.after.finalizers == ()
    assert release.after.annotations["loadbalancer.cluster.x-k8s.io/status"] == "removed"
    assert plan.groups["api"].members == {}


@pytest.mark.req("C-51", "C-64")
def test_a_member_whose_address_is_lost_while_it_leaves_waits_for_its_backend():
    leaving = machine("m-1", marked=["api"], deleting=True)
    on_its_way = group(FIRST, static=[], listed={"10.0.0.1:6443": "Deregistering"})
    plan = plan_load_balancer(view(leaving, groups=[on_its_way]))
    assert plan.releases == ()
    assert plan.groups["api"].members == FIRST


def test_without_a_group_nothing_is_known_to_be_deregistered():
    assert plan_load_balancer(view(machine("m-1", "10.0.0.1", marked=["api"], deleting=True))).releases == ()


@pytest.mark.req("C-40", "T-C-11", "T-C-12")
def test_a_disabled_member_goes_out_stays_out_and_comes_back():
    disabled = {"loadbalancer.cluster.x-k8s.io/disabled": ""}
    member = machine("m-1", "10.0.0.1", marked=["api"], annotations=disabled)
    plan = plan_load_balancer(view(member, groups=[group(FIRST)]))
    assert (states(plan), plan.groups["api"].draining) == ({"m-1": "disabling"}, {"10.0.0.1:6443"})
    out = group(FIRST, draining=["10.0.0.1:6443"])
    plan = plan_load_balancer(view(member, groups=[out]))
    assert (states(plan), plan.groups["api"].draining) == ({"m-1": "disabled"}, {"10.0.0.1:6443"})
    back = machine("m-1", "10.0.0.1", marked=["api"])
    plan = plan_load_balancer(view(back, groups=[out]))
    assert (states(plan), plan.groups["api"].draining) == ({"m-1": "adding"}, frozenset())


@pytest.mark.req("C-42", "T-C-10")
def test_a_member_that_is_no_longer_selected_is_removed_completely():
    gone = machine("m-1", "10.0.0.1", behind="other", marked=["api"])
    other = machine("m-2", "10.0.0.2", marked=["api"])
    plan = plan_load_balancer(view(gone, other, groups=[group(BOTH)]))
    assert plan.groups["api"].draining == {"10.0.0.1:6443"}
    left = group({"10.0.0.2:6443": "m-2"})
    (release,) = plan_load_balancer(view(gone, other, groups=[left])).releases
    assert release.after.annotations == {}
    assert release.after.finalizers == ()


@pytest.mark.req("C-42", "T-C-16")
def test_a_backend_that_no_member_has_is_removed():
    member = machine("m-1", "10.0.0.1", marked=["api"])
    plan = plan_load_balancer(view(member, groups=[group({**FIRST, "10.9.9.9:6443": "10.9.9.9:6443"})]))
    assert plan.groups["api"].draining == {"10.9.9.9:6443"}


@pytest.mark.req("C-60", "T-C-19")
def test_members_without_addresses_keep_what_is_registered():
    plan = plan_load_balancer(
        view(machine("m-1", marked=["api"]), machine("m-2", marked=["api"]), groups=[group(BOTH)])
    )
    assert plan.groups["api"].static == set(BOTH)
    assert plan.groups["api"].draining == frozenset()


@pytest.mark.req("C-60")
def test_when_no_object_is_left_at_all_everything_stays():
    plan = plan_load_balancer(view(groups=[group(BOTH)]))
    assert plan.kept == ("m-1", "m-2")
    assert plan.groups["api"].static == set(BOTH)


def test_a_machine_that_vanished_among_others_is_drained_and_removed():
    member = machine("m-1", "10.0.0.1", marked=["api"])
    plan = plan_load_balancer(view(member, groups=[group(BOTH)]))
    assert plan.groups["api"].draining == {"10.0.0.2:6443"}
    plan = plan_load_balancer(view(member, groups=[group(BOTH, draining=["10.0.0.2:6443"])]))
    assert plan.groups["api"].static == {"10.0.0.1:6443"}
    plan = plan_load_balancer(view(member, groups=[group(BOTH, static=["10.0.0.1:6443"])]))
    assert plan.groups["api"].members == FIRST


@pytest.mark.req("C-69")
def test_another_address_is_added_before_the_old_one_goes():
    moved = machine("m-1", "10.0.0.7", marked=["api"])
    plan = plan_load_balancer(view(moved, groups=[group(FIRST)]))
    assert plan.groups["api"].static == {"10.0.0.1:6443", "10.0.0.7:6443"}
    assert plan.groups["api"].draining == {"10.0.0.1:6443"}


@pytest.mark.req("C-33", "C-70", "T-C-07")
@pytest.mark.parametrize("why", ["cluster", "annotation"])
def test_paused_objects_are_unchanged(why):
    member = machine("m-1", "10.0.0.1", marked=["api"], deleting=True)
    others = {"cluster": cluster(paused=True)} if why == "cluster" else {}
    plan = plan_load_balancer(view(member, groups=[group(FIRST)], **others))
    assert bool(plan.held_up) == (why == "cluster")
    if plan.held_up:
        assert (plan.holds, plan.releases, plan.groups, plan.patch) == ((), (), {}, {})


def test_an_incomplete_view_changes_nothing():
    plan = plan_load_balancer(view(groups=[group(BOTH)], incomplete="machines have not been read yet"))
    assert (plan.held_up, plan.groups) == ("machines have not been read yet", {})


@pytest.mark.req("C-65")
def test_the_health_check_is_filled_in_with_the_authority_of_the_cluster():
    plan = plan_load_balancer(view(authority="PEM"))
    assert plan.patch["healthCheck"] == {"path": "/readyz", "caBundle": "PEM"}
    own = lb(healthCheck={"path": "/livez"})
    assert plan_load_balancer(view(load_balancer=own, authority="PEM")).patch["healthCheck"] == {"caBundle": "PEM"}
    off = lb(healthCheck={"disabled": True})
    assert "healthCheck" not in plan_load_balancer(view(load_balancer=off, authority="PEM")).patch
    more = lb(additional=True)
    assert "healthCheck" not in plan_load_balancer(view(load_balancer=more, authority="PEM")).patch


@pytest.mark.req("C-6")
def test_several_listeners_have_a_group_each():
    listeners = [{"port": 80, "targetPort": 30080, "name": "http"}, {"port": 443, "targetPort": 30443, "name": "https"}]
    member = machine("w-1", "10.0.0.1", marked=["api"])
    plan = plan_load_balancer(view(member, load_balancer=lb(listeners=listeners, additional=True)))
    assert plan.groups["api-tcp-80"].static == {"10.0.0.1:30080"}
    assert plan.groups["api-tcp-443"].static == {"10.0.0.1:30443"}


@pytest.mark.req("C-49")
def test_a_machine_that_never_was_a_member_is_not_touched():
    plan = plan_load_balancer(view(machine("m-1", deleting=True), groups=[group({})]))
    assert (plan.holds, plan.releases) == ((), ())
