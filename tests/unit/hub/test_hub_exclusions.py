"""Which backends of a group are not on the load balancer, and which field or state excludes each of them."""

from __future__ import annotations

import msgspec
import pytest
from hub_parts import intent_context

from fairlead.api.names import LABEL_EXCLUDE_NODE
from fairlead.hub.intents.backend_groups import BackendSources, excluded_backends
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.translate.loadbalancer import decide_loadbalancer
from fairlead.translate.view import GroupView
from tests.unit.translate.translate_builders import KEY, SERVICE, group, lb, node, pod, view

PORTS = [{"port": 8080}]
REFUSED = Condition(ConditionType.ACCEPTED, False, ConditionReason.REFUSED_BY_PROVIDER, "quota exceeded")
NODE_PORT = {"name": "web", "port": {"port": 80}}


def by_name(*names, **spec):
    return group(pods={"ports": PORTS, "byName": list(names)}, **spec)


def by_label(*excepted, **selector):
    return group(pods={"ports": PORTS, "byLabel": {"selector": selector, "except": list(excepted)}})


@pytest.fixture
async def sources():
    context = intent_context()
    return BackendSources(context.cluster, changed=lambda _namespace: None)


def excluded(sources, *groups, pods=(), nodes=()):
    """Return (what, why) of each exclusion, once ``pods`` and ``nodes`` have been read."""
    for each in pods:
        sources.pods._store.put(each)
    for each in nodes:
        sources.nodes._store.put(each)
    viewed = view(lb(listeners=[{"port": 80, "name": "http"}]), groups=groups)
    desired = decide_loadbalancer(viewed).desired
    assert desired is not None
    exclusions = excluded_backends(viewed, desired, sources)
    assert all(exclusion.owner == f"BackendGroup/{groups[0].group.key}" for exclusion in exclusions)
    return [(exclusion.what, exclusion.why) for exclusion in exclusions]


def test_a_group_out_of_scope_names_the_field_that_would_let_it_in(sources):
    ((what, why),) = excluded(sources, GroupView(group(), out_of_scope=True))
    assert what == "everything"
    assert why == f"namespace shop is not in spec.scope of LoadBalancer {KEY.namespace}/{KEY.name}; add it there"


def test_a_refused_group_is_excluded_as_a_whole_unless_it_was_accepted_before(sources):
    refused = GroupView(group(), verdict=REFUSED)
    assert excluded(sources, refused) == [("everything", "quota exceeded")]
    assert excluded(sources, msgspec.structs.replace(refused, accepted={})) == []
    invalid = GroupView(group(parameters={"weight": "heavy"}))
    ((what, why),) = excluded(sources, invalid)
    assert what == "everything"
    assert why.startswith("spec.parameters.weight: ")


def test_a_group_for_a_listener_that_is_not_there(sources):
    static = ["10.0.0.1:80"]
    assert excluded(sources, GroupView(group(listener="https", static=static))) == [
        ("everything", "spec.listener: the load balancer has no listener 'https'")
    ]
    assert excluded(sources, GroupView(group(listener="http", static=static))) == []


def test_static_backends_that_may_not_be_backends(sources):
    every = GroupView(group(static=["10.0.0.1:80", "127.0.0.1:80", "[2001:db8::1]:80"]))
    ((what, why),) = excluded(sources, every)
    assert what == "127.0.0.1:80"
    assert why.startswith("spec.static: ")


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (pod("web-1", "10.0.0.1", deleting=True), "the pod is being deleted"),
        (pod("web-1", "", ready=False, phase="Pending"), "the pod has no address yet (phase Pending)"),
        (pod("web-1", "", ready=False, phase=""), "the pod has no address yet (phase unknown)"),
        (pod("web-1", "10.0.0.1", ready=False), "the pod is not ready"),
        (pod("web-1", "127.0.0.1"), "127.0.0.1 may not be a backend"),
    ],
)
def test_why_a_pod_is_not_on_the_load_balancer(sources, state, why):
    ((what, reason),) = excluded(sources, GroupView(by_name("web-1"), pods=(state,)))
    assert what == "Pod/shop/web-1"
    assert why in reason


def test_a_pod_that_is_on_the_load_balancer_is_not_excluded(sources):
    assert excluded(sources, GroupView(by_name("web-1"), pods=(pod("web-1", "10.0.0.1"),))) == []


