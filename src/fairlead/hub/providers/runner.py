"""One provider with everything that drives it: tracker, ledger, worker, and its last observed state.

    ProviderRunner   the hub serves the provider's whole state: the ledger is in memory, ``observe`` is local
    DurableRunner    begins each ``Term`` of leadership from records and frontends, and works only while the hub leads;
                     observed is what was read back last, since an accepted request does not prove anything

In: records and frontends as read when a term begins, and then what the watch shows. Out: load balancers at the
provider, ``Observed``. Never: uses the state of an earlier term, or makes a caller wait for a remote provider.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import structlog

from fairlead.api.backendgroup import BackendRecord, RecordOrigin
from fairlead.api.intent import Provisioned
from fairlead.api.meta import ObjectKey
from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.ledger.frontends import KnownObject, MemoryLedger, ResourceOf, unknown_object
from fairlead.ledger.records import (
    RecordEvent,
    RecordsLedger,
    facts_of,
    listener_of,
    load_balancer_of,
    spec_of,
    target_of,
)
from fairlead.model.change import TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import (
    Lifecycle,
    Provider,
    Restorable,
    RestoredBackend,
    RestoresBackends,
    WorksWhileLeading,
)
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Health, Observed, with_health
from fairlead.runtime.background import keep
from fairlead.runtime.clock import Clock
from fairlead.runtime.loop import BUG_RETRY_S
from fairlead.sync.history import Report
from fairlead.sync.plan import Recorded, Registered, Tracker
from fairlead.sync.readback import Readback
from fairlead.sync.worker import Worker

log = structlog.get_logger(__name__)

#: Seconds after which a call of a provider counts as lost.
CALL_LIMIT_S = 120.0


class ProviderRunner:
    """Reconciles the load balancers of one provider."""

    durable = False
    #: Whether the records are known; before that, an empty tracker proves nothing.
    loaded = True

    def __init__(self, *, provider: Provider, clock: Clock, report: Callable[[Report], None]) -> None:
        self.provider = provider
        self.tracker = Tracker()
        self.worker = Worker(tracker=self.tracker, provider=provider, ledger=MemoryLedger(), clock=clock, report=report)


class DurableRunner(ProviderRunner):
    """Reconciles the load balancers of one provider with BackendRecords as its ledger, term by term."""

    durable = True

    def __init__(self, settings: TermSettings) -> None:
        self.provider = settings.provider
        self.name = settings.name
        self._settings = settings
        self._started = False
        self._drains = DrainStarts(settings.clock)
        self.begin((), {})
        self.loaded = False
        settings.provider.on_change(self._provider_changed)

    def begin(self, records: Iterable[BackendRecord], frontends: Mapping[LoadBalancerKey, Provisioned]) -> None:
        """Begin a term: replace the state in memory by the recorded state."""
        term = Term(self._settings, self._drains, records, frontends)
        self.tracker, self.worker, self.ledger, self.readback = term.tracker, term.worker, term.ledger, term.readback
        self.loaded = True

    def end(self) -> None:
        """End the term and forget the records."""
        self.loaded = False

    async def run(self) -> None:
        """Work until cancelled; only while the hub leads."""
        while isinstance(self.provider, Lifecycle) and not self._started:
            try:
                await self.provider.start()
                self._started = True
            except Exception as error:
                # A provider that does not start must not stop the others; its code may be from third parties.
                log.exception("provider does not start", provider=self.name, error=str(error))
                await self._settings.clock.sleep(BUG_RETRY_S)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.ledger.frontends.rewrite_old())
            group.create_task(self.worker.run())
            group.create_task(self.readback.run())
            if isinstance(self.provider, WorksWhileLeading):
                group.create_task(keep("work of a provider", self.provider.work, clock=self._settings.clock))

    def record_changed(self, old: BackendRecord | None, new: BackendRecord | None) -> None:
        """Follow a watch event; earlier ones are in the records that a term begins with."""
        self._drains.note(old, new)
        if self.loaded:
            self.ledger.observed(old, new)

    def _provider_changed(self, key: LoadBalancerKey) -> None:
        self.readback.notice(key)
        self._settings.changed(key)


class DrainStarts:
    """When this process first observed the drain of each recorded backend, by its own monotonic clock.

    The time in a record is by the clock of another leader, or from before a clock jump: it could end a drain too early.
    Only observed time counts, so a restart can lengthen a drain but never shorten it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s: dict[ObjectKey, tuple[tuple[str, str | None], float]] = {}

    def note(self, old: BackendRecord | None, new: BackendRecord | None) -> None:
        """Note a record that was created, changed or deleted, also on a standby replica."""
        if new is not None and new.status.state == "Draining":
            self.since_s(new)
        elif (record := new or old) is not None:
            self._since_s.pop(record.key, None)

    def since_s(self, record: BackendRecord) -> float:
        """Return the second since which the drain of ``record`` has been observed."""
        drain = (record.metadata.uid, record.status.since)
        known = self._since_s.get(record.key)
        if known is None or known[0] != drain:
            known = self._since_s[record.key] = (drain, self._clock.monotonic())
        return known[1]


class TermSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The common settings of all terms of one provider.

    ``epoch`` returns the leader's term, None while this replica does not lead. ``outranked`` is called with a higher
    epoch of a record, ``changed`` with load balancers to reconcile, ``note`` with read-back results for the history.
    ``target_ref`` returns the object behind the address of a target, ``resource_of`` the resource of a kind of intent,
    ``known`` the cached object of a load balancer.
    """

    name: str
    provider: Provider
    cluster: Cluster
    clock: Clock
    report: Callable[[Report], None]
    epoch: Callable[[], int | None]
    outranked: Callable[[int], None] = lambda _epoch: None
    resource_of: ResourceOf
    changed: Callable[[LoadBalancerKey], None] = lambda _key: None
    note: Callable[[LoadBalancerKey, str], None] = lambda _key, _text: None
    target_ref: Callable[[TargetChange], RecordOrigin | None] = lambda _change: None
    known: KnownObject = unknown_object
    limit_s: float | None = CALL_LIMIT_S
    parallel: int = 10


class Term:
    """The parts of one provider's runner during one term."""

    def __init__(
        self,
        settings: TermSettings,
        drains: DrainStarts,
        records: Iterable[BackendRecord],
        frontends: Mapping[LoadBalancerKey, Provisioned],
    ) -> None:
        provider = settings.provider
        self._settings = settings
        self._drains = drains
        self.ledger = RecordsLedger(
            cluster=settings.cluster,
            provider=settings.name,
            epoch=settings.epoch,
            outranked=settings.outranked,
            clock=settings.clock,
            on_event=self._record_event,
            origin=self._target_ref,
            by_address=provider.capabilities.generates_addresses,
            ensure_only_asks=provider.capabilities.ensure_only_asks,
            resource_of=settings.resource_of,
            known=settings.known,
        )
        self.tracker = Tracker(keeps_refused=True)
        for key, frontend in frontends.items():
            self.ledger.frontends.load(key, frontend)
        self._restore(self.ledger.load(records), frontends)
        self.worker = Worker(
            tracker=self.tracker,
            provider=provider,
            ledger=self.ledger,
            clock=settings.clock,
            report=settings.report,
            parallel=settings.parallel,
            may_call=lambda: settings.epoch() is not None,
            limit_s=settings.limit_s,
        )
        self.readback = Readback(
            provider=provider,
            tracker=self.tracker,
            clock=settings.clock,
            trigger=self.worker.trigger,
            epoch_of=lambda key: self.ledger.frontends.get(key).epoch,
            set_epoch=self.ledger.frontends.set_epoch,
            changed=settings.changed,
            note=settings.note,
            failure_domain=self.worker.failure_domain,
        )

    def _target_ref(self, change: TargetChange) -> RecordOrigin | None:
        settings = self._settings
        return settings.target_ref(change) if settings.provider.capabilities.generates_addresses else None

    def _record_event(self, event: RecordEvent, record: BackendRecord) -> None:
        """Follow a change of a record by another client."""
        key, listener, target = place_of(record)
        match event:
            case RecordEvent.APPEARED if key not in self.tracker:
                self._restore([record], {})
                self._settings.changed(key)
            case RecordEvent.APPEARED:
                self.tracker.observe(key, listener, registered_of(record, self._drains))
                self._restore_backend(key, record)
            case RecordEvent.EDITED:
                self.tracker.observe(key, listener, registered_of(record, self._drains), anew=True)
                self._restore_backend(key, record)
            case RecordEvent.DELETED:
                self.tracker.request_deregister(key, listener, target)
            case RecordEvent.GONE:
                self.tracker.forget(key, listener, target)
        self.worker.trigger()

    def _restore_backend(self, key: LoadBalancerKey, record: BackendRecord) -> None:
        """Restore the backend of a record that another process has written."""
        provider = self._settings.provider
        backends = restored_backends([record], self._drains)
        if backends and isinstance(provider, RestoresBackends):
            provider.restore_backends(key, backends)

    def _restore(self, records: Iterable[BackendRecord], frontends: Mapping[LoadBalancerKey, Provisioned]) -> None:
        """Put the recorded state into the tracker, and restore it at the provider."""
        provider = self._settings.provider
        for restored in restore(self.tracker, records, frontends, self._drains):
            if not isinstance(provider, Restorable):
                continue
            try:
                provider.restore(restored.spec, restored.info)
                if isinstance(provider, RestoresBackends):
                    provider.restore_backends(restored.spec.key, restored.backends)
            except Exception as error:
                # A provider's bug with one load balancer must not stop the others. The call is repeated.
                log.exception("bug", load_balancer=str(restored.spec.key), error=str(error))
                self.tracker.ensure_again([restored.spec.key])


