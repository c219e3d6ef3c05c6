"""When is something written about proxies? When it has settled, when it is news, and never otherwise."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fairlead.api.kubernetes import NAMESPACES
from fairlead.apiserver.server import ApiServer
from fairlead.errors import BadConfiguration
from fairlead.kube.cluster import Cluster
from fairlead.runtime.clock import VirtualClock
from fairlead.standalone.hub_process import is_loopback
from fairlead.standalone.identity import kept_identity
from fairlead.standalone.proxy_report import ProxyReporter, ProxyRow, read_reports

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

        def reporter() -> asyncio.Task[None]:
            one = ProxyReporter(cluster=cluster, identity="a b", proxies=lambda: list(rows), clock=clock)
            return asyncio.create_task(one.run())

        async def told() -> list[ProxyRow] | None:
            report = (await read_reports(cluster)).get("a_b")
            return report.proxies if report else None

        async def look(times: int) -> None:
            """Let it look so many times; each look may need real requests, which a read after it proves done."""
            for _ in range(times):
                await told()
                await told()
                await clock.advance(1.0)
            await told()
            await told()

        task = reporter()
        while await told() is None:
            await clock.advance(1.0)
        assert await told() == [ROW]
        writes = cluster.writes

        rows[:] = [ProxyRow("local/here", "local", "STALE")]
        await look(3)
        rows[:] = [ROW]
        await look(10)
        assert cluster.writes == writes  # it was STALE for three seconds only

        task.cancel()
        task = reporter()
        await look(10)
        assert cluster.writes == writes  # the next life knows what the last one wrote

        rows.clear()
        while await told():
            await clock.advance(1.0)
        assert cluster.writes == writes + 1
        task.cancel()
    await server.stop()


def test_an_identity_is_kept_and_never_shared(tmp_path: Path) -> None:
    first = kept_identity(tmp_path / "a")
    assert kept_identity(tmp_path / "a") == first
    assert kept_identity(tmp_path / "b") != first
    (tmp_path / "file").write_text("")
    with pytest.raises(BadConfiguration, match="--data-dir"):
        kept_identity(tmp_path / "file")


@pytest.mark.parametrize(
    ("server", "loopback"),
    [
        ("http://127.0.0.1:1", True),
        ("https://[::1]:6443", True),
        ("https://localhost", True),
        ("https://10.0.0.1:6443", False),
        ("https://hub.example.com", False),
    ],
)
def test_loopback_targets_need_a_loopback_api(server: str, loopback: bool) -> None:
    assert is_loopback(server) is loopback
