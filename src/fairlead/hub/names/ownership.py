"""Ownership of host names: the member that each name belongs to, and the Hostname that records it.

    source     a LoadBalancerRoute or load balancer at the hub; its status has the result
    claimant   the member's object behind it (Ingress, Gateway, route, Service), with its load balancer and its age
    claim      a claimant requests a host

Rules of ownership:

    has an owner that still asks for it, and may       that owner
    no owner                                           the oldest object that asks and may, then by member and name
    a member that has as many names as it may          keeps these, and gets no other
    a wildcard over a top-level domain or a zone       only for the member whose domain it is, that has it, or that is
                                                       the only one
    in a domain that belongs to a member               that member only
    in the hub's domain, outside of any member's       no member

Each name is decided separately: a wildcard reserves no name below it, a domain of a member does. The owner is a member:
all its objects share the name. The Hostname has the addresses of all load balancers of the owner that serve the name;
recorded addresses are kept while one of these load balancers has none. In: claims, recorded owners, domains, addresses.
Out: ``NameDecision``, the spec of a Hostname. Pure: the same claims and records give the same decision.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from fairlead.api.hostname import WILDCARD, Hostname, HostnameOwner, HostnameSpec, is_within
from fairlead.api.intent import IntentStatus
from fairlead.api.meta import JSONObject
from fairlead.api.names import short_hash
from fairlead.api.tenant import Tenant
from fairlead.api.times import parsed_time
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.model.keys import LoadBalancerKey, family_of
from fairlead.translate.tenant import domain_holders

#: Returns the namespace of the member that is recorded as the owner of a host; empty for an owner that is not a member,
#: None when the host has no owner.
Owned = Callable[[str], str | None]
NOBODYS = ""
#: Returns whether a host would exceed the limit of the member with a namespace.
Full = Callable[[str, "NameClaimant"], bool]


class NameDecision(msgspec.Struct, frozen=True):
    """The owner of a host. ``refused`` has the namespaces of the members that may not have it, with the reasons.

    ``load_balancers`` are those of the owner that serve it, oldest first. ``waiting`` counts the other objects.
    """

    owner: NameClaimant | None = None
    load_balancers: tuple[LoadBalancerKey, ...] = ()
    refused: Mapping[str, ConditionReason] = {}
    waiting: int = 0


class Domains:
    """The member of each domain; the longest domain that contains a host applies. ``zones`` are the operator's."""

    def __init__(self, tenants: Iterable[Tenant] = (), hub_domain: str = "", zones: Iterable[str] = ()) -> None:
        tenants = [tenant for tenant in tenants if not tenant.refused]
        self._zones = frozenset(zones)
        #: The namespace of the only member, when no other member's names need protection.
        self._only = tenants[0].namespace if len(tenants) == 1 else None
        self._holders: dict[str, str] = {hub_domain: NOBODYS} if hub_domain else {}
        self._holders |= {domain: tenant.namespace for domain, tenant in domain_holders(tenants).items()}

    def differences(self, other: Domains) -> frozenset[str]:
        """Return the domains with a different owner in ``other``, and the zones that only one of the two has."""
        names = {*self._holders, *other._holders}
        changed = (name for name in names if self._holders.get(name) != other._holders.get(name))
        return frozenset(changed) | (self._zones ^ other._zones)

    def differ_for_wildcards(self, other: Domains) -> bool:
        """Return whether ``other`` has a different only member, so that owners of wildcards may change."""
        return self._only != other._only

    def published(self, host: str) -> bool:
        """Return whether a zone could publish ``host``."""
        return any(is_within(host, zone) for zone in self._zones)

    def allows(self, host: str, space: str) -> bool:
        """Return whether the member with namespace ``space`` may have ``host``."""
        holder = self._holder(host)
        return holder is None or holder == space

    def gives(self, host: str, space: str) -> bool:
        """Return whether ``host`` is in a domain of the member with namespace ``space``.

        A name outside all domains belongs to the only member, if there is only one.
        """
        holder = self._holder(host)
        return (self._only if holder is None else holder) == space

    def needs_grant(self, host: str) -> bool:
        """Return whether ``host`` is a wildcard over a zone or a top-level domain, for all names without an owner."""
        domain = host.removeprefix(WILDCARD)
        return domain != host and ("." not in domain or domain in self._zones)

    def _holder(self, host: str) -> str | None:
        if not self._holders:
            return None
        rest = host.removeprefix(WILDCARD)
        while rest:
            if rest in self._holders:
                return self._holders[rest]
            rest = rest.partition(".")[2]
        return None


