"""What depends on a deleted object is deleted with it, and nothing else."""

import asyncio
from typing import Any

import pytest
from podless_client import Api, config_map

from podless import ApiServer
from podless.background.collector import Collector

pytestmark = pytest.mark.usefixtures("controllers")


def owned_by(*owners: dict[str, Any], block: bool = False) -> list[dict[str, Any]]:
    references = []
    for owner in owners:
        meta = owner["metadata"]
        ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"]}
        references.append(ref | ({"blockOwnerDeletion": True} if block else {}))
    return references


async def test_background(api: Api) -> None:
    owner = (await api.post(api.cms, config_map("own"))).ok(201)
    await api.post(api.cms, config_map("dep", ownerReferences=owned_by(owner)))
    await api.post(api.cms, config_map("free"))
    await api.delete(api.cms + "/own")
    await api.gone(api.cms + "/dep")
    (await api.get(api.cms + "/free")).ok()


async def test_one_of_two_owners(api: Api) -> None:
    owners = [(await api.post(api.cms, config_map(name))).ok(201) for name in ("one", "two")]
    made = (await api.post(api.cms, config_map("dep", ownerReferences=owned_by(*owners)))).ok(201)
    await api.delete(api.cms + "/one")
    rv = made["metadata"]["resourceVersion"]
    events = await api.watch(api.cms, until=1, resourceVersion=rv, fieldSelector="metadata.name=dep")
    assert [ref["name"] for ref in events[0]["object"]["metadata"]["ownerReferences"]] == ["two"]


async def test_an_owner_that_never_was(api: Api) -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "0000"}}
    await api.post(api.cms, config_map("dep", ownerReferences=owned_by(ghost)))
    await api.gone(api.cms + "/dep")
    unknown = [{"apiVersion": "example.com/v9", "kind": "Unknown", "name": "x", "uid": "1"}]
    await api.post(api.cms, config_map("kept", ownerReferences=unknown))
    await api.post(api.cms, config_map("dep", ownerReferences=owned_by(ghost)))
    await api.gone(api.cms + "/dep")
    (await api.get(api.cms + "/kept")).ok()


async def test_orphan(api: Api) -> None:
    owner = (await api.post(api.cms, config_map("own"))).ok(201)
    await api.post(api.cms, config_map("dep", ownerReferences=owned_by(owner)))
    (await api.delete(api.cms + "/own", {"propagationPolicy": "Orphan"})).ok()
    async with asyncio.timeout(180):
        while True:
            left = (await api.get(api.cms + "/dep")).ok()
            if "ownerReferences" not in left["metadata"]:
                break
            await asyncio.sleep(0.05)


async def test_foreground_waits_for_blocking_dependents(api: Api) -> None:
    owner = (await api.post(api.cms, config_map("own"))).ok(201)
    refs = owned_by(owner, block=True)
    made = (await api.post(api.cms, config_map("dep", ownerReferences=refs, finalizers=["example.com/x"]))).ok(201)
    marked = (await api.delete(api.cms + "/own", {"propagationPolicy": "Foreground"})).ok()
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    rv = made["metadata"]["resourceVersion"]
    events = await api.watch(api.cms, until=1, resourceVersion=rv, fieldSelector="metadata.name=dep")
    assert events[0]["object"]["metadata"]["deletionTimestamp"]
    (await api.get(api.cms + "/own")).ok()
    (await api.patch(api.cms + "/dep", {"metadata": {"finalizers": None}})).ok()
    await api.gone(api.cms + "/own")


async def test_a_namespace_goes_with_its_content(api: Api) -> None:
    name = f"{api.ns}-x"
    (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).ok(201)
    inside = f"/api/v1/namespaces/{name}/configmaps"
    await api.post(inside, config_map("a"))
    await api.post(inside, config_map("held", finalizers=["example.com/x"]))
    marked = (await api.delete(f"/api/v1/namespaces/{name}")).ok()
    assert marked["status"]["phase"] == "Terminating"
    refused = (await api.post(inside, config_map("b"))).refused(403, "Forbidden", "because it is being terminated")
    assert refused["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    await api.gone(inside + "/a")
    async with asyncio.timeout(180):
        said = await _conditions(api, name)
        while "NamespaceFinalizersRemaining" not in said:
            await asyncio.sleep(0.05)
            said = await _conditions(api, name)
    held = "Some content in the namespace has finalizers remaining: example.com/x in 1 resource instances"
    assert said["NamespaceFinalizersRemaining"] == ("True", "SomeFinalizersRemain", held)
    assert said["NamespaceContentRemaining"][:2] == ("True", "SomeResourcesRemain")
    assert "configmaps. has 1 resource instances" in said["NamespaceContentRemaining"][2]
    (await api.patch(inside + "/held", {"metadata": {"finalizers": None}})).ok()
    await api.gone(f"/api/v1/namespaces/{name}")
    (await api.delete("/api/v1/namespaces/default")).refused(403, "Forbidden", "this namespace may not be deleted")


async def _conditions(api: Api, namespace: str) -> dict[str, tuple[str, str, str]]:
    given = (await api.get(f"/api/v1/namespaces/{namespace}")).ok()
    conditions = given["status"].get("conditions") or ()
    return {each["type"]: (each["status"], each["reason"], each["message"]) for each in conditions}


async def test_a_dependent_in_another_namespace_holds_up_no_owner(own: tuple[ApiServer, Api]) -> None:
    # On a real server a tenant can do that, unless OwnerReferencesPermissionEnforcement is on.
    _, api = own
    owner = (await api.post(api.cms, config_map("own"))).ok(201)
    refs = owned_by(owner, block=True)
    elsewhere = "/api/v1/namespaces/default/configmaps"
    name = f"dep-{api.ns}"
    (await api.post(elsewhere, config_map(name, ownerReferences=refs, finalizers=["example.com/x"]))).ok(201)
    await api.delete(api.cms + "/own", {"propagationPolicy": "Foreground"})
    await api.gone(api.cms + "/own")
    (await api.patch(f"{elsewhere}/{name}", {"metadata": {"finalizers": None}})).ok()


async def test_a_bug_about_one_object_does_not_end_the_collection_of_others(
    own: tuple[ApiServer, Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, api = own
    check_owners = Collector._check_owners

    def faulty(self: Collector, kind: Any, entry: Any) -> None:
        if entry.name == "poison":
            raise KeyError("a bug about one object")
        check_owners(self, kind, entry)

    monkeypatch.setattr(Collector, "_check_owners", faulty)
    owner = (await api.post(api.cms, config_map("own"))).ok(201)
    await api.post(api.cms, config_map("poison", ownerReferences=owned_by(owner)))
    await api.post(api.cms, config_map("dep", ownerReferences=owned_by(owner)))
    await api.delete(api.cms + "/own")
    await api.gone(api.cms + "/dep")
    monkeypatch.undo()
    await api.gone(api.cms + "/poison")
