"""Resolves the backend references of a route to backends, or to the reason why there is none.

    what is tested                                            ResolvedRefs=False
    --------------------------------------------------------  -------------------
    group and kind: a Service                                 InvalidKind
    in another namespace: a ReferenceGrant permits it         RefNotPermitted
    the Service is there, can be reached, and has the port    BackendNotFound
    its port speaks what the route needs                      UnsupportedProtocol

A reference that is not permitted is reported as such whether or not the Service exists. The share of a reference
without a backend is answered 500, or its connection closed; so is that of a Service of which a BackendTLSPolicy cannot
be fulfilled: it is never spoken to in plain text. In: a reference, Services, grants, policies. Out: names of backends.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from fairlead.agent.l7.backends import TLS_ONLY, backend_of, find_port, ports_of
from fairlead.agent.l7.gateway.judgements import RESOLVED_REFS, bad, good
from fairlead.agent.l7.gateway.plan import BackendPolicy, Judgement
from fairlead.agent.l7.gateway.references import SERVICE, permits
from fairlead.api.gateway import GATEWAY_GROUP, BackendObject, GrantFrom, ReferenceGrant, RouteBackendRef
from fairlead.api.kubernetes import Service, ServicePort
from fairlead.model.http import Backend, BackendProtocol

#: How the backends of a route are spoken to; those of an HTTPRoute as ``appProtocol`` says.
_SPOKEN: dict[str, BackendProtocol] = {"GRPCRoute": "HTTP2", "TLSRoute": "TCP", "TCPRoute": "TCP", "UDPRoute": "UDP"}

AnyBackendRef = BackendObject | RouteBackendRef


def service_key(reference: AnyBackendRef, namespace: str) -> tuple[str, str] | None:
    """Return namespace and name of the Service that is meant, None when it is no Service."""
    if (reference.group or "", reference.kind or "Service") != SERVICE:
        return None
    return (reference.namespace or namespace, reference.name)


class BackendRefs:
    """Resolves the references of one route, and collects the backends and what is wrong.

    ``passthrough``: connections carry the client's own TLS, so policies play no part; ``terminated``: there are such
    from which TLS is taken. With both, a Service with a policy cannot be a backend.
    """

    def __init__(
        self,
        *,
        kind: str,
        namespace: str,
        services: Mapping[tuple[str, str], Service],
        grants: Iterable[ReferenceGrant],
        policies: Mapping[tuple[str, str, str], BackendPolicy],
        unreachable: Mapping[tuple[str, str], str] | None = None,
        passthrough: bool = False,
        terminated: bool = True,
    ) -> None:
        self.backends: dict[str, Backend] = {}
        self._kind = kind
        self._namespace = namespace
        self._services = services
        self._grants = tuple(grants)
        self._policies = policies
        self._unreachable = unreachable or {}
        self._passthrough = passthrough
        self._terminated = terminated
        #: Reason and sentence of each problem, in the order in which they were met.
        self._problems: dict[tuple[str, str], None] = {}

    def resolve(self, reference: AnyBackendRef) -> str:
        """Return the name of the backend, empty when there is none."""
        key = service_key(reference, self._namespace)
        if key is None:
            group = f"{reference.group}/" if reference.group else ""
            return self._no(
                "InvalidKind", f"{group}{reference.kind} {reference.name} cannot be a backend: use Services"
            )
        namespace, name = key
        origin = GrantFrom(GATEWAY_GROUP, self._kind, self._namespace)
        if not permits(self._grants, origin, SERVICE, namespace, name):
            return self._no(
                "RefNotPermitted",
                f"no ReferenceGrant in namespace {namespace} lets {self._kind}s of namespace {self._namespace} "
                f"refer to Service {name}",
            )
        service, unreachable = self._services.get(key), self._unreachable.get(key, "")
        if unreachable:
            self._no("BackendNotFound", unreachable)
        if service is None:
            missing = f"there is no Service {name} in namespace {namespace}"
            return self._no("BackendNotFound", unreachable or missing)
        if service.spec.type == "ExternalName":
            return self._no(
                "BackendNotFound", f"Service {namespace}/{name} is of type ExternalName: it has no endpoints"
            )
        return self._port(service, reference.port or 0)

    def judgement(self) -> Judgement:
        """Return condition ResolvedRefs; its reason is that of the first problem."""
        if not self._problems:
            return good(RESOLVED_REFS)
        message = "; ".join(sentence for _, sentence in self._problems)
        return bad(RESOLVED_REFS, next(iter(self._problems))[0], message)

    def _port(self, service: Service, number: int) -> str:
        named = f"Service {service.metadata.namespace}/{service.metadata.name}"
        transport = "UDP" if self._kind == "UDPRoute" else "TCP"
        port = find_port(service, number=number, protocol=transport)
        other = "TCP" if transport == "UDP" else "UDP"
        if port is None and find_port(service, number=number, protocol=other) is None:
            problem = f"has no port {number}{ports_of(service)}" if number else "is named without a port"
            return self._no("BackendNotFound", f"{named} {problem}")
        if port is None:
            return self._no("UnsupportedProtocol", f"port {number} of {named} is not {transport}")
        policy = self._policy(service, port)
        if self._passthrough and self._terminated and policy != BackendPolicy():
            return self._no(
                "UnsupportedProtocol",
                f"{named} has a BackendTLSPolicy, which cannot hold for a listener with mode Passthrough: "
                "use a route for each mode",
            )
        if policy.broken:
            return ""
        if policy.tls is None and self._kind in {"HTTPRoute", "GRPCRoute"} and port.app_protocol in TLS_ONLY:
            return self._no(
                "UnsupportedProtocol",
                f"port {number} of {named} speaks {port.app_protocol}: say in a BackendTLSPolicy how it is verified",
            )
        return self._backend(service, port, policy)

    def _policy(self, service: Service, port: ServicePort) -> BackendPolicy:
        if self._kind == "UDPRoute" or not self._terminated:
            return BackendPolicy()
        of_service = (service.metadata.namespace, service.metadata.name)
        of_port = self._policies.get((*of_service, port.name)) or self._policies.get((*of_service, ""))
        return of_port or BackendPolicy()

    def _backend(self, service: Service, port: ServicePort, policy: BackendPolicy) -> str:
        backend = backend_of(service, port)
        name, protocol = backend.name, _SPOKEN.get(self._kind, backend.protocol)
        # The same port may be spoken to in several ways within one load balancer: each is a backend of its own.
        if protocol != backend.protocol:
            name += f"/{protocol.lower()}"
        if policy.tls is not None:
            name += "/tls"
        self.backends[name] = msgspec.structs.replace(backend, name=name, protocol=protocol, tls=policy.tls)
        return name

    def _no(self, reason: str, sentence: str) -> str:
        self._problems[reason, sentence] = None
        return ""
