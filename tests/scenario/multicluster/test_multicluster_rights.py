"""Members with exactly the rights that the hub and the manifests grant: they share Services, and see no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from multicluster_world import Member, new_set, until

from fairlead.api.globalservice import GLOBAL_SERVICES
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import CRDS, ENDPOINT_SLICES, NAMESPACES, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from fairlead.api.multicluster import EXPORTED_SERVICES, IMPORTED_SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.errors import Forbidden
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer
from fairlead.kube.discovery import install_crds
from fairlead.translate.tenant import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES

MANIFESTS = Path(__file__).parents[3] / "deploy" / "kubernetes"
KINDS = {
    kind.kind: kind
    for kind in (NAMESPACES, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
}


async def signed_in(admin: Cluster, url: str, namespace: str, name: str) -> Cluster:
    """Return a connection as the service account fairlead-agent of a namespace."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/fairlead-agent/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer: Any = msgspec.json.decode(await admin.raw("POST", path, body=msgspec.json.encode(body)))
    config = ClusterConfig(server=url, namespace=namespace, sign_in=bearer(answer["status"]["token"]), user="agent")
    return Cluster(config, name=name)


async def grant(member: Member) -> None:
    for manifest in ("agent", "multi-cluster-services"):
        for document in yaml.safe_load_all((MANIFESTS / f"{manifest}.yaml").read_text(encoding="utf-8")):
            if (kind := KINDS.get(document["kind"])) is not None:
                await member.user.apply(kind, document, manager="admin")


@pytest.mark.req("MC-2", "S-10")
async def test_with_exactly_the_rights_granted_members_share_and_see_no_others() -> None:
    async with new_set("west", "east", agents=False) as world:
        west, east = world.members["west"], world.members["east"]
        for member in (west, east):
            await grant(member)
            of_member = await signed_in(member.user, member.url, "fairlead-system", f"member {member.name}")
            of_hub = await signed_in(world.hub_user, world.hub_url, f"tenant-{member.name}", "the hub")
            await world.start_agent(member, clusters=(of_member, of_hub))
        await west.service("hello", "10.1.0.1")
        await west.export()
        await west.condition("Ready", "True")
        for member in (west, east):
            await member.until_endpoints({"west": ["10.1.0.1"]})
            await member.imported(check=lambda obj: obj.spec.ips and obj.status.conditions)

        async with await signed_in(world.hub_user, world.hub_url, "tenant-east", "the hub") as thief:
            assert len(await thief.list(IMPORTED_SERVICES, "tenant-east")) == 1
            for kind in (EXPORTED_SERVICES, IMPORTED_SERVICES, ENDPOINT_SLICES):
                for namespace in ("tenant-west", ""):
                    with pytest.raises(Forbidden):
                        await thief.list(kind, namespace)
            made_up = {
                "metadata": {"name": "shop.made-up", "namespace": "tenant-east"},
                "spec": {"namespace": "shop", "name": "made-up"},
            }
            with pytest.raises(Forbidden):
                await thief.apply(IMPORTED_SERVICES, made_up, manager="thief")
            await thief.apply(EXPORTED_SERVICES, made_up, manager="thief")
            with pytest.raises(Forbidden):
                await thief.apply(EXPORTED_SERVICES, {**made_up, "status": {}}, manager="thief", subresource="status")

        await west.unexport()
        await west.no_import()
        await east.no_import()


@pytest.mark.req("MC-6")
async def test_an_agent_works_with_a_hub_of_an_earlier_release() -> None:
    """Release 0.2 has neither the kinds of cluster sets nor the rights to them."""
    async with new_set("west", agents=False) as world:
        west, hub = world.members["west"], world.hub_user
        newer = (EXPORTED_SERVICES, IMPORTED_SERVICES, GLOBAL_SERVICES)
        await world.stop_hub()
        definitions = [await hub.get(CRDS, "", kind.full_name) for kind in newer]
        for definition in definitions:
            await hub.delete(CRDS, "", definition.metadata.name)
        await grant(west)
        await west.service("hello", "10.1.0.1", type="LoadBalancer")
        await west.export()
        await world.start_agent(west)

        async def published() -> bool:
            return bool(await hub.get(TCP_LOAD_BALANCERS, "tenant-west", "shop.hello"))

        await until(published, what="the Service is published")
        assert not (await west.user.get(west.exports, west.home, "hello")).status.conditions
        # The hub is upgraded while the agent runs.
        await install_crds(hub, all_crds(), "hub")
        await world.start_hub()
        await west.condition("Ready", "True", reason="Exported")
        await west.until_endpoints({"west": ["10.1.0.1"]})
