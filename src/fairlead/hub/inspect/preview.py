"""What the hub would do now, without doing it: the same views, builds, plans and guards, over a read-only API.

In: a Cluster with the rights to read. Out: for each load balancer its plan, what is on record, what is read back, and
what was left out. Those that the hub serves itself have no ledger, so there is nothing to compare them with.
Never: a write, an allocation, or a call of a provider that changes anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from prometheus_client import CollectorRegistry

from fairlead.api.backendrecord import BackendRecord
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.meta import KubeObject, WireCondition
from fairlead.api.names import ANNOTATION_PAUSED, DEFAULT_CLASS
from fairlead.api.tcploadbalancer import Frontend, TCPLoadBalancer
from fairlead.errors import FairleadError
from fairlead.hub.inspect.exclusions import LeftOut, left_out, nodes_left_out
from fairlead.hub.intents.loadbalancer.backend_sources import BackendSources
from fairlead.hub.intents.loadbalancer.intent import LoadBalancerIntent
from fairlead.hub.intents.tcp.views import Views
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.installed import installed_providers
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.providers.runner import DurableRunner
from fairlead.hub.tenants.address_allocator import AddressAllocator
from fairlead.hub.tenants.member_health import MemberHealth
from fairlead.hub.validation.provider_validation import as_told
from fairlead.kube.cluster import Cluster
from fairlead.ledger.wire import load_balancer_of
from fairlead.model.change import FrontendChange
from fairlead.model.contract import AllocationKind, Capabilities, Restorable
from fairlead.model.keys import LoadBalancerKey, Protocol
from fairlead.model.observed import Observed
from fairlead.runtime.clock import SystemClock
from fairlead.sync.guard import guard_plan
from fairlead.sync.history import History
from fairlead.sync.plan import Plan, plan_load_balancer
from fairlead.sync.readback import Drift, drift_of
from fairlead.sync.tracker import Side
from fairlead.translate.loadbalancer import translate_loadbalancer
from fairlead.translate.protection import is_leaving
from fairlead.translate.tcp import translate_tcp
from fairlead.translate.view import Translation

_SYNC_S = 20.0
#: Whether it refuses something is for the hub to say; here it only has to be built as the hub builds it.
_SERVED = Capabilities(
    protocols=frozenset(Protocol),
    ipv6=True,
    host_name_targets=True,
    source_ranges=True,
    affinity=True,
    proxy_protocol=True,
    weights=True,
    allocation=AllocationKind.ADDRESS,
    serves_whole_state=True,
)


class Previewed(msgspec.Struct, frozen=True, kw_only=True):
    """One load balancer. ``served``: by the hub itself, without a ledger; then there is no plan.

    ``paused`` names the objects whose annotation holds everything. ``conditions`` are what the hub wrote last.
    ``held_frontend`` is what a pause holds of the load balancer itself. ``unread`` says why it could not be read back.
    """

    key: LoadBalancerKey
    provider: str
    class_name: str = ""
    #: Its object is gone for good; what is left of it is on record only.
    gone: bool = False
    served: bool = False
    paused: tuple[str, ...] = ()
    conditions: tuple[WireCondition, ...] = ()
    built: Translation | None = None
    plan: Plan
    held_frontend: FrontendChange | None = None
    #: The provider's own identity of it.
    info: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    side: Side = msgspec.field(default_factory=Side)
    records: tuple[BackendRecord, ...] = ()
    observed: Observed | None = None
    drift: Drift = Drift()
    unread: str = ""
    left_out: tuple[LeftOut, ...] = ()


async def preview(cluster: Cluster, only: LoadBalancerKey | None = None) -> list[Previewed]:
    """Look at every load balancer, or at one; ordered by key."""
    inventory = Inventory(cluster)
    selected = BackendSources(cluster, changed=lambda _namespace: None)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(cache.run()) for cache in inventory.caches.values()]
        tasks.append(group.create_task(selected.run()))
        try:
            for cache in inventory.caches.values():
                await cache.wait_synced(_SYNC_S)
            await _read_selected(inventory, selected)
            return await _Look(cluster, inventory, selected).all(only)
        finally:
            for task in tasks:
                task.cancel()


async def _read_selected(inventory: Inventory, selected: BackendSources) -> None:
    """Have everything read that some group selects from."""
    for group in inventory.groups.values():
        selected.need(group)
    for group in inventory.groups.values():
        if group.spec.pods is not None:
            await selected.pods.wait_synced(_SYNC_S)
        if group.spec.service is not None:
            await selected.services.wait_synced(_SYNC_S)
            await selected.nodes.wait_synced(_SYNC_S)


class _Look:
    """The parts of a hub that decide, none of those that act."""

    def __init__(self, cluster: Cluster, inventory: Inventory, selected: BackendSources) -> None:
        self._inventory = inventory
        self._selected = selected
        self._clock = SystemClock()
        self._engines = ProviderRegistry(
            served={},
            factories=installed_providers(
                clock=self._clock, registry=CollectorRegistry(), without=frozenset({DEFAULT_CLASS}), dry_run=True
            ),
            inventory=inventory,
            cluster=cluster,
            clock=self._clock,
            report=lambda _report: None,
            changed=lambda _key: None,
            is_leader=lambda: False,
            history=History(now=self._clock.now),
        )
        for name in self._providers():
            self._engines.open(name)
        for name, engine in self._engines.durable.items():
            engine.begin(inventory.records.values(), self._frontends(name))
        self._engines.capabilities.setdefault(DEFAULT_CLASS, _SERVED)
        self._shared = LoadBalancerIntent(
            cluster=cluster, inventory=inventory, selected=selected, engines=self._engines, loopback_targets=True
        )
        self._views = Views(
            inventory=inventory,
            book=AddressAllocator(None),
            members=MemberHealth(clock=self._clock, changed=lambda _namespace: None),
            providers=self._engines.capabilities,
            provider_problems=self._engines.problems,
            loopback_targets=True,
        )

    async def all(self, only: LoadBalancerKey | None) -> list[Previewed]:
        on_record = (load_balancer_of(one) for one in self._inventory.records.values())
        keys = {*self._inventory.all_keys(), *self._engines.restored(), *on_record}
        try:
            return [await self._one(key) for key in sorted(keys if only is None else keys & {only})]
        finally:
            await self._engines.close()

    async def _one(self, key: LoadBalancerKey) -> Previewed:
        intent = self._inventory.intent(key)
        built, more = await self._built(key)
        provider = built.provider if built is not None else ""
        if provider not in self._engines.durable:
            provider = next((name for name, one in self._engines.durable.items() if key in one.tracker), provider)
        found = Previewed(
            key=key,
            provider=provider,
            class_name=(intent.spec.class_name or DEFAULT_CLASS) if intent is not None else "",
            gone=intent is None,
            served=provider == DEFAULT_CLASS,
            paused=self._paused(intent),
            conditions=tuple(intent.status.conditions or ()) if intent is not None else (),
            built=built,
            plan=Plan(key),
            records=tuple(self._inventory.records.by_index("lb", key)),
            left_out=more,
        )
        engine = self._engines.durable.get(provider)
        if engine is None:
            named = provider or next((one.spec.load_balancer.provider for one in found.records), "")
            if not named or found.served:
                return found
            unread = f"provider {named!r} is not installed where this command runs"
            return msgspec.structs.replace(found, provider=named, unread=unread)
        if built is not None and built.desired is not None:
            engine.tracker.put(built.desired)
        elif intent is None or is_leaving(intent):
            engine.tracker.remove(key)
        side = engine.tracker.side(key)
        return found if side is None else await self._compared(found, engine, side)

    async def _compared(self, found: Previewed, engine: DurableRunner, side: Side) -> Previewed:
        key, now_s = found.key, self._clock.monotonic()
        whole = plan_load_balancer(key, side, now_s=now_s)
        plan = guard_plan(whole, side, now_s=now_s)
        found = msgspec.structs.replace(
            found,
            plan=plan,
            side=side,
            info=engine.ledger.frontends.info(key),
            held_frontend=whole.frontend if plan.frontend is None else None,
        )
        try:
            observed = await engine.provider.observe(key)
        except FairleadError as error:
            return msgspec.structs.replace(found, unread=error.sentence)
        if observed is None and (side.done_spec is None or side.ensure_again):
            # It was asked for at the most: nobody has said yet that it is there.
            return found
        if observed is None and not isinstance(engine.provider, Restorable):
            return msgspec.structs.replace(found, unread=_UNREAD)
        if observed is None:
            return msgspec.structs.replace(found, drift=drift_of(side, None))
        if observed.targets is None and observed.message:
            return msgspec.structs.replace(found, unread=observed.message)
        return msgspec.structs.replace(found, observed=observed, drift=drift_of(side, observed))

    async def _built(self, key: LoadBalancerKey) -> tuple[Translation | None, tuple[LeftOut, ...]]:
        if key.kind != LOAD_BALANCERS.kind:
            view = self._views.tcp(key, allocate=False)
            if view is None:
                return None, ()
            slices = self._inventory.node_slices_of(key.namespace)
            nodes = nodes_left_out(slices, view.nodes.ready) if view.load_balancer.spec.targets == "Node" else ()
            return translate_tcp(view), nodes
        shared = await self._shared.view(key)
        if shared is None:
            return None, ()
        shared = as_told(shared)
        built = translate_loadbalancer(shared)
        return built, left_out(shared, built.desired, self._selected) if built.desired is not None else ()

    def _paused(self, intent: TCPLoadBalancer | LoadBalancer | None) -> tuple[str, ...]:
        if intent is None:
            return ()
        kind = "LoadBalancer" if isinstance(intent, LoadBalancer) else "TCPLoadBalancer"
        asked: list[tuple[str, KubeObject | None]] = [
            (f"{kind}/{'/'.join(intent.key)}", intent),
            (
                f"LoadBalancerClass/{intent.spec.class_name or DEFAULT_CLASS}",
                self._inventory.classes.get("", intent.spec.class_name or DEFAULT_CLASS),
            ),
        ]
        return tuple(
            name for name, one in asked if one is not None and one.annotation(ANNOTATION_PAUSED, "false") != "false"
        )

    def _providers(self) -> list[str]:
        """Return every provider that a class names, or that something is on record of."""
        names = {one.spec.provider for one in self._inventory.classes.values()}
        names |= {one.spec.load_balancer.provider for one in self._inventory.records.values()}
        for key in self._inventory.all_keys():
            one = self._inventory.intent(key)
            if one is not None:
                names |= _frontends_of(one).keys()
        return sorted(names - {"", DEFAULT_CLASS})

    def _frontends(self, provider: str) -> dict[LoadBalancerKey, Frontend]:
        found: dict[LoadBalancerKey, Frontend] = {}
        for key in self._inventory.all_keys():
            one = self._inventory.intent(key)
            if one is not None and (frontend := _frontends_of(one).get(provider)) is not None:
                found[key] = frontend
        return found


def _frontends_of(one: TCPLoadBalancer | LoadBalancer) -> dict[str, Frontend]:
    """Return what is on record of a load balancer itself, by provider."""
    main = one.status.frontend
    found = {main.provider: main} if main is not None else {}
    return found | one.status.frontends if isinstance(one, TCPLoadBalancer) else found


_UNREAD = "its provider knows nothing of it outside the hub; the condition Drifted says what the hub reads"
