"""Records that are the same backend to their provider.

A provider that makes its own addresses knows a backend by (load balancer, address) alone: not by listener, pod or IP.
Two records of one address are two claims on one backend.

    one leaves, another stays     the backend stays: no call is made, and the record of the other is released
    one is being taken away       the other waits until that has ended, across restarts too
    both leave                    the last one takes the backend with it

In: records, as they are written and seen. Out: the records that share an address with one. Never: a call or a write.
"""

from __future__ import annotations

from fairlead.api.backendrecord import BackendRecord
from fairlead.ledger.wire import load_balancer_of
from fairlead.model.keys import LoadBalancerKey, TargetKey

RecordKey = tuple[str, str]
_Place = tuple[LoadBalancerKey, str]


class Addresses:
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
