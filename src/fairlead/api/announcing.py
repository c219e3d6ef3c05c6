"""Advertisement and BGPPeer: how proxy machines announce addresses, and the routers they have sessions with."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.crd import ACCEPTED, AGE, READY, CelRule, Column, Crd
from fairlead.api.meta import LIST_SET, ONE_LINE, Conditions, KubeObject, Resource, Wire
from fairlead.api.names import GROUP, VERSION

#: Names of other objects.
Names = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=253, extra_json_schema=ONE_LINE)]],
    Meta(max_length=256, extra_json_schema=LIST_SET),
]
#: 65000:1, 65000:1:2 (large), or the name of a well-known community.
_Community = Annotated[
    str,
    Meta(
        max_length=32,
        pattern=r"^([0-9]{1,5}:[0-9]{1,5}|[0-9]{1,10}:[0-9]{1,10}:[0-9]{1,10}"
        r"|no-export|no-advertise|blackhole|graceful-shutdown)$",
    ),
]
_Interface = Annotated[str, Meta(max_length=15, pattern=r"^[^ /%]*$")]
_Asn = Annotated[int, Meta(ge=1, le=4_294_967_295)]
_Uint32 = Annotated[int, Meta(ge=0, le=4_294_967_295)]


class MachineChoice(Wire, frozen=True, gc=False):
    """Proxy machines: those of names, or of groups, or with all labels of matchLabels; all machines when empty."""

    names: Names = msgspec.field(default_factory=list[str])
    groups: Names = msgspec.field(default_factory=list[str])
    match_labels: Annotated[dict[str, str], Meta(max_length=32)] = msgspec.field(default_factory=dict[str, str])


class BGPPeerSpec(Wire, frozen=True, gc=False):
    """The router, and the session with it.

    Either address or interface is required; both together are a link-local address. With interface alone, the router
    starts the session, at the link-local address of the machine.
    """

    asn: _Asn
    local_asn: _Asn = msgspec.field(name="localASN")
    address: Annotated[str, Meta(max_length=45, extra_json_schema=ONE_LINE)] = ""
    interface: _Interface = ""
    port: Annotated[int, Meta(ge=1, le=65_535)] = 179
    password_secret: Annotated[str, Meta(max_length=253)] = ""
    hold_time_seconds: Annotated[int, Meta(ge=3, le=65_535)] = 90
    bfd: bool = False
    bfd_interval_ms: Annotated[int, Meta(ge=10, le=10_000)] = 100
    hops: Annotated[int, Meta(ge=1, le=255)] = 1
    ttl_security: bool = False
    graceful_restart: bool = True
    machines: MachineChoice = MachineChoice()


class BGPPeerStatus(Wire, frozen=True, gc=False):
    """The sessions of all machines with the router, and the accepted spec, which is in force while spec is invalid."""

    sessions: Annotated[str, Meta(max_length=32)] = ""
    accepted: BGPPeerSpec | None = None
    observed_generation: int = 0
    conditions: Conditions = None


class BGPPeer(KubeObject, frozen=True, gc=False):
    """A router that proxy machines announce addresses to."""

    spec: BGPPeerSpec = BGPPeerSpec(asn=1, local_asn=1)
    status: BGPPeerStatus = BGPPeerStatus()


class Aggregation(Wire, frozen=True, gc=False):
    """Prefix lengths of the routes that are announced in place of single addresses; 0 announces each address."""

    ipv4_length: Annotated[int, Meta(ge=0, le=32)] = msgspec.field(default=0, name="ipv4Length")
    ipv6_length: Annotated[int, Meta(ge=0, le=128)] = msgspec.field(default=0, name="ipv6Length")


class AdvertisementSpec(Wire, frozen=True, gc=False):
    """Which addresses, and how machines announce them.

    An address is selected when it meets all of pools, classes and services that are not empty. If several
    Advertisements select an address, the one that names its service is used, then one that names its pool, then one
    that names its class; of equal ones the oldest.
    """

    announcement: Literal["L2", "BGP", "External", "None"]
    pools: Names = msgspec.field(default_factory=list[str])
    classes: Names = msgspec.field(default_factory=list[str])
    services: Names = msgspec.field(default_factory=list[str])
    machines: MachineChoice = MachineChoice()
    withdraw_when_unhealthy: bool = False
    anycast: bool = False
    interfaces: Annotated[list[_Interface], Meta(max_length=32, extra_json_schema=LIST_SET)] = msgspec.field(
        default_factory=list[str]
    )
    fast: bool = False
    peers: Names = msgspec.field(default_factory=list[str])
    communities: Annotated[list[_Community], Meta(max_length=32, extra_json_schema=LIST_SET)] = msgspec.field(
        default_factory=list[str]
    )
    local_preference: _Uint32 | None = None
    med: _Uint32 | None = None
    prepend: Annotated[int, Meta(ge=0, le=16)] = 0
    aggregation: Aggregation = Aggregation()


class AdvertisementStatus(Wire, frozen=True, gc=False):
    """The number of selected addresses, and the accepted spec, which is in force while spec is invalid."""

    addresses: int = 0
    accepted: AdvertisementSpec | None = None
    observed_generation: int = 0
    conditions: Conditions = None


class Advertisement(KubeObject, frozen=True, gc=False):
    """How proxy machines announce the addresses of load balancers: by ARP and neighbour discovery, or by BGP."""

    spec: AdvertisementSpec = AdvertisementSpec(announcement="None")
    status: AdvertisementStatus = AdvertisementStatus()


BGP_PEERS = Resource(GROUP, VERSION, "BGPPeer", "bgppeers", False, BGPPeer)
ADVERTISEMENTS = Resource(GROUP, VERSION, "Advertisement", "advertisements", False, Advertisement)


def _set(field: str) -> str:
    return f"(has(self.{field}) && self.{field} != '')"


BGP_PEER_CRD = Crd(
    BGP_PEERS,
    short_names=("bgpp",),
    columns=(
        Column("Address", ".spec.address"),
        Column("Interface", ".spec.interface"),
        Column("ASN", ".spec.asn", "integer"),
        Column("Local-ASN", ".spec.localASN", "integer"),
        Column("Sessions", ".status.sessions"),
        Column("BFD", ".spec.bfd", "boolean"),
        Column("Accepted", f"{ACCEPTED}.status"),
        Column("Ready", f"{READY}.status"),
        Column("Reason", f"{READY}.reason"),
        Column("Secret", ".spec.passwordSecret", priority=1),
        AGE,
    ),
    rules=(
        CelRule(f"{_set('address')} || {_set('interface')}", "address or interface is required"),
        CelRule(
            "!(has(self.ttlSecurity) && self.ttlSecurity) || self.asn != self.localASN",
            "ttlSecurity needs a router of another ASN",
            ".ttlSecurity",
        ),
        CelRule(
            f"!has(self.hops) || self.hops == 1 || !{_set('interface')}",
            "hops above 1 needs an address without an interface: a link-local address is one hop away",
            ".hops",
        ),
    ),
)

ADVERTISEMENT_CRD = Crd(
    ADVERTISEMENTS,
    short_names=("adv",),
    columns=(
        Column("Announcement", ".spec.announcement"),
        Column("Pools", ".spec.pools"),
        Column("Classes", ".spec.classes"),
        Column("Addresses", ".status.addresses", "integer"),
        Column("Peers", ".spec.peers"),
        Column("Accepted", f"{ACCEPTED}.status"),
        Column("Reason", f"{ACCEPTED}.reason"),
        Column("Services", ".spec.services", priority=1),
        Column("Machines", ".spec.machines", priority=1),
        AGE,
    ),
    rules=(
        CelRule(
            "self.announcement != 'L2' || !(has(self.peers) || has(self.communities) || has(self.localPreference)"
            " || has(self.med) || has(self.prepend) || has(self.aggregation))",
            "peers, communities, localPreference, med, prepend and aggregation need announcement BGP or External",
            ".announcement",
        ),
        CelRule(
            "self.announcement == 'L2' || !(has(self.interfaces) || (has(self.fast) && self.fast))",
            "interfaces and fast need announcement L2",
            ".announcement",
        ),
        CelRule(
            "!(has(self.anycast) && self.anycast) || self.announcement != 'L2'",
            "anycast needs announcement BGP or External",
            ".anycast",
        ),
    ),
)
