"""The names of a load balancer's L7 resources.

All names begin with kind/namespace/name of the load balancer, so that their owner can be read off
(``providers.envoy.names.load_balancer_of``); what follows says what it is. Listeners are named as those of L4.
"""

from __future__ import annotations

from fairlead.model.http import Route
from fairlead.model.keys import LoadBalancerKey

#: What stands for the empty hostname (every host).
ANY_HOST = "*"


def cluster_name(key: LoadBalancerKey, backend: str) -> str:
    """Name the cluster, and the endpoints, of a backend."""
    return f"{key}/backend/{backend}"


def is_backend_of(key: LoadBalancerKey, name: str) -> bool:
    """Return whether a cluster, or endpoints, belong to a backend of requests."""
    return name.startswith(f"{key}/backend/")


def unresolved_name(key: LoadBalancerKey) -> str:
    """Name a cluster that never exists: a share of requests that leads to it is answered 500."""
    return f"{key}/unresolved/-"


def udp_cluster_name(key: LoadBalancerKey, port: int) -> str:
    """Name the cluster that holds the weighted endpoints of all backends of a UDP port."""
    return f"{key}/udp/{port}"


def figures_name(key: LoadBalancerKey, route: Route) -> str:
    """Name the statistics of all entries of a route: after the member's object, which several routes may be for."""
    return f"{key}/route/{route.name.partition('.')[0]}/{route.origin or route.name}"


def routes_name(key: LoadBalancerKey, port: int, hostname: str | None) -> str:
    """Name the route configuration of a port (None), or of the listener with this hostname on it."""
    name = f"{key}/routes/{port}"
    return name if hostname is None else f"{name}/{hostname or ANY_HOST}"


def http3_listener_name(key: LoadBalancerKey, port: int) -> str:
    """Name the listener of HTTP/3 beside that of TCP."""
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
