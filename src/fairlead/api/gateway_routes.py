"""HTTPRoute, GRPCRoute, TLSRoute, TCPRoute and UDPRoute of gateway.networking.k8s.io/v1, reduced to what we read.

Fields that are one of several by a ``type`` keep that shape. Fields of the experimental channel are simply absent in
the standard one.
Source: https://gateway-api.sigs.k8s.io/reference/spec/ (v1.6)
"""

from __future__ import annotations

from fairlead.api.gateway import GATEWAY_GROUP, VERSION
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, Resource, Wire, WireCondition


class ParentReference(Wire, frozen=True, gc=False):
    """The Gateway or ListenerSet that a route wants to attach to; the API server fills in ``group`` and ``kind``."""

    group: str | None = None
    kind: str | None = None
    namespace: str | None = None
    name: str = ""
    section_name: str | None = None
    port: int | None = None


class HeaderPair(Wire, frozen=True, gc=False):
    """One header to set or to add."""

    name: str = ""
    value: str = ""


class Match(Wire, frozen=True, gc=False):
    """A header or query parameter; ``type`` is Exact (default) or RegularExpression."""

    name: str = ""
    value: str = ""
    type: str | None = None


class HTTPPathMatch(Wire, frozen=True, gc=False):
    """``type`` is PathPrefix (default), Exact or RegularExpression."""

    type: str | None = None
    value: str | None = None


class HTTPMatch(Wire, frozen=True, gc=False):
    """Conditions that must all hold."""

    path: HTTPPathMatch | None = None
    headers: list[Match] | None = None
    query_params: list[Match] | None = None
    method: str | None = None


class HeaderFilter(Wire, frozen=True, gc=False):
    """Headers to set, to add, to remove."""

    set: list[HeaderPair] | None = None
    add: list[HeaderPair] | None = None
    remove: list[str] | None = None


class PathModifierSpec(Wire, frozen=True, gc=False):
    """``type`` is ReplaceFullPath or ReplacePrefixMatch, with the field of the same name."""

    type: str = ""
    replace_full_path: str | None = None
    replace_prefix_match: str | None = None


class RedirectFilter(Wire, frozen=True, gc=False):
    """Answer with a redirect."""

    scheme: str | None = None
    hostname: str | None = None
    path: PathModifierSpec | None = None
    port: int | None = None
    status_code: int | None = None


class RewriteFilter(Wire, frozen=True, gc=False):
    """Change Host header or path."""

    hostname: str | None = None
    path: PathModifierSpec | None = None


class BackendObject(Wire, frozen=True, gc=False):
    """A Service and its port; ``group`` unset is the core one, ``kind`` unset is Service."""

    group: str | None = None
    kind: str | None = None
    name: str = ""
    namespace: str | None = None
    port: int | None = None


class FractionSpec(Wire, frozen=True, gc=False):
    """A part of all requests; ``denominator`` unset is 100."""

    numerator: int = 0
    denominator: int | None = None


class MirrorFilter(Wire, frozen=True, gc=False):
    """Send a copy of all, ``percent`` or ``fraction`` of the requests elsewhere as well."""

    backend_ref: BackendObject = BackendObject()
    percent: int | None = None
    fraction: FractionSpec | None = None


class CorsFilter(Wire, frozen=True, gc=False):
    """Answer preflight requests; ``maxAge`` in seconds."""

    allow_origins: list[str] | None = None
    allow_methods: list[str] | None = None
    allow_headers: list[str] | None = None
    expose_headers: list[str] | None = None
    allow_credentials: bool | None = None
    max_age: int | None = None


class RouteFilter(Wire, frozen=True, gc=False):
    """One filter; the field that ``type`` names is set. ``extensionRef`` and ``externalAuth`` are refused."""

    type: str = ""
    request_header_modifier: HeaderFilter | None = None
    response_header_modifier: HeaderFilter | None = None
    request_mirror: MirrorFilter | None = None
    request_redirect: RedirectFilter | None = None
    url_rewrite: RewriteFilter | None = None
    cors: CorsFilter | None = None
    extension_ref: JSONObject | None = None
    external_auth: JSONObject | None = None


class RouteBackendRef(Wire, frozen=True, gc=False):
    """A share of the requests of a rule; ``weight`` unset is 1."""

    group: str | None = None
    kind: str | None = None
    name: str = ""
    namespace: str | None = None
    port: int | None = None
    weight: int | None = None
    filters: list[RouteFilter] | None = None


class HTTPTimeouts(Wire, frozen=True, gc=False):
    """Gateway API durations, such as 500ms or 1h30m; 0s is none."""

    request: str | None = None
    backend_request: str | None = None


class HTTPRetry(Wire, frozen=True, gc=False):
    """When a request is tried again."""

    codes: list[int] | None = None
    attempts: int | None = None
    backoff: str | None = None


