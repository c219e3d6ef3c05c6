"""Credentials permit exactly what RBAC says."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from podless_client import Api, config_map

from podless import ApiServer

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"


class Tenant:
    """A service account with a role in its own namespace."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.token = ""
        self.user = f"system:serviceaccount:{api.ns}:bob"

    async def set_up(self, *rules: dict[str, Any]) -> "Tenant":
        api, home = self.api, f"/api/v1/namespaces/{self.api.ns}/serviceaccounts"
        (await api.post(home, {"metadata": {"name": "bob"}})).ok(201)
        role = {"metadata": {"name": "r"}, "rules": list(rules)}
        (await api.post(f"{RBAC}/namespaces/{api.ns}/roles", role)).ok(201)
        binding = {
            "metadata": {"name": "b"},
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "bob", "namespace": api.ns}],
        }
        (await api.post(f"{RBAC}/namespaces/{api.ns}/rolebindings", binding)).ok(201)
        request = {"spec": {"expirationSeconds": 600}}
        answer = (await api.post(f"{home}/bob/token", request)).ok(201)
        assert answer["kind"] == "TokenRequest"
        self.token = answer["status"]["token"]
        return self


ALL = {"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}


async def test_without_credentials(api: Api) -> None:
    for token in ("nope", "a.b.c", "e30.e30.e30"):
        (await api.get(api.cms, token=token)).refused(401, "Unauthorized", "Unauthorized")
    for path in ("/readyz", "/livez", "/healthz"):
        assert (await api.get(path, token="")).raw == b"ok"
        (await api.get(path, token="nope")).refused(401, "Unauthorized")
    assert (await api.get("/version", token="")).ok()["gitVersion"].startswith("v1.")


async def test_without_credentials_only_health_and_version_are_open(own: tuple[ApiServer, Api]) -> None:
    # As with --anonymous-auth=false; a real server with the flag on says 403 for system:anonymous instead.
    _, api = own
    (await api.get(api.cms, token="")).refused(401, "Unauthorized")


@pytest.mark.req("KI-8")
async def test_a_tenant_reaches_its_own_namespace_only(api: Api) -> None:
    bob = await Tenant(api).set_up(ALL)
    (await api.get(api.cms, token=bob.token)).ok()
    (await api.post(api.cms, config_map("mine"), token=bob.token)).ok(201)
    elsewhere = await api.get("/api/v1/namespaces/kube-system/configmaps", token=bob.token)
    what = 'cannot list resource "configmaps" in API group "" in the namespace "kube-system"'
    message = f'configmaps is forbidden: User "{bob.user}" {what}'
    assert elsewhere.refused(403, "Forbidden")["message"] == message
    everywhere = await api.get("/api/v1/configmaps", token=bob.token)
    everywhere.refused(403, "Forbidden", 'cannot list resource "configmaps" in API group "" at the cluster scope')
    for path in ("/api/v1/nodes", "/api/v1/namespaces", f"{RBAC}/clusterroles"):
        (await api.get(path, token=bob.token)).refused(403, "Forbidden", "at the cluster scope")
    named = await api.get("/api/v1/namespaces/kube-system/secrets/x", token=bob.token)
    named.refused(403, "Forbidden", 'secrets "x" is forbidden')
    (await api.post("/api/v1/namespaces/default/configmaps", config_map("x"), token=bob.token)).refused(
        403, "Forbidden"
    )
    (await api.get("/api/v1/configmaps", token=bob.token, watch="1")).refused(403, "Forbidden", "cannot watch")
    (await api.get("/metrics", token=bob.token)).refused(403, "Forbidden", 'cannot get path "/metrics"')
    (await api.get("/apis", token=bob.token)).ok()


@pytest.mark.req("KI-8")
async def test_a_tenant_cannot_give_itself_more(api: Api) -> None:
    verbs = ["create", "get", "patch", "update"]  # "*" would hold "escalate" and "bind" too
    roles = {"apiGroups": [GROUP], "resources": ["roles", "rolebindings"], "verbs": verbs}
    bob = await Tenant(api).set_up(roles, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]})
    path = f"{RBAC}/namespaces/{api.ns}"
    more = {"metadata": {"name": "more"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}
    refused = await api.post(f"{path}/roles", more, token=bob.token)
    refused.refused(403, "Forbidden", "is attempting to grant RBAC permissions not currently held")
    same = {"metadata": {"name": "same"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]}
    (await api.post(f"{path}/roles", same, token=bob.token)).ok(201)
    wider = {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
    (await api.patch(f"{path}/roles/r", wider, token=bob.token)).refused(403, "Forbidden")
    admin = {
        "metadata": {"name": "a"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "bob", "namespace": api.ns}],
    }
    (await api.post(f"{path}/rolebindings", admin, token=bob.token)).refused(403, "Forbidden")
    (await api.post(f"{RBAC}/clusterrolebindings", admin, token=bob.token)).refused(403, "Forbidden")
    own = {**admin, "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "same"}}
    (await api.post(f"{path}/rolebindings", own, token=bob.token)).ok(201)


@pytest.mark.req("KI-8")
async def test_apply_needs_the_right_to_create(api: Api) -> None:
    bob = await Tenant(api).set_up({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch"]})
    body = config_map("new")
    refused = await api.patch(api.cms + "/new", body, "application/apply-patch+yaml", fieldManager="m", token=bob.token)
    refused.refused(403, "Forbidden", "cannot create resource")


async def test_resource_names_and_subresources(api: Api) -> None:
    rules = (
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["services/status"], "verbs": ["patch"]},
    )
    bob = await Tenant(api).set_up(*rules)
    await api.post(api.cms, config_map("one"))
    (await api.get(api.cms + "/one", token=bob.token)).ok()
    (await api.get(api.cms + "/two", token=bob.token)).refused(403, "Forbidden")
    (await api.get(api.cms, token=bob.token)).refused(403, "Forbidden")
    status = await api.patch(api.svcs + "/x/status", {}, token=bob.token)
    status.refused(404, "NotFound")
    (await api.patch(api.svcs + "/x", {}, token=bob.token)).refused(
        403, "Forbidden", 'cannot patch resource "services"'
    )


async def test_a_token_dies_with_its_account(api: Api) -> None:
    bob = await Tenant(api).set_up(ALL)
    (await api.get(api.cms, token=bob.token)).ok()
    home = f"/api/v1/namespaces/{api.ns}/serviceaccounts"
    (await api.delete(f"{home}/bob")).ok()
    await api.locked_out(bob.token)
    (await api.post(home, {"metadata": {"name": "bob"}})).ok(201)
    (await api.get(api.cms, token=bob.token)).refused(401, "Unauthorized")


async def test_bindings_take_effect_and_end_at_once(api: Api) -> None:
    bob = await Tenant(api).set_up(ALL)
    (await api.get(api.cms, token=bob.token)).ok()
    (await api.delete(f"{RBAC}/namespaces/{api.ns}/rolebindings/b")).ok()
    await api.locked_out(bob.token, 403, "Forbidden")


async def test_reviews(api: Api) -> None:
    bob = await Tenant(api).set_up({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]})
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    async def may(verb: str, token: str | None) -> bool:
        ask = {"namespace": api.ns, "verb": verb, "resource": "configmaps"}
        return (await api.post(path, {"spec": {"resourceAttributes": ask}}, token=token)).ok(201)["status"]["allowed"]

    assert [await may("get", bob.token), await may("list", bob.token), await may("list", None)] == [True, False, True]
    rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    held = (await api.post(rules, {"spec": {"namespace": api.ns}}, token=bob.token)).ok(201)["status"]
    assert {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]} in held["resourceRules"]
    who = (await api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, token=bob.token)).ok(201)
    assert who["status"]["userInfo"]["username"] == bob.user
    tokens = "/apis/authentication.k8s.io/v1/tokenreviews"
    good = (await api.post(tokens, {"spec": {"token": bob.token}})).ok(201)["status"]
    assert (good["authenticated"], good["user"]["username"]) == (True, bob.user)
    assert (await api.post(tokens, {"spec": {"token": "x"}})).ok(201)["status"].get("authenticated", False) is False
    other = (await api.post(tokens, {"spec": {"token": bob.token, "audiences": ["vault"]}})).ok(201)
    assert other["status"].get("authenticated", False) is False
    subject = {
        "spec": {"user": bob.user, "resourceAttributes": {"namespace": api.ns, "verb": "get", "resource": "configmaps"}}
    }
    review = await api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", subject)
    assert review.ok(201)["status"]["allowed"] is True


