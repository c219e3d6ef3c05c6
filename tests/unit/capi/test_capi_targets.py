"""Kinds of members: those that are not served are waited for, and named."""

from __future__ import annotations

import json

import pytest

from fairlead.api.capiside import TargetKind
from fairlead.capi.targets import Targets, find_kind
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig

POOL_MACHINE = TargetKind("infrastructure.example", "PoolMachine")


class Api(Cluster):
    """An API whose discovery is played."""

    served: bool = False

    async def raw(self, method: str, path: str, **_named) -> bytes:
        if not self.served:
            raise NotFound("no such group")
        if path.count("/") == 2:
            return json.dumps(
                {"versions": [{"version": "v1alpha1"}, {"version": "v1beta1"}, {"version": "v1"}]}
            ).encode()
        rows = [{"name": "poolmachines", "kind": "PoolMachine"}, {"name": "poolmachines/status", "kind": "PoolMachine"}]
        return json.dumps({"resources": rows if path.endswith("v1beta1") else []}).encode()


@pytest.fixture
async def targets():
    async with Api(ClusterConfig(server="http://127.0.0.1:9"), name="management") as api:
        made = Targets(api, changed=lambda _old, _new: None, look_s=1.0, looked=lambda: None)
        yield made, api


@pytest.mark.req("C-17")
async def test_a_kind_is_looked_for_when_it_is_first_named(targets):
    made, _api = targets
    assert "not been looked for" in made.incomplete(POOL_MACHINE)
    made.discovery.asked = made.clusters.synced = True
    assert made.incomplete(POOL_MACHINE) == "PoolMachine.infrastructure.example has not been looked for yet"
    assert made.resource(POOL_MACHINE) is None
    assert list(made.of_cluster(POOL_MACHINE, "fleet", "blue")) == []


async def test_the_newest_version_that_has_the_kind_is_read(targets):
    _made, api = targets
    assert await find_kind(api, POOL_MACHINE) is None
    api.served = True
    resource = await find_kind(api, POOL_MACHINE)
    assert (resource.version, resource.plural) == ("v1beta1", "poolmachines")


async def test_machines_are_followed_from_the_start(targets):
    made, _api = targets
    made.discovery.asked = made.clusters.synced = True
    assert made.incomplete(TargetKind()) == "Machine.cluster.x-k8s.io has not been read yet"
    made.machines.synced = True
    assert made.incomplete(TargetKind()) == ""
    assert made.resource(TargetKind()).plural == "machines"
