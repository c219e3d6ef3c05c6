"""An index of claims of host names, by name and by object.

    source     a LoadBalancerRoute, HTTPLoadBalancer or TCPLoadBalancer at the hub: what is written back goes there
    claimant   the member's object behind it (Ingress, Gateway, route, Service), with its load balancer and its age
    claim      a claimant asks for a host

In: the claims of one source at a time. Out: claims by host, hosts below a name, hosts of a load balancer; what a change
concerns. A change costs the hosts of its own source. Never: decides who owns a name (``ownership``).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from fairlead.api.hostname import WILDCARD
from fairlead.model.keys import LoadBalancerKey

Order = tuple[bool, str, str, str, str, str]


class ClaimSource(NamedTuple):
    """An object at the hub, by kind, namespace and name."""

    kind: str
    namespace: str
    name: str


class NameClaimant(msgspec.Struct, frozen=True):
    """An object that asks for names.

    ``space`` is its member's namespace at the hub, ``created`` its age there (RFC 3339).
    ``former``: the name is one that was made in a former domain of the member.
    ``late``: it represents many objects of the member, whose own claims go first.
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

    @property
    def order(self) -> Order:
        """Return the order in which a name that has no owner is given: older first, then by member and name."""
        return (self.late, self.created, self.member or self.space, self.namespace, self.name, str(self.load_balancer))


class NameClaims:
    """All claims at a hub."""

    def __init__(self) -> None:
        self._by_source: dict[ClaimSource, Mapping[str, NameClaimant]] = {}
        self._by_host: dict[str, dict[ClaimSource, NameClaimant]] = {}
        #: All hosts, reversed and sorted: those below a name are next to each other. Not an entry for each name above a
        #: host: there may be a hundred of these.
        self._by_ending: list[str] = []
        self._by_load_balancer: dict[LoadBalancerKey, set[ClaimSource]] = {}

    def put(self, source: ClaimSource, hosts: Mapping[str, NameClaimant]) -> frozenset[str]:
        """Replace the claims of ``source``, none of which may stay; return the hosts that this concerns."""
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
                self._add(source, host, claimant)
            self._by_load_balancer.setdefault(claimant.load_balancer, set()).add(source)
        for key in {claimant.load_balancer for claimant in before.values()}:
            if not self._by_load_balancer.get(key):
                self._by_load_balancer.pop(key, None)
        return frozenset(changed)

    def at(self, host: str) -> Mapping[ClaimSource, NameClaimant]:
        """Return the claimants of ``host``, by source."""
        return self._by_host.get(host, {})

    def of(self, source: ClaimSource) -> Mapping[str, NameClaimant]:
        """Return what ``source`` asks for, by host."""
        return self._by_source.get(source, {})

    def sources(self) -> list[ClaimSource]:
        """Return every source that asks for a name."""
        return list(self._by_source)

    def hosts(self) -> list[str]:
        """Return every host that is asked for."""
        return list(self._by_host)

    def below(self, wildcard: str) -> frozenset[str]:
        """Return the hosts that are asked for below a wildcard, wildcards among them."""
        ending = wildcard.removeprefix("*")[::-1]
        first = bisect_left(self._by_ending, ending)
        last = bisect_left(self._by_ending, f"{ending}~", first)
        return frozenset(each[::-1] for each in self._by_ending[first:last]) - {wildcard}

    def in_domain(self, domain: str) -> frozenset[str]:
        """Return the hosts that are asked for in ``domain``, itself and its wildcard among them."""
        wildcard = f"{WILDCARD}{domain}"
        own = {host for host in (domain, wildcard) if host in self._by_host}
        return self.below(wildcard) | own

    def at_load_balancer(self, key: LoadBalancerKey) -> frozenset[str]:
        """Return the hosts that are asked for on behalf of one load balancer."""
        sources = self._by_load_balancer.get(key, set())
        return frozenset(host for source in sources for host in self._by_source[source])

    def _add(self, source: ClaimSource, host: str, claimant: NameClaimant) -> None:
        if host not in self._by_host:
            insort(self._by_ending, host[::-1])
        self._by_host.setdefault(host, {})[source] = claimant

    def _remove(self, source: ClaimSource, host: str) -> None:
        there = self._by_host[host]
        del there[source]
        if there:
            return
        del self._by_host[host]
        del self._by_ending[bisect_left(self._by_ending, host[::-1])]
