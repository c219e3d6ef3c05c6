"""DNSZone: a zone that the hub may write into, and the DNS server that takes the changes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.api.crd import ACCEPTED, AGE, Column, Crd, Rule
from fairlead.api.hostname import Host
from fairlead.api.loadbalancerclass import Guard, Parameters
from fairlead.api.meta import Conditions, KubeObject, Resource, Wire
from fairlead.api.names import GROUP, VERSION


class DNSZoneSpec(Wire, frozen=True, gc=False):
    """Which zone, and how it is written.

    provider is rfc2136, powerdns, external-dns or external-dns-annotations; parameters are the provider's: server,
    key, and so on. A name belongs to the zone with the longest suffix of it. ttlSeconds is that of records that ask
    for none. ownerId marks this hub's records among those of other writers such as external-dns and other hubs; it
    never changes. guard says how much may be removed at once without positive knowledge that it is gone. dryRun:
    plan only, and write nothing.
    """

    zone: Host
    provider: Annotated[str, Meta(min_length=1, max_length=63)]
    parameters: Parameters = msgspec.field(default_factory=dict[str, str])
    ttl_seconds: Annotated[int, Meta(ge=1, le=604800)] = 60
    owner_id: Annotated[str, Meta(min_length=1, max_length=63, pattern="^[A-Za-z0-9][-A-Za-z0-9_.]*$")] = "fairlead"
    guard: Guard = Guard()
    dry_run: bool = False


class DNSZoneStatus(Wire, frozen=True, gc=False):
    """Whether the zone can be written (condition Accepted), and how many names of it are published (names)."""

    names: int = 0
    observed_generation: int = 0
    conditions: Conditions = None


class DNSZone(KubeObject, frozen=True, gc=False):
    """A zone of a DNS server that gets the records of Hostnames."""

    spec: DNSZoneSpec = DNSZoneSpec(zone="", provider="")
    status: DNSZoneStatus = DNSZoneStatus()


DNS_ZONES = Resource(GROUP, VERSION, "DNSZone", "dnszones", False, DNSZone)

DNS_ZONE_CRD = Crd(
    DNS_ZONES,
    short_names=("zone",),
    columns=(
        Column("Zone", ".spec.zone"),
        Column("Provider", ".spec.provider"),
        Column("Accepted", f"{ACCEPTED}.status"),
        Column("Reason", f"{ACCEPTED}.reason"),
        Column("Names", ".status.names", "integer"),
        Column("Dry run", ".spec.dryRun", "boolean", priority=1),
        AGE,
    ),
    rules=(
        Rule("self.zone == oldSelf.zone", "zone is immutable: create another DNSZone", ".zone"),
        Rule("self.provider == oldSelf.provider", "provider is immutable: create another DNSZone", ".provider"),
        Rule(
            "(has(self.ownerId) ? self.ownerId : 'fairlead') == (has(oldSelf.ownerId) ? oldSelf.ownerId : 'fairlead')",
            "ownerId is immutable: the records that carry it would be left behind",
            ".ownerId",
        ),
    ),
)


class Endpoint(Wire, frozen=True, gc=False):
    """One set of records: all values (targets) of one type that one name has."""

    dns_name: str = msgspec.field(default="", name="dnsName")
    record_type: str = ""
    record_ttl: int = msgspec.field(default=0, name="recordTTL")
    targets: list[str] | None = None


class DNSEndpointSpec(Wire, frozen=True, gc=False):
    """The sets of records."""

    endpoints: list[Endpoint] | None = None


class DNSEndpointStatus(Wire, frozen=True, gc=False):
    """The generation that external-dns has seen."""

    observed_generation: int = 0


class DNSEndpoint(KubeObject, frozen=True, gc=False):
    """Records that external-dns is to write."""

    spec: DNSEndpointSpec = DNSEndpointSpec()
    status: DNSEndpointStatus = DNSEndpointStatus()


DNS_ENDPOINTS = Resource("externaldns.k8s.io", "v1alpha1", "DNSEndpoint", "dnsendpoints", True, DNSEndpoint)
