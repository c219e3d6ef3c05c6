"""What is one versioned resource on its way to Envoy?

``Entry`` holds a resource as the very bytes that go into a response, so that sending costs one join and memory holds no
message objects. The version is a hash of the content: any hub, before or after a restart, gives the same name to the
same bytes, which is what lets a reconnecting Envoy be sent nothing.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

import msgspec

from fairlead.providers.envoy.wire import delimited, text


class ResourceType(StrEnum):
    """The resource types that we serve, by type URL, in the order in which they are sent."""

    CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
    ENDPOINTS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"

    @property
    def short(self) -> str:
        """Return the name used in metrics and logs."""
        return self.name.lower()


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One resource, ready to send.

    ``field`` is the encoded ``resources`` field of a response. ``needs`` are the clusters that a listener must find
    ready. ``warms_by_ack`` says of a cluster that only its own acknowledgement proves it ready (health checks, DNS).
    """

    version: str
    field: bytes
    needs: tuple[str, ...] = ()
    warms_by_ack: bool = False


def entry(
    kind: ResourceType, name: str, content: bytes, *, needs: tuple[str, ...] = (), warms_by_ack: bool = False
) -> Entry:
    """Wrap an encoded resource."""
    version = blake2b(content, digest_size=8).hexdigest()
    packed = text(1, kind.value) + delimited(2, content)
    resource = text(1, version) + delimited(2, packed) + text(3, name)
    return Entry(version=version, field=delimited(2, resource), needs=needs, warms_by_ack=warms_by_ack)


def response(kind: ResourceType, *, entries: list[Entry], removed: list[str], nonce: str, revision: int) -> bytes:
    """Join one DeltaDiscoveryResponse."""
    parts = [text(1, str(revision)), *[each.field for each in entries], text(4, kind.value), text(5, nonce)]
    parts += [text(6, name) for name in removed]
    return b"".join(parts)
