"""The status of a GatewayClass of ours.

In: the class, and which version and channel of Gateway API's CRDs the cluster has. Out: its status. Pure.
"""

from __future__ import annotations

from fairlead.agent.l7.gateway.judgements import ACCEPTED, bad, good, wire_judgements
from fairlead.agent.l7.gateway.plan import Judgement
from fairlead.api.gateway import GatewayClass, GatewayClassStatus, SupportedFeature
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import GROUP

SUPPORTED_VERSION = "SupportedVersion"
#: The bundle versions that the conformance suite has been run with, as prefixes.
_VERSIONS = ("v1.6.",)


def gateway_class_status(
    gateway_class: GatewayClass, *, now: str, bundle_version: str = "", channel: str = ""
) -> GatewayClassStatus:
    """Return the status of a class of ours.

    ``bundle_version`` and ``channel`` are those annotations of the CRDs, empty when they are not known.
    """
    judgements = [_accepted(gateway_class)]
    if bundle_version:
        judgements.append(_supported(bundle_version))
    conditions = wire_judgements(
        judgements, gateway_class.status.conditions, generation=gateway_class.metadata.generation, now=now
    )
    return GatewayClassStatus(conditions, [SupportedFeature(each) for each in supported_features(channel)])


def load_balancer_class_of(gateway_class: GatewayClass) -> str:
    """Return the LoadBalancerClass of the hub that a class names, empty for the default one."""
    named = gateway_class.spec.parameters_ref
    return named.name if named is not None and not parameters_problem(gateway_class) else ""


def parameters_problem(gateway_class: GatewayClass) -> str:
    """Return what is wrong with the class's ``parametersRef``, empty when nothing is."""
    named = gateway_class.spec.parameters_ref
    kind = LOAD_BALANCER_CLASSES.kind
    if named is None or ((named.group, named.kind, named.namespace) == (GROUP, kind, "") and named.name):
        return ""
    shown = f"{named.kind}.{named.group}" if named.group else named.kind
    return f"spec.parametersRef: {shown} {named.name} is no {kind}.{GROUP}; name one of the hub, without a namespace"


def _accepted(gateway_class: GatewayClass) -> Judgement:
    problem = parameters_problem(gateway_class)
    return bad(ACCEPTED, "InvalidParameters", problem) if problem else good(ACCEPTED)


def _supported(bundle_version: str) -> Judgement:
    if bundle_version.startswith(_VERSIONS):
        return good(SUPPORTED_VERSION, f"the CRDs of Gateway API are {bundle_version}")
    message = f"the CRDs of Gateway API are {bundle_version}; tested with {', '.join(f'{each}x' for each in _VERSIONS)}"
    return bad(SUPPORTED_VERSION, "UnsupportedVersion", message)


EXPERIMENTAL = "experimental"

_STANDARD = (
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayInfrastructurePropagation",
    "GatewayPort8080",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
)
#: Their fields are in the CRDs of the experimental channel only.
_EXPERIMENTAL = ("HTTPRouteRetry", "HTTPRouteRetryBackendTimeout", "HTTPRouteRetryConnectionError")


def supported_features(channel: str) -> tuple[str, ...]:
    """Return the features that are true with CRDs of ``channel``; any other than experimental counts as standard."""
    return tuple(sorted((*_STANDARD, *(_EXPERIMENTAL if channel == EXPERIMENTAL else ()))))
