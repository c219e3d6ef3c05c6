"""CEL rules."""

import pytest
from podless_objects import node

from podless.failure import Cause
from podless.schema.node import escape
from podless.schema.rules import Rules


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("plain", "plain"),
        ("namespace", "__namespace__"),
        ("in", "__in__"),
        ("a.b-c/d", "a__dot__b__dash__c__slash__d"),
        ("a__b", "a__underscores__b"),
        ("a___b", "a__underscores___b"),
        ("_namespace", "_namespace"),
    ],
)
def test_rules_write_some_names_differently(name: str, written: str) -> None:
    assert escape(name) == written
    item = {"type": "object", "properties": {name: {"type": "integer"}}}
    schema = node(
        type="object",
        properties={
            name: item,
            "list": {"type": "array", "items": item},
            "map": {"type": "object", "additionalProperties": item},
        },
        **{
            "x-kubernetes-validations": [
                {
                    "rule": f"self.{written}.{written} == 1 && self.list[0].{written} == 2 "
                    f"&& self.map['a-b'].{written} == 3 && (!has(oldSelf.{written}) || self == oldSelf)"
                }
            ]
        },
    )
    value = {name: {name: 1}, "list": [{name: 2}], "map": {"a-b": {name: 3}}}
    for changed, old, count in ((value, value, 0), (value, {name: {name: 9}}, 1), ({**value, name: {name: 7}}, {}, 1)):
        violations: list[Cause] = []
        Rules().evaluate(changed, old, schema, "", violations)
        assert len(violations) == count, violations


def test_a_rule_that_breaks_is_a_violation_not_a_crash() -> None:
    schema = node(type="object", **{"x-kubernetes-validations": [{"rule": "self.none > 1"}]})
    violations: list[Cause] = []
    Rules().evaluate({}, None, schema, "", violations)
    assert "rule evaluation error" in violations[0].message
