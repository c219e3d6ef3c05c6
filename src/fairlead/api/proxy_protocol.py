"""Whether clients come with a header of the PROXY protocol, and from where such headers count.

    required    each connection begins with a header
    optional    connections from trusted sources may begin with one; health checks of an outer load balancer have none

Any client could claim an address in a header. With trusted sources, connections from elsewhere are closed, and optional
headers need them. Pure.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.cidrs import exact_network
from fairlead.api.json_text import decode

#: The longest text of a setting.
MAX_ACCEPT = 4096
_MOST_SOURCES = 100


class AcceptProxyProtocol(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The setting; ``trusted_sources`` are canonical CIDRs, empty for all."""

    mode: Literal["required", "optional"] = "required"
    trusted_sources: Annotated[tuple[str, ...], Meta(max_length=_MOST_SOURCES)] = ()


def read_accept_proxy_protocol(text: str) -> AcceptProxyProtocol | None:
    """Return what ``required`` or a JSON object sets, None for an empty text; a class says true and false, too.

    Raises:
        ValueError: names the field, and what is wrong with it.
    """
    if text in ("", "false"):
        return None
    if text in ("true", "required"):
        return AcceptProxyProtocol()
    if not text.startswith("{"):
        raise ValueError(f"{text[:40]!r} is unknown; choose required or a JSON object with mode and trustedSources")
    try:
        accepted = decode(text, AcceptProxyProtocol)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    networks = [exact_network(source) for source in accepted.trusted_sources]
    if problem := next((network for network in networks if isinstance(network, str)), ""):
        raise ValueError(f"trustedSources: {problem}")
    if accepted.mode == "optional" and not networks:
        raise ValueError("mode optional needs trustedSources: without them any client can claim any address")
    if accepted.mode == "optional" and any(str(network).endswith("/0") for network in networks):
        raise ValueError(
            "mode optional needs narrower trustedSources: with a network of prefix 0 any client is trusted"
        )
    return AcceptProxyProtocol(accepted.mode, tuple(dict.fromkeys(map(str, networks))))


def accept_problem(text: str) -> str:
    """Return what is wrong with the setting of a user; empty when nothing is."""
    try:
        read_accept_proxy_protocol(text)
    except ValueError as error:
        return str(error)
    return ""
