"""The server does what every client of Kubernetes relies on: objects, lists and subresources over HTTP."""

from typing import Any

import pytest
from podless_client import JSON_PATCH, MERGE, STRATEGIC, Api, config_map, service

from podless import ApiServer


async def test_create_fills_in_what_the_server_owns(api: Api) -> None:
    created = (await api.post(api.cms, config_map("a"))).ok(201)
    meta = created["metadata"]
    assert meta["uid"]
    assert meta["resourceVersion"].isdigit()
    assert meta["creationTimestamp"].endswith("Z")
    assert meta["namespace"] == api.ns
    assert meta["managedFields"][0]["operation"] == "Update"


async def test_create_refusals(api: Api) -> None:
    (await api.post(api.cms, config_map("a"))).ok(201)
    (await api.post(api.cms, config_map("a"))).refused(409, "AlreadyExists", 'configmaps "a" already exists')
    missing = await api.post("/api/v1/namespaces/nope-x/configmaps", config_map("a"))
    missing.refused(404, "NotFound", 'namespaces "nope-x" not found')
    (await api.post(api.cms, config_map("Not_A_Name"))).refused(422, "Invalid", "metadata.name: Invalid value")
    (await api.post(api.cms, {"metadata": {}})).refused(422, "Invalid", "name or generateName is required")
    (await api.post(api.cms, {"kind": "Service", "metadata": {"name": "x"}})).refused(400, "BadRequest")
    (await api.post(api.cms, config_map("x", namespace="other"))).refused(400, "BadRequest", "does not match")
    stamped = await api.post(api.cms, config_map("x", resourceVersion="1"))
    assert (stamped.code, stamped.body["message"]) == (
        500,
        "resourceVersion should not be set on objects to be created",
    )
    (await api.post(api.cms, "{not json")).refused(400, "BadRequest")
    (await api.post(api.cms, "[" * 100_000)).refused(400, "BadRequest")
    (await api.post(api.cms, "x" * (4 * 1024 * 1024))).refused(413, "RequestEntityTooLarge")


async def test_generate_name(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "gen-"}}
    names = {(await api.post(api.cms, body)).ok(201)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("gen-") and len(name) == 9 for name in names)


async def test_put_replaces_and_compares(api: Api) -> None:
    first = (await api.post(api.cms, config_map("a"))).ok(201)
    second = (await api.put(api.cms + "/a", {**first, "data": {"z": "1"}})).ok()
    assert second["data"] == {"z": "1"}
    stale = await api.put(api.cms + "/a", {**first, "data": {"z": "2"}})
    stale.refused(409, "Conflict", "the object has been modified")
    (await api.put(api.cms + "/b", config_map("b"))).refused(404, "NotFound")
    (await api.put(api.cms + "/a", config_map("b"))).refused(400, "BadRequest", "does not match the name on the URL")
    again = (await api.put(api.cms + "/a", second)).ok()
    assert again["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    other_uid = {**second, "metadata": {**second["metadata"], "uid": "other"}}
    (await api.put(api.cms + "/a", other_uid)).refused(409, "Conflict", "Precondition failed: UID")


async def test_patches(api: Api) -> None:
    first = (await api.post(api.cms, config_map("a", {"x": "1", "y": "2"}))).ok(201)
    merged = (await api.patch(api.cms + "/a", {"data": {"x": None, "z": "3"}})).ok()
    assert merged["data"] == {"y": "2", "z": "3"}
    same = (await api.patch(api.cms + "/a", {"data": {"z": "3"}})).ok()
    assert same["metadata"]["resourceVersion"] == merged["metadata"]["resourceVersion"]
    stale = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "data": {"y": "9"}}
    (await api.patch(api.cms + "/a", stale)).refused(409, "Conflict")
    test_op = [{"op": "test", "path": "/data/y", "value": "nope"}]
    (await api.patch(api.cms + "/a", test_op, JSON_PATCH)).refused(422, "Invalid")
    ops = [{"op": "add", "path": "/data/q", "value": "1"}, {"op": "remove", "path": "/data/y"}]
    assert (await api.patch(api.cms + "/a", ops, JSON_PATCH)).ok()["data"] == {"q": "1", "z": "3"}
    assert (await api.patch(api.cms + "/a", {}, "text/plain")).code == 415


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "add"}, 422),
        ({"op": "bogus", "path": "/data/z", "value": "1"}, 422),
        ({"op": "remove", "path": "/data/none"}, 422),
        ({"op": "add", "path": "/data/none/z", "value": "1"}, 422),
        ({"op": "replace", "path": "/metadata/labels/none", "value": "1"}, 422),
        ({"op": "replace", "path": "/data/none", "value": "1"}, 200),
        ({"op": "add", "path": "/data/z", "value": 5}, 422),
        (1, 400),
    ],
)
async def test_json_patches_are_refused_and_accepted_as_in_kubernetes(api: Api, operation: Any, code: int) -> None:
    await api.post(api.cms, config_map("a", {"x": "1"}))
    answer = await api.patch(api.cms + "/a", [operation], JSON_PATCH)
    assert (answer.code, answer.body.get("reason", "Invalid")) == (code, "BadRequest" if code == 400 else "Invalid")


