"""The endpoints and members of what another provider serves."""

from __future__ import annotations

from typing import Any

import pytest
from capi_builders import cluster, lb, machine, view

from fairlead.api.clusterapi import InfraLoadBalancer
from fairlead.capi.plan import active, build_conditions, plan_load_balancer
from fairlead.capi.view import State
from fairlead.testing.builders import decoded

REF = {"apiGroup": "far.example", "kind": "FarLoadBalancer", "name": "far"}
USER = {"host": "blue.example", "port": 6443}
OWN = {"host": "203.0.113.7", "port": 6443}


def far(endpoint: Any = None, **status: Any) -> InfraLoadBalancer:
    spec = {"endpoint": endpoint} if endpoint else {}
    body = {"metadata": {"name": "far", "namespace": "fleet"}, "spec": spec, "status": status}
    return decoded(body, InfraLoadBalancer)


def served(**spec: Any) -> Any:
    return lb(className="", infrastructureRef=REF, status={"address": ""}, **spec)


@pytest.mark.req("C-24", "C-25", "C-27", "C-28")
@pytest.mark.parametrize(
    ("on_cluster", "above", "below", "state", "up", "down"),
    [
        ("", None, None, State.WAITING, None, None),
        ("", None, OWN, State.COPY_DOWN, "203.0.113.7:6443", "203.0.113.7:6443"),
        ("", USER, None, State.PUBLISH, None, "blue.example:6443"),
        ("blue.example", None, None, State.COPY_DOWN, "blue.example:6443", "blue.example:6443"),
        ("blue.example", USER, USER, State.SETTLED, None, "blue.example:6443"),
        ("", USER, OWN, State.CONFLICT, None, None),
        ("blue.example", None, OWN, State.CONFLICT, None, None),
    ],
)
def test_each_row(on_cluster, above, below, state, up, down):
    load_balancer = served(endpoint=above) if above else served()
    given = view(load_balancer=load_balancer, cluster=cluster(endpoint=on_cluster), foreign=far(below))
    plan = plan_load_balancer(given)
    assert plan.verdict.state is state
    written = plan.verdict.to_load_balancer
    assert (str(written) if written else None) == up
    assert (str(plan.to_provider) if plan.to_provider else None) == down
    assert (plan.groups, plan.holds, plan.releases) == ({}, (), ())


def test_members_are_as_their_provider_has_marked_them():
    marks = {"loadbalancer.cluster.x-k8s.io/name": "far", "loadbalancer.cluster.x-k8s.io/status": "draining"}
    given = view(machine("m-1", "10.0.0.1", annotations=marks), machine("m-2"), load_balancer=served(), foreign=far())
    states = {each.name: (each.state, each.addresses) for each in plan_load_balancer(given).members}
    assert states == {"m-1": ("draining", ["10.0.0.1"]), "m-2": ("", None)}


@pytest.mark.req("C-19", "C-20", "C-21")
@pytest.mark.parametrize("prefix", ["", "LB"])
def test_conditions_are_those_of_the_provider_by_either_name(prefix):
    said = [
        {"type": f"{prefix}Exists", "status": "True"},
        {"type": f"{prefix}MatchesConfig", "status": "False", "message": "a listener was removed"},
    ]
    given = view(load_balancer=served(), foreign=far(conditions=said, activeTargets=3))
    plan = plan_load_balancer(given)
    shown = {each.type.value: (each.status, each.message) for each in build_conditions(given, plan)}
    assert shown["Exists"] == (True, "")
    assert shown["MatchesConfig"] == (False, "a listener was removed")
    assert active(given, plan) == 3


def test_missing_objects_are_named():
    given = view(load_balancer=served())
    shown = {
        each.type.value: (each.status, each.message) for each in build_conditions(given, plan_load_balancer(given))
    }
    assert shown["Exists"][0] is False
    assert "spec.infrastructureRef: 'far' not found" in shown["Exists"][1]
    held = plan_load_balancer(view(load_balancer=served(), foreign_problem="not served"))
    assert (held.held_up, held.patch, held.to_provider) == ("not served", {}, None)
