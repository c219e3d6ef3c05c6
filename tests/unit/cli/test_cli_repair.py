"""``fairlead repair`` says what it puts back, and what became of it."""

from __future__ import annotations

import msgspec
import pytest
from cli_builders import NOW, lb, previewed

from fairlead.api.meta import WireCondition
from fairlead.cli.changes import drift_row, lines_of_repair, still_missing
from fairlead.cli.hub_reader import Snapshot
from fairlead.model.observed import Observed
from fairlead.status.fleet import HubRow
from fairlead.status.object_ref import ObjectRef
from fairlead.sync.readback import drift_of
from fairlead.testing.builders import target

REF = ObjectRef("TCPLoadBalancer", "shop", "web")


@pytest.mark.req("X-3")
@pytest.mark.parametrize(
    ("asked", "left", "leading", "dry_run", "last"),
    [
        ([], [], True, False, "Nothing of TCPLoadBalancer shop/web needs to be reverted."),
        ([REF], [REF], True, True, "To revert it, run the same command without --dry-run."),
        ([REF], [], True, False, "The hub has reverted it."),
        (
            [REF],
            [REF],
            True,
            False,
            "Requested, but not done yet: tcplb/shop/web; see why with: fairlead explain tcplb/web -n shop",
        ),
        ([REF], [REF], False, False, "Requested; a hub reverts it as soon as it leads."),
    ],
)
def test_a_removal_is_previewed_with_its_end(
    asked: list[ObjectRef], left: list[ObjectRef], leading: bool, dry_run: bool, last: str
) -> None:
    drifted = previewed(lb(target("1")), lb(target("1")))
    drifted = msgspec.structs.replace(drifted, drift=drift_of(drifted.side, Observed(targets=())))
    snapshot = Snapshot([drifted], HubRow("hub-1", 1.0, leading), NOW)
    lines = lines_of_repair(REF.title, snapshot, [drift_row(drifted)], asked, dict.fromkeys(left, ""), dry_run=dry_run)
    assert "  ours     TCP/80 10.0.0.1:8080: no longer at the provider" in lines
    assert last in lines[-2:]
    assert ("No hub leads now" in lines[-1]) is not leading


@pytest.mark.req("X-3")
@pytest.mark.parametrize(
    ("programmed", "drifted", "missing"),
    [
        ("True", "False", None),
        ("Unknown", "", None),
        ("", "", None),
        ("False", "False", "Programmed says why"),
        ("False", "True", "Programmed says why"),
        ("True", "True", "Drifted says why"),
    ],
)
def test_load_balancers_not_programmed_are_not_repaired(programmed: str, drifted: str, missing: str | None) -> None:
    conditions = [
        WireCondition(type=kind, status=status, reason="R", message=f"{kind} says why")
        for kind, status in (("Programmed", programmed), ("Drifted", drifted))
        if status
    ]
    assert still_missing(conditions) == missing


@pytest.mark.req("X-3")
def test_missing_parts_are_reported_with_the_hubs_message() -> None:
    snapshot = Snapshot([], HubRow("hub-1", 1.0, leading=True), NOW)
    lines = lines_of_repair(REF.title, snapshot, [], [REF], {REF: "the driver refuses it"}, dry_run=False)
    assert lines[0] == "  missing  tcplb/shop/web: the driver refuses it"
    assert lines[1].startswith("Requested, but not done yet: tcplb/shop/web; see why with: fairlead explain")
