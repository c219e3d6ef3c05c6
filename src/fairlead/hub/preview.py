"""What the hub would do now, without doing it: the same views, builds, plans and guards, over a read-only API.

In: a Cluster with the rights to read. Out: for each load balancer of a durable provider its plan, what is on record,
and what is read back. Never: a write, an allocation, or a call of a provider that changes anything.
"""

from __future__ import annotations

import asyncio

import msgspec
from prometheus_client import CollectorRegistry

from fairlead.api.backendrecord import BackendRecord
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.names import DEFAULT_CLASS
from fairlead.api.tcploadbalancer import Frontend
from fairlead.build.tcp import build_tcp
from fairlead.build.view import Built
from fairlead.errors import FairleadError
from fairlead.hub.allocations import AllocationBook
from fairlead.hub.engine import DurableEngine
from fairlead.hub.engines import Engines
from fairlead.hub.inventory import Inventory
from fairlead.hub.members import Members
from fairlead.hub.providers import installed_providers
from fairlead.hub.selected import Selected
from fairlead.hub.shared import SharedLoadBalancers
from fairlead.hub.views import Views
from fairlead.kube.cluster import Cluster
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.runtime.clock import SystemClock
from fairlead.sync.guard import guard_plan
from fairlead.sync.plan import Plan, plan_load_balancer
from fairlead.sync.readback import Drift, drift_of

_SYNC_S = 20.0


class Previewed(msgspec.Struct, frozen=True):
    """One load balancer; ``unread`` says why it could not be read back."""

    key: LoadBalancerKey
    provider: str
    built: Built | None
    plan: Plan
    records: tuple[BackendRecord, ...] = ()
    drift: Drift = Drift()
    #: Entries of ours at the provider that no record knows, ordered.
    unrecorded: tuple[str, ...] = ()
    unread: str = ""


async def preview(cluster: Cluster, only: LoadBalancerKey | None = None) -> list[Previewed]:
    """Look at every load balancer of a durable provider, or at one; ordered by key."""
    inventory = Inventory(cluster)
    clock = SystemClock()
    selected = Selected(cluster, changed=lambda _namespace: None)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(cache.run()) for cache in inventory.caches.values()]
        tasks.append(group.create_task(selected.run()))
        try:
            for cache in inventory.caches.values():
                await cache.wait_synced(_SYNC_S)
            return await _previewed(cluster, inventory, selected, clock, only)
        finally:
            for task in tasks:
                task.cancel()


async def _previewed(
    cluster: Cluster, inventory: Inventory, selected: Selected, clock: SystemClock, only: LoadBalancerKey | None
) -> list[Previewed]:
    engines = Engines(
        served={},
        factories=installed_providers(clock=clock, registry=CollectorRegistry(), without=frozenset({DEFAULT_CLASS})),
        cluster=cluster,
        clock=clock,
        report=lambda _report: None,
        changed=lambda _key: None,
        is_leader=lambda: False,
    )
    for found in inventory.classes.values():
        engines.open(found.spec.provider)
    for name, engine in engines.durable.items():
        engine.begin(inventory.records.values(), _frontends(inventory, name))
    shared = SharedLoadBalancers(
        cluster=cluster, inventory=inventory, selected=selected, engines=engines, loopback_targets=True
    )
    views = Views(
        inventory=inventory,
        book=AllocationBook(None),
        members=Members(clock=clock, changed=lambda _namespace: None),
        providers=engines.capabilities,
        loopback_targets=True,
    )
    await _read_selected(inventory, selected)
    keys = {*inventory.all_keys(), *engines.restored()}
    out: list[Previewed] = []
    try:
        for key in sorted(keys if only is None else keys & {only}):
            built = await _built(key, views, shared)
            found = inventory.intent(key)
            provider = built.provider if built is not None else _provider_of(engines, key)
            engine = engines.durable.get(provider)
            if engine is not None:
                out.append(await _one(key, engine, built, gone=found is None or found.deleting, inventory=inventory))
    finally:
        await engines.close()
    return out


async def _read_selected(inventory: Inventory, selected: Selected) -> None:
    """Have everything read that some group selects from."""
    for group in inventory.groups.values():
        selected.need(group)
    for group in inventory.groups.values():
        if group.spec.pods is not None:
            await selected.pods.wait_synced(_SYNC_S)
        if group.spec.service is not None:
            await selected.services.wait_synced(_SYNC_S)
            await selected.nodes.wait_synced(_SYNC_S)


async def _built(key: LoadBalancerKey, views: Views, shared: SharedLoadBalancers) -> Built | None:
    if key.kind != LOAD_BALANCERS.kind:
        view = views.tcp(key, allocate=False)
        return build_tcp(view) if view is not None else None
    return await shared.wish(key, leading=False)


async def _one(
    key: LoadBalancerKey, engine: DurableEngine, built: Built | None, *, gone: bool, inventory: Inventory
) -> Previewed:
    if built is not None and built.desired is not None:
        engine.tracker.put(built.desired)
    elif gone:
        engine.tracker.remove(key)
    side = engine.tracker.side(key)
    records = tuple(inventory.records.by_index("lb", key))
    if side is None:
        return Previewed(key, engine.name, built, Plan(key), records)
    now_s = SystemClock().monotonic()
    plan = guard_plan(plan_load_balancer(key, side, now_s=now_s), side, now_s=now_s)
    observed: Observed | None = None
    unread = ""
    try:
        observed = await engine.provider.observe(key)
    except FairleadError as error:
        unread = error.sentence
    if observed is None and not unread:
        unread = "the provider cannot be read from here"
    if observed is None:
        return Previewed(key, engine.name, built, plan, records, unread=unread)
    known = {(listener, at) for listener, targets in side.done.items() for at in targets}
    unrecorded = [str(one.key) for one in observed.targets or () if (one.listener, one.key) not in known]
    return Previewed(
        key, engine.name, built, plan, records, drift=drift_of(side, observed), unrecorded=tuple(sorted(unrecorded))
    )


def _provider_of(engines: Engines, key: LoadBalancerKey) -> str:
    return next((name for name, engine in engines.durable.items() if key in engine.tracker), "")


def _frontends(inventory: Inventory, provider: str) -> dict[LoadBalancerKey, Frontend]:
    found: dict[LoadBalancerKey, Frontend] = {}
    for key in inventory.all_keys():
        one = inventory.intent(key)
        if one is not None and one.status.frontend is not None and one.status.frontend.provider == provider:
            found[key] = one.status.frontend
    return found
