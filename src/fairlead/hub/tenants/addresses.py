"""Addresses and proxy ports of load balancers: allocations, and the AddressPools that they come from.

Recorded allocations are read before a new one is made, so that a restart never moves an address. A load balancer keeps
its address, also when the pool changes or is deleted. A release wakes all waiting load balancers; a released address
rests, so that clients that still use it do not reach another load balancer. In: AddressPools, objects and their
recorded allocations. Out: an allocation to record, or a condition with the reason for its absence; the status of each
pool.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from fairlead.api.addresspool import ADDRESS_POOLS, COUNTED, AddressPool, AddressPoolStatus
from fairlead.api.intent import Allocation, ProxyPort
from fairlead.api.meta import wire_conditions, without_status
from fairlead.api.names import MANAGER_HUB
from fairlead.api.tcploadbalancer import TCPLoadBalancerSpec
from fairlead.api.times import wire_time
from fairlead.errors import NotFound
from fairlead.hub.inventory import AddressesInUse, AddressSource, Inventory, first_broken
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import CoalescingWriter, Overlay
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import AllocationKind
from fairlead.model.in_words import listed
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
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.addresses import (
    OWN_POOL,
    AddressClaimant,
    AddressRanges,
    Pool,
    Pools,
    allocate_address,
    allocate_proxy_port,
    describe,
    usable_pools,
)

NOTHING = Allocation()
#: An address and its AddressPool; empty for ``OWN_POOL``.
_Place = tuple[str, str]
_ANY = "leave spec.address empty to get a free one"
#: Seconds for which a released address is given to another load balancer only if no other address is free.
REST_S = 600.0
#: Many addresses may be allocated at once; one write of the pool's status counts them all.
_GATHER_S = 2.0
#: How many addresses a message names.
_NAMED = 3


class _Holding(msgspec.Struct, frozen=True):
    """The allocation of one load balancer, and what is still recorded or served until that is recorded."""

    allocation: Allocation = Allocation()
    places: tuple[_Place, ...] = ()
    listeners: frozenset[ListenerKey] = frozenset()
    #: Its ports are unknown: no other load balancer shares its addresses.
    alone: bool = False
    #: How many ports count towards the quota of its member.
    open: int = 0

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset(address for address, _ in self.places)

    @property
    def proxy_ports(self) -> frozenset[int]:
        return frozenset(port.proxy_port for port in self.allocation.ports)


class PortLimit(NamedTuple):
    """The port limit of ``load_balancers``, None for all of the member; 0 for no limit."""

    most: int
    who: str
    field: str
    load_balancers: Iterable[LoadBalancerKey] | None = None


class _Rest(msgspec.Struct, frozen=True):
    """The last owner of a released address, and until when it rests (monotonic seconds)."""

    owner: LoadBalancerKey
    until_s: float


class AddressAllocator:
    """Allocates addresses of pools, and proxy ports of each group (a tenant's namespace).

    ``pool``: that of --address-pool. ``changed`` is called when an address is allocated or released. ``given`` gets the
    addresses and ports at which each load balancer answers. ``wake`` is called with the waiting load balancers
    whenever an address, a port or a part of a quota is released.
    """

    def __init__(
        self,
        pool: AddressRanges | None,
        *,
        clock: Clock,
        given: AddressesInUse | None = None,
        changed: Callable[[], None] = lambda: None,
        wake: Callable[[Collection[LoadBalancerKey], str], None] = lambda _keys, _cause: None,
    ) -> None:
        self.pools = Pools.own(pool)
        self._clock = clock
        self._given = given
        self._changed = changed
        self._wake = wake
        self._held: dict[LoadBalancerKey, _Holding] = {}
        #: Released addresses, the longest resting first.
        self._resting: dict[str, _Rest] = {}
        self._waiting: set[LoadBalancerKey] = set()
        #: The address and ports that load balancers wait for because another one of the same member has them.
        self._wanted: dict[LoadBalancerKey, tuple[str, frozenset[ListenerKey]]] = {}
        #: Pairs that wait for a port of each other, and were woken to report it.
        self._swaps: set[frozenset[LoadBalancerKey]] = set()
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
        """Allocate from ``pools`` from now on; wakes the load balancers that wait."""
        self.pools = pools
        self._wake_waiting(cause)

    def used(self, namespace: str) -> tuple[int, int]:
        """Return the number of ports and addresses of a member."""
        return self._open_of_member[namespace], len(self._addresses_of_member.get(namespace, ()))

    def open_of(self, load_balancers: Iterable[LoadBalancerKey]) -> int:
        """Return the number of ports of these load balancers."""
        return sum(self._held[key].open for key in load_balancers if key in self._held)

    def given(self) -> Iterable[tuple[str, str]]:
        """Return each address of each load balancer with its pool, in no particular order."""
        return [place for holding in self._held.values() for place in holding.places]

    def hold(
        self,
        key: LoadBalancerKey,
        allocation: Allocation,
        listeners: Iterable[ListenerKey],
        *,
        internal: Iterable[ListenerKey] = (),
        recorded: Allocation = NOTHING,
        served: Iterable[ListenerKey] = (),
        alone: bool = False,
    ) -> None:
        """Replace the allocation of ``key``. ``internal``, ``recorded`` and ``served`` as in ``allocate``.

        ``alone``: its ports are unknown.
        """
        requested = frozenset(listeners).union(served)
        holding = _Holding(
            allocation,
            places=tuple(dict.fromkeys((*allocation.places, *recorded.places))),
            listeners=requested.union(internal),
            alone=alone,
            open=len(requested) if allocation != NOTHING else 0,
        )
        self._put(key, holding)

    def block(self, key: LoadBalancerKey, why: str) -> None:
        """Pause new allocations: the allocation of ``key`` is unknown. ``why`` names the unreadable object."""
        self._unknown[key] = why

    def unblock(self, key: LoadBalancerKey) -> None:
        """Resume allocations: the allocation of ``key`` is known, or its object is deleted."""
        if self._unknown.pop(key, ""):
            self._wake_waiting(f"{key} can be read again")

    def release(self, key: LoadBalancerKey) -> None:
        """Release the allocation of ``key``, whose load balancer no provider has."""
        self._put(key, None)

    def leave(self, key: LoadBalancerKey) -> None:
        """Release the allocation of ``key``, whose object is deleted; also wakes load balancers over a quota."""
        self._waiting.discard(key)
        self._want_no_longer(key)
        if not self._put(key, None):
            self._wake_waiting(f"{key} was deleted")

    def wait(self, key: LoadBalancerKey) -> None:
        """Also wake ``key`` at the next release: a quota of its member is used up."""
        self._waiting.add(key)

    def wake_rested(self) -> float | None:
        """Wake the waiting load balancers; return the seconds until the next address has rested."""
        self._forget_rested()
        self._wake_waiting("a released address has rested")
        rests = (rest.until_s - self._clock.monotonic() for rest in self._resting.values())
        return next(rests, None)

    def _put(self, key: LoadBalancerKey, holding: _Holding | None) -> bool:
        """Replace the holding of ``key``; return whether that released anything, which wakes waiting load balancers."""
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

    def is_waiting(self, key: LoadBalancerKey) -> bool:
        """Return whether ``key`` waits for an address or a port, or for a different one."""
        return key in self._waiting

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
        requested: str,
        recorded: Allocation,
        listeners: Sequence[ListenerKey],
        internal: Sequence[ListenerKey] = (),
        served: Collection[ListenerKey] = (),
        limits: Sequence[PortLimit] = (),
        tenant: str = "",
        class_name: str = "",
        families: WantedFamilies = ANY_FAMILY,
    ) -> tuple[Allocation, Condition | None]:
        """Return the allocation that a provider of ``kind`` needs for ``key``: the present one, or a free one.

        ``requested``: the address in the spec, one of each family after commas, empty for any. ``limits``: those of
        the member and its sub-tenant; a load balancer keeps its ports. ``internal``: ports that the hub
        opens for challenges and generated names, which do not count. ``tenant`` and ``class_name`` select the pools,
        ``families`` the addresses. ``recorded`` and ``served``, the ports of the accepted spec, are held until the new
        ones are recorded. The condition says why there is no allocation.
        """
        self._forget_rested()
        holding = self._held.get(key)
        previous, before = (holding.allocation, holding.open) if holding is not None else (recorded, 0)
        for limit in limits if kind is not AllocationKind.NONE and len(listeners) > before else ():
            of = limit.load_balancers
            others = (self._open_of_member[key.namespace] if of is None else self.open_of({*of, key})) - before
            if limit.most and others + len(listeners) > limit.most:
                self._waiting.add(key)
                return previous, _problem(
                    ConditionReason.QUOTA_EXCEEDED,
                    f"spec.ports: this load balancer needs {len(listeners)}, and {limit.who} has {others} others of "
                    f"at most {limit.most}. Delete a load balancer, or ask the operator for more ({limit.field})",
                )
        match kind:
            case AllocationKind.NONE:
                return NOTHING, None
            case AllocationKind.ADDRESS:
                claimant = AddressClaimant(key, tenant, class_name)
                self._waiting.discard(key)
                allocation, problem = self._addresses_of(
                    claimant, requested, previous, recorded, [*listeners, *internal], families
                )
            case AllocationKind.PROXY_PORT:
                self._waiting.discard(key)
                allocation, problem = self._proxy_ports(key, previous, [*listeners, *internal])
        if problem is None and (why := self._unknown_to(key, previous, allocation)):
            problem = _problem(ConditionReason.ADDRESS_NOT_ASSIGNED, why)
            allocation = previous
        if problem is None:
            # Load balancers of release 0.1 stay at Envoy as they are.
            limited = previous.limits_connections or previous == NOTHING
            allocation = msgspec.structs.replace(allocation, limits_connections=limited)
            self.hold(key, allocation, listeners, internal=internal, recorded=recorded, served=served)
        else:
            self._waiting.add(key)
        if problem is None or problem.reason != ConditionReason.PORT_CONFLICT:
            self._want_no_longer(key)
        return allocation, problem

    def _want_no_longer(self, key: LoadBalancerKey) -> None:
        if self._wanted.pop(key, None) is not None:
            self._swaps = {pair for pair in self._swaps if key not in pair}

    def _unknown_to(self, key: LoadBalancerKey, previous: Allocation, allocation: Allocation) -> str:
        """Return why ``allocation`` may already belong to another load balancer; empty if it cannot."""
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
        recorded: Allocation,
        listeners: Sequence[ListenerKey],
        wanted: WantedFamilies,
    ) -> tuple[Allocation, Condition | None]:
        """Return one address of each available wanted family; otherwise the previous addresses and the reason."""
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
            unused = earlier_place is not None and earlier_place not in recorded.places
            if problem is not None and unused and not request:
                # Nothing was served at that address yet, so any other address is acceptable.
                place, problem = self._any_address(claimant, listeners, family)
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
        """Return the default family of a load balancer: IPv4 if a pool has IPv4 addresses."""
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
            return None, _problem(
                ConditionReason.PORT_CONFLICT, self._why_taken(key, other, wanted, listeners, requested=bool(request))
            )
        reserved = pool is not None and wanted in pool.reservations
        if wanted != earlier_address and not reserved and self._rests_for(key, wanted):
            # Only the same member may let its former clients reach another load balancer.
            return None, _problem(
                ConditionReason.ADDRESS_NOT_USABLE,
                f"spec.address: {wanted} was released by another member less than {REST_S / 60:g} minutes ago; wait, "
                f"or {_ANY}",
            )
        return earlier if earlier is not None and wanted == earlier_address else _place(wanted, pool), None

    def _not_usable(self, claimant: AddressClaimant, wanted: str, pool: Pool | None) -> str:
        """Return why ``claimant`` may not have the requested address ``wanted``; empty if it may."""
        choose = f"choose one of it, or {_ANY}"
        if pool is None:
            serving = self.pools.serving(claimant)
            if (held := next((each for each in self.pools.held if wanted in each.ranges), None)) is not None:
                return f"{wanted} is in AddressPool {held.name}, whose spec is invalid; correct it, or {_ANY}"
            if self.pools.incomplete and not self.pools:
                return f"{wanted} is not assigned while {self.pools.incomplete}; correct it, or {_ANY}"
            if not self.pools:
                return f"{wanted} is not an address that one load balancer can have; {_ANY}" if _is_odd(wanted) else ""
            if not serving:
                return self._nothing_serves(claimant)
            if len(serving) == 1 and serving[0].name == OWN_POOL:
                return f"{wanted} is not in {describe(serving[0])}; {choose}"
            return f"no pool that serves this load balancer contains {wanted}; {_ANY}"
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
            no_pool = "the hub has no address pool; create an AddressPool, or start it with --address-pool CIDR"
            why = self._nothing_serves(claimant) if self.pools else no_pool
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
        """Return the address that ``key`` released recently, else a free address, else the longest resting one."""
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
        """Return whether a member other than that of ``key`` released ``address`` recently."""
        rest = self._resting.get(address)
        return rest is not None and rest.owner.namespace != key.namespace

    def _nothing_serves(self, claimant: AddressClaimant) -> str:
        return (
            f"no AddressPool serves LoadBalancerClass {claimant.class_name!r} for this member; add it to spec.classes "
            "or spec.tenants of one, or create another AddressPool"
        )

    def _has_its_share(self, claimant: AddressClaimant, pool: Pool, family: Family) -> bool:
        """Return whether the member of ``claimant`` has its maximum of addresses of a family of ``pool``."""
        return 0 < pool.max_per_tenant <= self._share_of(claimant, pool, family)

    def _share_of(self, claimant: AddressClaimant, pool: Pool, family: Family) -> int:
        """Return how many addresses of a family of ``pool`` the member's other load balancers have.

        An address that only ``claimant`` has is released for the new one.
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
        """Return the load balancer that prevents sharing: one of another member, or one with a port in common."""
        for other, holding in self._addresses.get(address, {}).items():
            shares = other.namespace == key.namespace and not holding.alone and holding.listeners.isdisjoint(listeners)
            if other != key and not shares:
                return other
        return None

    def _why_taken(
        self,
        key: LoadBalancerKey,
        other: LoadBalancerKey,
        wanted: str,
        listeners: Sequence[ListenerKey],
        *,
        requested: bool,
    ) -> str:
        """Return the message that ``other`` has the address, with the next step."""
        if other.namespace != key.namespace:
            # A member does not read which load balancers other members have.
            return f"{wanted} is taken by another load balancer; leave spec.address empty to get a free one"
        theirs, ours = self._held[other].listeners, self._held.get(key, _Holding()).listeners
        common = ", ".join(map(str, sorted(theirs.intersection(listeners))))
        taken = f"{wanted} is taken by {other}" + (f" with {common}" if common else "")
        address, awaited = self._wanted.get(other, ("", frozenset[ListenerKey]()))
        self._wanted[key] = wanted, frozenset(listeners)
        if address == wanted and (swapped := ", ".join(map(str, sorted(ours & awaited)))):
            if (pair := frozenset((key, other))) not in self._swaps:
                self._swaps.add(pair)
                self._wake({other}, f"{key} waits for a port of it")
            # A port belongs to one load balancer at a time, so a swap without closing a port is impossible.
            return (
                f"{taken}, which waits for {swapped} of {key}: both keep their ports. Remove one of these ports from "
                "one of them, and add the new one once the other has it"
            )
        free = "leave spec.address empty to get a free one" if requested else "request another one in spec.address"
        return f"{taken}; {free}, or use other ports of the same member"

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
    """Return the listeners of a spec, in its order."""
    return [ListenerKey(Protocol(port.protocol), port.port) for port in spec.ports]


class _Taken(msgspec.Struct, frozen=True):
    """The addresses that are allocated, reserved or resting, without a copy."""

    given: Container[object]
    reserved: Container[object]
    resting: Container[object]

    def __contains__(self, address: object) -> bool:
        return address in self.given or address in self.reserved or address in self.resting


def _free_in(address: str, family: Family, pools: Iterable[Pool]) -> Pool | None:
    """Return the pool that a resting ``address`` can be allocated from; None when there is none in ``pools``."""
    if family_of(address) != family:
        return None
    return next((pool for pool in pools if address in pool.ranges and address not in pool.reservations), None)


def _is_odd(address: str) -> bool:
    """Return whether ``address`` is unusable for a load balancer, such as an unspecified or multicast address."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return True
    mapped = ip.version == 6 and (ip.ipv4_mapped is not None or bool(ip.scope_id))
    return mapped or ip.is_unspecified or ip.is_multicast or ip.is_reserved


def _held(previous: Allocation, address: str | None) -> _Place | None:
    return next((place for place in previous.places if place[0] == address), None)


def _place(address: str, pool: Pool | None) -> _Place:
    return address, "" if pool is None or pool.name == OWN_POOL else pool.name


def _all_taken(pool: Pool, family: Family) -> str:
    reserved = sum(family_of(address) == family for address in pool.reservations)
    count = pool.ranges.of(family).size - reserved
    also_reserved = f" ({reserved} more are reserved)" if reserved else ""
    more = "start the hub with a larger --address-pool" if pool.name == OWN_POOL else "add to its spec.addresses"
    name = f"the pool {pool.ranges}" if pool.name == OWN_POOL else describe(pool)
    taken = f"all {count} {_of(pool, family)}addresses of {name} are taken{also_reserved}"
    return f"{taken}; delete a load balancer, or {more}"


def _of(pool: Pool, family: Family) -> str:
    """Return the family and a space, where the pool has both families."""
    return f"{family} " if len(pool.ranges.families) > 1 else ""


def _no_family(serving: Sequence[Pool], family: Family) -> str:
    other = IPV4 if family == IPV6 else IPV6
    return (
        f"no pool that serves this load balancer has an {family} address ({', '.join(map(describe, serving))}); have "
        f"the operator add {family} ranges, or ask for {other} alone (spec.ipFamilies)"
    )


def _problem(reason: ConditionReason, message: str) -> Condition:
    return Condition(ConditionType.PROGRAMMED, False, reason, message)


class AddressPools:
    """Keeps the allocator's pools in step with the AddressPools, and writes the status of each."""

    def __init__(
        self, *, cluster: Cluster, inventory: Inventory, own_pool: AddressRanges | None, leading: Callable[[], bool]
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._own_pool = own_pool
        self._clock = cluster.clock
        self._leading = leading
        self._conditions: dict[str, Condition] = {}
        self._present: Overlay[AddressPool] = Overlay(inventory.address_pools)
        self._writer: CoalescingWriter[AddressPool] = CoalescingWriter(
            cluster,
            ADDRESS_POOLS,
            objects=self._present,
            clock=cluster.clock,
            manager=MANAGER_HUB,
            always=("size", "used", "reserved", "free", "outside"),
        )
        self.queue: KeyedQueue[str] = KeyedQueue(clock=cluster.clock)
        self.allocator = AddressAllocator(
            own_pool, clock=cluster.clock, given=inventory.in_use, changed=self._given_changed, wake=inventory.wake
        )

    def watch(self) -> None:
        """Subscribe to AddressPools."""
        self._inventory.address_pools.on_object(lambda pool: self._changed(pool.metadata.name), part=without_status)
        self._inventory.address_pools.broken.on_change(lambda _pool: self._changed())

    def lead(self) -> None:
        """Write the status of every pool: this replica has begun to lead."""
        for name in self._conditions:
            self.queue.add(name)

    async def reconcile(self, name: str) -> float | None:
        """Write the status of pool ``name`` when it differs; for ``OWN_POOL``, only wake load balancers that wait."""
        if name == OWN_POOL:
            return self.allocator.wake_rested()
        obj, accepted = self._present.get("", name), self._conditions.get(name)
        if obj is None:
            self._writer.forget("", name)
        if obj is None or accepted is None or not self._leading():
            return None
        pool = next((pool for pool in self.allocator.pools.pools if pool.name == name), None)
        counted = self._count(name, pool)
        if accepted.status and counted.outside:
            accepted = msgspec.structs.replace(accepted, message=self._outside(name, pool))
        # Our own write may show a newer generation before the watch: nothing was decided about it.
        read = self._inventory.address_pools.get("", name)
        generation = min(obj, read or obj, key=lambda pool: pool.metadata.generation).metadata.generation
        new = msgspec.structs.replace(
            counted,
            # While the spec is invalid, the accepted addresses are kept.
            accepted_addresses=pool.ranges.spans if pool is not None else obj.status.accepted_addresses,
            observed_generation=generation,
            conditions=wire_conditions(
                [accepted], obj.status.conditions, generation=generation, now=wire_time(self._clock.now())
            ),
        )
        with suppress(NotFound):  # it was deleted meanwhile
            _, wait_s = await self._writer.write(obj, obj.status, new)
            return wait_s or None
        return None

    def _count(self, name: str, pool: Pool | None) -> AddressPoolStatus:
        if pool is None:
            return AddressPoolStatus(outside=len(self._given(name)))
        used = {address for address, _ in self.allocator.given() if address in pool.ranges}
        reserved = pool.reservations.keys() - used
        taken = Counter(map(family_of, (*used, *reserved)))
        free = {family: pool.ranges.of(family).size - taken[family] for family in pool.ranges.families}
        return AddressPoolStatus(
            size=min(pool.ranges.size, COUNTED),
            used=len(used),
            reserved=len(reserved),
            free=min(sum(free.values()), COUNTED),
            free_ipv4=free.get(IPV4),
            free_ipv6=min(free[IPV6], COUNTED) if IPV6 in free else None,
            outside=sum(address not in pool.ranges for address in self._given(name)),
        )

    def _given(self, name: str) -> set[str]:
        """Return the addresses that were allocated from the pool ``name``, also those that it no longer contains."""
        return {address for address, pool in self.allocator.given() if pool == name}

    def _outside(self, name: str, pool: Pool | None) -> str:
        outside = sorted(address for address in self._given(name) if pool is None or address not in pool.ranges)
        return (
            f"spec.addresses: the pool no longer contains {listed(outside, _NAMED)}; a load balancer keeps such an "
            "address until it is deleted or requests another one (spec.address)"
        )

    def _changed(self, name: str = OWN_POOL) -> None:
        cache = self._inventory.address_pools
        unread = {
            first_broken(ADDRESS_POOLS.kind, cache, [key]): remains.obj if remains.has("status") else None
            for key, remains in cache.remains().items()
            if remains.obj is None
            or not remains.has("spec.region")
            or remains.obj.spec.region.lower() == self._inventory.region.lower()
        }
        pools, self._conditions = usable_pools(
            self._own_pool, cache.values(), region=self._inventory.region, unread=unread
        )
        self.allocator.use(pools, f"AddressPool {name} changed")
        for each in self._conditions:
            self.queue.add(each)

    def _given_changed(self) -> None:
        self.queue.add_after(OWN_POOL, REST_S)
        for name in self._conditions:
            self.queue.add_after(name, _GATHER_S)
