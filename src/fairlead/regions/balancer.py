"""Our layer 2: PoolServices of our classes become TCPLoadBalancers, and what became of those is told back.

    wanted   finalizer on the PoolService ─► TCPLoadBalancer ─► EndpointSlices ─► (hub) ─► status, Events
    leaving  gone from the Service's status ─► TCPLoadBalancer deleted ─► (hub lets go) ─► slices ─► finalizer off

In: PoolServices and what is in them. Out: objects for a hub, and the PoolServices' status.
Never: touches a PoolService of another class, or a TCPLoadBalancer that was not made for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from fairlead.api.kubernetes import ENDPOINT_SLICES, EndpointSlice
from fairlead.api.meta import JSONObject
from fairlead.api.names import (
    ANNOTATION_BACKENDS,
    FINALIZER_LOAD_BALANCER,
    LABEL_LOAD_BALANCER,
    LABEL_ORIGIN_KIND,
    MANAGER_BALANCER,
)
from fairlead.api.naming import label_value
from fairlead.api.poolservice import POOL_SERVICES, PoolService, PoolServiceStatus
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.times import wire_time
from fairlead.errors import Invalid, NotFound
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.finalizers import hold, release
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.regions.backends import Backends, decode_backends
from fairlead.regions.balancer_diff import load_balancer_differs, slice_differs
from fairlead.regions.balancer_plan import Refusal, is_our_class, load_balancer_name, made_for, plan_balancer
from fairlead.regions.balancer_status import build_status
from fairlead.regions.identity import region_of
from fairlead.regions.inventory import Inventory
from fairlead.regions.pool_service_writer import Keeper
from fairlead.regions.source import ServiceKey
from fairlead.regions.wire import json_condition, json_ingress
from fairlead.runtime.queue import KeyedQueue

#: How long a load balancer outlives its PoolService's deletion while its address is still shown, at most.
UNION_PATIENCE_S = 30.0
_LOOK_AGAIN_S = 1.0
_GOOD_WHEN_TRUE = frozenset({ConditionType.ACCEPTED, ConditionType.RESOLVED_REFS, ConditionType.PROGRAMMED})


class Balancer:
    """Brings one PoolService's load balancer to where it should be."""

    def __init__(self, *, cluster: Cluster, inventory: Inventory, keeper: Keeper, leading: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._keeper = keeper
        self._leading = leading
        made = f"{LABEL_ORIGIN_KIND}={POOL_SERVICES.kind}"
        self.load_balancers: WatchCache[TCPLoadBalancer] = WatchCache(cluster, TCP_LOAD_BALANCERS, label_selector=made)
        self.slices: WatchCache[EndpointSlice] = WatchCache(
            cluster,
            ENDPOINT_SLICES,
            label_selector=made,
            indexes={"load balancer": lambda one: [(one.metadata.namespace, one.label(LABEL_LOAD_BALANCER))]},
        )
        self._asked_s: dict[tuple[str, str], float] = {}
        self.queue: KeyedQueue[tuple[str, str]] = KeyedQueue(clock=cluster.clock)
        inventory.pool_services.on_change(self._pool_service_changed)
        inventory.on_access.append(self._service_changed)
        inventory.on_pools.append(self._pools_changed)
        self.load_balancers.on_change(self._load_balancer_changed)
        self.slices.on_change(self._slice_changed)

    @property
    def caches(self) -> Mapping[str, WatchCache[Any]]:
        """Return the caches that only layer 2 needs."""
        return {"tcploadbalancers": self.load_balancers, "endpointslices (ours)": self.slices}

    def keys(self) -> list[tuple[str, str]]:
        """Return every PoolService that there is, and every one that some load balancer was made for."""
        keys = {one.key for one in self._inventory.pool_services.values()}
        keys |= {(one.metadata.namespace, one.spec.origin.name) for one in self.load_balancers.values()}
        return sorted(keys)

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        """Take one PoolService one step further; returns seconds to look again."""
        if not self._leading():
            return None
        pool_service = self._inventory.pool_services.get(*key)
        if pool_service is None or pool_service.deleting or not is_our_class(pool_service):
            return await self._leave(key, pool_service)
        self._asked_s.pop(key, None)
        if not pool_service.held_by(FINALIZER_LOAD_BALANCER):
            # Recorded first: from here on nothing of it can be forgotten.
            with suppress(NotFound):
                await hold(
                    self._cluster, POOL_SERVICES, pool_service, FINALIZER_LOAD_BALANCER, manager=MANAGER_BALANCER
                )
            return None  # the change wakes us
        refusal = await self._make(pool_service)
        await self._tell(pool_service, refusal)
        return None

    async def _make(self, pool_service: PoolService) -> Refusal | None:
        """Write what differs; the load balancer first, and what is no longer a target last."""
        namespace, name = pool_service.key
        present = self.load_balancers.get(namespace, load_balancer_name(name))
        if present is not None and not made_for(present, name):
            sentence = f"TCPLoadBalancer {present.metadata.name} was not made for this PoolService; it is left alone"
            return Refusal(ConditionReason.INVALID, sentence)
        if present is not None and present.deleting:
            return None  # its successor is made when it is gone, which wakes us
        wish = plan_balancer(pool_service, self._backends_of(pool_service), region=self._region_of(pool_service))
        if isinstance(wish, Refusal):
            return wish
        if present is not None and present.spec.region != wish.load_balancer["spec"]["region"]:
            # The hub of another region has other addresses: this one ends there, and begins anew here when it is gone.
            await self._cluster.delete(TCP_LOAD_BALANCERS, namespace, present.metadata.name, uid=present.metadata.uid)
            return None
        if load_balancer_differs(wish.load_balancer, present):
            try:
                await self._cluster.apply(TCP_LOAD_BALANCERS, wish.load_balancer, manager=MANAGER_BALANCER)
            except Invalid as error:
                return Refusal(ConditionReason.INVALID, error.sentence)
        there = {one.metadata.name: one for one in self._slices_of(pool_service.key)}
        for slice_name, body in wish.slices.items():
            if slice_differs(body, there.get(slice_name)):
                await self._cluster.apply(ENDPOINT_SLICES, body, manager=MANAGER_BALANCER)
        for slice_name in sorted(there.keys() - wish.slices.keys()):
            if not there[slice_name].deleting:
                await self._delete_slice(there[slice_name])
        return None

    def _backends_of(self, pool_service: PoolService) -> Backends:
        found = decode_backends(pool_service.annotation(ANNOTATION_BACKENDS)) or Backends()
        region = region_of(pool_service)
        service = self._inventory.service(region.service_key) if found.truncated and region is not None else None
        if service is None or region is None:
            return found
        # Too many for an annotation: then they are read where they come from.
        return self._keeper.backends(service, region.pool, [pool_service])

    def _region_of(self, pool_service: PoolService) -> str:
        pool = self._inventory.pool(pool_service.spec.nodepool_name)
        return label_value(pool.region if pool is not None else pool_service.spec.nodepool_name)

    def _slices_of(self, key: tuple[str, str]) -> list[EndpointSlice]:
        return list(self.slices.by_index("load balancer", (key[0], label_value(load_balancer_name(key[1])))))

    # --- telling ----------------------------------------------------------------------------------------------

    async def _tell(self, pool_service: PoolService, refusal: Refusal | None) -> None:
        present = self.load_balancers.get(
            pool_service.metadata.namespace, load_balancer_name(pool_service.metadata.name)
        )
        if present is not None and not made_for(present, pool_service.metadata.name):
            present = None
        now = wire_time(self._cluster.clock.now())
        new = build_status(pool_service, present, refusal, now=now)
        if new == pool_service.status:
            return
        await self._write_status(pool_service, new)
        self._emit(pool_service, new)

    async def _write_status(self, pool_service: PoolService, status: PoolServiceStatus) -> None:
        meta = pool_service.metadata
        ingress = [json_ingress(one) for one in status.load_balancer.ingress or ()]
        body: JSONObject = {
            "address": status.address,
            "targets": status.targets,
            "loadBalancer": {"ingress": ingress} if ingress else {},
            "observedGeneration": status.observed_generation,
            "conditions": [json_condition(one) for one in status.conditions or ()],
        }
        # The uid keeps a status from landing on a successor of the same name.
        obj = {"metadata": {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}, "status": body}
        await self._cluster.apply(POOL_SERVICES, obj, manager=MANAGER_BALANCER, subresource="status")

    def _emit(self, pool_service: PoolService, new: PoolServiceStatus) -> None:
        before = {one.type: (one.status, one.reason) for one in pool_service.status.conditions or ()}
        for one in new.conditions or ():
            if before.get(one.type) == (one.status, one.reason) or one.reason == ConditionReason.PENDING:
                continue
            good = (one.status == "True") == (one.type in _GOOD_WHEN_TRUE)
            if not good:
                self._keeper.tell(POOL_SERVICES, pool_service, "Warning", one.reason, one.message or one.type)
            elif one.type == ConditionType.PROGRAMMED:
                self._keeper.tell(POOL_SERVICES, pool_service, "Normal", one.reason, f"serving at {new.address}")

    # --- leaving ----------------------------------------------------------------------------------------------

    async def _leave(self, key: tuple[str, str], pool_service: PoolService | None) -> float | None:
        """See a load balancer out; its PoolService may be gone, going, or somebody else's by now."""
        ours = pool_service is not None and pool_service.held_by(FINALIZER_LOAD_BALANCER)
        present = self.load_balancers.get(key[0], load_balancer_name(key[1]))
        if present is not None and not made_for(present, key[1]):
            present = None
        if present is not None:
            if pool_service is not None and ours and self._still_shown(pool_service):
                return _LOOK_AGAIN_S
            if not present.deleting:
                name, uid = present.metadata.name, present.metadata.uid
                await self._cluster.delete(TCP_LOAD_BALANCERS, key[0], name, uid=uid)
            return None  # its end wakes us
        for one in self._slices_of(key):
            if not one.deleting:
                await self._delete_slice(one)
        if pool_service is not None and ours:
            self._asked_s.pop(key, None)
            if not pool_service.deleting:
                # Another class has it now: what we told about it is no longer true.
                await self._write_status(pool_service, PoolServiceStatus())
            await release(self._cluster, POOL_SERVICES, pool_service, FINALIZER_LOAD_BALANCER, manager=MANAGER_BALANCER)
        return None

    def _still_shown(self, pool_service: PoolService) -> bool:
        """Say whether the Service still shows this region's address, and is given time to take it away."""
        region = region_of(pool_service)
        service = self._inventory.service(region.service_key) if region is not None else None
        if region is None or service is None or service.deleting:
            return False
        mine = {one.address for one in pool_service.status.load_balancer.ingress or ()}
        for _, other in self._inventory.written.of_service(region.service_key):
            if other.metadata.uid != pool_service.metadata.uid and not other.deleting:
                mine -= {one.address for one in other.status.load_balancer.ingress or ()}
        if not mine & {one.address for one in service.status.load_balancer.ingress or ()}:
            return False
        now_s = self._cluster.clock.monotonic()
        return now_s - self._asked_s.setdefault(pool_service.key, now_s) < UNION_PATIENCE_S

    async def _delete_slice(self, one: EndpointSlice) -> None:
        meta = one.metadata
        await self._cluster.delete(ENDPOINT_SLICES, meta.namespace, meta.name, uid=meta.uid)

    # --- whom a change concerns -------------------------------------------------------------------------------

    def _pool_service_changed(self, old: PoolService | None, new: PoolService | None) -> None:
        one = new or old
        if one is not None and any(
            each is not None and (is_our_class(each) or each.held_by(FINALIZER_LOAD_BALANCER)) for each in (old, new)
        ):
            self.queue.add(one.key)

    def _service_changed(self, key: ServiceKey) -> None:
        for _, one in self._inventory.written.of_service(key):
            if one.deleting and one.held_by(FINALIZER_LOAD_BALANCER):
                self.queue.add(one.key)

    def _pools_changed(self, pool: str) -> None:
        for one in self._inventory.pool_services.by_index("pool", pool):
            if is_our_class(one):
                self.queue.add(one.key)

    def _load_balancer_changed(self, old: TCPLoadBalancer | None, new: TCPLoadBalancer | None) -> None:
        one = new or old
        if one is not None:
            self.queue.add((one.metadata.namespace, one.spec.origin.name))

    def _slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        one = new or old
        if one is not None:
            for reference in one.metadata.owner_references or ():
                self.queue.add((one.metadata.namespace, reference.name))
