"""The reason for which a backend was removed is known after a restart too, at the price of few writes."""

from __future__ import annotations

import msgspec
import pytest
from hub_world import HubWorld, RunningHub

from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import ANNOTATION_PAUSED, LABEL_HISTORY, SYSTEM_NAMESPACE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.ledger.history import FLUSH_S, HISTORY_MAPS, KEEP_DAYS, MAX_BYTES, map_name
from fairlead.model.change import HistoryEntry, HistoryKind
from fairlead.testing.builders import NAMESPACE, lb_key

KEY = lb_key()


async def serve(world: HubWorld, *addresses: str) -> None:
    """Have one load balancer whose provider keeps its state elsewhere."""
    body = {"metadata": {"name": "edge"}, "spec": {"provider": "memory", "targets": "Pod", "drain": "0s"}}
    await world.user.apply(LOAD_BALANCER_CLASSES, body, manager="kubectl")
    await world.slice("web", *addresses)
    await world.lb(spec={"className": "edge"})
    await has(world, *addresses)


async def has(world: HubWorld, *addresses: str) -> None:
    def same() -> bool:
        return {key.address for _, key in world.outside.members(KEY)} == set(addresses)

    await world.until(same, what=f"its backends are {addresses}")


async def stored(world: HubWorld) -> list[HistoryEntry]:
    stored_map = await world.find(HISTORY_MAPS, SYSTEM_NAMESPACE, map_name(KEY))
    return msgspec.json.decode(stored_map.data["history"], type=list[HistoryEntry]) if stored_map is not None else []


def removals(hub: RunningHub) -> list[tuple[str, tuple[str, ...]]]:
    rows = [row for entry in hub.hub.history.of(KEY) for row in entry.rows]
    return [(row.reason, row.targets) for row in rows if row.action == "Deregister"]


def writes_of_history(hub: RunningHub) -> list[str]:
    return [write for write in hub.cluster.written if " ConfigMap " in write]


WENT = [("Absent", ("TCP/80 10.1.0.2:8080",))]


async def test_the_next_leader_knows_why_a_backend_was_removed(world, hub):
    await serve(world, "10.1.0.1", "10.1.0.2")
    await world.slice("web", "10.1.0.1")
    await has(world, "10.1.0.1")
    assert removals(hub) == WENT
    await world.clock.advance_until(lambda: writes_of_history(hub) != [], limit_s=2 * FLUSH_S)
    again = await world.start(identity="second", lead=False)
    await world.stop(hub)
    await world.until(lambda: removals(again) == WENT, what="the other leads")


async def test_pending_history_is_stored_when_the_hub_stops(world, hub):
    await serve(world, "10.1.0.1", "10.1.0.2")
    await world.slice("web", "10.1.0.1")
    await has(world, "10.1.0.1")
    await world.stop(hub)
    assert writes_of_history(hub) == [f"create ConfigMap {map_name(KEY)}"]
    assert [entry.provider for entry in await stored(world)].count("memory") >= 1
    again = await world.start()
    await world.until(lambda: removals(again) == WENT, what="it is read back")
    await world.quiet(2 * FLUSH_S)
    assert writes_of_history(again) == []


async def test_held_and_foreign_changes_survive_a_restart(world, hub):
    await serve(world, "10.1.0.1", "10.1.0.2")
    (listener, gone), *_ = world.outside.members(KEY)
    world.outside.drift(KEY, listener, gone, None)
    drifted = "1 backend removed outside Fairlead"
    await world.until(lambda: any(drifted in entry.text for entry in hub.hub.history.of(KEY)), limit_s=300)
    await world.user.merge_patch(
        TCP_LOAD_BALANCERS, NAMESPACE, "web", {"metadata": {"annotations": {ANNOTATION_PAUSED: "true"}}}
    )
    await world.slice("web", "10.1.0.2")
    await world.until(lambda: any(entry.kind is HistoryKind.HELD for entry in hub.hub.history.of(KEY)))
    await world.stop(hub)
    entries = await stored(world)
    assert any(drifted in entry.text for entry in entries)
    assert any(entry.kind is HistoryKind.HELD for entry in entries)


