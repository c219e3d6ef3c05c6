"""The label do-not-delete, where no policy of the API server refuses the deletion: the hub holds everything."""

from __future__ import annotations

import pytest
from group_shop import KEY

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import condition_of
from fairlead.api.names import FINALIZER_PROTECTED, LABEL_DO_NOT_DELETE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS


@pytest.fixture
async def shop(shop):
    await shop.group("fixed", static=["10.9.0.1:8080"])
    await shop.until("10.9.0.1")
    await shop.registered(1)
    return shop


async def label(world, resource, namespace, name, value):
    patch = {"metadata": {"labels": {LABEL_DO_NOT_DELETE: value}}}
    await world.user.merge_patch(resource, namespace, name, patch)
    await world.quiet(2)


async def held(world, resource, namespace, name):
    async def check():
        given = await world.find(resource, namespace, name)
        return given and condition_of(given.status.conditions, "Protected")

    condition = await world.until(check, what=f"{name} is held")
    assert (condition.status, condition.reason) == ("True", "DoNotDelete")
    assert "remove the label to release it" in condition.message
    await world.until(lambda: reported(world, namespace, name))


async def reported(world, namespace, name):
    return ("Warning", "DoNotDelete") in await world.events(name, namespace)


async def gone(world, resource, namespace, name):
    async def check():
        return await world.find(resource, namespace, name) is None

    await world.until(check, what=f"{name} is gone")


@pytest.mark.req("L-39")
@pytest.mark.parametrize("value", ["true", "", "false"])
async def test_a_labelled_load_balancer_stays_with_its_backends_until_the_label_goes(shop, world, value):
    """LT-32."""
    await label(world, LOAD_BALANCERS, "shop", "shared", value)
    await world.user.delete(LOAD_BALANCERS, "shop", "shared")
    await held(world, LOAD_BALANCERS, "shop", "shared")
    await world.quiet(60)
    assert shop.at_cloud() == {"10.9.0.1:8080"}
    # It is not frozen: what belongs to it goes on.
    await shop.group("fixed", static=["10.9.0.1:8080", "10.9.0.2:8080"])
    await shop.until("10.9.0.1", "10.9.0.2")
    await label(world, LOAD_BALANCERS, "shop", "shared", None)
    await gone(world, LOAD_BALANCERS, "shop", "shared")
    assert KEY not in world.outside.load_balancers
    assert await shop.records() == []


@pytest.mark.req("L-39")
async def test_held_changes_are_held_by_the_next_hub(shop, world, hub):
    await label(world, LOAD_BALANCERS, "shop", "shared", "yes")
    await label(world, BACKEND_GROUPS, "shop", "fixed", "yes")
    await world.stop(hub)
    await world.user.delete(LOAD_BALANCERS, "shop", "shared")
    await world.user.delete(BACKEND_GROUPS, "shop", "fixed")
    await world.start(identity="hub-1")
    await held(world, LOAD_BALANCERS, "shop", "shared")
    await held(world, BACKEND_GROUPS, "shop", "fixed")
    await world.quiet(30)
    assert shop.at_cloud() == {"10.9.0.1:8080"}


@pytest.mark.req("L-39")
async def test_a_labelled_group_stays_with_its_backends_until_the_label_goes(shop, world):
    """LT-32."""
    await label(world, BACKEND_GROUPS, "shop", "fixed", "")
    backend_group = await world.user.get(BACKEND_GROUPS, "shop", "fixed")
    assert backend_group.metadata.finalizers == [FINALIZER_PROTECTED]
    await world.user.delete(BACKEND_GROUPS, "shop", "fixed")
    await held(world, BACKEND_GROUPS, "shop", "fixed")
    await world.quiet(30)
    assert shop.at_cloud() == {"10.9.0.1:8080"}
    await label(world, BACKEND_GROUPS, "shop", "fixed", None)
    await gone(world, BACKEND_GROUPS, "shop", "fixed")
    await shop.until()


@pytest.mark.req("L-39")
async def test_a_group_whose_label_is_taken_off_is_as_it_was(shop, world):
    await label(world, BACKEND_GROUPS, "shop", "fixed", "")
    await label(world, BACKEND_GROUPS, "shop", "fixed", None)
    assert not (await world.user.get(BACKEND_GROUPS, "shop", "fixed")).metadata.finalizers
    await world.user.delete(BACKEND_GROUPS, "shop", "fixed")
    await gone(world, BACKEND_GROUPS, "shop", "fixed")
    await shop.until()


@pytest.mark.req("L-39")
async def test_a_group_is_released_although_its_load_balancer_does_not_exist(shop, world):
    await shop.group("lost", lbs=["nowhere"], static=["10.9.0.5:8080"])
    await label(world, BACKEND_GROUPS, "shop", "lost", "")
    await world.user.delete(BACKEND_GROUPS, "shop", "lost")
    await held(world, BACKEND_GROUPS, "shop", "lost")
    await label(world, BACKEND_GROUPS, "shop", "lost", None)
    await gone(world, BACKEND_GROUPS, "shop", "lost")


@pytest.mark.req("L-39")
async def test_a_members_load_balancer_is_held_too(world, hub):
    await world.lb()
    await world.slice("web", "10.1.0.1")
    address = await world.programmed()
    await label(world, TCP_LOAD_BALANCERS, "tenant-east", "web", "")
    await world.delete_lb()
    await held(world, TCP_LOAD_BALANCERS, "tenant-east", "web")
    await world.quiet(30)
    assert (world.at_cloud(), world.address_at_cloud()) == ({"10.1.0.1:8080"}, address)
    await label(world, TCP_LOAD_BALANCERS, "tenant-east", "web", None)
    await gone(world, TCP_LOAD_BALANCERS, "tenant-east", "web")
    assert world.cloud.load_balancers == {}
