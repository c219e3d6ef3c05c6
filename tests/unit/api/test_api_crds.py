"""The CRDs that are made from the wire types: structural, and exactly as they were last read by a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.api.crd import structural_schema
from fairlead.api.kinds import all_crds
from fairlead.api.tcploadbalancer import TCPLoadBalancer

CRDS = all_crds()
IDS = [crd["metadata"]["name"] for crd in CRDS]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), dict):
            yield from nodes(schema[part], f"{path}[]")


def schema_of(crd):
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@pytest.mark.parametrize("crd", CRDS, ids=IDS)
class TestStructural:
    def test_every_node_has_a_type_and_nothing_that_is_not_structural(self, crd):
        for path, node in nodes(schema_of(crd)):
            assert node.get("type") or node.get("x-kubernetes-preserve-unknown-fields"), path
            assert not {"$ref", "anyOf", "oneOf", "allOf", "definitions", "$defs", "title"} & set(node), path

    def test_the_keys_of_a_list_map_are_required_or_have_a_default(self, crd):
        for path, node in nodes(schema_of(crd)):
            for key in node.get("x-kubernetes-list-map-keys", ()):
                items = node["items"]
                has_default = "default" in items["properties"][key]
                assert key in items.get("required", ()) or has_default, f"{path}: {key}"
                # The API server refuses a key that is both: a default of something required means nothing.

    def test_lists_say_how_they_merge(self, crd):
        kinds = {"atomic", "set", "map"}
        spec = schema_of(crd)["properties"].get("spec", {})
        bare = [
            path
            for path, node in nodes(spec)
            if node["type"] == "array" and node.get("x-kubernetes-list-type") not in kinds
        ]
        assert bare == [] or crd["spec"]["names"]["kind"] not in {"Tenant", "TCPLoadBalancer", "LoadBalancerClass"}

    def test_every_part_of_spec_that_is_an_object_says_what_it_is_for(self, crd):
        assert schema_of(crd)["description"]
        assert schema_of(crd)["properties"]["spec"]["description"]

    def test_names(self, crd):
        names = crd["spec"]["names"]
        assert crd["metadata"]["name"] == f"{names['plural']}.{crd['spec']['group']}"
        assert names["categories"] == ["fairlead"]
        assert names["shortNames"]
        columns = [column["name"] for column in crd["spec"]["versions"][0]["additionalPrinterColumns"]]
        assert columns[-1] == "Age"
        assert len(set(columns)) == len(columns)


def test_short_names_are_unique():
    short = [name for crd in CRDS for name in crd["spec"]["names"]["shortNames"]]
    assert len(set(short)) == len(short)


@pytest.mark.req("K-15")
def test_the_limits_of_a_port_are_in_the_schema():
    port = structural_schema(TCPLoadBalancer)["properties"]["spec"]["properties"]["ports"]
    assert port["minItems"] == 1
    assert "maxItems" not in port, "a Service has no such limit"
    assert (port["items"]["properties"]["port"]["minimum"], port["items"]["properties"]["port"]["maximum"]) == (
        1,
        65535,
    )
    assert port["items"]["properties"]["protocol"]["enum"] == ["TCP", "UDP"]
    assert port["x-kubernetes-list-map-keys"] == ["port", "protocol"]
