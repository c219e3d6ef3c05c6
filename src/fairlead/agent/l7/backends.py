"""Resolves a port of a Service to a backend. Shared by everything that names Services: Ingress, Gateway API.

In: a Service, a port by name or number. Out: a ``Backend``, or a sentence why there is none. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.api.kubernetes import Service, ServicePort
from fairlead.model.http import Backend, BackendProtocol
from fairlead.model.in_words import listed
from fairlead.publish.service import families_of, written_families

#: What ``appProtocol`` of a Service port says about how its backends are spoken to.
_PROTOCOLS: dict[str, BackendProtocol] = {
    "kubernetes.io/h2c": "HTTP2",
    "h2c": "HTTP2",
    "http2": "HTTP2",
    "grpc": "HTTP2",
    "kubernetes.io/ws": "HTTP1",
    "http": "HTTP1",
}
#: Values of ``appProtocol`` that mean TLS, which only a BackendTLSPolicy says how to verify.
TLS_ONLY = frozenset({"https", "kubernetes.io/wss"})


def find_port(service: Service, *, name: str = "", number: int = 0, protocol: str) -> ServicePort | None:
    """Return the port of ``service`` with this name or number: a Service may have both protocols at one number."""
    ports = [port for port in service.spec.ports or () if port.protocol == protocol]
    return next((port for port in ports if (port.name == name if name else port.port == number)), None)


def ports_of(service: Service) -> str:
    """Return the ports that a Service has, as the end of a sentence about one that it does not have."""
    ports = service.spec.ports or ()
    texts = [f"{port.port}/{port.protocol}" + (f" ({port.name})" if port.name else "") for port in ports]
    return f"; it has {listed(texts, 10)}" if texts else "; it has no ports"


def missing_service(namespace: str, name: str, services: Iterable[Service]) -> str:
    """Return that a Service does not exist, and where one of that name does."""
    others = sorted(each.metadata.namespace for each in services if each.metadata.name == name)
    hint = f"; there is one in namespace {listed(others, 3)}" if others else ""
    return f"there is no Service {name} in namespace {namespace}{hint}"


def backend_of(service: Service, port: ServicePort) -> Backend:
    """Return the backend that stands for ``port``; the same for every route that names it."""
    key = f"{service.metadata.namespace}/{service.metadata.name}"
    return Backend(
        name=f"{key}:{port.port}",
        service=key,
        port_name=port.name,
        node_port=port.node_port,
        ip_families=written_families(families_of(service)),
        protocol=_PROTOCOLS.get(port.app_protocol or "", "HTTP1"),
    )
