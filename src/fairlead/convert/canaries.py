"""The rules of a main Ingress as its canary Ingress changes them.

    canary-by-header (and -value, -pattern)   a rule with that header, before
    canary-by-cookie                          a rule with that cookie, before
    canary-weight                             a share of the rule's requests

In: one rule of the main Ingress, the canary's annotations and backend. Out: the rules that replace it. A rule with more
header matches goes before one with fewer, so the order of nginx (header, cookie, weight) is kept.
Source: https://kubernetes.github.io/ingress-nginx/user-guide/nginx-configuration/annotations/#canary
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from fairlead.api.gateway_routes import HTTPMatch, HTTPRule, Match, RouteBackendRef
from fairlead.api.ingress import IngressObject
from fairlead.convert.annotations import number_of
from fairlead.convert.paths import re2_problem
from fairlead.convert.remarks import Remarks

_ALWAYS, _NEVER = "always", "never"


def with_canary(
    rule: HTTPRule, canary: IngressObject, annotations: Mapping[str, str], backend: RouteBackendRef, remarks: Remarks
) -> list[HTTPRule]:
    """Return ``rule`` with its canary: first the rules for certain requests, last the one that shares by weight."""
    rules = [
        msgspec.structs.replace(rule, matches=[_also(match, header) for match in rule.matches or [HTTPMatch()]],
                                backend_refs=[backend] if chosen else rule.backend_refs)
        for header, chosen in _headers(canary, annotations, remarks)
    ]  # fmt: skip
    return [*rules, _weighted(rule, canary, annotations, backend, remarks)]


def _headers(canary: IngressObject, annotations: Mapping[str, str], remarks: Remarks) -> Iterator[tuple[Match, bool]]:
    """Yield each header match, with whether its requests go to the canary."""
    if name := annotations.get("canary-by-header", ""):
        value, pattern = annotations.get("canary-by-header-value", ""), annotations.get("canary-by-header-pattern", "")
        if value:
            yield Match(name, value), True
        elif pattern and (problem := re2_problem(pattern)):
            remarks.lost(canary, "canary-by-header-pattern", f"{problem}; the rule for the header is left out")
        elif pattern:
            yield Match(name, f".*(?:{pattern}).*", "RegularExpression"), True
        else:
            yield Match(name, _ALWAYS), True
            yield Match(name, _NEVER), False
    if cookie := annotations.get("canary-by-cookie", ""):
        for value, chosen in ((_ALWAYS, True), (_NEVER, False)):
            pattern = rf"(?:.*;\s*)?{re.escape(cookie)}={value}(?:;.*)?"
            yield Match("Cookie", pattern, "RegularExpression"), chosen


def _also(match: HTTPMatch, header: Match) -> HTTPMatch:
    return msgspec.structs.replace(match, headers=[*(match.headers or ()), header])


def _weighted(
    rule: HTTPRule, canary: IngressObject, annotations: Mapping[str, str], backend: RouteBackendRef, remarks: Remarks
) -> HTTPRule:
    weight = number_of(canary, annotations, "canary-weight", 0, remarks)
    total = number_of(canary, annotations, "canary-weight-total", 100, remarks)
    if not weight:
        return rule
    main = [msgspec.structs.replace(each, weight=max(0, total - weight)) for each in rule.backend_refs or ()]
    return msgspec.structs.replace(rule, backend_refs=[*main, msgspec.structs.replace(backend, weight=weight)])