async def test_many_removals_are_few_writes_of_bounded_size(world, hub):
    await serve(world, "10.1.0.1")
    started_s = world.clock.monotonic()
    for number in range(2, 40):
        await world.slice("web", "10.1.0.1", f"10.1.0.{number}")
        await has(world, "10.1.0.1", f"10.1.0.{number}")
    await world.quiet(FLUSH_S + 1)
    flushes = (world.clock.monotonic() - started_s) / FLUSH_S + 1
    assert 1 <= len(writes_of_history(hub)) <= flushes
    stored_map = await world.find(HISTORY_MAPS, SYSTEM_NAMESPACE, map_name(KEY))
    assert len(stored_map.data["history"]) <= MAX_BYTES
    assert "10.1.0.38:8080" in stored_map.data["history"]


async def test_registrations_alone_are_not_stored(world, hub):
    await serve(world, "10.1.0.1")
    await world.slice("own", "10.1.0.1", "10.1.0.2")
    await world.lb("own")
    await world.programmed("own")
    await world.quiet(2 * FLUSH_S)
    assert writes_of_history(hub) == []


async def test_a_history_that_is_old_or_unreadable_hurts_nothing(world, hub):
    await serve(world, "10.1.0.1")
    old = [HistoryEntry(1, world.clock.now(), HistoryKind.FAILED, "long ago", "memory")]
    for name, text in (("old", msgspec.json.encode(old).decode()), ("new", "[{]")):
        meta = {"namespace": SYSTEM_NAMESPACE, "name": name, "labels": {LABEL_HISTORY: ""}}
        await world.user.create(HISTORY_MAPS, {"metadata": meta, "data": {"loadBalancer": "a/b/c", "history": text}})
    await world.stop(hub)
    world.clock.jump(KEEP_DAYS * 86_400 + 1)
    again = await world.start()
    await world.until(lambda: again.hub.leading, what="it leads")

    async def old_is_gone() -> bool:
        return await world.find(HISTORY_MAPS, SYSTEM_NAMESPACE, "old") is None

    await world.until(old_is_gone, what="what is old is deleted")
    assert await world.find(HISTORY_MAPS, SYSTEM_NAMESPACE, "new") is not None


@pytest.mark.parametrize("failing", ["refused", "slow"])
async def test_a_history_that_cannot_be_stored_holds_up_nothing(world, hub, failing):
    await serve(world, "10.1.0.1", "10.1.0.2")
    hub.cluster.refuse_name = map_name(KEY) if failing == "refused" else ""
    hub.cluster.slow_kind = "ConfigMap" if failing == "slow" else ""
    await world.slice("web", "10.1.0.1")
    await has(world, "10.1.0.1")
    await world.quiet(FLUSH_S + 1)
    await world.slice("web", "10.1.0.1", "10.1.0.3")
    await has(world, "10.1.0.1", "10.1.0.3")
    hub.cluster.refuse_name = ""
    hub.cluster.answers.set()
    await world.until(lambda: stored(world), what="it is stored in the end")


@pytest.mark.req("X-9")
async def test_a_removal_at_the_hubs_proxies_is_known_after_a_restart(world, hub):
    await world.slice("web", "10.1.0.1", "10.1.0.2")
    await world.lb()
    await world.until(lambda: len(world.cloud.members(KEY)) == 2, what="both backends are served")
    await world.slice("web", "10.1.0.1")
    await world.until(lambda: removals(hub) != [], what="one is removed")
    await world.stop(hub)
    assert f"create ConfigMap {map_name(KEY)}" in writes_of_history(hub)
    again = await world.start()
    await world.until(lambda: set(removals(hub)) <= set(removals(again)), what="it is read back")
