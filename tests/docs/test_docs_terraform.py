"""The page about Terraform, Crossplane and Backstage names conditions and fields that exist."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
import yaml

from fairlead.api.kinds import all_crds
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES, LoadBalancerClass
from fairlead.api.meta import WireCondition, condition_of, with_summary
from fairlead.api.names import GROUP
from fairlead.model.condition import ConditionType
from fairlead.page.tables import Detail
from tests.docs.docs_console import ROOT

PAGE = (ROOT / "docs/how-to/terraform.md").read_text()

#: The answer of the page in version 1, by path. Removing or changing a line means another version.
VERSION_1 = {
    "version": "integer",
    "id": "string",
    **{f"conditions[].{name}": "string" for name in ("type", "status", "reason", "message", "since")},
    **{f"backends[].{name}": "string" for name in ("listener", "address", "source", "state", "since", "why")},
    "moreBackends": "integer",
    "paused": "boolean",
    "maintenance": "boolean",
}


def _fields(node: dict[str, Any], components: dict[str, Any], path: str = "") -> dict[str, str]:
    if reference := node.get("$ref"):
        node = components[reference.rpartition("/")[2]]
    if "properties" in node:
        dot = f"{path}." if path else ""
        return {
            name: kind
            for child, schema in node["properties"].items()
            for name, kind in _fields(schema, components, dot + child).items()
        }
    if node.get("type") == "array" and isinstance(node.get("items"), dict):
        return _fields(node["items"], components, f"{path}[]")
    return {path: node.get("type", "")}


@pytest.mark.req("F-29")
def test_the_page_answers_with_the_fields_of_version_1() -> None:
    (schema,), components = msgspec.json.schema_components([Detail])
    fields = _fields(schema, components)
    assert {path: fields.get(path) for path in VERSION_1} == VERSION_1
    detail = msgspec.to_builtins(Detail(id="", conditions=[], providers=[], history=[]))
    assert detail["version"] == 1
    assert {path.partition("[")[0] for path in VERSION_1} <= set(detail), "never omitted"


@pytest.mark.req("F-29")
def test_the_document_lists_exactly_the_fields_of_version_1() -> None:
    table = PAGE.partition("| Field | Content |")[2]
    listed = [
        name
        for row in table.splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`(.*?)`", row.split("|")[1])
    ]
    assert sorted(listed) == sorted(VERSION_1)


@pytest.mark.req("F-28")
def test_examples_wait_for_conditions_of_their_kind() -> None:
    crds = {crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0] for crd in all_crds()}
    waits = [
        (block, re.findall(r'^ {6}type += "(\w+)"', block, re.MULTILINE))
        for block in re.findall(r"```hcl\n(.*?)```", PAGE, re.DOTALL)
        if "kubernetes_manifest" in block
    ]
    assert waits
    for block, types in waits:
        version = crds[re.findall(r'kind += "(\w+)"', block)[0]]
        assert f'apiVersion = "{GROUP}/{version["name"]}"' in block
        assert types == [ConditionType.READY]
        assert "conditions" in version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]


@pytest.mark.req("F-28")
def test_the_object_of_crossplane_holds_a_valid_class() -> None:
    documents = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    (obj,) = [document for document in documents if document.get("kind") == "Object"]
    manifest = obj["spec"]["forProvider"]["manifest"]
    assert msgspec.convert(manifest, LoadBalancerClass).spec.provider == "envoy"
    assert manifest["apiVersion"] == LOAD_BALANCER_CLASSES.api_version


@pytest.mark.req("F-28")
def test_ready_is_false_if_any_part_does_not_serve() -> None:
    types = (ConditionType.ACCEPTED, ConditionType.PROGRAMMED, ConditionType.SERVING)
    good = [WireCondition(type=kind, status="True", reason="", observed_generation=1) for kind in types]
    cases = [good, *([*good[:i], msgspec.structs.replace(good[i], status="False"), *good[i + 1 :]] for i in range(3))]
    ready = [condition_of(with_summary(case, None), ConditionType.READY) for case in cases]
    assert [condition and condition.status for condition in ready] == ["True", "False", "False", "False"]
