"""The server does what a program that embeds it relies on."""

import base64
import json
import ssl

import aiohttp
from podless_client import Api, config_map

from podless import ApiServer


async def test_several_in_one_loop_share_nothing() -> None:
    first, second = ApiServer(), ApiServer(admin_token="known")
    urls = [await first.start(), await second.start()]
    assert len({*urls, first.tls_url, second.tls_url}) == 4
    assert second.admin_token == "known" != first.admin_token
    async with aiohttp.ClientSession() as session:
        api = Api(session, first.url, first.admin_token)
        (await api.post("/api/v1/namespaces/default/configmaps", config_map("a"))).ok(201)
        other = Api(session, second.url, second.admin_token)
        (await other.get("/api/v1/namespaces/default/configmaps/a")).refused(404, "NotFound")
        (await other.get("/api", token=first.admin_token)).refused(401, "Unauthorized")
    assert second.requests() == {("get", "configmaps"): 1, ("get", ""): 1}
    await first.stop()
    await first.stop()
    await second.stop()


async def test_starting_twice_is_starting_once() -> None:
    server = ApiServer()
    assert await server.start() == await server.start() == server.url
    await server.stop()


async def test_counters(own: tuple[ApiServer, Api]) -> None:
    server, api = own
    before = server.writes()
    await api.get(api.cms)
    assert server.writes() == before
    await api.post(api.cms, config_map("a"), headers={"User-Agent": "fairlead-hub/1"})
    await api.patch(api.svcs + "/x/status", {})
    assert server.writes() == before + 2
    assert server.writes(exclude={"configmaps"}) == before + 1
    assert server.writes(user_agent="fairlead-hub") == 1
    assert server.requests("fairlead-hub") == {("create", "configmaps"): 1}
    assert server.requests()["patch", "services/status"] == 1


async def test_metrics(own: tuple[ApiServer, Api]) -> None:
    _, api = own
    await api.post(api.cms, config_map("a"))
    text = (await api.get("/metrics")).raw.decode()
    assert 'podless_apiserver_requests_total{code="201",resource="configmaps",verb="create"} 1.0' in text
    assert 'podless_apiserver_objects{resource="configmaps"} 1.0' in text
    assert "podless_apiserver_watchers 0.0" in text
    assert "podless_apiserver_write_seconds_bucket" in text


async def test_the_kubeconfig_opens_the_tls_port(own: tuple[ApiServer, Api]) -> None:
    server, _ = own
    config = server.kubeconfig()
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    trust = ssl.create_default_context(cadata=authority)
    heads = {"Authorization": f"Bearer {user['token']}"}
    async with aiohttp.ClientSession(headers=heads) as session:
        async with session.get(cluster["server"] + "/api/v1/namespaces/default", ssl=trust) as answer:
            assert answer.status == 200
        async with session.get(cluster["server"].replace("127.0.0.1", "localhost") + "/readyz", ssl=trust) as answer:
            assert await answer.text() == "ok"


async def test_what_a_server_in_memory_starts_with_is_there_at_its_resource_version() -> None:
    kept = config_map("kept", namespace="default", uid="u-1", resourceVersion="77")
    server = ApiServer(objects=[("configmaps", json.dumps(kept).encode())])
    await server.start()
    async with aiohttp.ClientSession() as session:
        api = Api(session, server.url, server.admin_token)
        path = "/api/v1/namespaces/default/configmaps"
        there = (await api.get(f"{path}/kept")).ok()
        assert there["metadata"]["resourceVersion"] == "77"
        later = (await api.post(path, config_map("a"))).ok(201)
        assert int(later["metadata"]["resourceVersion"]) > 77
    await server.stop()
