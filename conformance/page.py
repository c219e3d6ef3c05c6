"""The page about conformance: each feature with its tests and what came of them. Pure; written by a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance.definitions import SuiteTest
from conformance.paths import KUBERNETES_VERSION, SUITE_VERSION
from conformance.verdict import Verdict

#: Why a feature is not claimed, for the page.
REASONS: Mapping[str, str] = {}

_HEAD = """# Conformance to Gateway API

`make conformance` writes this page. The official conformance suite {suite} of Gateway API runs against `fairlead run`
with a real kube-apiserver {kubernetes} and a real Envoy. The profiles are GATEWAY-HTTP, GATEWAY-GRPC, GATEWAY-TLS,
GATEWAY-TCP and GATEWAY-UDP, and the CRDs are those of the experimental channel.

**Of {all} tests, {passed} pass, {failed} fail and {skipped} are not run.**

A run writes the report of the
suite, in the format of the suite, to `build/conformance-report.yaml`. The report counts tests too early,
so this page uses the exit code and the output of the suite instead.
"""

_MARKS = """✗ marks a test that fails, – one that is not run. A test is listed with each extended feature that it needs.
The two tests named `...NotSupported` pass without an assertion if the feature is claimed.
`none` are features that this version of the suite has no test for."""
#: Each profile asks for these; any other feature is an extended one.
_CORE = frozenset(("Gateway", "ReferenceGrant", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"))

_HOW = """## Run it yourself

`make conformance` needs root, Go and iproute2. It builds the suite and a control plane with Go, once.
Then it starts both and `fairlead run` in a network namespace, and runs the suite. The pods of the node are servers of
one process. `ONLY=HTTPRouteMatching` runs one test, and `KEEP=1` keeps the cluster for the next run. `NS=` and `D=`
name the network namespace and the directory, for several runs at once.

`make conformance-mcs` runs the suite of the
[Multi-Cluster Services API](how-to/multi-cluster-services.md#conformance).
"""


def page(tests: Sequence[SuiteTest], features: Sequence[str], claimed: Sequence[str], verdict: Verdict) -> str:
    """Return the page."""
    head = _HEAD.format(
        suite=SUITE_VERSION,
        kubernetes=KUBERNETES_VERSION,
        passed=verdict.count("PASS"),
        all=len(tests),
        failed=verdict.count("FAIL"),
        skipped=len(tests) - verdict.count("PASS") - verdict.count("FAIL"),
    )
    rows = [f"| {feature} | {_tests(feature, tests, verdict)} |" for feature in features if feature in claimed]
    features_table = ["## Features", "", _MARKS, "", "| feature | tests |", "|---|---|", *rows, ""]
    return "\n".join([head, *features_table, *_not_claimed(features, claimed), _HOW])


def features_shown(test: SuiteTest) -> tuple[str, ...]:
    """Return the features that a test is listed with: the extended ones that it needs, else its last core one."""
    extended = tuple(feature for feature in test.features if feature not in _CORE)
    return extended or test.features[-1:]


def table(tests: Sequence[SuiteTest], verdict: Verdict) -> list[str]:
    """Return a line for each feature whose tests ran: how many passed, and which failed."""
    lines: list[str] = []
    for feature in sorted({feature for test in tests for feature in features_shown(test)}):
        own = [test.name for test in tests if feature in features_shown(test)]
        ran = [name for name in own if verdict.outcomes.get(name) in ("PASS", "FAIL")]
        failed = [name for name in ran if verdict.outcomes[name] == "FAIL"]
        if ran:
            lines.append(
                f"{feature:<62} {len(ran) - len(failed)}/{len(own)}{'  FAIL ' + ', '.join(failed) if failed else ''}"
            )
    return lines


def _tests(feature: str, tests: Sequence[SuiteTest], verdict: Verdict) -> str:
    marks = {"PASS": "✓", "FAIL": "✗"}
    own = [test for test in tests if feature in features_shown(test)]
    return ", ".join(f"{marks.get(verdict.outcomes.get(test.name, ''), '–')} {test.name}" for test in own) or "none"


def _not_claimed(features: Sequence[str], claimed: Sequence[str]) -> list[str]:
    missing = [feature for feature in features if feature not in claimed]
    if not missing:
        return ["## Not claimed", "", "Nothing: every feature is.", ""]
    return ["## Not claimed", "", *(f"* {feature}: {REASONS.get(feature, 'not yet')}." for feature in missing), ""]
