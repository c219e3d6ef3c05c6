"""The string formats of OpenAPI schemas; unknown ones accept every string, as in Kubernetes."""

from __future__ import annotations

import base64
import ipaddress
import re
import uuid
from collections.abc import Callable
from datetime import date
from urllib.parse import urlsplit

from podless.objects import seconds

_HOST = re.compile(
    r"^(?=.{1,253}\Z)[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*\Z"
)
_MAIL = re.compile(r"^[^@\s]+@[^@\s]+\Z")
_DURATION = re.compile(r"^[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h|d|w))+\Z")


def parse_check(parse: Callable[[str], object]) -> Callable[[str], bool]:
    """Return a predicate: whether ``parse`` accepts a string without a ``ValueError``."""

    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


def _cidr(text: str) -> object:
    if "/" not in text:
        raise ValueError(text)
    return ipaddress.ip_network(text, strict=False)


def _uri(text: str) -> object:
    if not urlsplit(text).scheme and not text.startswith("/"):
        raise ValueError(text)
    return text


CHECKS: dict[str, Callable[[str], bool]] = {
    "ipv4": parse_check(ipaddress.IPv4Address),
    "ipv6": parse_check(ipaddress.IPv6Address),
    "ip": parse_check(ipaddress.ip_address),
    "cidr": parse_check(_cidr),
    "hostname": lambda text: bool(_HOST.match(text)),
    "email": lambda text: bool(_MAIL.match(text)),
    "uri": parse_check(_uri),
    "uuid": parse_check(uuid.UUID),
    "date": parse_check(date.fromisoformat),
    "date-time": lambda text: seconds(text) is not None and "T" in text.upper(),
    "duration": lambda text: bool(_DURATION.match(text)),
    "byte": parse_check(lambda text: base64.b64decode(text, validate=True)),
}


def matches_format(text: str, name: str) -> bool:
    """Return whether ``text`` is valid in the format ``name``."""
    check = CHECKS.get(name)
    return check is None or check(text)
