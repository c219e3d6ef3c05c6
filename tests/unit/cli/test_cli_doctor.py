"""The last line of ``fairlead doctor`` counts the checks, and says what none of them could look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.cli.doctor import Where, lines_of
from fairlead.doctor.facts import ApiFacts, Facts
from fairlead.doctor.finding import error

MEMBER, MACHINE = "members (--member-kubeconfig)", "this machine (--machine)"
CONNECT = "connections to targets (--connect)"


@pytest.mark.req("OP-5")
@pytest.mark.parametrize(
    ("hub", "member", "machine", "connect", "left"),
    [
        (None, None, False, False, [MEMBER, MACHINE, CONNECT]),
        ("hub", None, True, True, [MEMBER]),
        (None, "east", True, True, ["the hub (--kubeconfig)", CONNECT]),
        ("hub", "east", True, True, []),
    ],
)
def test_what_is_not_looked_at_has_its_option(
    hub: str | None, member: str | None, machine: bool, connect: bool, left: list[str]
) -> None:
    files = [Path(each) if each else None for each in (hub, member)]
    facts = Facts(version="1", member=ApiFacts(name="member") if member else None)
    where = Where(files[0], "", files[1], "", None, machine=machine, connect=connect)
    assert where.not_looked_at(facts) == left


@pytest.mark.req("OP-5")
def test_the_last_line_promises_no_more_than_was_looked_at() -> None:
    findings = [error("Lease/hub", "no hub leads", "fairlead hub")]
    assert list(lines_of([], checks=57, not_looked_at=[])) == ["57 checks: nothing is wrong."]
    assert list(lines_of([], checks=57, not_looked_at=[MEMBER, MACHINE])) == [
        f"57 checks: nothing that was looked at is wrong; not looked at: {MEMBER}, {MACHINE}."
    ]
    assert list(lines_of(findings, checks=57, not_looked_at=[MACHINE]))[-1] == (
        f"57 checks: 1 error; not looked at: {MACHINE}."
    )
