"""An ordinary user, who may not open port 80, gets the demo, a hub on one machine, and a sentence about port 80."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.kube.cluster import Cluster
from fairlead_demo.worlds.hub import HubProcess
from fairlead_demo.worlds.loopback import free_network, free_port
from fairlead_demo.worlds.processes import PATIENCE_S, fairlead, wait_until
from tests.e2e.e2e_ordinary_user import as_ordinary_user
from tests.left_running import passed_demo

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.req("X-4", "T-13", "I-8")
async def test_the_demo_passes_and_leaves_no_process_behind() -> None:
    await passed_demo(as_ordinary_user(fairlead("demo", "--plain")))


@pytest.mark.req("X-4")
async def test_a_hub_on_one_machine_says_what_port_80_needs() -> None:
    with tempfile.TemporaryDirectory(prefix="fl-e2e-") as name:
        directory = Path(name)
        options = ("--listen", f"127.0.0.1:{free_port()}", "--address-pool", f"{free_network()}.0/24")
        command = as_ordinary_user(fairlead("standalone", "--data-dir", str(directory), *options))
        hub = HubProcess("standalone", command, envoy_directory=directory / "hub", log=directory / "log")
        try:
            kubeconfig = await hub.start(first_line_s=PATIENCE_S)
            assert "net.ipv4.ip_unprivileged_port_start" in hub.log.read_text()
            async with Cluster.from_kubeconfig(kubeconfig, name="one") as cluster:
                spec = {"ports": [{"name": "low", "port": 80}], "targets": "Pod"}
                body = {"metadata": {"name": "web", "namespace": SYSTEM_NAMESPACE}, "spec": spec}
                await cluster.create(TCP_LOAD_BALANCERS, body)

                async def named() -> bool:
                    balancer = await cluster.get(TCP_LOAD_BALANCERS, SYSTEM_NAMESPACE, "web")
                    return any(
                        "setcap cap_net_bind_service" in each.message for each in balancer.status.conditions or ()
                    )

                await wait_until(named, "the load balancer's condition names the next step")
        finally:
            await hub.close()
