"""Faults of nodes, Services, Ingresses and Gateways, planted one by one."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec
import pytest
from doctor_facts import obj, only, with_condition, with_more, with_object, without

from fairlead.api.gateway import GATEWAY_CLASSES
from fairlead.api.kubernetes import (
    ENDPOINT_SLICES,
    INGRESS_CLASSES,
    INGRESSES,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
)
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.doctor.checks import examine

pytestmark = pytest.mark.req("OP-5")
OF_WEB = {"origin": {"namespace": "default", "name": "web"}}
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"


def exclude(node: dict[str, Any]) -> None:
    node["metadata"]["labels"][EXCLUDE] = ""


def test_a_label_keeps_a_node_out() -> None:
    finding = only(with_object("member", NODES, exclude), "excluded-nodes")
    assert (finding.severity.value, finding.object) == ("warning", "Node/n1")
    assert finding.fix == f"kubectl label node n1 {EXCLUDE}-"


def test_a_label_keeps_every_node_out() -> None:
    findings = examine(with_object("member", NODES, exclude, every=True))
    assert [(finding.check, finding.severity.value) for finding in findings] == [("excluded-nodes", "error")] * 2
    assert "every node" in findings[0].fault


def test_a_node_is_not_ready() -> None:
    finding = only(with_object("member", NODES, with_condition("Ready", "Unknown", "kubelet stopped")), "nodes-ready")
    assert "kubelet stopped" in finding.fault


def test_the_autoscaler_takes_a_node() -> None:
    def change(node: dict[str, Any]) -> None:
        node["spec"]["taints"] = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]

    assert only(with_object("member", NODES, change), "nodes-leaving").object == "Node/n1"


def test_a_node_without_an_address() -> None:
    def change(node: dict[str, Any]) -> None:
        node["status"]["addresses"] = [{"type": "Hostname", "address": "n1"}]

    assert "address" in only(with_object("member", NODES, change), "nodes-address").fault


def test_a_member_without_nodes_where_targets_are_nodes() -> None:
    facts = without("member", NODES)
    facts.hub.objects[TCP_LOAD_BALANCERS.full_name][0]["spec"] |= {"targets": "Node"} | OF_WEB  # pyright: ignore[reportOptionalMemberAccess]
    assert only(facts, "no-nodes").severity.value == "error"


def test_a_member_without_nodes_where_it_is_not_known_what_targets_are() -> None:
    finding = only(msgspec.structs.replace(without("member", NODES), hub=None), "no-nodes")
    assert finding.severity.value == "warning"
    assert finding.fix.endswith("if the agent runs with --target Pod")


def test_a_member_without_nodes_is_not_a_fault_for_pod_targets() -> None:
    facts = without("member", NODES)
    facts.hub.objects[TCP_LOAD_BALANCERS.full_name][0]["spec"] |= {"targets": "Pod"} | OF_WEB  # pyright: ignore[reportOptionalMemberAccess]
    assert examine(facts) == []
    nothing = without("member", NODES)
    nothing.member.objects[SERVICES.full_name].clear()  # pyright: ignore[reportOptionalMemberAccess]
    assert [each for each in examine(nothing) if each.check == "no-nodes"] == []


def test_no_agent_works() -> None:
    assert "helm install fairlead-agent" in only(without("member", LEASES), "agent-missing").fix


def test_a_service_asks_for_a_class_that_is_misspelt() -> None:
    finding = only(
        with_object("member", SERVICES, lambda each: each["spec"].update(loadBalancerClass="fairlead.dev/envoi")),
        "service-class",
    )
    assert "Did you mean 'envoy'?" in finding.fault


def test_a_service_of_another_class_is_another_controllers() -> None:
    assert (
        examine(
            with_object(
                "member",
                SERVICES,
                lambda each: each.update(spec={"type": "LoadBalancer", "loadBalancerClass": "x/y"}, status={}),
            )
        )
        == []
    )


def test_an_annotation_is_misspelt() -> None:
    def change(each: dict[str, Any]) -> None:
        each["metadata"]["annotations"] = {"fairlead.dev/proxy-protocoll": "v2"}

    finding = only(with_object("member", SERVICES, change), "annotations")
    assert finding.fault.endswith("Did you mean 'fairlead.dev/proxy-protocol'?")
    assert "Did you mean 'fairlead.dev/proxy-protocol'?" in finding.fault
    assert finding.fix == "kubectl -n default annotate service web fairlead.dev/proxy-protocoll-"


def test_no_pod_is_ready() -> None:
    def change(each: dict[str, Any]) -> None:
        each["endpoints"] = [{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}]

    finding = only(with_object("member", ENDPOINT_SLICES, change), "service-pods")
    assert (finding.fault, finding.fix) == ("none of its pods is ready", "kubectl get pods -n default -l app=web")
    nothing = only(with_object("member", ENDPOINT_SLICES, lambda each: each.update(endpoints=None)), "service-pods")
    assert nothing.fault == "the Service's selector matches no pod with an address"
    no_port = only(with_object("member", ENDPOINT_SLICES, lambda each: each.update(ports=None)), "service-pods")
    assert no_port.fault.startswith("the EndpointSlices have no port for TCP/80")


def test_a_service_without_a_selector_is_looked_at_by_its_slices() -> None:
    facts = with_object("member", ENDPOINT_SLICES, lambda each: each.update(endpoints=None))
    assert facts.member is not None
    facts.member.list(SERVICES)[0]["spec"]["selector"] = None
    finding = only(facts, "service-pods")
    assert finding.fix == "kubectl get endpointslices -n default -l kubernetes.io/service-name=web"


def test_nodes_are_targets_and_there_is_no_node_port() -> None:
    def change(each: dict[str, Any]) -> None:
        each["spec"] |= {"allocateLoadBalancerNodePorts": False, "ports": [{"port": 80}]}

    assert "fairlead.dev/target=Pod" in only(with_object("member", SERVICES, change), "node-ports").fix


def test_a_service_has_no_address() -> None:
    assert (
        only(with_object("member", SERVICES, lambda each: each.update(status={})), "service-address").object
        == "Service/default/web"
    )


def test_two_ingress_classes_are_the_default() -> None:
    def change(each: dict[str, Any]) -> None:
        each["metadata"]["annotations"] = {"ingressclass.kubernetes.io/is-default-class": "true"}

    facts = with_more("member", INGRESS_CLASSES, obj("nginx", metadata={}, spec={"controller": "k8s.io/ingress-nginx"}))
    for each in facts.member.list(INGRESS_CLASSES) if facts.member else ():
        change(each)
    assert "fairlead and nginx" in only(facts, "ingress-class").fault


def test_an_ingress_of_a_class_that_does_not_exist() -> None:
    facts = with_object("member", INGRESSES, lambda each: each.update(spec={"ingressClassName": "fairleed"}))
    assert "Did you mean 'fairlead'?" in only(facts, "ingress-class").fault


def test_a_gateway_class_is_not_accepted() -> None:
    facts = with_object(
        "member", GATEWAY_CLASSES, with_condition("Accepted", "False", "parametersRef is not supported")
    )
    assert only(facts, "gateway-class").fault == "parametersRef is not supported"


def no_address(node: dict[str, Any]) -> None:
    node["status"]["addresses"] = []


def no_node_port(service: dict[str, Any]) -> None:
    service["spec"] |= {"allocateLoadBalancerNodePorts": False, "ports": [{"port": 80}]}


@pytest.mark.req("X-36")
@pytest.mark.parametrize(("targets", "severities"), [("Pod", []), ("Node", ["error"])])
def test_nodes_count_where_they_are_targets(targets: str, severities: list[str]) -> None:
    for kind, change, check in ((NODES, no_address, "nodes-address"), (SERVICES, no_node_port, "node-ports")):
        facts = with_object("member", kind, change)
        assert facts.hub is not None
        facts.hub.objects[TCP_LOAD_BALANCERS.full_name][0]["spec"] |= {"targets": targets} | OF_WEB
        assert [each.severity.value for each in examine(facts) if each.check == check] == severities


@pytest.mark.req("X-36")
def test_commands_name_the_kubeconfig_that_was_given() -> None:
    facts = with_object("member", SERVICES, lambda each: each.update(status={}))
    assert facts.member is not None
    member = msgspec.structs.replace(facts.member, flags="--kubeconfig /k/east --context east")
    finding = only(msgspec.structs.replace(facts, member=member), "service-address")
    assert finding.fix == "fairlead explain svc/web -n default --kubeconfig /k/east --context east"


@pytest.mark.req("X-36")
@pytest.mark.parametrize("check", ["annotations", "nodes-ready", "service-class"])
def test_a_fix_can_be_pasted_for_the_cluster_that_was_looked_at(check: str) -> None:
    changes: dict[str, tuple[Any, Any]] = {
        "annotations": (SERVICES, lambda each: each["metadata"].update(annotations={"fairlead.dev/adress": "x"})),
        "nodes-ready": (NODES, lambda each: each["status"].update(conditions=[])),
        "service-class": (SERVICES, lambda each: each["spec"].update(loadBalancerClass="fairlead.dev/envoi")),
    }
    facts = with_object("member", *changes[check])
    assert facts.member is not None
    assert facts.hub is not None
    facts = msgspec.structs.replace(
        facts,
        member=msgspec.structs.replace(facts.member, flags="--kubeconfig /k/east"),
        hub=msgspec.structs.replace(facts.hub, flags="--kubeconfig /k/hub"),
    )
    fixes = [shlex.split(finding.fix, comments=True) for finding in examine(facts) if finding.check == check]
    side = "/k/hub" if check == "service-class" else "/k/east"
    assert fixes
    assert all(fix[:3] == ["kubectl", "--kubeconfig", side] for fix in fixes)


def gated_pod(name: str, namespace: str = "default", *, gated: bool = True, app: str = "web") -> dict[str, Any]:
    conditions = [
        {"type": "ContainersReady", "status": "True"},
        {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"},
    ]
    spec = {"readinessGates": [{"conditionType": "fairlead.dev/serving"}]} if gated else {}
    pod = obj(name, namespace, spec=spec, status={"podIP": "10.1.0.1", "conditions": conditions})
    pod["metadata"]["labels"] = {"app": app}
    return pod


def with_gate(name: str, resource: Any) -> dict[str, Any]:
    labelled = obj(name, "" if resource is NAMESPACES else "default", spec={"selector": {"app": "web"}})
    labelled["metadata"]["labels"] = {"fairlead.dev/readiness-gate": "enabled"}
    return labelled


@pytest.mark.req("F-2")
@pytest.mark.parametrize("resource", [NAMESPACES, SERVICES])
def test_pods_from_before_the_label_are_named(resource: Any) -> None:
    facts = with_more("member", resource, with_gate("default", resource))
    assert facts.member is not None
    facts.member.objects[PODS.full_name] = [gated_pod("old", gated=False), gated_pod("elsewhere", "other", gated=False)]
    finding = only(facts, "readiness-gates")
    assert finding.object == "Namespace/default"
    assert "old" in finding.fault
    assert "elsewhere" not in finding.fault


@pytest.mark.req("F-2")
def test_pods_that_wait_for_their_gate_are_named() -> None:
    facts = with_more("member", NAMESPACES, with_gate("default", NAMESPACES))
    assert facts.member is not None
    facts.member.objects[PODS.full_name] = [gated_pod("new")]
    assert "--readiness-gates" in only(facts, "readiness-gates").fix
