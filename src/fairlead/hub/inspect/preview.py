"""Inspects load balancers: a dry run of the hub over its API, plans and history of a running hub, and orphans.

In: a Cluster with the rights to read, or the caches and trackers of a running hub. Out: for each load balancer its
plan, records, observed state and exclusions. The ledger of load balancers that the hub's own proxies serve is in the
hub's memory. The plan of a dry run for them contains the changes that the hub holds, and whether it has decided about
the newest spec. Never: an allocation, or a call of a provider that changes anything; parameters of targets,
or anything else that may be a credential.

Orphans are records without a load balancer, and entries of ours without a record. The first are deleted; for the second
a record is created as deregistering, and deleted. The leading hub then deregisters the backend, so each load balancer
has one writer. Never: a change of foreign entries, or the deletion of an orphan that has an owner since the preview.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from fairlead.api.backendgroup import BACKEND_RECORDS, BackendRecord
from fairlead.api.globalservice import GlobalMemberStatus, global_status
from fairlead.api.httploadbalancer import (
    HTTP_LOAD_BALANCERS,
    HTTPLoadBalancer,
    MaintenanceStatus,
    RefusedPartStatus,
    http_status,
)
from fairlead.api.intent import IntentObject, Provisioned
from fairlead.api.meta import JSONObject, WireCondition
from fairlead.api.names import (
    ANNOTATION_PAUSED,
    DEFAULT_CLASS,
    FINALIZER_DEREGISTER,
    KERNEL_PROVIDER,
    LABEL_LOAD_BALANCER,
    LABEL_MANAGED_BY,
    MACHINE_PROVIDERS,
    MANAGED_BY,
    label_value,
)
from fairlead.api.proxymachine import PROXY_GROUPS, PROXY_MACHINES, ProxyGroup, ProxyMachine
from fairlead.api.tcploadbalancer import DrainingTargets, TCPLoadBalancer
from fairlead.api.times import wire_time
from fairlead.errors import AlreadyExists, Conflict, FairleadError, Forbidden, NotFound, Retry
from fairlead.hub.intents import INTENTS
from fairlead.hub.intents.intent import Exclusion, IntentContext, Intents
from fairlead.hub.intents.status import FirstPublication
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.registry import ProviderMigration, ProviderRegistry, installed_providers
from fairlead.hub.providers.runner import DurableRunner, ProviderRunner
from fairlead.hub.tenants.addresses import AddressAllocator
from fairlead.hub.tenants.tenants import MemberHealth, MemberQuotas
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.ledger.frontends import held_changes
from fairlead.ledger.records import listener_of, load_balancer_of, record_name, record_spec, target_of
from fairlead.model.change import Action, FrontendChange, HistoryEntry, Reason, TargetChange
from fairlead.model.condition import ConditionType
from fairlead.model.contract import EVERY_FEATURE, AllocationKind, Restorable
from fairlead.model.desired import Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Observed
from fairlead.providers.kernel import CAPABILITIES
from fairlead.runtime.clock import Clock, SystemClock
from fairlead.runtime.queue import KeyedQueue
from fairlead.sync.execute import in_time
from fairlead.sync.history import History
from fairlead.sync.plan import LoadBalancerState, Plan, guard_plan, plan_load_balancer
from fairlead.sync.readback import Drift, drift_of
from fairlead.translate.placement import Choice, Placed, final_choices, joined_machine, placeable, placement_on_hub
from fairlead.translate.shift import in_words
from fairlead.translate.view import Decision, is_leaving

_SYNC_S = 20.0
#: The time limit for one read at a provider, and the duration after which a failed provider is not asked again.
LOOK_LIMIT_S = 20.0
SLOW_S = 5.0
#: Limit for reading the certificates that load balancers name, in seconds; those not read by then are unknown.
READ_LIMIT_S = 3.0
#: The hub evaluates the rejections of its proxies; a preview only builds the same load balancers.
_SERVED = msgspec.structs.replace(EVERY_FEATURE, allocation=AllocationKind.ADDRESS, serves_whole_state=True)


class Previewed(msgspec.Struct, frozen=True, kw_only=True):
    """One load balancer. ``served``: by the hub's own proxies, whose ledger is in the hub's memory.

    ``paused`` names the objects whose annotation holds everything. ``conditions`` are as the hub wrote them last.
    ``held_frontend`` is the held change of the load balancer itself. ``unread`` is the reason why its state could not
    be read back. ``more_held`` counts held changes that the plan does not list. ``unread_references`` are the
    certificates that this process could not read; ResolvedRefs is then as the hub wrote it.
    """

    key: LoadBalancerKey
    provider: str
    class_name: str = ""
    #: Its object is gone; only records are left.
    gone: bool = False
    served: bool = False
    paused: tuple[str, ...] = ()
    conditions: tuple[WireCondition, ...] = ()
    translation: Decision | None = None
    plan: Plan
    held_frontend: FrontendChange | None = None
    more_held: int = 0
    #: The parts that the proxies refused, as the hub wrote them last.
    refused: tuple[RefusedPartStatus, ...] = ()
    #: The hosts in maintenance, as the hub wrote them last.
    maintenance: tuple[MaintenanceStatus, ...] = ()
    #: Of a GlobalService, as the hub wrote them last: the progress of a weight shift, and the members.
    shift: str = ""
    members: tuple[GlobalMemberStatus, ...] = ()
    #: Names of targets whose health checks fail at the hub's own proxies; the first ``model.health.NAMED`` of them.
    unhealthy: frozenset[str] = frozenset()
    #: The targets that drain for a limited time, as the hub wrote it.
    draining: DrainingTargets | None = None
    #: The provider's own identity of it.
    info: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    side: LoadBalancerState = msgspec.field(default_factory=LoadBalancerState)
    records: tuple[BackendRecord, ...] = ()
    observed: Observed | None = None
    drift: Drift = Drift()
    unread: str = ""
    unread_references: str = ""
    exclusions: tuple[Exclusion, ...] = ()
    #: The proxy machines that it has, or moves to; and the future ones if they differ, with a reason.
    machines: tuple[str, ...] = ()
    next_machines: Choice | None = None


async def preview(cluster: Cluster, only: LoadBalancerKey | None = None) -> list[Previewed]:
    """Preview every load balancer, or one; ordered by key."""
    parts = _Parts(cluster)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(cache.run()) for cache in parts.inventory.caches.values()]
        tasks += [group.create_task(task) for intent in parts.intents.values() for task in intent.tasks()]
        try:
            for cache in parts.inventory.caches.values():
                await cache.wait_synced(_SYNC_S)
            for intent in parts.intents.values():
                await intent.wait_synced(_SYNC_S)
            moves = moved_machines(parts.inventory, *await _machines_and_groups(cluster))
            return await _Preview(parts, moves).all(only)
        finally:
            for task in tasks:
                task.cancel()


async def _machines_and_groups(cluster: Cluster) -> tuple[list[ProxyMachine], list[ProxyGroup]]:
    """Return the input of the placement; empty for an older hub, or without the right to read it."""
    try:
        return await cluster.list(PROXY_MACHINES), await cluster.list(PROXY_GROUPS)
    except (NotFound, Forbidden):
        return [], []


def moved_machines(
    inventory: Inventory, machines: Iterable[ProxyMachine], groups: Sequence[ProxyGroup]
) -> dict[LoadBalancerKey, Choice]:
    """Return the final machines of each load balancer whose machines will change.

    Whether a machine is silent or full is unknown here: only the hub hears it.
    """
    members = [machine for machine in machines if not machine.deleting]
    otherwise = placement_on_hub(members)
    records = {
        key: obj.status.placement or otherwise
        for key, obj in inventory.objects()
        # A hub with only its own machine places everything there, without a record.
        if not all(machine.is_of_hub for machine in members)
        and obj.status.allocation.address
        and _is_served(inventory, obj)
    }
    objects = dict(inventory.objects())
    some = [placeable(key, objects[key], Placed(record)) for key, record in records.items()]
    targets = {key: record.target if record is not None else () for key, record in records.items()}
    choices = final_choices(some, [joined_machine(machine) for machine in members], groups)
    return {key: choice for key, choice in choices.items() if set(choice.machines) != set(targets[key])}


def _is_served(inventory: Inventory, obj: IntentObject) -> bool:
    load_balancer_class = inventory.load_balancer_class(obj.class_name)
    return load_balancer_class is not None and load_balancer_class.spec.provider in MACHINE_PROVIDERS


class _Parts:
    """The parts of a hub that make decisions, without those that write."""

    def __init__(self, cluster: Cluster) -> None:
        self.clock: Clock = SystemClock()
        self.inventory = Inventory(cluster)
        self.providers = ProviderRegistry(
            served={},
            factories=installed_providers(
                cluster=cluster,
                clock=self.clock,
                registry=CollectorRegistry(),
                without=frozenset({DEFAULT_CLASS}),
                dry_run=True,
            ),
            inventory=self.inventory,
            cluster=cluster,
            clock=self.clock,
            report=lambda _report: None,
            changed=lambda _key: None,
            is_leader=lambda: False,
            raise_epoch=_no_term,
            history=History(now=self.clock.now),
        )
        allocator = AddressAllocator(None, clock=self.clock, given=self.inventory.in_use)
        self.intents = Intents(
            IntentContext(
                cluster=cluster,
                inventory=self.inventory,
                providers=self.providers,
                migration=ProviderMigration(providers=self.providers, clock=self.clock),
                allocator=allocator,
                quotas=MemberQuotas(self.inventory, allocator, lambda _tenant: None),
                member_health=MemberHealth(clock=self.clock, changed=lambda _namespace: None),
                events=EventRecorder(cluster, component="fairlead-preview"),
                clock=self.clock,
                leading=lambda: False,
                status_queue=KeyedQueue(clock=self.clock),
                publication=FirstPublication(self.clock),
                loopback_targets=True,
                read_only=True,
            ),
            INTENTS,
        )


async def _no_term(above: int) -> int:
    raise Conflict(f"A preview does not lead, so no epoch above {above} is its own.")


class _Preview:
    """Compares the desired state with the records, once everything has been read."""

    def __init__(self, parts: _Parts, moves: Mapping[LoadBalancerKey, Choice] = MappingProxyType({})) -> None:
        self._moves = moves
        self._inventory = parts.inventory
        self._intents = parts.intents
        self._providers = parts.providers
        self._clock = parts.clock
        #: Failure domains that have not answered in time, by provider.
        self._silent: dict[tuple[str, str], Retry] = {}
        self._views: dict[LoadBalancerKey, Any] = {}
        for name in self._provider_names():
            self._providers.open(name)
        for name, runner in self._providers.durable.items():
            runner.begin(self._inventory.records.values(), self._frontends(name))
        self._providers.capabilities.setdefault(DEFAULT_CLASS, _SERVED)
        self._providers.capabilities.setdefault(KERNEL_PROVIDER, CAPABILITIES)

    async def all(self, only: LoadBalancerKey | None) -> list[Previewed]:
        on_record = (load_balancer_of(record) for record in self._inventory.records.values())
        keys = {*self._inventory.all_keys(), *self._providers.restored(), *on_record}
        keys = keys if only is None else keys & {only}
        try:
            await self._read_certificates(keys)
            return [await self._previewed(key) for key in sorted(keys)]
        finally:
            await self._providers.close()

    async def _read_certificates(self, keys: Iterable[LoadBalancerKey]) -> None:
        """Read the certificates that HTTP load balancers name; gathering a view requests them."""
        intent = self._intents.get(HTTP_LOAD_BALANCERS.kind)
        if intent is None:
            return
        views = {key: intent.view(key) for key in keys if key.kind == HTTP_LOAD_BALANCERS.kind}
        if not await intent.wait_read(READ_LIMIT_S):
            self._views = views

    async def _previewed(self, key: LoadBalancerKey) -> Previewed:
        obj = self._inventory.intent(key)
        translation, exclusions, unread_references = self._translated(key)
        provider = translation.provider if translation is not None else ""
        if provider not in self._providers.durable:
            holders = (name for name, runner in self._providers.durable.items() if key in runner.tracker)
            provider = next(holders, provider)
        previewed = Previewed(
            key=key,
            provider=provider,
            class_name=(obj.class_name or DEFAULT_CLASS) if obj is not None else "",
            gone=obj is None,
            served=provider in MACHINE_PROVIDERS,
            paused=paused_by(self._inventory, key, obj),
            conditions=tuple(obj.status.conditions or ()) if obj is not None else (),
            unhealthy=frozenset((obj.status.unhealthy_targets or ()) if obj is not None else ()),
            draining=obj.status.draining if isinstance(obj, (TCPLoadBalancer, HTTPLoadBalancer)) else None,
            refused=http_status(obj).refused,
            maintenance=http_status(obj).maintenance,
            shift=in_words(global_status(obj).shift),
            members=tuple(global_status(obj).members or ()),
            translation=translation,
            plan=Plan(key),
            records=tuple(self._inventory.records.by_index("lb", key)),
            exclusions=exclusions,
            unread_references=unread_references,
            machines=obj.status.placement.target if obj is not None and obj.status.placement is not None else (),
            next_machines=self._moves.get(key),
        )
        runner = self._providers.durable.get(provider)
        if previewed.served and obj is not None:
            return served_plan(previewed, obj)
        if runner is None:
            named = provider or next((record.spec.load_balancer.provider for record in previewed.records), "")
            if not named:
                return previewed
            unread = f"provider {named!r} is not installed where this command runs"
            return msgspec.structs.replace(previewed, provider=named, unread=unread)
        if unread_references:
            # Without them, the desired state is unknown and cannot be compared.
            return msgspec.structs.replace(previewed, unread=unread_references)
        if translation is not None and translation.desired is not None:
            runner.tracker.put(translation.desired)
        elif obj is None or is_leaving(obj):
            runner.tracker.remove(key)
        side = runner.tracker.state(key)
        return previewed if side is None else await self._compared(previewed, runner, side)

    async def _compared(self, previewed: Previewed, runner: DurableRunner, side: LoadBalancerState) -> Previewed:
        key = previewed.key
        previewed = planned(previewed, side, now_s=self._clock.monotonic())
        previewed = msgspec.structs.replace(previewed, info=runner.ledger.frontends.info(key))
        try:
            observed = await self._observe(key, runner)
        except FairleadError as error:
            return msgspec.structs.replace(previewed, unread=error.sentence)
        if observed is None and (side.recorded_spec is None or side.ensure_again):
            # At most it was requested: no answer has confirmed yet that it exists.
            return previewed
        if observed is None and not isinstance(runner.provider, Restorable):
            return msgspec.structs.replace(previewed, unread=_UNREAD)
        if observed is None:
            return msgspec.structs.replace(previewed, drift=drift_of(side, None))
        if observed.targets is None and observed.message:
            return msgspec.structs.replace(previewed, unread=observed.message)
        return msgspec.structs.replace(previewed, observed=observed, drift=drift_of(side, observed))

    async def _observe(self, key: LoadBalancerKey, runner: DurableRunner) -> Observed | None:
        """Read back one load balancer; a failure domain that timed out is not asked again."""
        domain = (runner.name, runner.worker.failure_domain(key))
        if (silent := self._silent.get(domain)) is not None:
            raise silent
        started_s = self._clock.monotonic()
        try:
            return await in_time(runner.provider.observe(key), clock=self._clock, limit_s=LOOK_LIMIT_S, reads=True)
        except Retry as error:
            if self._clock.monotonic() - started_s < min(SLOW_S, LOOK_LIMIT_S):
                raise
            sentence = f"the provider could not be read: {error.sentence}; check the provider, then try again"
            self._silent[domain] = Retry(sentence, detail=error.detail, reason=error.reason)
            raise self._silent[domain] from error

    def _translated(self, key: LoadBalancerKey) -> tuple[Decision | None, tuple[Exclusion, ...], str]:
        """Return the decision about a load balancer, its exclusions, and the unreadable certificates."""
        intent = self._intents.get(key.kind)
        view = (self._views.get(key) or intent.view(key)) if intent is not None else None
        if intent is None or view is None:
            return None, (), ""
        translation = intent.decide(view)
        exclusions, unread = intent.exclusions(view, translation), intent.unread(view)
        if unread:
            known = (
                condition for condition in translation.conditions if condition.type is not ConditionType.RESOLVED_REFS
            )
            translation = msgspec.structs.replace(translation, conditions=tuple(known))
        return translation, exclusions, unread

    def _provider_names(self) -> list[str]:
        """Return every provider that a class or a record names, ordered."""
        names = {load_balancer_class.spec.provider for load_balancer_class in self._inventory.classes.values()}
        names |= {record.spec.load_balancer.provider for record in self._inventory.records.values()}
        names = names.union(*(intent.provider_names() for intent in self._intents.values()))
        for _, obj in self._inventory.objects():
            names |= obj.status.recorded_providers
        return sorted(names - {"", *MACHINE_PROVIDERS})

    def _frontends(self, provider: str) -> dict[LoadBalancerKey, Provisioned]:
        """Return the records of the load balancers of ``provider``."""
        frontends = ((key, obj.status.frontend_of(provider)) for key, obj in self._inventory.objects())
        return {key: frontend for key, frontend in frontends if frontend is not None}


def paused_by(inventory: Inventory, key: LoadBalancerKey, obj: IntentObject | None) -> tuple[str, ...]:
    """Return the objects, as kind/name, whose annotation pauses the load balancer."""
    if obj is None:
        return ()
    class_name = obj.class_name or DEFAULT_CLASS
    load_balancer_class = inventory.classes.get("", class_name)
    named = ((f"{key.kind}/{key.namespace}/{key.name}", obj), (f"LoadBalancerClass/{class_name}", load_balancer_class))
    return tuple(
        name for name, item in named if item is not None and item.annotation(ANNOTATION_PAUSED, "false") != "false"
    )


def planned(previewed: Previewed, side: LoadBalancerState, *, now_s: float) -> Previewed:
    """Return ``previewed`` with the plan for the present difference, and the held changes."""
    whole = plan_load_balancer(previewed.key, side, now_s=now_s)
    plan = guard_plan(whole, side, now_s=now_s)
    held_frontend = whole.frontend if plan.frontend is None else None
    return msgspec.structs.replace(previewed, plan=plan, side=side, held_frontend=held_frontend)


def served_plan(previewed: Previewed, obj: IntentObject) -> Previewed:
    """Return the plan of a load balancer of the hub's own proxies, from the status that the hub wrote."""
    key, status = previewed.key, obj.status
    held = held_changes(key, status.held or ())
    desired = previewed.translation.desired if previewed.translation is not None else None
    looked = status.observed_generation >= obj.metadata.generation
    reason = Reason.CHANGED if status.observed_generation > 0 else Reason.NEW
    change = FrontendChange(key, desired.spec, Action.ENSURE, reason) if desired is not None and not looked else None
    more = max(0, status.held_total - len(held))
    return msgspec.structs.replace(previewed, plan=Plan(key, frontend=change, held=held), more_held=more)


