"""Do the walks over a schema prune, default and validate as its words say?"""

from typing import Any

import pytest

from fairlead.apiserver.failure import Cause
from fairlead.apiserver.schema.builtin import BuiltinSchemas
from fairlead.apiserver.schema.cel_library import quantity
from fairlead.apiserver.schema.defaults import fill_defaults
from fairlead.apiserver.schema.formats import fits
from fairlead.apiserver.schema.node import Compiler, SchemaNode, escape
from fairlead.apiserver.schema.prune import prune
from fairlead.apiserver.schema.rules import Rules
from fairlead.apiserver.schema.validate import validate


def node(**schema: Any) -> SchemaNode:
    return Compiler().compile(schema)


def causes(value: Any, schema: SchemaNode) -> list[str]:
    found: list[Cause] = []
    validate(value, schema, "x", found)
    return [str(cause) for cause in found]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("integer", [0, 2.0], [1.5, True, "1", None]),
        ("number", [0, 1.5], [True, "1"]),
        ("string", ["", "x"], [1, [], {}]),
        ("boolean", [True], [0, "true"]),
        ("array", [[]], [{}]),
        ("object", [{}], [[]]),
    ],
)
def test_types(kind: str, good: list[Any], bad: list[Any]) -> None:
    assert [causes(value, node(type=kind)) for value in good] == [[]] * len(good)
    assert all("must be of type " + kind in causes(value, node(type=kind))[0] for value in bad)


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": "integer", "maximum": 3}, 4, "should be less than or equal to 3"),
        ({"type": "integer", "maximum": 3, "exclusiveMaximum": True}, 3, "should be less than 3"),
        ({"type": "integer", "multipleOf": 2}, 3, "should be a multiple of 2"),
        ({"type": "string", "minLength": 2}, "a", "should be at least 2 chars long"),
        ({"type": "array", "minItems": 1, "items": {}}, [], "should have at least 1 items"),
        ({"type": "object", "minProperties": 1}, {}, "should have at least 1 properties"),
        ({"type": "integer", "anyOf": [{"maximum": 1}, {"minimum": 5}]}, 3, "(anyOf)"),
        ({"type": "integer", "oneOf": [{"minimum": 1}, {"minimum": 2}]}, 3, "(oneOf)"),
        ({"type": "integer", "not": {"minimum": 1}}, 3, "(not)"),
        ({"type": "integer", "allOf": [{"minimum": 5}]}, 3, "greater than or equal to 5"),
    ],
)
def test_limits(schema: dict[str, Any], value: Any, message: str) -> None:
    assert message in causes(value, node(**schema))[0]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("ipv4", "10.0.0.1", "::1"),
        ("ipv6", "::1", "10.0.0.1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("date-time", "2026-01-02T03:04:05Z", "2026-01-02"),
        ("duration", "1h30m", "soon"),
        ("uri", "https://example.com", "example"),
        ("hostname", "a.example.com", "-a"),
        ("byte", "Yg==", "b"),
        ("unheard-of", "anything", ""),
    ],
)
def test_formats(name: str, good: str, bad: str) -> None:
    assert fits(good, name)
    assert fits(bad, name) is (name == "unheard-of")


def test_pruning_names_what_it_removes() -> None:
    schema = node(
        type="object",
        properties={
            "a": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    )
    value = {"a": [{"x": "1", "y": 2}], "b": 1, "free": {"z": 1}, "map": {"k": "v"}}
    unknown: list[str] = []
    prune(value, schema, "", unknown, drop_nulls=False)
    assert value == {"a": [{"x": "1"}], "free": {"z": 1}, "map": {"k": "v"}}
    assert unknown == ["a[0].y", "b"]


def test_a_null_stays_where_it_may_or_where_a_default_takes_its_place() -> None:
    text = {"type": "string"}
    schema = node(
        type="object",
        properties={
            "no": text,
            "may": text | {"nullable": True},
            "default": text | {"default": "x"},
            "map": {"type": "object", "additionalProperties": text},
            "list": {"type": "array", "items": text},
        },
    )
    value = {"no": None, "may": None, "default": None, "map": {"k": None}, "list": [None]}
    prune(value, schema, "", [], drop_nulls=False)
    fill_defaults(value, schema)
    assert value == {"may": None, "default": "x", "map": {}, "list": [None]}


def test_defaults_are_copies() -> None:
    schema = node(type="object", properties={"l": {"type": "array", "items": {}, "default": [1]}})
    one: dict[str, Any] = {}
    two: dict[str, Any] = {"l": None}
    fill_defaults(one, schema)
    fill_defaults(two, schema)
    one["l"].append(2)
    assert two == {"l": [1]}


def test_every_built_in_definition_compiles() -> None:
    schemas = BuiltinSchemas()
    service = schemas.node("io.k8s.api.core.v1.Service")
    ports = service.properties["spec"].properties["ports"]
    assert (ports.list_type, ports.map_keys, ports.merge_key) == ("map", ("port", "protocol"), "port")
    for name in schemas.definitions:
        assert schemas.node(name) is schemas.node(name)


@pytest.mark.parametrize(("text", "number"), [("500m", 0.5), ("1Gi", 2**30), ("2k", 2000), ("3", 3), ("1e3", 1000)])
def test_quantities(text: str, number: float) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ("isIP(self.ip)", True),
        ("ip(self.ip).family() == 4", True),
        ("cidr('10.0.0.0/8').containsIP(self.ip)", True),
        ("quantity('1Gi').isGreaterThan(quantity('1Mi'))", True),
        ("url('https://a.b:1/c').getHostname() == 'a.b'", True),
        ("self.list.isSorted()", False),
        ("self.ip.find('[0-9]+') == '10'", True),
        ("self.list.indexOf('a') == 1", True),
    ],
)
def test_cel_library(rule: str, verdict: bool) -> None:
    schema = node(type="object", **{"x-kubernetes-validations": [{"rule": rule, "message": "no"}]})
    found: list[Cause] = []
    Rules().evaluate({"ip": "10.0.0.1", "list": ["b", "a"]}, None, schema, "", found)
    assert (found == []) is verdict, found


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
        found: list[Cause] = []
        Rules().evaluate(changed, old, schema, "", found)
        assert len(found) == count, found


def test_a_rule_that_breaks_is_a_violation_not_a_crash() -> None:
    schema = node(type="object", **{"x-kubernetes-validations": [{"rule": "self.none > 1"}]})
    found: list[Cause] = []
    Rules().evaluate({}, None, schema, "", found)
    assert "rule evaluation error" in found[0].message
