"""Requests and responses of delta xDS, against protobuf."""

from __future__ import annotations

import pytest

from fairlead.providers.envoy.resources import ResourceType, Schema, encoded_resource, packaged_schema, response


@pytest.fixture(scope="module")
def schema() -> Schema:
    return packaged_schema()


def test_a_response_is_read_back_by_protobuf(schema: Schema) -> None:
    encoded_endpoints = encoded_resource(ResourceType.ENDPOINTS, "a", b"content")
    encoded = response(ResourceType.ENDPOINTS, resources=[encoded_endpoints], removed=["b"], nonce="7", revision=3)
    message = schema._class("envoy.service.discovery.v3.DeltaDiscoveryResponse").FromString(encoded)
    assert message.SerializeToString(deterministic=True) == encoded
    (resource,) = message.resources
    assert (resource.name, resource.version, resource.resource.value) == ("a", encoded_endpoints.version, b"content")
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
