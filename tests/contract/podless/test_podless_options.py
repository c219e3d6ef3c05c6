"""Options in bodies, resourceVersionMatch, and the checks of core objects that Kubernetes has."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import pytest
from podless_client import APPLY, MERGE, Api

from tests.contract.podless.conftest import Target

pytestmark = [
    pytest.mark.req("EDGE-10"),
    pytest.mark.parametrize("target", ["memory", pytest.param("real", marks=pytest.mark.real_api)], indirect=True),
]


async def names(api: Api) -> list[str]:
    listed = [item["metadata"]["name"] for item in (await api.get(api.cms)).ok()["items"]]
    return [name for name in listed if name in "abc"]  # controllers of a real server create one more


async def three(api: Api) -> str:
    """Create three ConfigMaps; returns the resourceVersion of the last one."""
    last: Any = {}
    for name in "abc":
        last = (await api.post(api.cms, {"metadata": {"name": name}})).ok(201)
    return last["metadata"]["resourceVersion"]


@pytest.mark.parametrize("path", ["", "/a"], ids=["collection", "object"])
async def test_a_dry_run_in_the_body_deletes_nothing(api: Api, path: str) -> None:
    await three(api)
    (await api.call("DELETE", api.cms + path, {"dryRun": ["All"]})).ok()
    assert await names(api) == ["a", "b", "c"]
    (await api.call("DELETE", api.cms + path, {"dryRun": ["Some"]})).refused(422, "Invalid", "dryRun")
    assert await names(api) == ["a", "b", "c"]
    (await api.call("DELETE", api.cms + path, {"kind": "DeleteOptions", "apiVersion": "v1"})).ok()
    assert "a" not in await names(api)


async def test_an_exact_version_is_that_version_or_expired(api: Api, target: Target) -> None:
    rv = await three(api)
    listed = (await api.get(api.cms, resourceVersion=rv, resourceVersionMatch="Exact")).ok()
    assert listed["metadata"]["resourceVersion"] == rv
    assert {"a", "b", "c"} <= {item["metadata"]["name"] for item in listed["items"]}
    # Another kind changes: the state of this one at that version is still known.
    (await api.post(f"/api/v1/namespaces/{api.ns}/secrets", {"metadata": {"name": "s"}})).ok(201)
    listed = (await api.get(api.cms, resourceVersion=rv, resourceVersionMatch="Exact")).ok()
    assert listed["metadata"]["resourceVersion"] == rv
    (await api.call("DELETE", f"{api.cms}/b")).ok()
    exact = await api.get(api.cms, resourceVersion=rv, resourceVersionMatch="Exact")
    # A real server still has that version for some minutes.
    exact.ok() if target.name == "real" else exact.refused(410, "Expired")
    newer = (await api.get(api.cms, resourceVersion=rv, resourceVersionMatch="NotOlderThan")).ok()
    assert "b" not in {item["metadata"]["name"] for item in newer["items"]}


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
        {"resourceVersionMatch": "Bogus", "resourceVersion": "1"},
        {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1", "continue": "x"},
    ],
)
async def test_a_version_match_that_means_nothing_is_refused(api: Api, query: dict[str, str]) -> None:
    (await api.get(api.cms, **query)).refused(422, "Invalid", "resourceVersionMatch")


def encoded(**entries: str) -> dict[str, str]:
    return {key.replace("_", "."): base64.b64encode(value.encode()).decode() for key, value in entries.items()}


@pytest.mark.parametrize(
    ("plural", "body", "field"),
    [
        ("configmaps", {"data": {"a/b": "v"}}, "data[a/b]"),
        ("configmaps", {"data": {"..": "v"}}, "data[..]"),
        ("configmaps", {"data": {"..data": "v"}}, "data[..data]"),
        ("configmaps", {"data": {"k": "v"}, "binaryData": {"k": "dg=="}}, "data[k]"),
        ("secrets", {"data": {"a b": "dg=="}}, "data[a b]"),
        ("secrets", {"type": "kubernetes.io/tls", "data": encoded(tls_crt="x")}, "data[tls.key]"),
        ("secrets", {"type": "kubernetes.io/ssh-auth"}, "data[ssh-privatekey]"),
        ("secrets", {"type": "kubernetes.io/dockerconfigjson"}, "data[.dockerconfigjson]"),
        ("secrets", {"type": "kubernetes.io/basic-auth"}, "data[username]"),
        ("configmaps", {"metadata": {"finalizers": ["nonsense"]}}, "metadata.finalizers[0]"),
    ],
)
async def test_what_kubernetes_refuses_is_refused(api: Api, plural: str, body: dict[str, Any], field: str) -> None:
    path = f"/api/v1/namespaces/{api.ns}/{plural}"
    body = {**body, "metadata": {"name": "x", **body.get("metadata", {})}}
    refused = (await api.post(path, body)).refused(422, "Invalid")
    assert field in [cause["field"] for cause in refused["details"]["causes"]]


@pytest.mark.parametrize(
    ("plural", "body"),
    [
        ("secrets", {"type": "kubernetes.io/tls", "data": encoded(tls_crt="", tls_key="")}),
        ("secrets", {"type": "kubernetes.io/basic-auth", "data": encoded(password="p")}),
        ("secrets", {"stringData": {"a.b-c_D": "v"}}),
        ("configmaps", {"metadata": {"finalizers": ["example.com/hold"]}}),
    ],
)
async def test_what_kubernetes_accepts_is_accepted(api: Api, plural: str, body: dict[str, Any]) -> None:
    path = f"/api/v1/namespaces/{api.ns}/{plural}"
    (await api.post(path, {**body, "metadata": {"name": "x", **body.get("metadata", {})}})).ok(201)


async def test_an_apply_names_its_manager_and_force_is_for_apply_only(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    path = f"{api.cms}/x"
    (await api.call("PATCH", path, body, media=APPLY)).refused(422, "Invalid", "fieldManager")
    (await api.call("PATCH", path, body, media=APPLY, fieldManager="m")).ok(201)
    (await api.call("PATCH", path, body, media=MERGE, force="true")).refused(422, "Invalid", "force")


@pytest.mark.parametrize(
    "headers", [{"Impersonate-Uid": "0"}, {"Impersonate-Extra-scopes": "all"}], ids=["uid", "extra"]
)
async def test_impersonating_a_uid_or_extra_fields_needs_a_right_of_its_own(api: Api, headers: dict[str, str]) -> None:
    token = await robot(api, {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]})
    who = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    (await api.post(who, {}, token=token, headers={"Impersonate-User": "bob"})).ok(201)
    (await api.post(who, {}, token=token, headers={"Impersonate-User": "bob", **headers})).refused(403, "Forbidden")


async def robot(api: Api, *rules: dict[str, Any]) -> str:
    """Create a service account with these rules in all namespaces; returns its token."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    (await api.post(f"{rbac}/clusterroles", {"metadata": {"name": api.ns}, "rules": list(rules)})).ok(201)
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": api.ns}
    binding = {"roleRef": {"kind": "ClusterRole", "name": api.ns}, "subjects": [subject]}
    (await api.post(f"{rbac}/clusterrolebindings", {"metadata": {"name": api.ns}, **binding})).ok(201)
    accounts = f"/api/v1/namespaces/{api.ns}/serviceaccounts"
    (await api.post(accounts, {"metadata": {"name": "robot"}})).ok(201)
    return (await api.post(f"{accounts}/robot/token", {"spec": {}})).ok(201)["status"]["token"]


