"""The runners of one hub, by provider name: built-in providers, and those that other packages install.

    served     publishes to the hub's own data plane; runs on every replica, records nothing
    durable    created when a class first names its provider; works only while the hub leads, from records

In: providers, and the entry points ``fairlead.providers``. Out: a mapping that grows. Never: creates a provider, or
imports its module, unless a class names it.

``ProviderMigration`` places a load balancer, and moves it from one provider to another: make before break.

    phase      serving provider       next provider    every other provider
    SETTLED    desired                -                releases it, once users know the new address and it has drained
    PREPARING  desired (of before)    desired          unchanged
    KEPT       desired (of before)    -                unchanged

PREPARING lasts until the next provider has everything: frontend, targets, address. If the next provider refuses or
fails, the serving provider keeps serving. After a crash the phase is the same: the serving provider is recorded, and so
are the requests to durable providers. In: views, translations, the runners. Out: desired load balancers in the
trackers. Never: leaves a load balancer without a complete provider, or calls a provider that may not answer.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from fairlead.api.backendgroup import BackendRecord, RecordOrigin
from fairlead.api.intent import Allocation, IntentObject, IntentStatus
from fairlead.api.meta import condition_of, is_taken_over
from fairlead.errors import FairleadError
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.runner import DurableRunner, ProviderRunner, TermSettings, observed_of
from fairlead.kube.cluster import Cluster
from fairlead.ledger.frontends import held_before
from fairlead.ledger.history import HistoryStore
from fairlead.ledger.records import load_balancer_of
from fairlead.model.change import Action, Held, HistoryKind, TargetChange
from fairlead.model.condition import ConditionType
from fairlead.model.contract import AllocationKind, Capabilities, KeepsUnread, Lifecycle, Provider, ValidatesClasses
from fairlead.model.desired import DesiredLoadBalancer, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Observed
from fairlead.runtime.background import close_all
from fairlead.runtime.clock import Clock
from fairlead.sync.history import History, Report
from fairlead.sync.plan import DRY_RUN
from fairlead.translate.view import Decision

log = structlog.get_logger(__name__)

_AGAIN_S = 2.0
GROUP = "fairlead.providers"
_Create = Callable[..., Provider]
#: Built-in providers, also when the package is on the path but not installed.
_OURS = {
    "memory": "fairlead.providers.memory",
    "webhook": "fairlead.providers.webhook.provider",
    "haproxy": "fairlead.providers.haproxy.provider",
    "ingress": "fairlead.providers.controller.ingress",
    "gateway": "fairlead.providers.controller.gateway",
    "powerdns": "fairlead.providers.zones.powerdns.provider",
    "external-dns": "fairlead.providers.zones.external_dns.provider",
    "external-dns-annotations": "fairlead.providers.zones.external_dns.annotations_provider",
    "rfc2136": "fairlead.providers.zones.rfc2136.provider",
}


class ProviderRegistry(Mapping[str, ProviderRunner]):
    """The runner of every provider of one hub, by name.

    ``report`` is called with the report of each worker, ``changed`` with load balancers to reconcile. ``raise_epoch``
    returns an epoch of the term that is higher than its argument.
    """

    def __init__(
        self,
        *,
        served: Mapping[str, Provider],
        factories: Mapping[str, Callable[[], Provider]],
        inventory: Inventory,
        cluster: Cluster,
        clock: Clock,
        report: Callable[[Report], None],
        changed: Callable[[LoadBalancerKey], None],
        is_leader: Callable[[], bool],
        raise_epoch: Callable[[int], Awaitable[int]],
        history: History,
        target_ref: Callable[[TargetChange], RecordOrigin | None] = lambda _change: None,
    ) -> None:
        self._factories = factories
        self._inventory = inventory
        self._cluster = cluster
        self._clock = clock
        self._report = report
        self._changed = changed
        self._is_leader = is_leader
        self._raise_epoch = raise_epoch
        #: The highest epoch of a record above that of this term.
        self._above = 0
        self._outranked = asyncio.Event()
        self._history = history
        self._history_store = HistoryStore(
            cluster=cluster,
            history=history,
            clock=clock,
            leading=lambda: self._epoch() is not None,
            is_durable=lambda name: name in self.durable,
            exists=lambda key: (
                inventory.exists(key)
                or inventory.is_unreadable(key)
                or any(key in runner.tracker for runner in self.values())
            ),
        )
        self._target_ref = target_ref
        self._term: int | None = None
        self._group: asyncio.TaskGroup | None = None
        #: Providers that a record names.
        self._named: set[str] = set()
        self.served = {
            name: ProviderRunner(provider=provider, clock=clock, report=self._report_of(name))
            for name, provider in served.items()
        }
        self.durable: dict[str, DurableRunner] = {}
        #: Why a provider named by a class cannot be started, one sentence by name.
        self.problems: dict[str, str] = {}
        #: The capabilities of the providers; grows with the runners.
        self.capabilities: dict[str, Capabilities] = {name: provider.capabilities for name, provider in served.items()}

    def __getitem__(self, name: str) -> ProviderRunner:
        return self.served[name] if name in self.served else self.durable[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self.served, *self.durable))

    def __len__(self) -> int:
        return len(self.served) + len(self.durable)

    @property
    def known(self) -> frozenset[str]:
        """Return every provider that a class may name here, whether or not one does."""
        return frozenset({*self.served, *self._factories})

    def open(self, name: str) -> bool:
        """Create the runner of a provider that a class names; return whether that changes anything."""
        factory = self._factories.get(name)
        if factory is None or name in self or name in self.problems:
            return False
        try:
            provider = factory()
            capabilities = provider.capabilities
            runner = DurableRunner(
                TermSettings(
                    name=name,
                    provider=provider,
                    cluster=self._cluster,
                    clock=self._clock,
                    report=self._report_of(name),
                    epoch=self._epoch,
                    outranked=self._note_epoch,
                    changed=self._changed,
                    note=partial(self._noted, name),
                    target_ref=self._target_ref,
                    resource_of=lambda kind: self._inventory.intents[kind].resource,
                    known=self._inventory.intent,
                )
            )
        except Exception as error:
            # Third-party code: a provider that cannot be created must not stop the others.
            log.exception("provider cannot be created", provider=name, error=str(error))
            self.problems[name] = (
                f"provider {name!r} cannot be started ({type(error).__name__}: {str(error)[:200]}); fix its package "
                "and restart the hub"
            )
            # The load balancers that request it get a condition.
            return True
        self.durable[name] = runner
        self.capabilities[name] = capabilities
        if self._term is not None:
            self._begin([runner])
            for key in {*runner.tracker, *self._inventory.all_keys()}:
                self._changed(key)
        if self._group is not None:
            self._group.create_task(runner.run())
        return True

    def silent(self, names: Iterable[str]) -> list[str]:
        """Return the providers in ``names`` that do not run here (yet); only they can release their records."""
        runners = {name: self.get(name) for name in names}
        return [name for name, runner in runners.items() if runner is None or not runner.loaded]

    def keep_unread(self, key: LoadBalancerKey) -> None:
        """Have the data planes of this hub keep their state of a load balancer that cannot be read."""
        for runner in self.served.values():
            if isinstance(runner.provider, KeepsUnread):
                runner.provider.keep(key, unread=True)

    def class_problem(self, name: str, parameters: Mapping[str, str]) -> str:
        """Return the provider's error in the parameters of a class; empty if they are valid."""
        provider = self[name].provider if name in self else None
        if not isinstance(provider, ValidatesClasses):
            return ""
        try:
            return provider.class_problem(parameters)
        except Exception as error:
            # Third-party code: a mistake about one class must not stop the others.
            log.exception("bug", provider=name, error=str(error))
            return ""

    def record_changed(self, old: BackendRecord | None, new: BackendRecord | None) -> None:
        """Forward a watch event; a provider named by a record releases its backends even if no class names it."""
        named = new.spec.load_balancer.provider if new is not None else ""
        if named and named not in self._named:
            self._named.add(named)
            self.open(named)
        record = new or old
        if record is None or not self._concerns(load_balancer_of(record)):
            return
        for runner in self.durable.values():
            runner.record_changed(old, new)

    async def load(self) -> None:
        """Begin a term: every durable runner starts from the records, with an epoch above all recorded ones."""
        while True:
            try:
                await self._inventory.refresh()
                term = await self._raise_epoch(0)
                above = max((record.spec.leader_epoch for record in self._inventory.records.values()), default=0)
                if term > above:
                    break
                # Until the epoch is raised, another leader may write: everything is read again.
                await self._raise_epoch(above)
            except FairleadError as error:
                log.warning("records cannot be read; nothing is decided before", sentence=error.sentence)
                await self._clock.sleep(error.after_s or _AGAIN_S)
        self._term = term
        self._begin(self.durable.values())

    async def run(self) -> None:
        """Work until cancelled, while we lead."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                # These run as long as this replica leads, and so does the group: runners may be added meanwhile.
                group.create_task(self._history_store.run())
                group.create_task(self._outrank())
                for runner in self.durable.values():
                    group.create_task(runner.run())
        finally:
            self._group = None
            self._term = None
            for runner in self.durable.values():
                runner.end()

    async def close(self) -> None:
        """Close the durable providers; registered backends stay."""
        providers = {name: runner.provider for name, runner in self.durable.items()}
        await close_all(
            {name: provider.close for name, provider in providers.items() if isinstance(provider, Lifecycle)}
        )

    def restored(self) -> list[LoadBalancerKey]:
        """Return every load balancer of the durable runners, known from objects or from records alone."""
        return [key for runner in self.durable.values() for key in runner.tracker]

    def _noted(self, provider: str, key: LoadBalancerKey, text: str) -> None:
        self._history.note(key, HistoryKind.DECIDED, text, provider=provider, kept=True)

    def _report_of(self, name: str) -> Callable[[Report], None]:
        return lambda report: self._report(msgspec.structs.replace(report, provider=name))

    def _concerns(self, key: LoadBalancerKey) -> bool:
        """Return whether ``key`` is this hub's: records of another region are only for the hub of that region."""
        inventory = self._inventory
        if any(key in runner.tracker for runner in self.durable.values()):
            return True
        if inventory.exists(key):
            return inventory.decides(key) and (not inventory.region or inventory.intent(key) is not None)
        # Where regions have hubs, the watch may show a record before its object: only a list proves an orphan.
        return not inventory.region and not inventory.regional_hubs

    def _epoch(self) -> int | None:
        return self._term if self._is_leader() else None

    def _note_epoch(self, epoch: int) -> None:
        """Note a record with a higher epoch than ours, such as one of a backup or of another region."""
        self._above = max(self._above, epoch)
        self._outranked.set()

    async def _outrank(self) -> None:
        """Raise our epoch above that of records that appear during the term, which proves leadership."""
        while await self._outranked.wait():
            try:
                self._term = await self._raise_epoch(self._above)
                self._outranked.clear()
            except FairleadError as error:
                log.warning("the epoch cannot be raised", above=self._above, sentence=error.sentence)
                await self._clock.sleep(_AGAIN_S)

    def _begin(self, runners: Iterable[DurableRunner]) -> None:
        """Start ``runners`` from the records and frontends."""
        inventory = self._inventory
        own = filter(inventory.decides, inventory.all_keys())
        objects = {key: obj.status for key in own if (obj := inventory.intent(key)) is not None}
        records = list(inventory.records.values())
        if inventory.region:
            # Orphans, without an object that names their region, are for the hub without a region.
            records = [record for record in records if load_balancer_of(record) in objects]
        else:
            records = [record for record in records if inventory.decides(load_balancer_of(record))]
        for runner in runners:
            frontends = {key: status.frontend_of(runner.name) for key, status in objects.items()}
            runner.begin(records, {key: frontend for key, frontend in frontends.items() if frontend is not None})
            for key, status in objects.items():
                runner.ledger.frontends.load_old(key, status.old_places(runner.name))


