"""A member that asks for more health checks than its Tenant allows: all its targets are checked less often."""

from __future__ import annotations

import pytest
from hub_world import HubWorld

PODS = [f"10.1.0.{number}" for number in range(1, 6)]


@pytest.mark.req("F-11")
async def test_checks_above_the_limit_are_slowed_and_said(world: HubWorld) -> None:
    await world.start()
    await world.tenant(maxChecksPerSecond=16)
    # Five pods, checked each second to balance and to report: ten checks a second.
    often = {"targets": "Pod", "healthCheck": {"interval": "1s"}}
    await world.lb("web", spec=often)
    await world.slice("web", *PODS)
    await world.programmed("web")
    assert await world.condition("ChecksSlowed", "web") is None
    await world.lb("api", spec=often)
    await world.slice("api", *PODS)
    for name in ("web", "api"):
        condition = await world.said("ChecksSlowed", "True", name=name)
        assert condition.reason == "QuotaExceeded"
        assert all(part in condition.message for part in ("2 times", "20", "16", "spec.maxChecksPerSecond"))
    await world.delete_lb("api")

    async def as_asked() -> bool:
        return await world.condition("ChecksSlowed", "web") is None

    await world.until(as_asked, what="checks as often as asked for")
