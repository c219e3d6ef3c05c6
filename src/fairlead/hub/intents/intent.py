"""An intent: one kind of object that requests a load balancer, and its steps from object to status.

    watch       the objects, and which keys a change of anything else concerns
    view        everything that the decision about one key depends on, taken from the caches at one moment
    decide      view -> decision: what is desired, allocated and accepted, with conditions
    record      the accepted version, into the object's status, before anything uses it
    status      the status that users read
    finalize    deleting -> removal desired -> released by every provider -> finalizer removed -> address free

Everything between ``record`` and ``status`` is the same for every kind: trackers, plans, ledger, providers. To add a
kind, write one module with a subclass of ``Intent``, and add it to ``INTENTS`` (docs/how-to/add-an-intent.md).

An object that cannot be decoded stays as it is: nothing of it is removed, a Warning says so, and what it may hold is
allocated to no other load balancer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import structlog

from fairlead.api.backendgroup import RecordOrigin
from fairlead.api.clusterapi import ANNOTATION_DELETED_FOR_MOVE
from fairlead.api.intent import IntentObject
from fairlead.api.meta import KubeObject, ObjectKey
from fairlead.api.names import FINALIZER_CLEANUP, MANAGER_HUB
from fairlead.errors import FairleadError, NotFound
from fairlead.hub.intents.status import FirstPublication, StatusRules, StatusWriter, TargetCounts
from fairlead.hub.inventory import IntentObjects, Inventory, first_broken
from fairlead.hub.providers.registry import Placement, ProviderMigration, ProviderRegistry
from fairlead.hub.tenants.addresses import AddressAllocator
from fairlead.hub.tenants.tenants import MemberHealth, MemberQuotas
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder, EventWriter
from fairlead.kube.writes import release
from fairlead.model.change import TargetChange
from fairlead.model.condition import ConditionReason, warning_event
from fairlead.model.keys import ListenerKey, LoadBalancerKey
from fairlead.model.observed import Counted, Totals, summed
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.view import ChecksLimit, Decision, SharedPorts

log = structlog.get_logger(__name__)


class View(Protocol):
    """The view of one intent: a pure value."""

    @property
    def key(self) -> LoadBalancerKey:
        """Return the key of the load balancer."""
        ...

    @property
    def load_balancer(self) -> IntentObject:
        """Return the object that requests it."""
        ...

    @property
    def due_s(self) -> float | None:
        """Return the seconds until another view is due, None if never."""
        ...


V = TypeVar("V", bound=View)
T = TypeVar("T", bound=Decision)


class Exclusion(msgspec.Struct, frozen=True):
    """A pod, node or address that is not on the load balancer, the object that requested it, and the reason."""

    what: str
    owner: str
    why: str


class RecordResult(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a decision that may be used because they are on record.

    ``decision`` is for the status; None while a provider is being asked. ``placement`` None: nothing may be placed yet.
    ``waiting_for``: what a move to another provider waits for. ``failure``: something could not be recorded; raised
    once the rest is placed.
    """

    decision: Decision | None
    placement: Placement | None = None
    waiting_for: str = ""
    failure: FairleadError | None = None


class Controller(msgspec.Struct, frozen=True):
    """A queue of keys, and the step for one key; it returns seconds until the key is due again, None for never."""

    name: str
    queue: KeyedQueue[Any]
    reconcile: Callable[[Any], Awaitable[float | None]]
    workers: int = 1


