"""Runs hub and agent as processes with the arguments of their Deployments, as the service accounts made next to these.

In: an API server, and the objects of a manifest or a chart. Out: an assertion for a right that lacks, or is never used.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml
from deployment_needs import tenant_needs
from deployment_world import World, until

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
from fairlead.api.meta import JSONObject
from fairlead.api.names import AGENT_SERVICE_ACCOUNT, ANNOTATION_HOSTNAME, SYSTEM_NAMESPACE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS
from fairlead.errors import Forbidden, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.standalone.hub_settings import hub_needs
from fairlead.translate.tenant import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from fairlead_demo.worlds.loopback import free_port
from fairlead_demo.worlds.processes import Child, fairlead

_MADE = {
    kind.kind: kind
    for kind in (NAMESPACES, SERVICE_ACCOUNTS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS)
}

#: Used only by a hub that has Ingresses, zones, issuers, BackendGroups, GlobalServices or load balancers with a ledger;
#: here are none.
OF_BACKEND_GROUPS = {
    "httploadbalancers",
    "loadbalancerroutes",
    "dnszones",
    "hostnames",
    "certificateissuers",
    "managedcertificates",
    "backendgroups",
    "backendrecords",
    "loadbalancers",
    "globalservices",
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
    # The status of a pool, where there is one.
    ("addresspools.fairlead.dev", "patch"),
    # Drills: tests/unit/hub/test_hub_drill.py.
    *(("drills.fairlead.dev", verb) for verb in ("create", "patch", "delete")),
    ("drillschedules.fairlead.dev", "patch"),
    # Members that share Services: tests/scenario/multicluster/test_multicluster_rights.py.
    ("exportedservices.fairlead.dev", "patch"),
    *(
        (resource, verb)
        for resource in ("importedservices.fairlead.dev", "endpointslices.discovery.k8s.io")
        for verb in ("create", "patch", "delete")
    ),
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


async def install(world: World, objects: Iterable[JSONObject]) -> None:
    """Make the accounts, roles and bindings among these objects."""
    for obj in objects:
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


def command(objects: Iterable[JSONObject], **instead: str) -> list[str]:
    """Return the command line of a Deployment, with some of its options replaced."""
    (deployment,) = [obj for obj in objects if obj["kind"] == "Deployment"]
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
    bare = {"metadata": {"name": "x"}}
    async with Cluster.from_kubeconfig(config, name="taken-over") as taken_over:
        for elsewhere in ("kube-system", "default"):
            for resource, obj in (
                (DEPLOYMENTS, deployment),
                (SECRETS, bare),
                (CONFIG_MAPS, bare),
                (SERVICE_ACCOUNTS, bare),
                (NETWORK_POLICIES, {**bare, "spec": {"podSelector": {}}}),
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
            await taken_over.create(CLUSTER_ROLE_BINDINGS, {**bare, "roleRef": cluster_admin, "subjects": mine})
        with pytest.raises(Forbidden):
            await taken_over.create(CLUSTER_ROLES, {**bare, "rules": rules})
        with pytest.raises(NotFound):
            await taken_over.get(SECRETS, namespace, "x")  # there it may, since it has bound its role


async def work(world: World, authority: bytes, *, of_hub: list[JSONObject], of_agent: list[JSONObject]) -> None:
    """Serve a Service with a hub and an agent that have these rights, and try what neither may do."""
    await install(world, [*of_hub, *of_agent])
    hub_page, agent_page = free_port(), free_port()
    hub = Child(
        "hub",
        command(
            of_hub,
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
                of_agent,
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
        annotations = {ANNOTATION_HOSTNAME: "web.example.com"}
        service = {"metadata": {"name": f"{world.prefix}-web", "namespace": "default", "annotations": annotations}}
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
            await until(all_used)
        except AssertionError:
            unused_rights = await unused()
            assert unused_rights == [], f"asked for and never used: {unused_rights}"
    except AssertionError as error:
        raise AssertionError(f"{error}; hub: {hub.log_tail()}; agent: {agent.log_tail() if agent else ''}") from None
    finally:
        for child in (agent, hub):
            if child is not None:
                await child.terminate()
        for lease in await world.admin.list(LEASES, SYSTEM_NAMESPACE):
            await world.admin.delete(LEASES, *lease.key)
    assert await world.admin.list(TCP_LOAD_BALANCERS) == []
