"""Who may see what: all on loopback, elsewhere what the viewer's own token may list at a real API server."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, read_maintenance
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.meta import KubeObject, Resource
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import Unauthorized
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer, request_token
from fairlead.page import web as rights
from fairlead.page.board import Board
from fairlead.page.web import AllRights, TokenGate, WebPage
from fairlead.runtime.clock import SystemClock
from fairlead.runtime.telemetry import StatusServer
from podless import ApiServer
from tests.scenario.installed_kinds import server_with_kinds

ADMIN = "for-these-tests-only"
LB = "tcploadbalancers"
GROUP = "fairlead.dev"


@pytest.fixture
async def server():
    server = await server_with_kinds(admin_token=ADMIN)
    await server.start()
    yield server
    await server.stop()


async def token_of(
    server: ApiServer, *, namespace: str, cluster_wide: bool = False, verbs: tuple[str, ...] = ("list",)
) -> str:
    """Return the token of an account with ``verbs`` on load balancers in ``namespace``, or everywhere."""
    scope = "Cluster" if cluster_wide else ""
    rule = {"apiGroups": [GROUP], "resources": [LB, "httploadbalancers"], "verbs": list(verbs)}
    meta = {"name": "viewer"} if cluster_wide else {"name": "viewer", "namespace": namespace}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{scope}Role", "name": "viewer"}
    subject = {"kind": "ServiceAccount", "name": "viewer", "namespace": namespace}
    async with Cluster(ClusterConfig(server=server.url, sign_in=bearer(ADMIN)), name="hub") as admin:
        await admin.create(NAMESPACES, {"metadata": {"name": namespace}})
        for kind, body in (
            ("Account", {"metadata": {"name": "viewer", "namespace": namespace}}),
            ("Role", {"metadata": meta, "rules": [rule]}),
            ("RoleBinding", {"metadata": meta, "roleRef": ref, "subjects": [subject]}),
        ):
            await admin.create(_resource(kind, scope), body)
        issued = await request_token(admin, namespace, "viewer", valid_s=3600)
    return issued.token


def _resource(kind: str, scope: str) -> Resource[KubeObject]:
    if kind == "Account":
        return Resource("", "v1", "ServiceAccount", "serviceaccounts", True, KubeObject)
    name = f"{scope}{kind}"
    return Resource("rbac.authorization.k8s.io", "v1", name, f"{name.lower()}s", not scope, KubeObject)


async def seen(server: ApiServer, token: str, *wanted: tuple[str, str]) -> list[bool]:
    gate = TokenGate(ClusterConfig(server=server.url, sign_in=bearer(ADMIN)), clock=SystemClock())
    viewer = await gate.rights({"Authorization": f"Bearer {token}"})
    try:
        answers = await viewer.of(wanted)
        assert answers == await viewer.of(wanted)
        return [answers[each] for each in wanted]
    finally:
        await viewer.aclose()


@pytest.mark.req("OP-10")
async def test_a_token_sees_what_it_may_list(server):
    token = await token_of(server, namespace="tenant-east")
    wanted = [(LB, "tenant-east"), (LB, "tenant-west"), ("tenants", ""), ("", "")]
    assert await seen(server, token, *wanted) == [True, False, False, True]


@pytest.mark.req("OP-10")
async def test_who_may_list_everywhere_is_not_asked_for_each_namespace(server):
    token = await token_of(server, namespace="tenant-east", cluster_wide=True)
    before = sum(server.requests().values())
    assert await seen(server, token, *((LB, f"tenant-{number}") for number in range(50))) == [True] * 50
    assert sum(server.requests().values()) - before <= 3


@pytest.mark.req("OP-10")
async def test_without_a_good_token_nothing_is_seen(server):
    gate = TokenGate(ClusterConfig(server=server.url, sign_in=bearer(ADMIN)), clock=SystemClock())
    for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Basic YTpi"}, {"Authorization": "Bearer no"}):
        with pytest.raises(Unauthorized) as refused:
            await gate.rights(headers)
        assert "kubectl create token NAME -n NAMESPACE" in refused.value.sentence
        assert server.url not in refused.value.sentence
        assert "selfsubjectreviews" not in refused.value.sentence


@pytest.mark.req("S-8")
async def test_made_up_tokens_are_tried_at_a_bounded_rate(server, monkeypatch):
    """A thousand at once were a thousand handshakes in the hub's process, which did nothing else for seconds."""
    monkeypatch.setattr(rights, "_SIGN_INS_AT_FIRST", 3)
    monkeypatch.setattr(rights, "_SIGN_INS_PER_S", 0.001)
    gate = TokenGate(ClusterConfig(server=server.url, sign_in=bearer(ADMIN)), clock=SystemClock())
    tries = [asyncio.create_task(gate.rights({"Authorization": f"Bearer no-{number}"})) for number in range(20)]
    with pytest.raises(Unauthorized):
        await gate.rights({})  # without one there is nothing to try
    waiting = set(tries)
    while len(waiting) > 17:
        _, waiting = await asyncio.wait(waiting, timeout=60.0, return_when=asyncio.FIRST_COMPLETED)
    ended, waiting = await asyncio.wait(waiting, timeout=0.5)
    assert (len(ended), len(waiting)) == (0, 17)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*tries, return_exceptions=True)


async def test_on_loopback_everything_is_seen():
    everything = await AllRights().rights({})
    assert await everything.of([(LB, "tenant-east")]) == {(LB, "tenant-east"): True}
    await everything.aclose()


