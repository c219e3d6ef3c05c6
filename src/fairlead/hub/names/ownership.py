"""Decides which member owns a host name.

    has an owner that still asks for it, and may       that owner
    no owner                                           the oldest object that asks and may, then by member and name
    a member that has as many names as it may          keeps these, and gets no other
    a wildcard over a top-level domain or a zone       only for the member whose domain it is, that has it, or that is
                                                       the only one
    in a domain that belongs to a member               that member only
    in the hub's domain, outside of any member's       no member

Each name is decided by itself: a wildcard keeps no name below it from others, a domain of a member does. The owner is a
member: all its objects share the name. In: claims, what is recorded, domains. Out: ``NameDecision``: the
owner, its load balancers, and the members that may not have the name. Never: a write, or a passing on by chance: the
same claims and records come to the same decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from fairlead.api.hostname import WILDCARD
from fairlead.api.tenant import Tenant
from fairlead.hub.names.claims import NameClaimant, NameClaims
from fairlead.model.condition import ConditionReason
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.tenant import domain_holders

#: Returns the namespace of the member that is recorded as the owner of a host; empty for an owner that is no member,
#: None when the host has no owner.
Owned = Callable[[str], str | None]
NOBODYS = ""
#: Says whether a host would be one too many for the member with a namespace.
Full = Callable[[str, str], bool]


class NameDecision(msgspec.Struct, frozen=True):
    """The owner of a host. ``refused`` are the namespaces of the members that may not have it, each with the reason.

    ``load_balancers`` are those of the owner that take it, in order of age. ``waiting`` counts the other objects.
    """

    owner: NameClaimant | None = None
    load_balancers: tuple[LoadBalancerKey, ...] = ()
    refused: Mapping[str, ConditionReason] = {}
    waiting: int = 0


class Domains:
    """The member of each domain; the longest domain that a host is in counts; ``zones`` are those of the operator."""

    def __init__(self, tenants: Iterable[Tenant] = (), hub_domain: str = "", zones: Iterable[str] = ()) -> None:
        tenants = [tenant for tenant in tenants if not tenant.refused]
        self._zones = frozenset(zones)
        #: The namespace of the only member, from which no name of another one has to be kept.
        self._only = tenants[0].namespace if len(tenants) == 1 else None
        self._holders: dict[str, str] = {hub_domain: NOBODYS} if hub_domain else {}
        self._holders |= {domain: tenant.namespace for domain, tenant in domain_holders(tenants).items()}

    def differences(self, other: Domains) -> frozenset[str]:
        """Return the domains whose holder is another one in ``other``, and the zones of only one of the two."""
        names = {*self._holders, *other._holders}
        held = (each for each in names if self._holders.get(each) != other._holders.get(each))
        return frozenset(held) | (self._zones ^ other._zones)

    def differ_for_wildcards(self, other: Domains) -> bool:
        """Return whether ``other`` has another only member, so that wildcards may have other owners."""
        return self._only != other._only

    def allows(self, host: str, space: str) -> bool:
        """Return whether the member with namespace ``space`` may have ``host``."""
        holder = self._holder(host)
        return holder is None or holder == space

    def gives(self, host: str, space: str) -> bool:
        """Return whether ``host`` is in a domain of the member with namespace ``space``.

        What is in no domain is the only member's, if there is only one.
        """
        holder = self._holder(host)
        return (self._only if holder is None else holder) == space

    def needs_grant(self, host: str) -> bool:
        """Say whether ``host`` is a wildcard that would answer for all names that no member has in a zone or a TLD."""
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
    claimants = sorted(claims.at(host).values(), key=lambda each: each.order)
    refused: dict[str, ConditionReason] = {}
    allowed: list[NameClaimant] = []
    holder = owned(host)
    for each in claimants:
        if not domains.allows(host, each.space):
            refused[each.space] = ConditionReason.DOMAIN_RESERVED
        elif domains.needs_grant(host) and each.space != holder and not domains.gives(host, each.space):
            refused[each.space] = ConditionReason.WILDCARD_NOT_GRANTED
        else:
            allowed.append(each)
    winner = next((each for each in allowed if each.space == holder), None)
    if winner is None and holder != NOBODYS:
        winner = next((each for each in allowed if full is None or not full(host, each.space)), None)
    ours = [each for each in allowed if winner is not None and each.space == winner.space]
    free = winner is None and holder != NOBODYS
    why_not = ConditionReason.QUOTA_EXCEEDED if free else ConditionReason.HOSTNAME_TAKEN
    refused |= {each.space: why_not for each in allowed if winner is None or each.space != winner.space}
    return NameDecision(
        owner=winner,
        load_balancers=tuple(dict.fromkeys(each.load_balancer for each in ours)),
        refused=refused,
        waiting=len({_object(each) for each in claimants} - {_object(each) for each in ours}),
    )


def _object(claimant: NameClaimant) -> tuple[str, str, str, str]:
    return (claimant.space, claimant.kind, claimant.namespace, claimant.name)
