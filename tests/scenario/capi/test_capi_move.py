"""`clusterctl move`, by the writes that it makes: pause, wait, copies without status, originals that go by force."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from capi_world import NAME, NAMESPACE, World, new_world, ours_on

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.clusterapi import ANNOTATION_BLOCK_MOVE
from fairlead.api.hostname import HOSTNAMES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import AnyResource
from fairlead.api.names import ANNOTATION_PAUSED, SYSTEM_NAMESPACE
from tests.scenario.any_api import embedded_api, until

_BACKENDS = ("10.0.0.1:6443", "10.0.0.2:6443")
_MEMBERS = ("m-1", "m-2")


async def serving(world: World) -> None:
    await world.start()
    await world.cluster()
    await world.lb()
    for number, name in enumerate(_MEMBERS, 1):
        await world.machine(name, f"10.0.0.{number}")
    await world.until_states(m_1="active", m_2="active")
    await world.until_served(*_BACKENDS)


async def paused(world: World) -> None:
    """Pause the Cluster, and wait as clusterctl does before it copies anything."""
    await world.user.merge_patch(world.clusters, NAMESPACE, "blue", {"spec": {"paused": True}})

    async def free_to_move() -> bool:
        obj = await world.get_lb()
        return obj.annotation(ANNOTATION_BLOCK_MOVE) == "" and obj.annotation(ANNOTATION_PAUSED) == "cluster-api"

    await until(free_to_move, what="the load balancer may be moved")


def moved_objects(world: World) -> list[tuple[AnyResource, str]]:
    """Return what clusterctl moves, owners first."""
    machines = [(world.machines, name) for name in _MEMBERS]
    return [(world.clusters, "blue"), (LOAD_BALANCERS, "api"), *machines, (BACKEND_GROUPS, "api")]


async def read(world: World, resource: AnyResource, name: str) -> dict[str, Any]:
    return msgspec.json.decode(await world.user.raw("GET", resource.path(NAMESPACE, name)))


async def copy(source: World, target: World) -> None:
    """Create the objects where they are moved to: with their finalizers, without status, owners by their new uid."""
    uids: dict[str, str] = {}
    for resource, name in moved_objects(source):
        obj = await read(source, resource, name)
        meta = obj["metadata"]
        owners = [{**owner, "uid": uids[owner["uid"]]} for owner in meta.get("ownerReferences") or ()]
        kept = {key: meta[key] for key in ("name", "namespace", "labels", "annotations", "finalizers") if key in meta}
        body = {"metadata": {**kept, "ownerReferences": owners}, "spec": obj["spec"]}
        uids[meta["uid"]] = (await target.user.create(resource, body)).metadata.uid


async def delete(world: World) -> None:
    """Delete the originals, those that are owned first."""
    for resource, name in reversed(moved_objects(world)):
        there = (resource, NAMESPACE, name)
        note = {"metadata": {"annotations": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""}}}
        await world.user.merge_patch(*there, note)
        await world.user.delete(*there)
        if (await read_or_none(world, resource, name)) is not None:
            await world.user.merge_patch(*there, {"metadata": {"finalizers": None}})


async def read_or_none(world: World, resource: AnyResource, name: str) -> object:
    return next((each for each in await world.user.list(resource, NAMESPACE) if each.metadata.name == name), None)


@pytest.mark.req("C-33", "T-C-07")
async def test_while_a_cluster_is_paused_its_hub_rests_and_goes_on_with_it(world: World) -> None:
    await serving(world)

    async def blocked() -> bool:
        return (await world.get_lb()).annotation(ANNOTATION_BLOCK_MOVE) == "fairlead.dev"

    await until(blocked, what="a move has to wait")
    await paused(world)
    await world.delete_machine("m-1")
    await world.user.merge_patch(world.clusters, NAMESPACE, "blue", {"spec": {"paused": False}})
    await world.until_served(_BACKENDS[1])
    await until(blocked, what="a move has to wait again")
    assert (await world.get_lb()).annotation(ANNOTATION_PAUSED) == ""


@pytest.mark.req("C-33")
async def test_a_pause_of_the_user_outlives_that_of_the_cluster(world: World) -> None:
    await serving(world)
    mine = {"metadata": {"annotations": {ANNOTATION_PAUSED: "by hand"}}}
    await world.user.merge_patch(LOAD_BALANCERS, NAMESPACE, "api", mine)
    await world.user.merge_patch(world.clusters, NAMESPACE, "blue", {"spec": {"paused": True}})

    async def free_to_move() -> bool:
        return (await world.get_lb()).annotation(ANNOTATION_BLOCK_MOVE) == ""

    await until(free_to_move, what="the load balancer may be moved")
    await world.user.merge_patch(world.clusters, NAMESPACE, "blue", {"spec": {"paused": False}})

    async def blocked() -> bool:
        return not await free_to_move()

    await until(blocked, what="a move has to wait again")
    assert (await world.get_lb()).annotation(ANNOTATION_PAUSED) == "by hand"


@pytest.mark.req("C-33", "C-54")
async def test_the_name_of_a_cluster_that_moves_stays_until_its_new_hub_has_it(world: World) -> None:
    host = "blue.clusters.test"
    await world.start()
    await world.cluster(controlPlaneEndpoint={"host": host, "port": 6443})
    await world.lb()
    for number, name in enumerate(_MEMBERS, 1):
        await world.machine(name, f"10.0.0.{number}")
    await world.until_states(m_1="active", m_2="active")

    async def named(where: World) -> bool:
        there = await where.user.get(HOSTNAMES, SYSTEM_NAMESPACE, host)
        assert not there.deleting
        return bool(there.spec.addresses)

    await until(lambda: named(world), what="the name has an address")
    async with embedded_api() as api, new_world(api) as target:
        await target.start()
        await paused(world)
        await copy(world, target)
        await delete(world)
        await world.cluster("green", controlPlaneEndpoint={"host": "green.clusters.test", "port": 6443})
        await world.lb("other", cluster="green")

        async def other_named() -> bool:
            return bool((await world.user.get(HOSTNAMES, SYSTEM_NAMESPACE, "green.clusters.test")).spec.addresses)

        # By then the hub of the source has seen all of it.
        await until(other_named, what="the other name has an address")
        assert await named(world)
        await target.user.merge_patch(target.clusters, NAMESPACE, "blue", {"spec": {"paused": False}})
        await until(lambda: named(target), what="the name has an address at the target")
        assert await named(world)


@pytest.mark.req("C-33", "C-50", "C-60", "C-70", "T-C-07", "T-C-19")
async def test_a_move_deregisters_nothing_on_either_side(world: World) -> None:
    await serving(world)
    await world.until_condition("EndpointPublished", "True")
    endpoint = (await world.get_cluster()).endpoint
    async with embedded_api() as api, new_world(api) as target:
        await target.start()
        await paused(world)
        await copy(world, target)
        await delete(world)
        # The hub of the source goes on with what is left there, and has seen all of that by then.
        await world.cluster("green")
        await world.lb("other", cluster="green")
        await world.machine("g-1", "10.0.1.1", cluster="green", behind=("other",))
        await world.until_served("10.0.1.1:6443", name="other")
        assert world.at_proxies() == dict.fromkeys(_BACKENDS, False)

        await target.user.merge_patch(target.clusters, NAMESPACE, "blue", {"spec": {"paused": False}})
        # Addresses come back with the first reconcile of the machines; until then what is known stays.
        await target.until_served(*_BACKENDS)
        for number, name in enumerate(_MEMBERS, 1):
            await target.addresses(name, f"10.0.0.{number}")
        await target.until_states(m_1="active", m_2="active")
        assert target.at_proxies() == dict.fromkeys(_BACKENDS, False)
        assert (await target.get_cluster()).endpoint == endpoint
        assert (await target.get_lb()).status.address == endpoint.host
        for name in _MEMBERS:
            machine = await target.get_machine(name)
            assert machine is not None
            assert len(ours_on(machine)) == 3
            assert machine.annotation(NAME) == "api"
