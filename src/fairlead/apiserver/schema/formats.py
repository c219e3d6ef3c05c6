"""The formats of texts that a schema names; unknown ones accept everything, as in Kubernetes."""

from __future__ import annotations

import base64
import ipaddress
import re
import uuid
from collections.abc import Callable
from datetime import date
from urllib.parse import urlsplit

from fairlead.apiserver.objects import seconds

_HOST = re.compile(
    r"^(?=.{1,253}\Z)[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*\Z"
)
_MAIL = re.compile(r"^[^@\s]+@[^@\s]+\Z")
_DURATION = re.compile(r"^[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h|d|w))+\Z")


def parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    """Return the check that ``parse`` raises no ``ValueError``."""

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
    "ipv4": parses(ipaddress.IPv4Address),
    "ipv6": parses(ipaddress.IPv6Address),
    "ip": parses(ipaddress.ip_address),
    "cidr": parses(_cidr),
    "hostname": lambda text: bool(_HOST.match(text)),
    "email": lambda text: bool(_MAIL.match(text)),
    "uri": parses(_uri),
    "uuid": parses(uuid.UUID),
    "date": parses(date.fromisoformat),
    "date-time": lambda text: seconds(text) is not None and "T" in text.upper(),
    "duration": lambda text: bool(_DURATION.match(text)),
    "byte": parses(lambda text: base64.b64decode(text, validate=True)),
}


def fits(text: str, name: str) -> bool:
    """Return whether ``text`` is of the format ``name``."""
    check = CHECKS.get(name)
    return check is None or check(text)
