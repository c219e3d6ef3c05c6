"""Routes of Gateway API, file by file: ``<case>.in.json`` and what it becomes in ``<case>.out.json``.

A change of a message, a default or an order shows as a diff of files. ``make golden`` rewrites what comes out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.gateway_routes.route_case import RouteCase, translate_route
from tests.golden.translate.golden_views import dump, read_view

ROUTES = Path(__file__).parent
#: Every reason of a condition of a route or of a BackendTLSPolicy that we set.
REASONS = {
    "Accepted",
    "BackendNotFound",
    "Conflicted",
    "IncompatibleFilters",
    "InvalidCACertificateRef",
    "InvalidKind",
    "NoMatchingListenerHostname",
    "NoMatchingParent",
    "NoValidCACertificate",
    "NotAllowedByListeners",
    "RefNotPermitted",
    "ResolvedRefs",
    "TargetNotFound",
    "UnsupportedProtocol",
    "UnsupportedValue",
}


def cases() -> list[str]:
    return sorted(path.name.removesuffix(".in.json") for path in ROUTES.glob("*.in.json"))


@pytest.mark.parametrize("case", cases())
@pytest.mark.req("G-18", "G-19", "G-20", "G-21", "G-44", "G-49", "G-62", "G-94", "E-23")
def test_route(case: str, golden: Callable[[Path, str], None]) -> None:
    view = read_view(ROUTES / f"{case}.in.json", RouteCase)
    golden(ROUTES / f"{case}.out.json", dump(translate_route(view)))


def test_every_reason_and_kind_is_in_a_golden_file() -> None:
    reasons: set[str] = set()
    for path in ROUTES.glob("*.out.json"):
        out = json.loads(path.read_text())
        entries = list(out["status"].get("parents", []))
        entries += [entry for policy in out.get("policies", {}).values() for entry in policy.get("ancestors", [])]
        reasons |= {condition["reason"] for entry in entries for condition in entry.get("conditions", [])}
    assert REASONS - reasons == set()
    kinds = {json.loads(path.read_text())["kind"] for path in ROUTES.glob("*.in.json")}
    assert kinds == {"HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"}


def test_every_golden_file_has_its_case() -> None:
    assert {path.name.removesuffix(".out.json") for path in ROUTES.glob("*.out.json")} == set(cases())
