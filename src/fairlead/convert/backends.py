"""The backend of an Ingress in Gateway API, and the protocol to it.

In: a backend of an Ingress, the Services that are known, the annotations. Out: a ``RouteBackendRef`` with the number of
the port, a BackendTLSPolicy where TLS is spoken, and remarks: Gateway API cannot name a port, and always verifies.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.gateway import Reference
from fairlead.api.gateway_policies import BackendTLSPolicy, BackendTLSPolicySpec, BackendValidation, PolicyTarget
from fairlead.api.gateway_routes import RouteBackendRef
from fairlead.api.ingress import IngressBackend, IngressObject
from fairlead.api.kubernetes import Service
from fairlead.api.meta import ObjectKey, ObjectMeta
from fairlead.convert.remarks import Remarks

_TLS = frozenset({"HTTPS", "GRPCS"})
_HTTP2 = frozenset({"GRPC", "GRPCS"})


def backend_ref(
    ingress: IngressObject, backend: IngressBackend, services: Mapping[ObjectKey, Service], remarks: Remarks
) -> RouteBackendRef | None:
    """Return the reference; None, with a remark, when there is none."""
    if backend.service is None:
        description = f"{backend.resource.kind} {backend.resource.name}" if backend.resource else "an empty backend"
        remarks.lost(ingress, "backend", f"{description} is not a Service; its path is left out")
        return None
    name, port = backend.service.name, backend.service.port
    if port.number:
        return RouteBackendRef(name=name, port=port.number)
    service = services.get(ObjectKey(ingress.metadata.namespace, name))
    if service is None:
        remarks.lost(
            ingress,
            "backend",
            f"port {port.name} of Service {name} is a name, and Gateway API has numbers only: give the Service too",
        )
        return None
    ports = [each for each in service.spec.ports or () if each.protocol == "TCP"]
    number = next((each.port for each in ports if each.name == port.name), 0)
    if not number:
        remarks.lost(ingress, "backend", f"Service {name} has no TCP port {port.name}; its path is left out")
        return None
    return RouteBackendRef(name=name, port=number)


def check_protocol(ingress: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> bool:
    """Return whether TLS is spoken to the backends; note what the annotation cannot become."""
    protocol = annotations.get("backend-protocol", "HTTP").upper()
    if protocol in _HTTP2:
        remarks.note(
            ingress, "backend-protocol", "set appProtocol: kubernetes.io/h2c on the port of each Service, for HTTP/2"
        )
    if protocol not in {"HTTP", *_TLS, *_HTTP2}:
        remarks.lost(ingress, "backend-protocol", f"{protocol} is not supported by Gateway API: HTTP is used")
    return protocol in _TLS


def tls_policy(
    ingress: IngressObject, service: str, annotations: Mapping[str, str], remarks: Remarks
) -> BackendTLSPolicy:
    """Return the policy by which TLS is spoken to a Service of the Ingress's namespace."""
    namespace = ingress.metadata.namespace
    hostname = annotations.get("proxy-ssl-name", "") or f"{service}.{namespace}.svc"
    if annotations.get("proxy-ssl-verify", "off") != "on":
        why = f"nginx did not verify the certificate, Gateway API always does: it has to be valid for {hostname}"
        remarks.lost(ingress, "backend-protocol", why)
    validation = BackendValidation(well_known_ca_certificates="System", hostname=hostname)
    if secret := annotations.get("proxy-ssl-secret", ""):
        name = secret.rpartition("/")[2]
        remarks.note(
            ingress, "proxy-ssl-secret", f"put ca.crt of Secret {secret} into a ConfigMap {name} in {namespace}"
        )
        reference = Reference(group="", kind="ConfigMap", name=name)
        validation = BackendValidation(ca_certificate_refs=[reference], hostname=hostname)
    return BackendTLSPolicy(
        metadata=ObjectMeta(name=f"{service}-tls", namespace=namespace),
        spec=BackendTLSPolicySpec([PolicyTarget("", "Service", service)], validation),
    )
