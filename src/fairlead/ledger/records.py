"""The durable ledger: one BackendRecord for each backend that is, or may be, registered.

    register      create (finalizer, Pending) ──► provider ──► Registered, or Failed
    update        the new wish                ──► provider ──► Registered
    drain         Draining                    ──► provider
    deregister    Deregistering, delete       ──► provider ──► finalizer removed, and it is gone

Intent first, at every step. Writes carry the resourceVersion that was read and the epoch of the leader: one who has
lost the lease without noticing is refused by the API server, or by the record itself, before the provider is called.
In: changes. Out: the same with what is on record added. Never: a record that goes while its backend may be registered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import StrEnum
from functools import partial
from typing import TypeVar

import msgspec
import structlog

from fairlead.api.backendrecord import BACKEND_RECORDS, BackendRecord, RecordState
from fairlead.api.meta import JSONObject
from fairlead.api.names import FINALIZER_DEREGISTER, LABEL_LOAD_BALANCER, LABEL_MANAGED_BY, MANAGED_BY, MANAGER_HUB
from fairlead.api.naming import label_value
from fairlead.api.times import wire_time
from fairlead.errors import AlreadyExists, Conflict, FairleadError, NotFound, Retry
from fairlead.ledger.frontends import Frontends
from fairlead.ledger.names import record_name
from fairlead.ledger.store import Store
from fairlead.ledger.wire import facts_of, record_spec
from fairlead.model.change import DONE, Action, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import LoadBalancerSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Ensured
from fairlead.runtime.clock import Clock

log = structlog.get_logger(__name__)

#: Record writes under way at once.
_PARALLEL = 32
RecordKey = tuple[str, str]
_T = TypeVar("_T")


class Happened(StrEnum):
    """What somebody else did to a record."""

    #: One that this process did not write.
    APPEARED = "Appeared"
    #: Its deletion has been asked for: exactly this backend is to be deregistered.
    DELETED = "Deleted"
    #: It is gone, with its finalizer: it was forgotten, and nobody is to be called.
    GONE = "Gone"


class RecordsLedger:
    """The records of one provider's load balancers.

    ``epoch`` answers the leader's term, None when we do not lead. ``told`` hears what others do to records.
    """

    def __init__(
        self,
        *,
        store: Store,
        provider: str,
        epoch: Callable[[], int | None],
        clock: Clock,
        told: Callable[[Happened, BackendRecord], None] = lambda _happened, _record: None,
    ) -> None:
        self.frontends = Frontends(store=store, provider=provider)
        self._store = store
        self._provider = provider
        self._epoch = epoch
        self._clock = clock
        self._told = told
        self._records: dict[RecordKey, BackendRecord] = {}
        #: The version of our own last write, until the watch has shown it: what it shows before that is older.
        self._awaited: dict[RecordKey, str] = {}
        #: Records that we know to be gone, until the watch has shown that: what it shows before is history.
        self._buried: set[str] = set()
        self._slots = asyncio.Semaphore(_PARALLEL)

    def __len__(self) -> int:
        return len(self._records)

    def load(self, records: Iterable[BackendRecord]) -> list[BackendRecord]:
        """Take over what is on record; returns those of this provider, ordered by key."""
        ours = [record for record in records if record.spec.load_balancer.provider == self._provider]
        self._records.update((record.key, record) for record in ours)
        return sorted(ours, key=lambda record: record.key)

    def observed(self, old: BackendRecord | None, new: BackendRecord | None) -> None:
        """Keep up with what others do to records: edits, deletions, finalizers taken away."""
        if new is not None:
            if new.spec.load_balancer.provider == self._provider:
                self._observed(new)
            return
        if old is not None:
            self._buried.discard(old.metadata.uid)
        known = self._records.get(old.key) if old is not None else None
        if old is not None and known is not None and known.metadata.uid == old.metadata.uid:
            self._forget(old.key)
            self._told(Happened.GONE, old)

    def _observed(self, new: BackendRecord) -> None:
        if new.metadata.uid in self._buried:
            return
        known, awaited = self._records.get(new.key), self._awaited.get(new.key)
        if known is None or known.metadata.uid != new.metadata.uid:
            self._records[new.key] = new
            self._told(Happened.APPEARED, new)
            return
        if awaited == new.metadata.resource_version:
            del self._awaited[new.key]
        elif awaited is None or (new.deleting and not known.deleting):
            self._records[new.key] = new
            self._awaited.pop(new.key, None)
            if new.deleting and not known.deleting:
                self._told(Happened.DELETED, new)

    def of(self, change: TargetChange) -> BackendRecord | None:
        """Return the record that ``change`` is about."""
        return self._records.get(_key(change))

    # --- the load balancer itself -----------------------------------------------------------------------------

    async def ensuring(self, spec: LoadBalancerSpec) -> None:
        """Record that its provider is about to be asked for it."""
        self._term()
        await self.frontends.ensuring(spec)

    async def ensured(self, spec: LoadBalancerSpec, answer: Ensured) -> None:
        """Record what the provider answered."""
        await self.frontends.ensured(spec, answer)

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop what is known of a load balancer that is gone."""
        self.frontends.forget(key)

    # --- intent -----------------------------------------------------------------------------------------------

    async def record(self, spec: LoadBalancerSpec, changes: Sequence[TargetChange]) -> Sequence[TargetChange | Outcome]:
        """Store what is about to be done; raises ``Retry`` when that is not ours to decide any more."""
        epoch = self._term()
        return await self._all(partial(self._intended, spec, change, epoch) for change in changes)

    def _term(self) -> int:
        epoch = self._epoch()
        if epoch is None:
            raise Retry("this replica does not lead; nothing was done", reason="NotLeading")
        return epoch

    async def _intended(self, spec: LoadBalancerSpec, change: TargetChange, epoch: int) -> TargetChange | Outcome:
        try:
            found = await self._intend(spec, change, epoch)
        except FairleadError as error:
            # One record that cannot be written is no reason to leave the others.
            after_s = error.after_s or 0.0 if isinstance(error, Retry) else 0.0
            return Outcome(OutcomeStatus.RETRY, error.sentence, after_s)
        return msgspec.structs.replace(change, facts=facts_of(found)) if isinstance(found, BackendRecord) else found

    async def _intend(self, spec: LoadBalancerSpec, change: TargetChange, epoch: int) -> BackendRecord | Outcome:
        record = self._records.get(_key(change))
        if record is not None and record.spec.epoch > epoch:
            text = f"BackendRecord {'/'.join(record.key)} was written by a newer leader; nothing was done"
            raise Retry(text, reason="Fenced")
        match change.action:
            case Action.REGISTER | Action.UPDATE:
                return await self._intend_registration(spec, change, record, epoch)
            case Action.DRAIN:
                return await self._mark(record, "Draining", change) if record is not None else DONE
            case Action.DEREGISTER:
                return await self._intend_deregistration(record, change)
            case Action.ENSURE | Action.DELETE:
                return DONE

    async def _intend_registration(
        self, spec: LoadBalancerSpec, change: TargetChange, record: BackendRecord | None, epoch: int
    ) -> BackendRecord:
        info = self.frontends.info(change.load_balancer)
        wanted = record_spec(spec, change, provider=self._provider, info=info, epoch=epoch)
        if record is None:
            body: JSONObject = {
                "metadata": {
                    "namespace": change.load_balancer.namespace,
                    "name": _key(change)[1],
                    "labels": {
                        LABEL_MANAGED_BY: MANAGED_BY,
                        LABEL_LOAD_BALANCER: label_value(change.load_balancer.name),
                    },
                    "finalizers": [FINALIZER_DEREGISTER],
                },
                "spec": msgspec.to_builtins(wanted),
                "status": {"state": "Pending", "reason": change.reason.value, "since": self._now()},
            }
            try:
                return self._keep(await self._store.create(BACKEND_RECORDS, body))
            except AlreadyExists:
                # An earlier attempt whose answer was lost, or another process of ours.
                record = self._keep(await self._store.get(BACKEND_RECORDS, *_key(change)))
        if record.deleting:
            self._told(Happened.DELETED, record)
            raise Retry(
                f"BackendRecord {'/'.join(record.key)} is being deregistered; the address is registered after that",
                reason="Deregistering",
            )
        held = FINALIZER_DEREGISTER in (record.metadata.finalizers or ())
        if held and msgspec.structs.replace(record.spec, epoch=epoch) == wanted:
            return record
        patch: JSONObject = {"spec": _whole(record, msgspec.to_builtins(wanted))}
        if change.reason is not Reason.OWNERS_CHANGED:
            # Until the provider has answered, the new wish is no more than a wish.
            patch["status"] = {"state": "Pending", "reason": change.reason.value}
        if not held:
            patch["metadata"] = {"finalizers": [*(record.metadata.finalizers or ()), FINALIZER_DEREGISTER]}
        return await self._patch(record, patch)

    async def _intend_deregistration(
        self, record: BackendRecord | None, change: TargetChange
    ) -> BackendRecord | Outcome:
        try:
            if record is None or record.deleting:
                # Begun before, by whomever: it may have been finished with its answer lost, or forgotten by hand.
                record = self._keep(await self._store.get(BACKEND_RECORDS, *_key(change)))
            if FINALIZER_DEREGISTER not in (record.metadata.finalizers or ()):
                # Forgotten by an operator: it is not ours to deregister any more.
                await self._store.delete(BACKEND_RECORDS, *record.key, uid=record.metadata.uid)
                self._drop(record.key)
                return DONE
            if record.status.state != "Deregistering":
                record = await self._mark(record, "Deregistering", change)
            if not record.deleting:
                await self._store.delete(BACKEND_RECORDS, *record.key, uid=record.metadata.uid)
                record = self._keep(await self._store.get(BACKEND_RECORDS, *record.key))
        except NotFound:
            self._drop(_key(change))
            return DONE
        return record

    async def _mark(self, record: BackendRecord, state: RecordState, change: TargetChange) -> BackendRecord:
        if record.status.state == state:
            return record
        status = {"state": state, "reason": change.reason.value, "message": "", "since": self._now()}
        return await self._patch(record, {"status": status})

    # --- result -----------------------------------------------------------------------------------------------

    async def settle(
        self, spec: LoadBalancerSpec, changes: Sequence[TargetChange], outcomes: Sequence[Outcome]
    ) -> Sequence[Outcome]:
        """Store what came of it; a deregistered record loses its finalizer only here."""
        del spec
        return await self._all(
            partial(self._settled, change, outcome) for change, outcome in zip(changes, outcomes, strict=True)
        )

    async def _settled(self, change: TargetChange, outcome: Outcome) -> Outcome:
        record = self._records.get(_key(change))
        if record is None:
            return outcome
        try:
            if outcome.status is OutcomeStatus.DONE and change.action is Action.DEREGISTER:
                if change.facts is not None and change.facts.record_id != record.metadata.uid:
                    # A namesake has taken its place meanwhile: it is held until it has been deregistered itself.
                    return Outcome(OutcomeStatus.RETRY, f"BackendRecord {'/'.join(record.key)} is another one by now")
                await self._release(record)
            else:
                await self._tell(record, change, outcome)
        except NotFound:
            self._drop(record.key)
        except FairleadError as error:
            return Outcome(OutcomeStatus.RETRY, error.sentence)
        return outcome

    async def _tell(self, record: BackendRecord, change: TargetChange, outcome: Outcome) -> None:
        status: JSONObject = {}
        leaves = change.action in (Action.DRAIN, Action.DEREGISTER)
        if outcome.injected_info is not None:
            status["injectedInfo"] = dict(outcome.injected_info)
        if outcome.generated_address:
            status["generatedAddress"] = outcome.generated_address
        if outcome.status is OutcomeStatus.DONE and not leaves:
            state = "Draining" if change.target.draining else "Registered"
            status |= {"state": state, "message": ""}
        elif outcome.status in (OutcomeStatus.RETRY, OutcomeStatus.REJECTED):
            failed = {} if leaves or record.status.state == "Registered" else {"state": "Failed"}
            status |= {**failed, "message": outcome.message[:1024]}
        if status.get("state", record.status.state) != record.status.state:
            status |= {"since": self._now(), "reason": change.reason.value}
        now: JSONObject = msgspec.to_builtins(record.status)
        if any((now.get(field) or "") != (value or "") for field, value in status.items()):
            if "injectedInfo" in status:
                status["injectedInfo"] = dict.fromkeys(record.status.injected_info or ()) | status["injectedInfo"]
            await self._patch(record, {"status": status})

    async def _release(self, record: BackendRecord) -> None:
        """Let the record go; the object is deleted already, and this was what held it."""
        kept = [one for one in record.metadata.finalizers or () if one != FINALIZER_DEREGISTER]
        await self._patch(record, {"metadata": {"finalizers": kept or None}})
        if not kept:
            self._drop(record.key)

    # --- inside -----------------------------------------------------------------------------------------------

    async def _patch(self, record: BackendRecord, patch: JSONObject) -> BackendRecord:
        """Write only onto the version that we have read: whoever reads an older one is refused."""
        meta: JSONObject = {**patch.get("metadata", {}), "resourceVersion": record.metadata.resource_version}
        body = {**patch, "metadata": meta}
        try:
            new = await self._store.merge_patch(BACKEND_RECORDS, *record.key, body, manager=MANAGER_HUB)
        except Conflict:
            # Somebody wrote between; what they wrote is looked at before anything is tried again.
            self._awaited.pop(record.key, None)
            found: BackendRecord = await self._store.get(BACKEND_RECORDS, *record.key)
            self._records[record.key] = found
            if found.deleting and not record.deleting:
                self._told(Happened.DELETED, found)
            raise
        return self._keep(new)

    def _keep(self, record: BackendRecord) -> BackendRecord:
        self._records[record.key] = record
        self._awaited[record.key] = record.metadata.resource_version
        return record

    def _drop(self, key: RecordKey) -> None:
        if (known := self._records.get(key)) is not None:
            self._buried.add(known.metadata.uid)
        self._forget(key)

    def _forget(self, key: RecordKey) -> None:
        self._records.pop(key, None)
        self._awaited.pop(key, None)

    async def _all(self, calls: Iterable[Callable[[], Awaitable[_T]]]) -> list[_T]:
        """Run record writes side by side, a bounded number at once."""

        async def one(call: Callable[[], Awaitable[_T]]) -> _T:
            async with self._slots:
                return await call()

        return await asyncio.gather(*(one(call) for call in calls))

    def _now(self) -> str:
        return wire_time(self._clock.now())


def _whole(record: BackendRecord, wanted: JSONObject) -> JSONObject:
    """Return a merge patch that leaves nothing of the old spec behind: what is not wanted any more is null."""
    return _nulls(msgspec.to_builtins(record.spec), wanted)


def _nulls(old: JSONObject, new: JSONObject) -> JSONObject:
    out: JSONObject = dict.fromkeys(old.keys() - new.keys())
    for key, value in new.items():
        before = old.get(key)
        out[key] = _nulls(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return out


def _key(change: TargetChange) -> RecordKey:
    name = record_name(change.load_balancer, change.listener, change.target.key)
    return (change.load_balancer.namespace, name)
