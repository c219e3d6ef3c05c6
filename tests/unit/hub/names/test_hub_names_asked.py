"""Which names the load balancer of a Cluster asks for: its endpoint, where the hub has its address."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.api.httploadbalancer import HTTPLoadBalancer
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.hub.names.controller import of_endpoint, of_http
from fairlead.testing.builders import decoded

REF = {"apiGroup": "far.example.com", "kind": "FarLoadBalancer", "name": "blue"}


def load_balancer(host: str, *, deleting: bool = False, **spec: Any) -> LoadBalancer:
    meta: dict[str, Any] = {"name": "api", "namespace": "fleet", "uid": "u"}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    whole = {"className": "edge", "clusterName": "blue", "endpoint": {"host": host, "port": 6443}, **spec}
    return decoded({"metadata": meta, "spec": whole}, LoadBalancer)


@pytest.mark.req("C-52", "C-54")
@pytest.mark.parametrize("host", ["blue.clusters.test", "Blue.Clusters.test", "blue.clusters.test."])
def test_an_endpoint_that_is_a_name_is_asked_for(host: str) -> None:
    ((asked, claimant),) = of_endpoint(load_balancer(host), None).items()
    assert asked == "blue.clusters.test"
    assert (claimant.space, claimant.member, claimant.kind, claimant.name) == ("fleet", "", "LoadBalancer", "api")
    assert str(claimant.load_balancer) == "LoadBalancer/fleet/api"


@pytest.mark.req("C-34")
@pytest.mark.parametrize(
    ("host", "spec"),
    [
        ("192.0.2.1", {}),
        ("2001:db8::1", {}),
        ("", {}),
        ("no_name.clusters.test", {}),
        ("blue.clusters.test", {"clusterName": ""}),
        ("blue.clusters.test", {"className": "", "infrastructureRef": REF}),
    ],
    ids=["IPv4", "IPv6", "none yet", "no DNS name", "of no Cluster", "another provider has the address"],
)
def test_nothing_else_is(host: str, spec: dict[str, Any]) -> None:
    assert of_endpoint(load_balancer(host, **spec), None) == {}


def test_a_name_from_the_provider_is_not_ours() -> None:
    given = load_balancer("lb-1.cloud.test")
    status = msgspec.structs.replace(given.status, address="lb-1.cloud.test")
    assert of_endpoint(msgspec.structs.replace(given, status=status), None) == {}


@pytest.mark.req("C-52")
def test_the_name_stays_until_the_load_balancer_is_gone() -> None:
    """Controllers drain the machines of a Cluster that is deleted by that very name."""
    assert list(of_endpoint(load_balancer("blue.clusters.test", deleting=True), None)) == ["blue.clusters.test"]


@pytest.mark.req("L7-11")
@pytest.mark.parametrize(("wildcards", "hosts"), [(True, {"*.dev.test", "a.dev.test"}), (False, {"a.dev.test"})])
def test_wildcards_of_listeners_are_asked_for_unless_the_gateway_wants_none(wildcards: bool, hosts: set[str]) -> None:
    listeners = [
        {"name": "any", "port": 80, "protocol": "HTTP", "hostname": "*.dev.test"},
        {"name": "one", "port": 80, "protocol": "HTTP", "hostname": "a.dev.test"},
    ]
    spec = {"listeners": listeners, **({} if wildcards else {"wildcardRecords": False})}
    obj = decoded({"metadata": {"name": "web", "namespace": "tenant-east"}, "spec": spec}, HTTPLoadBalancer)
    assert of_http(obj, None).keys() == hosts
