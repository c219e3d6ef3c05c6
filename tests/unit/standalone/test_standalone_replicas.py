"""A replica counts as gone only after it has stood still while it was observed; then its report goes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from fairlead.api.kubernetes import LEASES, NAMESPACES
from fairlead.api.names import HUB_LEASE, SYSTEM_NAMESPACE
from fairlead.errors import Unreachable
from fairlead.kube.cluster import Cluster
from fairlead.runtime.clock import VirtualClock
from fairlead.standalone.hub_process import LABEL_REPLICA, Replicas
from fairlead.standalone.proxy_report import ProxyReporter, ProxyRow, read_reports
from podless.server import ApiServer

GONE_S = 300.0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    server = ApiServer()
    await server.start()
    server.write_kubeconfig(tmp_path / "kubeconfig")
    async with Cluster.from_kubeconfig(tmp_path / "kubeconfig", name="hub") as made:
        await made.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
        yield made
    await server.stop()


class Hubs:
    """Hub replicas as far as this matters: a report, and a sign of life that a test makes or withholds."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.clock = VirtualClock()
        self.returned: list[str] = []

    def replica(
        self, name: str, *, leading: bool = False, gone: Callable[[str], Awaitable[None]] | None = None
    ) -> Replicas:
        return Replicas(
            cluster=self.cluster,
            identity=name,
            leading=lambda: leading,
            returned=lambda: self.returned.append(name),
            gone=gone,
            clock=self.clock,
            gone_s=GONE_S,
        )

    async def report(self, name: str) -> None:
        rows = [ProxyRow(f"local/{name}", "local", "SYNCED")]
        await ProxyReporter(cluster=self.cluster, identity=name, proxies=lambda: rows, clock=self.clock).write(rows)

    async def reported(self) -> list[str]:
        return sorted(await read_reports(self.cluster))

    async def leases(self) -> list[str]:
        leases = await self.cluster.list(LEASES, SYSTEM_NAMESPACE, label_selector=LABEL_REPLICA)
        return sorted(lease.spec.holder_identity or "" for lease in leases)


@pytest.mark.req("I-2")
async def test_what_a_dead_hub_reported_is_dropped_and_a_living_ones_stays(cluster: Cluster) -> None:
    hubs = Hubs(cluster)
    leader, alive, dead = hubs.replica("leader", leading=True), hubs.replica("Alive_1"), hubs.replica("dead")
    for name in ("leader", "Alive_1", "dead", "from-an-older-release"):
        await hubs.report(name)
    for replica in (leader, alive, dead):
        await replica.renew()
    lease = {"metadata": {"name": HUB_LEASE, "namespace": SYSTEM_NAMESPACE}, "spec": {"holderIdentity": "leader"}}
    await cluster.apply(LEASES, lease, manager="test")
    everybody = ["Alive_1", "dead", "from-an-older-release", "leader"]
    for _ in range(10):
        await leader.renew()
        assert await hubs.reported() == everybody, "nobody has been silent for long enough"
        await hubs.clock.advance(GONE_S / 10)
        await alive.renew()
    await leader.renew()
    assert await hubs.reported() == ["Alive_1", "leader"]
    assert await hubs.leases() == ["Alive_1", "leader"]
    await cluster.get(LEASES, SYSTEM_NAMESPACE, HUB_LEASE)
    writes = cluster.writes
    await leader.renew()
    assert cluster.writes == writes + 1, "nobody is gone: its own sign of life, and nothing else"


@pytest.mark.req("I-2")
async def test_who_comes_back_while_it_is_being_dropped_keeps_its_report(cluster: Cluster) -> None:
    hubs = Hubs(cluster)
    leader, other = hubs.replica("leader", leading=True), hubs.replica("other")
    await hubs.report("other")
    await other.renew()
    await leader.renew()
    await hubs.clock.advance(GONE_S + 1)
    await other.renew()
    await leader.renew()
    assert await hubs.reported() == ["other"]


async def test_a_replica_that_was_silent_for_long_reports_again(cluster: Cluster) -> None:
    hubs = Hubs(cluster)
    replica = hubs.replica("one")
    for pause_s in (0.0, GONE_S / 3, GONE_S / 3):
        await hubs.clock.advance(pause_s)
        await replica.renew()
    assert hubs.returned == []
    await hubs.clock.advance(GONE_S)
    await replica.renew()
    assert hubs.returned == ["one"]


@pytest.mark.req("I-2")
@pytest.mark.parametrize("reported", [True, False])
async def test_what_could_not_be_dropped_is_dropped_by_a_later_sweep(cluster: Cluster, *, reported: bool) -> None:
    hubs = Hubs(cluster)
    asked: list[str] = []

    async def gone(key: str) -> None:
        asked.append(key)
        if len(asked) == 1:
            raise Unreachable("not now")

    leader, dead = hubs.replica("leader", leading=True, gone=gone), hubs.replica("dead")
    if reported:
        await hubs.report("dead")
    await dead.renew()
    await leader.renew()
    await hubs.clock.advance(GONE_S + 1)
    with pytest.raises(Unreachable):
        await leader.renew()
    for _ in range(2):
        await leader.renew()
        await hubs.clock.advance(GONE_S + 1)
    await leader.renew()
    assert asked == ["dead", "dead"]
    assert await hubs.reported() == []
    assert await hubs.leases() == ["leader"]
