"""What a cluster is asked, and what it answers: reads, writes, reviews."""

from __future__ import annotations

import pytest
from aiohttp import web
from kube_scripted import ScriptedApi, Seen, service

from fairlead.api.kubernetes import SERVICES
from fairlead.api.meta import ObjectKey
from fairlead.errors import AlreadyExists, Bug, Conflict, Invalid, NotFound, Unreachable
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig


async def test_get_returns_the_typed_object(api: ScriptedApi, cluster: Cluster) -> None:
    api.put("services", service("web"))
    result = await cluster.get(SERVICES, "a", "web")
    assert result.spec.type == "LoadBalancer"
    assert api.seen[-1].path == "/api/v1/namespaces/a/services/web"


async def test_list_reads_all_pages(api: ScriptedApi, cluster: Cluster) -> None:
    for number in range(7):
        api.put("services", service(f"s{number}"))
    listing = await cluster.listing(SERVICES, page_size=3)
    assert [item.metadata.name for item in listing.items] == [f"s{n}" for n in range(7)]
    assert listing.resource_version == str(api.version)
    assert [seen.query.get("continue") for seen in api.seen] == [None, "3", "6"]


async def test_an_empty_list_may_be_null(cluster: Cluster) -> None:
    assert await cluster.list(SERVICES) == []


async def test_selectors_and_namespace_are_sent(api: ScriptedApi, cluster: Cluster) -> None:
    await cluster.list(SERVICES, "a", label_selector="x=y", field_selector="metadata.name=z")
    seen = api.seen[-1]
    assert seen.path == "/api/v1/namespaces/a/services"
    assert (seen.query["labelSelector"], seen.query["fieldSelector"]) == ("x=y", "metadata.name=z")


async def test_an_expired_continue_token_starts_over_with_one_whole_list(api: ScriptedApi, cluster: Cluster) -> None:
    for number in range(5):
        api.put("services", service(f"s{number}"))
    api.answer(lambda seen: "continue" in seen.query, 410, "Expired", "continue token too old")
    assert len((await cluster.listing(SERVICES, page_size=2)).items) == 5
    assert "limit" not in api.seen[-1].query


@pytest.mark.req("I-7")
async def test_one_unreadable_object_does_not_hide_the_others(api: ScriptedApi, cluster: Cluster) -> None:
    api.put("services", service("good"))
    api.put("services", service("bad", port="not a number"))
    listing = await cluster.listing(SERVICES)
    assert [item.metadata.name for item in listing.items] == ["good"]
    assert "Expected `int`" in listing.broken[ObjectKey("a", "bad")]
    with pytest.raises(Invalid, match="services a/bad"):
        await cluster.list(SERVICES)


async def test_apply_is_server_side_apply(api: ScriptedApi, cluster: Cluster) -> None:
    body = service("web")
    applied = await cluster.apply(SERVICES, body, manager="fairlead-hub")
    seen = api.seen[-1]
    assert seen.method == "PATCH"
    assert seen.headers["Content-Type"] == "application/apply-patch+yaml"
    assert seen.query == {"fieldManager": "fairlead-hub", "force": "true"}
    assert (seen.json["apiVersion"], seen.json["kind"]) == ("v1", "Service")
    assert "kind" not in body
    assert applied.metadata.name == "web"
    await cluster.apply(SERVICES, body, manager="m", force=False, subresource="status")
    assert api.seen[-1].path.endswith("/services/web/status")
    assert api.seen[-1].query["force"] == "false"


async def test_an_object_without_a_namespace_goes_to_the_one_of_the_context(api: ScriptedApi) -> None:
    config = ClusterConfig(server=api.url, namespace="team")
    async with api.cluster(config=config) as cluster:
        await cluster.create(SERVICES, {"metadata": {"name": "web"}})
    assert api.seen[-1].path == "/api/v1/namespaces/team/services"


