"""One machine, one command: API, hub and Envoy, and the same again after SIGKILL."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from fairlead.api.kubernetes import NAMESPACES
from fairlead.kube.cluster import Cluster
from fairlead.providers.envoy.envoy_process import find_running
from fairlead.testing.worlds.hub import HubProcess
from fairlead.testing.worlds.loopback import free_network, free_port
from fairlead.testing.worlds.processes import fairlead, run_fairlead, wait_until

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.mark.req("I-8")
async def test_everything_in_one_process_survives_sigkill_and_ends_its_envoy_with_stop_proxy() -> None:
    with tempfile.TemporaryDirectory(prefix="fl-e2e-") as name:
        directory = Path(name)
        options = ("--listen", f"127.0.0.1:{free_port()}", "--address-pool", f"{free_network(80)}.0/24")
        command = fairlead("standalone", "--data-dir", str(directory), *options, "--stop-proxy")
        hub = HubProcess("standalone", command, envoy_directory=directory / "hub", log=directory / "log")
        try:
            kubeconfig = await hub.start(first_line_s=30)
            assert kubeconfig == str(directory / "kubeconfig")
            async with Cluster.from_kubeconfig(kubeconfig, name="one") as cluster:
                await cluster.create(NAMESPACES, {"metadata": {"name": "kept"}})
            code, out, _ = await run_fairlead("status", "--kubeconfig", kubeconfig, "--wait", "--timeout", "30s")
            assert code == 0, out

            async def synced() -> bool:
                return "SYNCED" in (await run_fairlead("status", "--kubeconfig", kubeconfig))[1]

            await wait_until(synced, "Envoy has the hub's newest state")
            await hub.kill()
            assert (await run_fairlead("status", "--kubeconfig", kubeconfig))[0] == 3
            assert await hub.start(first_line_s=30) == kubeconfig
            async with Cluster.from_kubeconfig(kubeconfig, name="one") as cluster:
                await cluster.get(NAMESPACES, "", "kept")
            await hub.terminate(patience_s=30)
            assert await hub.ended() == 0
            assert find_running(directory / "hub") is None
        finally:
            await hub.close()
