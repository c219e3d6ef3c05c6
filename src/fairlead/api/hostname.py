"""Hostname: one name at the hub: the object of a member that owns it, and where it points.

The hub's names controller writes the spec: one object for each name that is asked for, in the hub's own
namespace, where no tenant reads. That an object exists with an owner *is* the ownership; it survives a restart. To the
hub it is one more intent: the records of the name are the targets of a load balancer whose provider is a DNS server,
so ledger, plan, guard and history are those of every other kind.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.api.crd import AGE, PROGRAMMED, Column, Crd, Rule
from fairlead.api.intent import IntentObject, IntentStatus
from fairlead.api.meta import LIST_SET, Resource, Wire
from fairlead.api.names import GROUP, VERSION

#: A DNS name in lower case: an asterisk may be its first label, and labels may begin with an underscore.
HOST_PATTERN = r"^(\*\.)?([a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9])?)(\.[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9])?)*$"
Host = Annotated[str, Meta(min_length=1, max_length=253, pattern=HOST_PATTERN)]


class HostnameOwner(Wire, frozen=True, gc=False):
    """The object of a member that has the name; loadBalancer is its load balancer at the hub as Kind/namespace/name."""

    member: Annotated[str, Meta(max_length=63)] = ""
    kind: Annotated[str, Meta(max_length=63)] = ""
    namespace: Annotated[str, Meta(max_length=63)] = ""
    name: Annotated[str, Meta(max_length=253)] = ""
    uid: Annotated[str, Meta(max_length=64)] = ""
    load_balancer: Annotated[str, Meta(max_length=400)] = ""


class HostnameSpec(Wire, frozen=True, gc=False):
    """A name, who has it, and where it points.

    addresses become A and AAAA records; cname, which excludes them, one CNAME record; texts become TXT records, such as
    the challenge of a certificate authority. Without any of them the name is owned and has no records. ttlSeconds 0 is
    the TTL of the zone. generated: the hub made the name itself, from member and object.
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
        Rule("self.host == oldSelf.host", "host is immutable: delete the Hostname and create another", ".host"),
        Rule(
            "!has(self.cname) || self.cname == '' || !has(self.addresses) || size(self.addresses) == 0",
            "a name with a CNAME record has no addresses: set either cname or addresses",
        ),
    ),
)