@pytest.mark.parametrize("names", [[""], ["a"]])
async def test_a_rule_for_names_does_not_let_its_holder_grant_all_objects(api: Api, names: list[str]) -> None:
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    roles = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}
    token = await robot(api, {**secrets, "resourceNames": names}, roles)
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{api.ns}/roles"
    (await api.post(path, {"metadata": {"name": "all"}, "rules": [secrets]}, token=token)).refused(403, "Forbidden")
    same = {"metadata": {"name": "same"}, "rules": [{**secrets, "resourceNames": names}]}
    (await api.post(path, same, token=token)).ok(201)


@pytest.mark.parametrize(
    "query",
    [
        {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": "0"},
        {"watch": "1", "resourceVersion": "1", "resourceVersionMatch": "NotOlderThan"},
    ],
    ids=["initial events of a list", "match of a watch"],
)
async def test_options_of_watches_and_lists_are_not_mixed(api: Api, query: dict[str, str]) -> None:
    (await api.get(api.cms, **query)).refused(422, "Invalid", "ListOptions")


async def test_a_page_continues_one_list(api: Api, target: Target) -> None:
    rv = await three(api)
    first = (await api.get(api.cms, limit="1")).ok()["metadata"]
    assert first["remainingItemCount"] == len((await api.get(api.cms)).ok()["items"]) - 1
    token = {"limit": "1", "continue": first["continue"]}
    (await api.get(api.cms, **token, resourceVersion=rv)).refused(400, "BadRequest", "continue")
    if target.name != "real":  # which takes a token for another selector
        (await api.get(api.cms, **token, labelSelector="a=b")).refused(410, "Expired", "continue")
    assert "remainingItemCount" not in (await api.get(api.cms, limit="1", labelSelector="a!=b")).ok()["metadata"]


async def test_who_writes_has_a_printable_name(api: Api) -> None:
    for manager in ("a\x01b", "\u00e9" * 100):
        refused = await api.call("POST", f"{api.cms}?fieldManager={quote(manager)}", {"metadata": {"name": "m"}})
        refused.refused(422, "Invalid", "fieldManager")


async def test_orphans_are_asked_for_once(api: Api) -> None:
    await three(api)
    both = {"orphanDependents": False, "propagationPolicy": "Background"}
    (await api.call("DELETE", f"{api.cms}/a", both)).refused(422, "Invalid", "propagationPolicy")


@pytest.mark.parametrize(
    ("api_version", "kind", "good"),
    [("v1", "Event", False), ("a/b/c", "K", False), ("a/", "K", False), ("events.k8s.io/v1", "Event", True)],
)
async def test_owners_are_objects_that_can_own(api: Api, api_version: str, kind: str, good: bool) -> None:
    owner = {"apiVersion": api_version, "kind": kind, "name": "x", "uid": "1"}
    answer = await api.post(api.cms, {"metadata": {"name": "owned", "ownerReferences": [owner]}})
    answer.ok(201) if good else answer.refused(422, "Invalid", "ownerReferences")


async def test_an_apply_patch_says_what_it_applies(api: Api) -> None:
    path, body = f"{api.cms}/new?fieldManager=a", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}
    for field in ("apiVersion", "kind"):
        partial = {key: value for key, value in body.items() if key != field}
        (await api.patch(path, partial, APPLY)).refused(400, "BadRequest", "invalid object type")
    (await api.patch(path, {**body, "metadata": {"name": "new", "uid": "1"}}, APPLY)).refused(409, "Conflict", "uid")
    unnamed = {**body, "metadata": {}}
    (await api.patch(path, unnamed, APPLY)).refused(400, "BadRequest", "name must be provided")
    (await api.patch(path, body, APPLY)).ok(201)
    (await api.patch(path, unnamed, APPLY)).ok()


