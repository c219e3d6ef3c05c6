"""What Prometheus reads from a hub: scraped over HTTP from its real page while providers and drivers misbehave."""

from __future__ import annotations

import contextlib

import aiohttp
import pytest
from group_shop import KEY, Shop
from hub_world import RunningHub
from prometheus_client.parser import text_string_to_metric_families
from shop_world import DrivenShop, Driver

from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.providers.webhook.provider import WebhookProvider
from fairlead.runtime.telemetry import StatusServer
from fairlead.testing.builders import HTTP, target

UNGUARDED = {"maxRemovalPercent": 100, "minBackends": 0}


class Scrape:
    """The page of one hub."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def value(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of ``name`` that carry ``labels``; there must be one."""
        async with aiohttp.ClientSession() as session, session.get(f"{self._url}/metrics") as answer:
            text = await answer.text()
        result = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert result, f"there is no {name} {labels}"
        return sum(result)


@contextlib.asynccontextmanager
async def scraped(hub: RunningHub):
    async with StatusServer("127.0.0.1", 0, hub.hub._telemetry.registry, hub.hub.not_ready) as page:
        yield Scrape(page.url)


@pytest.fixture
async def shop(world, hub):
    shop = Shop(world)
    await shop.open(guard=UNGUARDED)
    return shop


async def becomes(world, page, wanted, name, **labels):
    async def check():
        return await page.value(name, **labels) == wanted

    await world.until(check, what=f"{name} {labels} is {wanted}")


@pytest.mark.req("X-1", "A-51", "E-34")
async def test_targets_are_counted_by_what_is_seen_of_them(shop, world, hub):
    """Those of a provider that does not say are unknown; what is gone counts no more."""
    async with scraped(hub) as page:
        await shop.group("fixed", static=["10.9.0.1:8080", "10.9.0.2:8080"])
        await shop.until("10.9.0.1", "10.9.0.2")
        of_class = {"provider": "memory", "class": "edge"}
        await becomes(world, page, 2, "fairlead_hub_targets", **of_class, state="unknown")
        assert await page.value("fairlead_hub_targets", **of_class, state="unhealthy") == 0
        await shop.group("fixed", static=["10.9.0.1:8080"])
        await becomes(world, page, 1, "fairlead_hub_targets", **of_class)


@pytest.mark.req("A-51")
async def test_pending_work_its_age_and_its_retries_are_counted(shop, world, hub):
    async with scraped(hub) as page:
        await shop.group("fixed", static=["10.9.0.1:8080"])
        await shop.until("10.9.0.1")
        await shop.registered(1)
        await becomes(world, page, 0, "fairlead_sync_pending", provider="memory")
        assert await page.value("fairlead_sync_oldest_pending_seconds", provider="memory") == 0
        assert await page.value("fairlead_sync_changes_total", provider="memory", action="register", result="done") == 1
        assert await page.value("fairlead_provider_calls_total", method="apply", result="success") >= 1
        hub.durable.faults.down = "no answer"
        await shop.group("fixed", static=["10.9.0.1:8080", "10.9.0.2:8080"])
        await becomes(world, page, 1, "fairlead_sync_pending", provider="memory")
        before_s = world.clock.monotonic()
        await world.quiet(30)
        age_s = await page.value("fairlead_sync_oldest_pending_seconds", provider="memory")
        passed_s = world.clock.monotonic() - before_s
        assert passed_s <= age_s <= passed_s + 5
        assert await page.value("fairlead_sync_retrying", provider="memory") == 1
        retries = await page.value("fairlead_sync_retries_total", provider="memory")
        assert retries >= 3
        assert await page.value("fairlead_provider_calls_total", provider="memory", result="error") >= retries
        took = {"provider": "memory", "method": "apply", "result": "error"}
        assert await page.value("fairlead_provider_call_seconds_count", **took) == await page.value(
            "fairlead_provider_calls_total", **took
        )
        hub.durable.faults.down = ""
        await shop.until("10.9.0.1", "10.9.0.2")
        await becomes(world, page, 0, "fairlead_sync_pending", provider="memory")
        assert await page.value("fairlead_sync_oldest_pending_seconds", provider="memory") == 0
        assert await page.value("fairlead_sync_retrying", provider="memory") == 0


