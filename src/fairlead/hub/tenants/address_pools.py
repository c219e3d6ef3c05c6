"""The AddressPools that this hub assigns addresses from, and their status.

In: AddressPools, and what the allocator has given. Out: pools for the allocator, wake-ups of load balancers that wait
for an address, and the status of each pool. Never: an address is taken from a load balancer that has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import msgspec

from fairlead.api.addresspool import ADDRESS_POOLS, COUNTED, AddressPool, AddressPoolStatus
from fairlead.api.meta import only_status_changed, wire_conditions
from fairlead.api.names import MANAGER_HUB
from fairlead.api.times import wire_time
from fairlead.errors import NotFound
from fairlead.hub.config import HubConfig
from fairlead.hub.inventory import Inventory, first_broken
from fairlead.hub.tenants.address_allocator import REST_S, AddressAllocator
from fairlead.kube.cluster import Cluster
from fairlead.kube.status import write_status
from fairlead.model.condition import Condition
from fairlead.model.in_words import listed
from fairlead.model.keys import IPV4, IPV6, family_of
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.addresses import OWN_POOL, Pool, usable_pools

#: Many addresses may be given at once; one write counts them all.
_GATHER_S = 2.0
#: How many addresses a message names.
_NAMED = 3


class AddressPools:
    """Keeps the allocator's pools as the objects say, and writes the status of each."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        config: HubConfig,
        leading: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._config = config
        self._clock = cluster.clock
        self._leading = leading
        self._conditions: dict[str, Condition] = {}
        self.queue: KeyedQueue[str] = KeyedQueue(clock=cluster.clock)
        self.allocator = AddressAllocator(
            config.address_pool,
            clock=cluster.clock,
            given=inventory.given,
            changed=self._given_changed,
            wake=inventory.wake,
        )

    def watch(self) -> None:
        """Subscribe to AddressPools."""
        self._inventory.address_pools.on_change(self._changed)
        self._inventory.address_pools.broken.on_change(lambda _pool: self._changed(None, None))

    def lead(self) -> None:
        """Write the status of every pool: this replica has begun to lead."""
        for name in self._conditions:
            self.queue.add(name)

    async def reconcile(self, name: str) -> float | None:
        """Write the status of pool ``name`` when it differs; of ``OWN_POOL``, only look which addresses have rested."""
        if name == OWN_POOL:
            return self.allocator.wake_rested()
        await self._write(name)
        return None

    async def _write(self, name: str) -> None:
        obj, accepted = self._inventory.address_pools.get("", name), self._conditions.get(name)
        if obj is None or accepted is None or not self._leading():
            return
        pool = next((pool for pool in self.allocator.pools.pools if pool.name == name), None)
        counted = self._count(name, pool)
        if accepted.status and counted.outside:
            accepted = msgspec.structs.replace(accepted, message=self._outside(name, pool))
        generation = obj.metadata.generation
        new = msgspec.structs.replace(
            counted,
            # While its spec is not valid, what it had is held.
            accepted_addresses=pool.ranges.spans if pool is not None else obj.status.accepted_addresses,
            observed_generation=generation,
            conditions=wire_conditions(
                [accepted], obj.status.conditions, generation=generation, now=wire_time(self._clock.now())
            ),
        )
        always = ("size", "used", "reserved", "free", "outside")
        with suppress(NotFound):  # it was deleted meanwhile
            await write_status(self._cluster, ADDRESS_POOLS, obj, obj.status, new, manager=MANAGER_HUB, always=always)

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
        """Return the addresses that were given from the pool ``name``, whatever it says now."""
        return {address for address, pool in self.allocator.given() if pool == name}

    def _outside(self, name: str, pool: Pool | None) -> str:
        outside = sorted(address for address in self._given(name) if pool is None or address not in pool.ranges)
        given = f"spec.addresses: {listed(outside, _NAMED)}"
        if len(outside) == 1:
            return (
                f"{given} is given and not in the pool any more; its load balancer keeps it until it is deleted or "
                "asks for another (spec.address)"
            )
        return (
            f"{given} are given and not in the pool any more; their load balancers keep them until they are deleted "
            "or ask for others (spec.address)"
        )

    def _changed(self, old: AddressPool | None, new: AddressPool | None) -> None:
        if old is not None and new is not None and only_status_changed(old, new):
            return
        cache = self._inventory.address_pools
        unread = {
            first_broken(ADDRESS_POOLS.kind, cache, [key]): remains.obj if remains.has("status") else None
            for key, remains in cache.remains().items()
            if remains.obj is None
            or not remains.has("spec.region")
            or remains.obj.spec.region.lower() == self._config.region.lower()
        }
        pools, self._conditions = usable_pools(
            self._config.address_pool, cache.values(), region=self._config.region, unread=unread
        )
        changed = new or old
        name = changed.metadata.name if changed is not None else OWN_POOL
        self.allocator.use(pools, f"AddressPool {name} changed")
        for each in self._conditions:
            self.queue.add(each)

    def _given_changed(self) -> None:
        self.queue.add_after(OWN_POOL, REST_S)
        for name in self._conditions:
            self.queue.add_after(name, _GATHER_S)
