from __future__ import annotations

from typing import Any

import pytest

from fairlead.api.kubernetes import SERVICES, Service
from fairlead.errors import Conflict, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import hold, release

OURS, THEIRS = "fairlead.dev/ours", "example.com/theirs"


async def make(cluster: Cluster, *finalizers: str) -> Service:
    meta: dict[str, Any] = {"namespace": "a", "name": "web", "finalizers": list(finalizers)}
    return await cluster.create(SERVICES, {"metadata": meta, "spec": {"ports": [{"port": 80}]}})


async def test_hold_adds_a_finalizer_after_those_of_others(embedded: Cluster) -> None:
    before = await make(embedded, THEIRS)
    held = await hold(embedded, SERVICES, before, OURS, manager="m")
    assert held.metadata.finalizers == [THEIRS, OURS]
    assert held == await embedded.get(SERVICES, "a", "web")


async def test_release_removes_only_that_finalizer(embedded: Cluster) -> None:
    before = await make(embedded, OURS, THEIRS)
    released = await release(embedded, SERVICES, before, OURS, manager="m")
    assert released.metadata.finalizers == [THEIRS]


async def test_an_object_that_is_as_it_should_be_is_not_written(embedded: Cluster) -> None:
    held = await make(embedded, OURS)
    writes = embedded.writes
    assert await hold(embedded, SERVICES, held, OURS, manager="m") is held
    assert await release(embedded, SERVICES, held, THEIRS, manager="m") is held
    assert embedded.writes == writes


@pytest.mark.parametrize("change", [hold, release])
async def test_a_finalizer_that_was_added_meanwhile_is_kept(embedded: Cluster, change: Any) -> None:
    before = await make(embedded, *([OURS] if change is release else []))
    await hold(embedded, SERVICES, before, THEIRS, manager="other")
    with pytest.raises(Conflict):
        await change(embedded, SERVICES, before, OURS, manager="m")
    assert (await embedded.get(SERVICES, "a", "web")).held_by(THEIRS)


async def test_an_object_that_is_gone_is_released_and_cannot_be_held(embedded: Cluster) -> None:
    free, held = await make(embedded), await make_and_read_held(embedded)
    await embedded.delete(SERVICES, "a", "web")
    await release(embedded, SERVICES, await embedded.get(SERVICES, "a", "web"), OURS, manager="m")
    assert await release(embedded, SERVICES, held, OURS, manager="m") is held
    with pytest.raises(NotFound):
        await hold(embedded, SERVICES, free, OURS, manager="m")


async def make_and_read_held(cluster: Cluster) -> Service:
    return await hold(cluster, SERVICES, await cluster.get(SERVICES, "a", "web"), OURS, manager="m")
