"""Which records share a backend, and who waits for whom."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.api.backendgroup import (
    BackendRecord,
    BackendRecordSpec,
    BackendRecordStatus,
    RecordListener,
    RecordLoadBalancer,
    RecordOrigin,
    RecordState,
    RecordTarget,
)
from fairlead.api.meta import ObjectMeta
from fairlead.ledger.records import RecordAddresses

POD = RecordOrigin("Pod", "shop", "web-0", "uid")


def record(
    name: str,
    *,
    ip: str = "10.0.0.1",
    generated: str = "",
    state: RecordState = "Registered",
    lb: str = "lb",
    origin: RecordOrigin | None = None,
    draining: bool = False,
    deleting: bool = False,
) -> BackendRecord:
    meta = ObjectMeta(name=name, namespace="shop", uid=name, deletion_timestamp="now" if deleting else None)
    spec = BackendRecordSpec(
        RecordLoadBalancer("LoadBalancer", "shop", lb, "webhook"),
        RecordListener(80, "TCP"),
        RecordTarget(ip, 80, draining=draining, origin=origin),
    )
    return BackendRecord(meta, spec, BackendRecordStatus(state=state, generated_address=generated))


def shelf(*records: BackendRecord) -> RecordAddresses:
    addresses = RecordAddresses()
    for each in records:
        addresses.put(each)
    return addresses


def in_state(record: BackendRecord, state: RecordState) -> BackendRecord:
    return msgspec.structs.replace(record, status=msgspec.structs.replace(record.status, state=state))


@pytest.mark.parametrize(
    ("other", "shares"),
    [
        (record("b", generated="web-0"), True),
        (record("b", generated="web-0", state="Pending"), True),
        (record("b", generated="web-0", state="Deregistering"), False),
        (record("b", generated="web-0", state="Draining"), False),
        (record("b", generated="web-0", draining=True), False),
        (record("b", generated="web-0", deleting=True), False),
        (record("b", generated="web-1"), False),
        (record("b", generated="web-0", lb="another"), False),
        (record("b", ip="web-0", origin=POD), False),
    ],
)
def test_a_backend_stays_while_another_record_keeps_it(other: BackendRecord, shares: bool) -> None:
    backend_record = record("a", generated="web-0", ip="10.0.0.2")
    assert shelf(backend_record, other).release(backend_record) is shares


def test_of_two_that_leave_together_the_last_takes_the_backend_with_it() -> None:
    first, other = record("a", generated="x"), record("b", generated="x")
    addresses = shelf(first, other)
    assert addresses.release(first)
    assert not addresses.release(other)
    addresses.drop(first.key)
    assert not addresses.release(other)


def test_a_returning_pod_keeps_the_backend() -> None:
    first, other = record("a", generated="x"), record("b", generated="x")
    addresses = shelf(first, other)
    assert addresses.release(first)
    assert addresses.acquire(first) is None
    assert addresses.release(other)


@pytest.mark.parametrize(("state", "waits"), [("Deregistering", True), ("Draining", False), ("Registered", False)])
def test_a_newcomer_waits_for_a_deregistration_that_has_begun(state: RecordState, waits: bool) -> None:
    going, coming = record("a", generated="x", state=state), record("b", generated="x", state="Pending")
    result = shelf(going, coming).acquire(coming)
    assert (result is not None) is waits


def test_returning_drains_do_not_wait_for_each_other() -> None:
    first, other = record("a", generated="x", state="Draining"), record("b", generated="x", state="Draining")
    addresses = shelf(first, other)
    for each in (first, other):
        addresses.acknowledge(each.key, done=False)
        assert not addresses.release(each), "begun is finished"
    assert addresses.acquire(first) == other
    assert addresses.acquire(other) is None
    assert addresses.acquire(first) is None


def test_a_given_address_is_an_address_and_one_that_is_yet_to_be_generated_is_none() -> None:
    given, generated = record("a"), record("b", generated="10.0.0.1:80", origin=POD)
    addresses = shelf(given, generated)
    assert addresses.release(given)
    waiting = record("c", origin=POD, state="Deregistering")
    addresses.put(waiting)
    assert addresses.acquire(generated) is None
    addresses.put(in_state(given, "Deregistering"))
    assert addresses.acquire(generated) is not None
