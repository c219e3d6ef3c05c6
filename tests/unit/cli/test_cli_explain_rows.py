"""What ``fairlead explain``, ``drift`` and ``gc`` say of each backend."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from cli_builders import KEY, lb, previewed

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
from fairlead.cli.explain_rows import BackendRow, Explained, explained
from fairlead.cli.explain_text import lines_of
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


def rows(shown: Previewed, *, leading: bool = True) -> dict[str, BackendRow]:
    return {row.address: row for row in explained(shown, now=NOW, leading=leading).backends}


def waits(shown: Previewed, **options: Any) -> list[str]:
    (row,) = rows(shown, **options).values()
    return row.waits_for


def test_a_backend_that_is_as_it_should_be_waits_for_nothing() -> None:
    there = Observed(targets=(ObservedTarget(HTTP, target("1").key, healthy=True),))
    shown = previewed(lb(target("1")), lb(target("1")), records=(record("1"),), observed=there, class_name="edge")
    (row,) = rows(shown).values()
    assert (row.state, row.since, row.reason, row.healthy, row.waits_for) == ("Registered", SINCE, "New", True, [])
    assert (row.source, row.listener) == ("Pod/shop/web-1", "TCP/80")
    lines = lines_of(explained(shown, now=NOW, leading=True), now=NOW)
    assert lines[0] == "TCPLoadBalancer/shop/web: class edge, provider haproxy"
    assert "  TCP/80  10.0.0.1:8080  Registered, healthy  30s  Pod/shop/web-1 New; for its Service" in lines


def test_json_has_stable_names() -> None:
    body = msgspec.to_builtins(explained(previewed(lb(target("1")), None), now=NOW, leading=True))
    assert set(body) == {"loadBalancer", "className", "provider", "conditions", "backends", "leftOut", "notes"}
    assert set(body["backends"][0]) == {
        "listener", "address", "source", "state", "since", "reason", "owners", "healthy", "waitsFor",
    }  # fmt: skip


def test_what_is_wanted_and_not_on_record_waits_for_the_hub() -> None:
    shown = previewed(lb(target("1")), lb())
    (row,) = rows(shown).values()
    assert (row.state, row.waits_for) == ("NotRegistered", ["Register is next, New: wanted, and not on record"])
    unmade = previewed(lb(target("1")), None)
    assert waits(unmade) == ["Register is next, after the load balancer itself, New: wanted, and not on record"]
    assert waits(shown, leading=False) == ["Register is next, once a hub leads, New: wanted, and not on record"]


def test_what_a_guard_or_a_pause_holds_waits_for_it_in_its_words() -> None:
    (held,) = waits(previewed(lb(), lb(target("1")), records=(record("1"),)))
    assert held.startswith("Deregister (Absent) is held, LastTargets: listener TCP/80 would be left")
    paused = lb(target("2"), paused=True)
    shown = previewed(paused, lb(target("1"), target("2")), records=(record("1"), record("2")), paused=("LB/shop/web",))
    (held,) = rows(shown)["10.0.0.1:8080"].waits_for
    assert held == (
        "Deregister (Absent) is held, Paused: LB/shop/web is paused, let it through with: fairlead resume LB/shop/web"
    )
    assert rows(shown)["10.0.0.2:8080"].waits_for == []


def test_a_drain_says_until_when() -> None:
    wanted = lb(drain_s=60.0)
    shown = previewed(wanted, None, records=(record("1", "Draining", reason="Absent"),))
    assert waits(shown) == ["its connections to end, until 12:01:00 UTC at the latest (in 30s); then Deregister"]


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
def test_the_message_of_a_provider_is_shown(state: str, conditions: tuple[WireCondition, ...], says: str) -> None:
    shown = previewed(lb(target("1")), lb(target("1")), records=(record("1", state, message="quota is full"),))
    assert waits(msgspec.structs.replace(shown, conditions=conditions)) == [says]


def test_what_is_being_deleted_waits_for_its_provider() -> None:
    going = record("1", "Deregistering", deletion_timestamp="2030-01-01T12:00:10Z")
    shown = previewed(lb(), None, records=(going,))
    (row,) = rows(shown).values()
    assert (row.state, row.waits_for) == (
        "Deregistering",
        ["its provider to deregister it; then its record is deleted, too"],
    )


def test_a_target_that_is_not_ready_is_not_registered() -> None:
    assert waits(previewed(lb(target("1", draining=True)), lb())) == [
        "to be ready: what is not ready, or terminating, is not registered"
    ]


def test_what_was_changed_by_hand_is_said_beside_it() -> None:
    shown = previewed(lb(target("1"), target("2")), lb(target("1"), target("2")), records=(record("1"), record("2")))
    seen = Observed(targets=(ObservedTarget(HTTP, target("1").key, weight=5),), foreign=("theirs",))
    shown = msgspec.structs.replace(shown, observed=seen, drift=drift_of(shown.side, seen))
    result = rows(shown)
    assert result["10.0.0.1:8080"].waits_for == ["nothing, though it was changed at the provider: fairlead drift"]
    assert "it was removed at the provider" in result["10.0.0.2:8080"].waits_for[0]
    row = drift_rows.drift_row(shown)
    assert row.ours == 2
    assert drift_rows.lines_of(row) == [
        "TCPLoadBalancer/shop/web (provider haproxy)",
        "  ours     TCP/80 10.0.0.2:8080: not there any more",
        "  ours     TCP/80 10.0.0.1:8080: weight 1 on record, 5 there",
        "  foreign  theirs",
    ]


def test_no_drift_a_deleted_load_balancer_and_one_that_cannot_be_read_are_distinct() -> None:
    calm = previewed(lb(target("1")), lb(target("1")))
    assert drift_rows.lines_of(drift_rows.drift_row(calm)) == [
        "TCPLoadBalancer/shop/web (provider haproxy): as recorded"
    ]
    gone = msgspec.structs.replace(calm, drift=drift_of(calm.side, None))
    assert "gone: the load balancer itself was deleted" in drift_rows.lines_of(drift_rows.drift_row(gone))[1]
    said = (WireCondition(type="Drifted", status="True", reason="Drifted", message="1 was removed"),)
    unread = drift_rows.drift_row(msgspec.structs.replace(calm, unread="no answer", conditions=said))
    assert (unread.ours, unread.unread, unread.hub_says) == (0, "no answer", "1 was removed")
    assert drift_rows.lines_of(unread)[1:] == [
        "  unknown  not read back: no answer",
        "  the hub says: 1 was removed",
    ]


def test_what_was_left_out_and_what_the_hub_said_is_in_the_lines() -> None:
    condition = WireCondition(
        type="Programmed", status="False", reason="ProviderFailed", message="no answer", last_transition_time=SINCE
    )
    shown = previewed(lb(), lb(), conditions=(condition,), unread="no answer")
    exclusion = Exclusion("Pod/shop/web-1", "BackendGroup/shop/web", "not ready")
    shown = msgspec.structs.replace(shown, exclusions=(exclusion,))
    assert lines_of(explained(shown, now=NOW, leading=True), now=NOW) == [
        "TCPLoadBalancer/shop/web: its object is gone, provider haproxy",
        "  Programmed  False  30s  ProviderFailed: no answer",
        "Backends: none",
        "Left out:",
        "  Pod/shop/web-1  not ready (BackendGroup/shop/web)",
        "Note: not read back: no answer",
    ]


def test_one_that_the_hub_serves_itself_has_no_records_and_no_waits() -> None:
    good = (WireCondition(type="Programmed", status="True", reason="Programmed"),)
    shown = previewed(lb(target("1"), target("2", draining=True)), None, served=True, conditions=good)
    shown = msgspec.structs.replace(shown, plan=msgspec.structs.replace(shown.plan, frontend=None, changes=()))
    result: Explained = explained(shown, now=NOW, leading=True)
    assert [(row.state, row.waits_for) for row in result.backends] == [("Served", []), ("Draining", [])]
    assert result.notes == ["the hub's own proxies serve it, from memory: there are no records"]


# --- orphans ----------------------------------------------------------------------------------------------------


def test_orphans_are_found_in_both_directions_and_nothing_else_is_one() -> None:
    shown = previewed(lb(target("1")), lb(target("1")), records=(record("1"),))
    seen = Observed(
        targets=tuple(ObservedTarget(HTTP, target(number).key) for number in ("1", "7")), foreign=("b/theirs",)
    )
    shown = msgspec.structs.replace(shown, observed=seen, drift=drift_of(shown.side, seen))
    assert [(orphan.kind, str(orphan.target)) for orphan in orphans_of(shown)] == [("Entry", "10.0.0.7:8080")]
    gone = msgspec.structs.replace(shown, gone=True)
    assert [(orphan.kind, orphan.leaving) for orphan in orphans_of(gone)] == [("Record", False), ("Entry", False)]


def test_an_entry_that_is_wanted_is_no_orphan() -> None:
    shown = previewed(lb(target("1")), lb())
    seen = Observed(targets=(ObservedTarget(HTTP, target("1").key),))
    assert drift_of(shown.side, seen).unrecorded == ()


def test_the_report_says_what_is_left_and_what_was_asked() -> None:
    assert gc_rows.lines_of([], {}, warning="") == ["No orphans."]
    gone = previewed(None, lb(target("1")), records=(record("1"),), gone=True)
    (orphan,) = orphans_of(gone)
    left = gc_rows.orphan_row(gone, orphan, "")
    assert gc_rows.lines_of([left], {"LoadBalancer/a/b": "no answer"}, warning="No hub leads") == [
        "Records whose load balancer is gone:",
        "  TCPLoadBalancer/shop/web  TCP/80 10.0.0.1:8080  orphaned",
        "Not read back, so entries there are not known: LoadBalancer/a/b: no answer",
        "1 orphan left; have the hub deregister them with: fairlead gc --delete",
        "No hub leads",
    ]
    done = gc_rows.orphan_row(gone, orphan, "deleted: the hub deregisters it now")
    assert gc_rows.lines_of([done], {}, warning="")[-1].startswith("Nothing is left to ask for")
    assert msgspec.to_builtins(done) == {
        "kind": "Record",
        "loadBalancer": "TCPLoadBalancer/shop/web",
        "provider": "haproxy",
        "listener": "TCP/80",
        "target": "10.0.0.1:8080",
        "record": "shop/web-1",
        "done": "deleted: the hub deregisters it now",
    }
