"""An intent: one kind of object that asks for a load balancer, and the steps that are its own.

    watch       its objects, and which keys a change of anything else concerns
    view        all that the decision about one key depends on, taken from the caches at one moment
    decide      the view -> a decision: what is desired, allocated and accepted, with conditions
    record      what is accepted, into the object's status, before anything uses it
    status      what users read
    finalize    the object goes once every provider has released the load balancer (``finalization``)

Everything between ``record`` and ``status`` is the same for every kind: trackers, plans, ledger, providers. To add a
kind: one folder with a subclass of ``Intent``, and one line in ``kinds.INTENTS`` (docs/how-to/add-an-intent.md).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from fairlead.api.backendgroup import RecordOrigin
from fairlead.api.intent import IntentObject
from fairlead.errors import FairleadError
from fairlead.hub.intents.status import StatusWriter
from fairlead.hub.intents.status_rules import StatusRules
from fairlead.hub.intents.target_counts import TargetCounts
from fairlead.hub.intents.unreadable import UnreadableWarnings
from fairlead.hub.inventory import IntentObjects, Inventory
from fairlead.hub.providers.migration import Placement, ProviderMigration
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.publication import FirstPublication
from fairlead.hub.tenants.addresses import AddressAllocator
from fairlead.hub.tenants.member_health import MemberHealth
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.model.change import TargetChange
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.view import Decision


class View(Protocol):
    """The view of one intent: a pure value."""

    @property
    def key(self) -> LoadBalancerKey:
        """Return the key of the load balancer."""
        ...

    @property
    def load_balancer(self) -> IntentObject:
        """Return the object that asks for it."""
        ...


V = TypeVar("V", bound=View)
T = TypeVar("T", bound=Decision)


class Exclusion(msgspec.Struct, frozen=True):
    """A pod, node or address that is not on the load balancer: what it is, who asked for it, and why it is not."""

    what: str
    owner: str
    why: str


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a translation that may be used, now that they are on record.

    ``placement`` None: nothing may be placed yet. ``translation`` is what the status is written from, None while a
    provider is still asked. ``waiting_for`` says what a move to another provider still waits for. ``failure``:
    something could not be recorded; it is raised once the rest is placed.
    """

    translation: Decision | None
    placement: Placement | None = None
    waiting_for: str = ""
    failure: FairleadError | None = None


class Controller(msgspec.Struct, frozen=True):
    """A queue of keys and what is done for one key; returns seconds until the key is due again, None for never."""

    name: str
    queue: KeyedQueue[Any]
    reconcile: Callable[[Any], Awaitable[float | None]]
    workers: int = 1


class IntentContext(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of intents. ``leading``: this replica may write at this moment.

    ``read_only``: nothing is asked of providers and nothing is allocated, as in a preview.
    """

    cluster: Cluster
    inventory: Inventory
    providers: ProviderRegistry
    migration: ProviderMigration
    allocator: AddressAllocator
    member_health: MemberHealth
    events: EventRecorder
    clock: Clock
    leading: Callable[[], bool]
    status_queue: KeyedQueue[LoadBalancerKey]
    publication: FirstPublication
    loopback_targets: bool = False
    #: How many ports a Tenant may have whose own spec does not say; 0: any number.
    tenant_ports: int = 0
    read_only: bool = False
    target_counts: TargetCounts = msgspec.field(default_factory=TargetCounts)


class Intent(Generic[V, T]):
    """One kind of intent. The first four methods are every kind's own; the others have a default."""

    def __init__(self, context: IntentContext, *, objects: IntentObjects[Any], rules: StatusRules[Any, T]) -> None:
        self.objects = objects
        self.unreadable = UnreadableWarnings(
            objects=objects, cluster=context.cluster, events=context.events, leading=context.leading
        )
        self.status: StatusWriter[Any, T] = StatusWriter(
            cluster=context.cluster,
            objects=objects,
            rules=rules,
            providers=context.providers,
            clock=context.clock,
            leading=context.leading,
            decides=context.inventory.decides,
            queue=context.status_queue,
            publication=context.publication,
            counts=context.target_counts,
        )

    def view(self, key: LoadBalancerKey) -> V | None:
        """Return the view of ``key``, None when it is not to exist (any more)."""
        raise NotImplementedError

    def decide(self, view: V) -> T:
        """Return what is decided about ``view``: validated, allocated and translated, each once.

        It depends on the view, and on what is allocated to others.
        """
        raise NotImplementedError

    async def record(self, view: V, translation: T) -> Recorded:
        """Record what is accepted, as the leader; returns what may be placed."""
        raise NotImplementedError

    def watch(self) -> None:
        """Subscribe to what changes next to the objects themselves."""

    def on_record(self, view: V, translation: T) -> Recorded:
        """Return what a replica that does not lead may place: what the leader has recorded."""
        del view
        return Recorded(translation=translation)

    def restore(self) -> None:
        """Take over what is on record, before anything is allocated: at the start, and when a term begins."""

    def lead(self) -> None:
        """Begin to write: this replica leads now."""

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop what is known of a load balancer that is not to exist (any more)."""
        self.status.forget(key)

    def exclusions(self, view: V, translation: T) -> tuple[Exclusion, ...]:
        """Return what users might expect on the load balancer and is not."""
        del view, translation
        return ()

    def target_ref(self, change: TargetChange) -> RecordOrigin | None:
        """Return what is behind the address of a target that is recorded for the first time; None when unknown."""
        del change

    def controllers(self) -> Sequence[Controller]:
        """Return the controllers that this kind needs next to that of its load balancers."""
        return ()

    def provider_names(self) -> frozenset[str]:
        """Return the providers that objects of its own name, next to those that LoadBalancerClasses name."""
        return frozenset()

    async def wait_synced(self, timeout_s: float) -> None:
        """Return once what the objects refer to has been read too; the caches of the inventory have been."""

    async def wait_read(self, timeout_s: float) -> bool:
        """Return once all that was asked for in the first pass has been read, or after a time; say if there was any.

        Then the first pass is repeated for this kind, before anything is published.
        """
        del timeout_s
        return False

    def unread(self, view: V) -> str:
        """Return which references of ``view`` are not resolved only because this process could not read them."""
        del view
        return ""

    def tasks(self) -> Sequence[Coroutine[None, None, None]]:
        """Return what has to run from the start, until cancelled."""
        return ()
