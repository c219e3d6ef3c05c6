"""Markers, hooks and finalizers, for one load balancer and for several."""

from __future__ import annotations

import pytest

from fairlead.capi.view import (
    OWNER,
    Marks,
    finalizer_of,
    held,
    hook_keys,
    is_disabled,
    is_held,
    is_marked,
    patch_of,
    released,
    released_of_all,
)

PRE_DRAIN = "pre-drain.delete.hook.machine.cluster.x-k8s.io/"
PRE_TERMINATE = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/"
THEIRS = Marks({PRE_TERMINATE + "kcp-cleanup": "", "note": "x"}, ("machine.cluster.x-k8s.io",))


def both(marks: Marks = THEIRS, *, api: str = "active", inner: str = "adding") -> Marks:
    return held(held(marks, "api", api, hooks=True, deleting=False), "inner", inner, hooks=True, deleting=False)


@pytest.mark.req("C-36", "C-43", "C-47")
def test_a_member_carries_hooks_finalizer_and_markers():
    marks = held(THEIRS, "api", "active", hooks=True, deleting=False)
    assert marks.annotations == {
        **THEIRS.annotations,
        PRE_DRAIN + "fairlead-api": OWNER,
        PRE_TERMINATE + "fairlead-api": OWNER,
        "loadbalancer.cluster.x-k8s.io/name": "api",
        "loadbalancer.cluster.x-k8s.io/status": "active",
        "loadbalancer.cluster.x-k8s.io/status.api": "active",
    }
    assert marks.finalizers == ("machine.cluster.x-k8s.io", "loadbalancer.fairlead.dev/api")
    assert is_held(marks, "api", hooks=True)
    assert held(marks, "api", "active", hooks=True, deleting=False) == marks


def test_only_machines_have_hooks():
    marks = held(Marks({}, ()), "api", "active", hooks=False, deleting=False)
    assert is_held(marks, "api", hooks=False)
    assert not is_held(marks, "api", hooks=True)


@pytest.mark.req("C-15", "T-C-24")
def test_two_load_balancers_are_both_visible_and_leave_one_by_one():
    marks = both()
    assert marks.annotations["loadbalancer.cluster.x-k8s.io/name"] == "api,inner"
    assert marks.annotations["loadbalancer.cluster.x-k8s.io/status"] == "adding"
    assert marks.annotations["loadbalancer.cluster.x-k8s.io/status.api"] == "active"
    marks = released(marks, "api")
    assert is_held(marks, "inner", hooks=True)
    assert not is_marked(marks, "api")
    assert released(marks, "inner") == THEIRS


@pytest.mark.req("C-50")
def test_everything_of_ours_goes_and_nothing_of_others():
    assert released_of_all(both()) == THEIRS


@pytest.mark.req("C-37")
def test_the_last_status_of_a_member_that_goes_is_removed():
    marks = released(held(THEIRS, "api", "removing", hooks=True, deleting=True), "api", status="removed")
    assert marks.annotations["loadbalancer.cluster.x-k8s.io/status"] == "removed"
    assert not is_marked(marks, "api")


def test_an_object_that_is_being_deleted_gets_no_finalizer_and_no_hook():
    marks = held(THEIRS, "api", "removing", hooks=True, deleting=True)
    assert marks.finalizers == THEIRS.finalizers
    assert not any(key.endswith("fairlead-api") for key in marks.annotations)


@pytest.mark.req("C-39")
@pytest.mark.parametrize(
    ("annotations", "disabled"),
    [
        (None, False),
        ({"loadbalancer.cluster.x-k8s.io/disabled": ""}, True),
        ({"loadbalancer.cluster.x-k8s.io/disabled": "maintenance"}, True),
        ({"loadbalancer.cluster.x-k8s.io/disabled": "false"}, False),
        ({"loadbalancer.cluster.x-k8s.io/disabled.api": ""}, True),
        ({"loadbalancer.cluster.x-k8s.io/disabled.inner": ""}, False),
        ({"loadbalancer.cluster.x-k8s.io/status": "disabled"}, False),
    ],
)
def test_the_request_is_another_key_than_the_status(annotations, disabled):
    assert is_disabled(annotations, "api") is disabled


def test_names_that_are_too_long_for_a_key_stay_apart():
    first, second = "a" * 80 + "1", "a" * 80 + "2"
    keys = {*hook_keys(first), *hook_keys(second), finalizer_of(first), finalizer_of(second)}
    assert len(keys) == 6
    assert all(len(key.rpartition("/")[2]) <= 63 for key in keys)


def test_a_patch_has_what_differs_and_nothing_else():
    before, after = THEIRS, held(THEIRS, "api", "active", hooks=False, deleting=False)
    patch = patch_of(before, after)
    assert set(patch) == {"annotations", "finalizers"}
    assert isinstance(patch["annotations"], dict)
    assert "note" not in patch["annotations"]
    assert patch_of(after, after) == {}
    back = patch_of(after, before)
    assert isinstance(back["annotations"], dict)
    assert set(back["annotations"].values()) == {None}
    assert back["finalizers"] == list(before.finalizers)