class SharedServices:
    """The Services of members whose requests other members serve as well, for the routes that name them.

    Several kinds may know some: each puts those of one load balancer, as soon as a namespace has been asked for
    that has one of them. A Service that several load balancers share is that of the first of them by key.
    """

    def __init__(self) -> None:
        #: Returns the backends of routes that a Service, by namespace of the member and name, is behind.
        self.backends_of: Callable[[str, str], Iterable[Counted]] = lambda _namespace, _service: ()
        #: Returns which object was never read that may share Services of the member with a namespace, empty for none.
        self.unread: Callable[[str], str] = lambda _namespace: ""
        self._readers: list[Callable[[str], None]] = []
        self._listeners: list[Callable[[str, Collection[str]], None]] = []
        self._by_source: dict[LoadBalancerKey, Mapping[tuple[str, str], SharedPorts]] = {}
        self._by_namespace: dict[str, Mapping[str, SharedPorts]] = {}

    def on_ask(self, read: Callable[[str], None]) -> None:
        """Call ``read`` with each namespace on its first request; ``read`` then calls ``put``."""
        self._readers.append(read)

    def on_change(self, changed: Callable[[str, Collection[str]], None]) -> None:
        """Call ``changed`` with a namespace and its Services whose sharing changed or ended."""
        self._listeners.append(changed)

    def of(self, namespace: str) -> Mapping[str, SharedPorts]:
        """Return the shared Services of the member with this namespace: the same object while nothing changes."""
        if namespace not in self._by_namespace:
            self._by_namespace[namespace] = {}
            for read in self._readers:
                read(namespace)
            # The Services of another member may have been published before.
            places = {place for places in self._by_source.values() for place in places if place[0] == namespace}
            self._by_namespace[namespace] = {
                name: self._by_source[source][namespace, name]
                for _, name in places
                if (source := self._source_of((namespace, name))) is not None
            }
        return self._by_namespace[namespace]

    def is_asked(self, namespaces: Iterable[str]) -> bool:
        """Return whether one of these has been asked for."""
        return not self._by_namespace.keys().isdisjoint(namespaces)

    def backends(self, source: LoadBalancerKey) -> set[Counted]:
        """Return the backends of routes whose requests ``source`` shares among members."""
        places = [place for place in self._by_source.get(source, {}) if self._source_of(place) == source]
        return {backend for place in places for backend in self.backends_of(*place)}

    def _source_of(self, place: tuple[str, str]) -> LoadBalancerKey | None:
        return min((key for key, places in self._by_source.items() if place in places), default=None)

    def put(self, source: LoadBalancerKey, services: Mapping[tuple[str, str], SharedPorts]) -> None:
        """Replace the Services, by namespace and name, that ``source`` shares."""
        before = self._by_source.get(source, {})
        # Unchanged ones stay the same objects, so that no load balancer compares their targets.
        kept = {place: _same_ports(before.get(place, {}), ports) for place, ports in services.items()}
        if kept:
            self._by_source[source] = kept
        else:
            self._by_source.pop(source, None)
        changed: dict[str, list[str]] = {}
        for place in {*before, *kept}:
            if before.get(place) is not kept.get(place) and place[0] in self._by_namespace:
                changed.setdefault(place[0], []).append(place[1])
        for namespace, names in changed.items():
            known = dict(self._by_namespace[namespace])
            for name in names:
                if (first := self._source_of((namespace, name))) is not None:
                    known[name] = self._by_source[first][namespace, name]
                else:
                    known.pop(name, None)
            self._by_namespace[namespace] = known
            for listener in self._listeners:
                listener(namespace, names)


def _same_ports(before: SharedPorts, after: SharedPorts) -> SharedPorts:
    ports = {port: before[port] if before.get(port) == shared else shared for port, shared in after.items()}
    same = ports.keys() == before.keys() and all(ports[port] is before[port] for port in ports)
    return before if same else ports


async def _read_nothing() -> None:
    """Read no proxies: this process has none."""


