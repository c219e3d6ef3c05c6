"""The backends of one BackendGroup: weights, nodes, pods and static addresses."""

from __future__ import annotations

import pytest

from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.testing.builders import HTTP, target
from fairlead.translate.loadbalancer import decide_loadbalancer, weight_of
from fairlead.translate.view import GroupView
from tests.unit.translate.translate_builders import SERVICE, group, lb, node, pod, view


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        ("0", 0), ("1", 1), ("256", 256), ("007", 7),
        ("257", None), ("-1", None), ("1.0", None), ("", None), (" 5", None), ("٣", None), ("9" * 5000, None),
    ],
)  # fmt: skip
def test_weights(text, weight):
    assert weight_of({"weight": text}) == weight
    result = decide_loadbalancer(view(groups=[GroupView(group(parameters={"weight": text}))]))
    assert [item.weight for item in result.desired.targets[HTTP].values()] == ([] if weight is None else [weight])


@pytest.mark.parametrize(
    ("ready", "recorded", "wanted"),
    [("12", "", "12"), ("1", "12", "1"), ("1", "2", "1"), ("", "12", "12"), ("", "1", "1"), ("", "", "")],
)
def test_nodes_that_are_not_ready(ready, recorded, wanted):
    nodes = tuple(node(f"n{number}", f"10.0.0.{number}", ready=number in ready) for number in "12")
    of_nodes = group(service={"name": "web", "port": {"port": 80}})
    recorded_targets = frozenset((HTTP, target(number, 30200).key) for number in recorded)
    result = decide_loadbalancer(
        view(groups=[GroupView(of_nodes, service=SERVICE, nodes=nodes)], recorded=recorded_targets)
    )
    assert set(result.desired.targets[HTTP]) == {target(number, 30200).key for number in wanted}
    stale = [item for item in result.conditions if item.type is ConditionType.STALE]
    assert [item.reason for item in stale] == ([] if ready else [ConditionReason.ALL_NODES_NOT_READY])


@pytest.mark.parametrize(
    "written", ["10.0.0.9", "10.0.0.9:http", "127.0.0.1:80", "10.0.0.9:70000", "10.0.0.9:65536", "10.0.0.9:0"]
)
def test_an_address_that_may_not_be_a_backend_is_named_as_it_was_written(written):
    good, bad = GroupView(group("good")), GroupView(group("bad", static=[written, "10.0.0.2:8080"]))
    result = decide_loadbalancer(view(groups=[good, bad]))
    assert set(result.desired.targets[HTTP]) == {target("1").key, target("2").key}
    (wrong,) = [item for item in result.groups["shop", "bad"] if not item.status]
    assert (wrong.type, wrong.reason) == (ConditionType.RESOLVED_REFS, ConditionReason.INVALID)
    assert wrong.message.startswith(f"spec.static: no backend can be at {written}; ")
    assert all(item.status for item in result.groups["shop", "good"])
    assert any(written in item.message for item in result.conditions if not item.status)


PODS = {"ports": [{"port": 8080}], "byLabel": {"selector": {"app": "web"}}}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize(
    ("policy", "state", "kept", "stays"),
    [
        ("IfNotReady", {}, False, "new"),
        ("IfNotReady", {"ready": False, "deleting": True}, False, "draining"),
        # No other pod is ready, so one that is terminating and still ready serves.
        ("IfNotReady", {"deleting": True}, False, "ready"),
        ("IfNotReady", {"ready": False}, True, ""),
        ("IfNotRunning", {"ready": False}, False, "ready"),
        ("IfNotRunning", {"ready": False, "phase": "Pending"}, True, ""),
        ("IfNotRunning", {"ready": False, "phase": "Pending", "deleting": True}, False, "draining"),
        ("Webhook", {"ready": False}, True, "ready"),
        ("Webhook", {"ready": False}, False, ""),
        ("Webhook", {"ready": False, "deleting": True}, False, "draining"),
    ],
)
def test_pods_by_policy(policy, state, kept, stays, recorded):
    """A policy keeps what is registered; it never registers."""
    the_pod = pod("p", "10.0.0.1", **state)
    group_view = GroupView(
        group(pods=PODS, deregisterPolicy=policy), pods=(the_pod,), kept=frozenset({the_pod.key} if kept else ())
    )
    on_record = frozenset({(HTTP, target("1").key)} if recorded else ())
    result = decide_loadbalancer(view(groups=[group_view], recorded=on_record))
    draining = [item.draining for item in result.desired.targets[HTTP].values()]
    expected = stays == "new" or (recorded and stays != "")
    assert draining == ([stays == "draining"] if expected else [])


def test_a_pod_is_the_source_of_its_target():
    """The source includes the pod's uid, so a successor with the same address is another backend."""
    result = decide_loadbalancer(view(groups=[GroupView(group(pods=PODS), pods=(pod("p", "10.0.0.1"),))]))
    (registered,) = result.desired.targets[HTTP].values()
    assert registered.source == "Pod/shop/p/uid-p"


def test_a_port_of_pods_names_its_listener_before_the_group_does():
    load_balancer = lb(listeners=[{"port": 80, "name": "http"}, {"port": 81, "name": "admin"}])
    pods = {**PODS, "ports": [{"port": 8080}, {"port": 9090, "listener": "admin"}]}
    group_view = GroupView(group(pods=pods, listener="http"), pods=(pod("p", "10.0.0.1"),))
    targets = decide_loadbalancer(view(load_balancer, groups=[group_view])).desired.targets
    assert {str(listener): [key.port for key in by_key] for listener, by_key in targets.items()} == {
        "TCP/80": [8080],
        "TCP/81": [9090],
    }
