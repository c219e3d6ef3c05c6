"""Regions work with exactly the rights that the reference asks operators to give them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from regions_world import NAMESPACE, World, until

from fairlead.api.kubernetes import CRDS, SERVICE_ACCOUNTS, SERVICES
from fairlead.api.meta import KubeObject, Resource
from fairlead.kube.config import ClusterConfig
from tests.scenario.any_api import as_service_account

RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLES = Resource(RBAC, "v1", "ClusterRole", "clusterroles", False, KubeObject)
CLUSTER_ROLE_BINDINGS = Resource(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", False, KubeObject)
REFERENCE = Path(__file__).parents[3] / "docs" / "regions" / "reference.md"


def documented_rules() -> list[dict[str, Any]]:
    text = REFERENCE.read_text(encoding="utf-8").partition("## Rights")[2]
    match = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert match is not None
    return yaml.safe_load(match[1])["rules"]


async def signed_in(world: World, rules: list[dict[str, Any]]) -> ClusterConfig:
    """Return the API as a service account with these rights sees it."""
    home = {"name": "regions", "namespace": "fairlead-system"}
    await world.user.apply(SERVICE_ACCOUNTS, {"metadata": home}, manager="admin")
    await world.user.apply(CLUSTER_ROLES, {"metadata": {"name": "regions"}, "rules": rules}, manager="admin")
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "regions"}
    subjects = [{"kind": "ServiceAccount", **home}]
    binding = {"metadata": {"name": "regions"}, "roleRef": reference, "subjects": subjects}
    await world.user.apply(CLUSTER_ROLE_BINDINGS, binding, manager="admin")
    return await as_service_account(world.user, world.api, "regions")


@pytest.mark.req("O-40")
async def test_the_documented_rights_are_enough_from_the_first_to_the_last(world: World) -> None:
    world.api = await signed_in(world, documented_rules())
    await world.pool("np1", app="deploy")
    await world.node("n1", "np1")
    await world.service(class_name="fairlead.dev/envoy")
    await world.slice(("10.0.0.1", "n1"))
    await world.start()
    assert await world.targets("test-np1.poolservice.fairlead") == ["10.0.0.1"]
    await world.programmed("test-np1.poolservice.fairlead", "192.0.2.1")
    await world.until_shown("192.0.2.1")
    await world.event("test-np1", "Programmed")
    await world.slice(("10.0.0.2", "n1"))

    async def moved() -> bool:
        return await world.targets("test-np1.poolservice.fairlead") == ["10.0.0.2"]

    await until(moved)
    await world.delete_service()

    async def gone() -> bool:
        return not await world.user.list(SERVICES, NAMESPACE) and not await world.load_balancers()

    await until(gone)
    assert await world.names() == []


@pytest.mark.req("O-50")
async def test_without_the_right_to_install_kinds_those_that_are_there_are_enough(world: World) -> None:
    rules = [rule for rule in documented_rules() if rule["apiGroups"] != [CRDS.group]]
    world.api = await signed_in(world, rules)
    await world.pool("np1", app="deploy")
    await world.service()
    await world.start()
    await world.until_names("test-np1")
