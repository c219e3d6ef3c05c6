"""What ``fairlead explain``, ``drift`` and ``gc`` say of each backend."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from test_cli_plan_rows import KEY, lb, previewed

from fairlead.api.backendrecord import (
    BackendRecord,
    BackendRecordSpec,
    BackendRecordStatus,
    RecordListener,
    RecordLoadBalancer,
    RecordTarget,
)
from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.cli import drift_rows, gc_rows
from fairlead.cli.explain_rows import BackendRow, Explained, explained, lines_of
from fairlead.hub.inspect.orphans import orphans_of
from fairlead.hub.inspect.preview import Previewed
from fairlead.hub.intents.intent import Exclusion
from fairlead.model.observed import Observed, ObservedTarget
from fairlead.sync.readback import drift_of
from fairlead.testing.builders import HTTP, target

NOW = datetime(2030, 1, 1, 12, 0, 30, tzinfo=UTC)
SINCE = "2030-01-01T12:00:00Z"


def record(number: str, state: Any = "Registered", *, reason: str = "New", message: str = "", **meta: Any) -> Any:
    return BackendRecord(
        metadata=ObjectMeta(name=f"web-{number}", namespace="shop", uid=f"uid-{number}", **meta),
        spec=BackendRecordSpec(
            load_balancer=RecordLoadBalancer(KEY.kind, KEY.namespace, KEY.name, "haproxy"),
            listener=RecordListener(80, "TCP"),
            target=RecordTarget(f"10.0.0.{number}", 8080, source=f"Pod/shop/web-{number}/u"),
            owners=["BackendGroup/shop/web"],
        ),
        status=BackendRecordStatus(state=state, reason=reason, message=message, since=SINCE),
    )


def rows(one: Previewed, *, leading: bool = True) -> dict[str, BackendRow]:
    return {row.address: row for row in explained(one, now=NOW, leading=leading).backends}


def waits(one: Previewed, **words: Any) -> list[str]:
    (row,) = rows(one, **words).values()
    return row.waits_for


def test_a_backend_that_is_as_it_should_be_waits_for_nothing() -> None:
    there = Observed(targets=(ObservedTarget(HTTP, target("1").key, healthy=True),))
    one = previewed(lb(target("1")), lb(target("1")), records=(record("1"),), observed=there, class_name="edge")
    (row,) = rows(one).values()
    assert (row.state, row.since, row.reason, row.healthy, row.waits_for) == ("Registered", SINCE, "New", True, [])
    assert (row.source, row.listener) == ("Pod/shop/web-1", "TCP/80")
    lines = lines_of(explained(one, now=NOW, leading=True), now=NOW)
    assert lines[0] == "TCPLoadBalancer/shop/web: class edge, provider haproxy"
    assert "  TCP/80  10.0.0.1:8080  Registered, healthy  30s  Pod/shop/web-1 New; for its Service" in lines


def test_json_has_stable_names() -> None:
    body = msgspec.to_builtins(explained(previewed(lb(target("1")), None), now=NOW, leading=True))
    assert set(body) == {"loadBalancer", "className", "provider", "conditions", "backends", "leftOut", "notes"}
    assert set(body["backends"][0]) == {
        "listener", "address", "source", "state", "since", "reason", "owners", "healthy", "waitsFor",
    }  # fmt: skip


def test_what_is_wanted_and_not_on_record_waits_for_the_hub() -> None:
    one = previewed(lb(target("1")), lb())
    (row,) = rows(one).values()
    assert (row.state, row.waits_for) == ("NotRegistered", ["Register is next, New: wanted, and not on record"])
    unmade = previewed(lb(target("1")), None)
    assert waits(unmade) == ["Register is next, after the load balancer itself, New: wanted, and not on record"]
    assert waits(one, leading=False) == ["Register is next, once a hub leads, New: wanted, and not on record"]


def test_what_a_guard_or_a_pause_holds_waits_for_it_in_its_words() -> None:
    (held,) = waits(previewed(lb(), lb(target("1")), records=(record("1"),)))
    assert held.startswith("Deregister (Absent) is held, LastTargets: listener TCP/80 would be left")
    paused = lb(target("2"), paused=True)
    one = previewed(paused, lb(target("1"), target("2")), records=(record("1"), record("2")), paused=("LB/shop/web",))
    (held,) = rows(one)["10.0.0.1:8080"].waits_for
    assert held == (
        "Deregister (Absent) is held, Paused: LB/shop/web is paused, let it through with: fairlead resume LB/shop/web"
    )
    assert rows(one)["10.0.0.2:8080"].waits_for == []


def test_a_drain_says_until_when() -> None:
    wanted = lb(drain_s=60.0)
    one = previewed(wanted, None, records=(record("1", "Draining", reason="Absent"),))
    assert waits(one) == ["its connections to end, until 12:01:00 UTC at the latest (in 30s); then Deregister"]


@pytest.mark.parametrize(
    ("state", "conditions", "says"),
    [
        ("Failed", (), "its provider says: quota is full; it is tried again"),
        (
            "Failed",
            (WireCondition(type="ResolvedRefs", status="False", reason="Quarantined"),),
            "its provider says: quota is full; tried again every 5 minutes, and at once when it is changed",
        ),
        ("Pending", (), "its provider says: quota is full"),
    ],
)
def test_the_words_of_a_provider_are_told(state: str, conditions: tuple[WireCondition, ...], says: str) -> None:
    one = previewed(lb(target("1")), lb(target("1")), records=(record("1", state, message="quota is full"),))
    assert waits(msgspec.structs.replace(one, conditions=conditions)) == [says]


def test_what_is_being_deleted_waits_for_its_provider() -> None:
    going = record("1", "Deregistering", deletion_timestamp="2030-01-01T12:00:10Z")
    one = previewed(lb(), None, records=(going,))
    (row,) = rows(one).values()
    assert (row.state, row.waits_for) == ("Deregistering", ["its provider to let go; then its record goes, too"])


def test_a_target_that_is_not_ready_is_not_registered() -> None:
    assert waits(previewed(lb(target("1", draining=True)), lb())) == [
        "to be ready: what is not ready, or going, is not registered"
    ]


def test_what_was_changed_by_hand_is_said_beside_it() -> None:
    one = previewed(lb(target("1"), target("2")), lb(target("1"), target("2")), records=(record("1"), record("2")))
    seen = Observed(targets=(ObservedTarget(HTTP, target("1").key, weight=5),), foreign=("theirs",))
    one = msgspec.structs.replace(one, observed=seen, drift=drift_of(one.side, seen))
    found = rows(one)
    assert found["10.0.0.1:8080"].waits_for == ["nothing, though somebody changed it there: fairlead drift"]
    assert "somebody removed it" in found["10.0.0.2:8080"].waits_for[0]
    row = drift_rows.drift_row(one)
    assert row.ours == 2
    assert drift_rows.lines_of(row) == [
        "TCPLoadBalancer/shop/web (provider haproxy)",
        "  ours     TCP/80 10.0.0.2:8080: not there any more",
        "  ours     TCP/80 10.0.0.1:8080: weight 1 on record, 5 there",
        "  foreign  theirs",
    ]


def test_no_drift_a_vanished_one_and_one_that_cannot_be_read_are_told_apart() -> None:
    calm = previewed(lb(target("1")), lb(target("1")))
    assert drift_rows.lines_of(drift_rows.drift_row(calm)) == [
        "TCPLoadBalancer/shop/web (provider haproxy): as recorded"
    ]
    gone = msgspec.structs.replace(calm, drift=drift_of(calm.side, None))
    assert "gone: somebody deleted the load balancer itself" in drift_rows.lines_of(drift_rows.drift_row(gone))[1]
    said = (WireCondition(type="Drifted", status="True", reason="Drifted", message="1 was removed"),)
    unread = drift_rows.drift_row(msgspec.structs.replace(calm, unread="nobody answers", conditions=said))
    assert (unread.ours, unread.unread, unread.hub_says) == (0, "nobody answers", "1 was removed")
    assert drift_rows.lines_of(unread)[1:] == [
        "  unknown  not read back: nobody answers",
        "  the hub says: 1 was removed",
    ]


def test_what_was_left_out_and_what_the_hub_said_is_in_the_lines() -> None:
    condition = WireCondition(
        type="Programmed", status="False", reason="ProviderFailed", message="no answer", last_transition_time=SINCE
    )
    one = previewed(lb(), lb(), conditions=(condition,), unread="nobody answers")
    one = msgspec.structs.replace(one, exclusions=(Exclusion("Pod/shop/web-1", "BackendGroup/shop/web", "not ready"),))
    assert lines_of(explained(one, now=NOW, leading=True), now=NOW) == [
        "TCPLoadBalancer/shop/web: its object is gone, provider haproxy",
        "  Programmed  False  30s  ProviderFailed: no answer",
        "Backends: none",
        "Left out:",
        "  Pod/shop/web-1  not ready (BackendGroup/shop/web)",
        "Note: not read back: nobody answers",
    ]


def test_one_that_the_hub_serves_itself_has_no_records_and_no_waits() -> None:
    good = (WireCondition(type="Programmed", status="True", reason="Programmed"),)
    one = previewed(lb(target("1"), target("2", draining=True)), None, served=True, conditions=good)
    one = msgspec.structs.replace(one, plan=msgspec.structs.replace(one.plan, frontend=None, changes=()))
    found: Explained = explained(one, now=NOW, leading=True)
    assert [(row.state, row.waits_for) for row in found.backends] == [("Served", []), ("Draining", [])]
    assert found.notes == ["the hub's own proxies serve it, from memory: there are no records"]


# --- orphans ----------------------------------------------------------------------------------------------------


def test_orphans_are_found_in_both_directions_and_nothing_else_is_one() -> None:
    one = previewed(lb(target("1")), lb(target("1")), records=(record("1"),))
    seen = Observed(
        targets=tuple(ObservedTarget(HTTP, target(number).key) for number in ("1", "7")), foreign=("b/theirs",)
    )
    one = msgspec.structs.replace(one, observed=seen, drift=drift_of(one.side, seen))
    assert [(found.kind, str(found.target)) for found in orphans_of(one)] == [("Entry", "10.0.0.7:8080")]
    gone = msgspec.structs.replace(one, gone=True)
    assert [(found.kind, found.leaving) for found in orphans_of(gone)] == [("Record", False), ("Entry", False)]


def test_an_entry_that_is_wanted_is_no_orphan() -> None:
    one = previewed(lb(target("1")), lb())
    seen = Observed(targets=(ObservedTarget(HTTP, target("1").key),))
    assert drift_of(one.side, seen).unrecorded == ()


def test_the_report_says_what_is_left_and_what_was_asked() -> None:
    assert gc_rows.lines_of([], {}, note="") == ["No orphans."]
    gone = previewed(None, lb(target("1")), records=(record("1"),), gone=True)
    (orphan,) = orphans_of(gone)
    left = gc_rows.orphan_row(gone, orphan, "")
    assert gc_rows.lines_of([left], {"LoadBalancer/a/b": "nobody answers"}, note="No hub leads") == [
        "Records whose load balancer is gone:",
        "  TCPLoadBalancer/shop/web  TCP/80 10.0.0.1:8080  orphaned",
        "Not read back, so entries there are not known: LoadBalancer/a/b: nobody answers",
        "1 orphan left; have the hub deregister them with: fairlead gc --delete",
        "No hub leads",
    ]
    done = gc_rows.orphan_row(gone, orphan, "deleted: the hub deregisters it now")
    assert gc_rows.lines_of([done], {}, note="")[-1].startswith("Nothing is left to ask for")
    assert msgspec.to_builtins(done) == {
        "kind": "Record",
        "loadBalancer": "TCPLoadBalancer/shop/web",
        "provider": "haproxy",
        "listener": "TCP/80",
        "target": "10.0.0.1:8080",
        "record": "shop/web-1",
        "done": "deleted: the hub deregisters it now",
    }
