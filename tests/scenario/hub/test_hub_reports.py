"""Situations of public reports about other controllers: restarts, shared addresses, and changes of live Services."""

from __future__ import annotations

import pytest
from hub_world import HubWorld, lb_key

pytestmark = pytest.mark.req("L4-3")


async def served(world: HubWorld, name: str, **text: object) -> str:
    await world.lb(name, **text)
    await world.slice(name, "10.1.0.1")
    return await world.programmed(name)


async def test_after_a_restart_waiters_and_new_ones_take_no_address_in_use(world: HubWorld) -> None:
    """A full pool with a waiter; while no hub runs, another one is created whose name comes first."""
    hub = await world.start(pool="192.0.2.1-192.0.2.2")
    await world.tenant()
    before = {name: await served(world, name) for name in ("m", "n")}
    await world.lb("waiter")
    assert (await world.said("Programmed", "False", name="waiter")).reason == "AddressPoolExhausted"
    await world.stop(hub)
    await world.lb("a-first")
    await world.start(pool="192.0.2.1-192.0.2.2")
    assert (await world.said("Programmed", "False", name="a-first")).reason == "AddressPoolExhausted"
    assert {name: await world.programmed(name) for name in before} == before
    assert {name: world.address_at_cloud(name) for name in before} == before


async def test_shared_addresses_stay_shared_over_a_restart(world: HubWorld) -> None:
    """Two groups of one port each share two addresses; the port would fit on either."""
    hub = await world.start()
    await world.tenant()
    wanted = {
        "a80": ("192.0.2.2", 80),
        "b80": ("192.0.2.3", 80),
        "a443": ("192.0.2.2", 443),
        "b443": ("192.0.2.3", 443),
    }
    for name, (address, port) in wanted.items():
        assert await served(world, name, ports=[{"port": port}], spec={"address": address}) == address
    await world.stop(hub)
    await world.lb("late", ports=[{"port": 443}])
    await world.slice("late", "10.1.0.9")
    await world.start()
    assert await world.programmed("late") not in ("192.0.2.2", "192.0.2.3")
    for name, (address, _) in wanted.items():
        assert await world.programmed(name) == address
        assert world.address_at_cloud(name) == address


async def test_a_list_of_source_ranges_that_grows_reaches_the_provider(world: HubWorld) -> None:
    await world.start()
    await world.tenant()
    await served(world, "web", spec={"loadBalancerSourceRanges": ["192.0.2.0/28"]})
    for ranges in (["192.0.2.0/28", "198.51.100.0/24"], ["198.51.100.0/24"], []):
        await world.lb("web", spec={"loadBalancerSourceRanges": ranges})
        await world.until(
            lambda ranges=ranges: list(world.cloud.load_balancers[lb_key("web")].spec.source_ranges) == ranges,
            what=f"source ranges {ranges}",
        )


async def test_ports_that_change_leave_the_address_and_the_targets(world: HubWorld) -> None:
    await world.start()
    await world.tenant()
    address = await served(world, "web", ports=[{"port": 80}])
    await world.until(lambda: bool(world.at_cloud("web")), what="targets")
    await world.lb("web", ports=[{"port": 8080}])
    await world.until(
        lambda: [each.port for each in world.cloud.load_balancers[lb_key("web")].spec.listeners] == [8080],
        what="the new port",
    )
    assert await world.programmed("web") == address
    await world.until(lambda: bool(world.at_cloud("web")), what="targets behind the new port")


@pytest.mark.req("L4-3")
async def test_load_balancers_that_swap_ports_keep_them_and_say_how(world: HubWorld) -> None:
    """No port can be opened before the other one closes it, so both report it, and the way out works."""
    await world.start()
    await world.tenant()
    address = "192.0.2.2"
    for name, port in (("a", 80), ("b", 443)):
        assert await served(world, name, ports=[{"port": port}], spec={"address": address}) == address
    for name, port in (("a", 443), ("b", 80)):
        await world.lb(name, ports=[{"port": port}], spec={"address": address})
    for name, other, own in (("a", "b", "TCP/80"), ("b", "a", "TCP/443")):

        async def reported(name: str = name, other: str = other, own: str = own) -> bool:
            problem = await world.condition("Accepted", name)
            return problem.reason == "PortConflict" and all(text in problem.message for text in (f"/{other} with", own))

        await world.until(reported, what=f"the way out at {name}")
    await world.quiet(60)
    assert {name: listeners(world, name) for name in "ab"} == {"a": [80], "b": [443]}
    await world.lb("a", ports=[{"port": 8080}], spec={"address": address})
    await world.until(lambda: listeners(world, "b") == [80], what="the port of a at b")
    await world.lb("a", ports=[{"port": 443}], spec={"address": address})
    await world.until(lambda: listeners(world, "a") == [443], what="the port of b at a")


def listeners(world: HubWorld, name: str) -> list[int]:
    return [each.port for each in world.cloud.load_balancers[lb_key(name)].spec.listeners]
