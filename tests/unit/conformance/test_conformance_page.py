"""The page lists each feature that is claimed with its tests, and gives a reason for each that is not."""

from __future__ import annotations

from conformance.definitions import SuiteTest
from conformance.page import features_shown, page, table
from conformance.paths import read_settings
from conformance.verdict import Verdict

TESTS = [
    SuiteTest("GatewayA", ("Gateway",)),
    SuiteTest("GatewayB", ("Gateway", "GatewayPort8080")),
    SuiteTest("RetryC", ("Gateway", "HTTPRouteRetry")),
]
VERDICT = Verdict(False, {"GatewayA": "PASS", "GatewayB": "FAIL", "RetryC": "SKIP"}, {})
FEATURES = ["Gateway", "GatewayPort8080", "HTTPRouteRetry"]


def test_the_page() -> None:
    text = page(TESTS, FEATURES, ["Gateway", "GatewayPort8080"], VERDICT)
    assert "**Of 3 tests, 1 pass, 1 fail and 1 are not run.**" in text
    assert "| Gateway | ✓ GatewayA |" in text
    assert "| GatewayPort8080 | ✗ GatewayB |" in text
    assert "* HTTPRouteRetry: " in text
    assert "Nothing: every feature is." in page(TESTS, FEATURES, FEATURES, VERDICT)


def test_the_table_names_what_failed() -> None:
    lines = [" ".join(line.split()) for line in table(TESTS, VERDICT)]
    assert lines == ["Gateway 1/1", "GatewayPort8080 0/1 FAIL GatewayB"]


def test_two_runs_with_names_of_their_own_share_only_what_is_built() -> None:
    first = read_settings({"XDG_CACHE_HOME": "/c", "NS": "a"})
    second = read_settings({"XDG_CACHE_HOME": "/c", "NS": "b", "D": "/elsewhere", "ONLY": "UDPRoute", "KEEP": "1"})
    assert first.builds == second.builds
    assert first.directory != second.directory
    assert str(second.directory) == "/elsewhere"
    assert (first.only, first.keep, second.only, second.keep) == ("", False, "UDPRoute", True)


def test_a_test_is_listed_with_its_extended_features() -> None:
    both = SuiteTest(
        "GatewayTLSBackendClientCertificate", ("Gateway", "GatewayBackendClientCertificate", "BackendTLSPolicy")
    )
    assert features_shown(both) == ("GatewayBackendClientCertificate", "BackendTLSPolicy")
    assert features_shown(TESTS[0]) == ("Gateway",)