async def test_token_requests(api: Api) -> None:
    await Tenant(api).set_up(ALL)
    path = f"/api/v1/namespaces/{api.ns}/serviceaccounts/bob/token"
    (await api.post(path, {"spec": {"expirationSeconds": 5}})).refused(422, "Invalid", "less than 10 minutes")
    foreign = (await api.post(path, {"spec": {"audiences": ["vault"]}})).ok(201)["status"]["token"]
    (await api.get(api.cms, token=foreign)).refused(401, "Unauthorized")
    (await api.post(path.replace("bob", "eve"), {"spec": {}})).refused(
        404, "NotFound", 'serviceaccounts "eve" not found'
    )


async def test_a_token_of_a_pod_names_its_node_and_dies_with_it(api: Api) -> None:
    await Tenant(api).set_up(ALL)
    home = f"/api/v1/namespaces/{api.ns}"
    container = {"name": "c", "image": "i"}
    pod = {
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n-1", "serviceAccountName": "bob", "containers": [container]},
    }
    uid = (await api.post(f"{home}/pods", pod)).ok(201)["metadata"]["uid"]
    spec = {"audiences": ["vault"], "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": uid}}
    token = (await api.post(f"{home}/serviceaccounts/bob/token", {"spec": spec})).ok(201)["status"]["token"]
    review = {"spec": {"token": token, "audiences": ["vault"]}}
    status = (await api.post("/apis/authentication.k8s.io/v1/tokenreviews", review)).ok(201)["status"]
    extra = status["user"]["extra"]
    assert extra["authentication.kubernetes.io/node-name"] == ["n-1"]
    assert extra["authentication.kubernetes.io/pod-name"] == ["p"]
    (await api.delete(f"{home}/pods/p?gracePeriodSeconds=0")).ok()
    async with asyncio.timeout(180):  # a real server remembers a token for ten seconds
        while True:
            answer = await api.post("/apis/authentication.k8s.io/v1/tokenreviews", review)
            if not answer.ok(201)["status"].get("authenticated"):
                break
            await asyncio.sleep(0.2)