def decide(host: str, claims: NameClaims, owned: Owned, domains: Domains, full: Full | None = None) -> NameDecision:
    """Return the owner of ``host``."""
    claimants = sorted(claims.at(host).values(), key=lambda claimant: claimant.order)
    refused: dict[str, ConditionReason] = {}
    allowed: list[NameClaimant] = []
    holder = owned(host)
    for claimant in claimants:
        if not domains.allows(host, claimant.space):
            refused[claimant.space] = ConditionReason.DOMAIN_RESERVED
        elif domains.needs_grant(host) and claimant.space != holder and not domains.gives(host, claimant.space):
            refused[claimant.space] = ConditionReason.WILDCARD_NOT_GRANTED
        else:
            allowed.append(claimant)
    winner = next((claimant for claimant in allowed if claimant.space == holder), None)
    if winner is None and holder != NOBODYS:
        winner = next((claimant for claimant in allowed if full is None or not full(host, claimant)), None)
    granted = [claimant for claimant in allowed if winner is not None and claimant.space == winner.space]
    free = winner is None and holder != NOBODYS
    why_not = ConditionReason.QUOTA_EXCEEDED if free else ConditionReason.HOSTNAME_TAKEN
    refused |= {claimant.space: why_not for claimant in allowed if winner is None or claimant.space != winner.space}
    return NameDecision(
        owner=winner,
        load_balancers=tuple(dict.fromkeys(claimant.load_balancer for claimant in granted)),
        refused=refused,
        waiting=len({_object(claimant) for claimant in claimants} - {_object(claimant) for claimant in granted}),
    )


def _object(claimant: NameClaimant) -> tuple[str, str, str, str]:
    return (claimant.space, claimant.kind, claimant.namespace, claimant.name)


Order = tuple[bool, str, str, str, str, str]


class ClaimSource(NamedTuple):
    """An object at the hub, by kind, namespace and name."""

    kind: str
    namespace: str
    name: str


class NameClaimant(msgspec.Struct, frozen=True):
    """An object that requests names.

    ``space`` is its member's namespace at the hub, ``created`` its creation time there (RFC 3339).
    ``former``: the name was generated in a former domain of the member.
    ``subtenant``: the sub-tenant whose quota its names use, empty if sub-tenants have no limits.
    ``late``: the object represents many objects of the member, whose own claims take precedence.
    """

    space: str
    member: str
    kind: str
    namespace: str
    name: str
    uid: str
    load_balancer: LoadBalancerKey
    created: str
    late: bool = False
    generated: bool = False
    former: bool = False
    subtenant: str = ""

    @property
    def order(self) -> Order:
        """Return the sort key for a name without an owner: oldest first, then by member and name."""
        return (self.late, self.created, self.member or self.space, self.namespace, self.name, str(self.load_balancer))


