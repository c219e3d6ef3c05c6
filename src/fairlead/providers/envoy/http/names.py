"""The names of a load balancer's L7 resources, the hostnames that they match, and the settings of its class.

All names begin with kind/namespace/name of the load balancer, which names the owner
(``providers.envoy.resources.load_balancer_of``). Listeners are named like those of L4.
A hostname pattern is a name, a name that begins with ``*.`` (any number of labels, as in Gateway API), or empty: every
host. All are compared in lower case, and the most specific one wins.
Settings are ``FrontendSpec.parameters``; names that are not ours are left to others.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

import msgspec

from fairlead.api.annotations import (
    AcceptProxyProtocol,
    Limits,
    accept_problem,
    connection_limits_problem,
    kib_per_second,
    read_accept_proxy_protocol,
    read_limits,
)
from fairlead.model.desired import FrontendSpec
from fairlead.model.http import Route
from fairlead.model.in_words import whole_number
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.envoy.access_log import (
    ACCESS_LOG,
    ACCESS_LOG_SINK,
    COLLECTOR_CA,
    TRACING,
    TRACING_SINK,
    LogSettings,
    TraceSettings,
    access_log_of,
    invalid_access_log,
    invalid_tracing,
    tracing_of,
)

#: Represents the empty hostname (every host).
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


TRUSTED_HOPS = "trustedHops"
ESCAPED_SLASHES = "escapedSlashes"
ACCEPT_PROXY_PROTOCOL = "acceptProxyProtocol"
#: Of load balancers of connections; that of a class holds for requests alone.
CONNECTIONS_ACCEPT = f"connections.{ACCEPT_PROXY_PROTOCOL}"
HTTP3 = "http3"
REQUESTS_PER_SECOND = "requestsPerSecond"
CONNECTIONS = "connections"
BANDWIDTH = "bandwidth"
LIMITS = "limits"
#: Begins parameters with annotations for the Services of Envoys in a cluster.
ANNOTATION_PARAMETER = "serviceAnnotation/"
#: Parameters that a class may set; the last two concern Envoys in a cluster.
SETTINGS = (
    ACCESS_LOG, ACCESS_LOG_SINK, TRACING, TRACING_SINK, COLLECTOR_CA, TRUSTED_HOPS, ESCAPED_SLASHES,
    ACCEPT_PROXY_PROTOCOL, REQUESTS_PER_SECOND, BANDWIDTH, LIMITS, CONNECTIONS, HTTP3, "address", "loadBalancerClass",
)  # fmt: skip

_ESCAPED_SLASHES = {"redirect": "UNESCAPE_AND_REDIRECT", "reject": "REJECT_REQUEST", "keep": "KEEP_UNCHANGED"}
_BOOLEAN = {"true": True, "false": False}
_MAX_HOPS = 16
_MAX_LIMIT = 10_000_000


class HttpSettings(msgspec.Struct, frozen=True):
    """The settings of HTTP listeners.

    ``trusted_hops``: so many proxies in front of us write X-Forwarded-For; 0: what a client writes there is removed.
    ``requests_per_second`` and ``connections`` are the most that one proxy admits at a listener, 0 for no limit. No
    setting of a user raises them.
    """

    access_log: LogSettings | None = None
    tracing: TraceSettings | None = None
    trusted_hops: int = 0
    #: Envoy's name of what is done with %2F and %5C in a path.
    escaped_slashes: str = "UNESCAPE_AND_REDIRECT"
    accept_proxy_protocol: AcceptProxyProtocol | None = None
    http3: bool = False
    requests_per_second: int = 0
    connections: int = 0
    #: Of requests, and of responses, in KiB a second.
    bandwidth_kib: int = 0
    #: What users set within these.
    limits: Limits = Limits()


def invalid_settings(parameters: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the parameters; empty when nothing is."""
    reasons = [*invalid_access_log(parameters), *invalid_tracing(parameters)]
    if parameters.get(ESCAPED_SLASHES, "redirect") not in _ESCAPED_SLASHES:
        choices = ", ".join(_ESCAPED_SLASHES)
        reasons.append(f"{ESCAPED_SLASHES} is {parameters[ESCAPED_SLASHES]!r}; choose one of {choices}")
    reasons += [
        f"{name} is {parameters[name]!r}; choose true or false"
        for name in (HTTP3,)
        if parameters.get(name, "false") not in _BOOLEAN
    ]
    if problem := accept_problem(parameters.get(ACCEPT_PROXY_PROTOCOL, "")):
        reasons.append(f"{ACCEPT_PROXY_PROTOCOL}: {problem}")
    try:
        read_limits(parameters.get(LIMITS, ""))
    except ValueError as error:
        reasons.append(f"{LIMITS}: {error}")
    if kib_per_second(parameters.get(BANDWIDTH, "")) is None:
        reasons.append(f"{BANDWIDTH} is {parameters[BANDWIDTH][:40]!r}; give bytes a second such as 10Mi")
    limits = {TRUSTED_HOPS: _MAX_HOPS, REQUESTS_PER_SECOND: _MAX_LIMIT, CONNECTIONS: _MAX_LIMIT}
    return reasons + [problem for name, most in limits.items() for problem in _number(parameters, name, most)]


