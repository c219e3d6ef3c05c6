"""Tests and features are read from Go sources of the shape that the suite has."""

from __future__ import annotations

from conformance.definitions import SuiteTest, read_features, read_tests

FEATURES = """
const (
	// SupportGateway option indicates support for Gateway.
	SupportGateway FeatureName = "Gateway"
	SupportPort FeatureName = "GatewayPort8080"
)
"""
TESTS = """
var B = suite.ConformanceTest{
	ShortName:   "GatewayB",
	Description: "b",
	Features: []features.FeatureName{
		features.SupportGateway,
		features.SupportPort,
	},
	Provisional: true,
	Test: func(t *testing.T, s *suite.ConformanceTestSuite) {
		ShortName: "no test"
	},
}

var A = confsuite.ConformanceTest{
	ShortName: "GatewayA",
	Features:  []features.FeatureName{features.SupportGateway},
	Test: func(t *testing.T, s *confsuite.ConformanceTestSuite) {},
}
"""


def test_features_by_their_constants() -> None:
    assert read_features([FEATURES]) == {"SupportGateway": "Gateway", "SupportPort": "GatewayPort8080"}


def test_tests_with_all_that_they_need() -> None:
    assert read_tests([TESTS], read_features([FEATURES])) == [
        SuiteTest("GatewayA", ("Gateway",)),
        SuiteTest("GatewayB", ("Gateway", "GatewayPort8080"), provisional=True),
    ]
