"""The parts of a hub without a server: caches are filled by hand. And one with a GlobalService at a real API."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping

import msgspec

from fairlead.api.globalservice import GLOBAL_SERVICES, GlobalService
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.meta import JSONObject
from fairlead.hub.intents.global_service import GlobalIntent
from fairlead.hub.intents.http import HTTPIntent
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.status import FirstPublication
from fairlead.hub.intents.tcp import TCPIntent
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.registry import ProviderMigration, ProviderRegistry
from fairlead.hub.tenants.addresses import AddressAllocator
from fairlead.hub.tenants.tenants import MemberHealth, MemberQuotas
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.kube.events import EventRecorder
from fairlead.model.contract import AllocationKind, Capabilities, Provider
from fairlead.model.desired import DesiredLoadBalancer
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import VirtualClock
from fairlead.runtime.queue import KeyedQueue
from fairlead.sync.history import History
from fairlead.testing.builders import ABLE, endpoint_slice, lb_class, tcp, tenant
from fairlead.translate.addresses import AddressRanges
from fairlead.translate.view import GlobalView
from tests.scenario.installed_kinds import server_with_kinds


class Epoch:
    """The epoch of a process that is alone, and always leads."""

    def __init__(self) -> None:
        self.epoch = 1

    async def raise_above(self, above: int) -> int:
        self.epoch = max(self.epoch, above + 1)
        return self.epoch


def intent_context(
    *,
    pool: AddressRanges | None = None,
    capabilities: Mapping[str, Capabilities] | None = None,
    served: Mapping[str, Provider] | None = None,
    factories: Mapping[str, Callable[[], Provider]] | None = None,
    cluster: Cluster | None = None,
) -> IntentContext:
    """Return what intents are made of; this replica leads.

    ``capabilities`` are those of providers that are known by name only, ``served`` and ``factories`` have real ones.
    Without ``cluster`` there is no server.
    """
    clock = VirtualClock()
    cluster = cluster or Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="hub", clock=clock)
    inventory = Inventory(cluster)
    providers = ProviderRegistry(
        served=served or {},
        factories=factories or {},
        inventory=inventory,
        cluster=cluster,
        clock=clock,
        report=lambda _report: None,
        changed=lambda _key: None,
        is_leader=lambda: True,
        raise_epoch=Epoch().raise_above,
        history=History(now=clock.now),
    )
    providers.capabilities.update(capabilities or {})
    allocator = AddressAllocator(pool, clock=clock)
    return IntentContext(
        cluster=cluster,
        inventory=inventory,
        providers=providers,
        migration=ProviderMigration(providers=providers, clock=clock),
        allocator=allocator,
        quotas=MemberQuotas(inventory, allocator, lambda _tenant: None),
        member_health=MemberHealth(clock=clock, changed=lambda _namespace: None),
        events=EventRecorder(cluster, component="fairlead-hub"),
        clock=clock,
        leading=lambda: True,
        status_queue=KeyedQueue(clock=clock),
        publication=FirstPublication(clock),
    )


GLOBAL = LoadBalancerKey("GlobalService", "tenant-east", "web")
_CAPABILITIES = {"memory": msgspec.structs.replace(ABLE, allocation=AllocationKind.ADDRESS)}


class GlobalHub:
    """One process of a hub with the Service of west and east; ``read`` is what its watch would show it."""

    def __init__(self, cluster: Cluster, *, served: Mapping[str, Provider] | None = None) -> None:
        self.cluster = cluster
        pool = AddressRanges.parse("192.0.2.0/28")
        self.context = intent_context(
            pool=pool, capabilities={} if served else _CAPABILITIES, served=served, cluster=cluster
        )
        self.context.watched.problem = lambda: ""
        inventory = self.context.inventory
        inventory.classes._store.put(lb_class())
        HTTPIntent(self.context)
        parts, self.intent = TCPIntent(self.context), GlobalIntent(self.context)
        self.intent.watch()
        origin = {"kind": "Service", "namespace": "shop", "name": "web"}
        for number, name in enumerate(("west", "east"), 1):
            inventory.tenants._store.put(tenant(name))
            namespace, spec = f"tenant-{name}", {"targets": "Pod", "origin": origin}
            parts.objects.cache._store.put(tcp("shop.web", namespace=namespace, spec=spec))
            slices = endpoint_slice(name, [f"10.{number}.0.1"], namespace=namespace, load_balancer="shop.web")
            inventory.slices._store.put(slices)

    async def read(self) -> GlobalService:
        cache = self.intent.objects.cache
        obj = await self.cluster.get(GLOBAL_SERVICES, GLOBAL.namespace, GLOBAL.name)
        cache._notify(cache._store.put(obj), obj)
        return obj

    async def reconcile(self) -> GlobalService:
        await self.read()
        await self.intent.record(self.view, self.intent.decide(self.view))
        return await self.read()

    @property
    def view(self) -> GlobalView:
        view = self.intent.view(GLOBAL)
        assert view is not None
        return view

    @property
    def desired(self) -> DesiredLoadBalancer:
        desired = self.intent.decide(self.view).desired
        assert desired is not None
        return desired


@contextlib.asynccontextmanager
async def global_api(*members: JSONObject, **states: str) -> AsyncGenerator[Cluster]:
    """Run an API with a GlobalService of these members, which a hub has recorded, and whose status shows ``states``."""
    server = await server_with_kinds(admin_token="for-these-tests-only")
    await server.start()
    try:
        config = ClusterConfig(server=server.url, sign_in=bearer("for-these-tests-only"))
        async with Cluster(config, name="hub") as cluster:
            await cluster.create(NAMESPACES, {"metadata": {"name": GLOBAL.namespace}})
            await apply_global(cluster, *members)
            await GlobalHub(cluster).reconcile()
            await show_members(cluster, **states)
            yield cluster
    finally:
        await server.stop()


async def apply_global(cluster: Cluster, *members: JSONObject, **spec: object) -> None:
    """Write the GlobalService as its operator does."""
    body = {"service": "shop/web", "members": list(members), **spec}
    metadata = {"name": GLOBAL.name, "namespace": GLOBAL.namespace}
    await cluster.apply(GLOBAL_SERVICES, {"metadata": metadata, "spec": body}, manager="operator")


async def show_members(cluster: Cluster, **states: str) -> None:
    """Write the states of members into the status, as the hub does."""
    members = [{"tenant": name, "state": state, "served": state == "Serving"} for name, state in states.items()]
    patch: JSONObject = {"status": {"members": members}}
    await cluster.merge_patch(
        GLOBAL_SERVICES, GLOBAL.namespace, GLOBAL.name, patch, subresource="status", manager="fairlead-hub-status"
    )
