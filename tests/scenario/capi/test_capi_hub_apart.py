"""Clusters in one cluster, LoadBalancers at a hub in another."""

from __future__ import annotations

from contextlib import suppress

import pytest
from capi_world import NAMESPACE, World, new_world, ours_on

from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import AnyResource
from fairlead.capi.reconcile import release_hooks
from fairlead.errors import NotFound, NotServed
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from tests.scenario.any_api import embedded_api, until


async def serving(world: World) -> None:
    await world.start()
    await world.cluster()
    await world.lb()
    await world.machine("m-1", "10.0.0.1")
    await world.machine("m-2", "10.0.0.2")
    await world.until_states(m_1="active", m_2="active")


@pytest.mark.req("C-56", "C-57")
async def test_clusters_of_another_cluster_get_their_endpoint_at_the_hub(api: ClusterConfig) -> None:
    async with embedded_api() as management, new_world(api, management=management) as world:
        await serving(world)
        await world.until_condition("EndpointPublished", "True")
        assert (await world.get_cluster()).endpoint.host == (await world.get_lb()).status.address
        await world.until_served("10.0.0.1:6443", "10.0.0.2:6443")
        # The management cluster has nothing of ours but marks, the hub nothing of Cluster API.
        with pytest.raises(NotServed):
            await world.management.list(LOAD_BALANCERS)
        with suppress(NotServed):  # a real API that other tests have used knows the kind
            assert await world.user.list(world.machines) == []
        await world.delete_machine("m-1")
        await world.until_free("m-1")
        await world.until_served("10.0.0.2:6443")


@pytest.mark.req("C-7")
async def test_a_load_balancer_is_deleted_with_a_cluster_it_cannot_reference(api: ClusterConfig) -> None:
    async with embedded_api() as management, new_world(api, management=management) as world:
        await serving(world)
        await world.lb("waiting", cluster="green")

        async def tied() -> bool:
            return bool((await world.get_lb()).annotation("fairlead.dev/cluster-uid"))

        await until(tied, what="the load balancer is tied to its Cluster")
        await world.management.delete(world.clusters, NAMESPACE, "blue")
        await world.until_gone()
        for name in ("m-1", "m-2"):
            machine = await world.get_machine(name)
            assert machine is not None
            assert ours_on(machine) == []
        # One whose Cluster has not been there yet waits for it.
        assert not (await world.get_lb("waiting")).deleting


@pytest.mark.req("C-50")
async def test_release_hooks_frees_machines_of_another_cluster(api: ClusterConfig) -> None:
    async with embedded_api() as management, new_world(api, management=management) as world:
        await serving(world)
        await world.stop_capi()
        freed = await release_hooks(world.management, world.user)
        assert sorted(freed) == ["LoadBalancer fleet/api", "Machine fleet/m-1", "Machine fleet/m-2"]


@pytest.mark.req("C-50")
async def test_release_hooks_repeats_writes_that_others_overtake(
    api: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with embedded_api() as management, new_world(api, management=management) as world:
        await serving(world)
        await world.stop_capi()
        overtaken: set[str] = set()

        def overtake(cluster: Cluster) -> None:
            get = cluster.get

            async def get_and_overtake(resource: AnyResource, namespace: str, name: str) -> object:
                obj = await get(resource, namespace, name)
                if name not in overtaken:
                    overtaken.add(name)
                    label = {"metadata": {"labels": {"example.com/seen": "yes"}}}
                    await cluster.merge_patch(resource, namespace, name, label, manager="other")
                return obj

            monkeypatch.setattr(cluster, "get", get_and_overtake)

        overtake(world.management)
        overtake(world.user)
        freed = await release_hooks(world.management, world.user)
        assert sorted(freed) == ["LoadBalancer fleet/api", "Machine fleet/m-1", "Machine fleet/m-2"]
        assert overtaken == {"api", "m-1", "m-2"}
        for name in ("m-1", "m-2"):
            machine = await world.get_machine(name)
            assert machine is not None
            assert ours_on(machine) == []


@pytest.mark.req("C-7", "C-57")
async def test_a_controller_at_the_wrong_management_cluster_removes_nothing(api: ClusterConfig) -> None:
    async with (
        embedded_api() as management,
        embedded_api() as wrong,
        new_world(api, management=wrong),
        new_world(api, management=management) as world,
    ):
        await serving(world)

        async def tied() -> bool:
            return bool((await world.get_lb()).annotation("fairlead.dev/management-cluster-uid"))

        await until(tied, what="the load balancer is tied to its management cluster")
        await world.stop_capi()
        world.capi_api = wrong
        await world.start_capi()
        await world.until_condition("EndpointPublished", "False")
        assert not (await world.get_lb()).deleting
        await world.until_served("10.0.0.1:6443", "10.0.0.2:6443")
        await world.stop_capi()
        world.capi_api = None
        await world.start_capi()
        await world.until_condition("EndpointPublished", "True")
        await world.management.delete(world.clusters, NAMESPACE, "blue")

        async def gone() -> bool:
            try:
                return (await world.get_lb()).deleting
            except NotFound:
                return True

        await until(gone, what="the LoadBalancer goes with its Cluster, where that is known")
