"""The account of deploy/kubernetes/capi.yaml: its rights, and the API as it sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from capi_world import World

from fairlead.api.kubernetes import NAMESPACES, SERVICE_ACCOUNTS
from fairlead.api.meta import KubeObject, Resource
from fairlead.kube.config import ClusterConfig
from tests.scenario.any_api import as_service_account

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
    return await as_service_account(world.user, world.api, "fairlead-capi")