class Restored(msgspec.Struct, frozen=True):
    """The recorded state of a load balancer that its provider has, or may have, set up before."""

    spec: FrontendSpec
    info: Mapping[str, str]
    backends: Sequence[RestoredBackend] = ()


def restore(
    tracker: Tracker,
    records: Iterable[BackendRecord],
    frontends: Mapping[LoadBalancerKey, Provisioned],
    drains: DrainStarts,
) -> list[Restored]:
    """Fill ``tracker``; return every load balancer in it, ordered by key."""
    by_key: dict[LoadBalancerKey, list[BackendRecord]] = {}
    for record in records:
        by_key.setdefault(load_balancer_of(record), []).append(record)
    out: list[Restored] = []
    for key in sorted(by_key.keys() | frontends.keys()):
        own_records = by_key.get(key, [])
        frontend = frontends.get(key, Provisioned(""))
        spec = frontend.spec(key)
        certain = spec is not None and frontend.state == "Ensured"
        if spec is None:
            if not own_records:
                continue
            spec = spec_of(own_records)
        done: Recorded = {}
        for record in own_records:
            registered = registered_of(record, drains)
            targets: dict[TargetKey, Registered] = done.setdefault(listener_of(record), {})
            targets[registered.target.key] = registered
        answered = bool(certain or frontend.info or frontend.addresses or frontend.epoch)
        # A registered backend was registered somewhere; if the object is gone, the records are the only trace of it.
        unanswered = not answered and bool(frontend.state) and all(map(_may_not_be_there, own_records))
        tracker.restore(spec, done, certain=certain, unanswered=unanswered)
        info = frontend.info or (own_records[0].spec.load_balancer.info if own_records else {}) or {}
        out.append(Restored(spec, info, restored_backends(own_records, drains)))
    return out


def restored_backends(records: Iterable[BackendRecord], drains: DrainStarts) -> tuple[RestoredBackend, ...]:
    """Return the ``records`` whose backends are certainly registered, or drained."""
    known = ((record, registered_of(record, drains)) for record in records)
    return tuple(
        RestoredBackend(listener_of(record), registered.target, facts_of(record))
        for record, registered in known
        if not registered.unknown
    )


def registered_of(record: BackendRecord, drains: DrainStarts) -> Registered:
    """Return one record as the tracker sees it."""
    state, target = record.status.state, target_of(record)
    if record.deleting or state == "Deregistering":
        return Registered(target, unknown=True, deregistering=True)
    if state == "Draining" and not target.draining:
        return Registered(msgspec.structs.replace(target, draining=True), draining_since=drains.since_s(record))
    return Registered(target, unknown=state not in ("Registered", "Draining"))


def _may_not_be_there(record: BackendRecord) -> bool:
    return not record.deleting and record.status.state in ("", "Pending", "Failed")


def place_of(record: BackendRecord) -> tuple[LoadBalancerKey, ListenerKey, TargetKey]:
    """Return the place of a record's backend."""
    return load_balancer_of(record), listener_of(record), target_of(record).key


async def observed_of(runner: ProviderRunner, key: LoadBalancerKey, frontend: Provisioned | None) -> Observed | None:
    """Return the provider's state of ``key``, None while unknown; an error is returned as its message.

    A load balancer that was never read back is read back soon.
    """
    if not isinstance(runner, DurableRunner):
        try:
            observed = await runner.provider.observe(key)
        except FairleadError as error:
            return _unread(error.sentence)
        return with_health(observed) if observed is not None else None
    readback = runner.readback
    if key not in readback.seen:
        if _is_ensured(frontend):
            readback.notice(key)
        return None
    seen = readback.seen[key]
    return _unread(seen) if isinstance(seen, str) else as_read_back(seen, frontend)


def _unread(why: str) -> Observed:
    return Observed(message=why, health=Health(reason=ConditionReason.PROVIDER_FAILED, message=why))


def as_read_back(seen: Observed | None, frontend: Provisioned | None) -> Observed | None:
    """Return ``seen`` of a load balancer at a remote provider; None while it is not recorded as ensured.

    ``seen`` None: the provider does not have it.
    """
    if frontend is None or not _is_ensured(frontend):
        return None
    seen = seen or Observed(message="the provider does not have the load balancer, or no longer has it")
    # A restored provider may not know the address that an earlier process got.
    addresses = seen.addresses or tuple(frontend.addresses or ())
    proxies = seen.proxies or 1
    acknowledged = proxies if seen.programmed else seen.acknowledged
    return msgspec.structs.replace(seen, addresses=addresses, proxies=proxies, acknowledged=acknowledged)


def _is_ensured(frontend: Provisioned | None) -> bool:
    return frontend is not None and frontend.state == "Ensured"
