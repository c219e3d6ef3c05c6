"""Objects that are stored with a wrong type: named where they may matter, and looked at again once they are mended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from group_shop import Shop
from hub_world import NAMESPACE, HubWorld, RunningHub

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import AnyResource
from fairlead.testing.builders import slice_body


def store(world: HubWorld, resource: AnyResource, namespace: str, name: str, change: Callable[[Any], object]) -> None:
    """Change an object where it is stored: as a release without today's checks has left it."""
    objects = world.server._running().store
    bucket = f"{resource.plural}.{resource.group}"
    entry = objects.bucket(bucket).get(namespace, name)
    assert entry is not None
    obj = entry.obj()
    change(obj)
    objects.put(bucket, obj)


def wrong_endpoints(obj: Any) -> None:
    obj["endpoints"] = [{"addresses": "10.1.0.2"}]


def wrong_ports(obj: Any) -> None:
    obj["spec"]["static"] = "10.9.0.2:8080"


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("mended", [False, True], ids=["deleted", "corrected"])
async def test_a_slice_is_named_and_nothing_is_removed_until_it_is_mended(
    world: HubWorld, hub: RunningHub, *, mended: bool, restarted: bool
) -> None:
    await world.lb("web")
    await world.slice("web", "10.1.0.1")
    second = slice_body("web-2", ["10.1.0.2"], load_balancer="web")
    await world.user.apply(ENDPOINT_SLICES, second, manager="kubectl")
    await world.until(lambda: world.at_cloud() == {"10.1.0.1:8080", "10.1.0.2:8080"})
    if restarted:
        await world.stop(hub)
    store(world, ENDPOINT_SLICES, NAMESPACE, "web-2", wrong_endpoints)
    if restarted:
        await world.start()
    condition = await world.said("ResolvedRefs", "False")
    assert condition.reason == "Invalid"
    for text in ("EndpointSlice", "web-2", "cannot be read", "correct or delete it"):
        assert text in condition.message
    await world.slice("web", "10.1.0.3")
    await world.until(lambda: "10.1.0.3:8080" in world.at_cloud())
    await world.quiet(60)
    assert world.at_cloud() == {"10.1.0.1:8080", "10.1.0.2:8080", "10.1.0.3:8080"}
    if mended:
        await world.user.apply(ENDPOINT_SLICES, second, manager="kubectl", force=True)
    else:
        await world.user.delete(ENDPOINT_SLICES, NAMESPACE, "web-2")
    await world.said("ResolvedRefs", "True")
    # A hub that starts while it cannot be read has never known of what it had.
    unknown = {"10.1.0.2:8080"} if restarted and not mended else set[str]()
    wanted = {"10.1.0.3:8080", *({"10.1.0.2:8080"} if mended else ())}
    await world.until(lambda: world.at_cloud() - unknown == wanted, what=f"{wanted}, there are {world.at_cloud()}")


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("mended", [False, True], ids=["deleted", "corrected"])
async def test_a_group_is_named_and_nothing_is_removed_until_it_is_mended(
    world: HubWorld, hub: RunningHub, *, mended: bool, restarted: bool
) -> None:
    shop = Shop(world)
    await shop.open()
    await shop.group("one", static=["10.9.0.1:8080"])
    await shop.group("two", static=["10.9.0.2:8080"])
    await shop.until("10.9.0.1", "10.9.0.2")
    await shop.registered(2)
    if restarted:
        await world.stop(hub)
    store(world, BACKEND_GROUPS, "shop", "two", wrong_ports)
    if restarted:
        await world.start()

    async def said(status: str) -> Any:
        given = await world.find(LOAD_BALANCERS, "shop", "shared")
        conditions = (given.status.conditions or ()) if given else ()
        return next((each for each in conditions if (each.type, each.status) == ("ResolvedRefs", status)), None)

    condition = await world.until(lambda: said("False"), what="the group is named")
    for text in ("BackendGroup", "two", "cannot be read", "correct or delete it"):
        assert text in condition.message
    await shop.group("one", static=["10.9.0.3:8080"])
    await world.until(lambda: "10.9.0.3:8080" in shop.at_cloud())
    await world.quiet(60)
    assert shop.at_cloud() == {"10.9.0.1:8080", "10.9.0.2:8080", "10.9.0.3:8080"}
    if mended:
        await shop.group("two", static=["10.9.0.2:8080"])
    else:
        await world.user.delete(BACKEND_GROUPS, "shop", "two")
    await world.until(lambda: said("True"), what="the group is not named any more")
    await shop.until(*(("10.9.0.3", "10.9.0.2") if mended else ("10.9.0.3",)))