_UNREAD = "only the running hub knows the state at this provider; see the condition Drifted"


def running_plans(
    key: LoadBalancerKey, *, inventory: Inventory, providers: ProviderRegistry, now_s: float
) -> list[Previewed]:
    """Return the plan of each provider that has ``key``; a load balancer that moves has two.

    A replica that does not lead does not know the ledgers of durable providers: it returns the changes that the leader
    holds.
    """
    obj = inventory.intent(key)
    base = Previewed(key=key, provider="", gone=obj is None, paused=paused_by(inventory, key, obj), plan=Plan(key))
    plans = [
        planned(msgspec.structs.replace(base, provider=name), side, now_s=now_s)
        for name, runner in providers.items()
        if runner.loaded and (side := runner.tracker.state(key)) is not None
    ]
    if not plans and obj is not None:
        load_balancer_class = inventory.load_balancer_class(obj.class_name)
        provider = load_balancer_class.spec.provider if load_balancer_class is not None else ""
        return [served_plan(msgspec.structs.replace(base, provider=provider), obj)]
    return plans


def pending_keys(providers: ProviderRegistry) -> Iterator[LoadBalancerKey]:
    """Yield the load balancers with unfinished changes."""
    for runner in providers.values():
        if runner.loaded:
            yield from runner.worker.pending_keys()


