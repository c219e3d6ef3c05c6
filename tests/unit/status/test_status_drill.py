"""The report of a drill as Markdown, what a preview shows, and the history."""

from __future__ import annotations

import pytest

from fairlead.api.drill import Drill, DrillSpec
from fairlead.api.globalservice import GlobalService
from fairlead.status.drill import history_lines, preview_of, report_of
from fairlead.testing.builders import decoded


def drill(**status):
    return decoded({"metadata": {"name": "d"}, "spec": {"member": "west"}, "status": status}, Drill)


def service(*members, **spec):
    listed = [{"tenant": name, **fields} for name, fields in members]
    shown = [{"tenant": name, "state": "Standby" if fields.get("priority") else "Serving"} for name, fields in members]
    body = {"spec": {"members": listed, **spec}, "status": {"members": shown}}
    return decoded({"metadata": {"name": "web", "namespace": "ns"}, **body}, GlobalService)


@pytest.mark.req("MC-25")
def test_texts_of_others_stay_in_their_cell_of_the_report():
    phases = [{"phase": "Drilling", "seconds": 9, "members": [{"tenant": "a|b\n| c"}]}]
    report = report_of(drill(state="Failed", message="it broke", services=[{"name": "ns/web", "phases": phases}]))
    assert report.startswith("# Drill d: Failed\n")
    assert "It broke." in report
    assert {line.count("|") for line in report.splitlines() if line.startswith("|")} == {9}


@pytest.mark.req("MC-24")
def test_a_preview_says_who_takes_over_and_what_is_left_behind():
    ordered = service(("west", {}), ("east", {"priority": 1}), ("north", {"priority": 2, "weight": 0}))
    (shown,) = preview_of(DrillSpec("west"), [ordered], [])
    assert {member.tenant: member.after for member in shown.members} == {"west": 0, "east": 100, "north": 0}
    assert any("No later priority" in note for note in shown.notes)
    spare = service(("west", {}), ("east", {}), ("backup", {"priority": 1}), sessionAffinity="ClientIP")
    (shown,) = preview_of(DrillSpec("west"), [spare], [])
    assert {member.tenant: member.after for member in shown.members} == {"west": 0, "east": 100, "backup": 0}
    assert not any("No later priority" in note for note in shown.notes)
    assert any("session" in note for note in shown.notes)


@pytest.mark.req("MC-26")
def test_the_history_counts_errors_while_the_member_was_out():
    phases = [{"phase": name, "requests": 100, "errors": errors} for name, errors in (("Before", 9), ("Drilling", 2))]
    lines = history_lines([drill(state="Passed", services=[{"name": "ns/web", "phases": phases}]), drill()])
    assert len(lines) == 3
    assert "2 of 100" in lines[1]
