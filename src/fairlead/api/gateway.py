"""GatewayClass, Gateway and ListenerSet of gateway.networking.k8s.io/v1, reduced to the fields that we read.

Source: https://gateway-api.sigs.k8s.io/reference/spec/ (v1.6)
"""

from __future__ import annotations

from fairlead.api.meta import JSONObject, KubeObject, Resource, Wire, WireCondition
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


class Listener(Wire, frozen=True, gc=False):
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
    listeners: list[Listener] | None = None
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
    listeners: list[Listener] | None = None


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
