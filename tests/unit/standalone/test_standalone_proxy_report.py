"""The report of proxies is written when a change has settled, and not otherwise."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fairlead.api.kubernetes import NAMESPACES
from fairlead.kube.cluster import Cluster
from fairlead.runtime.clock import VirtualClock
from fairlead.standalone.proxy_report import ProxyReporter, ProxyRow, read_reports
from podless.server import ApiServer

ROW = ProxyRow("local/here", "local", "SYNCED")


async def test_only_settled_news_is_written_and_a_restart_writes_nothing(tmp_path: Path) -> None:
    server = ApiServer()
    await server.start()
    path = tmp_path / "kubeconfig"
    server.write_kubeconfig(path)
    rows = [ROW]
    clock = VirtualClock()
    async with Cluster.from_kubeconfig(path, name="hub") as cluster:
        await cluster.create(NAMESPACES, {"metadata": {"name": "fairlead-system"}})

        def start() -> asyncio.Task[None]:
            reporter = ProxyReporter(cluster=cluster, identity="a b", proxies=lambda: list(rows), clock=clock)
            return asyncio.create_task(reporter.run())

        async def reported() -> list[ProxyRow] | None:
            report = (await read_reports(cluster)).get("a_b")
            return report.proxies if report else None

        async def polls(times: int) -> None:
            """Let it poll so many times; each poll may need real requests, which a read after it proves done."""
            for _ in range(times):
                await reported()
                await reported()
                await clock.advance(1.0)
            await reported()
            await reported()

        task = start()
        while await reported() is None:
            await clock.advance(1.0)
        assert await reported() == [ROW]
        writes = cluster.writes

        rows[:] = [ProxyRow("local/here", "local", "STALE")]
        await polls(3)
        rows[:] = [ROW]
        await polls(10)
        assert cluster.writes == writes  # it was STALE for three seconds only

        task.cancel()
        task = start()
        await polls(10)
        assert cluster.writes == writes  # the next life knows what the last one wrote

        rows.clear()
        while await reported():
            await clock.advance(1.0)
        assert cluster.writes == writes + 1
        task.cancel()
    await server.stop()
