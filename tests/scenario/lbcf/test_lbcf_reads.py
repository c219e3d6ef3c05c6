"""L-43: what cannot be read is not gone. Every read that desired state depends on, broken in every way."""

from __future__ import annotations

import pytest
from lbcf_wire import HANGS
from lbcf_world import WEB

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.loadbalancer import LOAD_BALANCERS

ALL = ("10.0.0.1", "10.1.0.1", "10.9.0.1")
AT = {"n1:30200", "web-0:80", "10.9.0.1:80"}
#: Bytes in an object of each kind that a decoder needs, and others that it cannot understand.
GARBLED = {
    "pods": (b'"podIP":"10.1.0.1"', b'"podIP":[10,1,0,1]'),
    "services": (b'"nodePort":30200', b'"nodePort":"302"'),
    "nodes": (b'"address":"10.0.0.1"', b'"address":[10,12345]'),
    "backendgroups": (b'"loadBalancers":["shared"]', b'"loadBalancers":{"share":1}'),
    "loadbalancers": (b'"className":"edge"', b'"className":[1234]'),
    "loadbalancerclasses": (b'"provider":"webhook"', b'"provider":123456789'),
}
KINDS = (*GARBLED, "backendrecords")
WAYS = {"500": 500, "403": 403, "404": 404, "no answer": HANGS}
CASES = [
    (kind, way, when)
    for kind in KINDS
    for way in (*WAYS, "garbled")
    for when in ("while it runs", "at its start")
    if way != "garbled" or kind in GARBLED
]


async def opened(shop):
    await shop.node("n1", "10.0.0.1")
    await shop.service(node_port=30200)
    await shop.pod("web-0", "10.1.0.1")
    await shop.group("web", pods=WEB)
    await shop.group("nodes", service={"name": "svc", "port": {"port": 80}})
    await shop.group("fixed", static=["10.9.0.1:80"])
    await shop.registered(*ALL)
    assert shop.driver.at() == AT
    shop.driver.calls.clear()


def make_unreachable(world, kind, way):
    if way == "garbled":
        world.wire.garbled[kind] = GARBLED[kind]
        world.wire.cut(kind)
    else:
        world.wire.breaks(kind, WAYS[way])


async def nothing_was_taken(shop):
    assert not shop.driver.hooks.keys() & {"deregisterBackend", "deleteLoadBalancer"}
    assert shop.driver.at() == AT
    assert not any(record.deleting for record in await shop.records())
    assert await shop.states() == dict.fromkeys(ALL, "Registered")


@pytest.mark.req("L-43", "I-1")
@pytest.mark.parametrize(
    ("kind", "way", "when"),
    [
        pytest.param(*case, marks=[pytest.mark.thorough] if (number // 2 + number) % 2 else [])
        for number, case in enumerate(CASES)
    ],
)
async def test_what_cannot_be_read_is_not_gone(shop, world, hub, kind, way, when):
    await opened(shop)
    if when == "at its start":
        await world.stop(hub)
        make_unreachable(world, kind, way)
        await world.start_at_once()
    else:
        make_unreachable(world, kind, way)
    await world.quiet(60)
    await nothing_was_taken(shop)
    # Changes made meanwhile cannot be read either.
    await shop.lb("another")
    await world.quiet(20)
    await nothing_was_taken(shop)
    world.wire.heal()
    if way == "garbled":
        await shop.touch(kind)
    await world.quiet(60)
    await nothing_was_taken(shop)
    await world.user.delete(BACKEND_GROUPS, "shop", "fixed")
    await shop.until_at(*(AT - {"10.9.0.1:80"}))
    await shop.delete_pod("web-0")
    await shop.until_at("n1:30200")
    await world.user.delete(LOAD_BALANCERS, "shop", "shared")
    await shop.until_gone()


@pytest.mark.req("L-43", "I-7")
@pytest.mark.parametrize("kind", ["backendgroups", "pods"])
async def test_one_object_that_cannot_be_read_holds_up_no_other_namespace(shop, world, hub, kind):
    """A hub that starts and does not understand one object goes on with all that it cannot be about."""
    await opened(shop)
    await shop.elsewhere("10.8.0.1:80", "10.8.0.2:80")
    await world.stop(hub)
    make_unreachable(world, kind, "garbled")
    await world.start(identity="hub-1")
    await shop.elsewhere("10.8.0.2:80")
    await shop.until_at("10.8.0.2:80", lb="elsewhere")
    assert shop.driver.at() == AT