class NameClaims:
    """All claims at a hub, by source, host and load balancer; a change costs time for its source's hosts only."""

    def __init__(self) -> None:
        self._by_source: dict[ClaimSource, Mapping[str, NameClaimant]] = {}
        self._by_host: dict[str, dict[ClaimSource, NameClaimant]] = {}
        #: All hosts, reversed and sorted: those below a name are adjacent. An index by every parent domain of a host
        #: could have a hundred entries for each host.
        self._by_ending: list[str] = []
        self._by_load_balancer: dict[LoadBalancerKey, set[ClaimSource]] = {}

    def put(self, source: ClaimSource, hosts: Mapping[str, NameClaimant]) -> frozenset[str]:
        """Replace the claims of ``source``; empty ``hosts`` removes them. Return the hosts that changed."""
        before = self._by_source.get(source, {})
        if before == hosts:
            return frozenset()
        changed = {host for host in {*before, *hosts} if before.get(host) != hosts.get(host)}
        for host in changed & before.keys():
            self._remove(source, host)
        for claimant in before.values():
            self._by_load_balancer.get(claimant.load_balancer, set()).discard(source)
        self._by_source.pop(source, None)
        if hosts:
            self._by_source[source] = dict(hosts)
        for host, claimant in hosts.items():
            if host in changed:
                if host not in self._by_host:
                    insort(self._by_ending, host[::-1])
                self._by_host.setdefault(host, {})[source] = claimant
            self._by_load_balancer.setdefault(claimant.load_balancer, set()).add(source)
        for key in {claimant.load_balancer for claimant in before.values()}:
            if not self._by_load_balancer.get(key):
                self._by_load_balancer.pop(key, None)
        return frozenset(changed)

    def at(self, host: str) -> Mapping[ClaimSource, NameClaimant]:
        """Return the claimants of ``host``, by source."""
        return self._by_host.get(host, {})

    def of(self, source: ClaimSource) -> Mapping[str, NameClaimant]:
        """Return the claims of ``source``, by host."""
        return self._by_source.get(source, {})

    def sources(self) -> list[ClaimSource]:
        """Return every source with a claim."""
        return list(self._by_source)

    def hosts(self) -> list[str]:
        """Return every claimed host."""
        return list(self._by_host)

    def below(self, wildcard: str) -> frozenset[str]:
        """Return the claimed hosts below a wildcard, including wildcards."""
        ending = wildcard.removeprefix("*")[::-1]
        first = bisect_left(self._by_ending, ending)
        last = bisect_left(self._by_ending, f"{ending}~", first)
        return frozenset(host[::-1] for host in self._by_ending[first:last]) - {wildcard}

    def in_domain(self, domain: str) -> frozenset[str]:
        """Return the claimed hosts in ``domain``, including itself and its wildcard."""
        wildcard = f"{WILDCARD}{domain}"
        own = {host for host in (domain, wildcard) if host in self._by_host}
        return self.below(wildcard) | own

    def at_load_balancer(self, key: LoadBalancerKey) -> frozenset[str]:
        """Return the hosts claimed for one load balancer."""
        sources = self._by_load_balancer.get(key, set())
        return frozenset(host for source in sources for host in self._by_source[source])

    def _remove(self, source: ClaimSource, host: str) -> None:
        there = self._by_host[host]
        del there[source]
        if there:
            return
        del self._by_host[host]
        del self._by_ending[bisect_left(self._by_ending, host[::-1])]


#: More addresses do not fit into one DNS packet.
MAX_ADDRESSES = 64
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_LIMIT = 253


def object_name(host: str) -> str:
    """Name the Hostname of ``host``: the host itself if it is a valid object name.

    Otherwise the first label is a digest of 64 characters, longer than any label of a host.
    """
    if _OBJECT_NAME.fullmatch(host):
        return host
    digest, rest = short_hash(host, size_bytes=32), host.partition(".")[2]
    return f"{digest}.{rest}"[:_NAME_LIMIT].rstrip(".-") if rest else digest


def is_of_claims(hostname: Hostname) -> bool:
    """Return whether a Hostname was written for a claim; others, such as an operator's, are never changed."""
    return bool(hostname.spec.owner.load_balancer)


def space_of(hostname: Hostname) -> str:
    """Return the namespace of the member that owns a Hostname; ``NOBODYS`` when the owner is not a member."""
    parts = hostname.spec.owner.load_balancer.split("/")
    return parts[1] if len(parts) == 3 else NOBODYS


def hostname_spec(
    host: str,
    owner: NameClaimant,
    decision: NameDecision,
    recorded: HostnameSpec | None,
    addresses: LoadBalancerAddresses,
    *,
    down: Collection[LoadBalancerKey] = (),
) -> HostnameSpec:
    """Return the spec of the Hostname of ``host``; ``down``: load balancers that fail while others may serve."""
    keys = decision.load_balancers
    shown = [address for key in keys for address in addresses.of(key)]
    numeric = {address for address in shown if family_of(address) is not None}
    named = next((address for address in shown if address not in numeric), "")
    if recorded is not None and recorded.owner.load_balancer in map(str, keys) and not all(map(addresses.of, keys)):
        # A briefly missing address is kept, unless another load balancer has it by now.
        numeric |= {address for address in recorded.addresses if not addresses.is_of_others(address, keys)}
        named = named or recorded.cname
    shown_addresses = sorted(numeric)[:MAX_ADDRESSES]
    serving = {address for key in {*keys} - {*down} for address in addresses.of(key)}
    # A recorded address that a serving load balancer briefly lacks is not counted as down.
    failed = numeric if {*keys} <= {*down} else {address for key in down for address in addresses.of(key)}
    return HostnameSpec(
        host=host,
        owner=HostnameOwner(
            member=owner.member,
            kind=owner.kind,
            namespace=owner.namespace,
            name=owner.name,
            uid=owner.uid,
            load_balancer=str(owner.load_balancer),
            subtenant=owner.subtenant,
        ),
        addresses=shown_addresses,
        cname="" if numeric else named,
        generated=owner.generated,
        unhealthy_addresses=[address for address in shown_addresses if address in failed - serving] if down else [],
    )


