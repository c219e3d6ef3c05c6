"""The settings that a class may give its L7 load balancers.

In: ``FrontendSpec.parameters``, which are those of the LoadBalancerClass. Out: typed settings, or what is wrong with
them. Names that are not ours are left to others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from fairlead.model.in_words import whole_number

ACCESS_LOG = "accessLog"
TRUSTED_HOPS = "trustedHops"
ESCAPED_SLASHES = "escapedSlashes"
ACCEPT_PROXY_PROTOCOL = "acceptProxyProtocol"
HTTP3 = "http3"
REQUESTS_PER_SECOND = "requestsPerSecond"
CONNECTIONS = "connections"

_ESCAPED_SLASHES = {
    "redirect": "UNESCAPE_AND_REDIRECT",
    "reject": "REJECT_REQUEST",
    "keep": "KEEP_UNCHANGED",
}
_BOOLEAN = {"true": True, "false": False}
_MAX_HOPS = 16
_MAX_LIMIT = 10_000_000


class HttpSettings(msgspec.Struct, frozen=True):
    """The settings of HTTP listeners.

    ``trusted_hops``: so many proxies in front of us write X-Forwarded-For; 0: what a client writes there is removed.
    ``requests_per_second`` and ``connections`` are the most that one proxy admits at a listener, 0 for no limit. No
    setting of a user raises them.
    """

    json_access_log: bool = False
    trusted_hops: int = 0
    #: Envoy's name of what is done with %2F and %5C in a path.
    escaped_slashes: str = "UNESCAPE_AND_REDIRECT"
    accept_proxy_protocol: bool = False
    http3: bool = False
    requests_per_second: int = 0
    connections: int = 0


def invalid_settings(parameters: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the parameters; empty when nothing is."""
    reasons: list[str] = []
    if parameters.get(ACCESS_LOG, "off") not in {"json", "off"}:
        reasons.append(f"{ACCESS_LOG} is {parameters[ACCESS_LOG]!r}; choose json or off")
    if parameters.get(ESCAPED_SLASHES, "redirect") not in _ESCAPED_SLASHES:
        choices = ", ".join(_ESCAPED_SLASHES)
        reasons.append(f"{ESCAPED_SLASHES} is {parameters[ESCAPED_SLASHES]!r}; choose one of {choices}")
    reasons += [
        f"{name} is {parameters[name]!r}; choose true or false"
        for name in (ACCEPT_PROXY_PROTOCOL, HTTP3)
        if parameters.get(name, "false") not in _BOOLEAN
    ]
    limits = {TRUSTED_HOPS: _MAX_HOPS, REQUESTS_PER_SECOND: _MAX_LIMIT, CONNECTIONS: _MAX_LIMIT}
    return reasons + [problem for name, most in limits.items() for problem in _number(parameters, name, most)]


def invalid_connections(parameters: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the one parameter that holds for load balancers of connections, too."""
    return list(_number(parameters, CONNECTIONS, _MAX_LIMIT))


def _number(parameters: Mapping[str, str], name: str, most: int) -> Iterator[str]:
    number = parameters.get(name, "0")
    if whole_number(number, most=most) is None:
        yield f"{name} is {number[:40]!r}; give a number from 0 to {most}"


def connections_of(parameters: Mapping[str, str]) -> int:
    """Return the most connections of a listener, of whatever protocol; 0 for no limit."""
    return whole_number(parameters.get(CONNECTIONS, "0"), most=_MAX_LIMIT) or 0


def http_settings(parameters: Mapping[str, str]) -> HttpSettings:
    """Read the settings; they must have passed ``invalid_settings``."""
    return HttpSettings(
        json_access_log=parameters.get(ACCESS_LOG) == "json",
        trusted_hops=int(parameters.get(TRUSTED_HOPS, "0")),
        escaped_slashes=_ESCAPED_SLASHES[parameters.get(ESCAPED_SLASHES, "redirect")],
        accept_proxy_protocol=_BOOLEAN[parameters.get(ACCEPT_PROXY_PROTOCOL, "false")],
        http3=_BOOLEAN[parameters.get(HTTP3, "false")],
        requests_per_second=int(parameters.get(REQUESTS_PER_SECOND, "0")),
        connections=connections_of(parameters),
    )
