"""The groups and kinds that references of Gateway API may name, and what an unset field of one means."""

from __future__ import annotations

from fairlead.api.gateway import GATEWAY_GROUP

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
