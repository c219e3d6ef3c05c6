"""Who may see what: all on loopback, elsewhere what the viewer's own token may list at a real API server."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.meta import KubeObject, Resource
from fairlead.errors import Unauthorized
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.kube.service_account_token import request_token
from fairlead.page import web as rights
from fairlead.page.web import AllRights, TokenGate
from fairlead.runtime.clock import SystemClock
from podless import ApiServer

ADMIN = "for-these-tests-only"
LB = "tcploadbalancers"
GROUP = "fairlead.dev"


@pytest.fixture
async def server():
    server = ApiServer(admin_token=ADMIN)
    await server.start()
    yield server
    await server.stop()


async def token_of(server: ApiServer, *, namespace: str, cluster_wide: bool = False) -> str:
    """Return the token of an account that may list load balancers in ``namespace``, or everywhere."""
    scope = "Cluster" if cluster_wide else ""
    rule = {"apiGroups": [GROUP], "resources": [LB], "verbs": ["list"]}
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
