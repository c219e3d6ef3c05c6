"""A run has passed when the suite's exit code and everything that it prints say so, never by less."""

from __future__ import annotations

import pytest

from conformance.verdict import read_verdict, result_of

_MARK = "\x16"
PASSED = f"""=== RUN   TestConformance/HTTPRouteWeight
{_MARK}--- PASS: TestConformance/HTTPRouteWeight/one_case (0.10s)
{_MARK}--- PASS: TestConformance/HTTPRouteWeight (0.80s)
{_MARK}--- SKIP: TestConformance/MeshBasic (0.00s)
{_MARK}--- PASS: TestConformance (12.00s)
PASS
"""


@pytest.mark.req("G-7")
def test_whole_tests_count_and_their_cases_do_not() -> None:
    verdict = read_verdict(PASSED, 0)
    assert verdict.passed
    assert verdict.outcomes == {"HTTPRouteWeight": "PASS", "MeshBasic": "SKIP"}
    assert verdict.seconds["HTTPRouteWeight"] == 0.8
    assert (verdict.count("PASS"), verdict.count("FAIL"), verdict.failed) == (1, 0, [])


@pytest.mark.parametrize(
    ("output", "code"),
    [
        (PASSED, 1),
        (PASSED + f"{_MARK}--- FAIL: TestConformance/GatewayModifyListeners (60.00s)\n", 0),
        (PASSED + f"{_MARK}--- FAIL: TestConformance/GatewayModifyListeners/a_case (60.00s)\n", 0),
        ("", 0),
        (f"{_MARK}--- SKIP: TestConformance/MeshBasic (0.00s)\n", 0),
    ],
)
def test_any_uncertainty_is_a_failure(output: str, code: int) -> None:
    assert not read_verdict(output, code).passed


def test_output_that_is_indented_and_not_marked_is_read_too() -> None:
    verdict = read_verdict("    --- FAIL: TestConformance/TCPRouteReferenceGrant (3.00s)\n", 1)
    assert verdict.failed == ["TCPRouteReferenceGrant"]


def test_results_are_shown_as_they_come() -> None:
    line = f"{_MARK}--- PASS: TestConformance/UDPRoute (0.19s)\n"
    assert result_of(line) == "--- PASS: TestConformance/UDPRoute (0.19s)"
    assert result_of("=== RUN   TestConformance/UDPRoute\n") == ""
    assert result_of(f"{_MARK}--- PASS: TestConformance/UDPRoute/a_case (0.19s)\n") == ""