class WatchedCounts:
    """What proxies have counted of some load balancers since these are watched; of others nothing is read.

    ``ask`` has the proxies read for some seconds, which then calls ``add`` with what each reading adds. ``active``
    returns how many connections were open at the last reading, and ``problem`` which proxy it lacks, empty for none.
    """

    def __init__(self) -> None:
        self.ask: Callable[[], None] = lambda: None
        self.active: Callable[[Counted], int] = lambda _counted: 0
        self.problem: Callable[[], str] = lambda: "this hub reads no figures of proxies"
        #: Has the proxies read once, now.
        self.read: Callable[[], Awaitable[None]] = _read_nothing
        #: How many readings there were.
        self.readings = 0
        self._watched: dict[Hashable, frozenset[Counted]] = {}
        self._sums: dict[Counted, Totals] = {}
        #: The next reading may include counts from long before the watch began.
        self._new: set[Counted] = set()

    def of(self, key: Hashable, counted: Iterable[Counted]) -> Totals | None:
        """Return the sum of ``counted`` since ``key`` began to watch; None before the first reading."""
        apart = self.apart(key, counted)
        return summed(apart.values()) if apart is not None else None

    def apart(self, key: Hashable, counted: Iterable[Counted]) -> Mapping[Counted, Totals] | None:
        """Return all of ``counted`` since ``key`` began to watch; None before the first reading."""
        self.ask()
        before, wanted = self._watched.get(key, frozenset()), frozenset(counted)
        self._watched[key] = wanted
        self._drop(before - wanted)
        for subject in wanted - self._sums.keys():
            self._sums[subject] = Totals()
            self._new.add(subject)
        return {subject: self._sums[subject] for subject in wanted} if wanted.isdisjoint(self._new) else None

    def with_targets(self) -> set[LoadBalancerKey]:
        """Return the load balancers whose targets are watched one by one."""
        return {subject.load_balancer for subject in self._sums if subject.target is not None}

    def add(self, added: Mapping[Counted, Totals]) -> None:
        """Add what one reading of all proxies has counted."""
        for subject in (self._sums.keys() - self._new) & added.keys():
            self._sums[subject] = summed((self._sums[subject], added[subject]))
        self._new.clear()
        self.readings += 1

    def drop_times(self, key: Hashable) -> None:
        """Reset the request times of everything that ``key`` watches."""
        for subject in self._watched.get(key, ()):
            self._sums[subject] = msgspec.structs.replace(self._sums[subject], p50_ms=None, p99_ms=None)

    def forget(self, key: Hashable) -> None:
        """Stop watching for ``key``."""
        self._drop(self._watched.pop(key, frozenset()))

    def _drop(self, subjects: frozenset[Counted]) -> None:
        """Drop the counts of those ``subjects`` that are no longer watched."""
        for subject in subjects.difference(*self._watched.values()) if subjects else ():
            self._sums.pop(subject, None)
            self._new.discard(subject)


class CheckBudget:
    """The health checks that each member requests, and the factor by which excessive checks are slowed down."""

    def __init__(self) -> None:
        self._asked: dict[str, dict[LoadBalancerKey, float]] = {}
        self._slowdown: dict[str, int] = {}

    def limit_of(self, namespace: str) -> ChecksLimit:
        """Return the limit for all load balancers of the member with this namespace."""
        slowdown = self._slowdown.get(namespace, 1)
        return ChecksLimit(slowdown, self._total(namespace)) if slowdown > 1 else ChecksLimit()

    def note(self, key: LoadBalancerKey, per_s: float, *, limit: int) -> bool:
        """Note a load balancer's checks and its member's limit, 0 for none; return whether the result changed.

        The factor is a power of two, and falls late: each change is one of all clusters of the member.
        """
        namespace = key.namespace
        if not limit:
            self._asked.pop(namespace, None)
            return self._slowdown.pop(namespace, 1) > 1
        asked = self._asked.setdefault(namespace, {})
        asked[key] = per_s
        if not per_s:
            del asked[key]
        before = slowdown = self._slowdown.get(namespace, 1)
        ratio = self._total(namespace) / limit
        while ratio > slowdown:
            slowdown *= 2
        while slowdown > 1 and ratio <= 0.4 * slowdown:
            slowdown //= 2
        self._slowdown[namespace] = slowdown
        return slowdown != before

    def _total(self, namespace: str) -> float:
        return sum(self._asked.get(namespace, {}).values())