def installed_providers(
    *,
    cluster: Cluster,
    clock: Clock,
    registry: CollectorRegistry,
    without: frozenset[str] = frozenset(),
    dry_run: bool = False,
) -> Mapping[str, Callable[[], Provider]]:
    """Return a factory for each installed provider, by name, ``without`` those that run already.

    ``cluster`` is the hub's own. ``dry_run``: nothing may be changed; a provider may pass that on.
    """
    loaders: dict[str, Callable[[], _Create]] = {
        name: lambda module=module: import_module(module).create for name, module in _OURS.items()
    }
    loaders |= {point.name: point.load for point in entry_points(group=GROUP)}
    arguments = {"cluster": cluster, "clock": clock, "registry": registry, "dry_run": dry_run}

    def make(load: Callable[[], _Create]) -> Provider:
        create = load()
        # A provider declares the arguments that it needs, by name.
        parameters = inspect.signature(create).parameters
        return create(**{name: value for name, value in arguments.items() if name in parameters})

    return {name: partial(make, load) for name, load in loaders.items() if name not in without}


#: Seconds until a load balancer that is moving, or that a provider is releasing, is reconciled again.
AGAIN_S = 0.5


class Phase(StrEnum):
    """The phases of a move; the table is above."""

    SETTLED = "Settled"
    PREPARING = "Preparing"
    KEPT = "Kept"