class SessionPersistenceSpec(Wire, frozen=True, gc=False):
    """Keep the requests of a session at one backend."""

    session_name: str | None = None
    absolute_timeout: str | None = None
    idle_timeout: str | None = None
    type: str | None = None
    cookie_config: JSONObject | None = None


class HTTPRule(Wire, frozen=True, gc=False):
    """A rule of an HTTPRoute."""

    name: str | None = None
    matches: list[HTTPMatch] | None = None
    filters: list[RouteFilter] | None = None
    backend_refs: list[RouteBackendRef] | None = None
    timeouts: HTTPTimeouts | None = None
    retry: HTTPRetry | None = None
    session_persistence: SessionPersistenceSpec | None = None


class GRPCMethod(Wire, frozen=True, gc=False):
    """``type`` is Exact (default) or RegularExpression; an empty part matches all."""

    type: str | None = None
    service: str | None = None
    method: str | None = None


class GRPCMatch(Wire, frozen=True, gc=False):
    """Conditions that must all hold."""

    method: GRPCMethod | None = None
    headers: list[Match] | None = None


class GRPCRule(Wire, frozen=True, gc=False):
    """A rule of a GRPCRoute."""

    name: str | None = None
    matches: list[GRPCMatch] | None = None
    filters: list[RouteFilter] | None = None
    backend_refs: list[RouteBackendRef] | None = None
    session_persistence: SessionPersistenceSpec | None = None


class ConnectionRule(Wire, frozen=True, gc=False):
    """The rule of a TLSRoute, TCPRoute or UDPRoute."""

    name: str | None = None
    backend_refs: list[RouteBackendRef] | None = None


class RouteParentStatus(Wire, frozen=True, gc=False):
    """The status of a route at one parent; ``parentRef`` is as in spec."""

    parent_ref: ParentReference = ParentReference()
    controller_name: str = ""
    conditions: list[WireCondition] | None = None


class RouteStatus(Wire, frozen=True, gc=False):
    """The status of a route; entries of other controllers stay as they are."""

    parents: list[RouteParentStatus] | None = None


class HTTPRouteSpec(Wire, frozen=True, gc=False):
    """The spec of an HTTPRoute."""

    parent_refs: list[ParentReference] | None = None
    hostnames: list[str] | None = None
    rules: list[HTTPRule] | None = None


class HTTPRoute(KubeObject, frozen=True, gc=False):
    """An HTTPRoute."""

    spec: HTTPRouteSpec = HTTPRouteSpec()
    status: RouteStatus = RouteStatus()


class GRPCRouteSpec(Wire, frozen=True, gc=False):
    """The spec of a GRPCRoute."""

    parent_refs: list[ParentReference] | None = None
    hostnames: list[str] | None = None
    rules: list[GRPCRule] | None = None


class GRPCRoute(KubeObject, frozen=True, gc=False):
    """A GRPCRoute."""

    spec: GRPCRouteSpec = GRPCRouteSpec()
    status: RouteStatus = RouteStatus()


class ConnectionRouteSpec(Wire, frozen=True, gc=False):
    """The spec of a TLSRoute, TCPRoute or UDPRoute; only a TLSRoute has ``hostnames``."""

    parent_refs: list[ParentReference] | None = None
    hostnames: list[str] | None = None
    rules: list[ConnectionRule] | None = None


class TLSRoute(KubeObject, frozen=True, gc=False):
    """A TLSRoute."""

    spec: ConnectionRouteSpec = ConnectionRouteSpec()
    status: RouteStatus = RouteStatus()


class TCPRoute(KubeObject, frozen=True, gc=False):
    """A TCPRoute."""

    spec: ConnectionRouteSpec = ConnectionRouteSpec()
    status: RouteStatus = RouteStatus()


class UDPRoute(KubeObject, frozen=True, gc=False):
    """A UDPRoute."""

    spec: ConnectionRouteSpec = ConnectionRouteSpec()
    status: RouteStatus = RouteStatus()


AnyRoute = HTTPRoute | GRPCRoute | TLSRoute | TCPRoute | UDPRoute

HTTP_ROUTES = Resource(GATEWAY_GROUP, VERSION, "HTTPRoute", "httproutes", True, HTTPRoute)
GRPC_ROUTES = Resource(GATEWAY_GROUP, VERSION, "GRPCRoute", "grpcroutes", True, GRPCRoute)
TLS_ROUTES = Resource(GATEWAY_GROUP, VERSION, "TLSRoute", "tlsroutes", True, TLSRoute)
TCP_ROUTES = Resource(GATEWAY_GROUP, VERSION, "TCPRoute", "tcproutes", True, TCPRoute)
UDP_ROUTES = Resource(GATEWAY_GROUP, VERSION, "UDPRoute", "udproutes", True, UDPRoute)
ROUTES: tuple[AnyResource, ...] = (HTTP_ROUTES, GRPC_ROUTES, TLS_ROUTES, TCP_ROUTES, UDP_ROUTES)
