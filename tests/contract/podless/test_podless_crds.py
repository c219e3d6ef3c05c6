"""Custom resources are defaulted, pruned, validated and served as their definition says."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from podless_client import APPLY, Api

from podless.objects import clone

SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["n"],
    "x-kubernetes-validations": [
        {"rule": "self.n <= 100", "message": "n must be at most a hundred"},
        {
            "rule": "!has(oldSelf.fixed) || self.fixed == oldSelf.fixed",
            "message": "fixed may not change",
            "fieldPath": ".fixed",
        },
        {
            "rule": "!has(self.low) || self.low < self.n",
            "messageExpression": "'low must be below n in mode ' + self.mode",
        },
    ],
    "properties": {
        "n": {"type": "integer", "minimum": 1},
        "low": {"type": "integer"},
        "fixed": {"type": "string", "maxLength": 5},
        "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "nested": {"type": "object", "default": {}, "properties": {"deep": {"type": "string", "default": "x"}}},
        "port": {"x-kubernetes-int-or-string": True},
        "name": {"type": "string", "pattern": "^[a-z]+$"},
        "address": {"type": "string", "format": "ipv4"},
        "maybe": {"type": "string", "nullable": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2},
        "ratio": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}, "maxItems": 3},
        "tags": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {
                "type": "object",
                "required": ["k"],
                "properties": {"k": {"type": "string"}, "v": {"type": "string"}},
            },
        },
    },
}


class Widgets:
    def __init__(self, api: Api) -> None:
        self.api = api
        self.group = f"g{uuid.uuid4().hex[:8]}.example.com"
        self.crd = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{self.group}"
        self.path = f"/apis/{self.group}/v1/namespaces/{api.ns}/widgets"

    def definition(self, **spec: Any) -> dict[str, Any]:
        status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "additionalPrinterColumns": [
                {"name": "Mode", "type": "string", "jsonPath": ".spec.mode"},
                {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            ],
            "schema": {
                "openAPIV3Schema": {
                    "type": "object",
                    "required": ["spec"],
                    "properties": {"spec": SPEC, "status": status},
                }
            },
        }
        names = {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]}
        body = {"group": self.group, "scope": "Namespaced", "names": names, "versions": [version]} | spec
        return {"metadata": {"name": f"widgets.{self.group}"}, "spec": body}

    def widget(self, name: str, /, **spec: Any) -> dict[str, Any]:
        return {"apiVersion": f"{self.group}/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"n": 5} | spec}


@pytest.fixture
async def widgets(api: Api) -> AsyncIterator[Widgets]:
    widgets = Widgets(api)
    made = (await api.post(widgets.crd.rpartition("/")[0], widgets.definition())).ok(201)
    assert made["spec"]["names"]["listKind"] == "WidgetList"
    await api.served(widgets.path)
    yield widgets
    await api.delete(widgets.crd)


async def test_established_and_discovered(widgets: Widgets) -> None:
    crd = (await widgets.api.get(widgets.crd)).ok()
    assert {c["type"]: c["status"] for c in crd["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert crd["status"]["storedVersions"] == ["v1"]
    listed = {r["name"]: r for r in (await widgets.api.get(f"/apis/{widgets.group}/v1")).ok()["resources"]}
    assert listed["widgets"]["shortNames"] == ["wd"]
    assert "widgets/status" in listed
    assert (await widgets.api.get(widgets.path)).ok()["kind"] == "WidgetList"


async def test_defaults_and_pruning(widgets: Widgets) -> None:
    body = widgets.widget("w", bogus=1, free={"any": {"thing": 1}}, nested={"other": 1})
    made = (await widgets.api.post(widgets.path, body)).ok(201)
    assert made["spec"] == {"n": 5, "mode": "a", "nested": {"deep": "x"}, "free": {"any": {"thing": 1}}}
    assert "status" not in made
    strict = await widgets.api.post(widgets.path, body, fieldValidation="Strict")
    strict.refused(
        400, "BadRequest", 'strict decoding error: unknown field "spec.bogus", unknown field "spec.nested.other"'
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"n": 0}, "spec.n: Invalid value: 0: spec.n in body should be greater than or equal to 1"),
        ({"n": "x"}, 'spec.n: Invalid value: "string": spec.n in body must be of type integer: "string"'),
        ({"n": None}, "spec.n: Required value"),
        ({"mode": "z"}, 'spec.mode: Unsupported value: "z": supported values: "a", "b"'),
        ({"name": "A"}, "spec.name in body should match '^[a-z]+$'"),
        ({"fixed": "toolong"}, "spec.fixed: Too long: may not be more than 5 bytes"),
        ({"address": "1.2.3"}, "spec.address in body must be of type ipv4"),
        ({"port": 1.5}, "spec.port in body must be of type integer,string"),
        ({"labels": {"a": 1}}, "spec.labels.a in body must be of type string"),
        ({"labels": {"a": "", "b": "", "c": ""}}, "spec.labels: Too many: 3: must have at most 2 items"),
        ({"ratio": 0}, "spec.ratio in body should be greater than 0"),
        ({"set": ["a", "a"]}, 'spec.set[1]: Duplicate value: "a"'),
        ({"set": ["a", "b", "c", "d"]}, "spec.set: Too many: 4: must have at most 3 items"),
        ({"tags": [{"k": "a"}, {"k": "a"}]}, 'spec.tags[1]: Duplicate value: {"k":"a"}'),
        ({"tags": [None]}, 'spec.tags[0]: Invalid value: "null": spec.tags[0] in body must be of type object'),
        ({"n": 0, "low": 1}, "low must be below n in mode a"),
        ({"n": "x", "low": 1}, "some validation rules were not checked because the object was invalid"),
        ({"tags": [{}]}, "spec.tags[0].k: Required value"),
        ({"n": 101}, "spec: Invalid value: n must be at most a hundred"),
        ({"low": 9}, "low must be below n in mode a"),
    ],
)
async def test_validation(widgets: Widgets, spec: dict[str, Any], message: str) -> None:
    (await widgets.api.post(widgets.path, widgets.widget("bad", **spec))).refused(422, "Invalid", message)


async def test_valid_values(widgets: Widgets) -> None:
    for port in (80, "http"):
        body = widgets.widget(f"w-{port}", port=port, maybe=None, labels={"a": "b"}, ratio=0.5, address="10.0.0.1")
        (await widgets.api.post(widgets.path, body)).ok(201)
    nulls = widgets.widget("nulls", maybe=None, name=None, mode=None, labels={"a": None}, free={"a": None}, set=None)
    made = (await widgets.api.post(widgets.path, nulls)).ok(201)["spec"]  # what may not be null is absent
    assert made == {"n": 5, "maybe": None, "mode": "a", "labels": {}, "free": {"a": None}, "nested": {"deep": "x"}}
    missing = {"apiVersion": f"{widgets.group}/v1", "kind": "Widget", "metadata": {"name": "x"}}
    (await widgets.api.post(widgets.path, missing)).refused(422, "Invalid", "spec: Required value")


async def test_transition_rules(widgets: Widgets) -> None:
    (await widgets.api.post(widgets.path, widgets.widget("w", fixed="a"))).ok(201)
    refused = await widgets.api.patch(widgets.path + "/w", {"spec": {"fixed": "b"}})
    refused.refused(422, "Invalid", "spec.fixed: Invalid value: fixed may not change")
    (await widgets.api.patch(widgets.path + "/w", {"spec": {"n": 6}})).ok()


async def test_a_stricter_definition_keeps_old_objects_changeable(widgets: Widgets) -> None:
    api, path = widgets.api, widgets.path + "/w"
    spec = {
        "n": 1,
        "low": 0,
        "tags": [{"k": "a", "v": "long"}, {"k": "b"}],
        "set": ["long"],
        "labels": {"a": "long", "b": "x"},
    }
    (await api.post(widgets.path, widgets.widget("w", **spec))).ok(201)
    stricter = widgets.definition()
    rules = stricter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = clone(SPEC)
    short = {"type": "string", "maxLength": 2}
    properties = rules["properties"]
    properties["tags"]["items"]["properties"]["v"] = properties["labels"]["additionalProperties"] = short
    properties["set"]["items"] = short
    properties["low"]["x-kubernetes-validations"] = [{"rule": "self > 3", "message": "low must be above three"}]
    (await api.patch(widgets.crd, {"spec": stricter["spec"]})).ok()
    async with asyncio.timeout(180):
        while True:
            probe = await api.post(widgets.path, widgets.widget("probe", low=0), dryRun="All")
            if probe.code == 422:
                break
            await asyncio.sleep(0.05)
    probe.refused(422, "Invalid", "low must be above three")
    for change in ({"mode": "b"}, {"tags": [{"k": "b"}, {"k": "a", "v": "long"}]}, {"labels": {"b": "y"}}):
        (await api.patch(path, {"spec": change})).ok()
    for change, message in (
        ({"low": -1}, "low must be above three"),
        ({"n": True}, "spec.n in body must be of type integer"),
        ({"tags": [{"k": "a", "v": "longer"}]}, "spec.tags[0].v: Too long"),
        ({"set": ["long", "x"]}, "spec.set[0]: Too long"),
        ({"labels": {"b": "long"}}, "spec.labels.b: Too long"),
    ):
        (await api.patch(path, {"spec": change})).refused(422, "Invalid", message)


async def test_generation_and_status(widgets: Widgets) -> None:
    api, path = widgets.api, widgets.path + "/w"
    made = (await api.post(widgets.path, widgets.widget("w"))).ok(201)
    changed = (await api.patch(path, {"spec": {"n": 6}, "status": {"x": 1}})).ok()
    status = (await api.patch(path + "/status", {"spec": {"n": 7}, "status": {"x": 1}})).ok()
    labelled = (await api.patch(path, {"metadata": {"labels": {"a": "b"}}})).ok()
    assert [o["metadata"]["generation"] for o in (made, changed, status, labelled)] == [1, 2, 2, 2]
    assert ("status" in changed, status["status"], status["spec"]["n"]) == (False, {"x": 1}, 6)


async def test_apply_uses_the_schema(widgets: Widgets) -> None:
    path = widgets.path + "/w"
    for manager, key in (("m1", "a"), ("m2", "b")):
        body = widgets.widget("w", tags=[{"k": key, "v": manager}])
        answer = await widgets.api.patch(path, body, APPLY, fieldManager=manager)
    assert [tag["k"] for tag in answer.ok()["spec"]["tags"]] == ["a", "b"]


async def test_columns(widgets: Widgets) -> None:
    (await widgets.api.post(widgets.path, widgets.widget("w"))).ok(201)
    heads = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    table = (await widgets.api.get(widgets.path, headers=heads)).ok()
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Mode", "Since"]
    assert table["rows"][0]["cells"][:2] == ["w", "a"]
    assert table["rows"][0]["cells"][2].endswith("s")


async def test_a_deleted_definition_takes_its_objects_along(widgets: Widgets) -> None:
    api = widgets.api
    (await api.post(widgets.path, widgets.widget("w"))).ok(201)
    (await api.delete(widgets.crd)).ok()
    await api.gone(widgets.crd)
    assert (await api.get(widgets.path)).code == 404


async def test_cluster_scope_and_versions(api: Api) -> None:
    widgets = Widgets(api)
    definition = widgets.definition(scope="Cluster")
    version = definition["spec"]["versions"][0]
    definition["spec"]["versions"].append({**version, "name": "v1beta1", "storage": False})
    (await api.post(widgets.crd.rpartition("/")[0], definition)).ok(201)
    path = f"/apis/{widgets.group}/v1beta1/widgets"
    await api.served(path)
    made = (await api.post(path, {**widgets.widget("w"), "apiVersion": f"{widgets.group}/v1beta1"})).ok(201)
    assert made["apiVersion"] == f"{widgets.group}/v1beta1"
    seen = (await api.get(f"/apis/{widgets.group}/v1/widgets/w")).ok()
    assert (seen["apiVersion"], seen["metadata"]["uid"]) == (f"{widgets.group}/v1", made["metadata"]["uid"])
    patched = (await api.patch(path + "/w", {"spec": {"n": 9}})).ok()
    assert (patched["apiVersion"], patched["spec"]["n"]) == (f"{widgets.group}/v1beta1", 9)
    groups = {g["name"]: g["preferredVersion"]["version"] for g in (await api.get("/apis")).ok()["groups"]}
    assert groups[widgets.group] == "v1"
    (await api.delete(widgets.crd)).ok()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scope": "Galaxy"}, "spec.scope: Unsupported value"),
        ({"group": "nodots"}, "spec.group: Invalid value"),
        ({"versions": []}, "must have exactly one version marked as storage version"),
        ({"names": {"plural": "others", "kind": "Widget"}}, "metadata.name: Invalid value"),
    ],
)
async def test_bad_definitions(api: Api, change: dict[str, Any], message: str) -> None:
    widgets = Widgets(api)
    bad = widgets.definition(**change)
    (await api.post(widgets.crd.rpartition("/")[0], bad)).refused(422, "Invalid", message)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "string"}, "must be object at the root"),
        ({"type": "object", "properties": {"x": {}}}, "must not be empty for specified object fields"),
        ({"type": "object", "properties": {"x": {"type": "array"}}}, "must be specified"),
        (
            {"type": "object", "properties": {"x": {"type": "string", "pattern": "("}}},
            "must be a valid regular expression",
        ),
        ({"type": "object", "x-kubernetes-validations": [{"rule": "self ==", "message": "m"}]}, "compilation failed"),
    ],
)
async def test_bad_schemas(api: Api, schema: dict[str, Any], message: str) -> None:
    widgets = Widgets(api)
    bad = widgets.definition()
    bad["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    (await api.post(widgets.crd.rpartition("/")[0], bad)).refused(422, "Invalid", message)
