"""The runners of one hub, by the name of their provider: those that are given, and those that classes name.

    served     publishes to a data plane of ours; runs on every replica, remembers nothing
    durable    made when a class first names its provider; works only while we lead, from what is on record

In: providers, and factories of others. Out: a mapping that grows. Never: a provider that no class has named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial

import msgspec
import structlog

from fairlead.api.backendgroup import BackendRecord, RecordOrigin
from fairlead.api.intent import Provisioned
from fairlead.errors import FairleadError, Retry
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.runner import DurableRunner, ProviderRunner
from fairlead.hub.providers.term import TermSettings
from fairlead.kube.cluster import Cluster
from fairlead.ledger.history import HistoryStore
from fairlead.ledger.wire import load_balancer_of
from fairlead.model.change import HistoryKind, TargetChange
from fairlead.model.contract import Capabilities, KeepsUnread, Lifecycle, Provider, ValidatesClasses
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.background import close_all
from fairlead.runtime.clock import Clock
from fairlead.sync.history import History, Report

log = structlog.get_logger(__name__)

_AGAIN_S = 2.0


class ProviderRegistry(Mapping[str, ProviderRunner]):
    """The runner of every provider of one hub, by name.

    ``report`` is called with what each worker did, ``changed`` with load balancers to reconcile. ``raise_epoch``
    returns the epoch of the term, higher than the given one.
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
        #: The epoch of a record that is higher than that of this term.
        self._above = 0
        self._outranked = asyncio.Event()
        self._history = history
        self._history_store = HistoryStore(
            store=cluster,
            history=history,
            clock=clock,
            leading=lambda: self._epoch() is not None,
            is_durable=lambda name: name in self.durable,
        )
        self._target_ref = target_ref
        self._term: int | None = None
        self._group: asyncio.TaskGroup | None = None
        #: Providers that some record names.
        self._named: set[str] = set()
        self.served = {
            name: ProviderRunner(provider=provider, clock=clock, report=self._report_of(name))
            for name, provider in served.items()
        }
        self.durable: dict[str, DurableRunner] = {}
        #: Why a provider that a class names cannot be started, a sentence by name.
        self.problems: dict[str, str] = {}
        #: What the providers can do; grows with the runners.
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
        """Make the runner of a provider that a class names; returns whether that changes anything."""
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
                    store=self._cluster,
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
            # Code of third parties: one provider that cannot be made is no reason to stop the others.
            log.exception("a provider cannot be made", provider=name, error=str(error))
            self.problems[name] = (
                f"provider {name!r} cannot be started ({type(error).__name__}: {str(error)[:200]}); fix its package "
                "and restart the hub"
            )
            # The load balancers that ask for it get a condition.
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
        """Return those of ``names`` that do not run here (yet): what they have on record only they can release."""
        runners = {name: self.get(name) for name in names}
        return [name for name, runner in runners.items() if runner is None or not runner.loaded]

    def keep_unread(self, key: LoadBalancerKey) -> None:
        """Have the data planes that this hub serves keep what they have of a load balancer that cannot be read."""
        for runner in self.served.values():
            if isinstance(runner.provider, KeepsUnread):
                runner.provider.keep(key, unread=True)

    def class_problem(self, name: str, parameters: Mapping[str, str]) -> str:
        """Return what a provider finds wrong with the parameters of a class; empty when nothing."""
        provider = self[name].provider if name in self else None
        if not isinstance(provider, ValidatesClasses):
            return ""
        try:
            return provider.class_problem(parameters)
        except Exception as error:
            # Code of third parties: a mistake about one class is no reason to stop the others.
            log.exception("bug", provider=name, error=str(error))
            return ""

    def record_changed(self, old: BackendRecord | None, new: BackendRecord | None) -> None:
        """Pass on what the watch shows of records; a provider on record releases its backends, class or no class."""
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
        """Begin a term: every durable runner starts from what is on record, with an epoch above all on record."""
        while True:
            try:
                await self._inventory.refresh()
                term = await self._raise_epoch(0)
                above = max((record.spec.leader_epoch for record in self._inventory.records.values()), default=0)
                if term > above:
                    break
                # Until this has been waited for, another leader may write: all is read once more.
                await self._raise_epoch(above)
            except FairleadError as error:
                log.warning("records cannot be read; no decision is made before", sentence=error.sentence)
                after_s = error.after_s if isinstance(error, Retry) else None
                await self._clock.sleep(after_s or _AGAIN_S)
        self._term = term
        self._begin(self.durable.values())

    async def run(self) -> None:
        """Work until cancelled, while we lead."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                # It runs as long as we lead, and so does the group: runners may be added meanwhile.
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
        """Close the durable providers; what is registered stays."""
        providers = {name: runner.provider for name, runner in self.durable.items()}
        await close_all({name: each.close for name, each in providers.items() if isinstance(each, Lifecycle)})

    def restored(self) -> list[LoadBalancerKey]:
        """Return every load balancer of the durable runners, known from objects or from records alone."""
        return [key for runner in self.durable.values() for key in runner.tracker]

    def _noted(self, provider: str, key: LoadBalancerKey, text: str) -> None:
        self._history.note(key, HistoryKind.DECIDED, text, provider=provider, kept=True)

    def _report_of(self, name: str) -> Callable[[Report], None]:
        return lambda report: self._report(msgspec.structs.replace(report, provider=name))

    def _concerns(self, key: LoadBalancerKey) -> bool:
        """Return whether ``key`` is this hub's: what the hub of another region has on record is only for that hub."""
        inventory = self._inventory
        if any(key in runner.tracker for runner in self.durable.values()):
            return True
        if inventory.exists(key):
            return inventory.decides(key) and (not inventory.region or inventory.intent(key) is not None)
        # Where regions have hubs, the watch may show a record before its object: only a new list proves an orphan.
        return not inventory.region and not inventory.regional_hubs

    def _epoch(self) -> int | None:
        return self._term if self._is_leader() else None

    def _note_epoch(self, epoch: int) -> None:
        """Take note of a record with a higher epoch than ours, such as one of a backup or of another region."""
        self._above = max(self._above, epoch)
        self._outranked.set()

    async def _outrank(self) -> None:
        """Raise our epoch above that of records that appear during the term: that proves that we lead."""
        while await self._outranked.wait():
            try:
                self._term = await self._raise_epoch(self._above)
                self._outranked.clear()
            except FairleadError as error:
                log.warning("the epoch cannot be raised", above=self._above, sentence=error.sentence)
                await self._clock.sleep(_AGAIN_S)

    def _begin(self, runners: Iterable[DurableRunner]) -> None:
        """Have ``runners`` start from what is on record."""
        inventory = self._inventory
        own = filter(inventory.decides, inventory.all_keys())
        objects = {key: obj.status for key in own if (obj := inventory.intent(key)) is not None}
        records = list(inventory.records.values())
        if inventory.region:
            # Orphans, whose object no longer says in which region it was, are for the hub without a region.
            records = [record for record in records if load_balancer_of(record) in objects]
        else:
            records = [record for record in records if inventory.decides(load_balancer_of(record))]
        for runner in runners:
            frontends: dict[LoadBalancerKey, Provisioned] = {}
            for key, status in objects.items():
                if (frontend := status.frontend_of(runner.name)) is not None:
                    frontends[key] = frontend
            runner.begin(records, frontends)
            for key, status in objects.items():
                runner.ledger.frontends.load_old(key, status.old_places(runner.name))
