"""The durable ledger: one BackendRecord for each backend that is, or may be, registered.

    register      create (finalizer, Pending) ──► provider ──► Registered, or Failed
    update        the new spec                ──► provider ──► Registered
    drain         Draining                    ──► provider
    deregister    Deregistering, delete       ──► provider ──► finalizer removed, and it is gone

Intent first, at every step. Writes carry the resourceVersion that was read and the epoch of the leader: a replica that
lost the lease without noticing is refused by the API server, or by the record itself, before the provider is called.
A record has everything that a provider needs to deregister its backend: pod, group, node and load balancer may be gone.

The cache has this process's own writes and what the watch shows of others:

    our own write             true at once; older versions from the watch are skipped
    seen, not written by us   written by another client: it is applied and reported; also a version after ours, when the
                              watch was interrupted and never shows ours
    known to be deleted       further events of it are history, for as long as a server replays history

Versions are decimal numbers that grow, as every API server promises; others are compared for equality only.
In: changes, records from writes, reads and watches. Out: changes with their recorded facts; what other clients did.
Never: a record that is deleted while its backend may be registered.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TypeVar

import msgspec
import structlog

from fairlead.api.backendgroup import (
    BACKEND_RECORDS,
    BackendRecord,
    BackendRecordSpec,
    RecordListener,
    RecordLoadBalancer,
    RecordOrigin,
    RecordState,
    RecordTarget,
)
from fairlead.api.meta import JSONObject, is_newer
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
from fairlead.kube.cluster import Cluster
from fairlead.ledger.frontends import FrontendRecords, KnownObject, ResourceOf, unknown_object
from fairlead.model.change import DONE, Action, BackendFacts, Outcome, OutcomeStatus, Reason, TargetChange
from fairlead.model.desired import FrontendSpec, Listener, Owner, Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
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

    ``epoch`` returns the leader's term, None when this replica does not lead; ``outranked`` is called with a higher
    recorded one. ``on_event`` is called with changes of records by other clients. ``origin`` is called once for each
    new record: the object from which the provider may generate the address. ``by_address``: the provider identifies
    backends by their addresses, so that records of one address share a backend. ``ensure_only_asks``: the provider's
    ``ensure`` creates nothing, so that a new load balancer needs no record before. ``known``: the cached object of a
    load balancer, None without one.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
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
            cluster=cluster, provider=provider, leads=lambda: epoch() is not None, resource_of=resource_of, known=known
        )
        self._ensure_only_asks = ensure_only_asks
        self._cluster = cluster
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
        """Record the request to the provider before it is sent."""
        self._term()
        if self.frontends.get(spec.key).state or not self._ensure_only_asks:
            await self.frontends.ensuring(spec, keeps_unfinished=self._ensure_only_asks)

    async def ensured(self, spec: FrontendSpec, answer: Ensured) -> None:
        """Record the answer of the provider."""
        epoch = self._term()
        if self.frontends.get(spec.key).state == "Ensuring":
            await self._restate(spec, answer, epoch)
        await self.frontends.ensured(spec, answer)

    def forget(self, key: LoadBalancerKey) -> None:
        """Forget a load balancer that was deleted."""
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
            return Outcome(OutcomeStatus.RETRY, error.sentence, error.after_s or 0.0)
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
                return self._cache.keep(await self._cluster.create(BACKEND_RECORDS, body))
            except AlreadyExists:
                # An earlier attempt whose answer was lost, or another process of ours.
                record = self._cache.keep(await self._cluster.get(BACKEND_RECORDS, *self._key(change)))
                self._fence(record, epoch)
                wanted = self._wanted(spec, change, epoch, record.spec.target.origin)
        if record.deleting:
            self._on_event(RecordEvent.DELETED, record)
            raise Retry(
                f"BackendRecord {'/'.join(record.key)} is being deregistered; the address is registered afterwards",
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
        text = f"waits until BackendRecord {'/'.join(other.key)} with the same address is deregistered"
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
                # Begun before: it may be done with its answer lost, or the finalizer was removed by hand.
                record = self._cache.keep(await self._cluster.get(BACKEND_RECORDS, *self._key(change)))
                self._fence(record, epoch)
            if FINALIZER_DEREGISTER not in (record.metadata.finalizers or ()):
                # An operator removed the finalizer: the backend is no longer ours to deregister.
                await self._cluster.delete(BACKEND_RECORDS, *record.key, uid=record.metadata.uid)
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
        await self._cluster.delete(BACKEND_RECORDS, *record.key, uid=record.metadata.uid)
        return self._cache.keep(await self._cluster.get(BACKEND_RECORDS, *record.key))

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
            # The answer arrived after the term: the next leader repeats the call, and its answer counts.
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
                    # Another record of this name exists now: it is kept until its own backend is deregistered.
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
                # Written once: a provider may report its progress with a new message at each call.
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
        """Refuse to overwrite a record of a newer leader, until this leader has raised its epoch."""
        if record.spec.leader_epoch > epoch:
            self._outranked(record.spec.leader_epoch)
            text = f"BackendRecord {'/'.join(record.key)} was written by a leader with a higher epoch; write skipped"
            raise Retry(text, reason="Fenced")

    async def _patch(self, record: BackendRecord, patch: JSONObject) -> BackendRecord:
        """Write only onto the version that was read; raises ``Conflict`` when it is no longer the stored one."""
        meta: JSONObject = {**patch.get("metadata", {}), "resourceVersion": record.metadata.resource_version}
        body = {**patch, "metadata": meta}
        try:
            new = await self._cluster.merge_patch(BACKEND_RECORDS, *record.key, body, manager=MANAGER_HUB)
        except Conflict:
            # Another client wrote in between: the record is read again before anything is retried.
            current: BackendRecord = await self._cluster.get(BACKEND_RECORDS, *record.key)
            self._cache.reread(current)
            if current.deleting and not record.deleting:
                self._on_event(RecordEvent.DELETED, current)
            raise
        return self._cache.keep(new)

    def _key(self, change: TargetChange) -> RecordKey:
        place = (change.load_balancer, change.listener, change.target.key)
        known = (change.load_balancer.namespace, record_name(*place))
        # Records of earlier releases are named without their provider.
        return known if known in self._cache else (known[0], record_name(*place, provider=self._provider))

    async def _all(self, calls: Iterable[Callable[[], Awaitable[_T]]]) -> list[_T]:
        """Run record writes in parallel, up to a limit."""

        async def bounded(call: Callable[[], Awaitable[_T]]) -> _T:
            async with self._slots:
                return await call()

        return await all_done(bounded(call) for call in calls)

    def _now(self) -> str:
        return wire_time(self._clock.now())


#: The state that the intent of an action sets.
_INTENDED: dict[Action, RecordState] = {
    Action.REGISTER: "Pending",
    Action.UPDATE: "Pending",
    Action.DRAIN: "Draining",
    Action.DEREGISTER: "Deregistering",
}

#: By (answer, state before); any other state stays.
_AFTER: dict[tuple[OutcomeStatus, RecordState], RecordState] = {
    (OutcomeStatus.RUNNING, "Failed"): "Pending",
    **{
        (status, state): "Failed"
        for status in (OutcomeStatus.RETRY, OutcomeStatus.REJECTED)
        for state in ("", "Pending", "Draining", "Deregistering", "Failed")
    },
}


def state_intended(before: RecordState, change: TargetChange) -> RecordState:
    """Return the state of a record while ``change`` is intended.

    Raises:
        Bug: the change is not about a backend.
    """
    if change.reason is Reason.OWNERS_CHANGED:
        return before
    if change.action not in _INTENDED:
        raise Bug(f"{change.action} is not a change of a backend")
    return _INTENDED[change.action]


def state_after(before: RecordState, change: TargetChange, status: OutcomeStatus) -> RecordState:
    """Return the state of a record after ``change`` was answered with ``status``."""
    if change.is_removal:
        return before  # its intent has set the state already
    if status is OutcomeStatus.DONE:
        return "Draining" if change.target.draining else "Registered"
    return _AFTER.get((status, before), before)


_HEAD = 40


def record_name(load_balancer: LoadBalancerKey, listener: ListenerKey, target: TargetKey, *, provider: str = "") -> str:
    """Name the record: a readable head, and a digest that makes it unique.

    ``provider``: while a load balancer moves, the same backend is recorded for both providers.
    """
    # An empty part is left out: names of 0.1, which had no backends of HTTP, stay as they are.
    place = (listener.protocol.value, str(listener.port), *filter(None, (listener.backend,)))
    parts = (*load_balancer, *place, target.address, str(target.port), *filter(None, (provider,)))
    identity = short_hash(*parts, size_bytes=10)
    return f"{load_balancer.name[:_HEAD].rstrip('-.')}-{identity}"


def load_balancer_of(record: BackendRecord) -> LoadBalancerKey:
    """Return the load balancer that a record is about."""
    spec = record.spec.load_balancer
    return LoadBalancerKey(spec.kind, spec.namespace, spec.name)


def listener_of(record: BackendRecord) -> ListenerKey:
    """Return the listener that a record is about."""
    listener = record.spec.listener
    return ListenerKey(Protocol(listener.protocol), listener.port, listener.backend)


def target_of(record: BackendRecord) -> Target:
    """Return the recorded target."""
    spec = record.spec
    return Target(
        TargetKey(spec.target.address, spec.target.port),
        weight=spec.target.weight,
        draining=spec.target.draining,
        owners=tuple(sorted(spec.owners or ())),
        parameters=tuple(sorted((spec.parameters or {}).items())),
        source=spec.target.source,
    )


def spec_of(records: Sequence[BackendRecord]) -> FrontendSpec:
    """Return the load balancer as its records describe it, for when its own object is deleted."""
    spec = records[0].spec.load_balancer
    listeners = {
        listener_of(record): Listener(
            record.spec.listener.port, Protocol(record.spec.listener.protocol), record.spec.listener.name
        )
        for record in records
        if not record.spec.listener.backend
    }
    return FrontendSpec(
        key=load_balancer_of(records[0]),
        group=spec.namespace,
        listeners=tuple(sorted(listeners.values(), key=lambda listener: (listener.port, listener.protocol))),
        parameters=dict(spec.parameters or {}),
        attributes=dict(spec.attributes or {}),
        owner=Owner(kind=spec.kind, namespace=spec.namespace, name=spec.name, uid=spec.uid),
        existing=spec.existing,
    )


def load_balancer_spec(spec: FrontendSpec, *, provider: str, info: Mapping[str, str]) -> RecordLoadBalancer:
    """Return the part of each record about the load balancer itself."""
    return RecordLoadBalancer(
        spec.key.kind,
        spec.key.namespace,
        spec.key.name,
        provider,
        parameters=dict(spec.parameters),
        attributes=dict(spec.attributes),
        info=dict(info),
        existing=spec.existing,
        uid=spec.owner.uid,
    )


def record_spec(
    spec: FrontendSpec,
    change: TargetChange,
    *,
    provider: str,
    info: Mapping[str, str],
    epoch: int,
    origin: RecordOrigin | None = None,
) -> BackendRecordSpec:
    """Return the spec of the record for one change."""
    target = change.target
    names = {listener.key: listener.name for listener in spec.listeners}
    return BackendRecordSpec(
        load_balancer=load_balancer_spec(spec, provider=provider, info=info),
        listener=RecordListener(
            change.listener.port,
            change.listener.protocol.value,
            names.get(change.listener, ""),
            change.listener.backend,
        ),
        target=RecordTarget(
            target.key.address,
            target.key.port,
            target.weight,
            target.source,
            target.draining,
            origin,
            _named(target.source),
        ),
        owners=list(target.owners),
        parameters=dict(target.parameters),
        epoch=epoch,
    )


def _named(source: str) -> str:
    kind, _, rest = source.partition("/")
    parts = rest.split("/")
    return f"{kind}/{parts[1]}" if len(parts) > 1 else ""


def facts_of(record: BackendRecord) -> BackendFacts:
    """Return the recorded input of a provider, in addition to the change."""
    return BackendFacts(
        record_id=record.metadata.uid,
        generated_address=record.status.generated_address,
        injected_info=record.status.injected_info or {},
        parameters=record.spec.parameters or {},
        origin=_origin(record.spec),
    )


def _origin(spec: BackendRecordSpec) -> Mapping[str, object]:
    """Return the object that an address is generated from, in the form of the driver protocol."""
    origin = spec.target.origin
    if origin is None:
        return {}
    meta = {"namespace": origin.namespace, "name": origin.name, "uid": origin.uid, "labels": origin.labels or {}}
    protocol = spec.listener.protocol
    if origin.kind == "Pod":
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta,
            "spec": {"nodeName": origin.node_name},
            "status": {"phase": origin.phase, "podIP": spec.target.address},
        }
        return {"podBackend": {"pod": pod, "port": _port(spec.target.port, protocol)}}
    ports = [{"port": origin.service_port, "nodePort": spec.target.port, "protocol": protocol}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"type": "NodePort", "ports": ports}}
    return {
        "serviceBackend": {
            "service": service,
            "port": _port(origin.service_port, protocol),
            "nodeName": origin.node_name,
            "nodeAddresses": msgspec.to_builtins(origin.node_addresses or []),
        }
    }


def _port(number: int, protocol: str) -> Mapping[str, object]:
    # portNumber is the former name in the protocol; drivers may still read it.
    return {"port": number, "portNumber": number, "protocol": protocol}


def nulls(old: object, new: JSONObject) -> JSONObject:
    """Return a merge patch that leaves nothing of ``old`` behind: fields that are missing in ``new`` are null."""
    return _nulls(msgspec.to_builtins(old), new)


def _nulls(old: JSONObject, new: JSONObject) -> JSONObject:
    out: JSONObject = dict.fromkeys(old.keys() - new.keys())
    for key, value in new.items():
        before = old.get(key)
        out[key] = _nulls(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return out


RecordKey = tuple[str, str]

#: A server replays five minutes of history to a watch that was interrupted; after that, a list shows the state.
HISTORY_S = 900.0


class RecordEvent(StrEnum):
    """A change of a record by another client."""

    #: Another client created it.
    APPEARED = "Appeared"
    #: Its content was changed: it is compared with the desired state, as after a restart.
    EDITED = "Edited"
    #: It is being deleted: exactly this backend must be deregistered.
    DELETED = "Deleted"
    #: It was deleted without its finalizer: the backend is forgotten, without a call.
    GONE = "Gone"


class RecordCache:
    """The records of one provider, by key. ``addresses`` is filled where the provider generates addresses."""

    def __init__(self, *, clock: Clock, by_address: bool = False) -> None:
        self._clock = clock
        self.addresses = RecordAddresses()
        self._by_address = by_address
        self._records: dict[RecordKey, BackendRecord] = {}
        self._of: dict[LoadBalancerKey, dict[RecordKey, None]] = {}
        #: The version of our own last write, until the watch has shown it: earlier events are older.
        self._awaited: dict[RecordKey, str] = {}
        #: Known deletions by UID, with their time, until the watch has shown them. Oldest first.
        self._deleted: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, key: RecordKey) -> bool:
        return key in self._records

    def get(self, key: RecordKey) -> BackendRecord | None:
        """Return the newest known version of one record."""
        return self._records.get(key)

    def of(self, key: LoadBalancerKey) -> list[BackendRecord]:
        """Return the records of one load balancer, unsorted."""
        return [self._records[record_key] for record_key in self._of.get(key, ())]

    def load(self, records: Iterable[BackendRecord]) -> None:
        """Load the stored entries."""
        for record in records:
            self._put(record)

    def keep(self, record: BackendRecord) -> BackendRecord:
        """Store our own write, or a read that is newer than every watch event."""
        self._put(record)
        self._awaited[record.key] = record.metadata.resource_version
        return record

    def reread(self, record: BackendRecord) -> None:
        """Store a record that another client wrote before our own write."""
        self._awaited.pop(record.key, None)
        self._put(record)

    def mark_deleted(self, key: RecordKey) -> None:
        """Remove a record that is known to be deleted."""
        if (known := self._records.get(key)) is not None:
            now_s = self._clock.monotonic()
            self._deleted.pop(known.metadata.uid, None)
            self._deleted[known.metadata.uid] = now_s
            # The watch never shows an object that was created and deleted while it was interrupted.
            while now_s - self._deleted[oldest := next(iter(self._deleted))] > HISTORY_S:
                del self._deleted[oldest]
        self._forget(key)

    def observe(self, new: BackendRecord) -> RecordEvent | None:
        """Apply a watch event; return what another client did, None for our own write."""
        if new.metadata.uid in self._deleted:
            return None
        known, awaited = self._records.get(new.key), self._awaited.get(new.key)
        if known is None or known.metadata.uid != new.metadata.uid:
            self._put(new)
            return RecordEvent.APPEARED
        if awaited == new.metadata.resource_version:
            del self._awaited[new.key]
        elif (
            awaited is None
            or is_newer(new.metadata.resource_version, than=awaited)
            or (new.deleting and not known.deleting)
        ):
            self._put(new)
            self._awaited.pop(new.key, None)
            if new.deleting and not known.deleting:
                return RecordEvent.DELETED
            if not new.deleting and _content(new) != _content(known):
                return RecordEvent.EDITED
        return None

    def observe_deletion(self, old: BackendRecord) -> RecordEvent | None:
        """Apply a DELETED watch event; return what another client did, None for our own delete."""
        self._deleted.pop(old.metadata.uid, None)
        known = self._records.get(old.key)
        if known is None or known.metadata.uid != old.metadata.uid:
            return None
        self._forget(old.key)
        return RecordEvent.GONE

    def _put(self, record: BackendRecord) -> None:
        self._records[record.key] = record
        self._of.setdefault(load_balancer_of(record), {})[record.key] = None
        if self._by_address:
            self.addresses.put(record)

    def _forget(self, key: RecordKey) -> None:
        self._awaited.pop(key, None)
        self.addresses.drop(key)
        record = self._records.pop(key, None)
        if record is not None:
            of = self._of[load_balancer_of(record)]
            of.pop(key, None)
            if not of:
                del self._of[load_balancer_of(record)]


def _content(record: BackendRecord) -> tuple[BackendRecordSpec, str]:
    """Return spec and state of a record without the epoch of its writer, for comparison."""
    return msgspec.structs.replace(record.spec, epoch=0), record.status.state


_Place = tuple[LoadBalancerKey, str]


class RecordAddresses:
    """The records of one provider, by the address that identifies their backends there."""

    def __init__(self) -> None:
        self._places: dict[RecordKey, _Place] = {}
        self._records: dict[_Place, dict[RecordKey, BackendRecord]] = {}
        #: Records that are removed without a call, since another record keeps their backend; they keep none.
        self._leaving: set[RecordKey] = set()
        #: Records whose backend the provider was asked to remove, without an answer yet.
        self._begun: set[RecordKey] = set()

    def put(self, record: BackendRecord) -> None:
        """Update the index with a record."""
        self._unplace(record.key)
        if address := _address_of(record):
            place = self._places[record.key] = (load_balancer_of(record), address)
            self._records.setdefault(place, {})[record.key] = record

    def drop(self, key: RecordKey) -> None:
        """Forget a record that was deleted."""
        self._unplace(key)
        self._leaving.discard(key)
        self._begun.discard(key)

    def acquire(self, record: BackendRecord) -> BackendRecord | None:
        """Keep the backend of ``record``; return another record of it that is being deregistered, if there is one."""
        self._leaving.discard(record.key)
        self._begun.discard(record.key)
        return next((other for other in self._others(record) if self._is_begun(other)), None)

    def release(self, record: BackendRecord) -> bool:
        """Mark ``record`` as to be removed; return True when another one keeps its backend: no call is needed."""
        if self._is_begun(record) or not any(self._keeps(other) for other in self._others(record)):
            return False
        self._leaving.add(record.key)
        return True

    def acknowledge(self, key: RecordKey, *, done: bool) -> None:
        """Note the provider's answer to the removal of a backend."""
        (self._begun.discard if done else self._begun.add)(key)

    def _is_begun(self, record: BackendRecord) -> bool:
        return record.status.state == "Deregistering" or record.key in self._begun

    def _keeps(self, record: BackendRecord) -> bool:
        return not (record.deleting or record.spec.target.draining or record.key in self._leaving) and (
            record.status.state not in ("Draining", "Deregistering")
        )

    def _others(self, record: BackendRecord) -> list[BackendRecord]:
        place = self._places.get(record.key)
        return [] if place is None else [other for key, other in self._records[place].items() if key != record.key]

    def _unplace(self, key: RecordKey) -> None:
        place = self._places.pop(key, None)
        if place is not None:
            sharers = self._records[place]
            del sharers[key]
            if not sharers:
                del self._records[place]


def _address_of(record: BackendRecord) -> str:
    """Return the address by which the provider knows the backend; empty before its first response."""
    target = record.spec.target
    fixed_address = "" if target.origin is not None else str(TargetKey(target.address, target.port))
    return record.status.generated_address or fixed_address
