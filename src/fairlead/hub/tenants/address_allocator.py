"""Who has which address and which proxy port: the book, rebuilt from what is recorded in the objects' status.

Everything recorded is read before anything new is given away, so that a restart never moves an address. In: objects
and their recorded allocations. Out: an allocation to record, or the condition that says why there is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fairlead.api.intent import Allocation, ProxyPort
from fairlead.api.tcploadbalancer import TCPLoadBalancerSpec
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import AllocationKind
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol
from fairlead.translate.allocate import AddressPool, allocate_address, allocate_proxy_port


class AddressAllocator:
    """Addresses of one pool, and proxy ports of each group (a tenant's namespace)."""

    def __init__(self, pool: AddressPool | None) -> None:
        self._pool = pool
        self._held: dict[LoadBalancerKey, Allocation] = {}
        self._waiting: set[LoadBalancerKey] = set()
        self._addresses: dict[str, dict[LoadBalancerKey, frozenset[ListenerKey]]] = {}
        self._ports: dict[str, dict[int, LoadBalancerKey]] = {}
        #: How many ports each load balancer has, and each member.
        self._open: dict[LoadBalancerKey, int] = {}
        self._open_of_member: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._addresses)

    @property
    def pool(self) -> AddressPool | None:
        """Return the pool, None where addresses come from elsewhere."""
        return self._pool

    def hold(self, key: LoadBalancerKey, allocation: Allocation, listeners: Iterable[ListenerKey]) -> None:
        """Note what ``key`` has; replaces what it had."""
        self.release(key)
        self._held[key] = allocation
        held = frozenset(listeners)
        if allocation != Allocation():
            self._open[key] = len(held)
            self._open_of_member[key.namespace] += len(held)
        if allocation.address:
            self._addresses.setdefault(allocation.address, {})[key] = held
        for port in allocation.ports:
            self._ports.setdefault(key.namespace, {}).setdefault(port.proxy_port, key)

    def leave(self, key: LoadBalancerKey) -> frozenset[LoadBalancerKey]:
        """Give back all that ``key`` had, which is gone; returns who was refused last time, and may now have that."""
        self.release(key)
        self._waiting.discard(key)
        return frozenset(self._waiting)

    def release(self, key: LoadBalancerKey) -> None:
        """Give back all that ``key`` had; only once its load balancer is really gone."""
        allocation = self._held.pop(key, None)
        if allocation is None:
            return
        self._open_of_member[key.namespace] -= self._open.pop(key, 0)
        if holders := self._addresses.get(allocation.address):
            holders.pop(key, None)
            if not holders:
                del self._addresses[allocation.address]
        ports = self._ports.get(key.namespace, {})
        for port in allocation.ports:
            if ports.get(port.proxy_port) == key:
                del ports[port.proxy_port]

    def allocate(
        self,
        key: LoadBalancerKey,
        kind: AllocationKind,
        *,
        wanted: str,
        recorded: Allocation,
        listeners: Sequence[ListenerKey],
        limit: int = 0,
    ) -> tuple[Allocation, Condition | None]:
        """Return what a provider of ``kind`` needs for ``key``: what it has already, or something free.

        ``wanted``: the address that its spec asks for, empty for any. ``limit``: how many ports its member may have,
        0 for any number; what a load balancer has already it keeps. The condition says why there is none.
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
                allocation, problem = self._address(key, wanted, had.address, listeners)
            case AllocationKind.PROXY_PORT:
                allocation, problem = self._proxy_ports(key, had, listeners)
        if problem is None:
            self.hold(key, allocation, listeners)
            self._waiting.discard(key)
        else:
            self._waiting.add(key)
        return allocation, problem

    def _address(
        self, key: LoadBalancerKey, asked: str, had: str, listeners: Sequence[ListenerKey]
    ) -> tuple[Allocation, Condition | None]:
        wanted = asked or had
        if wanted:
            if self._pool is not None and wanted != had and wanted not in self._pool:
                return Allocation(had), _problem(
                    ConditionReason.ADDRESS_NOT_USABLE,
                    f"spec.address: {wanted} is not in the hub's address pool {self._pool}; "
                    "choose one of it, or leave spec.address empty to get a free one",
                )
            if (other := self._clash(key, wanted, listeners)) is not None:
                # Which load balancers other members have is not for this one to know.
                who = other if other.namespace == key.namespace else "another load balancer"
                return Allocation(had), _problem(
                    ConditionReason.PORT_CONFLICT,
                    f"{wanted} is taken by {who}; leave spec.address empty to get a free one, "
                    "or use other ports of the same member",
                )
            return Allocation(wanted), None
        if self._pool is None:
            return Allocation(), _problem(
                ConditionReason.ADDRESS_NOT_ASSIGNED, "the hub has no address pool; start it with --address-pool CIDR"
            )
        address = allocate_address(key, self._pool, self._addresses)
        if address is None:
            return Allocation(), _problem(
                ConditionReason.ADDRESS_POOL_EXHAUSTED,
                f"all {len(self._pool)} addresses of the pool {self._pool} are taken; "
                "delete a load balancer, or start the hub with a larger --address-pool",
            )
        return Allocation(address), None

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


def _problem(reason: ConditionReason, message: str) -> Condition:
    return Condition(ConditionType.PROGRAMMED, False, reason, message)
