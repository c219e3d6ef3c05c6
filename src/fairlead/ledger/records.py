"""The durable ledger: one BackendRecord for each backend that is, or may be, registered.

    register      create (finalizer, Pending) ──► provider ──► Registered, or Failed
    update        the new spec                ──► provider ──► Registered
    drain         Draining                    ──► provider
    deregister    Deregistering, delete       ──► provider ──► finalizer removed, and it is gone

Intent first, at every step. Writes carry the resourceVersion that was read and the epoch of the leader: one who has
lost the lease without noticing is refused by the API server, or by the record itself, before the provider is called.
In: changes. Out: the same with what is on record added. Never: a record that goes while its backend may be registered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

import msgspec
import structlog

from fairlead.api.backendgroup import BACKEND_RECORDS, BackendRecord, BackendRecordSpec, RecordOrigin, RecordState
from fairlead.api.meta import JSONObject
from fairlead.api.names import (
    FINALIZER_DEREGISTER,
    LABEL_LOAD_BALANCER,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    MANAGER_HUB,
    label_value,
    short_hash,
)
from fairlead.api.times import wire_time
from fairlead.errors import AlreadyExists, Bug, Conflict, FairleadError, NotFound, Retry
from fairlead.ledger.frontends import FrontendRecords, KnownObject, ResourceOf, unknown_object
from fairlead.ledger.record_cache import RecordCache, RecordEvent, RecordKey
from fairlead.ledger.store import RecordStore
from fairlead.ledger.wire import facts_of, load_balancer_spec, nulls, record_spec
from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import ListenerKey, LoadBalancerKey, TargetKey
from fairlead.model.observed import Ensured
from fairlead.runtime.background import all_done
from fairlead.runtime.clock import Clock

log = structlog.get_logger(__name__)

#: Record writes under way at once.
_PARALLEL = 32
_POLL_S = 1.0
_NOT_LEADING = "this replica does not lead; nothing was done"
_T = TypeVar("_T")


class RecordsLedger:
    """The records of one provider's load balancers.

    ``epoch`` answers the leader's term, None when we do not lead; ``outranked`` gets a higher one that is on record.
    ``on_event`` gets what others do to records.
    ``origin`` is asked once for each record, when it is made: from what may the provider generate its address?
    ``by_address``: the provider knows backends by their addresses alone, so records of one address share a backend.
    ``ensure_only_asks``: nothing is recorded before its provider is asked for a new load balancer: that makes nothing.
    ``known``: the object of a load balancer as a cache has it, None when it does not.
    """

    def __init__(
        self,
        *,
        store: RecordStore,
        provider: str,
        epoch: Callable[[], int | None],
        outranked: Callable[[int], None] = lambda _epoch: None,
        clock: Clock,
        resource_of: ResourceOf,
        on_event: Callable[[RecordEvent, BackendRecord], None] = lambda _event, _record: None,
        origin: Callable[[TargetChange], RecordOrigin | None] = lambda _change: None,
        by_address: bool = False,
        ensure_only_asks: bool = False,
        known: KnownObject = unknown_object,
    ) -> None:
        self.frontends = FrontendRecords(
            store=store,
            provider=provider,
            leads=lambda: epoch() is not None,
            resource_of=resource_of,
            known=known,
        )
        self._ensure_only_asks = ensure_only_asks
        self._store = store
        self._provider = provider
        self._epoch = epoch
        self._outranked = outranked
        self._clock = clock
        self._on_event = on_event
        self._origin = origin
        self._cache = RecordCache(clock=clock, by_address=by_address)
        self._slots = asyncio.Semaphore(_PARALLEL)

    def __len__(self) -> int:
        return len(self._cache)

    def load(self, records: Iterable[BackendRecord]) -> list[BackendRecord]:
        """Load the stored records; return those of this provider, sorted by key."""
        ours = [record for record in records if record.spec.load_balancer.provider == self._provider]
        self._cache.load(ours)
        return sorted(ours, key=lambda record: record.key)

    def observed(self, old: BackendRecord | None, new: BackendRecord | None) -> None:
        """Apply changes of records by other clients: edits, deletions, removed finalizers."""
        record = new or old
        if record is None or record.spec.load_balancer.provider != self._provider:
            return
        event = self._cache.observe(record) if new is not None else self._cache.observe_deletion(record)
        if event is not None:
            self._on_event(event, record)

    def of(self, change: TargetChange) -> BackendRecord | None:
        """Return the record that ``change`` is about."""
        return self._cache.get(self._key(change))

    # --- the load balancer itself -----------------------------------------------------------------------------

    async def ensuring(self, spec: FrontendSpec) -> None:
        """Record that its provider is about to be asked for it."""
        self._term()
        if self.frontends.get(spec.key).state or not self._ensure_only_asks:
            await self.frontends.ensuring(spec, keeps_unfinished=self._ensure_only_asks)

    async def ensured(self, spec: FrontendSpec, answer: Ensured) -> None:
        """Record what the provider answered."""
        epoch = self._term()
        if self.frontends.get(spec.key).state == "Ensuring":
            await self._restate(spec, answer, epoch)
        await self.frontends.ensured(spec, answer)

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop what is known of a load balancer that is gone."""
        self.frontends.forget(key)

    async def _restate(self, spec: FrontendSpec, answer: Ensured, epoch: int) -> None:
        """Update the frontend in all records, so that they suffice to deregister after it is deleted."""
        info = self.frontends.info(spec.key) if answer.info is None else answer.info
        wanted = load_balancer_spec(spec, provider=self._provider, info=info)
        stale = [
            record for record in self._cache.of(spec.key) if not record.deleting and record.spec.load_balancer != wanted
        ]
        for record in stale:
            self._fence(record, epoch)
        new: JSONObject = msgspec.to_builtins(wanted)
        await self._all(
            partial(self._patch, record, {"spec": {"loadBalancer": nulls(record.spec.load_balancer, new)}})
            for record in stale
        )

    # --- intent -----------------------------------------------------------------------------------------------

    async def record(self, spec: FrontendSpec, changes: Sequence[TargetChange]) -> Sequence[TargetChange | Outcome]:
        """Store the intended changes; raises ``Retry`` when this replica no longer leads."""
        epoch = self._term()
        return await self._all(partial(self._intended, spec, change, epoch) for change in changes)

    def _term(self) -> int:
        epoch = self._epoch()
        if epoch is None:
            raise Retry(_NOT_LEADING, reason="NotLeading")
        return epoch

    async def _intended(self, spec: FrontendSpec, change: TargetChange, epoch: int) -> TargetChange | Outcome:
        try:
            answer = await self._intend(spec, change, epoch)
        except FairleadError as error:
            # A record that cannot be written does not stop the others.
            after_s = error.after_s or 0.0 if isinstance(error, Retry) else 0.0
            return Outcome(OutcomeStatus.RETRY, error.sentence, after_s)
        return msgspec.structs.replace(change, facts=facts_of(answer)) if isinstance(answer, BackendRecord) else answer

    async def _intend(self, spec: FrontendSpec, change: TargetChange, epoch: int) -> BackendRecord | Outcome:
        record = self._cache.get(self._key(change))
        if record is not None:
            self._fence(record, epoch)
        match change.action:
            case Action.REGISTER | Action.UPDATE:
                if change.target.draining and record is not None and self._cache.addresses.release(record):
                    return DONE
                record = await self._intend_registration(spec, change, record, epoch)
                return record if change.target.draining else await self._unless_taken_away(record, change)
            case Action.DRAIN:
                if record is None or self._cache.addresses.release(record):
                    return DONE
                return await self._mark(record, change)
            case Action.DEREGISTER:
                return await self._intend_deregistration(record, change, epoch)
            case Action.ENSURE | Action.DELETE:
                return DONE

    async def _intend_registration(
        self, spec: FrontendSpec, change: TargetChange, record: BackendRecord | None, epoch: int
    ) -> BackendRecord:
        origin = record.spec.target.origin if record is not None else self._origin(change)
        wanted = self._wanted(spec, change, epoch, origin)
        if record is None:
            body: JSONObject = {
                "metadata": {
                    "namespace": change.load_balancer.namespace,
                    "name": self._key(change)[1],
                    "labels": {
                        LABEL_MANAGED_BY: MANAGED_BY,
                        LABEL_LOAD_BALANCER: label_value(change.load_balancer.name),
                    },
                    "finalizers": [FINALIZER_DEREGISTER],
                },
                "spec": msgspec.to_builtins(wanted),
                "status": self._status(state_intended("Pending", change), change),
            }
            try:
                return self._cache.keep(await self._store.create(BACKEND_RECORDS, body))
            except AlreadyExists:
                # An earlier attempt whose answer was lost, or another process of ours.
                record = self._cache.keep(await self._store.get(BACKEND_RECORDS, *self._key(change)))
                self._fence(record, epoch)
                wanted = self._wanted(spec, change, epoch, record.spec.target.origin)
        if record.deleting:
            self._on_event(RecordEvent.DELETED, record)
            raise Retry(
                f"BackendRecord {'/'.join(record.key)} is being deregistered; the address is registered after that",
                reason="Deregistering",
            )
        held = FINALIZER_DEREGISTER in (record.metadata.finalizers or ())
        if held and msgspec.structs.replace(record.spec, epoch=epoch) == wanted:
            return record
        patch: JSONObject = {"spec": nulls(record.spec, msgspec.to_builtins(wanted))}
        if change.reason is not Reason.OWNERS_CHANGED:
            # Until the provider has answered, the new spec is only desired.
            patch["status"] = {"state": state_intended(record.status.state, change), "reason": change.reason.value}
        if not held:
            patch["metadata"] = {"finalizers": [*(record.metadata.finalizers or ()), FINALIZER_DEREGISTER]}
        return await self._patch(record, patch)

    async def _unless_taken_away(self, record: BackendRecord, change: TargetChange) -> BackendRecord | Outcome:
        """Delay a registration until another record of the same backend has been deregistered."""
        other = self._cache.addresses.acquire(record)
        if other is None or change.reason is Reason.OWNERS_CHANGED:
            return record
        text = f"waits: BackendRecord {'/'.join(other.key)} has the same address there, and is deregistered first"
        if record.status.message != text:
            await self._patch(record, {"status": {"message": text}})
        return Outcome(OutcomeStatus.RUNNING, f"{change.key} {text}", _POLL_S)

    def _wanted(
        self, spec: FrontendSpec, change: TargetChange, epoch: int, origin: RecordOrigin | None
    ) -> BackendRecordSpec:
        info = self.frontends.info(change.load_balancer)
        return record_spec(spec, change, provider=self._provider, info=info, epoch=epoch, origin=origin)

    async def _intend_deregistration(
        self, record: BackendRecord | None, change: TargetChange, epoch: int
    ) -> BackendRecord | Outcome:
        try:
            if record is None or record.deleting:
                # Begun before, by whomever: it may have been finished with its answer lost, or forgotten by hand.
                record = self._cache.keep(await self._store.get(BACKEND_RECORDS, *self._key(change)))
                self._fence(record, epoch)
            if FINALIZER_DEREGISTER not in (record.metadata.finalizers or ()):
                # Forgotten by an operator: no longer ours to deregister.
                await self._store.delete(BACKEND_RECORDS, *record.key, uid=record.metadata.uid)
                self._cache.mark_deleted(record.key)
                return DONE
            if self._cache.addresses.release(record):
                await self._release(record if record.deleting else await self._delete(record))
                return DONE
            record = await self._mark(record, change)
            if not record.deleting:
                record = await self._delete(record)
        except NotFound:
            self._cache.mark_deleted(self._key(change))
            return DONE
        return record

    async def _delete(self, record: BackendRecord) -> BackendRecord:
        await self._store.delete(BACKEND_RECORDS, *record.key, uid=record.metadata.uid)
        return self._cache.keep(await self._store.get(BACKEND_RECORDS, *record.key))

    async def _mark(self, record: BackendRecord, change: TargetChange) -> BackendRecord:
        state = state_intended(record.status.state, change)
        if record.status.state == state:
            return record
        return await self._patch(record, {"status": {**self._status(state, change), "message": ""}})

    def _status(self, state: RecordState, change: TargetChange) -> JSONObject:
        return {"state": state, "reason": change.reason.value, "since": self._now()}

    # --- result -----------------------------------------------------------------------------------------------

    async def settle(
        self, spec: FrontendSpec, changes: Sequence[TargetChange], outcomes: Sequence[Outcome]
    ) -> Sequence[Outcome]:
        """Store the outcomes; only here a deregistered record loses its finalizer."""
        del spec
        if self._epoch() is None:
            # The answer came when the term was over: the next leader asks again, and its word is the one that counts.
            return [Outcome(OutcomeStatus.RETRY, _NOT_LEADING) for _ in changes]
        return await self._all(
            partial(self._settled, change, outcome) for change, outcome in zip(changes, outcomes, strict=True)
        )

    async def _settled(self, change: TargetChange, outcome: Outcome) -> Outcome:
        record = self._cache.get(self._key(change))
        if record is None:
            return outcome
        if change.target.draining or change.action is Action.DEREGISTER:
            self._cache.addresses.acknowledge(record.key, done=outcome.status is OutcomeStatus.DONE)
        try:
            if outcome.status is OutcomeStatus.DONE and change.action is Action.DEREGISTER:
                if change.facts is not None and change.facts.record_id != record.metadata.uid:
                    # A namesake has taken its place meanwhile: it is held until it has been deregistered itself.
                    return Outcome(OutcomeStatus.RETRY, f"BackendRecord {'/'.join(record.key)} has been replaced")
                await self._release(record)
            else:
                await self._write_outcome(record, change, outcome)
        except NotFound:
            self._cache.mark_deleted(record.key)
        except FairleadError as error:
            return Outcome(OutcomeStatus.RETRY, error.sentence)
        return outcome

    async def _write_outcome(self, record: BackendRecord, change: TargetChange, outcome: Outcome) -> None:
        before, after = record.status.state, state_after(record.status.state, change, outcome.status)
        status: JSONObject = {}
        if outcome.injected_info is not None:
            status["injectedInfo"] = dict(outcome.injected_info)
        if outcome.generated_address:
            status["generatedAddress"] = outcome.generated_address
        match outcome.status:
            case OutcomeStatus.DONE if not change.is_removal:
                status |= {"state": after, "message": ""}
            case OutcomeStatus.RETRY | OutcomeStatus.REJECTED:
                status |= {"state": after, "message": outcome.message[:1024]}
            case OutcomeStatus.RUNNING if not outcome.generated_address:
                # Written once: what a provider says of its progress may be new each time that it is asked.
                if after != before or not record.status.message:
                    status |= {"state": after, "message": outcome.message[:1024]}
            case _:
                pass
        if status.get("state", before) == before:
            status.pop("state", None)
        else:
            status |= {"since": self._now(), "reason": change.reason.value}
        now: JSONObject = msgspec.to_builtins(record.status)
        if any((now.get(field) or "") != (value or "") for field, value in status.items()):
            if "injectedInfo" in status:
                status["injectedInfo"] = dict.fromkeys(record.status.injected_info or ()) | status["injectedInfo"]
            await self._patch(record, {"status": status})

    async def _release(self, record: BackendRecord) -> None:
        """Remove the finalizer of a record whose object is being deleted."""
        kept = [name for name in record.metadata.finalizers or () if name != FINALIZER_DEREGISTER]
        await self._patch(record, {"metadata": {"finalizers": kept or None}})
        if not kept:
            self._cache.mark_deleted(record.key)

    # --- inside -----------------------------------------------------------------------------------------------

    def _fence(self, record: BackendRecord, epoch: int) -> None:
        """Refuse to write what a newer leader has written: the leader raises its epoch first."""
        if record.spec.leader_epoch > epoch:
            self._outranked(record.spec.leader_epoch)
            text = f"BackendRecord {'/'.join(record.key)} was written by a leader with a higher epoch; write skipped"
            raise Retry(text, reason="Fenced")

    async def _patch(self, record: BackendRecord, patch: JSONObject) -> BackendRecord:
        """Write only onto the version that was read; raises ``Conflict`` when it is older than the one stored."""
        meta: JSONObject = {**patch.get("metadata", {}), "resourceVersion": record.metadata.resource_version}
        body = {**patch, "metadata": meta}
        try:
            new = await self._store.merge_patch(BACKEND_RECORDS, *record.key, body, manager=MANAGER_HUB)
        except Conflict:
            # Another client wrote in between: the record is read again before anything is retried.
            current: BackendRecord = await self._store.get(BACKEND_RECORDS, *record.key)
            self._cache.reread(current)
            if current.deleting and not record.deleting:
                self._on_event(RecordEvent.DELETED, current)
            raise
        return self._cache.keep(new)

    def _key(self, change: TargetChange) -> RecordKey:
        place = (change.load_balancer, change.listener, change.target.key)
        known = (change.load_balancer.namespace, record_name(*place))
        # Records of earlier releases are named without their provider; two of those may have the same place.
        return known if known in self._cache else (known[0], record_name(*place, provider=self._provider))

    async def _all(self, calls: Iterable[Callable[[], Awaitable[_T]]]) -> list[_T]:
        """Run record writes side by side, a bounded number at once."""

        async def bounded(call: Callable[[], Awaitable[_T]]) -> _T:
            async with self._slots:
                return await call()

        return await all_done(bounded(call) for call in calls)

    def _now(self) -> str:
        return wire_time(self._clock.now())