async def test_booleans_of_a_query_are_true_unless_they_say_false(api: Api) -> None:
    body = config_map("a", {"x": "1"})
    apply = "application/apply-patch+yaml"
    (await api.patch(api.cms + "/a", body, apply, fieldManager="one")).ok(201)
    for number, (text, code) in enumerate(
        {"false": 409, "False": 409, "0": 409, "yes": 200, "": 200, "1": 200}.items()
    ):
        changed = config_map("a", {"x": f"other {number}"})
        answer = await api.patch(api.cms + "/a", changed, apply, fieldManager=f"m{number}", force=text)
        assert answer.code == code, text


async def test_another_kind_than_that_of_the_url_is_named(api: Api) -> None:
    for body, name in (
        ({**config_map("a"), "kind": "Configmap"}, "Configmap"),
        ({**config_map("a"), "apiVersion": "v2"}, "v2"),
    ):
        (await api.post(api.cms, body)).refused(400, "BadRequest", name)
    (await api.get(api.cms, limit="x")).refused(400, "BadRequest", '"x"')
    (await api.get(api.cms, resourceVersion="x")).refused(400, "BadRequest", 'resourceVersion: Invalid value: "x"')


async def test_strategic_merge_patch_merges_by_key(api: Api) -> None:
    await api.post(api.svcs, service("s"))
    ports = {"spec": {"ports": [{"name": "b", "port": 81}]}}
    patched = (await api.patch(api.svcs + "/s", ports, STRATEGIC)).ok()
    assert sorted(port["port"] for port in patched["spec"]["ports"]) == [80, 81]
    gone = {"spec": {"ports": [{"port": 80, "$patch": "delete"}]}}
    patched = (await api.patch(api.svcs + "/s", gone, STRATEGIC)).ok()
    assert [port["port"] for port in patched["spec"]["ports"]] == [81]


