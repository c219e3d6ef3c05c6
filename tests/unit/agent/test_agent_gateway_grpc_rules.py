"""Rules of GRPCRoutes: how methods become paths."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.sources.gateway.http_rules import BackendRefs, PlannedRule
from fairlead.agent.sources.gateway.routes import grpc_rules, method_path
from fairlead.api.gateway import GRPCMethod, GRPCRule
from fairlead.model.http import BackendRef, PathMatch, RequestMatch, Rule, ValueMatch
from tests.unit.agent.gateway_builders import ref, service


def planned(rule: dict[str, Any]) -> PlannedRule:
    services = {("infra", "web"): service()}
    refs = BackendRefs(kind="GRPCRoute", namespace="infra", services=services, grants=(), policies={})
    (result,) = grpc_rules([msgspec.convert(rule, GRPCRule)], refs)
    return result


@pytest.mark.req("G-91")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ({}, PathMatch()),
        ({"service": "a.B", "method": "C"}, PathMatch("Exact", "/a.B/C")),
        ({"service": "a.B"}, PathMatch("PathPrefix", "/a.B")),
        ({"method": "C.d"}, PathMatch("RegularExpression", r"/[^/]+/C\.d")),
        (
            {"type": "RegularExpression", "service": "a|b", "method": "C.*"},
            PathMatch("RegularExpression", "/(?:a|b)/(?:C.*)"),
        ),
        ({"type": "RegularExpression", "method": "C"}, PathMatch("RegularExpression", "/[^/]+/(?:C)")),
    ],
)
def test_path_of_a_method(method: dict[str, Any], path: PathMatch) -> None:
    assert method_path(msgspec.convert(method, GRPCMethod)) == path


@pytest.mark.req("G-91", "G-80")
def test_a_rule() -> None:
    match = {"method": {"service": "s", "method": "m"}, "headers": [{"name": "h", "value": "v"}]}
    assert planned({"name": "n", "matches": [match, {}], "backendRefs": [ref(weight=3)]}) == PlannedRule(
        Rule(
            name="n",
            matches=(RequestMatch(PathMatch("Exact", "/s/m"), headers=(ValueMatch("h", "v"),)), RequestMatch()),
            backends=(BackendRef("infra/web:80/http2", 3),),
        )
    )


def test_what_cannot_be_programmed() -> None:
    unknown = planned({"matches": [{"method": {"type": "Later", "service": "s"}}]})
    assert unknown.rule is None
    assert unknown.problem is not None
    assert unknown.problem.message == "matches: method type Later is not supported"
    extension = planned({"filters": [{"type": "ExtensionRef"}], "backendRefs": [ref()]})
    assert extension.rule == Rule()
    assert extension.problem is not None