class Placement(msgspec.Struct, frozen=True):
    """The providers that should have the load balancer: ``serving``, and in PREPARING also ``next``."""

    serving: Decision
    next: Decision | None = None
    phase: Phase = Phase.SETTLED


class ProviderMigration:
    """Puts placements into the trackers of the providers, and removes load balancers from other trackers."""

    def __init__(self, *, providers: ProviderRegistry, clock: Clock) -> None:
        self._providers = providers
        self._clock = clock
        #: Since when (monotonic seconds) the address of the serving provider has been in the status.
        self._announced_since_s: dict[LoadBalancerKey, float] = {}
        self._held = HeldTargets()

    def is_moving(self, obj: IntentObject, translation: Decision) -> bool:
        """Return whether ``obj`` is served by a provider other than the one that it requests now."""
        serving = obj.status.serving_provider
        moves = translation.desired is not None and serving not in ("", translation.provider)
        return moves and serving in self._providers and bool(_addresses(obj))

    async def missing(self, key: LoadBalancerKey, next_: Decision) -> str:
        """Return the part that the next provider still lacks, in one phrase; empty if it is complete."""
        desired = next_.desired
        if desired is None or desired.paused:
            return "the load balancer is paused"
        runner = self._providers[next_.provider]
        missing = missing_targets(runner, key, desired)
        if missing:
            return missing
        if not isinstance(runner, DurableRunner):
            return _missing_frontend(await observed_of(runner, key, None))
        missing = "the load balancer has not been read back yet"
        if key in runner.readback.seen:
            missing = _missing_frontend(await observed_of(runner, key, runner.ledger.frontends.get(key)))
        if missing:
            # Not called from here: a provider that does not answer would delay the load balancers of all others.
            runner.readback.notice(key)
        return missing

    def may_prepare(self, allocation: Allocation, next_: Decision) -> bool:
        """Return whether a replica that does not lead may prepare ``next_``: its allocation is recorded."""
        runner = self._providers.get(next_.provider)
        if next_.desired is None or runner is None or runner.durable:
            return False
        match runner.provider.capabilities.allocation:
            case AllocationKind.ADDRESS:
                return bool(allocation.address)
            case AllocationKind.PROXY_PORT:
                given = {(port.protocol, port.port) for port in allocation.ports}
                return {(listener.protocol.value, listener.port) for listener in next_.desired.spec.listeners} <= given
            case AllocationKind.NONE:
                return True

    def uses_allocation(self, key: LoadBalancerKey) -> bool:
        """Return whether some provider serves ``key`` with an address or ports of the hub's pools."""
        return any(
            runner.provider.capabilities.allocation is not AllocationKind.NONE and key in runner.tracker
            for runner in self._providers.values()
        )

    def released(self, key: LoadBalancerKey, obj: IntentObject, provider: str) -> list[str]:
        """Return the recorded providers of ``key`` other than ``provider`` that have released it."""
        others = sorted(obj.status.recorded_providers - {provider})
        runners = ((name, self._providers.get(name)) for name in others)
        return [name for name, runner in runners if runner and runner.loaded and key not in runner.tracker]

    def place(self, key: LoadBalancerKey, obj: IntentObject, placement: Placement, *, decides: bool = True) -> bool:
        """Put ``placement`` into the trackers; return whether some provider still has to release ``key``.

        ``decides``: this hub decides; otherwise its proxies only serve the decisions of another hub.
        """
        serving = self._providers.get(placement.serving.provider)
        if decides or (serving is not None and not serving.durable):
            self._put(placement.serving, obj)
        if placement.next is not None:
            self._put(placement.next)
        settled = placement.phase is Phase.SETTLED and placement.serving.desired is not None
        return settled and self._release_others(key, obj, placement.serving)

    def forget(self, key: LoadBalancerKey) -> None:
        """Forget a load balancer that was deleted."""
        self._announced_since_s.pop(key, None)
        self._held.forget(key)

    def reported(self, report: Report, pass_on: Callable[[Report], None]) -> bool:
        """Pass on the report of a worker; return whether its load balancer must be reconciled now.

        That is the case when the worker only restored held changes, which is not passed on, and when no provider has
        the load balancer.
        """
        key = report.load_balancer
        if self._held.reported(key):
            return True
        pass_on(report)
        return not any(key in runner.tracker for runner in self._providers.values())

    # --- inside -----------------------------------------------------------------------------------------------

    def _put(self, translation: Decision, obj: IntentObject | None = None) -> None:
        """Put the desired state of ``translation``; ``obj``: the provider already serves it, with held changes."""
        desired, runner = translation.desired, self._providers.get(translation.provider)
        if desired is None or runner is None:
            return
        restored = self._held.has_reported(desired.key)
        if obj is not None and not runner.durable:
            desired = self._held.first(desired, obj.status, is_new=desired.key not in runner.tracker)
        if restored:
            # Also if the desired state is the same: so far the worker has reported only on the restored state.
            runner.tracker.touch((desired.key,))
        if runner.tracker.put(desired) or restored:
            runner.worker.trigger()

    def _release_others(self, key: LoadBalancerKey, obj: IntentObject, serving: Decision) -> bool:
        names = [name for name in self._providers if name != serving.provider and key in self._providers[name].tracker]
        if not names or serving.desired is None:
            self._announced_since_s.pop(key, None)
            return False
        announced, addresses, now_s = _is_announced(obj), _addresses(obj), self._clock.monotonic()
        since_s = self._announced_since_s.setdefault(key, now_s) if announced else now_s
        for name in names:
            runner = self._providers[name]
            state = runner.tracker.state(key)
            last = state.desired if state is not None else None
            drained = last is None or not addresses or now_s - since_s >= last.drain_s
            if announced and drained:
                changed = runner.tracker.remove(key)
            else:
                changed = last is not None and runner.tracker.put(_with_targets(last, serving.desired))
            if changed:
                runner.worker.trigger()
        return True