async def test_an_object_without_a_name_is_our_bug(cluster: Cluster) -> None:
    with pytest.raises(Bug):
        await cluster.apply(SERVICES, {"metadata": {}}, manager="m")
    await cluster.create(SERVICES, {"metadata": {"generateName": "x-", "name": "", "namespace": "a"}})


async def test_patches(api: ScriptedApi, cluster: Cluster) -> None:
    api.put("services", service("web"))
    await cluster.merge_patch(SERVICES, "a", "web", {"spec": {"type": "NodePort"}}, subresource="status", manager="m")
    assert api.seen[-1].headers["Content-Type"] == "application/merge-patch+json"
    assert api.seen[-1].query == {"fieldManager": "m"}
    await cluster.json_patch(SERVICES, "a", "web", [{"op": "remove", "path": "/spec"}])
    assert api.seen[-1].headers["Content-Type"] == "application/json-patch+json"


async def test_delete_says_whether_there_was_something(api: ScriptedApi, cluster: Cluster) -> None:
    uid = api.put("services", service("web"))["metadata"]["uid"]
    with pytest.raises(Conflict):
        await cluster.delete(SERVICES, "a", "web", uid="another")
    assert await cluster.delete(SERVICES, "a", "web", uid=uid)
    assert not await cluster.delete(SERVICES, "a", "web", uid=uid)
    assert api.seen[-1].json["preconditions"] == {"uid": uid}


async def test_create_twice(cluster: Cluster) -> None:
    await cluster.create(SERVICES, service("web"))
    with pytest.raises(AlreadyExists, match="create services a/web at one"):
        await cluster.create(SERVICES, service("web"))


async def test_replace_with_an_old_version_is_a_conflict(api: ScriptedApi, cluster: Cluster) -> None:
    api.put("services", service("web"))
    old = service("web")
    old["metadata"]["resourceVersion"] = "1"
    with pytest.raises(Conflict, match="has been modified"):
        await cluster.replace(SERVICES, old)


async def test_writes_are_counted_and_reads_and_reviews_are_not(api: ScriptedApi, cluster: Cluster) -> None:
    await cluster.create(SERVICES, service("web"))
    await cluster.apply(SERVICES, service("web"), manager="m")
    await cluster.list(SERVICES)
    with pytest.raises(NotFound):
        await cluster.replace(SERVICES, service("nothing"))

    async def allow(_seen: Seen) -> web.Response:
        return web.json_response({"status": {"allowed": True}})

    api.fault(lambda seen: "selfsubject" in seen.path, allow)
    assert await cluster.can_i("list", "", "services")
    assert cluster.writes == 2


async def test_can_i_asks_for_exactly_that(api: ScriptedApi, cluster: Cluster) -> None:
    async def refuse(_seen: Seen) -> web.Response:
        return web.json_response({"status": {"allowed": False, "reason": "no"}}, status=201)

    api.fault(lambda seen: "selfsubject" in seen.path, refuse)
    assert not await cluster.can_i("patch", "g.io", "things", "a", subresource="status")
    wanted = {"verb": "patch", "group": "g.io", "resource": "things", "namespace": "a", "subresource": "status"}
    assert api.seen[-1].json["spec"]["resourceAttributes"] == wanted


async def test_version(api: ScriptedApi, cluster: Cluster) -> None:
    async def say(_seen: Seen) -> web.Response:
        return web.json_response({"gitVersion": "v1.36.2", "major": "1"})

    api.fault(lambda seen: seen.path == "/version", say)
    assert await cluster.version() == "v1.36.2"


async def test_a_server_address_with_a_path_keeps_it(api: ScriptedApi) -> None:
    config = ClusterConfig(server=api.url + "/k8s/clusters/c-1/")
    async with api.cluster(config=config) as cluster:
        with pytest.raises(Unreachable):  # the API that is played answers about another path
            await cluster.get(SERVICES, "a", "x")
    assert api.seen[-1].path == "/k8s/clusters/c-1/api/v1/namespaces/a/services/x"
