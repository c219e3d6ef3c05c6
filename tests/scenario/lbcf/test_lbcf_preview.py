"""LT-36: looking at what would be done does nothing, and asks no driver that has not agreed."""

from __future__ import annotations

import pytest
from lbcf_driver import Driver
from lbcf_world import WEB

from fairlead.hub.inspect import preview as preview_module
from fairlead.hub.inspect.preview import preview

AGREED = {
    "nothing": {},
    "dry runs": {"acceptDryRunCall": "true"},
    "being read": {"verify": "true"},
    "both": {"acceptDryRunCall": "true", "verify": "true"},
}


@pytest.mark.req("L-41")
async def test_a_plan_does_not_wait_for_a_driver_that_hangs(shop, world, hub, monkeypatch):
    """The preview gives up the driver once for all load balancers, and plans from the record."""
    monkeypatch.setattr(preview_module, "LOOK_LIMIT_S", 0.5)
    hangs = await Driver().start()
    try:
        await shop.lb_class("hangs", parameters={"url": hangs.url, "verify": "true", "timeout": "60s"})
        for name in ("a", "b"):
            await shop.lb(name, class_name="hangs")
            await shop.group(f"of-{name}", lbs=(name,), static=["10.9.0.1:80"])
        await shop.is_good(name="a")
        await shop.is_good(name="b")
        await world.stop(hub)
        await shop.group("of-a", lbs=("a",), static=["10.9.0.2:80"])
        hangs.calls.clear()
        hangs.gate.clear()
        cluster = world.connect("hub")
        try:
            previewed = {each.key.name: each for each in await preview(cluster)}
        finally:
            await cluster.aclose()
        assert "the provider has not answered for 0.5 s" in previewed["a"].unread
        assert previewed["b"].unread == previewed["a"].unread
        assert previewed["shared"].unread == ""
        assert {change.action.value for change in previewed["a"].plan.changes} >= {"Register"}
        assert len(hangs.asked("listBackends")) == 1
    finally:
        await hangs.stop()


@pytest.mark.req("L-41", "I-10")
@pytest.mark.parametrize("agreed", AGREED)
async def test_lt36_a_plan_calls_only_who_agreed_and_changes_nothing(shop, world, hub, agreed):
    """LT-36: with every kind of change waiting to be made."""
    other = await Driver().start()
    try:
        parameters = {"url": other.url, **AGREED[agreed]}
        await shop.lb_class("other", parameters=parameters)
        await shop.lb("planned", class_name="other", attributes={"bandwidth": "10"})
        judge = {"className": "other", "failurePolicy": "IfNotReady"}
        policy = {"deregisterPolicy": "Webhook", "deregisterWebhook": judge}
        await shop.pod("web-0", "10.1.0.1")
        await shop.pod("web-1", "10.1.0.2")
        await shop.group(lbs=("planned",), pods=WEB, **policy)
        await shop.group("fixed", lbs=("planned",), static=["10.9.0.1:80", "10.9.0.2:80"], parameters={"v": "1"})
        await shop.registered("10.1.0.1", "10.1.0.2", "10.9.0.1", "10.9.0.2")
        await world.quiet(10)
        await world.stop(hub)
        await shop.lb("planned", class_name="other", attributes={"bandwidth": "20"})
        await shop.lb("new", class_name="other")
        await shop.pod("web-0", "10.1.0.1", ready=False)
        await shop.pod("web-2", "10.1.0.3")
        await shop.group("fixed", lbs=("planned",), static=["10.9.0.2:80", "10.9.0.3:80"], parameters={"v": "2"})
        before = {name: dict(backends) for name, backends in other.lbs.items()}
        other.calls.clear()
        world.wire.writes.clear()
        cluster = world.connect("hub")
        try:
            previewed = {each.key.name: each for each in await preview(cluster)}
        finally:
            await cluster.aclose()
        plan = previewed["planned"].plan
        assert plan.frontend is not None
        assert plan.frontend.action == "Ensure"
        rows = {(change.action.value, str(change.key)) for change in plan.changes}
        assert {("Register", "10.1.0.3:80"), ("Register", "10.9.0.3:80")} < rows
        assert {("Update", "10.9.0.2:80"), ("Deregister", "10.9.0.1:80")} < rows
        assert previewed["new"].plan.frontend is not None
        assert set(other.hooks) <= ({"listBackends"} if "verify" in AGREED[agreed] else set())
        assert {body["dryRun"] for _, body in other.calls} <= {"acceptDryRunCall" in AGREED[agreed]}
        assert bool(other.calls) == ("verify" in AGREED[agreed])
        assert world.wire.writes == []
        assert other.lbs == before
        again = await world.start(identity="hub-1")
        await world.until(lambda: "10.9.0.3:80" in other.at("planned"))
        assert again.hub.leading
        for each in list(world.hubs):
            await world.stop(each)
    finally:
        await other.stop()
