"""Which pods that are no longer ready keep their place: by the group's policy, or by what a driver over HTTP says."""

from __future__ import annotations

import pytest
from aiohttp import web
from group_shop import KEY, PODS_OF_WEB
from shop_world import open_shop

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.kubernetes import PODS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.testing.builders import HTTP, target
from tests.unit.providers.webhook.scripted_driver import Reply


@pytest.fixture
async def shop(world):
    async with open_shop(world) as opened:
        await opened.class_("judge")
        yield opened


PODS_THERE = {"web-0": "10.1.0.1", "web-1": "10.1.0.9", "web-3": "10.1.0.3"}


async def registered(shop, *, policy, **webhook):
    """Two pods that will be in doubt, and one that stays ready."""
    for name, address in PODS_THERE.items():
        await shop.pod(name, address)
    spec = {"deregisterWebhook": {"className": "judge", **webhook}} if policy == "Webhook" else {}
    await shop.group("web", pods=PODS_OF_WEB, deregisterPolicy=policy, **spec)
    await shop.until(*PODS_THERE.values())
    await shop.registered(3)


async def lose(shop, name, phase="Running"):
    await shop.pod(name, PODS_THERE[name], ready=False, phase=phase)


async def stays(shop, *addresses):
    """Wait until it is so, and see that it stays so."""
    await shop.until(*addresses)
    await shop.world.quiet(30)
    await shop.until(*addresses)


@pytest.mark.req("L-20")
@pytest.mark.parametrize(
    ("policy", "phase", "kept"),
    [
        ("IfNotReady", "Running", False),
        ("IfNotReady", "Failed", False),
        ("IfNotRunning", "Running", True),
        ("IfNotRunning", "Failed", False),
        ("IfNotRunning", "Succeeded", False),
        ("IfNotRunning", "Unknown", False),
    ],
)
async def test_the_table_of_policies(shop, policy, phase, kept):
    """LT-25."""
    await registered(shop, policy=policy)
    await lose(shop, "web-0", phase)
    await stays(shop, *(["10.1.0.1"] if kept else []), "10.1.0.9", "10.1.0.3")


@pytest.mark.req("L-20")
@pytest.mark.parametrize("policy", ["IfNotReady", "IfNotRunning", "Webhook"])
async def test_a_pod_that_is_being_deleted_keeps_its_place_under_no_policy(shop, policy):
    """LT-25: a driver that would keep it is not even asked."""
    shop.driver.on("judgePodDeregister", lambda body: {"succ": True, "doNotDeregister": body["notReadyPods"]})
    await registered(shop, policy=policy)
    await shop.api.merge_patch(PODS, "shop", "web-0", {"metadata": {"finalizers": ["example.com/hold"]}})
    await shop.api.delete(PODS, "shop", "web-0")
    place = (HTTP, target("10.1.0.1").key)
    # No new connections while it shuts down, and then it is off.
    await shop.world.until(lambda: shop.world.outside.members(KEY)[place].draining)
    await shop.api.merge_patch(PODS, "shop", "web-0", {"metadata": {"finalizers": None}})
    await stays(shop, "10.1.0.9", "10.1.0.3")
    asked = [
        pod["metadata"]["name"] for body in shop.driver.asked("judgePodDeregister") for pod in body["notReadyPods"]
    ]
    assert asked == []


@pytest.mark.req("L-20")
@pytest.mark.parametrize("policy", ["IfNotRunning", "Webhook"])
async def test_a_policy_never_registers(shop, policy):
    shop.driver.on("judgePodDeregister", lambda body: {"succ": True, "doNotDeregister": body["notReadyPods"]})
    await registered(shop, policy=policy)
    await shop.pod("web-7", "10.1.0.7", ready=False)
    await stays(shop, *PODS_THERE.values())


@pytest.mark.req("L-20")
async def test_a_pod_that_fails_while_it_is_not_ready_already_is_noticed(shop):
    await registered(shop, policy="IfNotRunning")
    await lose(shop, "web-0")
    await stays(shop, *PODS_THERE.values())
    await lose(shop, "web-0", "Failed")
    await shop.until("10.1.0.9", "10.1.0.3")


