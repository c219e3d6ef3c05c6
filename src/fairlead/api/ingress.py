"""Ingress and IngressClass of networking.k8s.io/v1, reduced to the fields that we read.

Source: https://kubernetes.io/docs/reference/kubernetes-api/service-resources/ingress-v1/
"""

from __future__ import annotations

from fairlead.api.kubernetes import LoadBalancerStatus
from fairlead.api.meta import KubeObject, Resource, Wire
from fairlead.api.names import INGRESS_CONTROLLER

ANNOTATION_DEFAULT_CLASS = "ingressclass.kubernetes.io/is-default-class"
#: Counts only where ``spec.ingressClassName`` is absent.
ANNOTATION_LEGACY_CLASS = "kubernetes.io/ingress.class"


class IngressPort(Wire, frozen=True, gc=False):
    """A port of a Service, by name or by number."""

    name: str = ""
    number: int = 0


class IngressService(Wire, frozen=True, gc=False):
    """A Service in the namespace of the Ingress."""

    name: str = ""
    port: IngressPort = IngressPort()


class TypedReference(Wire, frozen=True, gc=False):
    """Any other object; a backend of this kind is refused."""

    api_group: str | None = None
    kind: str = ""
    name: str = ""


class IngressBackend(Wire, frozen=True, gc=False):
    """A backend: a Service, or a resource."""

    service: IngressService | None = None
    resource: TypedReference | None = None


class IngressPath(Wire, frozen=True, gc=False):
    """One path of a host; ``pathType`` is Exact, Prefix or ImplementationSpecific."""

    path: str = ""
    path_type: str = "ImplementationSpecific"
    backend: IngressBackend = IngressBackend()


class IngressRuleValue(Wire, frozen=True, gc=False):
    """The paths of a host."""

    paths: list[IngressPath] | None = None


class IngressRule(Wire, frozen=True, gc=False):
    """One host, empty for all of them; without ``http`` all its requests go to the default backend."""

    host: str = ""
    http: IngressRuleValue | None = None


class IngressTls(Wire, frozen=True, gc=False):
    """Hosts that are served over HTTPS with the certificate in a Secret."""

    hosts: list[str] | None = None
    secret_name: str = ""


class IngressSpec(Wire, frozen=True, gc=False):
    """The spec of an Ingress."""

    ingress_class_name: str | None = None
    default_backend: IngressBackend | None = None
    rules: list[IngressRule] | None = None
    tls: list[IngressTls] | None = None


class IngressStatus(Wire, frozen=True, gc=False):
    """The addresses of an Ingress."""

    load_balancer: LoadBalancerStatus = LoadBalancerStatus()


class IngressObject(KubeObject, frozen=True, gc=False):
    """A networking.k8s.io/v1 Ingress."""

    spec: IngressSpec = IngressSpec()
    status: IngressStatus = IngressStatus()


class IngressClassSpec(Wire, frozen=True, gc=False):
    """Whose class it is; ``parameters`` of ours name a LoadBalancerClass of the hub."""

    controller: str = ""
    parameters: TypedReference | None = None


class IngressClass(KubeObject, frozen=True, gc=False):
    """A networking.k8s.io/v1 IngressClass."""

    spec: IngressClassSpec = IngressClassSpec()

    @property
    def is_ours(self) -> bool:
        """Return whether Fairlead serves the Ingresses of this class."""
        return self.spec.controller == INGRESS_CONTROLLER

    @property
    def load_balancer_class(self) -> str:
        """Return the LoadBalancerClass that its parameters name; empty for the default one."""
        named = self.spec.parameters
        return named.name if named is not None and named.kind == "LoadBalancerClass" else ""


INGRESSES = Resource("networking.k8s.io", "v1", "Ingress", "ingresses", True, IngressObject)
INGRESS_CLASSES = Resource("networking.k8s.io", "v1", "IngressClass", "ingressclasses", False, IngressClass)