#: By action: the state that its intent sets.
_INTENDED: dict[Action, RecordState] = {
    Action.REGISTER: "Pending",
    Action.UPDATE: "Pending",
    Action.DRAIN: "Draining",
    Action.DEREGISTER: "Deregistering",
}

#: By (answer, state before); what is not listed stays as it was.
_AFTER: dict[tuple[OutcomeStatus, RecordState], RecordState] = {
    (OutcomeStatus.RUNNING, "Failed"): "Pending",
    **{
        (status, state): "Failed"
        for status in (OutcomeStatus.RETRY, OutcomeStatus.REJECTED)
        for state in ("", "Pending", "Draining", "Deregistering", "Failed")
    },
}


def state_intended(before: RecordState, change: TargetChange) -> RecordState:
    """Return the state of a record once it is stored that ``change`` is about to be asked for.

    Raises:
        Bug: the change is not about a backend.
    """
    if change.reason is Reason.OWNERS_CHANGED:
        return before
    if change.action not in _INTENDED:
        raise Bug(f"{change.action} is not a change of a backend")
    return _INTENDED[change.action]


def state_after(before: RecordState, change: TargetChange, status: OutcomeStatus) -> RecordState:
    """Return the state of a record once ``change`` was answered with ``status``."""
    if change.is_removal:
        return before  # its intent has set the state already
    if status is OutcomeStatus.DONE:
        return "Draining" if change.target.draining else "Registered"
    return _AFTER.get((status, before), before)


_HEAD = 40


def record_name(load_balancer: LoadBalancerKey, listener: ListenerKey, target: TargetKey, *, provider: str = "") -> str:
    """Name the record; readable at its head, unambiguous by its tail.

    ``provider``: while a load balancer moves, the same backend is on record for the one before and the one after.
    """
    # A part that is empty is left out: names of 0.1, which knew no backends of HTTP, stay as they are.
    place = (listener.protocol.value, str(listener.port), *filter(None, (listener.backend,)))
    parts = (*load_balancer, *place, target.address, str(target.port), *filter(None, (provider,)))
    identity = short_hash(*parts, size_bytes=10)
    return f"{load_balancer.name[:_HEAD].rstrip('-.')}-{identity}"
