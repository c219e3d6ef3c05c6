"""Who has which address and which proxy port: the book, rebuilt from what is recorded in the objects' status.

Everything recorded is read before anything new is given away, so that a restart never moves an address. In: pools,
objects and their recorded allocations. Out: an allocation to record, or the condition that says why there is none.
What a load balancer has it keeps, also when its pool changes or goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence

import msgspec

from fairlead.api.intent import Allocation, ProxyPort
from fairlead.api.tcploadbalancer import TCPLoadBalancerSpec
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import AllocationKind
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol
from fairlead.translate.address_pools import OWN_POOL, Claimant, Pool, Pools, describe
from fairlead.translate.address_ranges import AddressRanges
from fairlead.translate.allocate import allocate_address, allocate_proxy_port


class AddressAllocator:
    """Addresses of pools, and proxy ports of each group (a tenant's namespace).

    ``pool``: that of --address-pool. ``changed`` is called when an address is given or given back.
    """

    def __init__(self, pool: AddressRanges | None, *, changed: Callable[[], None] = lambda: None) -> None:
        self.pools = Pools.own(pool)
        self._changed = changed
        self._held: dict[LoadBalancerKey, Allocation] = {}
        self._waiting: set[LoadBalancerKey] = set()
        self._addresses: dict[str, dict[LoadBalancerKey, frozenset[ListenerKey]]] = {}
        self._addresses_of_member: dict[str, set[str]] = {}
        self._ports: dict[str, dict[int, LoadBalancerKey]] = {}
        #: How many ports each load balancer has, and each member.
        self._open: dict[LoadBalancerKey, int] = {}
        self._open_of_member: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._addresses)

    def use(self, pools: Pools) -> frozenset[LoadBalancerKey]:
        """Give addresses of ``pools`` from now on; returns who was refused last time, and may be served by these."""
        self.pools = pools
        return frozenset(self._waiting)

    def given(self) -> Iterable[Allocation]:
        """Return the allocations that have an address, one for each load balancer, in no order."""
        return [allocation for allocation in self._held.values() if allocation.address]

    def hold(self, key: LoadBalancerKey, allocation: Allocation, listeners: Iterable[ListenerKey]) -> None:
        """Note what ``key`` has; replaces what it had."""
        before = self._held.get(key, Allocation()).address
        self._drop(key)
        self._held[key] = allocation
        held = frozenset(listeners)
        if allocation != Allocation():
            self._open[key] = len(held)
            self._open_of_member[key.namespace] += len(held)
        if allocation.address:
            self._addresses.setdefault(allocation.address, {})[key] = held
            self._addresses_of_member.setdefault(key.namespace, set()).add(allocation.address)
        for port in allocation.ports:
            self._ports.setdefault(key.namespace, {}).setdefault(port.proxy_port, key)
        if before != allocation.address:
            self._changed()

    def leave(self, key: LoadBalancerKey) -> frozenset[LoadBalancerKey]:
        """Give back all that ``key`` had, which is gone; returns who was refused last time, and may now have that."""
        self.release(key)
        self._waiting.discard(key)
        return frozenset(self._waiting)

    def release(self, key: LoadBalancerKey) -> None:
        """Give back all that ``key`` had; only once its load balancer is really gone."""
        if self._drop(key):
            self._changed()

    def _drop(self, key: LoadBalancerKey) -> bool:
        allocation = self._held.pop(key, None)
        if allocation is None:
            return False
        self._open_of_member[key.namespace] -= self._open.pop(key, 0)
        if holders := self._addresses.get(allocation.address):
            holders.pop(key, None)
            if not holders:
                del self._addresses[allocation.address]
            if all(other.namespace != key.namespace for other in holders):
                self._addresses_of_member[key.namespace].discard(allocation.address)
        ports = self._ports.get(key.namespace, {})
        for port in allocation.ports:
            if ports.get(port.proxy_port) == key:
                del ports[port.proxy_port]
        return bool(allocation.address)

    def allocate(
        self,
        key: LoadBalancerKey,
        kind: AllocationKind,
        *,
        wanted: str,
        recorded: Allocation,
        listeners: Sequence[ListenerKey],
        limit: int = 0,
        tenant: str = "",
        class_name: str = "",
    ) -> tuple[Allocation, Condition | None]:
        """Return what a provider of ``kind`` needs for ``key``: what it has already, or something free.

        ``wanted``: the address that its spec asks for, empty for any. ``limit``: how many ports its member may have,
        0 for any number; what a load balancer has already it keeps. ``tenant`` and ``class_name`` say which pools serve
        it. The condition says why there is none.
        """
        had = self._held.get(key, recorded)
        before, others = self._open.get(key, 0), self._open_of_member[key.namespace] - self._open.get(key, 0)
        if kind is not AllocationKind.NONE and limit and len(listeners) > before and others + len(listeners) > limit:
            self._waiting.add(key)
            return had, _problem(
                ConditionReason.QUOTA_EXCEEDED,
                f"spec.ports: this load balancer needs {len(listeners)}, its member has {others} others, and may have "
                f"{limit} together; delete a load balancer, or ask the operator for more (spec.maxPorts of the Tenant, "
                "--tenant-ports of the hub)",
            )
        match kind:
            case AllocationKind.NONE:
                return Allocation(), None
            case AllocationKind.ADDRESS:
                claimant = Claimant(key, tenant, class_name)
                allocation, problem = self._address(claimant, wanted, had, listeners)
            case AllocationKind.PROXY_PORT:
                allocation, problem = self._proxy_ports(key, had, listeners)
        if problem is None:
            self.hold(key, allocation, listeners)
            self._waiting.discard(key)
        else:
            self._waiting.add(key)
        return allocation, problem

    def _address(
        self, claimant: Claimant, asked: str, had: Allocation, listeners: Sequence[ListenerKey]
    ) -> tuple[Allocation, Condition | None]:
        key, kept = claimant.key, Allocation(had.address, pool=had.pool)
        wanted = asked or had.address
        if not wanted:
            return self._any_address(claimant, listeners)
        pool = next((pool for pool in self.pools.serving(claimant) if wanted in pool.ranges), None)
        if wanted != had.address and (why := self._not_usable(claimant, wanted, pool)):
            return kept, _problem(ConditionReason.ADDRESS_NOT_USABLE, f"spec.address: {why}")
        if (other := self._clash(key, wanted, listeners)) is not None:
            # Which load balancers other members have is not for this one to know.
            who = other if other.namespace == key.namespace else "another load balancer"
            return kept, _problem(
                ConditionReason.PORT_CONFLICT,
                f"{wanted} is taken by {who}; leave spec.address empty to get a free one, "
                "or use other ports of the same member",
            )
        return kept if wanted == had.address else _allocation(wanted, pool), None

    def _not_usable(self, claimant: Claimant, wanted: str, pool: Pool | None) -> str:
        """Return why ``claimant`` may not have ``wanted``, which it asks for; empty when it may."""
        choose = "choose one of it, or leave spec.address empty to get a free one"
        if pool is None:
            serving = self.pools.serving(claimant)
            if not self.pools:
                return ""
            if not serving:
                return self._nothing_serves(claimant)
            if len(serving) == 1 and serving[0].name == OWN_POOL:
                return f"{wanted} is not in {describe(serving[0])}; {choose}"
            return f"{wanted} is in no pool that serves this load balancer; leave spec.address empty to get a free one"
        if not pool.may_have(claimant, wanted):
            return f"{wanted} is reserved for another load balancer; leave spec.address empty to get a free one"
        if wanted not in self._addresses and self._has_its_share(claimant, pool):
            return _share_is_used(pool)
        return ""

    def _any_address(self, claimant: Claimant, listeners: Sequence[ListenerKey]) -> tuple[Allocation, Condition | None]:
        serving = self.pools.serving(claimant)
        if not serving:
            why = (
                self._nothing_serves(claimant)
                if self.pools
                else ("the hub has no address pool; create an AddressPool, or start it with --address-pool CIDR")
            )
            return Allocation(), _problem(ConditionReason.ADDRESS_NOT_ASSIGNED, why)
        for pool in serving:
            for address in pool.kept_for(claimant):
                if self._clash(claimant.key, address, listeners) is None:
                    return _allocation(address, pool), None
        used_up: list[str] = []
        reason = ConditionReason.QUOTA_EXCEEDED
        for pool in serving:
            if self._has_its_share(claimant, pool):
                used_up.append(_share_is_used(pool))
                continue
            taken = _Taken(self._addresses, pool.reservations)
            address = allocate_address(claimant.key, pool.ranges, taken)
            if address is not None:
                return _allocation(address, pool), None
            used_up.append(_all_taken(pool))
            reason = ConditionReason.ADDRESS_POOL_EXHAUSTED
        return Allocation(), _problem(reason, "; ".join(used_up))

    def _nothing_serves(self, claimant: Claimant) -> str:
        return (
            f"no AddressPool serves LoadBalancerClass {claimant.class_name!r} for this member; add it to spec.classes "
            "or spec.tenants of one, or create another AddressPool"
        )

    def _has_its_share(self, claimant: Claimant, pool: Pool) -> bool:
        """Say whether the member of ``claimant`` has as many addresses of ``pool`` as it may have."""
        if not pool.max_per_tenant:
            return False
        theirs = self._addresses_of_member.get(claimant.key.namespace, ())
        return sum(address in pool.ranges for address in theirs) >= pool.max_per_tenant

    def _clash(self, key: LoadBalancerKey, address: str, listeners: Sequence[ListenerKey]) -> LoadBalancerKey | None:
        """Return who stands in the way: another member, or another load balancer with one of the same ports."""
        for other, theirs in self._addresses.get(address, {}).items():
            if other != key and (other.namespace != key.namespace or not theirs.isdisjoint(listeners)):
                return other
        return None

    def _proxy_ports(
        self, key: LoadBalancerKey, had: Allocation, listeners: Sequence[ListenerKey]
    ) -> tuple[Allocation, Condition | None]:
        taken = {port: owner for port, owner in self._ports.get(key.namespace, {}).items() if owner != key}
        kept = {ListenerKey(Protocol(port.protocol), port.port): port.proxy_port for port in had.ports}
        ports: list[ProxyPort] = []
        for listener in listeners:
            number = kept.get(listener)
            if number is None or number in taken:
                number = allocate_proxy_port(key, listener, taken)
            if number is None:
                return had, _problem(
                    ConditionReason.ADDRESS_POOL_EXHAUSTED, "no free port is left on this member's proxies"
                )
            taken[number] = key
            ports.append(ProxyPort(listener.port, listener.protocol.value, number))
        return Allocation(ports=ports), None


def listeners_of(spec: TCPLoadBalancerSpec) -> list[ListenerKey]:
    """Return the listeners that a spec asks for, in its own order."""
    return [ListenerKey(Protocol(port.protocol), port.port) for port in spec.ports]


class _Taken(msgspec.Struct, frozen=True):
    """The addresses that are given or reserved; none is copied."""

    given: Container[object]
    reserved: Container[object]

    def __contains__(self, address: object) -> bool:
        return address in self.given or address in self.reserved


def _allocation(address: str, pool: Pool | None) -> Allocation:
    return Allocation(address, pool="" if pool is None or pool.name == OWN_POOL else pool.name)


def _all_taken(pool: Pool) -> str:
    count = len(pool.ranges) - len(pool.reservations)
    reserved = f" ({len(pool.reservations)} more are reserved)" if pool.reservations else ""
    more = "start the hub with a larger --address-pool" if pool.name == OWN_POOL else "add to its spec.addresses"
    name = f"the pool {pool.ranges}" if pool.name == OWN_POOL else describe(pool)
    return f"all {count} addresses of {name} are taken{reserved}; delete a load balancer, or {more}"


def _share_is_used(pool: Pool) -> str:
    return (
        f"this member has all {pool.max_per_tenant} addresses of {describe(pool)} that spec.maxPerTenant allows; "
        "delete a load balancer, or let it share an address (spec.address)"
    )


def _problem(reason: ConditionReason, message: str) -> Condition:
    return Condition(ConditionType.PROGRAMMED, False, reason, message)