def test_a_policy_that_keeps_pods_says_that_it_registers_nothing_new(sources):
    waiting = pod("web-1", "10.0.0.1", ready=False, phase="Running")
    kept = GroupView(by_name("web-1", deregisterPolicy="IfNotRunning"), pods=(waiting,))
    ((_, why),) = excluded(sources, kept)
    assert why.startswith("the pod is not ready; deregisterPolicy IfNotRunning ")


def test_names_without_a_pod_are_listed_in_order(sources):
    named = GroupView(by_name("web-3", "web-1", "web-2"), pods=(pod("web-1", "10.0.0.1"),))
    assert excluded(sources, named) == [
        ("Pod/shop/web-2", "spec.pods.byName: there is no such pod"),
        ("Pod/shop/web-3", "spec.pods.byName: there is no such pod"),
    ]


def test_excepted_pods_are_listed_when_the_selector_would_choose_them(sources):
    pods = [pod("web-1", "10.0.0.1", app="web"), pod("web-2", "10.0.0.2", app="web"), pod("db-1", "10.0.0.3", app="db")]
    chosen = GroupView(by_label("web-2", "db-1", app="web"), pods=(pods[0],))
    assert excluded(sources, chosen, pods=pods) == [("Pod/shop/web-2", "named in spec.pods.byLabel.except")]


def test_a_selector_that_chooses_no_pod(sources):
    assert excluded(sources, GroupView(by_label(tier="front", app="web"))) == [
        ("pods", "spec.pods.byLabel: no pod in shop has app=web,tier=front")
    ]


def test_a_service_that_is_missing_or_has_no_such_node_port(sources):
    missing = GroupView(group(service=NODE_PORT))
    assert excluded(sources, missing) == [("Service/shop/web", "spec.service.name: there is no such Service")]
    wrong = GroupView(group(service={"name": "web", "port": {"port": 443}}), service=SERVICE)
    assert excluded(sources, wrong) == [
        ("Service/shop/web", "spec.service.port: the Service has no port TCP/443 with a node port")
    ]
    ports = [msgspec.structs.replace(port, node_port=0) for port in SERVICE.spec.ports]
    closed = msgspec.structs.replace(SERVICE, spec=msgspec.structs.replace(SERVICE.spec, ports=ports))
    ((_, why),) = excluded(sources, GroupView(group(service=NODE_PORT), service=closed))
    assert why == "spec.service.port: the Service has no port TCP/80 with a node port"


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (node("n1", "10.1.0.1", zone="b"), "spec.service.nodeSelector does not select this node"),
        (
            node("n1", "10.1.0.1", ready=True, zone="a", **{LABEL_EXCLUDE_NODE: "true"}),
            f"the node has the label {LABEL_EXCLUDE_NODE}",
        ),
        (node("n1", "10.1.0.1", zone="a", ready=False), "the node is not Ready"),
        (node("n1", "10.1.0.1", zone="a"), "the node has no address that may be a backend"),
    ],
)
def test_why_a_node_is_not_on_the_load_balancer(sources, state, why):
    chosen = GroupView(group(service={**NODE_PORT, "nodeSelector": {"zone": "a"}}), service=SERVICE)
    assert excluded(sources, chosen, nodes=[state]) == [("Node/n1", why)]


def test_a_node_that_is_on_the_load_balancer_is_not_excluded(sources):
    nodes = [node("n1", "10.1.0.1"), node("n2", "10.1.0.2", ready=False)]
    chosen = GroupView(group(service=NODE_PORT), service=SERVICE, nodes=tuple(nodes))
    assert excluded(sources, chosen, nodes=nodes) == [("Node/n2", "the node is not Ready")]


def test_groups_are_in_the_order_of_their_names(sources):
    groups = [GroupView(group(name), out_of_scope=True) for name in ("b", "a")]
    viewed = view(groups=groups)
    desired = decide_loadbalancer(viewed).desired
    assert desired is not None
    owners = [exclusion.owner for exclusion in excluded_backends(viewed, desired, sources)]
    assert owners == [f"BackendGroup/{each.group.key}" for each in reversed(groups)]


@pytest.mark.req("EDGE-12")
def test_a_node_port_of_the_other_protocol_does_not_count(sources):
    ports = [msgspec.structs.replace(port, protocol="UDP") for port in SERVICE.spec.ports]
    udp = msgspec.structs.replace(SERVICE, spec=msgspec.structs.replace(SERVICE.spec, ports=ports))
    ((_, why),) = excluded(sources, GroupView(group(service=NODE_PORT), service=udp))
    assert why == "spec.service.port: the Service has no port TCP/80 with a node port"
