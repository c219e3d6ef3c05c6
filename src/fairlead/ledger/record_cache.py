"""The records that this process knows: those it wrote itself, and those of others that the watch shows.

    our own write        true at once; what the watch shows before that version is older, and passed over
    seen, not ours       another client wrote it: it is taken over, and reported; also a version after ours, when the
                         watch was away and never shows ours
    known to be gone     what the watch still shows of it is history, for as long as a server replays history

Versions are decimal numbers that grow, as every API server promises; one that is not is compared for equality only.
In: records, as they are written, read and seen. Out: the newest of each, and what another client did to it.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from fairlead.api.backendgroup import BackendRecord, BackendRecordSpec
from fairlead.api.meta import is_newer
from fairlead.ledger.wire import load_balancer_of
from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.runtime.clock import Clock

RecordKey = tuple[str, str]

#: A server replays the history of five minutes to a watch that was away, and a list shows what is there.
HISTORY_S = 900.0


class RecordEvent(StrEnum):
    """A change of a record by another client."""

    #: One that this process did not write.
    APPEARED = "Appeared"
    #: What it says was changed: it is compared with what should be, as after a restart.
    EDITED = "Edited"
    #: Its deletion has been asked for: exactly this backend is to be deregistered.
    DELETED = "Deleted"
    #: It is gone, with its finalizer: it was forgotten, and no call is to be made.
    GONE = "Gone"


class RecordCache:
    """The records of one provider, by key. ``addresses`` is kept where the provider makes its own."""

    def __init__(self, *, clock: Clock, by_address: bool = False) -> None:
        self._clock = clock
        self.addresses = RecordAddresses()
        self._by_address = by_address
        self._records: dict[RecordKey, BackendRecord] = {}
        self._of: dict[LoadBalancerKey, dict[RecordKey, None]] = {}
        #: The version of our own last write, until the watch has shown it: what it shows before that is older.
        self._awaited: dict[RecordKey, str] = {}
        #: Records by UID that we know to be gone, and since when, until the watch has shown that. Oldest first.
        self._deleted: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, key: RecordKey) -> bool:
        return key in self._records

    def get(self, key: RecordKey) -> BackendRecord | None:
        """Return what is known of one record."""
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
            # The watch never shows what came and went while it was away.
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
    """The records of one provider, by the address that it knows their backends by."""

    def __init__(self) -> None:
        self._places: dict[RecordKey, _Place] = {}
        self._records: dict[_Place, dict[RecordKey, BackendRecord]] = {}
        #: Those that leave without a call, since another keeps their backend: they keep nothing for others.
        self._leaving: set[RecordKey] = set()
        #: Those whose backend the provider was asked to remove, and has not answered yet that it is done.
        self._begun: set[RecordKey] = set()

    def put(self, record: BackendRecord) -> None:
        """Update the index with a record."""
        self._unplace(record.key)
        if address := _address_of(record):
            place = self._places[record.key] = (load_balancer_of(record), address)
            self._records.setdefault(place, {})[record.key] = record

    def drop(self, key: RecordKey) -> None:
        """Forget a record that is gone."""
        self._unplace(key)
        self._leaving.discard(key)
        self._begun.discard(key)

    def acquire(self, record: BackendRecord) -> BackendRecord | None:
        """Keep ``record``'s backend; returns another record of it that is being deregistered, if there is one."""
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
        """Note what the provider answered when it was asked to remove a backend."""
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