class ProviderState(msgspec.Struct, frozen=True, rename="camel"):
    """The state of one load balancer at one provider: its backends, and whether its worker still has to run."""

    provider: str
    desired: bool
    pending: bool
    backends: int


class KeyState(msgspec.Struct, frozen=True, rename="camel"):
    """The state of one load balancer. ``exists``: an object requests it, and this hub serves it."""

    kind: str
    namespace: str
    name: str
    exists: bool
    providers: list[ProviderState]
    history: list[HistoryEntry]


def debug_key(
    key: LoadBalancerKey, *, inventory: Inventory, providers: Mapping[str, ProviderRunner], history: History
) -> KeyState | None:
    """Return the state of ``key`` with its history, oldest entry first; None when it is unknown."""
    states: list[ProviderState] = []
    for name, runner in providers.items():
        if (state := runner.tracker.state(key)) is not None:
            backends = sum(len(targets) for targets in state.recorded.values())
            pending = runner.tracker.is_dirty(key)
            states.append(ProviderState(name, state.desired is not None, pending, backends))
    exists, entries = inventory.intent(key) is not None, history.of(key)
    return KeyState(*key, exists, states, entries) if exists or states or entries else None


class OrphanKind(StrEnum):
    """The kinds of orphans: a record, or an entry."""

    RECORD = "Record"
    ENTRY = "Entry"


