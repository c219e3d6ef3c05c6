"""The copy of type NodePort that a Service without nodePorts has where backends are reached by the nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.sources.http import backend_of, with_valid_settings
from fairlead.agent.sources.shared import (
    copy_name,
    copy_of,
    is_ours,
    is_same_copy,
    original_of,
    reached_by,
    why_no_copy,
)
from fairlead.api.kubernetes import Service
from fairlead.model.health import HealthCheckSettings, OutlierDetection

PORTS = [{"name": "http", "port": 80, "targetPort": 8080}, {"name": "dns", "port": 53, "protocol": "UDP"}]


def service(name: str = "web", **spec: Any) -> Service:
    spec = {"ports": PORTS, "selector": {"app": "web"}, **spec}
    return msgspec.convert({"metadata": {"name": name, "namespace": "shop", "uid": "1"}, "spec": spec}, type=Service)


def made(of: Service, *node_ports: int) -> Service:
    """Return the copy of a Service as the API server shows it."""
    copy = copy_of(of)
    assert copy is not None
    ports = [
        msgspec.structs.replace(port, node_port=node_port, target_port=port.target_port or port.port)
        for port, node_port in zip(copy.spec.ports or (), node_ports, strict=True)
    ]
    return msgspec.structs.replace(copy, spec=msgspec.structs.replace(copy.spec, ports=ports, cluster_ip="10.0.0.9"))


@pytest.mark.req("K-38")
def test_the_copy_is_owned_and_has_the_ports_and_the_selector_of_the_original() -> None:
    written: dict[str, Any] = msgspec.to_builtins(copy_of(service(sessionAffinity="ClientIP")))
    assert written == {
        "metadata": {
            "name": "web-fairlead-nodes",
            "namespace": "shop",
            "labels": {"app.kubernetes.io/managed-by": "fairlead", "fairlead.dev/copy-of": "web"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "1"}],
        },
        "spec": {
            "type": "NodePort",
            "selector": {"app": "web"},
            "sessionAffinity": "ClientIP",
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}, {"name": "dns", "port": 53, "protocol": "UDP"}],
        },
    }


@pytest.mark.req("K-38", "K-39")
def test_only_what_the_nodes_do_not_reach_is_copied() -> None:
    of_nodes = [{"port": 80, "nodePort": 30080}]
    assert copy_of(service(type="NodePort", ports=of_nodes)) is None
    assert copy_of(service(type="LoadBalancer", ports=of_nodes)) is None
    assert copy_of(service(type="LoadBalancer", allocateLoadBalancerNodePorts=False)) is not None
    assert copy_of(service(clusterIP="None")) is not None
    leaving = service()
    meta = msgspec.structs.replace(leaving.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    assert copy_of(msgspec.structs.replace(leaving, metadata=meta)) is None


@pytest.mark.req("K-38")
def test_what_cannot_be_copied_is_refused_with_the_next_step() -> None:
    without = service(selector=None)
    assert copy_of(without) is None
    assert "Service shop/web has no selector" in why_no_copy(without)
    assert "add a selector or EndpointSlices, or use type NodePort" in why_no_copy(without)
    assert why_no_copy(without, has_endpoints=True) == "", "they are asked directly"
    assert "ExternalName" in why_no_copy(service(type="ExternalName", selector=None))
    assert why_no_copy(service()) == ""
    assert why_no_copy(service(type="NodePort", selector=None, ports=[{"port": 80, "nodePort": 30080}])) == ""


@pytest.mark.req("K-38")
def test_the_original_is_reached_by_the_node_ports_of_its_copy() -> None:
    original = service()
    copy = made(original, 30001, 30002)
    assert [port.node_port for port in reached_by(original, copy).spec.ports or ()] == [30001, 30002]
    assert [port.port for port in reached_by(original, copy).spec.ports or ()] == [80, 53]
    # A port that the copy does not have yet, and a copy that goes.
    more = service(ports=[*PORTS, {"name": "new", "port": 81}])
    assert [port.node_port for port in reached_by(more, copy).spec.ports or ()] == [30001, 30002, 0]
    assert reached_by(original, None) is original


@pytest.mark.req("K-38")
@pytest.mark.parametrize(
    "changed",
    [
        {"ports": [{"name": "http", "port": 80, "targetPort": 9090}, PORTS[1]]},
        {"ports": PORTS[:1]},
        {"selector": {"app": "other"}},
    ],
)
def test_a_changed_port_or_selector_changes_the_copy(changed: dict[str, Any]) -> None:
    there = made(service(), 30001, 30002)
    same, other = copy_of(service()), copy_of(service(**changed))
    assert same is not None
    assert other is not None
    assert is_same_copy(same, there)
    assert not is_same_copy(other, there)


@pytest.mark.req("K-38")
def test_a_copy_is_known_by_its_label_its_owner_and_its_name() -> None:
    original = service()
    copy = made(original, 30001, 30002)
    assert original_of(copy) == ("shop", "web")
    assert is_ours(copy, ("shop", "web"))
    assert original_of(original) is None
    labelled = service("web-fairlead-nodes")
    meta = msgspec.structs.replace(labelled.metadata, labels=copy.metadata.labels)
    assert original_of(msgspec.structs.replace(labelled, metadata=meta)) is None, "labels alone do not count"
    long = "a" * 63
    assert len(copy_name(long)) <= 63
    assert copy_name(long) != copy_name("a" * 62)


@pytest.mark.req("K-4", "K-30")
def test_the_copy_has_the_families_of_the_original() -> None:
    six = service(ipFamilies=["IPv6", "IPv4"], ipFamilyPolicy="PreferDualStack")
    copy = copy_of(six)
    assert copy is not None
    assert (copy.spec.ip_families, copy.spec.ip_family_policy) == (["IPv6", "IPv4"], "PreferDualStack")
    four = copy_of(service(ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack"))
    assert four is not None
    assert not is_same_copy(copy, four)
    # A copy that was made before, to which the API server gave its families.
    before = copy_of(service())
    assert before is not None
    assert is_same_copy(before, four)


def annotated(**annotations: str) -> Service:
    plain = service()
    written = {f"fairlead.dev/{name.replace('_', '-')}": text for name, text in annotations.items()}
    return msgspec.structs.replace(plain, metadata=msgspec.structs.replace(plain.metadata, annotations=written))


@pytest.mark.req("F-11", "F-13")
def test_a_wrong_health_annotation_keeps_the_published_setting() -> None:
    good = annotated(health_check='{"path": "/healthz"}', outlier_detection='{"ejectionTime": "9s"}')
    (port, _) = good.spec.ports or []
    published = backend_of(good, port)
    assert published.health_check == HealthCheckSettings(path="/healthz")
    assert published.outlier_detection == OutlierDetection(ejection_time="9s")
    assert with_valid_settings(good, ()) is good
    wrong = annotated(health_check_path="healthz", outlier_detection='{"ejectionTime": "9s"}')
    assert backend_of(with_valid_settings(wrong, [published]), port) == published
    # Of a Service that was never published, and whose annotation is wrong, the class decides.
    assert backend_of(with_valid_settings(wrong, []), port) == backend_of(service(), port)
