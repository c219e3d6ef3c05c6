"""The columns of built-in kinds."""

from typing import Any

import pytest

from podless.kinds.builtin_columns import COLUMNS


def cells(bucket: str, obj: dict[str, Any]) -> dict[str, Any]:
    return {column.name: column.cell(obj, 0.0) for column in COLUMNS[bucket]}


@pytest.mark.parametrize(
    ("spec", "status", "text"),
    [
        ({"type": "ExternalName", "externalName": "example.com"}, {}, "example.com"),
        ({"type": "LoadBalancer"}, {}, "<pending>"),
        (
            {"type": "LoadBalancer", "externalIPs": ["1.1.1.1"]},
            {"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}, {"hostname": "lb.example.com"}]}},
            "9.9.9.9,lb.example.com,1.1.1.1",
        ),
        ({"type": "ClusterIP"}, {}, "<none>"),
    ],
)
def test_external_addresses_of_a_service(spec: dict[str, Any], status: dict[str, Any], text: str) -> None:
    assert cells("services", {"spec": spec, "status": status})["External-IP"] == text


@pytest.mark.parametrize(
    ("conditions", "cordoned", "text"),
    [
        ([], False, "Unknown"),
        ([{"type": "Ready", "status": "True"}], True, "Ready,SchedulingDisabled"),
        ([{"type": "Ready", "status": "Unknown"}], False, "NotReady"),
    ],
)
def test_the_status_of_a_node(conditions: list[Any], cordoned: bool, text: str) -> None:
    node = {"spec": {"unschedulable": cordoned}, "status": {"conditions": conditions}}
    assert cells("nodes", node)["Status"] == text


def test_only_three_addresses_of_a_slice_are_shown() -> None:
    endpoints = [{"addresses": ["10.0.0.1", "10.0.0.2"]}, {"addresses": ["10.0.0.3", "10.0.0.4"]}]
    assert cells("endpointslices.discovery.k8s.io", {"endpoints": endpoints})["Endpoints"] == (
        "10.0.0.1,10.0.0.2,10.0.0.3 + 1 more..."
    )


@pytest.mark.parametrize("bucket", COLUMNS)
def test_an_empty_object_has_every_cell(bucket: str) -> None:
    assert len(cells(bucket, {})) == len(COLUMNS[bucket])


@pytest.mark.parametrize(("status", "text"), [("True", "1/2"), ("False", "0/2")])
def test_the_readiness_gates_of_a_pod_that_are_open(status: str, text: str) -> None:
    gates = [{"conditionType": "a"}, {"conditionType": "b"}]
    pod = {"spec": {"readinessGates": gates}, "status": {"conditions": [{"type": "a", "status": status}]}}
    assert cells("pods", pod)["Readiness Gates"] == text
    assert cells("pods", {})["Readiness Gates"] == "<none>"
