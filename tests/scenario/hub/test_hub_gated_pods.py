"""The hub's answer for pods that wait for their readiness gate: which targets every proxy has healthy."""

from __future__ import annotations

from typing import Any

import pytest
from hub_world import HubWorld

from fairlead.api.intent import GatedPods
from fairlead.api.kubernetes import READINESS_GATES_FIELD
from fairlead.hub.intents.status import GATES_RENEWED_S
from fairlead.model.keys import TargetKey


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


async def is_absent(world: HubWorld) -> bool:
    return await answer(world) is None
