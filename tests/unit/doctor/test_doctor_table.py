"""The table of checks: enough of them, each named once, each planted in a test, the worst finding first."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from doctor_facts import healthy, with_fields

from fairlead.doctor.facts import Facts
from fairlead.doctor.table import CHECKS, examine


@pytest.mark.req("OP-5")
def test_an_installation_without_a_fault_has_no_finding() -> None:
    assert examine(healthy()) == []


@pytest.mark.req("OP-5")
def test_there_are_more_than_thirty_checks_and_each_has_a_name_and_a_question() -> None:
    names = [check.name for check in CHECKS]
    assert len(names) == len(set(names)) > 30
    assert [check.name for check in CHECKS if not re.fullmatch(r"[a-z-]+", check.name) or not check.question] == []


@pytest.mark.req("OP-5")
def test_the_fault_of_each_check_is_planted_in_a_test() -> None:
    here = Path(__file__).parent
    planted = {
        name for file in here.glob("test_doctor_checks_*.py") for name in re.findall(r'"([a-z-]+)"', file.read_text())
    }
    assert {check.name for check in CHECKS} - planted == set()


@pytest.mark.req("OP-5")
def test_facts_that_were_not_gathered_are_no_fault() -> None:
    assert examine(Facts(version="0.2.0")) == []
    side = with_fields("hub", objects={}).hub
    assert examine(Facts(version="0.2.0", hub=side)) == []


@pytest.mark.req("OP-5")
def test_errors_come_first() -> None:
    facts = with_fields("machine", file_limit=1024, envoy_problem="there is none")
    facts = msgspec.structs.replace(facts, hub=with_fields("hub", ahead_s=90.0).hub)
    assert [(finding.severity.value, finding.check) for finding in examine(facts)] == [
        ("error", "envoy"),
        ("warning", "clocks"),
        ("warning", "files"),
    ]
