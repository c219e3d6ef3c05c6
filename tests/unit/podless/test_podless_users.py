"""The user that changed an object last is in an annotation that no client can write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from podless import ApiServer

ADMIN = "for-these-tests-only"
USER = "example.com/changed-by"
FORGED = {"metadata": {"annotations": {USER: "eve"}}}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    server = ApiServer(admin_token=ADMIN, user_annotations={"services": USER})
    await server.start()
    yield server
    await server.stop()


async def send(
    server: ApiServer, user: str, method: str, body: Any = None, *, media: str = "", path: str = "/web"
) -> Any:
    headers = {
        "Authorization": f"Bearer {ADMIN}", "Impersonate-User": user, "Impersonate-Group": "system:masters",
        "Content-Type": media or ("application/merge-patch+json" if method == "PATCH" else "application/json"),
    }  # fmt: skip
    url = f"{server.url}/api/v1/namespaces/default/services{path}"
    async with aiohttp.ClientSession() as session, session.request(method, url, json=body, headers=headers) as answer:
        assert answer.status < 300, await answer.text()
        return (await answer.json())["metadata"]


def user_of(meta: Any) -> str:
    return meta["annotations"][USER]


@pytest.mark.req("F-30")
async def test_the_server_stores_who_changed_an_object_and_ignores_claims(server):
    service = {"metadata": {"name": "web", **FORGED["metadata"]}, "spec": {"ports": [{"port": 80}]}}
    made = await send(server, "alice", "POST", service, path="")
    assert user_of(made) == "alice"
    assert USER not in repr(made["managedFields"])
    same = await send(server, "eve", "PATCH", FORGED)
    assert (user_of(same), same["resourceVersion"]) == ("alice", made["resourceVersion"])
    removed = await send(server, "eve", "PATCH", {"metadata": {"annotations": None}})
    assert removed["resourceVersion"] == made["resourceVersion"]
    changed = await send(server, "bob", "PATCH", {"spec": {"type": "LoadBalancer"}})
    assert user_of(changed) == "bob"
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}
    assert user_of(await send(server, "hub", "PATCH", status, path="/web/status")) == "bob"
    held = await send(server, "hub", "PATCH", {"metadata": {"finalizers": ["example.com/hold"]}})
    assert user_of(held) == "bob"  # no change of what is asked for
    apply = {"apiVersion": "v1", "kind": "Service", **FORGED, "spec": {"sessionAffinity": "ClientIP"}}
    applied = await send(
        server, "carol", "PATCH", apply, media="application/apply-patch+yaml", path="/web?fieldManager=x&force=true"
    )
    assert user_of(applied) == "carol"
    await send(server, "dave", "DELETE")
    assert user_of(await send(server, "hub", "GET")) == "dave"
