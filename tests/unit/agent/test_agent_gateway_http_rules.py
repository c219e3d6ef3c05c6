"""Rules of HTTPRoutes: matches, timeouts, retries, sessions, and what cannot be programmed."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from fairlead.agent.sources.gateway.http_rules import BackendRefs, PlannedRule, http_rules
from fairlead.api.gateway import HTTPRule
from fairlead.model.http import BackendRef, PathMatch, RequestMatch, RetryRule, Rule, SessionPersistence, ValueMatch
from tests.unit.agent.gateway_builders import ref, service


def planned(rule: dict[str, Any]) -> PlannedRule:
    services = {("infra", "web"): service()}
    refs = BackendRefs(kind="HTTPRoute", namespace="infra", services=services, grants=(), policies={})
    (result,) = http_rules([msgspec.convert(rule, HTTPRule)], refs)
    return result


def rule_of(**rule: Any) -> Rule:
    result = planned(rule)
    assert result.problem is None
    assert result.rule is not None
    return result.rule


@pytest.mark.req("G-46", "G-48", "G-69", "G-80")
def test_matches() -> None:
    match = {
        "path": {"type": "Exact", "value": "/x"},
        "method": "GET",
        "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": ".*", "type": "RegularExpression"}],
        "queryParams": [{"name": "q", "value": "2", "type": "Exact"}],
    }
    rule = rule_of(name="first", matches=[match, {"path": {"value": "/y"}}, {}], backendRefs=[ref()])
    assert rule.name == "first"
    headers = (ValueMatch("a", "1"), ValueMatch("b", ".*", "RegularExpression"))
    assert rule.matches == (
        RequestMatch(PathMatch("Exact", "/x"), "GET", headers, (ValueMatch("q", "2"),)),
        RequestMatch(PathMatch("PathPrefix", "/y")),
        RequestMatch(),
    )
    assert rule_of(matches=[{"path": {"type": "RegularExpression", "value": "/.*"}}]).matches == (
        RequestMatch(PathMatch("RegularExpression", "/.*")),
    )


@pytest.mark.req("G-48", "G-59")
def test_of_names_that_are_one_header_the_first_counts() -> None:
    twice = [{"name": "X-A", "value": "1"}, {"name": "x-a", "value": "2"}]
    modifier = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": twice, "add": twice}}
    rule = rule_of(matches=[{"headers": twice, "queryParams": twice}], filters=[modifier], backendRefs=[ref()])
    (match,) = rule.matches
    assert [each.value for each in match.headers] == ["1"]
    assert [each.value for each in match.query_params] == ["1", "2"], "names of parameters are case-sensitive"
    assert rule.filters.request_headers is not None
    assert [each.value for each in (*rule.filters.request_headers.set, *rule.filters.request_headers.add)] == ["1", "1"]


@pytest.mark.req("G-55", "G-56", "G-61")
def test_backends_with_weights() -> None:
    refs = [ref(weight=70), ref("none", weight=30), ref(weight=0), ref()]
    assert rule_of(backendRefs=refs).backends == (
        BackendRef("infra/web:80", 70),
        BackendRef("", 30),
        BackendRef("infra/web:80", 0),
        BackendRef("infra/web:80", 1),
    )
    assert rule_of() == Rule()


@pytest.mark.req("G-76")
def test_timeouts() -> None:
    rule = rule_of(timeouts={"request": "1s", "backendRequest": "500ms"})
    assert (rule.request_timeout_ms, rule.backend_timeout_ms) == (1000, 500)
    rule = rule_of(timeouts={"request": "0s"})
    assert (rule.request_timeout_ms, rule.backend_timeout_ms) == (0, None)


@pytest.mark.req("G-77")
def test_retries() -> None:
    assert rule_of(retry={"codes": [500, 503], "attempts": 3, "backoff": "100ms"}).retry == RetryRule(
        (500, 503), 3, 100
    )
    assert rule_of(retry={"attempts": 0}).retry == RetryRule(attempts=0)
    assert rule_of(retry={}).retry == RetryRule()


def test_sessions() -> None:
    def session(**spec: Any) -> SessionPersistence | None:
        return rule_of(sessionPersistence=spec).session

    assert session() == SessionPersistence("Cookie")
    assert session(sessionName="s", absoluteTimeout="1500ms") == SessionPersistence("Cookie", "s", 2)
    permanent = {"lifetimeType": "Permanent"}
    assert session(absoluteTimeout="1h", cookieConfig=permanent) == SessionPersistence("Cookie", "", 3600)
    assert session(type="Header", sessionName="x-s") == SessionPersistence("Header", "x-s")
    timeouts = {"absoluteTimeout": "1h", "idleTimeout": "1500ms"}
    assert session(type="Header", **timeouts) == SessionPersistence("Header", "", 3600, 2)
    assert session(**timeouts) == SessionPersistence("Cookie", "", 3600, 2)


@pytest.mark.req("G-20")
@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"filters": [{"type": "ExtensionRef"}]}, "the filter ExtensionRef is not supported"),
        ({"timeouts": {"request": "soon"}}, "timeouts.request: 'soon' is not a duration"),
        ({"retry": {"backoff": "1"}}, "retry.backoff: '1' is not a duration"),
        ({"retry": {"codes": [200]}}, r"a value cannot be programmed: .*codes"),
        ({"retry": {"attempts": 1000}}, r"a value cannot be programmed: .*attempts"),
        ({"sessionPersistence": {"idleTimeout": "-1s"}}, "sessionPersistence.idleTimeout: '-1s' is not a duration"),
        ({"sessionPersistence": {"cookieConfig": {"lifetimeType": "Permanent"}}}, "needs absoluteTimeout"),
        ({"sessionPersistence": {"type": "Later"}}, "type Later is not supported"),
    ],
)
def test_a_rule_that_cannot_be_programmed_keeps_its_matches_and_answers_500(
    rule: dict[str, Any], sentence: str
) -> None:
    result = planned({"name": "n", "matches": [{"path": {"value": "/x"}}], "backendRefs": [ref()], **rule})
    assert result.rule == Rule(name="n", matches=(RequestMatch(PathMatch("PathPrefix", "/x")),))
    assert result.problem is not None
    assert result.problem.reason == "UnsupportedValue"
    assert re.search(sentence, result.problem.message)


@pytest.mark.parametrize(
    ("match", "sentence"),
    [
        ({"path": {"type": "Later", "value": "/"}}, "path type Later is not supported"),
        ({"headers": [{"name": "a", "value": "b", "type": "Later"}]}, "type Later of a is not supported"),
        ({"headers": [{"name": "a", "value": "line\nbreak"}]}, "a value cannot be programmed"),
    ],
)
def test_a_rule_with_unknown_matches_takes_no_request(match: dict[str, Any], sentence: str) -> None:
    result = planned({"matches": [match], "backendRefs": [ref()]})
    assert result.rule is None
    assert result.problem is not None
    assert sentence in result.problem.message