async def none(_key, _only):
    return None


@contextlib.asynccontextmanager
async def changing(server: ApiServer, token: str):
    """Serve a page on loopback, and return how to ask it for an action with ``token``."""
    async with Cluster(ClusterConfig(server=server.url, sign_in=bearer(ADMIN)), name="hub") as admin:
        for resource, spec in (
            (TCP_LOAD_BALANCERS, {"ports": [{"port": 80}]}),
            (HTTP_LOAD_BALANCERS, {"listeners": [{"name": "http", "port": 80}]}),
        ):
            for namespace in ("tenant-east", "default"):
                await admin.create(resource, {"metadata": {"namespace": namespace, "name": "web"}, "spec": spec})
        tokens = TokenGate(ClusterConfig(server=server.url, sign_in=bearer(ADMIN)), clock=SystemClock())
        page = WebPage(Board([], clock=SystemClock()), gate=AllRights(), explain=none, actors=tokens)
        async with (
            StatusServer("127.0.0.1", 0, CollectorRegistry(), list, extend=page.add_to) as pages,
            aiohttp.ClientSession(pages.url) as session,
        ):

            async def act(action, kind="TCPLoadBalancer", namespace="tenant-east", **options):
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                async with session.post(
                    f"/page/actions/{kind}/{namespace}/web", json={"action": action}, headers=headers, **options
                ) as answer:
                    return answer.status, await answer.text()

            yield admin, session, act


def annotation(obj, name):
    return (obj.metadata.annotations or {}).get(f"fairlead.dev/{name}")


@pytest.mark.req("OP-10", "S-6")
async def test_who_may_change_a_load_balancer_pauses_and_maintains_it_on_the_page(server):
    token = await token_of(server, namespace="tenant-east", verbs=("list", "get", "patch"))
    async with changing(server, token) as (admin, session, act):
        for action, value in (("pause", "true"), ("resume", None)):
            assert (await act(action))[0] == 200
            lb = await admin.get(TCP_LOAD_BALANCERS, "tenant-east", "web")
            assert annotation(lb, "paused") == value
        headers = {"Authorization": f"Bearer {token}"}
        async with session.get("/page/actions/TCPLoadBalancer/tenant-east/web", headers=headers) as answer:
            offered = await answer.json()
        assert (offered["viewer"], offered["actions"]) == (
            "system:serviceaccount:tenant-east:viewer",
            ["pause", "resume"],
        )
        for action, hosts in (("maintenance", [""]), ("end-maintenance", [])):
            assert (await act(action, "HTTPLoadBalancer"))[0] == 200
            lb = await admin.get(HTTP_LOAD_BALANCERS, "tenant-east", "web")
            entries = read_maintenance(annotation(lb, "maintenance") or "")
            assert [entry.host for entry in entries] == hosts
        assert (await act("maintenance"))[0] == 400  # it serves connections
        assert (await act("delete"))[0] == 400
        broken = {"metadata": {"annotations": {"fairlead.dev/maintenance": "[{"}}}
        await admin.merge_patch(HTTP_LOAD_BALANCERS, "tenant-east", "web", broken)
        status, said = await act("maintenance", "HTTPLoadBalancer")
        assert (status, "Correct or remove the annotation first" in said) == (409, True)


@pytest.mark.req("OP-10", "S-6")
async def test_without_the_right_nothing_is_changed_though_everything_is_shown(server):
    token = await token_of(server, namespace="tenant-east", verbs=("list", "get"))
    for with_token in (token, "", "made-up"):
        async with changing(server, with_token) as (admin, session, act):
            expected = 403 if with_token == token else 401
            for namespace in ("tenant-east", "default"):
                status, said = await act("pause", namespace=namespace)
                assert (status, server.url in said) == (expected, False)
                lb = await admin.get(TCP_LOAD_BALANCERS, namespace, "web")
                assert annotation(lb, "paused") is None
            headers = {"Authorization": f"Bearer {with_token}"}
            async with session.get("/page/actions/TCPLoadBalancer/tenant-east/web", headers=headers) as answer:
                assert answer.status == (200 if with_token == token else 401)
                assert with_token != token or (await answer.json())["actions"] == []
            for resource in (TCP_LOAD_BALANCERS, HTTP_LOAD_BALANCERS):
                for namespace in ("tenant-east", "default"):
                    await admin.delete(resource, namespace, "web")


@pytest.mark.req("S-6")
async def test_another_site_cannot_make_a_browser_change_anything(server):
    token = await token_of(server, namespace="tenant-east", verbs=("list", "get", "patch"))
    async with changing(server, token) as (admin, session, act):
        path, headers = "/page/actions/TCPLoadBalancer/tenant-east/web", {"Authorization": f"Bearer {token}"}
        for more in (
            {"Origin": "https://evil.example"},
            {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        ):
            async with session.post(path, json={"action": "pause"}, headers={**headers, **more}) as answer:
                assert answer.status == 403
        async with session.post(path, data={"action": "pause"}, headers=headers) as answer:
            assert answer.status == 415  # what a form can send
        async with session.post(path, json={"action": "pause", "more": 1}, headers=headers) as answer:
            assert answer.status == 400
        assert annotation(await admin.get(TCP_LOAD_BALANCERS, "tenant-east", "web"), "paused") is None
        assert (await act("pause"))[0] == 200