@pytest.mark.req("L-20")
async def test_the_driver_says_which_of_the_pods_stay(shop):
    """LT-26."""
    shop.driver.on(
        "judgePodDeregister",
        lambda body: {
            "succ": True,
            "doNotDeregister": [each for each in body["notReadyPods"] if each["metadata"]["name"] == "web-1"],
        },
    )
    await registered(shop, policy="Webhook")
    await lose(shop, "web-0")
    await lose(shop, "web-1")
    await stays(shop, "10.1.0.9", "10.1.0.3")
    (last,) = shop.driver.asked("judgePodDeregister")[-1:]
    assert {each["metadata"]["name"] for each in last["notReadyPods"]} <= {"web-0", "web-1"}
    assert last["dryRun"] is False
    # It may change its mind, with nothing else changing.
    shop.driver.on("judgePodDeregister", {"succ": True, "doNotDeregister": []})
    await shop.until("10.1.0.3")


ANSWERS: dict[str, Reply] = {
    "an error": lambda _body: web.Response(status=500),
    "succ false": lambda _body: {"succ": False, "msg": "I cannot tell"},
    "no JSON": lambda _body: web.Response(text="?"),
}


@pytest.mark.req("L-21")
@pytest.mark.parametrize("answer", [*ANSWERS, "a timeout", "nobody"])
@pytest.mark.parametrize(
    ("failure_policy", "kept"),
    [
        (None, ["10.1.0.1", "10.1.0.9", "10.1.0.3"]),
        ("DoNothing", ["10.1.0.1", "10.1.0.9", "10.1.0.3"]),
        ("IfNotRunning", ["10.1.0.1", "10.1.0.3"]),
        ("IfNotReady", ["10.1.0.3"]),
    ],
)
async def test_what_holds_while_the_driver_gives_no_answer(shop, answer, failure_policy, kept):
    """LT-26: web-0 is running, web-1 has failed, web-3 is ready."""
    await registered(shop, policy="Webhook", **({"failurePolicy": failure_policy} if failure_policy else {}))
    if answer == "a timeout":
        await shop.class_("judge", parameters={"timeout": "300ms"})
        shop.driver.gate.clear()
    elif answer == "nobody":
        await shop.driver.stop()
    else:
        shop.driver.on("judgePodDeregister", ANSWERS[answer])
    await lose(shop, "web-0")
    await lose(shop, "web-1", "Failed")
    resolved = await shop.group_says("web", "ResolvedRefs", "False", "failurePolicy", failure_policy or "DoNothing")
    assert resolved.reason == "ProviderFailed"
    assert shop.driver.url in resolved.message
    await stays(shop, *kept)
    await shop.warned("web", "ProviderFailed")
    if answer in ANSWERS:
        shop.driver.on("judgePodDeregister", {"succ": True, "doNotDeregister": []})
        await shop.group_says("web", "ResolvedRefs", "True")  # it was asked again
        await shop.until("10.1.0.3")


@pytest.mark.req("L-21")
@pytest.mark.parametrize(
    ("name", "text"), [("nowhere", "there is no LoadBalancerClass"), ("edge", "does not decide which")]
)
async def test_a_class_that_cannot_be_asked_is_reported_and_no_pod_loses_its_place(shop, name, text):
    await registered(shop, policy="Webhook", className=name)
    await lose(shop, "web-0")
    await shop.group_says("web", "ResolvedRefs", "False", text, name)
    await stays(shop, *PODS_THERE.values())
    assert KEY in shop.world.outside.load_balancers


@pytest.mark.parametrize("how", ["group", "policy", "load balancer"])
async def test_a_driver_is_not_asked_about_what_is_gone(shop, how):
    shop.driver.on("judgePodDeregister", lambda body: {"succ": True, "doNotDeregister": body["notReadyPods"]})
    await registered(shop, policy="Webhook")
    await lose(shop, "web-0")
    await shop.world.until(lambda: shop.driver.asked("judgePodDeregister"))
    if how == "group":
        await shop.api.delete(BACKEND_GROUPS, "shop", "web")
        await shop.until()
    elif how == "policy":
        patch = {"spec": {"deregisterPolicy": "IfNotReady", "deregisterWebhook": None}}
        await shop.api.merge_patch(BACKEND_GROUPS, "shop", "web", patch)
        await shop.until("10.1.0.9", "10.1.0.3")
    else:
        await shop.api.delete(LOAD_BALANCERS, "shop", "shared")
        await shop.until()
    asked = len(shop.driver.calls)
    await shop.world.quiet(200)
    assert len(shop.driver.calls) == asked
