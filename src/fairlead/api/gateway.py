"""Gateways, routes and policies of gateway.networking.k8s.io, reduced to the fields that Fairlead reads.

Source: https://gateway-api.sigs.k8s.io/reference/spec/ (v1.6)
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from fairlead.api.meta import AnyResource, JSONObject, KubeObject, Resource, Wire, WireCondition
from fairlead.api.names import GATEWAY_CONTROLLER

GATEWAY_GROUP = "gateway.networking.k8s.io"
VERSION = "v1"


class Reference(Wire, frozen=True, gc=False):
    """Another object. The defaults of ``group`` and ``kind`` depend on the field.

    ``namespace`` empty is that of the object that refers.
    """

    group: str | None = None
    kind: str = ""
    name: str = ""
    namespace: str = ""


class GatewayClassSpec(Wire, frozen=True, gc=False):
    """Whose class it is; ``parametersRef`` of ours names a LoadBalancerClass of the hub."""

    controller_name: str = ""
    parameters_ref: Reference | None = None


class SupportedFeature(Wire, frozen=True, gc=False):
    """A feature by the name that the conformance suite gives it."""

    name: str = ""


class GatewayClassStatus(Wire, frozen=True, gc=False):
    """Whether the class is accepted, and what it can do."""

    conditions: list[WireCondition] | None = None
    supported_features: list[SupportedFeature] | None = None


class GatewayClass(KubeObject, frozen=True, gc=False):
    """A GatewayClass."""

    spec: GatewayClassSpec = GatewayClassSpec()
    status: GatewayClassStatus = GatewayClassStatus()

    @property
    def is_ours(self) -> bool:
        """Return whether Fairlead serves the Gateways of this class."""
        return self.spec.controller_name == GATEWAY_CONTROLLER


class NamespaceSelector(Wire, frozen=True, gc=False, rename={"from_": "from"}):
    """Which namespaces: All, Same, None, or those of a label ``selector``; empty is the default of its place."""

    from_: str = ""
    selector: JSONObject | None = None


class RouteGroupKind(Wire, frozen=True, gc=False):
    """A kind of route; ``group`` unset is Gateway API's."""

    kind: str = ""
    group: str | None = None


class AllowedRoutes(Wire, frozen=True, gc=False):
    """Which routes may attach to a listener."""

    namespaces: NamespaceSelector | None = None
    kinds: list[RouteGroupKind] | None = None


class ListenerTls(Wire, frozen=True, gc=False):
    """``mode`` is Terminate (default) or Passthrough."""

    mode: str = ""
    certificate_refs: list[Reference] | None = None
    options: dict[str, str] | None = None


class GatewayListener(Wire, frozen=True, gc=False):
    """One listener of a Gateway or ListenerSet. In a ListenerSet, ``port`` 0 has to be chosen by us."""

    name: str = ""
    port: int = 0
    protocol: str = ""
    hostname: str = ""
    tls: ListenerTls | None = None
    allowed_routes: AllowedRoutes | None = None


class GatewayAddress(Wire, frozen=True, gc=False):
    """An address that is asked for, or was assigned; ``type`` empty is IPAddress."""

    type: str = ""
    value: str = ""


