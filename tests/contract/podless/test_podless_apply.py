"""Server-side apply merges, owns, refuses and gives up fields as on a real API server."""

from typing import Any

from podless_client import APPLY, JSON_PATCH, Answer, Api, config_map, service


async def apply(api: Api, path: str, body: dict[str, Any], manager: str, **query: Any) -> Answer:
    return await api.patch(path, body, APPLY, fieldManager=manager, **query)


def managers(obj: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted((entry["manager"], entry["operation"]) for entry in obj["metadata"].get("managedFields", []))


async def test_create_conflict_force_and_give_up(api: Api) -> None:
    path = api.cms + "/a"
    made = (await apply(api, path, config_map("a", {"a": "1", "b": "1"}), "m1")).ok(201)
    entry = made["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("m1", "Apply", "v1")
    assert entry["fieldsV1"] == {"f:data": {"f:a": {}, "f:b": {}}}
    refused = (await apply(api, path, config_map("a", {"a": "2"}), "m2")).refused(409, "Conflict")
    assert refused["message"] == 'Apply failed with 1 conflict: conflict with "m1": .data.a'
    assert refused["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "m1"', "field": ".data.a"}
    ]
    assert (await apply(api, path, config_map("a", {"a": "2"}), "m2", force="true")).ok()["data"] == {
        "a": "2",
        "b": "1",
    }
    assert (await apply(api, path, config_map("a", {"c": "1"}), "m1")).ok()["data"] == {"a": "2", "c": "1"}


async def test_the_same_value_is_shared(api: Api) -> None:
    path = api.cms + "/a"
    (await apply(api, path, config_map("a", {"a": "1"}), "m1")).ok(201)
    (await apply(api, path, config_map("a", {"a": "1"}), "m2")).ok()
    kept = (await apply(api, path, config_map("a", {"x": "1"}), "m1")).ok()
    assert kept["data"] == {"a": "1", "x": "1"}


async def test_no_change_causes_no_write(api: Api) -> None:
    path = api.svcs + "/s"
    made = (await apply(api, path, service("s"), "m1")).ok(201)
    again = (await apply(api, path, service("s"), "m1")).ok()
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_an_update_takes_fields_from_an_applier(api: Api) -> None:
    path = api.cms + "/a"
    (await apply(api, path, config_map("a", {"a": "1", "b": "1"}), "m1")).ok(201)
    patched = (await api.patch(path, {"data": {"a": "9"}}, fieldManager="editor")).ok()
    assert managers(patched) == [("editor", "Update"), ("m1", "Apply")]
    refused = (await apply(api, path, config_map("a", {"a": "1", "b": "1"}), "m1")).refused(409, "Conflict")
    assert 'conflict with "editor" using v1: .data.a' in refused["message"]


async def test_list_maps_merge_per_key_and_owner(api: Api) -> None:
    path = api.svcs + "/s"

    def ports(*numbers: int) -> dict[str, Any]:
        listed = [{"port": number, "protocol": "TCP", "name": f"p{number}"} for number in numbers]
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": listed}}

    async def after(manager: str, *numbers: int) -> list[int]:
        answer = await apply(api, path, ports(*numbers), manager)
        assert answer.code in {200, 201}, answer.raw
        return [port["port"] for port in answer.body["spec"]["ports"]]

    assert await after("m1", 80) == [80]
    assert await after("m2", 81) == [80, 81]
    assert await after("m2", 82) == [80, 82]
    assert await after("m1", 83, 84) == [82, 83, 84]


async def test_the_status_has_its_own_managers(api: Api) -> None:
    (await api.post(api.svcs, service("s"))).ok(201)
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}
    applied = (await apply(api, api.svcs + "/s/status", body | status, "lb")).ok()
    assert applied["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.1"
    entry = next(entry for entry in applied["metadata"]["managedFields"] if entry["manager"] == "lb")
    assert (entry["subresource"], list(entry["fieldsV1"])) == ("status", ["f:status"])
    cleared = (await apply(api, api.svcs + "/s/status", body | {"status": {}}, "lb")).ok()
    assert "ingress" not in cleared["status"]["loadBalancer"]


async def test_refusals(api: Api) -> None:
    path = api.cms + "/a"
    mine = config_map("a")
    mine["metadata"]["managedFields"] = [{"manager": "x"}]
    (await apply(api, path, mine, "m1")).refused(400, "BadRequest", "metadata.managedFields must be nil")
    (await apply(api, path, config_map("b"), "m1")).refused(400, "BadRequest", "does not match the name on the URL")
    (await apply(api, path + "/status", config_map("a"), "m1")).refused(404, "NotFound")
    (await apply(api, path, config_map("a", resourceVersion="1"), "m1")).ok(201)
    (await apply(api, path, config_map("a", resourceVersion="1"), "m1")).refused(409, "Conflict")


async def test_managers_can_be_rewritten_by_a_patch(api: Api) -> None:
    # kubectl does this when a person moves from client-side to server-side apply.
    (await api.post(api.cms, config_map("a"), fieldManager="kubectl-client-side-apply")).ok(201)
    current = (await api.get(api.cms + "/a")).ok()["metadata"]["managedFields"]
    current[0] |= {"manager": "kubectl", "operation": "Apply"}
    replace = [{"op": "replace", "path": "/metadata/managedFields", "value": current}]
    moved = (await api.patch(api.cms + "/a", replace, JSON_PATCH)).ok()
    assert managers(moved) == [("kubectl", "Apply")]


async def test_yaml_is_read(api: Api) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n"
    assert (await api.patch(api.cms + "/a", text, APPLY, fieldManager="m")).ok(201)["data"] == {"k": "v"}


async def test_a_partial_apply_may_leave_out_what_others_wrote(api: Api) -> None:
    """A built-in kind's required fields are asked of the outcome, not of the part that one manager sends."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{api.ns}/endpointslices/s"
    part = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "s", "labels": {"a": "b"}},
    }
    refused = (await apply(api, path, part, "m2")).refused(422, "Invalid")
    assert "addressType: Required value" in refused["message"]
    (await apply(api, path, {**part, "addressType": "IPv4", "endpoints": []}, "m1")).ok(201)
    assert (await apply(api, path, part, "m2")).ok()["addressType"] == "IPv4"
    given_up = (await apply(api, path, part, "m1")).refused(422, "Invalid")
    assert "addressType: Required value" in given_up["message"]
