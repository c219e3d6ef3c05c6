"""deploy/kubernetes: complete, locked down, and with exactly the rights that are used.

Hub and agent run here as processes with the arguments of their manifests, as the service accounts that these make.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml
from deployment_world import World, free_port, until

from fairlead.agent.checks import gateway_needs, ingress_needs, member_needs
from fairlead.api.kubernetes import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    LEASES,
    NAMESPACES,
    NETWORK_POLICIES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject
from fairlead.api.names import AGENT_SERVICE_ACCOUNT, GROUP, SYSTEM_NAMESPACE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.errors import Forbidden, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.preflight import AccessNeed
from fairlead.providers.controller.gateway_form import GatewayForm
from fairlead.providers.controller.ingress_form import IngressForm
from fairlead.standalone.hub_rights import group_needs, hub_needs, tenant_needs
from fairlead.testing.worlds.processes import Child, fairlead
from fairlead.translate.tenant import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, HUB_TENANT_ROLE, agent_rules

MANIFESTS = Path(__file__).parents[3] / "deploy" / "kubernetes"
_MADE = {
    kind.kind: kind
    for kind in (NAMESPACES, SERVICE_ACCOUNTS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS)
}

#: (namespace or "", API group, resource, verb)
Right = tuple[str, str, str, str]


def objects(name: str) -> list[JSONObject]:
    return [document for document in yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text()) if document]


def rights(manifests: list[JSONObject]) -> set[Right]:
    rights: set[Right] = set()
    for role in manifests:
        if role["kind"] in {"Role", "ClusterRole"}:
            rights |= expand(role["rules"], role["metadata"].get("namespace", ""))
    return rights


def expand(rules: list[JSONObject], namespace: str = "") -> set[Right]:
    return {
        (namespace, group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def needed(needs: list[AccessNeed]) -> set[Right]:
    return {
        (
            need.namespace,
            need.resource.group,
            "/".join(filter(None, (need.resource.plural, need.subresource))),
            need.verb,
        )
        for need in needs
    }


def everywhere(these: set[Right]) -> set[Right]:
    return {("", *right[1:]) for right in these}


READS = {"get", "list", "watch"}
#: What the hub holds only to give it to agents.
PASSED_ON = expand(agent_rules()) | {
    ("", GROUP, LOAD_BALANCER_CLASSES.plural, verb) for verb in ("get", "list", "watch")
}


@pytest.mark.req("KI-8")
def test_hub_has_the_rights_that_it_checks_for_and_gives_away_and_no_more() -> None:
    manifests = [obj for obj in objects("hub") if obj["metadata"]["name"] != HUB_TENANT_ROLE]
    granted, needs = rights(manifests), needed([*hub_needs(deployment=True), *group_needs()])
    for_one = {("", "rbac.authorization.k8s.io", "clusterroles", "bind")}
    assert [rule for role in manifests for rule in role.get("rules", ()) if "bind" in rule["verbs"]] == [
        {
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["clusterroles"],
            "resourceNames": [HUB_TENANT_ROLE],
            "verbs": ["bind"],
        }
    ]
    granted -= for_one
    assert {right for right in needs if right not in granted and ("", *right[1:]) not in granted} == set(), "sufficient"
    assert {
        right for right in granted if right not in needs | PASSED_ON and (right[0] or right not in everywhere(needs))
    } == set()
    wide = {right for right in granted if not right[0]}
    assert not wide - PASSED_ON - needs, "what one namespace is enough for is not asked for in all"
    assert not {right for right in granted if right[3] in {"*", "bind", "escalate", "impersonate", "deletecollection"}}
    assert not {right for right in granted if right[2] == "secrets" and (not right[0] or right[3] in {"list", "watch"})}
    written = {right for right in wide if right[1] in {"apps", "policy", "networking.k8s.io"} and right[3] not in READS}
    assert not written, "written in tenants' namespaces only"


@pytest.mark.req("S-10")
def test_what_the_hub_binds_in_a_tenants_namespace_is_what_it_writes_there_and_no_more() -> None:
    of_tenants = [obj for obj in objects("hub") if obj["metadata"]["name"] == HUB_TENANT_ROLE]
    assert [role["kind"] for role in of_tenants] == ["ClusterRole"], "bound by the hub, in no binding of ours"
    # Agents list and watch the copies of certificates in their own namespace, and renew their own token.
    passed_on = {("", "", "secrets", verb) for verb in ("list", "watch")} | {
        ("", "", "serviceaccounts/token", "create")
    }
    assert rights(of_tenants) == needed(tenant_needs()) | passed_on


@pytest.mark.req("KI-8", "K-45")
def test_for_another_controller_the_hub_has_the_rights_that_its_providers_use_and_no_more() -> None:
    used = {
        ("", kind.group, kind.plural, verb)
        for form in (IngressForm(), GatewayForm())
        for kind in (form.answering, *form.others)
        for verb in ("list", "create", "patch", "delete", *(("watch",) if kind is form.answering else ()))
    }
    assert rights(objects("another-controller")) == used


@pytest.mark.req("KI-8")
def test_agent_has_the_rights_that_it_checks_for_and_no_more() -> None:
    needs = [*member_needs(system_namespace=SYSTEM_NAMESPACE), *ingress_needs(), *gateway_needs()]
    assert rights(objects("agent")) == needed(needs)


@pytest.mark.req("KI-8")
@pytest.mark.parametrize("name", ["hub", "agent"])
def test_pods_are_locked_down(name: str) -> None:
    made = {obj["kind"]: obj for obj in objects(name)}
    deployment = made["Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    (container,) = pod["containers"]
    assert deployment["spec"]["replicas"] == 2
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert {entry["name"] for entry in container["volumeMounts"]} == {entry["name"] for entry in pod["volumes"]}
    assert made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"].items() <= labels
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels
    if name == "hub":
        service = made["Service"]
        assert service["spec"]["selector"].items() <= labels
        assert service["spec"]["ports"][0]["targetPort"] in {port["name"] for port in container["ports"]}
        host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
        assert f"--xds-address={host}:{service['spec']['ports'][0]['port']}" in container["args"]


#: Used only by a hub that has Ingresses, BackendGroups or load balancers with a ledger; here are none.
OF_BACKEND_GROUPS = {
    "httploadbalancers",
    "loadbalancerroutes",
    "backendgroups",
    "backendrecords",
    "loadbalancers",
    "nodes",
    "pods",
}

#: A lease is created once in a cluster's life, and deleted when a replica has been gone for minutes; an Event is only
#: patched when it repeats.
RARE = {
    ("leases.coordination.k8s.io", "create"),
    ("leases.coordination.k8s.io", "delete"),
    # A tenant that is removed while it serves.
    ("leases.coordination.k8s.io", "patch"),
    ("tcploadbalancers.fairlead.dev", "delete"),
    ("events", "create"),
    ("events", "patch"),
}


def never_used(did: set[tuple[str, str]]) -> list[str]:
    """Return the rights that the hub asks for and has not used; requests to a subresource are counted with it."""
    lacking: list[str] = []
    for need in [*hub_needs(deployment=True), *tenant_needs()]:
        name = need.resource.full_name
        read = need.verb in {"get", "list"} and (name, "watch") in did
        if not read and (name, need.verb) not in did | RARE and need.resource.plural not in OF_BACKEND_GROUPS:
            lacking.append(f"{need.verb} {name}")
    return lacking


async def install(world: World, name: str) -> None:
    for obj in objects(name):
        if obj["kind"] in _MADE:
            await world.admin.apply(_MADE[obj["kind"]], obj, manager="kubectl")


async def kubeconfig(world: World, authority: bytes, namespace: str, account: str) -> Path:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = msgspec.json.decode(await world.admin.raw("POST", path, body=msgspec.json.encode(body)))
    cluster = {"server": world.config.server}
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": account, "user": {"token": answer["status"]["token"]}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": account, "namespace": namespace}}],
        "current-context": "c",
    }
    file = world.directory / f"{account}-{namespace}.kubeconfig"
    file.write_text(yaml.safe_dump(content))
    file.chmod(0o600)
    return file


def command(name: str, **instead: str) -> list[str]:
    """Return the command line of a manifest, with some of its options replaced."""
    (deployment,) = [obj for obj in objects(name) if obj["kind"] == "Deployment"]
    first, *given = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    options = dict(argument.removeprefix("--").split("=", 1) for argument in given)
    options |= {key.replace("_", "-"): value for key, value in instead.items()}
    return fairlead(first, *(f"--{key}={value}" for key, value in options.items()))


async def page(port: int, path: str) -> tuple[int, str]:
    """Return status and text of a page; status 0 when there is no answer within some seconds."""
    timeout = aiohttp.ClientTimeout(total=10)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://127.0.0.1:{port}{path}") as answer,
        ):
            return answer.status, await answer.text()
    except (aiohttp.ClientError, TimeoutError):
        return 0, ""


async def ready(port: int, child: Child) -> None:
    async def check() -> bool:
        assert child.running, child.log_tail()
        return (await page(port, "/readyz"))[0] == 200

    try:
        await until(check)
    except AssertionError:
        raise AssertionError(f"{await page(port, '/readyz')}; {child.log_tail()}") from None
    assert (await page(port, "/livez"))[0] == 200


def used(metrics: str) -> set[tuple[str, str]]:
    """Return (resource.group, RBAC verb) of every request that was answered well."""
    verbs = {"apply": ["create", "patch"], "replace": ["update"]}
    requests = re.findall(r"^fairlead_kube_requests_total{(.*)} ([0-9.]+)$", metrics, re.MULTILINE)
    out: set[tuple[str, str]] = set()
    for labels, _ in requests:
        fields: dict[str, Any] = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if fields["code"].startswith("2") or fields["code"] in {"404", "409"}:
            out |= {(fields["resource"], verb) for verb in verbs.get(fields["verb"], [fields["verb"]])}
    return out


async def try_elsewhere(world: World, authority: bytes, namespace: str) -> None:
    """Try, with the hub's own token, what a hub that was taken over would try."""
    config = await kubeconfig(world, authority, SYSTEM_NAMESPACE, "fairlead-hub")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "c"}]}}
    deployment = {"metadata": {"name": "x"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    one = {"metadata": {"name": "x"}}
    async with Cluster.from_kubeconfig(config, name="taken-over") as taken_over:
        for elsewhere in ("kube-system", "default"):
            for resource, obj in (
                (DEPLOYMENTS, deployment),
                (SECRETS, one),
                (CONFIG_MAPS, one),
                (SERVICE_ACCOUNTS, one),
                (NETWORK_POLICIES, {**one, "spec": {"podSelector": {}}}),
            ):
                body = {**obj, "metadata": {**obj["metadata"], "namespace": elsewhere}}
                with pytest.raises(Forbidden):
                    await taken_over.create(resource, body)
                with pytest.raises(Forbidden):
                    await taken_over.delete(resource, elsewhere, "x")
            with pytest.raises(Forbidden):
                await taken_over.get(SECRETS, elsewhere, "x")
        with pytest.raises(Forbidden):
            await taken_over.list(SECRETS)
        cluster_admin = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        mine = [{"kind": "ServiceAccount", "name": "fairlead-hub", "namespace": SYSTEM_NAMESPACE}]
        rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]
        with pytest.raises(Forbidden):
            await taken_over.create(CLUSTER_ROLE_BINDINGS, {**one, "roleRef": cluster_admin, "subjects": mine})
        with pytest.raises(Forbidden):
            await taken_over.create(CLUSTER_ROLES, {**one, "rules": rules})
        with pytest.raises(NotFound):
            await taken_over.get(SECRETS, namespace, "x")  # there it may, since it has bound its role


@pytest.mark.req("KI-8", "S-10")
@pytest.mark.req("K-28")
async def test_hub_and_agent_work_with_exactly_these_rights(world: World, authority: bytes) -> None:
    for name in ("hub", "agent"):
        await install(world, name)
    hub_page, agent_page = free_port(), free_port()
    hub = Child(
        "hub",
        command(
            "hub",
            kubeconfig=str(await kubeconfig(world, authority, SYSTEM_NAMESPACE, "fairlead-hub")),
            data_dir=str(world.directory / "data"),
            metrics=f"127.0.0.1:{hub_page}",
            xds_listen="127.0.0.1:0",
        ),
        log=world.directory / "hub.log",
    )
    agent: Child | None = None
    try:
        await hub.start()
        await ready(hub_page, hub)
        tenant = f"{world.prefix}-m"
        await world.admin.create(TENANTS, {"metadata": {"name": tenant}, "spec": {}})
        namespace = f"tenant-{tenant}"
        await until(
            lambda: world.admin.get(ROLE_BINDINGS, namespace, AGENT_SERVICE_ACCOUNT), what="the tenant's rights"
        )
        agent = Child(
            "agent",
            command(
                "agent",
                tenant=tenant,
                kubeconfig=str(await kubeconfig(world, authority, SYSTEM_NAMESPACE, "fairlead-agent")),
                hub_kubeconfig=str(await kubeconfig(world, authority, namespace, AGENT_SERVICE_ACCOUNT)),
                metrics=f"127.0.0.1:{agent_page}",
            ),
            log=world.directory / "agent.log",
        )
        await agent.start()
        await ready(agent_page, agent)

        ports = [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}]
        service = {"metadata": {"name": f"{world.prefix}-web", "namespace": "default"}}
        spec = {"type": "LoadBalancer", "ports": ports, "selector": {"app": "web"}}
        await world.admin.create(SERVICES, {**service, "spec": spec})

        async def kinds(count: int) -> bool:
            return len(await world.kinds(namespace)) == count

        await until(lambda: kinds(7), what="everything of the tenant")
        await world.admin.delete(SERVICES, "default", f"{world.prefix}-web")
        await until(lambda: kinds(0), what="nothing of the tenant")

        await try_elsewhere(world, authority, namespace)

        async def unused() -> list[str]:
            return never_used(used((await page(hub_page, "/metrics"))[1]))

        async def all_used() -> bool:
            return not await unused()

        try:
            await until(all_used, timeout_s=10)
        except AssertionError:
            assert await unused() == [], "asked for and never used"
    except AssertionError as error:
        raise AssertionError(f"{error}; hub: {hub.log_tail()}; agent: {agent.log_tail() if agent else ''}") from None
    finally:
        for child in (agent, hub):
            if child is not None:
                await child.terminate()
        for lease in await world.admin.list(LEASES, SYSTEM_NAMESPACE):
            await world.admin.delete(LEASES, *lease.key)
    assert await world.admin.list(TCP_LOAD_BALANCERS) == []
