"""The runners of one hub, by the name of their provider: built-in ones, and those that other packages install.

    served     publishes to the hub's own data plane; runs on every replica, records nothing
    durable    created when a class first names its provider; works only while the hub leads, from records

In: providers, and the entry points ``fairlead.providers``. Out: a mapping that grows. Never: a provider, or the import
of its module, that no class has named.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from fairlead.api.backendgroup import BackendRecord, RecordOrigin
from fairlead.errors import FairleadError
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.runner import DurableRunner, ProviderRunner, TermSettings
from fairlead.kube.cluster import Cluster
from fairlead.ledger.history import HistoryStore
from fairlead.ledger.records import load_balancer_of
from fairlead.model.change import HistoryKind, TargetChange
from fairlead.model.contract import Capabilities, KeepsUnread, Lifecycle, Provider, ValidatesClasses
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.background import close_all
from fairlead.runtime.clock import Clock
from fairlead.sync.history import History, Report

log = structlog.get_logger(__name__)

_AGAIN_S = 2.0
GROUP = "fairlead.providers"
_Create = Callable[..., Provider]
#: Built-in providers, also where the package is only on the path.
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
        #: Why a provider that a class names cannot be started, a sentence by name.
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
        """Return those of ``names`` that do not run here, or not yet: only they can release what they recorded."""
        runners = {name: self.get(name) for name in names}
        return [name for name, runner in runners.items() if runner is None or not runner.loaded]

    def keep_unread(self, key: LoadBalancerKey) -> None:
        """Have the data planes of this hub keep their state of a load balancer that cannot be read."""
        for runner in self.served.values():
            if isinstance(runner.provider, KeepsUnread):
                runner.provider.keep(key, unread=True)

    def class_problem(self, name: str, parameters: Mapping[str, str]) -> str:
        """Return the problem that a provider finds in the parameters of a class; empty for none."""
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
        """Pass on a watch event; a provider that a record names releases its backends, with or without a class."""
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
    """Return a factory for each installed provider, by name; ``without`` those that run already.

    ``cluster`` is the hub's own. ``dry_run``: nothing must be changed; a provider may pass that on.
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
