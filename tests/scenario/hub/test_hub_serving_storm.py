"""All load balancers lose their backends at once and get them back: each state is written once for each of them."""

from __future__ import annotations

from collections import Counter

import pytest
from hub_world import HubWorld

from fairlead.model.keys import TargetKey
from fairlead.testing.builders import lb_key

COUNT = 40


@pytest.mark.slow
@pytest.mark.req("X-1")
async def test_a_storm_writes_each_state_once(world: HubWorld) -> None:
    hub = await world.start(pool="192.0.2.0/24")
    await world.tenant("storm")
    names = [f"lb-{number}" for number in range(COUNT)]
    namespace = "tenant-storm"
    for number, name in enumerate(names):
        await world.lb(name, namespace=namespace, ports=[{"port": 80 + number}], spec={"targets": "Pod"})
        await world.slice(name, f"10.1.0.{number + 1}", namespace=namespace)
    await world.programmed(names[-1], namespace)
    await world.quiet(30)
    keys = [lb_key(name, namespace=namespace) for name in names]
    targets = [TargetKey(f"10.1.0.{number + 1}", 8080) for number in range(COUNT)]

    def written() -> Counter[str]:
        # The class's count of load balancers has a slower pace of its own.
        return Counter(write for write in hub.cluster.written if " LoadBalancerClass " not in write)

    hub.cluster.written.clear()
    world.cloud.unhealthy.update(targets)
    world.cloud.changed(keys)
    for name in names:
        await world.said("Serving", "False", name=name, namespace=namespace)
    await world.quiet(30)
    once = {f"apply/status TCPLoadBalancer {name}": 1 for name in names}
    assert written() == once, "one write for each that stopped serving"
    hub.cluster.written.clear()
    world.cloud.unhealthy.clear()
    world.cloud.changed(keys)
    for name in names:
        await world.said("Serving", "Unknown", name=name, namespace=namespace)
    await world.quiet(30)
    assert written() == once, "and one for each that came back"
