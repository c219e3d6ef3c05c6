"""Clusters: DNS names inside, health checks, UDP."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.model.desired import FrontendSpec, Listener, Locality, Shares, Target
from fairlead.model.health import HealthCheck
from fairlead.model.keys import LoadBalancerKey, Protocol, TargetKey
from fairlead.providers.envoy.clusters import CLUSTER, cluster_bytes
from fairlead.providers.envoy.resources import Schema, packaged_schema
from tests.envoy_json import to_json

SPEC = FrontendSpec(
    key=LoadBalancerKey("TCPLoadBalancer", "shop", "web"), group="t", listeners=(Listener(80),), address="192.0.2.1"
)


@pytest.fixture(scope="module")
def schema() -> Schema:
    return packaged_schema()


@pytest.mark.req("E-12")
def test_cluster_with_a_host_name_holds_its_endpoints(schema: Schema) -> None:
    chosen = [Target(TargetKey("lb.example.com", 80)), Target(TargetKey("10.0.0.1", 80))]
    cluster = to_json(schema, CLUSTER, cluster_bytes(schema, SPEC, SPEC.listeners[0], chosen, connections=9))
    assert cluster["type"] == "STRICT_DNS"
    assert "load_assignment" in cluster
    assert cluster_bytes(schema, SPEC, SPEC.listeners[0], reversed(chosen), connections=9) == cluster_bytes(
        schema, SPEC, SPEC.listeners[0], chosen, connections=9
    )


def test_udp_clusters_have_no_tcp_checks(schema: Schema) -> None:
    listener = Listener(53, Protocol.UDP)
    cluster = to_json(schema, CLUSTER, cluster_bytes(schema, SPEC, listener, connections=9))
    assert not {"health_checks", "outlier_detection", "transport_socket"} & set(cluster)


def test_health_checks_look_at_idle_load_balancers_too(schema: Schema) -> None:
    spec = msgspec.structs.replace(SPEC, health_check=HealthCheck(interval_s=3.5))
    (check,) = to_json(schema, CLUSTER, cluster_bytes(schema, spec, SPEC.listeners[0], connections=9))["health_checks"]  # type: ignore[misc]
    assert check["interval"] == check["no_traffic_interval"] == "3.500s"


@pytest.mark.req("MC-11")
def test_targets_of_a_dead_member_are_left_out_until_their_checks_fail(schema: Schema) -> None:
    check = HealthCheck(interval_s=5, timeout_s=1, unhealthy_threshold=2)
    shares = Shares((Locality("west"),))
    for fields, ejected in (
        ({"health_check": check, "shares": shares}, "16s"),
        ({"health_check": None, "shares": shares}, "5s"),
        ({"health_check": check}, "5s"),
    ):
        spec = msgspec.structs.replace(SPEC, **fields)
        cluster = to_json(schema, CLUSTER, cluster_bytes(schema, spec, spec.listeners[0], connections=9))
        assert cluster["outlier_detection"]["base_ejection_time"] == ejected  # type: ignore[index]


def test_only_connections_are_limited_since_only_they_cost_files(schema: Schema) -> None:
    limits = limits_of(schema, msgspec.structs.replace(SPEC, limits_connections=True))
    assert limits["max_connections"] == 9
    assert {limits[name] for name in ("max_pending_requests", "max_requests", "max_retries")} == {1_000_000}


def test_what_release_0_1_has_served_stays_as_it_is_at_envoy(schema: Schema) -> None:
    assert set(limits_of(schema, SPEC).values()) == {1_000_000}


def limits_of(schema: Schema, spec: FrontendSpec) -> dict[str, int]:
    """Return the limits of its cluster, for a proxy with room for 9 connections."""
    encoded = cluster_bytes(schema, spec, spec.listeners[0], connections=9)
    ((limits,), *_) = (each["thresholds"] for each in [to_json(schema, CLUSTER, encoded)["circuit_breakers"]])  # type: ignore[index]
    return limits
