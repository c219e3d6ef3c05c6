"""What a client may send to hurt: it is refused at a cost that its length bounds, and no other client notices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import podless_load_balancers
import pytest
from podless_client import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api, account, config_map, service
from podless_load_balancers import lb, lbs

from podless import ApiServer
from podless.bounds import MAX_DEPTH, MAX_KEY_BYTES, MAX_MERGED_ITEMS, MAX_OBJECT_BYTES, MAX_VALUES
from podless.failure import MAX_CAUSES
from podless.http import reads
from podless.http.parse import MAX_YAML_BYTES
from podless.http.watcher import Watcher
from podless.registry import registry
from podless.selectors import Selection

#: The fixture of this name.
api = podless_load_balancers.api

#: Of this process, which is server and client; every one of these requests took many times as long, or forever.
CPU_S = 3.0
REVIEWS = "/apis/authorization.k8s.io/v1"


@contextmanager
def costs_little() -> Generator[None]:
    before_s = time.process_time()
    yield
    assert time.process_time() - before_s < CPU_S


def leases(api: Api) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{api.ns}/leases"


def lease(name: str, *, finalizers: list[str] | None = None, **spec: str) -> dict[str, Any]:
    """Return a Lease; unlike those of a ConfigMap, its texts have no limits of their own."""
    metadata = {"name": name} | ({"finalizers": finalizers} if finalizers else {})
    spec |= {"strategy": "OldestEmulationVersion"} if "preferredHolder" in spec else {}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


# --- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("S-1")
async def test_an_object_has_the_limit_of_etcd_when_it_is_created_replaced_and_patched(api: Api) -> None:
    half = "x" * (MAX_OBJECT_BYTES // 2)
    (await api.post(leases(api), lease("whole", holderIdentity=half, preferredHolder=half))).refused(
        413, "RequestEntityTooLarge", f"limit is {MAX_OBJECT_BYTES} bytes for one object, and this one would take"
    )
    (await api.get(f"{leases(api)}/whole")).refused(404, "NotFound")
    (await api.post(leases(api), lease("half", holderIdentity=half))).ok(201)
    path = f"{leases(api)}/half"
    before = (await api.get(path)).raw
    grow: list[tuple[Any, str]] = [
        ({"spec": {"preferredHolder": half}}, MERGE),
        ({"spec": {"preferredHolder": half}}, STRATEGIC),
        ([{"op": "copy", "from": "/spec/holderIdentity", "path": "/spec/preferredHolder"}], JSON_PATCH),
        (lease("half", preferredHolder=half), APPLY),
    ]
    for patch, media in grow:
        (await api.patch(path, patch, media, fieldManager="m")).refused(413, "RequestEntityTooLarge")
    both = lease("half", holderIdentity=half, preferredHolder=half)
    (await api.put(path, both)).refused(413, "RequestEntityTooLarge")
    assert (await api.get(path)).raw == before
    (await api.patch(path, {"spec": {"holderIdentity": "small"}})).ok()


@pytest.mark.req("S-1")
async def test_the_objects_of_a_namespace_are_limited_together_for_all_but_administrators(
    memory_server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await account(api, "member", ["create", "update", "patch", "delete", "get"])
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}
    role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{api.ns}/roles/member"
    (await api.patch(role, [{"op": "add", "path": "/rules/-", "value": rule}], JSON_PATCH)).ok()
    store = memory_server._running().store

    def total() -> int:
        return sum(len(each.raw) for bucket in store.buckets() for each in bucket.in_namespace(api.ns))

    assert store._bytes[api.ns] == total() > 0
    monkeypatch.setattr(registry, "MAX_NAMESPACE_BYTES", total() + 10_000)
    part = "x" * 4_000
    for name in ("a", "b"):
        (await api.post(api.cms, config_map(name, {"k": part}), token=token)).ok(201)
    said = f"exceeded quota: namespace {api.ns} would have"
    (await api.post(api.cms, config_map("c", {"k": part}), token=token)).refused(403, "Forbidden", said)
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{api.ns}/leases"
    (await api.post(leases, {"metadata": {"name": "l", "annotations": {"a": part}}}, token=token)).ok(201)
    (await api.delete(f"{leases}/l")).ok()
    body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"more": part}}
    for patch, media in ((body, MERGE), (body, STRATEGIC), (body, APPLY)):
        answer = await api.patch(f"{api.cms}/a", patch, media, token=token, fieldManager="m")
        answer.refused(403, "Forbidden", "delete objects that are not needed")
    (await api.put(f"{api.cms}/a", config_map("a", {"k": part * 2}), token=token)).refused(403, "Forbidden", said)
    # What makes it smaller is allowed, an administrator is not counted, and what is deleted makes room.
    (await api.post(api.cms, config_map("hub", {"k": part}))).ok(201)
    (await api.patch(f"{api.cms}/a", {"data": {"k": "small"}}, token=token)).ok()
    (await api.post(api.cms, config_map("d", {"k": part}), token=token)).refused(403, "Forbidden", said)
    for name in ("b", "hub"):
        (await api.delete(f"{api.cms}/{name}")).ok()
    (await api.post(api.cms, config_map("d", {"k": part}), token=token)).ok(201)
    assert store._bytes[api.ns] == total()


@pytest.mark.parametrize("live", [False, True])
async def test_an_unknown_field_is_neither_stored_nor_owned(api: Api, live: bool) -> None:
    """A real server refuses such a body; here it is pruned, as one that is created is."""
    if live:
        (await api.post(lbs(api), lb("w"))).ok(201)
    body: dict[str, Any] = lb("w") | {"unknown" * 50: 1}
    body["spec"] |= {"unknown" * 50: {"deep": "x"}}
    path = f"{lbs(api)}/w"
    heard = await api.patch(path, body, APPLY, fieldManager="m", fieldValidation="Warn", force="true")
    applied = heard.ok() if live else heard.ok(201)
    assert "unknown" not in str(applied)
    assert {"m"} <= {each["manager"] for each in applied["metadata"]["managedFields"]}
    refused = await api.patch(path, body, APPLY, fieldManager="m", fieldValidation="Strict")
    refused.refused(400, "BadRequest", "strict decoding error: unknown field")


@pytest.mark.req("S-1")
async def test_what_an_older_version_stored_too_large_can_be_made_smaller_and_deleted(
    memory_server: ApiServer, api: Api
) -> None:
    (await api.post(leases(api), lease("old", finalizers=["a.example/b"]))).ok(201)
    store = memory_server._running().store
    obj = store.bucket("leases.coordination.k8s.io").get(api.ns, "old").obj()
    obj["spec"]["holderIdentity"] = "x" * MAX_OBJECT_BYTES
    store.put("leases.coordination.k8s.io", obj)  # as 0.1 did
    path = f"{leases(api)}/old"
    (await api.patch(path, {"spec": {"preferredHolder": "y"}})).refused(413, "RequestEntityTooLarge")
    (await api.delete(path)).ok()  # its finalizer holds it, and deletionTimestamp makes it larger
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok()
    (await api.get(path)).refused(404, "NotFound")


@pytest.mark.req("S-1")
async def test_owners_and_finalizers_are_limited_in_number_and_length(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"}
    for meta, field in (
        ({"ownerReferences": [owner | {"uid": f"u{i}"} for i in range(101)]}, "metadata.ownerReferences"),
        ({"ownerReferences": [owner | {"name": "n" * 254}]}, "metadata.ownerReferences[0].name"),
        ({"ownerReferences": [owner | {"uid": "n" * 200_000}]}, "metadata.ownerReferences[0].uid"),
        ({"finalizers": [f"a.example/{i}" for i in range(101)]}, "metadata.finalizers"),
    ):
        answer = await api.post(lbs(api), lb("owned", **meta))
        causes = answer.refused(422, "Invalid", "Too ")["details"]["causes"]
        assert [cause["field"] for cause in causes] == [field]
        assert len(answer.raw) < 10_000


@pytest.mark.req("S-4")
async def test_copies_of_a_json_patch_are_limited_together(api: Api) -> None:
    (await api.post(api.cms, config_map("seed", {"a": "x" * 1000}))).ok(201)
    double = [{"op": "copy", "from": "/data", "path": f"/data/c{i}"} for i in range(30)]
    with costs_little():
        answer = await api.patch(f"{api.cms}/seed", double, JSON_PATCH)
    answer.refused(413, "RequestEntityTooLarge", "that the copy operations of a JSON patch may add up to")


# --- depth, number and names of values ----------------------------------------------------------------------------


@pytest.mark.req("S-4", "S-11")
@pytest.mark.parametrize("media", [JSON_PATCH, MERGE, STRATEGIC, APPLY, ""])
async def test_deeply_nested_input_is_rejected(api: Api, media: str) -> None:
    (await api.post(api.cms, config_map("flat"))).ok(201)
    deep: Any = "x"
    for _ in range(900):
        deep = {"a": deep}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "flat"}, "data": deep}
    if media == JSON_PATCH:
        small: Any = {"a": {}}
        steps = [{"op": "add", "path": "/data" + "/a" * depth, "value": small} for depth in range(1, MAX_DEPTH + 2)]
        answer = await api.patch(f"{api.cms}/flat", [{"op": "add", "path": "/data", "value": small}, *steps], media)
    elif media:
        answer = await api.patch(f"{api.cms}/flat", body, media, fieldManager="m")
    else:
        answer = await api.post(api.cms, body)
    answer.refused(400, "BadRequest", f"nested deeper than {MAX_DEPTH} levels")
    (await api.post(api.cms, config_map("brackets", {"text": '["{' * 5000}))).ok(201)


@pytest.mark.req("S-4")
async def test_a_body_has_so_many_values_at_most_and_keys_are_short(api: Api) -> None:
    many = config_map("many", {})
    many["data"] = {f"k{i}": "" for i in range(MAX_VALUES + 1)}
    with costs_little():
        (await api.post(api.cms, many)).refused(413, "RequestEntityTooLarge", f"limit is {MAX_VALUES} values")
        nested: Any = ["x"] * 20_000
        for _ in range(50):
            nested = {"k" * (MAX_KEY_BYTES * 10): nested}
        (await api.post(api.cms, config_map("wide", nested))).refused(400, "BadRequest", "a key of more than")
    (await api.post(api.cms, config_map("csv", {"text": "1,2,3\n" * 100_000}))).ok(201)


@pytest.mark.req("S-4")
async def test_lists_that_are_merged_item_by_item_are_limited(api: Api) -> None:
    (await api.post(api.svcs, service("ports"))).ok(201)
    ports = [{"name": f"p{i}", "port": 1000 + i} for i in range(MAX_MERGED_ITEMS + 1)]
    body = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": ports}}
    doomed = {"metadata": {"$deleteFromPrimitiveList/finalizers": [str(i) for i in range(MAX_MERGED_ITEMS + 1)]}}
    for patch, media in ((body, APPLY), (body, STRATEGIC), (body, MERGE), (doomed, STRATEGIC)):
        with costs_little():
            force = {"force": "true"} if media == APPLY else {}
            answer = await api.patch(f"{api.svcs}/ports", patch, media, fieldManager="m", **force)
        answer.refused(422, "Invalid", f"at most {MAX_MERGED_ITEMS} items")
    with costs_little():
        small = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": ports[: MAX_MERGED_ITEMS - 1]}}
        (await api.patch(f"{api.svcs}/ports", small, APPLY, fieldManager="m", force="true")).ok()
        none = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": ports[:2]}}
        (await api.patch(f"{api.svcs}/ports", none, APPLY, fieldManager="m", force="true")).ok()


# --- YAML ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("S-4", "S-11")
@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("a: &a [x]\nb: *a\n", 400, "aliases (*name) are not accepted"),
        ("&a {a: *a}\n", 400, "aliases (*name) are not accepted"),
        ("".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)), 400, ""),
        ("[" * 200_000, 400, f"nested deeper than {MAX_DEPTH} levels"),
        ("- " * 100_000, 400, f"nested deeper than {MAX_DEPTH} levels"),
        ("a: " + "b " * MAX_YAML_BYTES, 413, "of YAML; JSON may be longer"),
        ("? [a, b]\n: c\n", 400, "error decoding YAML"),
        ("!!python/object/apply:os.system [ls]\n", 400, "error decoding YAML"),
        ("a: 2020-99-99\n", 400, "error decoding YAML"),
    ],
)
async def test_yaml_costs_no_more_than_its_length(api: Api, body: str, code: int, message: str) -> None:
    with costs_little():
        answer = await api.post(api.cms, body, media="application/yaml")
    assert (answer.code, message in answer.body["message"]) == (code, True), answer.raw[:500]


async def test_plain_yaml_is_read(api: Api) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: plain\ndata: {when: '2020-01-01', 'n': \"1\"}\n"
    assert (await api.post(api.cms, text, media="application/yaml")).ok(201)["data"]["n"] == "1"


# --- answers -------------------------------------------------------------------------------------------------------


@pytest.mark.req("S-4")
async def test_a_refusal_lists_so_many_causes_at_most_and_cuts_what_it_quotes(api: Api) -> None:
    wrong = lb("wrong", labels={f"_{i}": "x" * 200 for i in range(2000)})
    wrong["spec"]["ports"] = [{"port": "y" * 10_000} for _ in range(100)]
    typed = config_map("typed", {f"k{i}": 1 for i in range(20_000)})  # type: ignore[misc]
    for path, body, code in ((lbs(api), wrong, 422), (api.cms, typed, 400)):
        with costs_little():
            answer = await api.post(path, body)
        assert answer.code == code
        assert len(answer.raw) < 600_000
        assert len(answer.body.get("details", {}).get("causes", ())) <= MAX_CAUSES


@pytest.mark.req("S-4")
async def test_unknown_fields_become_few_and_harmless_warnings(api: Api) -> None:
    body = config_map("unknown") | {f"f{i}\r\nSet-Cookie: x{'y' * 200}": 1 for i in range(5000)}
    answer = await api.post(api.cms, body)
    answer.ok(201)
    warnings = answer.headers.getall("Warning")
    assert len(warnings) <= MAX_CAUSES
    assert "Set-Cookie" not in answer.headers
    assert "\\\\u000d\\\\u000aSet-Cookie" in warnings[0]


# --- watches -------------------------------------------------------------------------------------------------------


@pytest.mark.req("S-5")
async def test_a_selector_with_a_number_of_any_length_is_refused_and_writes_go_on(api: Api) -> None:
    for path in (api.cms, lbs(api)):
        (await api.get(path, watch="1", labelSelector="a>" + "9" * 5000)).refused(400, "BadRequest", "label")
    (await api.post(api.cms, config_map("after", labels={"a": "1"}))).ok(201)


@pytest.mark.req("S-5")
async def test_a_watch_that_fails_on_an_event_ends_alone(
    memory_server: ApiServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = asyncio.Event()
    (await api.post(api.cms, config_map("first"))).ok(201)
    good = asyncio.create_task(api.watch(api.cms, until=2, seen=opened))
    await opened.wait()
    cut: list[str] = []

    def fails(_self: Watcher, _event: Any) -> None:
        raise ValueError("Exceeds the limit for integer string conversion")

    bad = Watcher(Selection(), lambda: cut.append("cut"))
    monkeypatch.setattr(bad, "_offer", fails.__get__(bad))
    memory_server._running().store.bucket("configmaps").listeners.add(bad)
    (await api.post(api.cms, config_map("second"))).ok(201)
    assert [event["object"]["metadata"]["name"] for event in await good] == ["first", "second"]
    assert cut == ["cut"]
    assert bad.closed


@pytest.mark.req("S-11")
async def test_paged_lists_of_one_user_do_not_expire_those_of_another(api: Api) -> None:
    for name in ("a", "b", "c"):
        (await api.post(api.cms, config_map(name))).ok(201)
    token = await account(api, "pager", ["list"])
    page = (await api.get(api.cms, limit=1)).ok()
    own = (await api.get(api.cms, limit=1, token=token)).ok()
    for _ in range(299):
        own = (await api.get(api.cms, limit=1, token=token)).ok()
    rest = (await api.get(api.cms, **{"continue": page["metadata"]["continue"]})).ok()
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "c"]
    (await api.get(api.cms, token=token, **{"continue": own["metadata"]["continue"]})).ok()
    stolen = {"continue": (await api.get(api.cms, limit=1)).ok()["metadata"]["continue"]}
    (await api.get(api.cms, token=token, **stolen)).refused(410, "Expired")


@pytest.mark.req("S-4")
async def test_pages_to_come_of_one_user_are_limited_in_bytes(
    own: tuple[ApiServer, Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each held the objects as they were: 32 times the objects of a namespace, with all of them changed in between."""
    _, api = own
    for name in ("a", "b", "c"):
        (await api.post(api.cms, config_map(name, {"k": "x" * 10_000}))).ok(201)
    monkeypatch.setattr(reads, "MAX_BYTES_OF_USER", 50_000)
    token = await account(api, "pager", ["list"])
    pages = [(await api.get(api.cms, limit=1, token=token)).ok()["metadata"]["continue"] for _ in range(4)]
    answers = [(await api.get(api.cms, token=token, **{"continue": page})).code for page in pages]
    assert answers == [410, 410, 200, 200]
    monkeypatch.setattr(reads, "MAX_BYTES_OF_USER", 1)
    (last,) = [(await api.get(api.cms, limit=1, token=token)).ok()["metadata"]["continue"]]
    (await api.get(api.cms, token=token, **{"continue": last})).ok()


# --- memory of what clients make up ---------------------------------------------------------------------------------


@pytest.mark.req("S-4")
async def test_made_up_names_leave_nothing_behind(memory_server: ApiServer, api: Api) -> None:
    parts = memory_server._running()
    token = await account(api, "liar", ["list"])
    for number in range(50):
        for path in (f"/api/v1/namespaces/made-up-{number}/configmaps", f"/apis/x{number}.example/v1/y{number}"):
            assert (await api.get(path, token=token)).code in {403, 404}
        (await api.call("GET", api.cms, token="wrong", headers={"User-Agent": f"agent-{number}"})).refused(
            401, "Unauthorized"
        )
    bindings = parts.store.bucket("rolebindings.rbac.authorization.k8s.io")
    assert not any(namespace.startswith("made-up") for namespace in bindings._sorted)
    assert not any("y1" in key[1] for key in parts.metrics._children)
