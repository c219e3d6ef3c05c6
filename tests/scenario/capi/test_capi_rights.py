"""The controller works with exactly the rights in deploy/kubernetes/capi.yaml, from a Cluster to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from capi_world import NAMESPACE, World

from fairlead.api.kubernetes import NAMESPACES, SERVICE_ACCOUNTS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import KubeObject, Resource
from fairlead.errors import NotFound
from fairlead.kube.config import Access, ClusterConfig
from tests.scenario.any_api import until

RBAC = "rbac.authorization.k8s.io"
KINDS: dict[str, Resource[Any]] = {
    "ClusterRole": Resource(RBAC, "v1", "ClusterRole", "clusterroles", False, KubeObject),
    "ClusterRoleBinding": Resource(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", False, KubeObject),
    "Role": Resource(RBAC, "v1", "Role", "roles", True, KubeObject),
    "RoleBinding": Resource(RBAC, "v1", "RoleBinding", "rolebindings", True, KubeObject),
    "ServiceAccount": SERVICE_ACCOUNTS,
    "Namespace": NAMESPACES,
}
MANIFEST = Path(__file__).parents[3] / "deploy" / "kubernetes" / "capi.yaml"


async def signed_in(world: World) -> ClusterConfig:
    """Return the API as the service account of the manifest sees it."""
    for obj in yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")):
        if (kind := KINDS.get(obj["kind"])) is not None:
            await world.user.apply(kind, obj, manager="operator")
    path = "/api/v1/namespaces/fairlead-system/serviceaccounts/fairlead-capi/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = msgspec.json.decode(await world.user.raw("POST", path, body=msgspec.json.encode(body)))
    admin = await world.api.sign_in(None)
    access = Access(headers={"Authorization": f"Bearer {answer['status']['token']}"}, ssl=admin.ssl)

    async def sign_in(_refused: Access | None) -> Access:
        return access

    return ClusterConfig(server=world.api.server, sign_in=sign_in, user="fairlead-capi")


@pytest.mark.req("C-56")
async def test_the_rights_of_the_manifest_are_enough_from_the_first_to_the_last(world: World) -> None:
    world.capi_api = await signed_in(world)
    await world.start()
    await world.cluster()
    await world.lb()
    await world.until_condition("EndpointPublished", "True")
    await world.machine("m-1", "10.0.0.1")
    await world.machine("m-2", "10.0.0.2")
    await world.until_states(m_1="active", m_2="active")
    await world.delete_machine("m-1")
    await world.until_free("m-1")
    await world.user.delete(LOAD_BALANCERS, NAMESPACE, "api")

    async def gone() -> bool:
        try:
            await world.get_lb()
        except NotFound:
            return True
        return False

    await until(gone, what="the LoadBalancer is gone")
    await world.until_free("m-2")