async def test_impersonation(api: Api) -> None:
    bob = await Tenant(api).set_up(ALL)
    as_bob = {"Impersonate-User": bob.user}
    (await api.get(api.cms, headers=as_bob)).ok()
    (await api.get("/api/v1/nodes", headers=as_bob)).refused(403, "Forbidden", bob.user)
    as_admin = {"Impersonate-User": "root", "Impersonate-Group": "system:masters"}
    (await api.get("/api/v1/nodes", headers=as_admin)).ok()
    (await api.get(api.cms, headers=as_admin, token=bob.token)).refused(403, "Forbidden", "cannot impersonate")


@pytest.mark.usefixtures("controllers")
async def test_secret_tokens(api: Api) -> None:
    bob = await Tenant(api).set_up(ALL)
    secrets = f"/api/v1/namespaces/{api.ns}/secrets"
    kind, note = "kubernetes.io/service-account-token", "kubernetes.io/service-account.name"
    body = {"metadata": {"name": "t", "annotations": {note: "bob"}}, "type": kind}
    (await api.post(secrets, body)).ok(201)
    token = base64.b64decode(await api.until(secrets + "/t", "data", "token")).decode()
    (await api.get(api.cms, token=token)).ok()
    (await api.delete(secrets + "/t")).ok()
    await api.locked_out(token)
    (await api.get(api.cms, token=bob.token)).ok()


async def test_a_secret_that_is_older_than_its_account(own: tuple[ApiServer, Api]) -> None:
    # A real token controller removes such a Secret, so that the order in a manifest matters.
    _, api = own
    secrets = f"/api/v1/namespaces/{api.ns}/secrets"
    body = {"metadata": {"name": "t", "annotations": {"kubernetes.io/service-account.name": "bob"}}}
    made = (await api.post(secrets, body | {"type": "kubernetes.io/service-account-token"})).ok(201)
    rv = made["metadata"]["resourceVersion"]
    await api.post(f"/api/v1/namespaces/{api.ns}/serviceaccounts", {"metadata": {"name": "bob"}})
    events = await api.watch(secrets, until=1, resourceVersion=rv)
    assert events[0]["object"]["data"]["token"]


@pytest.fixture
async def clocked() -> AsyncIterator[tuple[Api, list[float]]]:
    moment = [1_800_000_000.0]
    server = ApiServer(now=lambda: moment[0])
    await server.start()
    async with aiohttp.ClientSession() as session:
        api = Api(session, server.url, server.admin_token)
        await api.post("/api/v1/namespaces", {"metadata": {"name": api.ns}})
        yield api, moment
    await server.stop()


async def test_tokens_expire(clocked: tuple[Api, list[float]]) -> None:
    api, moment = clocked
    bob = await Tenant(api).set_up(ALL)
    moment[0] += 599
    (await api.get(api.cms, token=bob.token)).ok()
    moment[0] += 2
    (await api.get(api.cms, token=bob.token)).refused(401, "Unauthorized")
