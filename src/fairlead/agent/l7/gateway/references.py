"""The groups and kinds that references of Gateway API may name, and what an unset field of one means."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.api.gateway import GATEWAY_GROUP, GrantFrom, ReferenceGrant

CORE_GROUP = ""
SECRET = (CORE_GROUP, "Secret")
CONFIG_MAP = (CORE_GROUP, "ConfigMap")
SERVICE = (CORE_GROUP, "Service")
GATEWAY = (GATEWAY_GROUP, "Gateway")
LISTENER_SET = (GATEWAY_GROUP, "ListenerSet")
HTTP_ROUTE = (GATEWAY_GROUP, "HTTPRoute")
GRPC_ROUTE = (GATEWAY_GROUP, "GRPCRoute")
TLS_ROUTE = (GATEWAY_GROUP, "TLSRoute")
TCP_ROUTE = (GATEWAY_GROUP, "TCPRoute")
UDP_ROUTE = (GATEWAY_GROUP, "UDPRoute")


def permits(
    grants: Iterable[ReferenceGrant], origin: GrantFrom, target: tuple[str, str], namespace: str, name: str
) -> bool:
    """Return whether objects like ``origin`` may refer to the ``target`` (group and kind) of this namespace and name.

    Within a namespace every reference is permitted.
    """
    # An empty name in a grant means what an absent one does.
    return origin.namespace == namespace or any(
        origin in (grant.spec.from_ or ())
        and any((to.group, to.kind) == target and to.name in {None, "", name} for to in grant.spec.to or ())
        for grant in grants
        if grant.metadata.namespace == namespace and not grant.deleting
    )