class IntentContext(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of intents. ``leading``: this replica may write at this moment.

    ``read_only``: no provider is asked and nothing is allocated, as in a preview.
    """

    cluster: Cluster
    inventory: Inventory
    providers: ProviderRegistry
    migration: ProviderMigration
    allocator: AddressAllocator
    member_health: MemberHealth
    quotas: MemberQuotas
    events: EventRecorder
    clock: Clock
    leading: Callable[[], bool]
    status_queue: KeyedQueue[LoadBalancerKey]
    publication: FirstPublication
    loopback_targets: bool = False
    #: The port quota of Tenants without one; 0: no limit.
    tenant_ports: int = 0
    read_only: bool = False
    target_counts: TargetCounts = msgspec.field(default_factory=TargetCounts)
    check_budget: CheckBudget = msgspec.field(default_factory=CheckBudget)
    shared: SharedServices = msgspec.field(default_factory=SharedServices)
    watched: WatchedCounts = msgspec.field(default_factory=WatchedCounts)

    def may_write(self, key: LoadBalancerKey) -> bool:
        """Return whether this replica leads, and its hub decides about ``key``."""
        return self.leading() and self.inventory.decides(key)


class Intent(Generic[V, T]):
    """One kind of intent. Each kind has its own ``view``, ``decide`` and ``record``; the others have a default."""

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
            may_write=context.may_write,
            queue=context.status_queue,
            publication=context.publication,
            counts=context.target_counts,
            gated_pods=context.inventory.gated_pods,
        )

    def view(self, key: LoadBalancerKey) -> V | None:
        """Return the view of ``key``; None when the load balancer is to be removed."""
        raise NotImplementedError

    def decide(self, view: V) -> T:
        """Return the decision about ``view``: validated, allocated and translated, each once.

        The decision depends on the view, and on allocations of other load balancers.
        """
        raise NotImplementedError

    async def record(self, view: V, decision: T) -> RecordResult:
        """Record what is accepted, as the leader; return what may be placed."""
        raise NotImplementedError

    def watch(self) -> None:
        """Subscribe to objects other than those of this kind."""

    def placement_from_record(self, view: V, decision: T) -> RecordResult:
        """Return what a replica that does not lead may place: what the leader has recorded."""
        del view
        return RecordResult(decision=decision)

    def restore(self) -> None:
        """Restore the recorded state before any allocation: at the start, and when a term begins."""

    def lead(self) -> None:
        """Begin to write as the leader."""

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop the state of a load balancer that is to be removed."""
        self.status.forget(key)

    def exclusions(self, view: V, decision: T) -> tuple[Exclusion, ...]:
        """Return the backends that users might expect on the load balancer and that are excluded."""
        del view, decision
        return ()

    def target_ref(self, change: TargetChange) -> RecordOrigin | None:
        """Return the object behind a target that is recorded for the first time; None when unknown."""
        del change

    def controllers(self) -> Sequence[Controller]:
        """Return the other controllers of this kind."""
        return ()

    def provider_names(self) -> frozenset[str]:
        """Return the providers that objects other than LoadBalancerClasses name."""
        return frozenset()

    async def wait_synced(self, timeout_s: float) -> None:
        """Return once the caches that the inventory does not have are synced."""

    async def wait_read(self, timeout_s: float) -> bool:
        """Return once everything that the first pass requested has been read, or after a time; whether there was any.

        The first pass is then repeated for this kind, before anything is published.
        """
        del timeout_s
        return False

    def unread(self, view: V) -> str:
        """Return which references of ``view`` are unresolved only because this process could not read them."""
        del view
        return ""

    def tasks(self) -> Sequence[Coroutine[None, None, None]]:
        """Return the tasks that run from the start until cancelled."""
        return ()


MakeIntent = Callable[[IntentContext], Intent[Any, Any]]


class Intents(Mapping[str, Intent[Any, Any]]):
    """The intents of one hub by kind; their objects are registered in its inventory."""

    def __init__(self, context: IntentContext, kinds: Iterable[MakeIntent]) -> None:
        intents = [create(context) for create in kinds]
        self._intents = {intent.objects.resource.kind: intent for intent in intents}
        self._unknown: set[str] = set()

    def __getitem__(self, kind: str) -> Intent[Any, Any]:
        return self._intents[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._intents)

    def __len__(self) -> int:
        return len(self._intents)

    def of(self, key: LoadBalancerKey) -> Intent[Any, Any] | None:
        """Return the intent of a key; None for a kind that this hub does not serve, which is logged once."""
        intent = self.get(key.kind)
        if intent is None and key.kind not in self._unknown:
            self._unknown.add(key.kind)
            log.warning("load balancer of a kind that this hub does not serve; kept unchanged", load_balancer=str(key))
        return intent

    def target_ref(self, change: TargetChange) -> RecordOrigin | None:
        """Return the object behind a target that is recorded for the first time; None when unknown."""
        return self[change.load_balancer.kind].target_ref(change)


#: The source of their Events.
_UNREADABLE = "unreadable"


class UnreadableWarnings:
    """Emits a Warning when the watch of one kind shows an object that cannot be decoded, and resolves it later.

    Such an object gets no status, also while it is being deleted.
    """

    def __init__(
        self, *, objects: IntentObjects[Any], cluster: Cluster, events: EventRecorder, leading: Callable[[], bool]
    ) -> None:
        self._objects = objects
        self._cluster = cluster
        self._events = EventWriter(recorder=events, resource=objects.resource)
        self._leading = leading
        #: The objects that were shown since their last Warning.
        self._shown: set[ObjectKey] = set()
        objects.cache.broken.on_change(self._shown.add)

    async def write(self, key: LoadBalancerKey) -> None:
        """Emit a Warning when the object of ``key`` was shown and cannot be decoded."""
        place = ObjectKey(key.namespace, key.name)
        if place not in self._shown or not self._leading():
            return
        self._shown.discard(place)
        # The name of an object that is too large is unknown, so no Event can refer to it.
        why = self._objects.cache.broken.get(place, "") if place.name else ""
        if not why:
            self._end(place)
            return
        resource = self._objects.resource
        try:
            bare = await self._cluster.get(msgspec.structs.replace(resource, type=KubeObject), *place)
        except NotFound:
            return
        except FairleadError:
            self._shown.add(place)
            raise
        events = [f"the object cannot be read, so nothing of it is changed or removed: {why}; correct it"]
        if bare.deleting:
            events.append("the deletion waits: the object cannot be read; correct it")
        self._events.emit_new(_UNREADABLE, bare, [warning_event(ConditionReason.INVALID, text) for text in events])

    def _end(self, place: ObjectKey) -> None:
        """Resolve the Warnings of an object that can be read again; one that is gone has none."""
        readable = self._objects.cache.get(*place)
        if readable is not None:
            self._events.emit_new(_UNREADABLE, readable, ())
        self._events.forget(place)


class RemainsHolder:
    """Holds what unread load balancers of one kind have, so that no other load balancer gets it.

    ``listeners`` returns the ports of a spec.
    """

    def __init__(
        self,
        objects: IntentObjects[Any],
        allocator: AddressAllocator,
        listeners: Callable[[Any], Iterable[ListenerKey]],
    ) -> None:
        self._objects = objects
        self._allocator = allocator
        self._listeners = listeners
        objects.cache.broken.on_change(self._changed)

    def hold(self) -> None:
        """Hold the known allocations; while one is unknown, no address and no port is assigned."""
        for place, remains in self._objects.cache.remains().items():
            key = LoadBalancerKey(self._objects.resource.kind, *place)
            if remains.obj is None or not remains.has("status.allocation"):
                self._allocator.block(key, first_broken(key.kind, self._objects.cache, [place]))
                continue
            status = remains.obj.status
            accepted = status.accepted if remains.has("status.accepted") else None
            spec = accepted or (remains.obj.spec if remains.has("spec") else None)
            listeners = self._listeners(spec) if spec is not None else ()
            self._allocator.hold(key, status.allocation, listeners, alone=spec is None)

    def _changed(self, place: ObjectKey) -> None:
        self._allocator.unblock(LoadBalancerKey(self._objects.resource.kind, *place))
        self.hold()


class Finalization:
    """Removes load balancers whose object is deleted, or no longer served by this hub.

    An object with our finalizer that no tracker knows was deleted while the hub was down; its provider deletes it all
    the same. An object that clusterctl moved to another management cluster is kept: the hub of that cluster serves it.
    """

    def __init__(self, context: IntentContext) -> None:
        self._context = context
        self._inventory = context.inventory
        self._providers = context.providers
        self._requested: set[LoadBalancerKey] = set()
        self._moved: set[LoadBalancerKey] = set()
        #: Objects that exist and have never been read.
        self._unread: set[LoadBalancerKey] = set()
        #: The UID of the object that each name had when it was last served.
        self._uids: dict[LoadBalancerKey, str] = {}
        for objects in context.inventory.intents.values():
            objects.cache.on_change(self._note_moves(objects))

    async def finalize(self, key: LoadBalancerKey) -> bool:
        """Take the next step to remove ``key``; return whether its object waits for a provider."""
        obj = self._inventory.intent(key)
        if obj is None and self._inventory.is_unreadable(key):
            self._unread.add(key)
            self._providers.keep_unread(key)
            return False
        if key in self._moved:
            return False
        if obj is None:
            # The object is gone: our finalizer was removed, by us or by force.
            unread = key in self._unread and not self._inventory.exists(key)
            self._unread.discard(key)
            if not self._request_removal(key, though_unknown=unread) and not self._in_flight(key):
                self._requested.discard(key)
                self._uids.pop(key, None)
                self._context.allocator.leave(key)
            return False
        # Requested each time: records may have been read since the last request.
        self._request_removal(key, though_unknown=key not in self._requested)
        self._requested.add(key)
        silent = self._providers.silent(obj.status.recorded_providers)
        if self._in_flight(key) or not self._context.may_write(key) or silent:
            return True
        resource = self._inventory.intents[key.kind].resource
        await release(self._context.cluster, resource, obj, FINALIZER_CLEANUP, manager=MANAGER_HUB)
        return False

    def cancel(self, key: LoadBalancerKey, uid: str) -> None:
        """Forget the removal or move of ``key``: an object of this name and ``uid`` is served.

        Allocations of a former object of this name are released: the new one may request others.
        """
        if self._uids.setdefault(key, uid) != uid:
            self._uids[key] = uid
            self._context.allocator.leave(key)
        self._requested.discard(key)
        self._moved.discard(key)
        self._unread.discard(key)

    def _in_flight(self, key: LoadBalancerKey) -> bool:
        """Return whether some provider has, or may have, parts of ``key``."""
        return any(key in runner.tracker for runner in self._providers.values())

    def _note_moves(self, objects: IntentObjects[Any]) -> Callable[[IntentObject | None, IntentObject | None], None]:
        """Return a callback that notes objects that are deleted because they moved; they may be gone a moment later."""

        def changed(old: IntentObject | None, new: IntentObject | None) -> None:
            obj = new or old
            gone = new is None or new.deleting
            if obj is not None and gone and ANNOTATION_DELETED_FOR_MOVE in (obj.metadata.annotations or {}):
                self._moved.add(objects.key(obj))

        return changed

    def _request_removal(self, key: LoadBalancerKey, *, though_unknown: bool) -> bool:
        requested = False
        own = self._inventory.decides(key)
        for runner in self._providers.values():
            if (own or not runner.durable) and runner.tracker.remove(
                key, though_unknown=though_unknown and not runner.durable
            ):
                runner.worker.trigger()
                requested = True
        return requested
