"""What a driver says of its backends becomes the health of ours; what it does not say is unknown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.errors import Retry
from fairlead.model.change import DONE, Action, BackendFacts
from fairlead.model.condition import ConditionReason as R
from fairlead.model.contract import RestoredBackend
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.keys import TargetKey
from fairlead.model.observed import Health
from fairlead.providers.webhook.provider import HEALTH_EVERY_S, WebhookProvider
from fairlead.runtime.clock import VirtualClock
from tests.unit.providers.webhook.scripted_driver import KEY, SUCC, ScriptedDriver, http_status, row, spec


def backend(number: int, healthy: object) -> dict[str, Any]:
    return {"backendAddr": f"10.0.0.{number}:8080", "healthy": healthy}


def asked(url: str, **parameters: str) -> FrontendSpec:
    return spec(url, backendHealth="true", **parameters)


async def health(webhook: WebhookProvider) -> Health:
    observed = await webhook.observe(KEY)
    assert observed is not None
    assert observed.health is not None
    return observed.health


@pytest.mark.req("X-1")
@pytest.mark.parametrize(
    ("answer", "serving", "reason", "healthy", "unhealthy"),
    [
        ([backend(1, True), backend(2, True)], True, R.SERVING, 2, ()),
        ([backend(1, True), backend(2, False)], True, R.SERVING, 1, ("10.0.0.2:8080 (TCP/80)",)),
        (
            [backend(1, False), backend(2, False)],
            False,
            R.NO_HEALTHY_TARGETS,
            0,
            ("10.0.0.1:8080 (TCP/80)", "10.0.0.2:8080 (TCP/80)"),
        ),
        ([backend(1, None), backend(2, None)], None, R.NOT_CHECKED, 0, ()),
        ([backend(1, True)], True, R.SERVING, 1, ()),
        ([backend(9, True)], None, R.NOT_CHECKED, 0, ()),
        ([{"BACKENDADDR": "10.0.0.1:8080", "Healthy": False}, backend(2, False)], False, R.NO_HEALTHY_TARGETS, 0, None),
        (None, None, R.NOT_CHECKED, 0, ()),
    ],
)
async def test_what_the_driver_says_is_the_health_of_our_targets(
    webhook: WebhookProvider,
    scripted: ScriptedDriver,
    answer: object,
    serving: bool | None,
    reason: R,
    healthy: int,
    unhealthy: tuple[str, ...] | None,
) -> None:
    await webhook.ensure(asked(scripted.url))
    assert await webhook.apply([row(number=1), row(number=2)]) == [DONE, DONE]
    scripted.on("backendHealth", SUCC | {"backends": answer})
    seen = await health(webhook)
    assert (seen.serving, seen.reason, seen.healthy) == (serving, reason, healthy)
    assert unhealthy is None or seen.unhealthy == unhealthy
    assert not any("10.0.0" in str(body) for hook, body in scripted.calls if hook == "backendHealth")


@pytest.mark.req("X-1")
@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (SUCC | {"backends": "all"}, "backends is not a list"),
        (SUCC | {"backends": ["10.0.0.1:8080"]}, "backends is not a list of objects"),
        (SUCC | {"backends": [{"healthy": True}]}, "backendAddr"),
        (SUCC | {"backends": [{"backendAddr": "10.0.0.1:8080", "healthy": "yes"}]}, "healthy"),
        ({"status": "Fail", "msg": "the cloud is away"}, "the cloud is away"),
        ({"status": "Running"}, "still working on backendHealth"),
        (http_status(404), "no such hook"),
    ],
)
async def test_a_driver_that_cannot_be_asked_makes_health_unknown_and_nothing_else(
    webhook: WebhookProvider, scripted: ScriptedDriver, reply: Any, why: str
) -> None:
    await webhook.ensure(asked(scripted.url))
    await webhook.apply([row()])
    scripted.on("backendHealth", reply)
    observed = await webhook.observe(KEY)
    assert observed is not None
    assert observed.programmed
    assert observed.health is not None
    assert (observed.health.serving, observed.health.reason) == (None, R.PROVIDER_FAILED)
    assert why in observed.health.message
    assert scripted.url in observed.health.message


async def test_a_driver_without_the_capability_is_not_asked(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    await webhook.ensure(spec(scripted.url))
    observed = await webhook.observe(KEY)
    assert observed is not None
    assert observed.health is None
    assert not scripted.asked("backendHealth")


@pytest.mark.req("X-1")
async def test_what_drains_counts_no_more_and_a_listener_without_a_target_stops_it(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    scripted.on("backendHealth", SUCC | {"backends": [backend(1, True), backend(2, False)]})
    await webhook.ensure(asked(scripted.url))
    await webhook.apply([row(number=1), row(number=2)])
    await webhook.apply([row(Action.UPDATE, number=2, draining=True)])
    seen = await health(webhook)
    assert (seen.serving, seen.total, seen.unhealthy) == (True, 1, ())
    await webhook.apply([row(Action.DEREGISTER, number=1)])
    assert (await health(webhook)).reason is R.NO_TARGETS


@pytest.mark.req("X-1")
async def test_one_backend_behind_two_listeners_serves_both(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    """To a driver one address is one backend; to us it is a target of each listener."""
    https = Listener(443)
    both = FrontendSpec(KEY, "group", (Listener(80), https), parameters=asked(scripted.url, verify="true").parameters)
    scripted.on("backendHealth", SUCC | {"backends": [backend(1, True)]})
    scripted.on("listBackends", SUCC | {"backends": ["10.0.0.1:8080"]})
    await webhook.ensure(both)
    await webhook.apply([row(), msgspec.structs.replace(row(), listener=https.key)])
    observed = await webhook.observe(KEY)
    assert observed is not None
    assert observed.health is not None
    assert (observed.health.serving, observed.health.total) == (True, 1)
    assert [(at.listener.port, at.healthy) for at in observed.targets or ()] == [(80, True), (443, True)]


@pytest.mark.req("X-1")
async def test_after_a_restart_ours_are_known_from_the_record(
    webhook: WebhookProvider, scripted: ScriptedDriver
) -> None:
    """By the names that the driver gave them; before that nothing is claimed."""
    scripted.on("backendHealth", SUCC | {"backends": [{"backendAddr": "web-1", "healthy": False}, backend(2, True)]})
    webhook.restore(asked(scripted.url), {"lbID": "lb-1"})
    seen = await health(webhook)
    assert (seen.serving, seen.reason) == (None, R.PENDING)
    web = Target(TargetKey("10.0.0.1", 8080))
    facts = BackendFacts(generated_address="web-1", origin={"podBackend": {}})
    webhook.restore_backends(KEY, [RestoredBackend(Listener(80).key, web, facts)])
    assert (await health(webhook)).unhealthy == ("10.0.0.1:8080 (TCP/80)",)
    second = Target(TargetKey("10.0.0.2", 8080))
    webhook.restore_backends(KEY, [RestoredBackend(Listener(80).key, second, BackendFacts())])
    assert ((await health(webhook)).healthy, (await health(webhook)).total) == (1, 2)


@pytest.mark.req("X-1")
async def test_only_a_change_of_health_is_notified(
    webhook: WebhookProvider, scripted: ScriptedDriver, clock: VirtualClock
) -> None:
    notified: list[object] = []
    scripted.on("backendHealth", SUCC | {"backends": [backend(1, True)]})
    await webhook.ensure(asked(scripted.url))
    await webhook.apply([row()])
    webhook.on_change(notified.append)
    await webhook.start()

    async def looked(times: int) -> None:
        before = len(scripted.asked("backendHealth"))
        while len(scripted.asked("backendHealth")) < before + times:
            await clock.advance(HEALTH_EVERY_S)

    await looked(3)
    assert notified == [KEY], "the first look is news"
    scripted.on("backendHealth", SUCC | {"backends": [backend(1, False)]})
    await looked(3)
    assert notified == [KEY, KEY]


async def test_a_bad_flag_names_the_parameter(webhook: WebhookProvider, scripted: ScriptedDriver) -> None:
    with pytest.raises(Exception, match=r"parameters\.backendHealth must be"):
        await webhook.ensure(spec(scripted.url, backendHealth="yes"))
    with pytest.raises(Retry):
        await webhook.ensure(asked("http://127.0.0.1:1"))
