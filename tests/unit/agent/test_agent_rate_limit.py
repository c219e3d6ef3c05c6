"""The limit that the user of an Ingress or route asks for."""

from __future__ import annotations

import pytest

from fairlead.agent.sources.http import limit_problem, limited
from fairlead.api.kubernetes import IngressObject
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import ANNOTATION_REQUESTS_PER_SECOND
from fairlead.model.http import Rule


def ingress(text):
    annotations = {} if text is None else {ANNOTATION_REQUESTS_PER_SECOND: text}
    return IngressObject(metadata=ObjectMeta(name="web", namespace="shop", annotations=annotations))


@pytest.mark.parametrize(
    ("text", "limit"), [(None, 0), ("1", 1), ("250", 250), ("0", 0), ("-1", 0), ("many", 0), ("٣", 0)]
)
def test_each_rule_has_a_numeric_limit(text, limit):
    rules = limited([Rule(name="a"), Rule(name="b")], ingress(text))
    assert [(rule.name, rule.requests_per_second) for rule in rules] == [("a", limit), ("b", limit)]


@pytest.mark.parametrize(
    ("text", "wrong"), [(None, False), ("5", False), ("0", True), ("many", True), ("10000001", True)]
)
def test_a_wrong_annotation_is_named_with_what_it_may_be(text, wrong):
    problem = limit_problem(ingress(text))
    assert bool(problem) is wrong
    assert not wrong or (ANNOTATION_REQUESTS_PER_SECOND in problem and "1 to 10000000" in problem)