class Orphan(msgspec.Struct, frozen=True):
    """One backend without an owner. ``leaving``: its record is being deleted already."""

    kind: OrphanKind
    load_balancer: LoadBalancerKey
    listener: ListenerKey
    target: TargetKey
    record: tuple[str, str]
    uid: str = ""
    leaving: bool = False


def orphans_of(preview: Previewed) -> list[Orphan]:
    """Return the orphans of one load balancer, records first."""
    records = [_of_record(preview, record) for record in preview.records] if preview.gone else []
    return records + [
        Orphan(
            OrphanKind.ENTRY,
            preview.key,
            listener,
            key,
            (preview.key.namespace, record_name(preview.key, listener, key)),
        )
        for listener, key in preview.drift.unrecorded
    ]


async def remove_orphan(cluster: Cluster, preview: Previewed, orphan: Orphan) -> str:
    """Request the removal of one orphan; return the action in one sentence."""
    if orphan.leaving:
        return "already being deleted"
    uid = orphan.uid if orphan.kind is OrphanKind.RECORD else await _put_on_record(cluster, preview, orphan)
    if not uid:
        return "kept: it has a record now"
    try:
        await cluster.delete(BACKEND_RECORDS, *orphan.record, uid=uid)
    except NotFound:
        return "already gone"
    when = f"once {' and '.join(preview.paused)} is resumed" if preview.paused else "now"
    return f"deleted: the hub deregisters it {when}"


