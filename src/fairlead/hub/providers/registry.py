"""The runners of one hub, by the name of their provider: those that are given, and those that classes name.

    served     publishes to a data plane of ours; runs on every replica, remembers nothing
    durable    made when a class first names its provider; works only while we lead, from what is on record

In: providers, and factories of others. Out: a mapping that grows. Never: a provider that no class has named.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

import msgspec
import structlog

from fairlead.api.backendrecord import BACKEND_RECORDS, BackendRecord, RecordOrigin
from fairlead.api.meta import KubeObject, Resource
from fairlead.api.provisioned import Provisioned, ProvisionedStatus
from fairlead.errors import FairleadError, Retry
from fairlead.hub.inventory import IntentObjects, Inventory
from fairlead.hub.providers.runner import DurableRunner, ProviderRunner
from fairlead.hub.providers.term import TermSettings
from fairlead.kube.cluster import Cluster
from fairlead.ledger.history import HistoryStore
from fairlead.ledger.wire import load_balancer_of
from fairlead.model.change import TargetChange
from fairlead.model.contract import Capabilities, KeepsUnread, Lifecycle, Provider, ValidatesClasses
from fairlead.model.history import HistoryKind
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.background import close_all
from fairlead.runtime.clock import Clock
from fairlead.sync.history import History
from fairlead.sync.report import Report

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=KubeObject)

_AGAIN_S = 2.0
#: What is on record of each load balancer, for all providers.
OnRecord = dict[LoadBalancerKey, ProvisionedStatus]


class ProviderRegistry(Mapping[str, ProviderRunner]):
    """The runner of every provider of one hub, by name.

    ``report`` is called with what each worker did, ``changed`` with load balancers to reconcile.
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
        if self._group is not None:
            self._group.create_task(self._lead_later(runner))
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

    async def load(self, term: int) -> None:
        """Begin a term: every durable runner starts from what is on record."""
        self._term = term
        if self.durable:
            with ExitStack() as stack:
                for runner in self.durable.values():
                    stack.enter_context(runner.catching_up())
                records, frontends = await self._on_record()
                for runner in self.durable.values():
                    _begin(runner, records, frontends)

    async def run(self) -> None:
        """Work until cancelled, while we lead."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                # It runs as long as we lead, and so does the group: runners may be added meanwhile.
                group.create_task(self._history_store.run())
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
        known = any(key in runner.tracker for runner in self.durable.values())
        return known or not inventory.region or inventory.intent(key) is not None

    def _epoch(self) -> int | None:
        return self._term if self._is_leader() else None

    async def _lead_later(self, runner: DurableRunner) -> None:
        """Catch up with an runner that was made in the middle of a term."""
        with runner.catching_up():
            records, frontends = await self._on_record()
            _begin(runner, records, frontends)
        # What was desired of it while that was read is lost with the state from before, and an object that has come
        # meanwhile may not be in what was read: every load balancer is reconciled once more.
        for key in {*runner.tracker, *frontends, *self._inventory.all_keys()}:
            self._changed(key)
        await runner.run()

    async def _on_record(self) -> tuple[list[BackendRecord], OnRecord]:
        """Read all that is on record, from the API itself: a cache may be older than what the last leader wrote."""
        while True:
            try:
                records = await self._readable(BACKEND_RECORDS)
                frontends = {
                    key: frontend
                    for objects in self._inventory.intents.values()
                    async for key, frontend in self._frontends(objects)
                }
            except FairleadError as error:
                log.warning("records cannot be read; nothing is decided before", sentence=error.sentence)
                after_s = error.after_s if isinstance(error, Retry) else None
                await self._clock.sleep(after_s or _AGAIN_S)
                continue
            if self._inventory.region:
                # Orphans, whose object cannot say any more in which region it was, are for the hub that serves all.
                records = [record for record in records if load_balancer_of(record) in frontends]
            return records, frontends

    async def _frontends(self, objects: IntentObjects[Any]) -> AsyncIterator[tuple[LoadBalancerKey, ProvisionedStatus]]:
        """Yield what is on record of each intent of one kind; one without a frontend is yielded too."""
        for obj in await self._readable(objects.resource):
            if objects.serves(obj):
                yield objects.key(obj), obj.status

    async def _readable(self, resource: Resource[T]) -> list[T]:
        """List what can be decoded; what cannot is left as it is, and holds up nothing else."""
        listing = await self._cluster.listing(resource)
        for key, why in listing.broken.items():
            log.error("an object cannot be read; nothing is done about it", kind=resource.kind, key=str(key), why=why)
        return listing.items


def _begin(runner: DurableRunner, records: list[BackendRecord], on_record: OnRecord) -> None:
    entries: dict[LoadBalancerKey, Provisioned] = {}
    for key, status in on_record.items():
        if (entry := status.frontend_of(runner.name)) is not None:
            entries[key] = entry
    runner.begin(records, entries)
    for key, status in on_record.items():
        runner.ledger.frontends.load_old(key, status.old_places(runner.name))