def invalid_connections(parameters: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the parameters that hold for load balancers of connections, too."""
    reasons = [*invalid_access_log(parameters), *_number(parameters, CONNECTIONS, _MAX_LIMIT)]
    if problem := accept_problem(parameters.get(CONNECTIONS_ACCEPT, "")):
        reasons.append(f"{ACCEPT_PROXY_PROTOCOL}: {problem}")
    if problem := connection_limits_problem(parameters.get(LIMITS, "")):
        reasons.append(f"{LIMITS}: {problem}")
    return reasons


def _number(parameters: Mapping[str, str], name: str, most: int) -> Iterator[str]:
    number = parameters.get(name, "0")
    if whole_number(number, most=most) is None:
        yield f"{name} is {number[:40]!r}; give a number from 0 to {most}"


def connections_of(parameters: Mapping[str, str]) -> int:
    """Return the most connections of a listener, of whatever protocol; 0 for no limit.

    Users may set fewer than their class.
    """
    of_class = whole_number(parameters.get(CONNECTIONS, "0"), most=_MAX_LIMIT) or 0
    return least_limit(of_class, read_limits(parameters.get(LIMITS, "")).connections)


def least_limit(*limits: int) -> int:
    """Return the lowest of several limits, 0 for none."""
    return min((limit for limit in limits if limit), default=0)


def http_settings(parameters: Mapping[str, str]) -> HttpSettings:
    """Read the settings; they must have passed ``invalid_settings``."""
    return HttpSettings(
        access_log=access_log_of(parameters),
        tracing=tracing_of(parameters),
        trusted_hops=int(parameters.get(TRUSTED_HOPS, "0")),
        escaped_slashes=_ESCAPED_SLASHES[parameters.get(ESCAPED_SLASHES, "redirect")],
        accept_proxy_protocol=read_accept_proxy_protocol(parameters.get(ACCEPT_PROXY_PROTOCOL, "")),
        http3=_BOOLEAN[parameters.get(HTTP3, "false")],
        requests_per_second=int(parameters.get(REQUESTS_PER_SECOND, "0")),
        connections=connections_of(parameters),
        bandwidth_kib=least_limit(
            kib_per_second(parameters.get(BANDWIDTH, "")) or 0, read_limits(parameters.get(LIMITS, "")).bandwidth_kib
        ),
        limits=read_limits(parameters.get(LIMITS, "")),
    )


def http3_ports(spec: FrontendSpec) -> list[int]:
    """Return the ports that a load balancer serves over HTTP/3, too, in order; its settings must be valid."""
    if spec.l7 is None or not http_settings(spec.parameters).http3:
        return []
    return sorted({listener.port for listener in spec.l7.listeners if listener.protocol == "HTTPS"})


def normal(hostname: str) -> str:
    """Return a name or pattern as all of them are compared here: lower case, no dot at the end, ``*`` as empty."""
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