@pytest.mark.req("A-51")
async def test_permanent_rejections_are_counted_apart(shop, world, hub):
    hub.durable.faults.rejected = frozenset({target("10.9.0.66").key})
    async with scraped(hub) as page:
        await shop.group("fixed", static=["10.9.0.1:8080", "10.9.0.66:8080"])
        await shop.until("10.9.0.1")
        await becomes(world, page, 1, "fairlead_sync_quarantined", provider="memory")
        assert await page.value("fairlead_sync_parked", provider="memory") == 1
        assert await page.value("fairlead_sync_changes_total", action="register", result="rejected") == 1
        await becomes(world, page, 0, "fairlead_sync_pending", provider="memory")
        hub.durable.faults.refuse_new = "the quota is used up"
        await shop.lb("second")
        await becomes(world, page, 2, "fairlead_sync_parked", provider="memory")
        assert await page.value("fairlead_sync_quarantined", provider="memory") == 1
        assert await page.value("fairlead_provider_calls_total", method="ensure", result="refused") >= 1
        await becomes(world, page, 1, "fairlead_hub_load_balancers", programmed="False")
        await becomes(world, page, 1, "fairlead_hub_load_balancers", programmed="True")


@pytest.mark.req("A-51")
async def test_what_waits_for_a_drain_is_counted_and_is_not_pending(shop, world, hub):
    await world.user.merge_patch(LOAD_BALANCER_CLASSES, "", "edge", {"spec": {"drain": "60s"}})
    async with scraped(hub) as page:
        await shop.group("fixed", static=["10.9.0.1:8080", "10.9.0.2:8080"])
        await shop.until("10.9.0.1", "10.9.0.2")
        await shop.registered(2)
        assert await page.value("fairlead_sync_draining", provider="memory") == 0
        await shop.group("fixed", static=["10.9.0.1:8080"])
        await becomes(world, page, 1, "fairlead_sync_draining", provider="memory")
        assert await page.value("fairlead_sync_pending", provider="memory") == 0
        assert await page.value("fairlead_sync_records", state="Draining") == 1
        await shop.until("10.9.0.1")
        await becomes(world, page, 0, "fairlead_sync_draining", provider="memory")


@pytest.mark.req("A-51")
async def test_drift_orphans_and_what_is_held_are_counted(shop, world, hub):
    async with scraped(hub) as page:
        await shop.group("fixed", static=["10.9.0.1:8080", "10.9.0.2:8080"])
        await shop.until("10.9.0.1", "10.9.0.2")
        await shop.registered(2)
        assert await page.value("fairlead_sync_orphans", provider="memory") == 0
        world.outside.drift(KEY, HTTP, target("10.9.0.2").key, None)
        world.outside.drift(KEY, HTTP, target("10.9.0.7").key, target("10.9.0.7"))
        world.outside.add_foreign(KEY, "by-hand", target("200"))
        await becomes(world, page, 1, "fairlead_sync_drift", provider="memory")
        await becomes(world, page, 1, "fairlead_sync_orphans", provider="memory", kind="entry")
        assert await page.value("fairlead_sync_foreign", provider="memory") == 1
        await becomes(world, page, 1, "fairlead_hub_conditions", condition="Drifted")
        await world.user.merge_patch(LOAD_BALANCER_CLASSES, "", "edge", {"spec": {"guard": {"minBackends": 2}}})
        await shop.group("fixed", static=["10.9.0.1:8080"])
        await becomes(world, page, 1, "fairlead_hub_conditions", condition="Guarded")
        patch = {"metadata": {"annotations": {"fairlead.dev/paused": "true"}}}
        await world.user.merge_patch(LOAD_BALANCERS, "shop", "shared", patch)
        await becomes(world, page, 1, "fairlead_hub_conditions", condition="Paused")
        hub.durable.faults.down = "no answer"
        await world.user.merge_patch(LOAD_BALANCERS, "shop", "shared", {"metadata": {"finalizers": None}})
        await world.user.delete(LOAD_BALANCERS, "shop", "shared")
        await becomes(world, page, 2, "fairlead_sync_orphans", provider="memory", kind="record")
        hub.durable.faults.down = ""
        await becomes(world, page, 0, "fairlead_sync_orphans", provider="memory")