async def test_status_and_spec_are_written_apart(api: Api) -> None:
    created = (await api.post(api.svcs, service("s"))).ok(201)
    ingress = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    unchanged = (await api.put(api.svcs + "/s", {**created, "status": ingress})).ok()
    assert unchanged["status"] == {"loadBalancer": {}}
    both = {"status": ingress, "spec": {"sessionAffinity": "ClientIP"}}
    patched = (await api.patch(api.svcs + "/s/status", both, MERGE)).ok()
    assert patched["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.1"
    assert patched["spec"]["sessionAffinity"] == "None"
    (await api.get(api.cms + "/x/status")).refused(404, "NotFound")


async def test_finalizers(api: Api) -> None:
    await api.post(api.cms, config_map("f", finalizers=["example.com/x"]))
    marked = (await api.delete(api.cms + "/f")).ok()
    assert marked["metadata"]["deletionTimestamp"]
    more = {"metadata": {"finalizers": ["example.com/x", "example.com/y"]}}
    refused = (await api.patch(api.cms + "/f", more)).refused(422, "Invalid", "no new finalizers can be added")
    assert refused["details"]["causes"][0]["reason"] == "FieldValueForbidden"
    (await api.patch(api.cms + "/f", {"metadata": {"finalizers": None}})).ok()
    (await api.get(api.cms + "/f")).refused(404, "NotFound", 'configmaps "f" not found')


async def test_delete_preconditions_and_dry_run(api: Api) -> None:
    created = (await api.post(api.cms, config_map("a"))).ok(201)
    (await api.delete(api.cms + "/a", {"preconditions": {"uid": "xx"}})).refused(409, "Conflict")
    (await api.delete(api.cms + "/a", {"preconditions": {"resourceVersion": "1"}})).refused(409, "Conflict")
    (await api.delete(api.cms + "/a", dryRun="All")).ok()
    status = (await api.delete(api.cms + "/a", {"preconditions": {"uid": created["metadata"]["uid"]}})).ok()
    assert (status["status"], status["details"]["uid"]) == ("Success", created["metadata"]["uid"])
    assert (await api.post(api.cms, config_map("dry"), dryRun="All")).code == 201
    (await api.get(api.cms + "/dry")).refused(404, "NotFound")
    (await api.post(api.cms, config_map("dry"), dryRun="Some")).refused(422, "Invalid")


async def test_lists(api: Api) -> None:
    for index in range(7):
        await api.post(api.cms, config_map(f"p{index}", labels={"n": str(index), "set": "p"}))
    names: list[str] = []
    token, pages, rvs = "", 0, set[str]()
    while pages == 0 or token:
        query: dict[str, Any] = {"limit": 3, "labelSelector": "set=p"} | ({"continue": token} if token else {})
        page = (await api.get(api.cms, **query)).ok()
        assert (page["kind"], page["apiVersion"]) == ("ConfigMapList", "v1")
        names += [item["metadata"]["name"] for item in page["items"]]
        rvs.add(page["metadata"]["resourceVersion"])
        token, pages = page["metadata"].get("continue", ""), pages + 1
        await api.post(api.cms, config_map(f"late{pages}", labels={"set": "p"}))  # not in this snapshot
    assert (pages, names, len(rvs)) == (3, [f"p{index}" for index in range(7)], 1)
    (await api.get(api.cms, **{"limit": 1, "continue": "bogus"})).refused(
        400, "BadRequest", "continue key is not valid"
    )


async def test_a_large_list_arrives_whole(api: Api) -> None:
    for index in range(5):
        await api.post(api.cms, config_map(f"p{index}", {"k": str(index) * 100_000}))
    items = (await api.get(api.cms, fieldSelector="metadata.name!=kube-root-ca.crt")).ok()["items"]
    sizes = {item["metadata"]["name"]: len(item["data"]["k"]) for item in items if item["metadata"]["name"][0] == "p"}
    assert sizes == {f"p{index}": 100_000 for index in range(5)}
    assert (await api.call("HEAD", api.cms)).code == 405


async def test_a_continue_token_is_for_its_own_list(own: tuple[ApiServer, Api]) -> None:
    # A real server's token holds the last key, and does not notice.
    _, api = own
    for name in ("a", "b"):
        await api.post(api.cms, config_map(name))
    first = (await api.get(api.cms, limit=1)).ok()["metadata"]["continue"]
    (await api.get(api.svcs, **{"continue": first})).refused(410, "Expired")  # a token is for its own list


@pytest.mark.parametrize(
    ("selector", "count"),
    [
        ("n=1", 1),
        ("n==1", 1),
        ("n in (1,2),set", 2),
        ("set,n notin (1,2)", 2),
        ("set=p,n!=0", 3),
        ("!set", 0),
        ("n>1", 2),
    ],
)
async def test_label_selectors(api: Api, selector: str, count: int) -> None:
    for index in range(4):
        await api.post(api.cms, config_map(f"p{index}", labels={"n": str(index), "set": "p"}))
    items = (await api.get(api.cms, labelSelector=f"set,{selector}" if selector != "!set" else "!set,n")).ok()["items"]
    assert len(items) == count


async def test_field_selectors(api: Api) -> None:
    await api.post(api.svcs, service("s"))
    await api.post(api.svcs, service("c", type="ClusterIP"))
    listed = (await api.get(api.svcs, fieldSelector="spec.type=LoadBalancer")).ok()["items"]
    assert [item["metadata"]["name"] for item in listed] == ["s"]
    listed = (await api.get(api.svcs, fieldSelector="metadata.name!=s")).ok()["items"]
    assert [item["metadata"]["name"] for item in listed] == ["c"]
    (await api.get(api.svcs, fieldSelector="spec.nope=1")).refused(400, "BadRequest", "field label not supported")
    (await api.get(api.svcs, labelSelector="a b c")).refused(400, "BadRequest")


async def test_unknown_fields(api: Api) -> None:
    typo = service("s", typo=1)
    strict = await api.post(api.svcs, typo, fieldValidation="Strict")
    strict.refused(400, "BadRequest", 'strict decoding error: unknown field "spec.typo"')
    warned = await api.post(api.svcs, typo, fieldValidation="Warn")
    assert warned.headers["Warning"] == '299 - "unknown field \\"spec.typo\\""'
    assert "typo" not in warned.ok(201)["spec"]
    assert "Warning" not in (await api.put(api.svcs + "/s", typo, fieldValidation="Ignore")).headers
    (await api.post(api.svcs, service("t", ports="none"))).refused(400, "BadRequest", "cannot unmarshal")


async def test_leases_compare_and_swap(api: Api) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{api.ns}/leases"
    lease = (await api.post(path, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}})).ok(201)
    assert (await api.put(path + "/l", {**lease, "spec": {"holderIdentity": "b"}})).code == 200
    assert (await api.put(path + "/l", {**lease, "spec": {"holderIdentity": "c"}})).code == 409
    bad = await api.post(path, {"metadata": {"name": "m"}, "spec": {"leaseDurationSeconds": 0}})
    bad.refused(422, "Invalid", "must be greater than 0")


