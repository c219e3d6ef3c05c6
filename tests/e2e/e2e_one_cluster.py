"""One cluster that is hub and member at once, served by one command."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from fairlead.kube.cluster import Cluster
from fairlead_demo.worlds.apis import Apis
from fairlead_demo.worlds.hub import HubProcess
from fairlead_demo.worlds.loopback import free_network
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import PATIENCE_S, Child, fairlead, wait_until
from tests.e2e.conftest import working_directory
from tests.e2e.e2e_backends import answers


class OneCluster:
    """A cluster, the process that serves it, and what its users do."""

    def __init__(self, process: HubProcess, member: Member, kubeconfig: Path) -> None:
        self.process = process
        self.member = member
        self.kubeconfig = kubeconfig

    async def served(self, service: str, body: str) -> str:
        """Return the address of a Service once ``body`` is what answers there."""
        address = await self.member.address(service)
        await answers(address, 80, body)
        return address

    async def ready(self) -> None:
        """Return once /readyz says that hub and agent work."""
        await wait_until(self.process.ready, "hub and agent are ready")


@asynccontextmanager
async def running(apis: Apis, *more_pools: str) -> AsyncGenerator[OneCluster]:
    """Run it; ``more_pools`` are ranges next to those of IPv4 that it has."""
    with working_directory() as directory:
        await apis.start()
        kubeconfig, network = apis.kubeconfig("hub"), apis.network(1)
        # Where endpoints are not on loopback, addresses of load balancers are not either.
        pool = f"{free_network()}.0/24" if apis.kind == "embedded" else f"{apis.network(200)}.0/24"
        home = directory / "run"
        pools = ",".join((pool, *more_pools))
        command = fairlead("run", "--kubeconfig", str(kubeconfig), "--address-pool", pools, "--data-dir", str(home))
        process = HubProcess("run", command, envoy_directory=home / "hub", log=directory / "run.log")
        try:
            async with Cluster.from_kubeconfig(kubeconfig, name="one") as cluster:
                first_line = await process.start(first_line_s=PATIENCE_S)
                assert first_line.startswith("Serving on this machine")
                assert "Services of type LoadBalancer and Ingresses of class fairlead" in first_line
                agent = Child("no agent of its own", ["true"], log=directory / "agent.log")
                member = Member(name="local", cluster=cluster, hub=cluster, agent=agent, network=network)
                yield OneCluster(process, member, kubeconfig)
        finally:
            await process.close()
            await apis.close()
