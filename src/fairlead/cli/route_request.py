"""The request that was typed: ``METHOD URL -H 'name: value'``, as clients of HTTP take it.

In: arguments. Out: a ``TypedRequest``. Never: a request that no client could send; ``BadConfiguration`` names the
argument, and has an example.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec

from fairlead.errors import BadConfiguration
from fairlead.providers.envoy.http.route_lookup import Request

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PORTS = {"http": 80, "https": 443}
_EXAMPLE = "as in: fairlead route GET https://shop.example.com/cart -H 'x-version: 2'"


class TypedRequest(msgspec.Struct, frozen=True):
    """A request; ``secure`` when it comes over TLS. ``address`` is the host of the URL when that is an IP address."""

    request: Request
    secure: bool
    address: str = ""

    @property
    def title(self) -> str:
        """Return method and URL, as sentences have them."""
        scheme = "https" if self.secure else "http"
        host = self.request.host
        port = "" if self.request.port == _PORTS[scheme] or ":" in host.rpartition("]")[2] else f":{self.request.port}"
        return f"{self.request.method} {scheme}://{host}{port}{self.request.target}"


def parse_request(method: str, url: str, headers: Iterable[str] = ()) -> TypedRequest:
    """Return what was typed; a header Host replaces the host of the URL, and the server name stays that of the URL."""
    if "://" in method:
        raise BadConfiguration(f"the method comes first, {_EXAMPLE}")
    if not _TOKEN.fullmatch(method):
        raise BadConfiguration(f"{method!r} is no method such as GET, {_EXAMPLE}")
    scheme, host, port, target = _parts(url)
    pairs = [_header(text) for text in headers]
    given = [value for name, value in pairs if name.lower() == "host"]
    if len(given) > 1:
        raise BadConfiguration("-H: a request has one Host header only")
    address = _address(host)
    name = f"[{address}]" if ":" in address else host
    written = name if port in (0, _PORTS[scheme]) else f"{name}:{port}"
    secure = scheme == "https"
    return TypedRequest(
        Request(
            host=given[0] if given else written,
            target=target,
            method=method.upper(),
            headers=tuple((name, value) for name, value in pairs if name.lower() != "host"),
            port=port or _PORTS[scheme],
            # A client sends no server name for an address.
            server_name="" if address or not secure else host,
        ),
        secure,
        address,
    )


def _parts(url: str) -> tuple[str, str, int, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadConfiguration(f"{url!r} is no URL: {error}; {_EXAMPLE}") from error
    if parts.scheme not in _PORTS or not host:
        raise BadConfiguration(f"{url!r} is no URL that begins with http:// or https://, {_EXAMPLE}")
    if parts.username is not None:
        raise BadConfiguration(f"{url!r}: a user name is a header, as in -H 'Authorization: ...'")
    if not url.isprintable() or not url.isascii() or " " in url:
        raise BadConfiguration(f"{url!r}: write what is not printable ASCII as %XX, and a host in its ASCII form")
    path = parts.path or "/"
    return parts.scheme, host, port or 0, f"{path}?{parts.query}" if parts.query else path


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not _TOKEN.fullmatch(name.strip()):
        raise BadConfiguration(f"-H: {text!r} is not 'name: value'")
    return name.strip(), value.strip()


def _address(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""
