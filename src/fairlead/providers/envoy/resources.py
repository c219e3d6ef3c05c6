"""Versioned resources, encoded for Envoy.

``EncodedResource`` holds a resource as the very bytes that go into a response, so that sending costs one join and
memory holds no message objects. The version is a hash of the content: any hub, before or after a restart, gives the
same version to the same bytes, which is what lets a reconnecting Envoy be sent nothing.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

import msgspec

from fairlead.providers.envoy.wire import header, text


class ResourceType(StrEnum):
    """The resource types that we serve, by type URL, in the order in which they are sent."""

    CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
    ENDPOINTS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105 (a type URL)
    LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"
    ROUTES = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"

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
    """Give the encoded ``content`` its version, type and name.

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
