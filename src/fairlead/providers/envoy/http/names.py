"""The names of a load balancer's L7 resources, and the hostnames that they match.

All names begin with kind/namespace/name of the load balancer, which names the owner
(``providers.envoy.resources.load_balancer_of``). Listeners are named like those of L4.
A hostname pattern is a name, a name that begins with ``*.`` (any number of labels, as in Gateway API), or empty: every
host. All are compared in lower case, and the most specific one wins.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from fairlead.model.desired import FrontendSpec
from fairlead.model.http import Route
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.settings import http_settings

#: Represents the empty hostname (every host).
ANY_HOST = "*"


def unresolved_name(key: LoadBalancerKey) -> str:
    """Name a cluster that never exists: a share of requests that leads to it is answered 500."""
    return f"{key}/unresolved/-"


def udp_cluster_name(key: LoadBalancerKey, port: int) -> str:
    """Name the cluster that holds the weighted endpoints of all backends of a UDP port."""
    return f"{key}/udp/{port}"


def figures_name(key: LoadBalancerKey, route: Route) -> str:
    """Name the statistics of all entries of a route: after the member's object, which several routes may be for."""
    return f"{key}/route/{route.name.partition('.')[0]}/{route.origin or route.name}"


def routes_name(key: LoadBalancerKey, port: int, hostname: str | None, *, guarded: str | None = None) -> str:
    """Name the route configuration of a port (None), or of the listener with this hostname on it.

    ``guarded``: its routes check clients or requests, or keep sessions, with filters that this text describes.
    Connections of a listener
    that does not have these filters, and drains, never get these routes.
    """
    name = f"{key}/{'routes' if guarded is None else f'guarded-routes{guarded}'}/{port}"
    return name if hostname is None else f"{name}/{hostname or ANY_HOST}"


def http3_listener_name(key: LoadBalancerKey, port: int) -> str:
    """Name the HTTP/3 listener of a TCP listener."""
    return f"{key}/http3/{port}"


def certificate_name(key: LoadBalancerKey, certificate: str) -> str:
    """Name the secret with a certificate and its key."""
    return f"{key}/certificate/{certificate}"


def client_authority_name(key: LoadBalancerKey, port: int, hostname: str) -> str:
    """Name the secret with the authorities of client certificates of a listener."""
    return f"{key}/client-authority/{port}/{hostname or ANY_HOST}"


def backend_authority_name(key: LoadBalancerKey, backend: str) -> str:
    """Name the secret with the authorities of a backend's certificate."""
    return f"{key}/backend-authority/{backend}"


def http3_ports(spec: FrontendSpec) -> list[int]:
    """Return the ports that a load balancer serves over HTTP/3, too, in order; its settings must be valid."""
    if spec.l7 is None or not http_settings(spec.parameters).http3:
        return []
    return sorted({listener.port for listener in spec.l7.listeners if listener.protocol == "HTTPS"})


def normal(hostname: str) -> str:
    """Return a name or pattern in the form for comparison: lower case, no dot at the end, ``*`` as empty."""
    return "" if hostname == "*" else hostname.lower().removesuffix(".")


def patterns_for(hostname: str) -> Iterator[str]:
    """Yield every pattern that covers a name (or pattern), the most specific one first; the last is empty."""
    if hostname:
        yield hostname
        rest = hostname.removeprefix("*.") if hostname.startswith("*.") else hostname
        while "." in rest:
            rest = rest.partition(".")[2]
            yield f"*.{rest}"
    yield ""


def most_specific(hostname: str, among: Container[str]) -> str | None:
    """Return the most specific pattern of ``among`` that covers a name or pattern; None when there is none."""
    return next((pattern for pattern in patterns_for(hostname) if pattern in among), None)


def has_one_label_more(hostname: str, wildcard: str) -> bool:
    """Return whether a name has exactly one label in the place of the star."""
    suffix = wildcard.removeprefix("*")
    return hostname.endswith(suffix) and "." not in hostname.removesuffix(suffix) and not hostname.startswith("*")
