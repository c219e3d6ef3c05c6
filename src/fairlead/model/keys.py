"""Keys, the identities by which parts of Fairlead refer to the same object, and families of addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from fairlead.model.in_words import host_port

#: The port of a target that is a record of a name, which has none.
RECORD_PORT = 53
#: The parameter of such a target whose load balancer does not serve.
RECORD_UNHEALTHY = ("unhealthy", "true")


class Protocol(StrEnum):
    """A transport protocol, spelt as Kubernetes spells it."""

    # Part of keys that are looked up by the thousand: the hash of Enum is a call of Python code.
    __hash__ = str.__hash__

    TCP = "TCP"
    UDP = "UDP"


class LoadBalancerKey(NamedTuple):
    """One load balancer at the hub, named by the object that asks for it."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"


class ListenerKey(NamedTuple):
    """One open port of a load balancer; renaming a Service port does not change it.

    Targets of an L7 load balancer belong to a backend, which several listeners share: ``port`` is 0, and ``backend``
    its name.
    """

    protocol: Protocol
    port: int
    backend: str = ""

    def __str__(self) -> str:
        return self.backend or f"{self.protocol}/{self.port}"


class TargetKey(NamedTuple):
    """A destination of traffic: an IP address (canonical text form) or DNS name, and a port (1..65535)."""

    address: str
    port: int

    def __str__(self) -> str:
        return host_port(*self)


class BackendKey(NamedTuple):
    """One target behind one listener of one load balancer: what a provider registers and deregisters."""

    load_balancer: LoadBalancerKey
    listener: ListenerKey
    target: TargetKey


def backend_key(name: str) -> ListenerKey:
    """Return the key of the targets of an L7 backend."""
    return ListenerKey(Protocol.TCP, 0, name)


Family = Literal["IPv4", "IPv6"]
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

IPV4: Family = "IPv4"
IPV6: Family = "IPv6"


@lru_cache(maxsize=100_000)
def family_of(address: str) -> Family | None:
    """Return the family of an address; None for a host name, or anything else that is not an IP address."""
    try:
        return IPV4 if ipaddress.ip_address(address).version == 4 else IPV6
    except ValueError:
        return None


@lru_cache(maxsize=200_000)
def canonical_address(text: str) -> str:
    """Return an IP address in its canonical form, IPv4 within IPv6 as IPv4; a host name in small letters."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text.lower().removesuffix(".")
    mapped = address.ipv4_mapped if address.version == 6 else None
    return str(mapped or address)


class WantedFamilies(msgspec.Struct, frozen=True):
    """The families of the addresses of a load balancer, in order; none named: any one.

    ``all_required``: it is not served with a part of them.
    """

    families: tuple[Family, ...] = ()
    all_required: bool = False


#: One address, of either family.
ANY_FAMILY = WantedFamilies()


def by_family(addresses: Iterable[str]) -> dict[Family, str]:
    """Return the first IP address of each family."""
    first: dict[Family, str] = {}
    for address in addresses:
        family = family_of(address)
        if family is not None:
            first.setdefault(family, address)
    return first


def requested_addresses(text: str) -> list[str]:
    """Return the addresses that a text asks for, after commas and in their canonical form; others as they are."""
    parts = (part.strip() for part in text.split(","))
    return [str(ipaddress.ip_address(part)) if family_of(part) is not None else part for part in parts if part]


def in_order(addresses: Iterable[str], families: tuple[Family, ...]) -> tuple[str, ...]:
    """Return the addresses of ``families`` in their order, and host names; all as they are where none is named.

    Without an address of these families all are returned, so that it can be said what is there instead.
    """
    present = tuple(addresses)
    wanted = [address for family in families for address in present if family_of(address) == family]
    return (*wanted, *(address for address in present if family_of(address) is None)) if wanted else present


_GROUP = "machine:"


def node_group(machine: str) -> str:
    """Name the node group of a machine's proxy: what its certificate has, and what xDS answers for."""
    return f"{_GROUP}{machine}"


def machine_of(group: str) -> str:
    """Return the machine of a node group; empty for a group that is not a machine's."""
    return group.removeprefix(_GROUP) if group.startswith(_GROUP) else ""