def _of_record(preview: Previewed, record: BackendRecord) -> Orphan:
    place = (listener_of(record), target_of(record).key)
    return Orphan(OrphanKind.RECORD, preview.key, *place, record.key, record.metadata.uid, record.deleting)


async def _put_on_record(cluster: Cluster, preview: Previewed, orphan: Orphan) -> str:
    """Create the missing record; the record's name ensures that there is only one."""
    spec = preview.side.recorded_spec or (preview.side.desired.spec if preview.side.desired is not None else None)
    if spec is None:
        return ""
    change = TargetChange(preview.key, orphan.listener, Target(orphan.target), Action.DEREGISTER, Reason.DEREGISTERING)
    namespace, name = orphan.record
    body: JSONObject = {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_LOAD_BALANCER: label_value(preview.key.name)},
            "finalizers": [FINALIZER_DEREGISTER],
        },
        "spec": msgspec.to_builtins(record_spec(spec, change, provider=preview.provider, info=preview.info, epoch=0)),
        "status": {
            "state": "Deregistering",
            "reason": Reason.DEREGISTERING.value,
            "message": "found by fairlead gc: an entry of ours without a record",
            "since": wire_time(SystemClock().now()),
        },
    }
    try:
        created: BackendRecord = await cluster.create(BACKEND_RECORDS, body)
    except AlreadyExists:
        return ""
    return created.metadata.uid
