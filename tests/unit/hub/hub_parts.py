"""The parts of a hub without a server: caches are filled by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.status import FirstPublication
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.migration import ProviderMigration
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.tenants.addresses import AddressAllocator
from fairlead.hub.tenants.member_health import MemberHealth
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.kube.events import EventRecorder
from fairlead.model.contract import Capabilities, Provider
from fairlead.runtime.clock import VirtualClock
from fairlead.runtime.queue import KeyedQueue
from fairlead.sync.history import History
from fairlead.translate.addresses import AddressRanges


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
    return IntentContext(
        cluster=cluster,
        inventory=inventory,
        providers=providers,
        migration=ProviderMigration(providers=providers, clock=clock),
        allocator=AddressAllocator(pool, clock=clock),
        member_health=MemberHealth(clock=clock, changed=lambda _namespace: None),
        events=EventRecorder(cluster, component="fairlead-hub"),
        clock=clock,
        leading=lambda: True,
        status_queue=KeyedQueue(clock=clock),
        publication=FirstPublication(clock),
    )
