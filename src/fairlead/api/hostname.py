"""DNSZone, a zone that the hub writes, Hostname, one name in it with its owner, and the grammar of names.

The hub's names controller writes the spec: one object for each name that is asked for, in the hub's own
namespace, where no tenant reads. That an object exists with an owner *is* the ownership; it survives a restart. To the
hub it is one more intent: the records of the name are the targets of a load balancer whose provider is a DNS server,
so ledger, plan, guard and history are those of every other kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.api.crd import ACCEPTED, AGE, PROGRAMMED, CelRule, Column, Crd
from fairlead.api.intent import IntentObject, IntentStatus
from fairlead.api.loadbalancerclass import Guard, Parameters
from fairlead.api.meta import LIST_SET, Conditions, KubeObject, Resource, Wire
from fairlead.api.names import GROUP, VERSION

#: A DNS name in lower case: an asterisk may be its first label, and labels may begin with an underscore.
HOST_PATTERN = r"^(\*\.)?([a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9])?)(\.[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9])?)*$"
Host = Annotated[str, Meta(min_length=1, max_length=253, pattern=HOST_PATTERN)]
#: The host names of one load balancer.
Hostnames = Annotated[list[Host], Meta(max_length=32, extra_json_schema=LIST_SET)]


class HostnameOwner(Wire, frozen=True, gc=False):
    """The object of a member that has the name; loadBalancer is its load balancer at the hub as Kind/namespace/name."""

    member: Annotated[str, Meta(max_length=63)] = ""
    kind: Annotated[str, Meta(max_length=63)] = ""
    namespace: Annotated[str, Meta(max_length=63)] = ""
    name: Annotated[str, Meta(max_length=253)] = ""
    uid: Annotated[str, Meta(max_length=64)] = ""
    load_balancer: Annotated[str, Meta(max_length=400)] = ""
    subtenant: Annotated[str, Meta(max_length=63)] = ""


class HostnameSpec(Wire, frozen=True, gc=False):
    """A name, who has it, and where it points.

    addresses become A and AAAA records; cname, which excludes them, one CNAME record; texts become TXT records, such as
    the challenge of a certificate authority. Without any of them the name is owned and has no records. ttlSeconds 0 is
    the TTL of the zone. generated: the hub made the name itself, from member and object. unhealthyAddresses are those
    whose load balancer does not serve; in a zone with peerLeaseSeconds they have no record while another address of the
    name is answered.
    """

    host: Host
    owner: HostnameOwner = HostnameOwner()
    addresses: Annotated[
        list[Annotated[str, Meta(min_length=2, max_length=45)]], Meta(max_length=64, extra_json_schema=LIST_SET)
    ] = msgspec.field(default_factory=list[str])
    cname: Annotated[str, Meta(max_length=253)] = ""
    texts: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=255)]], Meta(max_length=16, extra_json_schema=LIST_SET)
    ] = msgspec.field(default_factory=list[str])
    ttl_seconds: Annotated[int, Meta(ge=0, le=604800)] = 0
    generated: bool = False
    unhealthy_addresses: Annotated[
        list[Annotated[str, Meta(min_length=2, max_length=45)]], Meta(max_length=64, extra_json_schema=LIST_SET)
    ] = msgspec.field(default_factory=list[str])


class HostnameCertificate(Wire, frozen=True, gc=False):
    """The certificate that is served for the name: its Secret as namespace/name, its issuer, and when it ends."""

    secret: str = ""
    issuer: str = ""
    not_after: str = ""


class HostnameStatus(IntentStatus, frozen=True, gc=False):
    """What became of it.

    zone is the DNSZone that holds it. records is published/expected. waiting counts the other objects that ask for the
    name. accepted is the version of spec that is published: when spec is refused, the last one that was not.
    """

    zone: str = ""
    records: str = ""
    waiting: int = 0
    certificate: HostnameCertificate | None = None
    accepted: HostnameSpec | None = None


class Hostname(IntentObject, frozen=True, gc=False):
    """A name that resolves to a load balancer, with the object and member that own it."""

    spec: HostnameSpec = HostnameSpec(host="")
    status: HostnameStatus = HostnameStatus()

    @property
    def class_name(self) -> str:
        """Return nothing: the zone of a name follows from the name, not from a LoadBalancerClass."""
        return ""


HOSTNAMES = Resource(GROUP, VERSION, "Hostname", "hostnames", True, Hostname)

HOSTNAME_CRD = Crd(
    HOSTNAMES,
    short_names=("hn",),
    columns=(
        Column("Host", ".spec.host"),
        Column("Member", ".spec.owner.member"),
        Column("Owner", ".spec.owner.name"),
        Column("Zone", ".status.zone"),
        Column("Published", f"{PROGRAMMED}.status"),
        Column("Reason", f"{PROGRAMMED}.reason"),
        Column("Records", ".status.records"),
        Column("Certificate ends", ".status.certificate.notAfter", priority=1),
        Column("Waiting", ".status.waiting", "integer", priority=1),
        AGE,
    ),
    rules=(
        CelRule("self.host == oldSelf.host", "host is immutable: delete the Hostname and create another", ".host"),
        CelRule(
            "!has(self.cname) || self.cname == '' || !has(self.addresses) || size(self.addresses) == 0",
            "a name with a CNAME record has no addresses: set either cname or addresses",
        ),
    ),
)


MAX_NAME = 253
MAX_LABEL = 63
WILDCARD = "*."
#: What CEL rules and schemas take for a domain: labels of letters, digits and hyphens.
DOMAIN_PATTERN = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$"
#: RFC 1123 names whose last label is not a number: resolvers take "127.1" and "0x7f.1" for addresses.
RESOLVABLE_NAME = re.compile(r"(?=.{1,253}\Z)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def host_problem(text: str, *, wildcard: bool = False) -> str:
    """Return why ``text`` is not a DNS name and what to write instead; empty when it is valid.

    ``wildcard``: its first label may be an asterisk.
    """
    if not text:
        return "empty: write a DNS name such as shop.example.com"
    if not text.isascii():
        encoded = _a_labels(text)
        hint = f"write it as {encoded}" if encoded else "write its A-label, which begins with xn--"
        return f"contains characters that are not allowed in DNS: {hint}"
    name = text.removeprefix(WILDCARD) if wildcard else text
    if text != text.lower():
        return f"contains capital letters: write {text.lower()}"
    if text.endswith("."):
        return f"ends with a dot: write {text.rstrip('.')}"
    if len(text) > MAX_NAME:
        return f"has {len(text)} characters, and DNS allows {MAX_NAME}: shorten the name"
    if "*" in name:
        return "an asterisk can only be the whole first label, as in *.example.com" if wildcard else (
            "contains an asterisk: write a name without one"
        )  # fmt: skip
    for label in name.split("."):
        if len(label) > MAX_LABEL:
            return f"label {label[:20]}... has {len(label)} characters, and DNS allows {MAX_LABEL}: shorten the label"
        if not _LABEL.fullmatch(label):
            return f"label {label!r} is invalid: use letters, digits and hyphens, and no hyphen at either end"
    return ""


def is_within(name: str, domain: str) -> bool:
    """Return whether ``name`` is ``domain`` or below it; of a wildcard, what follows the asterisk counts."""
    name, domain = name.removeprefix(WILDCARD).lower(), domain.removeprefix(WILDCARD).lower()
    return name == domain or name.endswith(f".{domain}")


def wildcards_over(name: str) -> Iterator[str]:
    """Yield the wildcards that ``name`` is below, the nearest first; a wildcard is not below itself."""
    rest = name.removeprefix(WILDCARD)
    while "." in rest:
        rest = rest.partition(".")[2]
        yield f"{WILDCARD}{rest}"


def _a_labels(text: str) -> str:
    try:
        return text.lower().encode("idna").decode()
    except UnicodeError:
        return ""


class DNSZoneSpec(Wire, frozen=True, gc=False):
    """Which zone, and how it is written.

    provider is rfc2136, powerdns, external-dns or external-dns-annotations; parameters are the provider's: server,
    key, and so on. A name belongs to the zone with the longest suffix of it. ttlSeconds is that of records that ask
    for none. ownerId marks this hub's records among those of other writers such as external-dns and other hubs; it
    never changes. guard says how much may be removed at once without positive knowledge that it is gone. dryRun:
    plan only, and write nothing. peerLeaseSeconds above 0: other hubs publish addresses of the same names. Each hub
    keeps a lease of so many seconds in the zone. Hubs withdraw the addresses of a hub whose lease has expired.
    """

    zone: Host
    provider: Annotated[str, Meta(min_length=1, max_length=63)]
    parameters: Parameters = msgspec.field(default_factory=dict[str, str])
    ttl_seconds: Annotated[int, Meta(ge=1, le=604800)] = 60
    owner_id: Annotated[str, Meta(min_length=1, max_length=63, pattern="^[A-Za-z0-9][-A-Za-z0-9_.]*$")] = "fairlead"
    guard: Guard = Guard()
    dry_run: bool = False
    peer_lease_seconds: Annotated[int, Meta(ge=0, le=3600)] = 0


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
        CelRule("self.zone == oldSelf.zone", "zone is immutable: create another DNSZone", ".zone"),
        CelRule("self.provider == oldSelf.provider", "provider is immutable: create another DNSZone", ".provider"),
        CelRule(
            "(has(self.ownerId) ? self.ownerId : 'fairlead') == (has(oldSelf.ownerId) ? oldSelf.ownerId : 'fairlead')",
            "ownerId is immutable: the records that carry it would be left behind",
            ".ownerId",
        ),
        CelRule(
            "!has(self.peerLeaseSeconds) || self.peerLeaseSeconds == 0 || self.peerLeaseSeconds >= 15",
            "peerLeaseSeconds is 0, or at least 15: a hub renews its lease three times in that time",
            ".peerLeaseSeconds",
        ),
    ),
)


class RecordSet(Wire, frozen=True, gc=False):
    """One set of records: all values (targets) of one type that one name has."""

    dns_name: str = msgspec.field(default="", name="dnsName")
    record_type: str = ""
    record_ttl: int = msgspec.field(default=0, name="recordTTL")
    targets: list[str] | None = None


class DNSEndpointSpec(Wire, frozen=True, gc=False):
    """The sets of records."""

    endpoints: list[RecordSet] | None = None


class DNSEndpointStatus(Wire, frozen=True, gc=False):
    """The generation that external-dns has seen."""

    observed_generation: int = 0


class DNSEndpoint(KubeObject, frozen=True, gc=False):
    """Records that external-dns is to write."""

    spec: DNSEndpointSpec = DNSEndpointSpec()
    status: DNSEndpointStatus = DNSEndpointStatus()


DNS_ENDPOINTS = Resource("externaldns.k8s.io", "v1alpha1", "DNSEndpoint", "dnsendpoints", True, DNSEndpoint)
