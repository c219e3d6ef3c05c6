"""Specs and targets become bytes: the same for the same input, and those that protobuf itself would write."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.desired import Affinity, FrontendSpec, HealthCheck, Listener, ProxyProtocol, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from fairlead.providers.envoy.clusters import CLUSTER, cluster_bytes
from fairlead.providers.envoy.endpoints import EndpointSet
from fairlead.providers.envoy.listeners import LISTENER, listener_bytes
from fairlead.providers.envoy.names import NAME_PART, load_balancer_of, resource_name
from fairlead.providers.envoy.resources import ResourceType, entry, response
from fairlead.providers.envoy.schema import Schema, packaged_schema
from fairlead.providers.envoy.validate import invalid_spec, invalid_target
from fairlead.providers.envoy.wire import varint

ASSIGNMENT = "envoy.config.endpoint.v3.ClusterLoadAssignment"
SPEC = FrontendSpec(
    key=LoadBalancerKey("TCPLoadBalancer", "shop", "web"), group="t", listeners=(Listener(80),), address="192.0.2.1"
)

addresses = st.one_of(st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str))
targets = st.builds(
    Target,
    key=st.builds(TargetKey, addresses, st.integers(1, 65_535)),
    weight=st.integers(0, 65_535),
    draining=st.booleans(),
)
target_lists = st.lists(targets, max_size=8, unique_by=lambda target: target.key)
part = st.from_regex(NAME_PART, fullmatch=True)


@pytest.fixture(scope="module")
def schema() -> Schema:
    return packaged_schema()


def built_by_protobuf(name: str, chosen: Sequence[Target]) -> bytes:
    endpoints: list[dict[str, object]] = []
    for target in sorted(chosen, key=lambda one: one.key):
        where = {"address": target.key.address, "port_value": target.key.port}
        endpoint: dict[str, object] = {"endpoint": {"address": {"socket_address": where}}}
        if target.draining or not target.weight:
            endpoint["health_status"] = "DRAINING"
        if target.weight > 1:
            endpoint["load_balancing_weight"] = {"value": target.weight}
        endpoints.append(endpoint)
    fields: dict[str, object] = {"cluster_name": name}
    if endpoints:
        fields["endpoints"] = [{"lb_endpoints": endpoints}]
    return packaged_schema().encode(ASSIGNMENT, fields)


@given(target_lists, st.randoms(use_true_random=True))
@pytest.mark.req("K-30")
def test_endpoints_are_what_protobuf_would_write_in_any_order(chosen: list[Target], rng: random.Random) -> None:
    expected = built_by_protobuf("k/n/a/TCP/80", chosen)
    assert EndpointSet(chosen).assignment("k/n/a/TCP/80") == expected
    shuffled = chosen[:]
    rng.shuffle(shuffled)
    assert EndpointSet(shuffled).assignment("k/n/a/TCP/80") == expected


@given(target_lists, target_lists)
def test_endpoints_depend_on_what_is_there_not_on_what_was(before: list[Target], after: list[Target]) -> None:
    found = EndpointSet(before)
    for target in before:
        assert found.drop(target.key)
        assert not found.drop(target.key)
    for target in after:
        assert found.put(target)
        assert not found.put(target)
    assert found.assignment("x") == EndpointSet(after).assignment("x")


@given(st.integers(0, 2**63))
def test_varint(value: int) -> None:
    decoded = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(varint(value)))
    assert decoded == value


@given(part, part, part, part, st.integers(1, 65_535), st.integers(1, 65_535))
@pytest.mark.req("KI-5")
def test_names_never_collide(one: str, two: str, three: str, four: str, port: int, other: int) -> None:
    keys = [LoadBalancerKey("K", one, two), LoadBalancerKey("K", three, four)]
    names = {
        resource_name(key, ListenerKey(protocol, number))
        for key in keys
        for protocol in Protocol
        for number in (port, other)
    }
    assert len(names) == len(set(keys)) * 2 * len({port, other})
    assert {load_balancer_of(name) for name in names} == set(keys)
    assert load_balancer_of("somebody-else") is None


def test_a_response_is_read_back_by_protobuf(schema: Schema) -> None:
    found = entry(ResourceType.ENDPOINTS, "a", b"content")
    encoded = response(ResourceType.ENDPOINTS, entries=[found], removed=["b"], nonce="7", revision=3)
    message = schema._class("envoy.service.discovery.v3.DeltaDiscoveryResponse").FromString(encoded)
    assert message.SerializeToString(deterministic=True) == encoded
    (resource,) = message.resources
    assert (resource.name, resource.version, resource.resource.value) == ("a", found.version, b"content")
    assert (message.type_url, message.nonce, list(message.removed_resources)) == (ResourceType.ENDPOINTS, "7", ["b"])


def test_requests_are_read(schema: Schema) -> None:
    encoded = schema.encode(
        "envoy.service.discovery.v3.DeltaDiscoveryRequest",
        {
            "type_url": ResourceType.CLUSTER.value,
            "node": {"id": "me", "cluster": "mine"},
            "resource_names_subscribe": ["a"],
            "resource_names_unsubscribe": ["b"],
            "initial_resource_versions": {"a": "1"},
            "response_nonce": "5",
            "error_detail": {"message": "no"},
        },
    )
    request = schema.read_request(encoded)
    assert (request.node_id, request.node_cluster, request.nonce, request.error) == ("me", "mine", "5", "no")
    assert (request.subscribe, request.unsubscribe, request.initial_versions) == (("a",), ("b",), {"a": "1"})
    with pytest.raises(ValueError, match="not a DeltaDiscoveryRequest"):
        schema.read_request(b"\xff")


@pytest.mark.req("E-12")
def test_cluster_with_a_host_name_holds_its_endpoints(schema: Schema) -> None:
    chosen = [Target(TargetKey("lb.example.com", 80)), Target(TargetKey("10.0.0.1", 80))]
    found = schema.to_json(CLUSTER, cluster_bytes(schema, SPEC, SPEC.listeners[0], chosen))
    assert found["type"] == "STRICT_DNS"
    assert "load_assignment" in found
    assert cluster_bytes(schema, SPEC, SPEC.listeners[0], reversed(chosen)) == cluster_bytes(
        schema, SPEC, SPEC.listeners[0], chosen
    )


def test_udp_clusters_have_no_tcp_checks(schema: Schema) -> None:
    listener = Listener(53, Protocol.UDP)
    found = schema.to_json(CLUSTER, cluster_bytes(schema, SPEC, listener))
    assert not {"health_checks", "outlier_detection", "transport_socket"} & set(found)


def test_health_checks_look_at_idle_load_balancers_too(schema: Schema) -> None:
    spec = msgspec.structs.replace(SPEC, health_check=HealthCheck(interval_s=3.5))
    (check,) = schema.to_json(CLUSTER, cluster_bytes(schema, spec, SPEC.listeners[0]))["health_checks"]  # type: ignore[misc]
    assert check["interval"] == check["no_traffic_interval"] == "3.500s"


CHANGES_OF_THE_CLUSTER_ONLY = [
    {"proxy_protocol": ProxyProtocol.V2},
    {"health_check": None},
    {"health_check": HealthCheck(interval_s=9.0)},
    {"local_traffic_only": True},
    {"parameters": {"a": "b"}},
    {"group": "other"},
]


@pytest.mark.parametrize("change", CHANGES_OF_THE_CLUSTER_ONLY, ids=str)
def test_listener_bytes_depend_on_the_listener_only(schema: Schema, change: dict[str, object]) -> None:
    def encoded(spec: FrontendSpec) -> bytes:
        return listener_bytes(schema, spec, spec.listeners[0], bind_address=spec.address, reuse_port=False)

    assert encoded(msgspec.structs.replace(SPEC, **change)) == encoded(SPEC)
    assert encoded(msgspec.structs.replace(SPEC, affinity=Affinity.CLIENT_IP)) != encoded(SPEC)


def test_listener_opens_the_proxy_port(schema: Schema) -> None:
    spec = msgspec.structs.replace(SPEC, listeners=(Listener(80, proxy_port=10_001),))
    encoded = listener_bytes(schema, spec, spec.listeners[0], bind_address="0.0.0.0", reuse_port=True)
    found = schema.to_json(LISTENER, encoded)
    assert found["address"] == {"socket_address": {"address": "0.0.0.0", "port_value": 10_001}}


BAD_SPECS = [
    ({"listeners": ()}, "no ports"),
    ({"listeners": (Listener(0),)}, "not in 1..65535"),
    ({"listeners": (Listener(80, proxy_port=70_000),)}, "70000"),
    ({"listeners": (Listener(80), Listener(80, name="again"))}, "listed twice"),
    ({"listeners": (Listener(80, proxy_port=9), Listener(81, proxy_port=9))}, "share the proxy port TCP/9"),
    ({"address": "web.example.com"}, "not an IP address"),
    ({"address": ""}, "no address"),
    ({"source_ranges": ("10.0.0.0/40",)}, "not a CIDR"),
    ({"key": LoadBalancerKey("K", "a/b", "c")}, "not a valid name"),
    ({"health_check": HealthCheck(interval_s=0)}, "10 ms"),
    ({"health_check": HealthCheck(healthy_threshold=0)}, "1 or more"),
]


@pytest.mark.parametrize(("change", "reason"), BAD_SPECS, ids=[reason for _, reason in BAD_SPECS])
def test_bad_specs_are_refused_with_a_reason(change: dict[str, object], reason: str) -> None:
    spec = msgspec.structs.replace(SPEC, **change)
    assert reason in "; ".join(invalid_spec(spec, bind_address=spec.address))
    assert not invalid_spec(SPEC, bind_address=SPEC.address)


@pytest.mark.parametrize(
    ("target", "ok"),
    [
        (Target(TargetKey("10.0.0.1", 80)), True),
        (Target(TargetKey("2001:db8::1", 80)), True),
        (Target(TargetKey("lb.example.com", 80)), True),
        (Target(TargetKey("lb.example.com.", 80)), True),
        (Target(TargetKey("10.0.0", 80)), False),
        (Target(TargetKey("300.0.0.1", 80)), False),
        (Target(TargetKey("a b", 80)), False),
        (Target(TargetKey("fe80::1%eth0", 80)), False),
        (Target(TargetKey("", 80)), False),
        (Target(TargetKey("a" * 64, 80)), False),
        (Target(TargetKey("10.0.0.1", 0)), False),
        (Target(TargetKey("10.0.0.1", 65_536)), False),
        (Target(TargetKey("10.0.0.1", 80), weight=-1), False),
        (Target(TargetKey("10.0.0.1", 80), weight=65_536), False),
    ],
    ids=str,
)
def test_targets_are_checked(target: Target, *, ok: bool) -> None:
    assert (invalid_target(target) == "") is ok
