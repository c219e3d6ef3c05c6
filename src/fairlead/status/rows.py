"""The rows of ``fairlead status``, as ``-o json`` prints them. Values only."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec


class Trouble(StrEnum):
    """Classes of trouble, the worst first; ``status`` ends with the exit code of the worst."""

    NOT_KNOWN = "NotKnown"
    NOT_SERVING = "NotServing"
    #: The provider reports health, and has not reported yet, or has stopped reporting.
    UNCONFIRMED = "NotKnownYet"
    ATTENTION = "NeedsAttention"
    #: No traffic is expected yet: not a problem.
    IDLE = "Idle"
    NONE = "Serving"


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


class LoadBalancerRow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One load balancer; ``origin`` is the Service as member/namespace/name, or the IngressClass as member/name.

    ``title`` is what people call it: its origin, or the object; with the kind before it where another is called so.
    ``serving`` is the status of the condition Serving, empty where nothing looks at the health of its backends.
    ``routes`` counts those attached to an HTTPLoadBalancer; None for other kinds, which have none.
    """

    kind: str
    namespace: str
    name: str
    title: str
    origin: str
    origin_kind: str
    class_name: str
    address: str
    programmed: bool
    serving: str
    state: Trouble
    reason: str
    message: str
    targets: str
    routes: int | None = None
    labels: dict[str, str]


class RegionRow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One region's share of a Service: a PoolService, with the access point that its layer 2 made."""

    namespace: str
    service: str
    region: str
    class_name: str
    address: str
    programmed: bool
    state: Trouble
    reason: str
    message: str
    targets: str
    labels: dict[str, str]


class PoolRow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The use of one pool of addresses: an AddressPool, or ``--address-pool`` of the hub.

    ``note`` is empty, AlmostFull or Full; a pool may be full on purpose, so neither is a problem by itself.
    """

    name: str
    addresses: str
    size: int
    used: int
    reserved: int = 0
    note: str = ""


class ProxyStatusRow(msgspec.Struct, frozen=True, rename="camel"):
    """One proxy as the hub reported it last; UNKNOWN while no hub reports."""

    name: str
    group: str
    state: str
    refused: int
    since: str


class Problem(msgspec.Struct, frozen=True, rename="camel"):
    """One fault as ``-o json`` prints it; ``member`` is the member that has the object, empty for one at the hub."""

    trouble: Trouble
    kind: str
    namespace: str
    name: str
    reason: str
    sentence: str
    member: str = ""


class ObjectFault(NamedTuple):
    """One fault: its trouble, the object at fault, the reason, what is wrong with the subject, and the next step."""

    trouble: Trouble
    kind: str
    namespace: str
    name: str
    reason: str
    subject: str
    text: str
    step: str = ""
    member: str = ""

    @property
    def sentence(self) -> str:
        """Return subject, fault and next step."""
        return f"{self.subject}: {self.text}" + (f"; {self.step}" if self.step else "")

    @property
    def problem(self) -> Problem:
        """Return the fault as a row."""
        key = (self.kind, self.namespace, self.name)
        return Problem(self.trouble, *key, self.reason, self.sentence, self.member)


class FleetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Hub, members, load balancers, proxies, pools and regions, and each problem; none when everything serves.

    ``state`` is the worst trouble of all; ``problems`` are the sentences of ``troubles``.
    """

    healthy: bool
    state: Trouble
    hub: HubRow
    members: list[MemberRow]
    load_balancers: list[LoadBalancerRow] = msgspec.field(name="loadBalancers")
    proxies: list[ProxyStatusRow]
    pools: list[PoolRow]
    regions: list[RegionRow]
    problems: list[str]
    troubles: list[Problem]


class ProxyRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One proxy: its name, the load balancers' group it serves, SYNCED or STALE, and how much it refuses now.

    ``statistics``: where it answers the hub for its statistics, "address:port"; empty for one on the hub's machine.
    """

    node: str
    group: str
    state: str
    refused: int = 0
    statistics: str = ""


class ReplicaReport(msgspec.Struct, frozen=True, gc=False):
    """The proxies of one hub replica, since when (RFC 3339), and its ``--address-pool``."""

    since: str
    proxies: list[ProxyRow]
    address_pool: str = ""
