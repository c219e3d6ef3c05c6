"""The rules of a GRPCRoute.

    method match                        path of the request
    ----------------------------------  ---------------------------------
    Exact service and method            /service/method
    Exact service                       prefix /service
    Exact method                        regular expression /[^/]+/method
    RegularExpression                   regular expression of both parts

In: its rules, and what resolves their references. Out: rules as for an HTTPRoute. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fairlead.agent.l7.gateway.backend_refs import BackendRefs
from fairlead.agent.l7.gateway.http_filters import Unusable, build_filters
from fairlead.agent.l7.gateway.http_rules import PlannedRule, backends_of, plan_rule, session_of, value_matches
from fairlead.api.gateway_routes import GRPCMatch, GRPCMethod, GRPCRule
from fairlead.model.http import PathMatch, RequestMatch, Rule

_ANY_PART = "[^/]+"


def grpc_rules(rules: Iterable[GRPCRule], refs: BackendRefs) -> list[PlannedRule]:
    """Return the rules of a GRPCRoute."""
    return [_grpc_rule(rule, refs) for rule in rules]


def method_path(method: GRPCMethod | None) -> PathMatch:
    """Return the path by which a method is matched; raises ``Unusable`` for an unknown type."""
    service, name = (method.service or "", method.method or "") if method is not None else ("", "")
    if method is None or not (service or name):
        return PathMatch()
    match method.type or "Exact":
        case "Exact" if service and name:
            return PathMatch("Exact", f"/{service}/{name}")
        case "Exact" if service:
            return PathMatch("PathPrefix", f"/{service}")
        case "Exact":
            return PathMatch("RegularExpression", f"/{_ANY_PART}/{re.escape(name)}")
        case "RegularExpression":
            parts = (f"(?:{part})" if part else _ANY_PART for part in (service, name))
            return PathMatch("RegularExpression", f"/{'/'.join(parts)}")
        case other:
            raise Unusable(f"matches: method type {other} is not supported")


def _grpc_rule(rule: GRPCRule, refs: BackendRefs) -> PlannedRule:
    def build() -> Rule:
        backends = backends_of(rule.backend_refs, refs)
        return Rule(
            filters=build_filters(rule.filters, refs),
            backends=backends,
            session=session_of(rule.session_persistence),
        )

    return plan_rule(rule.name, lambda: tuple(_request_match(match) for match in rule.matches or ()), build)


def _request_match(match: GRPCMatch) -> RequestMatch:
    return RequestMatch(path=method_path(match.method), headers=value_matches(match.headers))