class Infrastructure(Wire, frozen=True, gc=False):
    """Labels and annotations of the objects that are created for a Gateway."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    parameters_ref: Reference | None = None


class AllowedListeners(Wire, frozen=True, gc=False):
    """Which ListenerSets may attach; none by default."""

    namespaces: NamespaceSelector | None = None


class FrontendValidation(Wire, frozen=True, gc=False):
    """Which client certificates are asked for; ``mode`` AllowInsecureFallback lets any and none pass."""

    ca_certificate_refs: list[Reference] | None = None
    mode: str = ""


class FrontendTlsConfig(Wire, frozen=True, gc=False):
    """Validation of clients, unset: none."""

    validation: FrontendValidation | None = None


class PortTls(Wire, frozen=True, gc=False):
    """What counts for one port instead of the default."""

    port: int = 0
    tls: FrontendTlsConfig = FrontendTlsConfig()


class FrontendTls(Wire, frozen=True, gc=False):
    """TLS towards clients, for all HTTPS listeners and by port."""

    default: FrontendTlsConfig = FrontendTlsConfig()
    per_port: list[PortTls] | None = None


class GatewayBackendTls(Wire, frozen=True, gc=False):
    """TLS towards backends: the certificate that is shown to those that speak TLS."""

    client_certificate_ref: Reference | None = None


class GatewayTls(Wire, frozen=True, gc=False):
    """TLS settings of a whole Gateway."""

    backend: GatewayBackendTls | None = None
    frontend: FrontendTls | None = None


class GatewaySpec(Wire, frozen=True, gc=False):
    """The spec of a Gateway."""

    gateway_class_name: str = ""
    listeners: list[GatewayListener] | None = None
    addresses: list[GatewayAddress] | None = None
    infrastructure: Infrastructure | None = None
    allowed_listeners: AllowedListeners | None = None
    tls: GatewayTls | None = None


class ListenerStatus(Wire, frozen=True, gc=False):
    """The status of one listener. ``attachedRoutes`` has no default here, so that 0 is written."""

    name: str
    attached_routes: int
    supported_kinds: list[RouteGroupKind]
    conditions: list[WireCondition]


class GatewayStatus(Wire, frozen=True, gc=False):
    """The status of a Gateway."""

    addresses: list[GatewayAddress] | None = None
    conditions: list[WireCondition] | None = None
    listeners: list[ListenerStatus] | None = None
    attached_listener_sets: int | None = None


class Gateway(KubeObject, frozen=True, gc=False):
    """A Gateway."""

    spec: GatewaySpec = GatewaySpec()
    status: GatewayStatus = GatewayStatus()


class ParentGateway(Wire, frozen=True, gc=False):
    """The Gateway that a ListenerSet adds its listeners to."""

    group: str | None = None
    kind: str = ""
    name: str = ""
    namespace: str = ""


class ListenerSetSpec(Wire, frozen=True, gc=False):
    """Listeners for a Gateway."""

    parent_ref: ParentGateway = ParentGateway()
    listeners: list[GatewayListener] | None = None


class ListenerSetStatus(Wire, frozen=True, gc=False):
    """The status of a ListenerSet."""

    conditions: list[WireCondition] | None = None
    listeners: list[ListenerStatus] | None = None


class ListenerSet(KubeObject, frozen=True, gc=False):
    """A ListenerSet."""

    spec: ListenerSetSpec = ListenerSetSpec()
    status: ListenerSetStatus = ListenerSetStatus()


GATEWAY_CLASSES = Resource(GATEWAY_GROUP, VERSION, "GatewayClass", "gatewayclasses", False, GatewayClass)
GATEWAYS = Resource(GATEWAY_GROUP, VERSION, "Gateway", "gateways", True, Gateway)
LISTENER_SETS = Resource(GATEWAY_GROUP, VERSION, "ListenerSet", "listenersets", True, ListenerSet)


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


class AuthSettings(Wire, frozen=True, gc=False):
    """What an external service is shown of a request, and what of its answer goes to the backend."""

    path: str = ""
    allowed_headers: list[str] | None = None
    allowed_response_headers: list[str] | None = None


class ForwardBody(Wire, frozen=True, gc=False):
    """How many bytes of a request's body an external service is shown."""

    max_size: int = 0


class ExternalAuthFilter(Wire, frozen=True, gc=False):
    """Ask a service whether a request may pass; ``http`` or ``grpc`` is set as ``protocol`` says."""

    protocol: str = ""
    backend_ref: BackendObject = BackendObject()
    http: AuthSettings | None = None
    grpc: AuthSettings | None = None
    forward_body: ForwardBody | None = None


class RouteFilter(Wire, frozen=True, gc=False):
    """One filter; the field that ``type`` names is set. ``extensionRef`` is refused."""

    type: str = ""
    request_header_modifier: HeaderFilter | None = None
    response_header_modifier: HeaderFilter | None = None
    request_mirror: MirrorFilter | None = None
    request_redirect: RedirectFilter | None = None
    url_rewrite: RewriteFilter | None = None
    cors: CorsFilter | None = None
    extension_ref: JSONObject | None = None
    external_auth: ExternalAuthFilter | None = None


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

    of_requests: ClassVar = True
    spec: HTTPRouteSpec = HTTPRouteSpec()
    status: RouteStatus = RouteStatus()


class GRPCRouteSpec(Wire, frozen=True, gc=False):
    """The spec of a GRPCRoute."""

    parent_refs: list[ParentReference] | None = None
    hostnames: list[str] | None = None
    rules: list[GRPCRule] | None = None


class GRPCRoute(KubeObject, frozen=True, gc=False):
    """A GRPCRoute."""

    of_requests: ClassVar = True
    spec: GRPCRouteSpec = GRPCRouteSpec()
    status: RouteStatus = RouteStatus()


class ConnectionRouteSpec(Wire, frozen=True, gc=False):
    """The spec of a TLSRoute, TCPRoute or UDPRoute; only a TLSRoute has ``hostnames``."""

    parent_refs: list[ParentReference] | None = None
    hostnames: list[str] | None = None
    rules: list[ConnectionRule] | None = None