async def test_endpoint_slices(api: Api) -> None:
    path = f"/apis/discovery.k8s.io/v1/namespaces/{api.ns}/endpointslices"
    made = (await api.post(path, {"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": []})).ok(201)
    assert made["endpoints"] is None
    (await api.put(path + "/e", {**made, "addressType": "IPv6"})).refused(422, "Invalid", "field is immutable")
    (await api.post(path, {"metadata": {"name": "f"}})).refused(422, "Invalid", "addressType: Required value")
    point = {"addresses": ["10.0.0.1"]}
    many = {"metadata": {"name": "g"}, "addressType": "IPv4", "endpoints": [point] * 1001}
    (await api.post(path, many)).refused(422, "Invalid", "must have at most 1000 items")
    wrong = {"metadata": {"name": "g"}, "addressType": "IPv4", "endpoints": [{"addresses": ["nope"]}]}
    (await api.post(path, wrong)).refused(422, "Invalid", "endpoints[0].addresses[0]")
    for kind, text in (("FQDN", "a" * 300), ("FQDN", "not a name"), ("IPv6", "fe80::1%" + "z" * 300)):
        wrong = {"metadata": {"name": "g"}, "addressType": kind, "endpoints": [{"addresses": [text]}]}
        (await api.post(path, wrong)).refused(422, "Invalid", "endpoints[0].addresses[0]")
    named = {"metadata": {"name": "h"}, "addressType": "FQDN", "endpoints": [{"addresses": ["db.example.com"]}]}
    (await api.post(path, named)).ok(201)


async def test_discovery(api: Api) -> None:
    assert "v1" in (await api.get("/api")).ok()["versions"]
    groups = {group["name"] for group in (await api.get("/apis")).ok()["groups"]}
    assert {"apps", "discovery.k8s.io", "rbac.authorization.k8s.io", "authorization.k8s.io"} <= groups
    core = {entry["name"]: entry for entry in (await api.get("/api/v1")).ok()["resources"]}
    assert core["services"]["shortNames"] == ["svc"]
    assert "services/status" in core
    assert core["serviceaccounts/token"]["kind"] == "TokenRequest"
    (await api.get("/api/v1/nopes")).refused(404, "NotFound", "the server could not find the requested resource")
    for path in ("/apis/nope.example.com/v1", "/apis/nope.example.com/v1/nopes", "/nope"):
        nowhere = await api.get(path)
        assert (nowhere.code, nowhere.raw) == (404, b"404 page not found\n")
    (await api.put(api.cms, config_map("x"))).refused(405, "MethodNotAllowed")


async def test_events_have_two_faces(api: Api) -> None:
    core, other = f"/api/v1/namespaces/{api.ns}/events", f"/apis/events.k8s.io/v1/namespaces/{api.ns}/events"
    about = {"kind": "Service", "namespace": api.ns, "name": "s"}
    body = {"metadata": {"name": "e1"}, "involvedObject": about, "reason": "R", "message": "M", "type": "Normal"}
    (await api.post(core, body)).ok(201)
    seen = (await api.get(other + "/e1")).ok()
    assert (seen["apiVersion"], seen["note"], seen["regarding"]["name"]) == ("events.k8s.io/v1", "M", "s")
    listed = (await api.get(core, fieldSelector="involvedObject.name=s,reason=R")).ok()["items"]
    assert [item["metadata"]["name"] for item in listed] == ["e1"]


async def test_delete_collection(api: Api) -> None:
    for index in range(3):
        await api.post(api.cms, config_map(f"p{index}", labels={"n": str(index % 2)}))
    (await api.delete(api.cms, labelSelector="n=0")).ok()
    left = (await api.get(api.cms, labelSelector="n")).ok()["items"]
    assert [item["metadata"]["name"] for item in left] == ["p1"]


async def test_tables(api: Api) -> None:
    await api.post(api.svcs, service("s"))
    heads = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"}
    table = (await api.get(api.svcs, headers=heads)).ok()
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns[:6] == ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age"]
    cells = table["rows"][0]["cells"]
    assert (cells[0], cells[1], cells[3]) == ("s", "LoadBalancer", "<pending>")
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    heads = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    partial = (await api.get(api.svcs, headers=heads)).ok()
    assert (partial["kind"], "spec" in partial["items"][0]) == ("PartialObjectMetadataList", False)
