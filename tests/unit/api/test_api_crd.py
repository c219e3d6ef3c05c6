"""How a wire type becomes a definition: precedence of two sources, and what a structural schema leaves out."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from fairlead.api.crd import CelRule, Column, Crd, _encoded_schema, build_crd, structural_schema
from fairlead.api.meta import KubeObject, Resource, Wire


class Part(Wire, frozen=True):
    """What a part is."""

    port: Annotated[int, Meta(ge=1)] = 1
    names: list[str] | None = None


class ThingSpec(Wire, frozen=True):
    """What a thing is to be."""

    part: Part = Part()
    parts: Annotated[
        list[Part], Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"]})
    ] = msgspec.field(default_factory=list[Part])
    named: Annotated[str, Meta(description="Its own sentence.")] = ""
    size: int = 3


class Thing(KubeObject, frozen=True):
    """A thing."""

    spec: ThingSpec = ThingSpec()


THINGS = Resource("example.org", "v1", "Thing", "things", True, Thing)


@pytest.fixture
def spec() -> dict[str, Any]:
    return structural_schema(Thing)["properties"]["spec"]["properties"]


def test_a_struct_brings_its_docstring_and_a_field_keeps_its_own_sentence(spec: dict[str, Any]) -> None:
    assert (spec["part"]["description"], spec["named"]["description"]) == ("What a part is.", "Its own sentence.")
    assert "description" not in spec["size"], "no row in field_descriptions"


def test_a_row_of_the_descriptions_is_for_fields_without_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"ThingSpec": {"size": "How large it is.", "named": "Another.", "part": "Another."}}
    monkeypatch.setattr("fairlead.api.crd.FIELDS", rows)
    # What a type's schema is with other rows is not kept for the next test.
    monkeypatch.setattr("fairlead.api.crd._encoded_schema", _encoded_schema.__wrapped__)
    properties = structural_schema(Thing)["properties"]["spec"]["properties"]
    said = [properties[name]["description"] for name in ("size", "named", "part")]
    assert said == ["How large it is.", "Its own sentence.", "What a part is."]


def test_defaults_are_listed_when_they_carry_information(spec: dict[str, Any]) -> None:
    assert spec["size"]["default"] == 3
    assert "default" not in spec["named"]
    assert "default" not in spec["part"]


def test_unions_with_null_and_references_are_resolved(spec: dict[str, Any]) -> None:
    names = spec["part"]["properties"]["names"]
    assert (names["type"], names["items"]["type"]) == ("array", "string")


def test_rules_are_at_the_spec_or_the_object() -> None:
    crd = Crd(
        THINGS,
        ("th",),
        (Column("Size", ".spec.size", "integer", priority=1),),
        rules=(CelRule("self.size > 0", "size"), CelRule("true", "name", whole=True)),
    )
    version = build_crd(crd)["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    assert schema["x-kubernetes-validations"] == [{"rule": "true", "message": "name"}]
    assert schema["properties"]["spec"]["x-kubernetes-validations"] == [{"rule": "self.size > 0", "message": "size"}]
    assert version["additionalPrinterColumns"][0]["priority"] == 1
    assert "subresources" not in version, "it has no status"