class TLSRoute(KubeObject, frozen=True, gc=False):
    """A TLSRoute."""

    of_requests: ClassVar = False
    spec: ConnectionRouteSpec = ConnectionRouteSpec()
    status: RouteStatus = RouteStatus()


class TCPRoute(KubeObject, frozen=True, gc=False):
    """A TCPRoute."""

    of_requests: ClassVar = False
    spec: ConnectionRouteSpec = ConnectionRouteSpec()
    status: RouteStatus = RouteStatus()


class UDPRoute(KubeObject, frozen=True, gc=False):
    """A UDPRoute."""

    of_requests: ClassVar = False
    spec: ConnectionRouteSpec = ConnectionRouteSpec()
    status: RouteStatus = RouteStatus()


AnyRoute = HTTPRoute | GRPCRoute | TLSRoute | TCPRoute | UDPRoute

HTTP_ROUTES = Resource(GATEWAY_GROUP, VERSION, "HTTPRoute", "httproutes", True, HTTPRoute)
GRPC_ROUTES = Resource(GATEWAY_GROUP, VERSION, "GRPCRoute", "grpcroutes", True, GRPCRoute)
TLS_ROUTES = Resource(GATEWAY_GROUP, VERSION, "TLSRoute", "tlsroutes", True, TLSRoute)
TCP_ROUTES = Resource(GATEWAY_GROUP, VERSION, "TCPRoute", "tcproutes", True, TCPRoute)
UDP_ROUTES = Resource(GATEWAY_GROUP, VERSION, "UDPRoute", "udproutes", True, UDPRoute)
ROUTES: tuple[AnyResource, ...] = (HTTP_ROUTES, GRPC_ROUTES, TLS_ROUTES, TCP_ROUTES, UDP_ROUTES)


class GrantFrom(Wire, frozen=True, gc=False):
    """Who may refer."""

    group: str = ""
    kind: str = ""
    namespace: str = ""


class GrantTo(Wire, frozen=True, gc=False):
    """What may be referred to; without ``name`` all of the kind."""

    group: str = ""
    kind: str = ""
    name: str | None = None


class ReferenceGrantSpec(Wire, frozen=True, gc=False, rename={"from_": "from"}):
    """Each of ``from`` may refer to each of ``to`` in the namespace of the grant."""

    from_: list[GrantFrom] | None = None
    to: list[GrantTo] | None = None


class ReferenceGrant(KubeObject, frozen=True, gc=False):
    """A ReferenceGrant."""

    spec: ReferenceGrantSpec = ReferenceGrantSpec()


class PolicyTarget(Wire, frozen=True, gc=False):
    """A Service in the namespace of the policy; ``sectionName`` is the name of one of its ports."""

    group: str = ""
    kind: str = ""
    name: str = ""
    section_name: str | None = None


class PolicySubjectAltName(Wire, frozen=True, gc=False):
    """``type`` is Hostname or URI, with the field of the same name."""

    type: str = ""
    hostname: str = ""
    uri: str = ""


class BackendValidation(Wire, frozen=True, gc=False):
    """How a backend's certificate is verified."""

    ca_certificate_refs: list[Reference] | None = None
    well_known_ca_certificates: str | None = msgspec.field(default=None, name="wellKnownCACertificates")
    hostname: str = ""
    subject_alt_names: list[PolicySubjectAltName] | None = None


class BackendTLSPolicySpec(Wire, frozen=True, gc=False):
    """Speak TLS to the backends of these Services."""

    target_refs: list[PolicyTarget] | None = None
    validation: BackendValidation = BackendValidation()
    options: dict[str, str] | None = None


class PolicyAncestorStatus(Wire, frozen=True, gc=False):
    """The status of a policy at one Gateway."""

    ancestor_ref: ParentReference = ParentReference()
    controller_name: str = ""
    conditions: list[WireCondition] | None = None


class PolicyStatus(Wire, frozen=True, gc=False):
    """The status of a policy, for 16 Gateways at most; entries of other controllers stay as they are."""

    ancestors: list[PolicyAncestorStatus] | None = None


class BackendTLSPolicy(KubeObject, frozen=True, gc=False):
    """A BackendTLSPolicy."""

    spec: BackendTLSPolicySpec = BackendTLSPolicySpec()
    status: PolicyStatus = PolicyStatus()


#: v1beta1 is what every release of the CRDs serves and stores; v1 has the same fields.
REFERENCE_GRANTS = Resource(GATEWAY_GROUP, "v1beta1", "ReferenceGrant", "referencegrants", True, ReferenceGrant)
BACKEND_TLS_POLICIES = Resource(
    GATEWAY_GROUP, VERSION, "BackendTLSPolicy", "backendtlspolicies", True, BackendTLSPolicy
)
