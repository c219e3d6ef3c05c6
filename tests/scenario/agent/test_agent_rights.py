"""The agent works with exactly the rights that it says it needs, and names each one that is taken away."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from agent_world import HUB_NAMESPACE, TOKEN, World, until

from fairlead.agent.app import Agent
from fairlead.agent.checks import hub_needs, member_needs
from fairlead.agent.config import AgentConfig
from fairlead.api.kubernetes import ENDPOINT_SLICES, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from fairlead.api.meta import KubeObject, Resource
from fairlead.api.names import GROUP
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import Access, ClusterConfig
from fairlead.kube.discovery import AccessNeed
from fairlead.translate.tenant import agent_rules

RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLES = Resource(RBAC, "v1", "ClusterRole", "clusterroles", False, KubeObject)
CLUSTER_ROLE_BINDINGS = Resource(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", False, KubeObject)


def rules_of(needs: list[AccessNeed]) -> list[dict[str, Any]]:
    return [
        {
            "apiGroups": [need.resource.group],
            "resources": [need.resource.plural + (f"/{need.subresource}" if need.subresource else "")],
            "verbs": [need.verb],
        }
        for need in needs
    ]


async def account(admin: Cluster, url: str, name: str, namespace: str, wide: list[Any], inside: list[Any]) -> Cluster:
    """Make a service account with these rights, and return a connection as that account."""
    home = {"name": "agent", "namespace": namespace}
    subjects = [{"kind": "ServiceAccount", **home}]
    await admin.apply(SERVICE_ACCOUNTS, {"metadata": home}, manager="admin")
    cluster_ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "agent"}
    role_ref = {"apiGroup": RBAC, "kind": "Role", "name": "agent"}
    await admin.apply(CLUSTER_ROLES, {"metadata": {"name": "agent"}, "rules": wide}, manager="admin")
    binding = {"metadata": {"name": "agent"}, "roleRef": cluster_ref, "subjects": subjects}
    await admin.apply(CLUSTER_ROLE_BINDINGS, binding, manager="admin")
    await admin.apply(ROLES, {"metadata": home, "rules": inside}, manager="admin")
    await admin.apply(ROLE_BINDINGS, {"metadata": home, "roleRef": role_ref, "subjects": subjects}, manager="admin")
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/agent/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = msgspec.json.decode(await admin.raw("POST", path, body=msgspec.json.encode(body)))
    access = Access(headers={"Authorization": f"Bearer {answer['status']['token']}"})
    assert TOKEN not in access.headers["Authorization"]

    async def sign_in(_refused: Access | None) -> Access:
        return access

    return Cluster(ClusterConfig(server=url, sign_in=sign_in, namespace=namespace, user="agent"), name=name)


async def accounts(world: World, *, without: AccessNeed | None = None, by_hub: bool = False) -> tuple[Cluster, Cluster]:
    def kept(needs: list[AccessNeed]) -> list[AccessNeed]:
        return [need for need in needs if need != without]

    of_member = kept(member_needs(system_namespace="kube-system"))
    of_hub = kept(hub_needs(namespace=HUB_NAMESPACE))
    member = await account(
        world.member,
        world.member_url,
        "the member",
        "kube-system",
        rules_of([need for need in of_member if not need.namespace]),
        rules_of([need for need in of_member if need.namespace]),
    )
    classes = [{"apiGroups": [GROUP], "resources": ["loadbalancerclasses"], "verbs": ["get", "list", "watch"]}]
    hub = await account(
        world.hub,
        world.hub_url,
        "the hub",
        HUB_NAMESPACE,
        classes if by_hub else rules_of([need for need in of_hub if not need.namespace]),
        agent_rules() if by_hub else rules_of([need for need in of_hub if need.namespace]),
    )
    return member, hub


async def start(world: World, clusters: tuple[Cluster, Cluster], **options: Any) -> Agent:
    import asyncio

    defaults: dict[str, Any] = {"tenant": "east", "heartbeat_s": 3600.0, "preflight_retry_s": 0.2}
    config = AgentConfig(**{**defaults, **options})
    agent = Agent(member=clusters[0], hub=clusters[1], config=config)
    assert agent.hub_namespace == HUB_NAMESPACE, "that of the kubeconfig's context"
    world.agents.append((agent, asyncio.create_task(agent.run())))
    return agent


@pytest.mark.req("KI-8")
@pytest.mark.req("K-6")
@pytest.mark.parametrize("by_hub", [False, True])
async def test_with_exactly_these_rights_everything_works(world: World, by_hub: bool):
    await world.service()
    await world.service("pods", annotations={"fairlead.dev/target": "Pod"})
    await world.slice("10.1.0.1", service="pods")
    await world.service("np", kind="NodePort", annotations={"kubernetes.io/service.class": "kubelb"})
    agent = await start(world, await accounts(world, by_hub=by_hub))
    for name in ("web", "np", "pods"):
        await world.load_balancer(f"shop.{name}")
    await world.settled(agent)
    await until(lambda: agent.readiness() == [], what="ready")
    for name in ("web", "np"):
        await world.answer("192.0.2.1", f"shop.{name}")
    await world.until_shown("192.0.2.1")
    await world.event("EnsuredLoadBalancer", "np")
    await world.member.delete(ENDPOINT_SLICES, "shop", "web-1")
    await world.delete_service("pods")
    await world.gone("shop.pods")


@pytest.mark.req("I-8")
@pytest.mark.req("B15")
async def test_an_agent_whose_key_is_revoked_gives_way_to_one_whose_key_is_not(world: World):
    await world.service()
    # The lease outlasts a busy machine: it is given up because of the key and of nothing else.
    first = await start(world, await accounts(world, by_hub=True), heartbeat_s=0.05, let_go_s=0.5, lease_s=60.0)
    await world.load_balancer()
    second = await world.start(exporting=False)
    await until(lambda: second.readiness() == [], what="the standby is ready")
    assert not second.leadership.may_write()
    await world.hub.delete(SERVICE_ACCOUNTS, HUB_NAMESPACE, "agent")
    await until(second.leadership.may_write, what="the standby leads")
    await world.service("later")
    await world.load_balancer("shop.later")
    assert not first.leadership.may_write()

    def named() -> bool:
        return "does not accept the credentials" in " ".join(first.readiness())

    await until(named, what="the first one names its key")


EVERY_NEED = [*member_needs(system_namespace="kube-system"), *hub_needs(namespace=HUB_NAMESPACE)]


def _name(need: AccessNeed) -> str:
    return "-".join(filter(None, (need.verb, need.resource.plural, need.subresource, need.namespace)))


@pytest.mark.req("KI-8")
@pytest.mark.req("KI-10")
@pytest.mark.parametrize("need", EVERY_NEED, ids=_name)
async def test_each_right_that_is_lacking_is_named(world: World, need: AccessNeed):
    agent = await start(world, await accounts(world, without=need))

    def named() -> bool:
        return any(f" {need.verb} " in f" {each} " and need.resource.full_name in each for each in agent.readiness())

    await until(named, what=f"{_name(need)} in {agent.readiness()}")
