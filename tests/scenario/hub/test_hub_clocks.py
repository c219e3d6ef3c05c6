"""Wrong clocks of an agent and of an operator's machine: they are reported, and decide nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import LEASES, NAMESPACES
from fairlead.api.meta import condition_of
from fairlead.api.names import AGENT_LEASE, HUB_LEASE, SYSTEM_NAMESPACE
from fairlead.api.tenant import STAMPED_LEASES, TENANTS, age_s
from fairlead.cli.hub_reader import gather_status
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.kube.discovery import install_crds
from fairlead.kube.lease import Heartbeat
from fairlead.runtime.clock import SystemClock
from tests.scenario.any_api import api, real

__all__ = ["api", "real"]


class WrongClock(SystemClock):
    """This machine's clock, were it set wrongly."""

    def __init__(self, ahead_s: float) -> None:
        self._ahead = timedelta(seconds=ahead_s)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead


async def at_hub(world, kind):
    return condition_of((await world.user.get(TENANTS, "", "east")).status.conditions, kind)


@pytest.mark.req("X-6")
@pytest.mark.parametrize("ahead_s", [3600, -3600])
async def test_an_agent_with_a_wrong_clock_is_judged_by_the_hubs(world, hub, ahead_s):
    async def ready(status):
        condition = await at_hub(world, "Ready")
        return condition is not None and condition.status == status

    await world.until(lambda: ready("False"))
    for _ in range(3):
        await world.heartbeat(ahead_s=ahead_s)
        await world.quiet(5)
    await world.until(lambda: ready("True"))
    skewed = await at_hub(world, "ClockSkewed")
    assert skewed.status == "True"
    assert ("60 minutes ahead of" if ahead_s > 0 else "60 minutes behind") in skewed.message
    await world.quiet(50)
    assert (await world.user.get(TENANTS, "", "east")).status.state == "Stale"
    assert (await at_hub(world, "Ready")).reason == "MemberLost"
    await world.heartbeat()
    await world.until(lambda: ready("True"))
    await world.quiet()
    assert await at_hub(world, "ClockSkewed") is None


@pytest.mark.req("X-6")
@pytest.mark.parametrize("operator_s", [0, 600, -600])
@pytest.mark.parametrize("agent_s", [3600, -3600])
async def test_status_computes_ages_by_the_servers_clock(api: ClusterConfig, operator_s: float, agent_s: float):
    async with (
        Cluster(api, name="admin") as admin,
        Cluster(api, name="agent", clock=WrongClock(agent_s)) as agent,
        Cluster(api, name="operator", clock=WrongClock(operator_s)) as operator,
    ):
        assert await install_crds(admin, all_crds(), "admin") == []
        for name in ("tenant-clocks", SYSTEM_NAMESPACE):
            await admin.apply(NAMESPACES, {"metadata": {"name": name}}, manager="admin")
        await admin.apply(TENANTS, {"metadata": {"name": "clocks"}, "spec": {}}, manager="admin")
        # A hub with the same wrong clock as the agent.
        await Heartbeat(agent, namespace=SYSTEM_NAMESPACE, name=HUB_LEASE, identity="hub-1").beat()
        await Heartbeat(agent, namespace="tenant-clocks", name=AGENT_LEASE, identity="agent").beat()
        status = await gather_status(operator)
        lease = await admin.get(STAMPED_LEASES, "tenant-clocks", AGENT_LEASE)
        assert abs(lease.clock_ahead_s - agent_s) < 20
        first_s = age_s(lease, operator.server_clock.now())
        assert first_s is not None
        assert first_s < 30, "a beat of a moment ago, whatever the clocks say"
        await admin.delete(LEASES, SYSTEM_NAMESPACE, HUB_LEASE)
    member = next(row for row in status.members if row.name == "clocks")
    assert member.state == "Engaged"
    assert status.hub.leading
