"""One machine, one command: API, hub and Envoy, and the same again after SIGKILL."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from tests.e2e.e2e_fleet import run_cli

from fairlead.api.kubernetes import NAMESPACES
from fairlead.demo.net import free_network, free_port
from fairlead.demo.process import Child, fairlead, wait_until
from fairlead.kube.cluster import Cluster
from fairlead.providers.envoy.fleet_local import LocalFleet

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.mark.req("I-8")
async def test_everything_in_one_process_survives_sigkill_and_ends_its_envoy_when_told_to() -> None:
    with tempfile.TemporaryDirectory(prefix="fl-e2e-") as name:
        directory = Path(name)
        options = ("--listen", f"127.0.0.1:{free_port()}", "--address-pool", f"{free_network(80)}.0/24")
        command = fairlead("standalone", "--data-dir", str(directory), *options, "--stop-proxy")
        one = Child("standalone", command, log=directory / "log")
        fleet = LocalFleet(data_dir=directory / "hub")
        try:
            kubeconfig = await one.start(first_line_s=30)
            assert kubeconfig == str(directory / "kubeconfig")
            async with Cluster.from_kubeconfig(kubeconfig, name="one") as cluster:
                await cluster.create(NAMESPACES, {"metadata": {"name": "kept"}})
            code, out, _ = await run_cli("status", "--kubeconfig", kubeconfig, "--wait", "--timeout", "30s")
            assert code == 0, out

            async def synced() -> bool:
                return "SYNCED" in (await run_cli("status", "--kubeconfig", kubeconfig))[1]

            await wait_until(synced, "Envoy has the hub's newest state")
            await one.kill()
            assert (await run_cli("status", "--kubeconfig", kubeconfig))[0] == 3
            assert await one.start(first_line_s=30) == kubeconfig
            async with Cluster.from_kubeconfig(kubeconfig, name="one") as cluster:
                await cluster.get(NAMESPACES, "", "kept")
            await one.terminate(patience_s=30)
            assert await one.ended() == 0
            from fairlead.providers.envoy.envoy_process import find_running

            assert find_running(directory / "hub") is None
        finally:
            await one.kill()
            await fleet.stop()
