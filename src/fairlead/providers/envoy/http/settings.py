"""What may be set of an L7 load balancer beside its routes?

In: ``FrontendSpec.attributes``. Out: typed settings, or what is wrong with them. Names that are not ours are left to
others.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

ACCESS_LOG = "accessLog"
TRUSTED_HOPS = "trustedHops"
ESCAPED_SLASHES = "escapedSlashes"
ACCEPT_PROXY_PROTOCOL = "acceptProxyProtocol"

_ESCAPED_SLASHES = {
    "redirect": "UNESCAPE_AND_REDIRECT",
    "reject": "REJECT_REQUEST",
    "keep": "KEEP_UNCHANGED",
}
_BOOLEAN = {"true": True, "false": False}


class HttpSettings(msgspec.Struct, frozen=True):
    """How requests are taken.

    ``trusted_hops``: so many proxies in front of us write X-Forwarded-For; 0: what a client writes there is removed.
    """

    json_access_log: bool = False
    trusted_hops: int = 0
    #: Envoy's name of what is done with %2F and %5C in a path.
    escaped_slashes: str = "UNESCAPE_AND_REDIRECT"
    accept_proxy_protocol: bool = False


def invalid_settings(attributes: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the attributes; empty when nothing is."""
    reasons: list[str] = []
    if attributes.get(ACCESS_LOG, "off") not in {"json", "off"}:
        reasons.append(f"{ACCESS_LOG} is {attributes[ACCESS_LOG]!r}; choose json or off")
    hops = attributes.get(TRUSTED_HOPS, "0")
    if not (hops.isascii() and hops.isdigit() and int(hops) <= 16):
        reasons.append(f"{TRUSTED_HOPS} is {hops!r}; give a number from 0 to 16")
    if attributes.get(ESCAPED_SLASHES, "redirect") not in _ESCAPED_SLASHES:
        choices = ", ".join(_ESCAPED_SLASHES)
        reasons.append(f"{ESCAPED_SLASHES} is {attributes[ESCAPED_SLASHES]!r}; choose one of {choices}")
    if attributes.get(ACCEPT_PROXY_PROTOCOL, "false") not in _BOOLEAN:
        reasons.append(f"{ACCEPT_PROXY_PROTOCOL} is {attributes[ACCEPT_PROXY_PROTOCOL]!r}; choose true or false")
    return reasons


def http_settings(attributes: Mapping[str, str]) -> HttpSettings:
    """Read the settings; they must have passed ``invalid_settings``."""
    return HttpSettings(
        json_access_log=attributes.get(ACCESS_LOG) == "json",
        trusted_hops=int(attributes.get(TRUSTED_HOPS, "0")),
        escaped_slashes=_ESCAPED_SLASHES[attributes.get(ESCAPED_SLASHES, "redirect")],
        accept_proxy_protocol=_BOOLEAN[attributes.get(ACCEPT_PROXY_PROTOCOL, "false")],
    )
