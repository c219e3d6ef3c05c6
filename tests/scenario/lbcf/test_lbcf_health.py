"""A driver that says which backends are healthy: its load balancers are Serving, or not, as Envoy's are."""

from __future__ import annotations

import pytest


@pytest.fixture
async def checked(shop):
    await shop.lb_class(parameters={"backendHealth": "true"})
    await shop.group("web", static=["10.9.0.1:80", "10.9.0.2:80"])
    await shop.registered("10.9.0.1", "10.9.0.2")
    await shop.is_good("Serving")
    return shop


async def serving(shop, world, status, reason):
    last = ["", "", ""]

    async def check():
        last[:] = await shop.condition("Serving")
        return last[:2] == [status, reason]

    await world.until(check, what=f"Serving {status} {reason}")
    return last[2]


@pytest.mark.req("X-1")
async def test_backends_that_die_at_the_driver_stop_serving_and_stay_registered(checked, driver, world):
    async def column(expected):
        async def check():
            return (await checked.get()).status.backends == expected

        await world.until(check, what=f"TARGETS {expected}")

    await column("2/2, 2 healthy")
    driver.unhealthy = {"10.9.0.1:80"}
    await column("2/2, 1 healthy")
    assert (await checked.get()).status.unhealthy_targets == ["10.9.0.1:80 (TCP/80)"]
    driver.unhealthy = {"10.9.0.1:80", "10.9.0.2:80"}
    await serving(checked, world, "False", "NoHealthyTargets")
    await checked.reported("NoHealthyTargets", "none of 2 targets is healthy")
    assert driver.at() == {"10.9.0.1:80", "10.9.0.2:80"}
    assert not driver.asked("deregisterBackend")
    driver.unhealthy = set()
    await serving(checked, world, "True", "Serving")
    await column("2/2, 2 healthy")


@pytest.mark.req("X-1")
async def test_a_driver_that_cannot_be_asked_makes_it_unknown_after_a_while(checked, driver, world):
    driver.always("backendHealth", {"status": "Fail", "msg": "the cloud is away"})
    assert "the cloud is away" in await serving(checked, world, "Unknown", "ProviderFailed")
    await checked.is_good("Programmed")
    driver.mend("backendHealth")
    await serving(checked, world, "True", "Serving")


@pytest.mark.req("X-1")
async def test_the_next_hub_sees_the_health_of_what_this_one_registered(checked, driver, world, hub):
    await world.stop(hub)
    driver.unhealthy = {"10.9.0.1:80", "10.9.0.2:80"}
    await world.start(identity="hub-1")
    await serving(checked, world, "False", "NoHealthyTargets")
    driver.unhealthy = set()
    await serving(checked, world, "True", "Serving")
    assert not driver.asked("deregisterBackend")


async def test_without_the_capability_nothing_is_known(shop, driver, world):
    await shop.group("web", static=["10.9.0.1:80"])
    await shop.registered("10.9.0.1")
    await serving(shop, world, "Unknown", "NotChecked")
    assert not driver.asked("backendHealth")
