"""Pruning of unknown fields and of nulls."""

from podless_objects import node

from podless.schema.prune import fill_defaults, prune


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