def missing_targets(runner: ProviderRunner, key: LoadBalancerKey, desired: DesiredLoadBalancer) -> str:
    """Return the part of ``desired`` that the provider still lacks, in one phrase; empty if none."""
    state = runner.tracker.state(key)
    if not runner.loaded or state is None or state.recorded_spec != desired.spec or state.ensure_again:
        return "the load balancer is not set up there yet"
    registered = [
        state.recorded.get(listener, {}).get(target_key)
        for listener, targets in desired.targets.items()
        for target_key, target in targets.items()
        if not target.draining
    ]
    missing = sum(target is None or target.unknown or target.deregistering for target in registered)
    if missing:
        return f"{missing} of {len(registered)} targets are not registered yet"
    return desired.stale


def _missing_frontend(observed: Observed | None) -> str:
    if observed is None:
        return "the load balancer is not set up there yet"
    if not observed.programmed:
        return observed.message or "not every proxy has it yet"
    return "" if observed.addresses else observed.message or "no address yet"


def _addresses(obj: IntentObject) -> list[str]:
    """Return the addresses that users read in the status."""
    return [ingress.address for ingress in obj.status.load_balancer.ingress or ()]


def _is_announced(obj: IntentObject) -> bool:
    """Return whether users can know the present address, which is written together with Programmed."""
    programmed = condition_of(obj.status.conditions, ConditionType.PROGRAMMED)
    current = programmed is not None and programmed.observed_generation == obj.metadata.generation
    return not _addresses(obj) or (current and is_taken_over(programmed))


