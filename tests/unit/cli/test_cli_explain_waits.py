"""What each backend waits for, by its cause."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from cli_builders import lb, previewed, record, rows

from fairlead.api.meta import WireCondition
from fairlead.hub.inspect.preview import Previewed
from fairlead.testing.builders import target


def waits(shown: Previewed, **options: Any) -> list[str]:
    (row,) = rows(shown, **options).values()
    return row.waits_for


def test_unrecorded_targets_wait_for_the_hub() -> None:
    shown = previewed(lb(target("1")), lb())
    (row,) = rows(shown).values()
    assert (row.state, row.waits_for) == ("NotRegistered", ["Register is next, New: desired, but not recorded"])
    unmade = previewed(lb(target("1")), None)
    assert waits(unmade) == ["Register is next, after the load balancer itself, New: desired, but not recorded"]
    assert waits(shown, leading=False) == ["Register is next, once a hub leads, New: desired, but not recorded"]


def test_what_a_guard_or_a_pause_holds_waits_for_it_in_its_words() -> None:
    (held,) = waits(previewed(lb(), lb(target("1")), records=(record("1"),)))
    assert held.startswith("Deregister (Absent) is held, LastTargets: listener TCP/80 would be left")
    paused = lb(target("2"), paused=True)
    shown = previewed(paused, lb(target("1"), target("2")), records=(record("1"), record("2")), paused=("LB/shop/web",))
    (held,) = rows(shown)["10.0.0.1:8080"].waits_for
    assert held == (
        "Deregister (Absent) is held, Paused: LB/shop/web is paused, apply the held changes with: "
        "fairlead resume LB/shop/web"
    )
    assert rows(shown)["10.0.0.2:8080"].waits_for == []


def test_a_drain_says_until_when() -> None:
    wanted = lb(drain_s=60.0)
    shown = previewed(wanted, None, records=(record("1", "Draining", reason="Absent"),))
    assert waits(shown) == ["connections to end, until 12:01:00 UTC at the latest (in 30s); then Deregister"]


@pytest.mark.parametrize(
    ("state", "conditions", "says"),
    [
        ("Failed", (), "the provider reports: quota is full; the hub retries"),
        (
            "Failed",
            (WireCondition(type="ResolvedRefs", status="False", reason="Quarantined"),),
            "the provider reports: quota is full; retried every 5 minutes, and at once when it changes",
        ),
        ("Pending", (), "the provider reports: quota is full"),
    ],
)
def test_the_message_of_a_provider_is_shown(state: str, conditions: tuple[WireCondition, ...], says: str) -> None:
    shown = previewed(lb(target("1")), lb(target("1")), records=(record("1", state, message="quota is full"),))
    assert waits(msgspec.structs.replace(shown, conditions=conditions)) == [says]


def test_an_object_in_deletion_waits_for_its_provider() -> None:
    going = record("1", "Deregistering", deletion_timestamp="2030-01-01T12:00:10Z")
    shown = previewed(lb(), None, records=(going,))
    (row,) = rows(shown).values()
    assert (row.state, row.waits_for) == (
        "Deregistering",
        ["the provider to deregister it; then its record is deleted"],
    )


def test_a_target_that_is_not_ready_is_not_registered() -> None:
    assert waits(previewed(lb(target("1", draining=True)), lb())) == ["readiness; only ready pods are registered"]
