"""The hub's answer for pods that wait for their readiness gate: which targets every proxy has healthy."""

from __future__ import annotations

from typing import Any

import pytest
from hub_world import HubWorld

from fairlead.api.intent import GatedPods
from fairlead.api.kubernetes import ENDPOINT_SLICES, READINESS_GATES_FIELD
from fairlead.hub.intents.status import GATES_RENEWED_S
from fairlead.model.keys import TargetKey
from fairlead.testing.builders import slice_body


def waiting_pod(address: str, uid: str) -> dict[str, Any]:
    ref = {"kind": "Pod", "uid": uid, "fieldPath": READINESS_GATES_FIELD}
    return {"addresses": [address], "conditions": {"ready": True}, "targetRef": ref}


async def answer(world: HubWorld) -> GatedPods | None:
    load_balancer = await world.get()
    return load_balancer.status.gated_pods if load_balancer is not None else None


async def answered(world: HubWorld, *, serving: tuple[str, ...] = (), waiting: tuple[str, ...] = ()) -> GatedPods:
    async def check() -> GatedPods | None:
        gated = await answer(world)
        return gated if gated is not None and (gated.serving, gated.waiting) == (serving, waiting) else None

    return await world.until(check, what=f"serving {serving}, waiting {waiting}")


@pytest.mark.req("F-1")
async def test_the_status_answers_for_pods_that_wait_and_for_no_others(world: HubWorld) -> None:
    hub = await world.start()
    await world.tenant()
    await world.lb()
    await world.slice("web", "10.1.0.1")
    await world.programmed()
    await world.quiet()
    assert await answer(world) is None
    world.cloud.unhealthy.add(TargetKey("10.1.0.2", 8080))
    await world.slice("web", "10.1.0.1", waiting_pod("10.1.0.2", "two"), waiting_pod("10.1.0.3", "three"))
    before = await answered(world, serving=("three",), waiting=("two",))
    # An agent notices by the time that the hub has stopped.
    await world.quiet(GATES_RENEWED_S + 5)
    assert (await answered(world, serving=("three",), waiting=("two",))).time > before.time
    world.cloud.unhealthy.clear()
    await answered(world, serving=("three", "two"))
    await world.quiet()
    written = len(hub.written)
    await world.quiet(GATES_RENEWED_S + 5)
    assert len(hub.written) == written
    await world.slice("web", "10.1.0.1", "10.1.0.2", "10.1.0.3")
    await world.until(lambda: is_absent(world), what="no answer is left")


@pytest.mark.req("F-1")
async def test_pods_on_the_network_of_one_node_differ_by_port(world: HubWorld) -> None:
    await world.start()
    await world.tenant()
    for name, port in (("web", 8080), ("api", 9090)):
        await world.lb(name)
        body = slice_body(f"{name}-1", [waiting_pod("10.1.0.1", name)], load_balancer=name)
        body["ports"][0]["port"] = port
        await world.user.apply(ENDPOINT_SLICES, body, manager="kubectl")

    async def both() -> bool:
        objects = [await world.get(name) for name in ("web", "api")]
        gated = [obj.status.gated_pods for obj in objects if obj is not None]
        return [answer.serving for answer in gated if answer is not None] == [("web",), ("api",)]

    await world.until(both, what="each answers for its own pod")


async def is_absent(world: HubWorld) -> bool:
    return await answer(world) is None
