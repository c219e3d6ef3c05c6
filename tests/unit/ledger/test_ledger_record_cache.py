"""What a process knows of its records: its own writes at once, and of the watch only what is newer."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.api.backendgroup import (
    BackendRecord,
    BackendRecordSpec,
    BackendRecordStatus,
    RecordListener,
    RecordLoadBalancer,
    RecordState,
    RecordTarget,
)
from fairlead.api.meta import ObjectMeta
from fairlead.ledger.records import HISTORY_S, RecordCache, RecordEvent
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock, VirtualClock

KEY = LoadBalancerKey("LoadBalancer", "shop", "lb")


def record(
    name: str = "a", *, version: int = 1, uid: str = "", state: RecordState = "Registered", deleting: bool = False
) -> BackendRecord:
    deleted = "2030-01-01T00:00:00Z" if deleting else None
    meta = ObjectMeta(
        name=name, namespace="shop", uid=uid or name, resource_version=str(version), deletion_timestamp=deleted
    )
    spec = BackendRecordSpec(
        RecordLoadBalancer("LoadBalancer", "shop", "lb", "webhook"),
        RecordListener(80, "TCP"),
        RecordTarget("10.0.0.1", 80),
    )
    return BackendRecord(meta, spec, BackendRecordStatus(state=state))


def loaded(*records: BackendRecord, by_address: bool = False, clock: Clock | None = None) -> RecordCache:
    cache = RecordCache(clock=clock or VirtualClock(), by_address=by_address)
    cache.load(records)
    return cache


def test_records_are_known_by_key_and_by_load_balancer():
    cache = loaded(record("a"), record("b"))
    assert len(cache) == 2
    assert ("shop", "a") in cache
    assert {known.metadata.name for known in cache.of(KEY)} == {"a", "b"}
    cache.mark_deleted(("shop", "a"))
    cache.mark_deleted(("shop", "b"))
    assert (len(cache), cache.of(KEY), cache.get(("shop", "a"))) == (0, [], None)


def test_a_record_that_was_never_known_may_be_marked_deleted():
    cache = loaded()
    cache.mark_deleted(("shop", "a"))
    assert len(cache) == 0


def test_a_record_of_another_process_has_appeared():
    cache = loaded()
    assert cache.observe(record()) is RecordEvent.APPEARED
    assert cache.observe(record(uid="again")) is RecordEvent.APPEARED
    assert cache.get(("shop", "a")) == record(uid="again")


def test_an_own_write_is_not_an_event_and_is_not_undone():
    cache = loaded(record(version=1, state="Pending"))
    cache.keep(record(version=3))
    assert cache.observe(record(version=2, state="Failed")) is None
    assert cache.get(("shop", "a")) == record(version=3)
    assert cache.observe(record(version=3)) is None
    assert cache.observe(record(version=4, state="Failed")) is RecordEvent.EDITED


def test_an_edit_of_only_the_epoch_is_not_an_event():
    cache = loaded(record())
    new = record(version=2)
    new = msgspec.structs.replace(new, spec=msgspec.structs.replace(new.spec, epoch=7))
    assert cache.observe(new) is None
    assert cache.get(("shop", "a")) == new


def test_a_new_read_ends_the_wait_for_an_own_write():
    cache = loaded(record())
    cache.keep(record(version=2))
    cache.reread(record(version=3, state="Failed"))
    assert cache.observe(record(version=4, state="Pending")) is RecordEvent.EDITED


@pytest.mark.parametrize("awaiting", [False, True])
def test_a_deletion_is_an_event_once_even_before_our_own_write_is_shown(awaiting: bool):
    cache = loaded(record())
    if awaiting:
        cache.keep(record(version=3))
    assert cache.observe(record(version=4, deleting=True)) is RecordEvent.DELETED
    assert cache.observe(record(version=5, state="Failed", deleting=True)) is None


def test_a_record_that_disappears_is_an_event_unless_we_knew_or_it_has_a_namesake():
    cache = loaded(record("a"), record("b"), record("c", uid="new"))
    assert cache.observe_deletion(record("a")) is RecordEvent.GONE
    cache.mark_deleted(("shop", "b"))
    assert cache.observe(record("b", version=2)) is None
    assert cache.observe_deletion(record("b", version=3)) is None
    assert cache.observe_deletion(record("c", uid="old")) is None
    assert ("shop", "c") in cache


@pytest.mark.parametrize("by_address", [False, True])
def test_addresses_are_kept_only_where_the_provider_knows_no_more(by_address: bool):
    cache = loaded(record("a"), record("b"), by_address=by_address)
    assert cache.addresses.release(record("a")) is by_address


@pytest.mark.req("T-7")
@pytest.mark.parametrize(("ours", "theirs"), [(3, 4), (9, 10)])
def test_an_edit_that_a_relist_shows_without_our_own_version_is_taken_over(ours: int, theirs: int):
    """The watch was away: what it shows now is newer than our write, whose version it never shows."""
    cache = loaded(record(version=1))
    cache.keep(record(version=ours))
    assert cache.observe(record(version=theirs, state="Failed")) is RecordEvent.EDITED
    assert cache.get(("shop", "a")) == record(version=theirs, state="Failed")
    assert cache.observe(record(version=theirs + 1, state="Pending")) is RecordEvent.EDITED


@pytest.mark.req("T-7")
def test_records_that_came_and_went_while_the_watch_was_away_are_forgotten():
    clock = VirtualClock()
    cache = loaded(clock=clock)
    for number in range(1000):
        cache.keep(record(f"r{number}"))
        cache.mark_deleted(("shop", f"r{number}"))
        clock.jump(HISTORY_S / 100)
    assert len(cache._deleted) <= 102


@pytest.mark.req("T-7")
def test_what_we_know_to_be_gone_stays_history_for_as_long_as_it_may_be_replayed():
    clock = VirtualClock()
    cache = loaded(record("a"), record("b"), clock=clock)
    cache.mark_deleted(("shop", "a"))
    clock.jump(HISTORY_S - 1)
    cache.mark_deleted(("shop", "b"))
    assert cache.observe(record("a", version=2)) is None
    assert ("shop", "a") not in cache
