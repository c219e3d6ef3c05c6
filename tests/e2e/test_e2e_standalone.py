"""One machine, one command: API, hub and Envoy, and the same again after SIGKILL."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.tenant import TENANTS
from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.providers.envoy.envoy_process import find_running
from fairlead_demo.worlds.hub import HubProcess
from fairlead_demo.worlds.loopback import free_network, free_port
from fairlead_demo.worlds.processes import PATIENCE_S, fairlead, run_fairlead, wait_until

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.req("I-8")
async def test_one_process_survives_sigkill_and_stop_proxy_ends_envoy() -> None:
    with tempfile.TemporaryDirectory(prefix="fl-e2e-") as name:
        directory = Path(name)
        options = ("--listen", f"127.0.0.1:{free_port()}", "--address-pool", f"{free_network()}.0/24")
        command = fairlead("standalone", "--data-dir", str(directory), *options, "--stop-proxy")
        hub = HubProcess("standalone", command, envoy_directory=directory / "hub", log=directory / "log")
        try:
            kubeconfig = await hub.start(first_line_s=PATIENCE_S)
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
            assert await hub.start(first_line_s=PATIENCE_S) == kubeconfig
            async with Cluster.from_kubeconfig(kubeconfig, name="one") as cluster:
                await cluster.get(NAMESPACES, "", "kept")
            await hub.terminate()
            assert await hub.ended() == 0
            assert find_running(directory / "hub") is None
        finally:
            await hub.close()


@pytest.mark.req("X-16")
async def test_stop_ends_hub_and_envoy_and_also_an_envoy_whose_directory_is_gone() -> None:
    with tempfile.TemporaryDirectory(prefix="fl-e2e-") as name:
        directory = Path(name) / "machine"
        options = ("--listen", f"127.0.0.1:{free_port()}", "--address-pool", f"{free_network()}.0/24")
        command = fairlead("standalone", "--data-dir", str(directory), *options)
        hub = HubProcess("standalone", command, envoy_directory=directory / "hub", log=Path(name) / "log")
        stop = ("standalone", "--stop", "--data-dir", str(directory))
        try:
            await hub.start(first_line_s=PATIENCE_S)
            assert find_running(directory / "hub") is not None
            code, out, _ = await run_fairlead(*stop)
            assert (code, out.count("Ended: ")) == (0, 2), out
            assert await hub.ended() == 0
            assert find_running(directory / "hub") is None
            assert (await run_fairlead(*stop))[:2] == (0, "Nothing to end.\n")

            await hub.start(first_line_s=PATIENCE_S)
            await hub.terminate()
            shutil.rmtree(directory)
            assert find_running(directory / "hub") is not None, "Envoy outlives its hub"
            code, out, _ = await run_fairlead(*stop)
            assert (code, out.count("Ended: Envoy")) == (0, 1), out
            assert find_running(directory / "hub") is None
        finally:
            await hub.close()


@pytest.mark.req("S-2", "I-8")
async def test_the_api_process_is_restarted_and_never_left_behind() -> None:
    with tempfile.TemporaryDirectory(prefix="fl-e2e-") as name:
        directory = Path(name)
        options = ("--listen", "127.0.0.1:0", "--address-pool", f"{free_network()}.0/24", "--stop-proxy")
        command = fairlead("standalone", "--data-dir", str(directory), *options)
        hub = HubProcess("standalone", command, envoy_directory=directory / "hub", log=directory / "log")
        try:
            kubeconfig = await hub.start(first_line_s=PATIENCE_S)
            before = text_of(kubeconfig)
            api = child_of(hub.pid)
            async with Cluster.from_kubeconfig(kubeconfig, name="one") as cluster:
                await cluster.create(NAMESPACES, {"metadata": {"name": "kept"}})
                # A tenant that stalls the API takes nothing from the hub but the API.
                os.kill(api, signal.SIGKILL)
                await wait_until(lambda: answers(cluster), "the API server is back")
                assert child_of(hub.pid) != api
                assert text_of(kubeconfig) == before
                hub.check_running()
                tenant = {"metadata": {"name": "blue"}, "spec": {}}
                await cluster.create(TENANTS, tenant)

                async def served() -> bool:
                    return bool((await cluster.get(TENANTS, "", "blue")).status.conditions)

                await wait_until(served, "the hub has seen what was written after that")
            api = child_of(hub.pid)
            await hub.kill()

            async def gone() -> bool:
                return not runs(api)

            await wait_until(gone, "the API server ends with the process that started it")
        finally:
            await hub.close()


async def answers(cluster: Cluster) -> bool:
    try:
        await cluster.get(NAMESPACES, "", "kept")
    except FairleadError:
        return False
    return True


def text_of(path: str) -> str:
    return Path(path).read_text()


def runs(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def child_of(parent: int) -> int:
    """Return the id of the API server that ``parent`` has started."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            same = f"\nPPid:\t{parent}\n" in (process / "status").read_text()
            if same and b"apiserver" in (process / "cmdline").read_bytes().split(b"\0"):
                return int(process.name)
    raise AssertionError(f"process {parent} has no API server")