def hostname_body(spec: HostnameSpec) -> JSONObject:
    """Return the applied part of ``spec``: only fields that claims decide, so that others may add texts and a TTL."""
    body: JSONObject = {"host": spec.host, "owner": msgspec.to_builtins(spec.owner)}
    if spec.addresses:
        body["addresses"] = spec.addresses
    if spec.cname:
        body["cname"] = spec.cname
    if spec.generated:
        body["generated"] = True
    if spec.unhealthy_addresses:
        body["unhealthyAddresses"] = spec.unhealthy_addresses
    return body


def same_spec(spec: HostnameSpec, present: HostnameSpec) -> bool:
    """Return whether ``present`` has the fields of ``spec`` that claims decide."""
    return _claimed(spec) == _claimed(present)


def _claimed(spec: HostnameSpec) -> tuple[object, ...]:
    addresses = sorted(spec.addresses), sorted(spec.unhealthy_addresses)
    return spec.host, spec.owner, addresses, spec.cname, spec.generated


class LoadBalancerAddresses:
    """The addresses of all load balancers of a hub: IP addresses, and host names of those that have no IP address."""

    def __init__(self) -> None:
        self._known: dict[LoadBalancerKey, tuple[str, ...]] = {}
        self._holders: dict[str, set[LoadBalancerKey]] = {}
        #: The times since when load balancers have been down.
        self._down: dict[LoadBalancerKey, datetime] = {}

    def put(self, key: LoadBalancerKey, status: IntentStatus | None) -> bool:
        """Apply the status of ``key``, None when the object was deleted.

        Return whether the addresses changed, or whether it serves.
        """
        down = self._down.pop(key, None)
        since = down_since(status) if status is not None else None
        if since is not None:
            self._down[key] = since
        before = self._known.pop(key, ())
        now = () if status is None else _shown(status) or before
        if now:
            self._known[key] = now
        for address in {*before} - {*now}:
            self._holders[address].discard(key)
            if not self._holders[address]:
                del self._holders[address]
        for address in now:
            self._holders.setdefault(address, set()).add(key)
        return now != before or since != down

    def down_since(self, key: LoadBalancerKey) -> datetime | None:
        """Return since when a load balancer has been down; None if it serves or the time is unknown."""
        return self._down.get(key)

    def of(self, key: LoadBalancerKey) -> tuple[str, ...]:
        """Return the last known addresses of one load balancer."""
        return self._known.get(key, ())

    def is_of_others(self, address: str, keys: Collection[LoadBalancerKey]) -> bool:
        """Return whether ``address`` belongs only to load balancers outside ``keys``."""
        holders = self._holders.get(address, set())
        return bool(holders) and not holders & set(keys)


def down_since(status: IntentStatus) -> datetime | None:
    """Return since when all proxies or all targets of a load balancer have been down; None if unknown."""
    for condition in status.conditions or ():
        if condition.status == "False" and (condition.type, condition.reason) in _DOWN:
            return parsed_time(condition.last_transition_time)
    return None


#: The conditions of a load balancer to which no client should be sent.
_DOWN: frozenset[tuple[str, str]] = frozenset(
    {
        (ConditionType.PROGRAMMED, ConditionReason.NO_PROXY_CONNECTED),
        (ConditionType.SERVING, ConditionReason.NO_TARGETS),
        (ConditionType.SERVING, ConditionReason.NO_HEALTHY_TARGETS),
        (ConditionType.SERVING, ConditionReason.FLAPPING),
    }
)


def _shown(status: IntentStatus) -> tuple[str, ...]:
    entries = status.load_balancer.ingress or ()
    return tuple(dict.fromkeys(entry.address for entry in entries if entry.address))