@pytest.mark.req("L-45")
async def test_the_depth_of_a_queue_is_how_many_keys_wait_for_a_worker(shop, world, hub):
    async with scraped(hub) as page:
        await becomes(world, page, 0, "fairlead_queue_depth", controller="loadbalancer")
        hub.cluster.slow_kind = LOAD_BALANCERS.kind
        for number in range(6):
            await shop.lb(f"lb-{number}")

        async def waiting():
            return await page.value("fairlead_queue_depth", controller="loadbalancer") >= 3

        await world.until(waiting, what="two workers are busy, and the others wait", limit_s=30)
        hub.cluster.answers.set()
        await becomes(world, page, 0, "fairlead_queue_depth", controller="loadbalancer")


@pytest.mark.req("I-7")
async def test_a_provider_that_does_not_answer_keeps_no_other_from_being_reconciled(shop, world, hub):
    await shop.group("fixed", static=["10.9.0.1:8080"])
    await shop.until("10.9.0.1")
    await shop.registered(1)
    async with scraped(hub) as page:
        hub.durable.faults.latency_s = (10**6, 10**6)
        for number in range(6):
            await shop.lb(f"lb-{number}")
        for name in ("lb-0", "shared"):
            await world.user.merge_patch(LOAD_BALANCERS, "shop", name, {"spec": {"attributes": {"a": "1"}}})
        await becomes(world, page, 0, "fairlead_queue_depth", controller="loadbalancer")
        await world.quiet(10)

        async def reported():
            load_balancers = await world.user.list(LOAD_BALANCERS, "shop")
            return len(load_balancers) == 7 and all(
                load_balancer.status.observed_generation == load_balancer.metadata.generation
                and load_balancer.status.conditions
                for load_balancer in load_balancers
            )

        assert await reported(), "every status says what its object asks for, though nobody has answered"


@pytest.mark.req("L-45")
async def test_calls_of_drivers_their_failures_and_their_time_are_counted(world):
    driver = Driver()
    await driver.start()
    world.factories["webhook"] = lambda: WebhookProvider(
        clock=world.clock, registry=world.hubs[-1].hub._telemetry.registry
    )
    try:
        hub = await world.start()
        shop = DrivenShop(world, driver)
        await shop.open()
        await shop.class_("driven")
        await shop.lb("driven", className="driven")
        async with scraped(hub) as page:
            await shop.group("fixed", lbs=("driven",), static=["10.9.0.1:8080"])
            await shop.driver_has("10.9.0.1")
            labels = {"driver": driver.url, "hook": "ensureBackend"}
            assert await page.value("fairlead_webhook_calls_total", **labels) == len(driver.asked("ensureBackend"))
            assert await page.value("fairlead_webhook_seconds_count", **labels) == len(driver.asked("ensureBackend"))
            driver.on("ensureBackend", {"status": "Fail", "msg": "not today"})
            await shop.group("fixed", lbs=("driven",), static=["10.9.0.1:8080", "10.9.0.2:8080"])

            async def failed():
                return driver.asked("ensureBackend")[1:] and await page.value("fairlead_webhook_fails_total", **labels)

            await world.until(failed, what="a Fail is counted")
            await driver.stop()

            async def lost():
                return await page.value("fairlead_webhook_errors_total", **labels)

            await world.until(lost, what="a call that nobody answers is counted")
    finally:
        await driver.stop()
