from __future__ import annotations

from typing import Any

from fairlead.api.crd import fields_of, is_within, newer_fields


def crd(properties: dict[str, Any]) -> dict[str, Any]:
    old = {"name": "v1", "schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": {"gone": {}}}}}}}
    new = {"name": "v2", "storage": True, "schema": {"openAPIV3Schema": {"properties": properties}}}
    return {"spec": {"versions": [old, new]}}


def text(*names: str) -> dict[str, Any]:
    return {"properties": {name: {"type": "string"} for name in names}}


def test_fields_are_those_below_spec_and_status_of_the_stored_version() -> None:
    ports = {"type": "array", "items": text("name")}
    definition = crd({"metadata": text("x"), "spec": {"properties": {"ports": ports}}, "status": text("address")})
    assert fields_of(definition) == {"spec", "spec.ports", "spec.ports.name", "status", "status.address"}


def test_newer_is_what_has_all_of_ours_and_more() -> None:
    ours = crd({"spec": text("a", "b")})
    assert newer_fields(ours, crd({"spec": text("a", "b", "d", "c")})) == ["spec.c", "spec.d"]
    assert newer_fields(ours, ours) == []
    assert newer_fields(ours, crd({"spec": text("a", "c")})) == [], "b would be missing"
    assert newer_fields(ours, {}) == []


def test_what_a_server_adds_is_not_a_difference_and_any_other_word_is() -> None:
    ours = crd({"spec": text("a")})
    served = {"spec": {**ours["spec"], "conversion": {"strategy": "None"}}, "status": {"conditions": []}}
    assert is_within(ours, served)
    assert not is_within(ours, crd({"spec": text("a", "b")})), "an older version of ours may have had b"
    assert not is_within(served, ours)
    assert not is_within(ours, {})