@pytest.mark.parametrize(
    ("body", "query", "code", "reason"),
    [
        ({"kind": "Status", "apiVersion": "v1"}, {}, 400, "BadRequest"),
        ({"propagationPolicy": 1}, {}, 400, "BadRequest"),
        ({"gracePeriodSeconds": "x"}, {}, 400, "BadRequest"),
        ({"dryRun": ["Some"]}, {"dryRun": "All"}, 422, "Invalid"),
        (None, {"gracePeriodSeconds": "x"}, 400, "BadRequest"),
    ],
)
async def test_invalid_delete_options(api: Api, body: Any, query: dict[str, str], code: int, reason: str) -> None:
    await three(api)
    (await api.delete(f"{api.cms}/a", body, **query)).refused(code, reason)


async def test_the_body_of_a_delete_replaces_the_options_of_its_query(api: Api) -> None:
    await three(api)
    (await api.delete(f"{api.cms}/a", {"propagationPolicy": "Background"}, dryRun="All")).ok()
    (await api.get(f"{api.cms}/a")).refused(404, "NotFound")


async def test_a_write_names_its_object_and_keeps_its_identity(api: Api) -> None:
    await three(api)
    unnamed = {"apiVersion": "v1", "kind": "ConfigMap"}
    (await api.put(f"{api.cms}/a", unnamed)).refused(400, "BadRequest", "name must be provided")
    (await api.patch(f"{api.cms}/a", {"metadata": None})).refused(400, "BadRequest", "name must be provided")
    for change in ({"uid": "1"}, {"deletionTimestamp": "2020-01-01T00:00:00Z"}):
        refused = await api.patch(f"{api.cms}/a", {"metadata": change})
        refused.refused(422, "Invalid", "field is immutable")


async def test_fields_of_a_patch_exist(api: Api) -> None:
    await three(api)
    (await api.patch(f"{api.cms}/a?fieldValidation=Strict", {"no": 1})).refused(422, "Invalid", 'unknown field "no"')
    (await api.patch(f"{api.cms}/a", {"data": {"a": 1}})).refused(422, "Invalid", "patch")


async def test_the_time_of_a_list_is_a_number(api: Api) -> None:
    (await api.get(api.cms, timeoutSeconds="x")).refused(400, "BadRequest")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"externalIPs": ["x"]}, "externalIPs[0]"),
        ({"externalIPs": ["127.0.0.1"]}, "externalIPs[0]"),
        ({"externalIPs": ["169.254.1.1"]}, "externalIPs[0]"),
        ({"externalIPs": ["0.0.0.0"]}, "externalIPs[0]"),
        ({"healthCheckNodePort": 30000}, "healthCheckNodePort"),
        ({"trafficDistribution": "x"}, "trafficDistribution"),
        (
            {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}},
            "timeoutSeconds",
        ),
    ],
)
async def test_invalid_fields_of_a_service(api: Api, spec: dict[str, Any], field: str) -> None:
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], **spec}}
    (await api.post(api.svcs, service)).refused(422, "Invalid", f"spec.{field}" if "[" in field else field)
