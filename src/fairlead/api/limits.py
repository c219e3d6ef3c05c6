"""Limits of a load balancer that its users set: requests, connections and bandwidth.

    requestsPerSecond    so many requests a second are answered; what is above that gets 429 with Retry-After
    burst                so many requests may come at once; by default as many as in a second
    key                  what has a limit of its own: empty for all requests together, ``client``, ``header:NAME``
    connections          so many connections are open at once; others are closed
    bandwidth            bytes a second of all requests, and of all responses, such as 10Mi

Each proxy counts alone, for each port. What a class sets is the most that is admitted, whatever users set. Pure.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.api.json_text import decode
from fairlead.model.http import HEADER_NAME

#: The longest text of a setting.
MAX_LIMITS = 1024
_CLIENT, _HEADER = "client", "header:"
_BANDWIDTH = re.compile(r"([1-9][0-9]{0,9})(Ki|Mi|Gi)")
_KIB = {"Ki": 1, "Mi": 1024, "Gi": 1024 * 1024}
#: What Envoy can count: 4 TiB a second.
_MOST_KIB = 2**32 - 1
_Count = Annotated[int, Meta(ge=0, le=10_000_000)]


class Limits(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The limits; 0 and empty mean none."""

    requests_per_second: _Count = 0
    burst: _Count = 0
    key: Annotated[str, Meta(max_length=135)] = ""
    connections: _Count = 0
    bandwidth: Annotated[str, Meta(max_length=16)] = ""

    @property
    def header(self) -> str:
        """Return the header whose values have a limit each; empty when it is none."""
        return self.key.removeprefix(_HEADER).lower() if self.key.startswith(_HEADER) else ""

    @property
    def by_client(self) -> bool:
        """Return whether each client address has a limit of its own."""
        return self.key == _CLIENT

    @property
    def bandwidth_kib(self) -> int:
        """Return ``bandwidth`` in KiB a second, 0 for none."""
        return kib_per_second(self.bandwidth) or 0


def kib_per_second(text: str) -> int | None:
    """Return a number of bytes such as 10Mi in KiB; 0 for an empty text, None for anything else."""
    match = _BANDWIDTH.fullmatch(text)
    if match is None or (kib := int(match[1]) * _KIB[match[2]]) > _MOST_KIB:
        return None if text else 0
    return kib


def read_limits(text: str) -> Limits:
    """Return the limits in a JSON object; empty: none.

    Raises:
        ValueError: names the field, and what is wrong with it.
    """
    try:
        limits = decode(text or "{}", Limits)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    if limits.key and not limits.by_client and not HEADER_NAME.fullmatch(limits.header):
        raise ValueError(f"key is {limits.key[:60]!r}; choose client, or header: and the name of a header")
    if kib_per_second(limits.bandwidth) is None:
        raise ValueError(f"bandwidth is {limits.bandwidth!r}; write the bytes of a second as 512Ki, 10Mi or 1Gi")
    if (limits.burst or limits.key) and not limits.requests_per_second:
        raise ValueError("burst and key need requestsPerSecond")
    if limits.burst and limits.burst < limits.requests_per_second:
        raise ValueError(f"burst is {limits.burst}, less than requestsPerSecond; give as many requests at least")
    return limits


def connection_limits_problem(text: str) -> str:
    """Return what is wrong with the limits of a load balancer of connections; empty when nothing is."""
    try:
        limits = read_limits(text)
    except ValueError as error:
        return str(error)
    if limits != Limits(connections=limits.connections):
        return "only connections can be limited here; for requests and bandwidth, use an Ingress or a Gateway"
    return ""
