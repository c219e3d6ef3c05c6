"""The table of checks: enough of them, each named once, each planted in a test, the worst finding first."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from doctor_facts import healthy, with_fields

from fairlead.doctor.checks import CHECKS, examine
from fairlead.doctor.facts import Facts


@pytest.mark.req("OP-5")
def test_an_installation_without_a_fault_has_no_finding() -> None:
    assert examine(healthy()) == []


@pytest.mark.req("OP-5")
def test_there_are_more_than_thirty_checks_and_each_has_a_name_and_a_question() -> None:
    names = [check.name for check in CHECKS]
    assert len(names) == len(set(names)) > 30
    assert [check.name for check in CHECKS if not re.fullmatch(r"[a-z-]+", check.name) or not check.question] == []


def planted(tree: ast.Module) -> Iterator[str]:
    """Yield the checks whose finding a test asserts to be the only one: the second argument of ``only``.

    A name there is an argument of the test, whose values its ``parametrize`` has.
    """
    for test in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        asserted = [
            call.args[1]
            for call in ast.walk(test)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "only"
        ]
        yield from (str(each.value) for each in asserted if isinstance(each, ast.Constant))
        names = {each.id for each in asserted if isinstance(each, ast.Name)}
        for decorator in (each for each in test.decorator_list if isinstance(each, ast.Call) and len(each.args) == 2):
            arguments, rows = ast.literal_eval(decorator.args[0]), decorator.args[1]
            assert isinstance(rows, ast.List)
            for at, argument in enumerate([arguments] if isinstance(arguments, str) else arguments):
                cells = [row.elts[at] if isinstance(row, ast.Tuple) else row for row in rows.elts]
                yield from (str(cell.value) for cell in cells if argument in names and isinstance(cell, ast.Constant))


@pytest.mark.req("OP-5")
def test_the_fault_of_each_check_is_planted_in_a_test() -> None:
    files = Path(__file__).parent.glob("test_doctor_checks_*.py")
    asserted = {name for file in files for name in planted(ast.parse(file.read_text()))}
    assert {check.name for check in CHECKS} - asserted == set()
    assert asserted - {check.name for check in CHECKS} == set()


def test_a_check_that_is_only_mentioned_is_not_planted() -> None:
    mentioned = (
        "def test_it():\n    only(facts, 'envoy')\n    assert 'files' in [each.check for each in examine(facts)]"
    )
    assert list(planted(ast.parse(mentioned))) == ["envoy"]


@pytest.mark.req("OP-5")
def test_what_a_check_leaves_to_others_names_checks() -> None:
    assert {cause for check in CHECKS for cause in check.causes} - {check.name for check in CHECKS} == set()


@pytest.mark.req("OP-5")
def test_missing_facts_are_not_a_fault() -> None:
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
