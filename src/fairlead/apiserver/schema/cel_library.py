"""The CEL functions of Kubernetes that the CEL package lacks.

Values pass between functions as plain text and numbers, so ``quantity(x).isLessThan(quantity(y))`` works on numbers and
``ip(x).family()`` on text. Source: https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from fairlead.apiserver.schema.formats import matches_format, parse_check

_DECIMAL = {"": 1, "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "k": 10**3, "M": 10**6, "G": 10**9}
_BINARY = {"T": 10**12, "P": 10**15, "E": 10**18, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_SUFFIX: dict[str, Any] = {**_DECIMAL, **_BINARY}
_QUANTITY = re.compile(r"^([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)([numkMGTPE]?|[KMGTP]i)\Z")


def quantity(text: str) -> float:
    """Return the value of a Kubernetes quantity such as ``500m`` or ``1Gi``."""
    match = _QUANTITY.match(str(text))
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    try:
        return float(Decimal(match.group(1)) * _SUFFIX[match.group(2)])
    except (ArithmeticError, OverflowError) as error:
        raise ValueError(f"{text!r} is not a quantity") from error


def _cidr(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(text, strict=False)


def _find(text: str, pattern: str) -> str:
    match = re.search(pattern, text)
    return match.group(0) if match else ""


def _index_of(value: Any, wanted: Any) -> int:
    if isinstance(value, str):
        return value.find(wanted)
    return next((index for index, item in enumerate(value) if item == wanted), -1)


def _url(text: str) -> str:
    if not matches_format(text, "uri"):
        raise ValueError(f"{text!r} is not a URL")
    return text


def _ordered(values: list[Any]) -> bool:
    return all(a <= b for a, b in pairwise(values))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantity": quantity,
    "isQuantity": parse_check(quantity),
    "isLessThan": lambda a, b: a < b,
    "isGreaterThan": lambda a, b: a > b,
    "compareTo": lambda a, b: (a > b) - (a < b),
    "ip": lambda text: str(ipaddress.ip_address(text)),
    "isIP": parse_check(ipaddress.ip_address),
    "family": lambda text: ipaddress.ip_address(text).version,
    "isLoopback": lambda text: ipaddress.ip_address(text).is_loopback,
    "isUnspecified": lambda text: ipaddress.ip_address(text).is_unspecified,
    "cidr": lambda text: str(_cidr(text)),
    "isCIDR": lambda text: matches_format(text, "cidr"),
    "containsIP": lambda net, address: ipaddress.ip_address(address) in _cidr(net),
    "prefixLength": lambda net: _cidr(net).prefixlen,
    "url": _url,
    "isURL": lambda text: matches_format(text, "uri"),
    "getScheme": lambda text: urlsplit(text).scheme,
    "getHost": lambda text: urlsplit(text).netloc,
    "getHostname": lambda text: urlsplit(text).hostname or "",
    "getPort": lambda text: str(urlsplit(text).port or ""),
    "getEscapedPath": lambda text: urlsplit(text).path,
    "find": _find,
    "findAll": lambda text, pattern: re.findall(pattern, text),
    "isSorted": _ordered,
    "indexOf": _index_of,
}
