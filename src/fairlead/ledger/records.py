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
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec
import structlog

from fairlead.api.backendrecord import (
    BACKEND_RECORDS,
    BackendRecord,
    BackendRecordSpec,
    RecordListener,
    RecordLoadBalancer,
    RecordState,
    RecordTarget,
)
from fairlead.api.meta import JSONObject
from fairlead.api.names import FINALIZER_DEREGISTER, LABEL_LOAD_BALANCER, LABEL_MANAGED_BY, MANAGED_BY, MANAGER_HUB
from fairlead.api.naming import label_value
from fairlead.errors import AlreadyExists, Conflict, NotFound, Retry
from fairlead.kube.cluster import Cluster
from fairlead.ledger.names import record_name
from fairlead.model.change import Action, BackendFacts, Outcome, OutcomeStatus, TargetChange
from fairlead.model.desired import LoadBalancerSpec, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from fairlead.runtime.clock import Clock

log = structlog.get_logger(__name__)

#: Record writes under way at once.
_PARALLEL = 32
RecordKey = tuple[str, str]


class RecordsLedger:
    """The records of one provider's load balancers. ``epoch`` answers the leader's term, None when we do not lead."""

    def __init__(self, *, cluster: Cluster, provider: str, epoch: Callable[[], int | None], clock: Clock) -> None:
        self._cluster = cluster
        self._provider = provider
        self._epoch = epoch
        self._clock = clock
        self._records: dict[RecordKey, BackendRecord] = {}
        #: The version of our own last write, until the watch has shown it: what it shows before that is older.
        self._awaited: dict[RecordKey, str] = {}
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
        if new is not None and new.spec.load_balancer.provider == self._provider:
            known, awaited = self._records.get(new.key), self._awaited.get(new.key)
            if awaited == new.metadata.resource_version:
                del self._awaited[new.key]
            elif awaited is None or known is None or known.metadata.uid != new.metadata.uid:
                self._records[new.key] = new
        elif new is None and old is not None:
            known = self._records.get(old.key)
            if known is not None and known.metadata.uid == old.metadata.uid:
                del self._records[old.key]
                self._awaited.pop(old.key, None)

    def of(self, change: TargetChange) -> BackendRecord | None:
        """Return the record that ``change`` is about."""
        return self._records.get(_key(change))

    # --- intent -----------------------------------------------------------------------------------------------

    async def record(self, spec: LoadBalancerSpec, changes: Sequence[TargetChange]) -> Sequence[TargetChange]:
        """Store what is about to be done; raises ``Retry`` when that is not ours to decide any more."""
        epoch = self._epoch()
        if epoch is None:
            raise Retry("this replica does not lead; nothing was done", reason="NotLeading")
        records = await self._all(self._intend(spec, change, epoch) for change in changes)
        return [
            msgspec.structs.replace(change, facts=_facts(record)) if record is not None else change
            for change, record in zip(changes, records, strict=True)
        ]

    async def _intend(self, spec: LoadBalancerSpec, change: TargetChange, epoch: int) -> BackendRecord | None:
        record = self._records.get(_key(change))
        if record is not None and record.spec.epoch > epoch:
            raise Retry(
                f"BackendRecord {'/'.join(record.key)} was written by a newer leader; nothing was done",
                reason="Fenced",
            )
        match change.action:
            case Action.REGISTER | Action.UPDATE:
                return await self._intend_registration(spec, change, record, epoch)
            case Action.DRAIN:
                return await self._mark(record, "Draining", change)
            case Action.DEREGISTER:
                return await self._intend_deregistration(record, change)
            case Action.ENSURE | Action.DELETE:
                return None

    async def _intend_registration(
        self, spec: LoadBalancerSpec, change: TargetChange, record: BackendRecord | None, epoch: int
    ) -> BackendRecord:
        wanted = _spec(spec, change, self._provider, epoch)
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
                return self._keep(await self._cluster.create(BACKEND_RECORDS, body))
            except AlreadyExists as error:
                raise Retry(error.sentence, reason="RecordExists") from error
        if record.deleting:
            raise Retry(
                f"BackendRecord {'/'.join(record.key)} is being deregistered; the address is registered after that",
                reason="Deregistering",
            )
        if msgspec.structs.replace(record.spec, epoch=epoch) == wanted and record.status.state == "Registered":
            return record
        state = record.status.state if change.action is Action.UPDATE else "Pending"
        return await self._patch(
            record,
            {
                "spec": {**msgspec.to_builtins(wanted), "owners": list(wanted.owners)},
                "status": {"state": state or "Pending", "reason": change.reason.value},
            },
        )

    async def _intend_deregistration(self, record: BackendRecord | None, change: TargetChange) -> BackendRecord | None:
        if record is None:
            # Forgotten by an operator who took the finalizer away: it is not ours to deregister any more.
            return None
        if record.status.state != "Deregistering":
            record = await self._mark(record, "Deregistering", change)
        if record is not None and not record.deleting:
            await self._cluster.delete(BACKEND_RECORDS, *record.key, uid=record.metadata.uid)
            record = self._keep(await self._cluster.get(BACKEND_RECORDS, *record.key))
        return record

    async def _mark(
        self, record: BackendRecord | None, state: RecordState, change: TargetChange
    ) -> BackendRecord | None:
        if record is None or record.status.state == state:
            return record
        status = {"state": state, "reason": change.reason.value, "message": "", "since": self._now()}
        return await self._patch(record, {"status": status})

    # --- result -----------------------------------------------------------------------------------------------

    async def settle(
        self, spec: LoadBalancerSpec, changes: Sequence[TargetChange], outcomes: Sequence[Outcome]
    ) -> None:
        """Store what came of it; a deregistered record loses its finalizer only here."""
        del spec
        await self._all(self._settle(change, outcome) for change, outcome in zip(changes, outcomes, strict=True))

    async def _settle(self, change: TargetChange, outcome: Outcome) -> None:
        record = self._records.get(_key(change))
        if record is None:
            return
        done = outcome.status is OutcomeStatus.DONE
        if done and change.action is Action.DEREGISTER:
            await self._release(record)
            return
        status: JSONObject = {}
        if outcome.injected_info is not None:
            status["injectedInfo"] = dict(outcome.injected_info)
        if outcome.generated_address:
            status["generatedAddress"] = outcome.generated_address
        if done and change.action in (Action.REGISTER, Action.UPDATE):
            status |= {"state": "Registered", "reason": change.reason.value, "message": ""}
        elif outcome.status in (OutcomeStatus.RETRY, OutcomeStatus.REJECTED):
            failed = {} if change.action in (Action.DRAIN, Action.DEREGISTER) else {"state": "Failed"}
            status |= {**failed, "reason": outcome.status.value, "message": outcome.message[:1024]}
        if status.get("state", record.status.state) != record.status.state:
            status["since"] = self._now()
        now = msgspec.to_builtins(record.status)
        if any(now.get(field, "") != value for field, value in status.items()):
            await self._patch(record, {"status": status})

    async def _release(self, record: BackendRecord) -> None:
        """Let the record go; the object is deleted already, and this was what held it."""
        kept = [one for one in record.metadata.finalizers or () if one != FINALIZER_DEREGISTER]
        try:
            await self._patch(record, {"metadata": {"finalizers": kept or None}})
        except NotFound:
            log.debug("record is gone already", record="/".join(record.key))
        if not kept:
            self._records.pop(record.key, None)
            self._awaited.pop(record.key, None)

    # --- inside -----------------------------------------------------------------------------------------------

    async def _patch(self, record: BackendRecord, patch: JSONObject) -> BackendRecord:
        """Write only onto the version that we have read: whoever reads an older one is refused."""
        meta: JSONObject = {**patch.get("metadata", {}), "resourceVersion": record.metadata.resource_version}
        body = {**patch, "metadata": meta}
        try:
            new = await self._cluster.merge_patch(BACKEND_RECORDS, *record.key, body, manager=MANAGER_HUB)
        except Conflict:
            # Somebody wrote between; what they wrote is looked at before anything is tried again.
            self._awaited.pop(record.key, None)
            self._records[record.key] = await self._cluster.get(BACKEND_RECORDS, *record.key)
            raise
        return self._keep(new)

    def _keep(self, record: BackendRecord) -> BackendRecord:
        self._records[record.key] = record
        self._awaited[record.key] = record.metadata.resource_version
        return record

    async def _all(self, calls: Iterable[Awaitable[BackendRecord | None]]) -> list[BackendRecord | None]:
        """Run record writes side by side, a bounded number at once; the first failure is raised when all are done."""

        async def one(call: Awaitable[BackendRecord | None]) -> BackendRecord | None:
            async with self._slots:
                return await call

        answers = await asyncio.gather(*(one(call) for call in calls), return_exceptions=True)
        results: list[BackendRecord | None] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            results.append(answer)
        return results

    def _now(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


def load_balancer_of(record: BackendRecord) -> LoadBalancerKey:
    """Return the load balancer that a record is about."""
    one = record.spec.load_balancer
    return LoadBalancerKey(one.kind, one.namespace, one.name)


def listener_of(record: BackendRecord) -> ListenerKey:
    """Return the listener that a record is about."""
    return ListenerKey(Protocol(record.spec.listener.protocol), record.spec.listener.port)


def target_of(record: BackendRecord) -> Target:
    """Return the target as it was recorded."""
    spec = record.spec
    return Target(
        TargetKey(spec.target.address, spec.target.port),
        weight=spec.target.weight,
        draining=record.status.state in ("Draining", "Deregistering"),
        owners=tuple(sorted(spec.owners)),
        parameters=tuple(sorted(spec.parameters.items())),
        source=spec.target.source,
    )


def _spec(spec: LoadBalancerSpec, change: TargetChange, provider: str, epoch: int) -> BackendRecordSpec:
    key, target = change.load_balancer, change.target
    names = {listener.key: listener.name for listener in spec.listeners}
    return BackendRecordSpec(
        load_balancer=RecordLoadBalancer(key.kind, key.namespace, key.name, provider, parameters=dict(spec.parameters)),
        listener=RecordListener(change.listener.port, change.listener.protocol.value, names.get(change.listener, "")),
        target=RecordTarget(target.key.address, target.key.port, target.weight, target.source),
        owners=list(target.owners),
        parameters=dict(target.parameters),
        epoch=epoch,
    )


def _facts(record: BackendRecord) -> BackendFacts:
    return BackendFacts(
        record_id=record.metadata.uid,
        generated_address=record.status.generated_address,
        injected_info=_plain(record.status.injected_info),
        parameters=_plain(record.spec.parameters),
    )


def _plain(mapping: Mapping[str, str] | None) -> Mapping[str, str]:
    return mapping or {}


def _key(change: TargetChange) -> RecordKey:
    name = record_name(change.load_balancer, change.listener, change.target.key)
    return (change.load_balancer.namespace, name)
