"""How ``fairlead drift`` shows what was changed at a provider."""

from __future__ import annotations

import msgspec
import pytest
from cli_builders import lb, previewed, record, rows

from fairlead.api.meta import WireCondition
from fairlead.cli.changes import AS_SERVED, drift_lines, drift_row
from fairlead.model.observed import Observed, ObservedTarget
from fairlead.sync.readback import drift_of
from fairlead.testing.builders import HTTP, target


@pytest.mark.req("X-3")
def test_manual_changes_are_reported_with_the_row() -> None:
    shown = previewed(lb(target("1"), target("2")), lb(target("1"), target("2")), records=(record("1"), record("2")))
    seen = Observed(targets=(ObservedTarget(HTTP, target("1").key, weight=5),), foreign=("theirs",))
    shown = msgspec.structs.replace(shown, observed=seen, drift=drift_of(shown.side, seen))
    result = rows(shown)
    assert result["10.0.0.1:8080"].waits_for == [
        "nothing, but it was changed at the provider: fairlead repair tcplb/web -n shop"
    ]
    assert "it was removed at the provider" in result["10.0.0.2:8080"].waits_for[0]
    row = drift_row(shown)
    assert row.ours == 2
    assert drift_lines(row) == [
        "TCPLoadBalancer/shop/web (provider haproxy)",
        "  ours     TCP/80 10.0.0.2:8080: no longer at the provider",
        "  ours     TCP/80 10.0.0.1:8080: weight 1 recorded, 5 at the provider",
        "  then     kept until fairlead repair, unless the class's ensurePolicy is Always",
        "  repair   fairlead repair tcplb/web -n shop",
        "  foreign  theirs",
    ]


def test_no_drift_a_deleted_load_balancer_and_one_that_cannot_be_read_are_distinct() -> None:
    calm = previewed(lb(target("1")), lb(target("1")))
    assert drift_lines(drift_row(calm)) == ["TCPLoadBalancer/shop/web (provider haproxy): as recorded"]
    gone = msgspec.structs.replace(calm, drift=drift_of(calm.side, None))
    assert "gone: the load balancer itself was deleted" in drift_lines(drift_row(gone))[1]
    said = (WireCondition(type="Drifted", status="True", reason="Drifted", message="1 was removed"),)
    unread = drift_row(msgspec.structs.replace(calm, unread="no answer", conditions=said))
    assert (unread.ours, unread.unread, unread.hub_says) == (0, "no answer", "1 was removed")
    assert drift_lines(unread)[1:] == [
        "  repair   fairlead repair tcplb/web -n shop",
        "  unknown  not read back: no answer",
        "  the hub says: 1 was removed",
    ]


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ([("Programmed", "True", "Programmed", "")], AS_SERVED),
        (
            [("Programmed", "False", "Invalid", "spec.ports: TCP/80 is there twice")],
            "not programmed: spec.ports: TCP/80",
        ),
        ([("Programmed", "False", "NoProxy", "")], "not programmed: NoProxy"),
        ([], "not programmed: the hub has not processed it yet"),
    ],
)
def test_only_programmed_parts_of_own_proxies_are_reported(conditions, said) -> None:
    wire = tuple(
        WireCondition(type=type_, status=status, reason=why, message=text) for type_, status, why, text in conditions
    )
    calm = previewed(lb(target("1")), lb(target("1")))
    (line,) = drift_lines(drift_row(msgspec.structs.replace(calm, provider="envoy", served=True, conditions=wire)))
    assert said in line
