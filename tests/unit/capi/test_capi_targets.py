"""Kinds of members: those that are not served are waited for, and named."""

from __future__ import annotations

import asyncio
import json

import pytest

from fairlead.api.capiside import TargetKind
from fairlead.capi.inventory import Targets
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.runtime.clock import settle

POOL_MACHINE = TargetKind("infrastructure.example", "PoolMachine")


class Api(Cluster):
    """An API whose discovery is played."""

    served: bool = False
    garbled: bool = False

    def __init__(self, *args, **named) -> None:
        super().__init__(*args, **named)
        self.asked = asyncio.Event()

    async def raw(self, method: str, path: str, **_named) -> bytes:
        self.asked.set()
        if self.garbled:
            return b"<html>a proxy in between</html>"
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
        made = Targets(api, changed=lambda _old, _new: None, look_s=0.01, looked=lambda: None)
        yield made, api


@pytest.mark.req("C-17")
async def test_a_kind_is_looked_for_when_it_is_first_named(targets):
    made, _api = targets
    assert "not been discovered" in made.incomplete(POOL_MACHINE)
    made.discovery.asked = made.clusters.synced = True
    problem = made.incomplete(POOL_MACHINE)
    assert problem.startswith("spec.targetKind: PoolMachine.infrastructure.example")
    assert "discovered" in problem
    assert made.resource(POOL_MACHINE) is None
    assert list(made.of_cluster(POOL_MACHINE, "fleet", "blue")) == []


async def test_an_api_that_answers_something_else_does_not_end_the_search(targets):
    made, api = targets
    made.discovery.asked = made.clusters.synced = True
    made.incomplete(POOL_MACHINE)
    api.served, api.garbled = True, True
    running = asyncio.create_task(made.run())
    try:
        async with asyncio.timeout(180):
            while "cannot be read" not in made.incomplete(POOL_MACHINE):
                await looked(api)
            assert made.incomplete(POOL_MACHINE).startswith("spec.targetKind: The discovery of management at /apis/")
            api.garbled = False
            while made.resource(POOL_MACHINE) is None:
                await looked(api)
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def looked(api: Api) -> None:
    """Return when the API has been asked once more, and the answer was read."""
    api.asked.clear()
    await api.asked.wait()
    await settle()


async def test_machines_are_followed_from_the_start(targets):
    made, _api = targets
    made.discovery.asked = made.clusters.synced = True
    assert made.incomplete(TargetKind()) == "Machine.cluster.x-k8s.io has not been read yet"
    made.machines.synced = True
    assert made.incomplete(TargetKind()) == ""
    assert made.resource(TargetKind()).plural == "machines"
