"""CIDRs as Kubernetes reads them in fields that exist since before its strict rules.

    10.0.0.0/24                 accepted
    10.0.0.5/24                 accepted as 10.0.0.0/24, with a warning: it may be meant as 10.0.0.5/32
    010.0.0.0/24, 10.0.0.0/024  accepted as 10.0.0.0/24, with a warning
    ::ffff:10.0.0.0/120         accepted as 10.0.0.0/24, with a warning
    10.0.0.5                    refused: no prefix length
    10.0.0.0/255.255.255.0      refused: the prefix length is a number of bits

The one parser for source ranges, address pools and target ranges.
Source: https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/4858-ip-cidr-validation
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class Cidr(NamedTuple):
    """A CIDR: the network that it names, and what is ambiguous about its spelling."""

    network: IPNetwork
    warnings: tuple[str, ...] = ()


def parse_cidr(text: str) -> Cidr | None:
    """Return the CIDR in ``text``, None when it is not one; blanks around it do not count."""
    text = text.strip()
    written, slash, bits = text.partition("/")
    if not slash or not (bits.isascii() and bits.isdigit()) or len(bits) > 4 or "%" in written:
        return None
    try:
        address = ipaddress.ip_address(_without_leading_zeros(written))
        network = ipaddress.ip_network((address, int(bits)), strict=False)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    if mapped is not None and network.prefixlen >= 96:
        address, network = mapped, ipaddress.ip_network((mapped, network.prefixlen - 96), strict=False)
    warnings: list[str] = []
    if address != network.network_address:
        alone = f"{address}/{address.max_prefixlen}"
        warnings.append(f'CIDR value "{text}" is ambiguous in this context (should be "{network}" or "{alone}"?)')
    if mapped is not None or _without_leading_zeros(written) != written or str(int(bits)) != bits:
        warnings.append(
            f'non-standard CIDR value "{text}" will be considered invalid in a future Kubernetes release: '
            f'use "{network}"'
        )
    elif not warnings and address.version == 6 and str(network) != text:
        warnings.append(f'IPv6 CIDR value "{text}" should be in RFC 5952 canonical format ("{network}")')
    return Cidr(network, tuple(warnings))


def parse_network(text: str) -> IPNetwork | None:
    """Return the network of a CIDR, or of an address alone; None when it is neither."""
    if "/" in text:
        cidr = parse_cidr(text)
        return cidr.network if cidr is not None else None
    try:
        return ipaddress.ip_network(text.strip())
    except ValueError:
        return None


def exact_network(text: str) -> IPNetwork | str:
    """Return the network of a CIDR or address whose meaning is certain, else what is wrong with it."""
    text = text.strip()
    if "/" not in text:
        network = parse_network(text) if "%" not in text else None
        mapped = network.network_address if network is not None else None
        if network is None or (isinstance(mapped, ipaddress.IPv6Address) and mapped.ipv4_mapped is not None):
            return f"{text[:60]!r} is not an IP address or a CIDR such as 192.0.2.0/24"
        return network
    cidr = parse_cidr(text)
    if cidr is None:
        return f"{text[:60]!r} is not a CIDR such as 192.0.2.0/24"
    ambiguous = next((warning for warning in cidr.warnings if not warning.startswith("IPv6")), "")
    return ambiguous or cidr.network


def uncertain_network(texts: Iterable[str]) -> str:
    """Return what is wrong with the first CIDR or address whose meaning is not certain; empty when nothing is."""
    return next((network for network in map(exact_network, texts) if isinstance(network, str)), "")


def _without_leading_zeros(address: str) -> str:
    """Return an address whose IPv4 part is decimal, as Kubernetes reads ``010`` as 10."""
    head, colon, quad = address.rpartition(":")
    if quad.count(".") != 3:
        return address
    octets = [part.lstrip("0") or "0" if part.isascii() and part.isdigit() else part for part in quad.split(".")]
    return f"{head}{colon}{'.'.join(octets)}"
