"""Allocations of addresses and proxy ports, rebuilt from what is recorded in the objects' status.

Everything recorded is read before anything new is given away, so that a restart never moves an address. In: pools,
objects and their recorded allocations. Out: an allocation to record, or the condition that says why there is none.
What a load balancer has it keeps, also when its pool changes or goes. What is released wakes all that wait; a released
address rests, so that clients that still know it do not reach another load balancer.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Sequence

import msgspec

from fairlead.api.intent import Allocation, ProxyPort
from fairlead.api.tcploadbalancer import TCPLoadBalancerSpec
from fairlead.hub.given_addresses import AddressSource, GivenAddresses
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import AllocationKind
from fairlead.model.keys import (
    ANY_FAMILY,
    IPV4,
    IPV6,
    Family,
    ListenerKey,
    LoadBalancerKey,
    Protocol,
    WantedFamilies,
    by_family,
    family_of,
    requested_addresses,
)
from fairlead.runtime.clock import Clock
from fairlead.translate.addresses import (
    OWN_POOL,
    AddressClaimant,
    AddressRanges,
    Pool,
    Pools,
    allocate_address,
    allocate_proxy_port,
    describe,
)

NOTHING = Allocation()
#: An address, and the AddressPool that it is of; empty for ``OWN_POOL``.
_Place = tuple[str, str]
_ANY = "leave spec.address empty to get a free one"


#: For how long a released address is given to another load balancer only when nothing else is free, in seconds.
REST_S = 600.0


class _Holding(msgspec.Struct, frozen=True):
    """What one load balancer holds: its allocation, and what is still on record or served until that is recorded."""

    allocation: Allocation = Allocation()
    places: tuple[_Place, ...] = ()
    listeners: frozenset[ListenerKey] = frozenset()
    #: Its ports are not known: no other load balancer shares its addresses.
    alone: bool = False
    #: How many ports count towards the quota of its member.
    open: int = 0

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset(address for address, _ in self.places)

    @property
    def proxy_ports(self) -> frozenset[int]:
        return frozenset(port.proxy_port for port in self.allocation.ports)


class _Rest(msgspec.Struct, frozen=True):
    """An address that was released: by whom, and until when (monotonic seconds) it rests."""

    owner: LoadBalancerKey
    until_s: float


class AddressAllocator:
    """Addresses of pools, and proxy ports of each group (a tenant's namespace).

    ``pool``: that of --address-pool. ``changed`` is called when an address is given or given back; ``given`` gets
    the addresses and ports at which each load balancer answers. ``wake`` gets the load balancers that wait for
    something, whenever an address, a port or a part of a quota is released.
    """

    def __init__(
        self,
        pool: AddressRanges | None,
        *,
        clock: Clock,
        given: GivenAddresses | None = None,
        changed: Callable[[], None] = lambda: None,
        wake: Callable[[Collection[LoadBalancerKey], str], None] = lambda _keys, _cause: None,
    ) -> None:
        self.pools = Pools.own(pool)
        self._clock = clock
        self._given = given
        self._changed = changed
        self._wake = wake
        self._held: dict[LoadBalancerKey, _Holding] = {}
        #: Released addresses, the one that rests longest first.
        self._resting: dict[str, _Rest] = {}
        self._waiting: set[LoadBalancerKey] = set()
        #: Load balancers whose allocation cannot be read, each with the reason.
        self._unknown: dict[LoadBalancerKey, str] = {}
        self._addresses: dict[str, dict[LoadBalancerKey, _Holding]] = {}
        self._addresses_of_member: dict[str, set[str]] = {}
        self._ports: dict[str, dict[int, LoadBalancerKey]] = {}
        #: How many ports each member has.
        self._open_of_member: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._addresses)

    def use(self, pools: Pools, cause: str) -> None:
        """Give addresses of ``pools`` from now on, which wakes all that wait for one."""
        self.pools = pools
        self._wake_waiting(cause)

    def given(self) -> Iterable[tuple[str, str]]:
        """Return each address of each load balancer, with the pool that it was given from, in no order."""
        return [place for holding in self._held.values() for place in holding.places]

    def hold(
        self,
        key: LoadBalancerKey,
        allocation: Allocation,
        listeners: Iterable[ListenerKey],
        *,
        beside: Iterable[ListenerKey] = (),
        recorded: Allocation = NOTHING,
        served: Iterable[ListenerKey] = (),
        alone: bool = False,
    ) -> None:
        """Note what ``key`` has; replaces what it had. ``next to``, ``recorded`` and ``served`` as in ``allocate``.

        ``alone``: its ports are not known.
        """
        requested = frozenset(listeners).union(served)
        self._put(
            key,
            _Holding(
                allocation,
                places=tuple(dict.fromkeys((*allocation.places, *recorded.places))),
                listeners=requested.union(beside),
                alone=alone,
                open=len(requested) if allocation != NOTHING else 0,
            ),
        )

    def block(self, key: LoadBalancerKey, why: str) -> None:
        """Give nothing new: what ``key`` has is not known. ``why`` says which object cannot be read."""
        self._unknown[key] = why

    def unblock(self, key: LoadBalancerKey) -> None:
        """Go on: what ``key`` has is known, or it is gone."""
        if self._unknown.pop(key, ""):
            self._wake_waiting(f"{key} can be read again")

    def release(self, key: LoadBalancerKey) -> None:
        """Give back all that ``key`` had; only once its load balancer is really gone."""
        self._put(key, None)

    def leave(self, key: LoadBalancerKey) -> None:
        """Give back all that ``key`` had, which is gone and waits for nothing; those over a quota are woken, too."""
        self._waiting.discard(key)
        if not self._put(key, None):
            self._wake_waiting(f"{key} is gone")

    def wait(self, key: LoadBalancerKey) -> None:
        """Wake ``key`` as well when something is released: a quota of its member is used up."""
        self._waiting.add(key)

    def wake_rested(self) -> float | None:
        """Wake all that wait, as an address may have rested; return in how many seconds the next one has."""
        self._forget_rested()
        self._wake_waiting("a released address has rested")
        rests = (rest.until_s - self._clock.monotonic() for rest in self._resting.values())
        return next(rests, None)

    def _put(self, key: LoadBalancerKey, holding: _Holding | None) -> bool:
        """Replace what ``key`` holds: the one place where anything is released; says whether that was so.

        Those who wait are woken then.
        """
        old, new = self._held.pop(key, _Holding()), holding or _Holding()
        gone, now_s = old.addresses - new.addresses, self._clock.monotonic()
        for address in gone:
            holders = self._addresses[address]
            del holders[key]
            if all(other.namespace != key.namespace for other in holders):
                self._addresses_of_member[key.namespace].discard(address)
            if not holders:
                del self._addresses[address]
                self._resting[address] = _Rest(key, now_s + REST_S)
        for address in new.addresses:
            self._addresses.setdefault(address, {})[key] = new
            self._addresses_of_member.setdefault(key.namespace, set()).add(address)
            self._resting.pop(address, None)
        if old.proxy_ports != new.proxy_ports:
            ports = self._ports.setdefault(key.namespace, {})
            for number in old.proxy_ports - new.proxy_ports:
                if ports.get(number) == key:
                    del ports[number]
            for number in new.proxy_ports:
                ports.setdefault(number, key)
        self._open_of_member[key.namespace] += new.open - old.open
        if holding is not None:
            self._held[key] = holding
        self._answers_at(key, new.addresses, new.listeners)
        if old.places != new.places:
            self._changed()
        kept = (
            not gone and old.listeners <= new.listeners and old.proxy_ports <= new.proxy_ports and old.open <= new.open
        )
        if not kept:
            self._wake_waiting(f"{key} released an address or a port", but=key)
        return not kept

    def _wake_waiting(self, cause: str, *, but: LoadBalancerKey | None = None) -> None:
        if keys := self._waiting - {but}:
            self._wake(keys, cause)

    def _forget_rested(self) -> None:
        now_s = self._clock.monotonic()
        while self._resting and self._resting[oldest := next(iter(self._resting))].until_s <= now_s:
            del self._resting[oldest]

    def _answers_at(self, key: LoadBalancerKey, addresses: Iterable[str], listeners: Collection[ListenerKey]) -> None:
        if self._given is not None:
            ports = {listener.port for listener in listeners}
            self._given.put(key, AddressSource.ALLOCATED, addresses=addresses, ports=ports)

    def allocate(
        self,
        key: LoadBalancerKey,
        kind: AllocationKind,
        *,
        wanted: str,
        recorded: Allocation,
        listeners: Sequence[ListenerKey],
        beside: Sequence[ListenerKey] = (),
        served: Collection[ListenerKey] = (),
        limit: int = 0,
        tenant: str = "",
        class_name: str = "",
        families: WantedFamilies = ANY_FAMILY,
    ) -> tuple[Allocation, Condition | None]:
        """Return what a provider of ``kind`` needs for ``key``: what it has already, or something free.

        ``wanted``: the address that its spec asks for, one of each family after commas, empty for any. ``limit``: how
        many ports its member may have, 0 for any number; what a load balancer has already it keeps. ``next to`` are
        ports that the hub opens of itself, for challenges and generated names: they do not count. ``tenant`` and
        ``class_name`` say which pools serve it, ``families`` which addresses. ``recorded`` and ``served``, the ports of
        the accepted spec, are held until the new ones are on record. The condition says why there is none.
        """
        self._forget_rested()
        holding = self._held.get(key)
        previous, before = (holding.allocation, holding.open) if holding is not None else (recorded, 0)
        others = self._open_of_member[key.namespace] - before
        if kind is not AllocationKind.NONE and limit and len(listeners) > before and others + len(listeners) > limit:
            self._waiting.add(key)
            return previous, _problem(
                ConditionReason.QUOTA_EXCEEDED,
                f"spec.ports: this load balancer needs {len(listeners)}, its member has {others} others, and may have "
                f"{limit} together; delete a load balancer, or ask the operator for more (spec.maxPorts of the Tenant, "
                "--tenant-ports of the hub)",
            )
        match kind:
            case AllocationKind.NONE:
                return NOTHING, None
            case AllocationKind.ADDRESS:
                claimant = AddressClaimant(key, tenant, class_name)
                self._waiting.discard(key)
                allocation, problem = self._addresses_of(claimant, wanted, previous, [*listeners, *beside], families)
            case AllocationKind.PROXY_PORT:
                self._waiting.discard(key)
                allocation, problem = self._proxy_ports(key, previous, [*listeners, *beside])
        if problem is None and (why := self._unknown_to(key, previous, allocation)):
            problem = _problem(ConditionReason.ADDRESS_NOT_ASSIGNED, why)
            allocation = previous
        if problem is None:
            # What release 0.1 has served stays at Envoy as it is.
            limited = previous.limits_connections or previous == NOTHING
            allocation = msgspec.structs.replace(allocation, limits_connections=limited)
            self.hold(key, allocation, listeners, beside=beside, recorded=recorded, served=served)
        else:
            self._waiting.add(key)
        return allocation, problem

    def _unknown_to(self, key: LoadBalancerKey, previous: Allocation, allocation: Allocation) -> str:
        """Return why ``allocation`` may have what is another load balancer's already; empty when it cannot."""
        if set(allocation.places) - set(previous.places):
            unknown = list(self._unknown.values())
        elif {port.proxy_port for port in allocation.ports} - {port.proxy_port for port in previous.ports}:
            unknown = [why for other, why in self._unknown.items() if other.namespace in ("", key.namespace)]
        else:
            unknown = []
        return f"no address or port is assigned while {unknown[0]}; correct or delete that object" if unknown else ""

    def _addresses_of(
        self,
        claimant: AddressClaimant,
        requested: str,
        previous: Allocation,
        listeners: Sequence[ListenerKey],
        wanted: WantedFamilies,
    ) -> tuple[Allocation, Condition | None]:
        """Return one address of each wanted family that there is; or what it had, and why it gets no other."""
        without_ports = msgspec.structs.replace(previous, ports=[])
        requests = by_family(requested_addresses(requested))
        earlier = by_family(address for address, _ in previous.places)
        families = wanted.families or tuple(requests) or tuple(earlier)[:1] or (self._family_of_pools(claimant),)
        if other := next((address for family, address in requests.items() if family not in families), ""):
            why = (
                f"spec.address: {other} is not {' or '.join(families)}, which spec.ipFamilies asks for; add its family"
            )
            return without_ports, _problem(ConditionReason.ADDRESS_NOT_USABLE, why)
        allocated: list[_Place] = []
        missing: Condition | None = None
        for family in families:
            earlier_place, request = _held(previous, earlier.get(family)), requests.get(family, "")
            place, problem = self._address(claimant, request, earlier_place, listeners, family)
            if place is not None and problem is None:
                allocated.append(place)
            elif wanted.all_required or family in requests or family in earlier:
                return without_ports, problem
            missing = missing or problem
        if not allocated:
            return without_ports, missing
        (address, pool), (second, second_pool) = (*allocated, ("", ""))[:2]
        if missing is not None:
            self._waiting.add(claimant.key)
        return Allocation(address, pool=pool, second_address=second, second_pool=second_pool), None

    def _family_of_pools(self, claimant: AddressClaimant) -> Family:
        """Return the family of what is given to a load balancer that asks for none: IPv4 where there is any."""
        families = {family for pool in self.pools.serving(claimant) for family in pool.ranges.families}
        return IPV6 if families == {IPV6} else IPV4

    def _address(
        self,
        claimant: AddressClaimant,
        request: str,
        earlier: _Place | None,
        listeners: Sequence[ListenerKey],
        family: Family,
    ) -> tuple[_Place | None, Condition | None]:
        key, earlier_address = claimant.key, earlier[0] if earlier is not None else ""
        wanted = request or earlier_address
        if not wanted:
            return self._any_address(claimant, listeners, family)
        pool = next((pool for pool in self.pools.serving(claimant) if wanted in pool.ranges), None)
        if wanted != earlier_address and (why := self._not_usable(claimant, wanted, pool)):
            return None, _problem(ConditionReason.ADDRESS_NOT_USABLE, f"spec.address: {why}")
        if (other := self._clash(key, wanted, listeners)) is not None:
            # Which load balancers other members have is not for this one to know.
            owner = other if other.namespace == key.namespace else "another load balancer"
            return None, _problem(
                ConditionReason.PORT_CONFLICT,
                f"{wanted} is taken by {owner}; leave spec.address empty to get a free one, "
                "or use other ports of the same member",
            )
        reserved = pool is not None and wanted in pool.reservations
        if wanted != earlier_address and not reserved and self._rests_for(key, wanted):
            # The author of the same member decides what becomes of its clients; another member does not.
            return None, _problem(
                ConditionReason.ADDRESS_NOT_USABLE,
                f"spec.address: {wanted} was released by another member less than {REST_S / 60:g} minutes ago; wait, "
                f"or {_ANY}",
            )
        return earlier if earlier is not None and wanted == earlier_address else _place(wanted, pool), None

    def _not_usable(self, claimant: AddressClaimant, wanted: str, pool: Pool | None) -> str:
        """Return why ``claimant`` may not have ``wanted``, which it asks for; empty when it may."""
        choose = f"choose one of it, or {_ANY}"
        if pool is None:
            serving = self.pools.serving(claimant)
            if (held := next((each for each in self.pools.held if wanted in each.ranges), None)) is not None:
                return f"{wanted} is of AddressPool {held.name}, whose spec is not valid now; correct it, or {_ANY}"
            if self.pools.incomplete and not self.pools:
                return f"{wanted} is not given while {self.pools.incomplete}; correct it, or {_ANY}"
            if not self.pools:
                return f"{wanted} is not an address that one load balancer can have; {_ANY}" if _is_odd(wanted) else ""
            if not serving:
                return self._nothing_serves(claimant)
            if len(serving) == 1 and serving[0].name == OWN_POOL:
                return f"{wanted} is not in {describe(serving[0])}; {choose}"
            return f"{wanted} is in no pool that serves this load balancer; {_ANY}"
        if not pool.may_have(claimant, wanted):
            return f"{wanted} is reserved for another load balancer; {_ANY}"
        family = family_of(wanted)
        if wanted not in self._addresses and family is not None and self._has_its_share(claimant, pool, family):
            return self._share_is_used(claimant, pool, family)
        return ""

    def _any_address(
        self, claimant: AddressClaimant, listeners: Sequence[ListenerKey], family: Family
    ) -> tuple[_Place | None, Condition | None]:
        serving = self.pools.serving(claimant)
        if self.pools.unknown_ranges:
            why = f"no address is assigned while {self.pools.unknown_ranges}; correct or delete it"
            return None, _problem(ConditionReason.ADDRESS_NOT_ASSIGNED, why)
        if not serving:
            why = (
                self._nothing_serves(claimant)
                if self.pools
                else ("the hub has no address pool; create an AddressPool, or start it with --address-pool CIDR")
            )
            return None, _problem(ConditionReason.ADDRESS_NOT_ASSIGNED, why)
        of_family = [pool for pool in serving if family in pool.ranges.families]
        if not of_family:
            return None, _problem(ConditionReason.UNSUPPORTED_ADDRESS_FAMILY, _no_family(serving, family))
        for pool in of_family:
            for address in pool.kept_for(claimant):
                if family_of(address) == family and self._clash(claimant.key, address, listeners) is None:
                    return _place(address, pool), None
        used_up: list[str] = []
        reason = ConditionReason.QUOTA_EXCEEDED
        open_pools: list[Pool] = []
        for pool in of_family:
            if self._has_its_share(claimant, pool, family):
                used_up.append(self._share_is_used(claimant, pool, family))
                continue
            open_pools.append(pool)
            used_up.append(_all_taken(pool, family))
            reason = ConditionReason.ADDRESS_POOL_EXHAUSTED
        place = self._free_place(claimant.key, open_pools, family)
        return place, None if place is not None else _problem(reason, "; ".join(used_up))

    def _free_place(self, key: LoadBalancerKey, pools: Sequence[Pool], family: Family) -> _Place | None:
        """Return the address that ``key`` gave back a moment ago, else a free one, else the one that rests longest."""
        for address, rest in self._resting.items():
            if rest.owner == key and (pool := _free_in(address, family, pools)) is not None:
                return _place(address, pool)
        for pool in pools:
            taken = _Taken(self._addresses, pool.reservations, self._resting)
            if (address := allocate_address(key, pool.ranges.of(family), taken)) is not None:
                return _place(address, pool)
        for address in self._resting:
            if (pool := _free_in(address, family, pools)) is not None:
                return _place(address, pool)
        return None

    def _rests_for(self, key: LoadBalancerKey, address: str) -> bool:
        """Return whether another member than that of ``key`` released ``address`` a moment ago."""
        rest = self._resting.get(address)
        return rest is not None and rest.owner.namespace != key.namespace

    def _nothing_serves(self, claimant: AddressClaimant) -> str:
        return (
            f"no AddressPool serves LoadBalancerClass {claimant.class_name!r} for this member; add it to spec.classes "
            "or spec.tenants of one, or create another AddressPool"
        )

    def _has_its_share(self, claimant: AddressClaimant, pool: Pool, family: Family) -> bool:
        """Return whether the member of ``claimant`` has as many addresses of a family of ``pool`` as it may have."""
        return 0 < pool.max_per_tenant <= self._share_of(claimant, pool, family)

    def _share_of(self, claimant: AddressClaimant, pool: Pool, family: Family) -> int:
        """Return how many addresses of a family of ``pool`` the other load balancers of the member have.

        The address that ``claimant`` has alone is given back for another one.
        """
        key = claimant.key
        addresses = self._addresses_of_member.get(key.namespace, ())
        return sum(
            family_of(address) == family
            and address in pool.ranges
            and any(other != key and other.namespace == key.namespace for other in self._addresses[address])
            for address in addresses
        )

    def _share_is_used(self, claimant: AddressClaimant, pool: Pool, family: Family) -> str:
        return (
            f"this member uses {self._share_of(claimant, pool, family)} of the {_of(pool, family)}addresses of "
            f"{describe(pool)}, and spec.maxPerTenant allows {pool.max_per_tenant}; delete a load balancer, or let it "
            "share an address (spec.address)"
        )

    def _clash(self, key: LoadBalancerKey, address: str, listeners: Sequence[ListenerKey]) -> LoadBalancerKey | None:
        """Return who stands in the way: another member, or another load balancer with one of the same ports."""
        for other, holding in self._addresses.get(address, {}).items():
            shares = other.namespace == key.namespace and not holding.alone and holding.listeners.isdisjoint(listeners)
            if other != key and not shares:
                return other
        return None

    def _proxy_ports(
        self, key: LoadBalancerKey, previous: Allocation, listeners: Sequence[ListenerKey]
    ) -> tuple[Allocation, Condition | None]:
        taken = {port: owner for port, owner in self._ports.get(key.namespace, {}).items() if owner != key}
        kept = {ListenerKey(Protocol(port.protocol), port.port): port.proxy_port for port in previous.ports}
        ports: list[ProxyPort] = []
        for listener in listeners:
            number = kept.get(listener)
            if number is None or number in taken:
                number = allocate_proxy_port(key, listener, taken)
            if number is None:
                return previous, _problem(
                    ConditionReason.ADDRESS_POOL_EXHAUSTED, "no free port is left on this member's proxies"
                )
            taken[number] = key
            ports.append(ProxyPort(listener.port, listener.protocol.value, number))
        return Allocation(ports=ports), None


def listeners_of(spec: TCPLoadBalancerSpec) -> list[ListenerKey]:
    """Return the listeners that a spec asks for, in its own order."""
    return [ListenerKey(Protocol(port.protocol), port.port) for port in spec.ports]


class _Taken(msgspec.Struct, frozen=True):
    """The addresses that are given, reserved or resting; none is copied."""

    given: Container[object]
    reserved: Container[object]
    resting: Container[object]

    def __contains__(self, address: object) -> bool:
        return address in self.given or address in self.reserved or address in self.resting


def _free_in(address: str, family: Family, pools: Iterable[Pool]) -> Pool | None:
    """Return the pool that may give a resting ``address``; None when none of ``pools`` may."""
    if family_of(address) != family:
        return None
    return next((pool for pool in pools if address in pool.ranges and address not in pool.reservations), None)


def _is_odd(address: str) -> bool:
    """Return whether ``address`` represents all, for many, or for another one: none of these can be listened on."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return True
    mapped = isinstance(ip, ipaddress.IPv6Address) and (ip.ipv4_mapped is not None or bool(ip.scope_id))
    return mapped or ip.is_unspecified or ip.is_multicast or ip.is_reserved


def _held(previous: Allocation, address: str | None) -> _Place | None:
    return next((place for place in previous.places if place[0] == address), None)


def _place(address: str, pool: Pool | None) -> _Place:
    return address, "" if pool is None or pool.name == OWN_POOL else pool.name


def _all_taken(pool: Pool, family: Family) -> str:
    reserved = sum(family_of(address) == family for address in pool.reservations)
    count = pool.ranges.of(family).size - reserved
    beside = f" ({reserved} more are reserved)" if reserved else ""
    more = "start the hub with a larger --address-pool" if pool.name == OWN_POOL else "add to its spec.addresses"
    name = f"the pool {pool.ranges}" if pool.name == OWN_POOL else describe(pool)
    return f"all {count} {_of(pool, family)}addresses of {name} are taken{beside}; delete a load balancer, or {more}"


def _of(pool: Pool, family: Family) -> str:
    """Return the family with a space after it, where the pool has the other one, too."""
    return f"{family} " if len(pool.ranges.families) > 1 else ""


def _no_family(serving: Sequence[Pool], family: Family) -> str:
    other = IPV4 if family == IPV6 else IPV6
    return (
        f"no pool that serves this load balancer has an {family} address ({', '.join(map(describe, serving))}); have "
        f"the operator add {family} ranges, or ask for {other} alone (spec.ipFamilies)"
    )


def _problem(reason: ConditionReason, message: str) -> Condition:
    return Condition(ConditionType.PROGRAMMED, False, reason, message)
