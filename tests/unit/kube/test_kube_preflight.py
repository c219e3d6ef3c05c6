from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from kube_scripted import ScriptedApi, Seen

from fairlead.api.kubernetes import CRDS, NODES, SERVICE_ACCOUNTS, SERVICES
from fairlead.api.meta import JSONObject
from fairlead.errors import Unreachable
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import AccessNeed, check_access, install_crds
from fairlead.runtime.clock import VirtualClock

CRD: dict[str, Any] = {
    "metadata": {"name": "things.fairlead.dev"},
    "spec": {
        "group": "fairlead.dev",
        "names": {"plural": "things", "kind": "Thing"},
        "scope": "Namespaced",
        "versions": [{"name": "v1alpha1", "served": True}, {"name": "v0", "served": False}],
    },
}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def cluster(api: ScriptedApi, clock: VirtualClock) -> AsyncIterator[Cluster]:
    async with api.cluster(clock=clock) as cluster:
        yield cluster


def allow(api: ScriptedApi, verbs: set[str]) -> None:
    async def review(seen: Seen) -> web.Response:
        verb = seen.json["spec"]["resourceAttributes"]["verb"]
        return web.json_response({"status": {"allowed": verb in verbs}})

    api.fault(lambda seen: "selfsubject" in seen.path, review, times=99)


def serve(api: ScriptedApi) -> None:
    async def discover(_seen: Seen) -> web.Response:
        return web.json_response({"kind": "APIResourceList", "resources": [{"name": "things"}]})

    api.fault(lambda seen: seen.path == "/apis/fairlead.dev/v1alpha1", discover, times=99)


def condition(api: ScriptedApi, kind: str, value: str, message: str = "") -> None:
    stored = api.objects["customresourcedefinitions"]["", "things.fairlead.dev"]
    stored["status"] = {"conditions": [{"type": kind, "status": value, "message": message}]}


async def test_missing_rights_are_sentences_in_the_order_of_the_needs(api: ScriptedApi, cluster: Cluster) -> None:
    allow(api, {"list"})
    needs = [AccessNeed("patch", SERVICES, "a", "status"), AccessNeed("list", SERVICES), AccessNeed("watch", NODES)]
    first, second = await check_access(cluster, needs)
    assert 'resources: ["services/status"], verbs: ["patch"]' in first
    assert 'in namespace "a"' in first
    assert 'resources: ["nodes"], verbs: ["watch"]' in second


async def test_the_missing_rights_on_one_resource_are_one_sentence(api: ScriptedApi, cluster: Cluster) -> None:
    allow(api, {"watch"})
    (said,) = await check_access(cluster, [AccessNeed(verb, SERVICES) for verb in ("get", "list", "watch", "create")])
    assert said.startswith("Cannot get, list and create services")
    assert 'lacks the right to "get", "list", "create" services in all namespaces' in said
    assert 'resources: ["services"], verbs: ["get", "list", "create"].' in said


async def test_no_sentence_when_all_is_well(api: ScriptedApi, cluster: Cluster) -> None:
    allow(api, {"list"})
    assert await check_access(cluster, [AccessNeed("list", SERVICES)]) == []


async def test_a_server_that_cannot_be_asked_is_an_error(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock
) -> None:
    api.answer(lambda _: True, 500, times=99)
    task = asyncio.create_task(check_access(cluster, [AccessNeed("list", SERVICES)]))
    await clock.advance_until(task.done)
    with pytest.raises(Unreachable):
        await task


async def test_crds_are_installed_and_waited_for(api: ScriptedApi, cluster: Cluster, clock: VirtualClock) -> None:
    task = asyncio.create_task(install_crds(cluster, [CRD], "fairlead-hub"))
    await clock.advance_until(lambda: "customresourcedefinitions" in api.objects and clock.monotonic() > 2)
    assert not task.done()
    condition(api, "Established", "True")
    await clock.advance(1)
    assert not task.done()  # established, but not yet in discovery
    serve(api)
    await clock.advance_until(task.done)
    assert await task == []
    assert api.requests("PATCH")[0].query["fieldManager"] == "fairlead-hub"


async def test_a_crd_that_never_comes_or_clashes_is_a_sentence(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock
) -> None:
    task = asyncio.create_task(install_crds(cluster, [CRD], "m", timeout_s=5))
    await clock.advance_until(task.done)
    (sentence,) = await task
    assert "is not served by one after 5 s" in sentence
    condition(api, "NamesAccepted", "False", '"Thing" is taken')
    task = asyncio.create_task(install_crds(cluster, [dict(CRD)], "m", timeout_s=5))
    await clock.advance_until(task.done)
    (sentence,) = await task
    assert 'clashes with another one at one: "Thing" is taken' in sentence


async def test_without_the_right_it_is_enough_that_they_are_there(api: ScriptedApi, cluster: Cluster) -> None:
    api.answer(lambda seen: seen.method == "PATCH", 403, "Forbidden", times=9)
    (sentence,) = await install_crds(cluster, [CRD], "m")
    assert "does not serve things.fairlead.dev in version v1alpha1" in sentence
    assert 'lacks the right to "patch" customresourcedefinitions.apiextensions.k8s.io' in sentence
    serve(api)
    assert await install_crds(cluster, [CRD], "m") == []


async def test_a_crd_that_the_server_refuses_is_its_own_sentence(api: ScriptedApi, cluster: Cluster) -> None:
    api.answer(lambda seen: seen.method == "PATCH", 422, "Invalid", "spec.scope: Required value")
    (sentence,) = await install_crds(cluster, [CRD], "m")
    assert "spec.scope: Required value" in sentence


@pytest.mark.req("S-11")
async def test_a_right_to_one_object_is_asked_for_by_its_name(api: ScriptedApi, cluster: Cluster) -> None:
    allow(api, set())
    need = AccessNeed("create", SERVICE_ACCOUNTS, subresource="token", name="fairlead-agent")
    (problem,) = await check_access(cluster, [need])
    assert "serviceaccounts/token" in problem
    assert "fairlead-agent" in problem
    asked = [seen.json["spec"]["resourceAttributes"] for seen in api.seen if "selfsubject" in seen.path]
    assert [(each["name"], each["subresource"]) for each in asked] == [("fairlead-agent", "token")]


def with_fields(*names: str) -> JSONObject:
    properties = {"spec": {"type": "object", "properties": {name: {"type": "string"} for name in names}}}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"properties": properties}},
    }
    return {**CRD, "spec": {**CRD["spec"], "versions": [version]}}


@pytest.mark.req("W-10")
@pytest.mark.parametrize(
    ("there", "applied"),
    [(("old", "new"), False), (("old",), False), (("new",), True), ((), True)],
    ids=["newer", "the same", "another", "older"],
)
async def test_a_kind_that_is_as_ours_or_newer_is_not_written(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock, there: tuple[str, ...], applied: bool
) -> None:
    """Two versions run at once while replicas are replaced, and a hub may read a backup of a newer one."""
    await cluster.apply(CRDS, with_fields(*there), manager="another version")
    condition(api, "Established", "True")
    serve(api)
    before = len(api.requests("PATCH"))
    task = asyncio.create_task(install_crds(cluster, [with_fields("old")], "fairlead-hub"))
    await clock.advance_until(task.done)
    await task
    assert (len(api.requests("PATCH")) > before) is applied