def _with_targets(last: DesiredLoadBalancer, now: DesiredLoadBalancer) -> DesiredLoadBalancer:
    """Return ``last`` with the present targets: clients of the old address are served until it is released."""
    targets = {listener: now.targets.get(listener, known) for listener, known in last.targets.items()}
    return msgspec.structs.replace(last, targets=targets, stale=now.stale)


class HeldTargets:
    """The load balancers put with the held changes of an earlier process, until the present desired state is put.

    Until then a report of their worker says nothing about the present targets.
    """

    def __init__(self) -> None:
        self._restored: dict[LoadBalancerKey, bool] = {}  # whether the worker has reported

    def first(self, desired: DesiredLoadBalancer, status: IntentStatus, *, is_new: bool) -> DesiredLoadBalancer:
        """Return the state to put instead of ``desired``; ``is_new``: first put of this process."""
        key = desired.key
        if self._restored.get(key, not is_new):
            self._restored.pop(key, None)
            return desired
        before = as_held(desired, held_before(key, status).rows)
        if before == desired:
            self._restored.pop(key, None)
        else:
            self._restored[key] = False
        return before

    def has_reported(self, key: LoadBalancerKey) -> bool:
        """Return whether the worker has reported on the restored state, so that the present targets can be put."""
        return self._restored.get(key, False)

    def reported(self, key: LoadBalancerKey) -> bool:
        """Note a report of the worker; return whether the load balancer was put with held changes."""
        if key not in self._restored:
            return False
        self._restored[key] = True
        return True

    def forget(self, key: LoadBalancerKey) -> None:
        """Forget a load balancer that was deleted."""
        self._restored.pop(key, None)


def as_held(desired: DesiredLoadBalancer, held: Sequence[Held]) -> DesiredLoadBalancer:
    """Return ``desired`` with the targets whose removal is ``held``, and without those whose addition is."""
    targets: dict[ListenerKey, dict[TargetKey, Target]] = {}
    for row in held:
        change = row.change
        if row.reason == DRY_RUN or change.listener not in desired.targets:
            continue
        of_listener = targets.setdefault(change.listener, dict(desired.targets[change.listener]))
        wanted = of_listener.get(change.key)
        if change.action is Action.REGISTER:
            of_listener.pop(change.key, None)
        elif change.is_removal and wanted is None:
            of_listener[change.key] = change.target
        elif change.action is Action.UPDATE and wanted is not None:
            # The row does not list which fields would change; what matters is that the target accepts connections.
            of_listener[change.key] = msgspec.structs.replace(wanted, draining=False)
    if not targets:
        return desired
    return msgspec.structs.replace(desired, targets={**desired.targets, **targets})
