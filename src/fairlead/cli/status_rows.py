"""The rows of ``fairlead status``, as ``-o json`` prints them."""

from __future__ import annotations

import msgspec


class HubRow(msgspec.Struct, frozen=True, rename="camel"):
    """The hub that leads: its identity, the age of its lease's renewal in seconds, whether the lease is still valid."""

    holder: str = ""
    age_s: float | None = None
    leading: bool = False


class MemberRow(msgspec.Struct, frozen=True, rename="camel"):
    """One member, with the age in seconds of its agent's last heartbeat."""

    name: str
    region: str
    namespace: str
    state: str
    last_sync_age_s: float | None
    load_balancers: int


class LoadBalancerRow(msgspec.Struct, frozen=True, rename="camel"):
    """One load balancer; ``origin`` is the Service as member/namespace/name."""

    namespace: str
    name: str
    origin: str
    class_name: str
    address: str
    programmed: bool
    reason: str
    message: str
    targets: str


class RegionRow(msgspec.Struct, frozen=True, rename="camel"):
    """One region's share of a Service: a PoolService, with the access point that its layer 2 made."""

    namespace: str
    service: str
    region: str
    class_name: str
    address: str
    programmed: bool
    reason: str
    message: str
    targets: str


class ProxyStatusRow(msgspec.Struct, frozen=True, rename="camel"):
    """One proxy as the hub reported it last; UNKNOWN while no hub is heard."""

    name: str
    group: str
    state: str
    refused: int
    since: str


class FleetStatus(msgspec.Struct, frozen=True):
    """Hub, members, load balancers, proxies and regions, and each problem in a sentence; none when all is healthy."""

    healthy: bool
    hub: HubRow
    members: list[MemberRow]
    load_balancers: list[LoadBalancerRow] = msgspec.field(name="loadBalancers")
    proxies: list[ProxyStatusRow]
    regions: list[RegionRow]
    problems: list[str]
