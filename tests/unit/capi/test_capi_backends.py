"""The BackendGroup of a load balancer's members."""

from __future__ import annotations

import pytest
from capi_builders import group, lb

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.loadbalancer import LoadBalancerListener
from fairlead.capi.plan import backend_of, group_body, is_same, members_in, presence_in
from fairlead.capi.view import GroupPlan
from fairlead.testing.builders import decoded

PLAN = GroupPlan({"10.0.0.1:6443": "m-1", "10.0.0.2:6443": "m-2"}, frozenset({"10.0.0.1:6443"}), frozenset())
LISTENER = LoadBalancerListener(6443)


def test_a_group_that_was_written_asks_for_its_plan():
    body = group_body(lb(), "api", LISTENER, PLAN)
    written = decoded(body, BackendGroup)
    assert is_same(written, PLAN)
    assert members_in(written) == dict(PLAN.members)
    assert not is_same(None, PLAN)
    assert not is_same(written, GroupPlan(PLAN.members, PLAN.static, frozenset({"10.0.0.1:6443"})))


@pytest.mark.req("C-7")
def test_a_group_belongs_to_its_load_balancer():
    body = group_body(lb(), "api", LISTENER, PLAN)
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("LoadBalancer", "api", "uid-api")
    assert body["spec"]["loadBalancers"] == ["api"]
    assert "listener" not in body["spec"]


def test_one_of_several_listeners_is_named():
    several = lb(listeners=[{"port": 80, "name": "http"}, {"port": 443, "name": "https"}])
    body = group_body(several, "api-tcp-80", LoadBalancerListener(80, "http"), PLAN)
    assert body["spec"]["listener"] == "http"


@pytest.mark.req("C-69")
def test_a_backend_is_address_and_port_of_the_machine():
    assert backend_of("10.0.0.1", LISTENER) == "10.0.0.1:6443"
    assert backend_of("2001:db8::1", LoadBalancerListener(443, target_port=6443)) == "[2001:db8::1]:6443"


def test_a_backend_that_nothing_is_known_of_is_its_own_member():
    by_hand = decoded(
        {"metadata": {"name": "api"}, "spec": {"loadBalancers": ["api"], "static": ["10.9.9.9:1"]}}, BackendGroup
    )
    assert members_in(by_hand) == {"10.9.9.9:1": "10.9.9.9:1"}
    broken = decoded(
        {
            "metadata": {"name": "api", "annotations": {"fairlead.dev/backends-of-members": "["}},
            "spec": {"loadBalancers": ["api"], "static": ["10.9.9.9:1"]},
        },
        BackendGroup,
    )
    assert members_in(broken) == {"10.9.9.9:1": "10.9.9.9:1"}


def test_presence_is_read_from_the_group():
    assert presence_in(None, "10.0.0.1:6443") == "leaving"
    assert presence_in(group({"10.0.0.1:6443": "m-1"}), "10.0.0.1:6443") == "active"
    assert presence_in(group({"10.0.0.1:6443": "m-1"}), "10.0.0.2:6443") == "absent"
