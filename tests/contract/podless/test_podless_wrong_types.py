"""Values of wrong types, and numbers and names that are none: each is refused, and none ends in a 500."""

from __future__ import annotations

import asyncio
from typing import Any

import podless_load_balancers
import pytest
from podless_client import APPLY, Api, config_map, service
from podless_load_balancers import lb, lbs

#: The fixture of this name.
api = podless_load_balancers.api
REVIEWS = "/apis/authorization.k8s.io/v1"


@pytest.mark.req("S-11")
@pytest.mark.parametrize("path", ["/version", "/api/v1/configmaps"])
async def test_a_token_that_is_not_text_is_rejected(api: Api, path: str) -> None:
    host, port = api.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ".encode() + b"\xff\xfe\r\n\r\n")
    assert (await reader.readline()).split()[1] == b"400"
    writer.close()


@pytest.mark.req("S-11")
@pytest.mark.parametrize("number", ["²", "٣", "9" * 5000, "-1", "1e3", "0x1", " 1", "1" * 20])
@pytest.mark.parametrize("name", ["limit", "resourceVersion", "timeoutSeconds"])
async def test_numbers_of_a_request_are_whole_and_of_64_bits(api: Api, name: str, number: str) -> None:
    watch = {"watch": "1"} if name == "timeoutSeconds" else {}
    (await api.get(api.cms, **watch, **{name: number})).refused(400, "BadRequest", f"{name}: Invalid value")


@pytest.mark.req("S-11")
@pytest.mark.parametrize(
    "meta",
    [
        {"labels": "x"},
        {"labels": ["x"]},
        {"labels": {"a": 1}},
        {"annotations": "x"},
        {"finalizers": "ab"},
        {"finalizers": [1]},
        {"ownerReferences": ["x"]},
        {"ownerReferences": {"a": "b"}},
        {"managedFields": "x"},
    ],
)
async def test_metadata_of_other_types_is_refused(api: Api, meta: dict[str, Any]) -> None:
    (await api.post(lbs(api), lb("good"))).ok(201)
    for answer in (
        await api.post(lbs(api), lb("typed", **meta)),
        await api.patch(f"{lbs(api)}/good", {"metadata": meta}),
        await api.patch(f"{lbs(api)}/good", lb("good", **meta), APPLY, fieldManager="m"),
        await api.post(api.cms, config_map("typed", **meta)),
    ):
        assert answer.code in {400, 422}, answer.raw
        assert answer.body["reason"] in {"BadRequest", "Invalid"}


@pytest.mark.req("S-11")
@pytest.mark.parametrize("spec", [[], "x", 1, {"resourceAttributes": ["x"]}, {"nonResourceAttributes": "x"}])
@pytest.mark.parametrize("kind", ["selfsubjectaccessreviews", "subjectaccessreviews"])
async def test_reviews_of_other_types_are_refused(api: Api, kind: str, spec: Any) -> None:
    answer = await api.post(f"{REVIEWS}/{kind}", {"spec": spec})
    assert answer.code in {400, 422}, answer.raw


@pytest.mark.req("S-11")
async def test_a_local_review_of_another_namespace_is_refused_whatever_its_type(api: Api) -> None:
    for namespace in ("other", ["x"], {"a": "b"}):
        spec = {"user": "a", "resourceAttributes": {"namespace": namespace}}
        path = f"{REVIEWS}/namespaces/{api.ns}/localsubjectaccessreviews"
        (await api.post(path, {"spec": spec})).refused(400, "BadRequest")


@pytest.mark.req("S-11")
@pytest.mark.parametrize("options", [{"propagationPolicy": ["x"]}, {"propagationPolicy": {}}, {"preconditions": "x"}])
async def test_delete_options_of_other_types_are_refused_or_ignored(api: Api, options: dict[str, Any]) -> None:
    (await api.post(api.cms, config_map("kept"))).ok(201)
    assert (await api.delete(f"{api.cms}/kept", options)).code in {200, 400, 422}


@pytest.mark.req("S-11")
async def test_an_applied_list_that_has_a_key_twice_is_refused(api: Api) -> None:
    (await api.post(api.svcs, service("twice"))).ok(201)
    port = {"port": 80, "protocol": "TCP"}
    body = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [port | {"name": "x"}, port | {"name": "y"}]}}
    answer = await api.patch(f"{api.svcs}/twice", body, APPLY, fieldManager="m", force="true")
    answer.refused(400, "BadRequest", 'duplicate entries for key [port=80,protocol="TCP"]')


@pytest.mark.req("S-11")
@pytest.mark.parametrize("name", ["a\n", "a\r\n", "a\x00", "a\u2028"])
async def test_names_and_labels_hold_no_line_end(api: Api, name: str) -> None:
    """Python's ``$`` also matches before a trailing line feed; Go's matches only at the end."""
    (await api.post(api.cms, config_map(name))).refused(422, "Invalid", "metadata.name")
    (await api.post(api.cms, config_map("labelled", labels={"a": name}))).refused(422, "Invalid", "metadata.labels")
