"""What the suite is asked for: every profile, no feature left out by hand, and its report when the whole of it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from conformance import __main__ as program
from conformance.build import Programs
from conformance.mcs import summary
from conformance.paths import RunSettings

PROGRAMS = Programs(suite=Path("suite"), assets=Path("assets"), api=Path("api"), tests=Path("tests"))


class Suite:
    """A cluster whose suite only notes what it is asked for."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self.flags: dict[str, str] = {}

    def run_suite(self, suite: Path, *arguments: str) -> int:
        assert suite == PROGRAMS.suite
        self.flags = dict(each.removeprefix("-").split("=", 1) for each in arguments)
        self._settings.log.write_text("")
        return 0


def asked(directory: Path, **settings: Any) -> dict[str, str]:
    run = RunSettings(namespace="ns", directory=directory, builds=directory, **settings)
    suite = Suite(run)
    verdict = program._run(run, PROGRAMS, cast("Any", suite))
    assert not verdict.passed, "a run without a test has not passed"
    return suite.flags


@pytest.mark.req("G-2")
def test_the_whole_suite_runs_with_what_the_class_says_it_supports(tmp_path: Path) -> None:
    flags = asked(tmp_path)
    assert flags["conformance-profiles"].split(",") == [
        f"GATEWAY-{kind}" for kind in ("HTTP", "GRPC", "TLS", "TCP", "UDP")
    ]
    assert flags["report-output"].endswith("conformance-report.yaml")
    unwanted = {"supported-features", "exempt-features", "skip-tests", "skip-provisional-tests", "allow-crds-mismatch"}
    assert unwanted.isdisjoint(flags)


@pytest.mark.req("G-2")
def test_a_single_test_writes_no_report(tmp_path: Path) -> None:
    flags = asked(tmp_path, only="HTTPRouteWeight")
    assert flags["run-test"] == "HTTPRouteWeight"
    assert "report-output" not in flags


def test_the_suite_of_cluster_sets_is_counted_by_outcome() -> None:
    def result(text: str, *, passed: bool, skipped: bool = False, message: str = "") -> dict[str, Any]:
        return {"desc": text, "passed": passed, "skipped": skipped, "message": message}

    groups = [
        {"name": "Required", "tests": [result("a", passed=True), result("b", passed=False, message=" - no import")]},
        {"name": "Optional", "tests": [result("c", passed=False, skipped=True)]},
    ]
    assert summary({"groups": groups}).splitlines() == [
        "failed  Required  b - no import",
        "not run  Optional  c",
        "passed  Required  a",
        "3 tests: 1 passed, 1 failed, 1 not run",
    ]
