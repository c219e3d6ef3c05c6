"""A hub and its members as real processes, each cluster with its own API server.

    east API ◄── east agent ──►            ┌──► Envoy (outlives the hub)
                               hub API ◄── hub
    west API ◄── west agent ──►

In: API servers and a directory. Out: ``Fleet``, whose parts can be killed and started again; ``close`` ends them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import DEFAULT_CLASS
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster
from fairlead.runtime.private_file import write_private
from fairlead_demo.worlds.apis import Apis
from fairlead_demo.worlds.hub import HubProcess
from fairlead_demo.worlds.link import Link
from fairlead_demo.worlds.loopback import free_network, service_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import Child, ExpectationFailed, fairlead, run_fairlead, wait_until


class Fleet:
    """A hub and its members. ``members``: the targets (``Pod`` or ``Node``) that each member's agent prefers.

    ``drain`` replaces the drain time of the default class, whose thirty seconds are too long for tests.
    ``environment`` is added to that of processes created from now on, ``hub_options`` to the options of hubs,
    ``agent_options`` to those of agents. Agents of ``linked`` members reach the hub through a ``Link``.
    """

    def __init__(
        self,
        *,
        apis: Apis,
        directory: Path,
        members: Mapping[str, str],
        drain: str,
        log_level: str = "info",
        environment: Mapping[str, str] | None = None,
        hub_options: Sequence[str] = (),
        agent_options: Sequence[str] = (),
        linked: Collection[str] = (),
    ) -> None:
        self.apis = apis
        self.directory = directory
        self.members: dict[str, Member] = {}
        self.kubeconfig = apis.kubeconfig("hub")
        self.pool = f"{free_network(service_port(80))}.0/24"
        self._targets = members
        self._drain = drain
        self._log_level = log_level
        self._environment = environment
        self._hub_options = tuple(hub_options)
        self._agent_options = tuple(agent_options)
        self._linked = linked
        self._cluster: Cluster | None = None
        self.hub = self.hub_process("hub", directory / "envoy")

    @property
    def cluster(self) -> Cluster:
        """Return an administrator's client of the hub's API."""
        if self._cluster is None:
            raise ExpectationFailed("the hub has not been started")
        return self._cluster

    def hub_process(self, name: str, envoy_directory: Path) -> HubProcess:
        """Return a hub of this fleet, not started yet."""
        options = ("--kubeconfig", str(self.kubeconfig), "--address-pool", self.pool)
        more = ("--data-dir", str(envoy_directory), "--log-format", "json", "--log-level", self._log_level)
        command = fairlead("hub", *options, *more, *self._hub_options)
        log = self.directory / f"{name}.log"
        return HubProcess(name, command, envoy_directory=envoy_directory, log=log, environment=self._environment)

    async def start(self) -> None:
        """Start everything, in the order in which an operator would."""
        await self.apis.start()
        self._cluster = Cluster.from_kubeconfig(self.kubeconfig, name="hub")
        await self.hub.start_ready()
        patch = {"spec": {"drain": self._drain}}
        await self.cluster.merge_patch(LOAD_BALANCER_CLASSES, "", DEFAULT_CLASS, patch, manager="operator")
        for number, (name, targets) in enumerate(self._targets.items()):
            kubeconfig, network = self.apis.kubeconfig(name), self.apis.network(number)
            await self.add_member(name, kubeconfig, targets=targets, network=network)

    async def add_member(self, name: str, kubeconfig: Path, *, targets: str, network: str) -> Member:
        """Add a Tenant by the command line, and start its agent."""
        member = self.members[name] = await start_member(
            name,
            kubeconfig,
            hub=self.cluster,
            hub_kubeconfig=self.kubeconfig,
            directory=self.directory,
            targets=targets,
            network=network,
            environment=self._environment,
            options=self._agent_options,
            linked=name in self._linked,
        )
        return member

    async def tenant_kubeconfig(self, name: str) -> Path:
        """Add a Tenant, or renew its token; return the kubeconfig of its agent."""
        return await _tenant_kubeconfig(name, self.kubeconfig, self.directory, self._environment)

    async def at_hub(self, member: str, name: str) -> TCPLoadBalancer | None:
        """Return the hub's object of a Service, named ``namespace.service``."""
        try:
            return await self.cluster.get(TCP_LOAD_BALANCERS, f"tenant-{member}", name)
        except NotFound:
            return None

    async def gone(self, member: str, name: str) -> None:
        """Wait until the hub no longer has an object of a Service, named ``namespace.service``."""

        async def absent() -> bool:
            return await self.at_hub(member, name) is None

        await wait_until(absent, f"{member} {name} is gone from the hub")

    async def revive(self) -> None:
        """Start the hub and the agents that have ended."""
        if not self.hub.running:
            await self.hub.start_ready()
        for member in self.members.values():
            if not member.agent.running:
                await member.agent.start()

    async def close(self) -> None:
        """End everything, Envoy included."""
        if self._cluster is not None:
            await self._cluster.aclose()
        await asyncio.gather(self.hub.close(), *(member.close() for member in self.members.values()))
        await self.apis.close()


async def start_member(
    name: str,
    kubeconfig: Path,
    *,
    hub: Cluster,
    hub_kubeconfig: Path,
    directory: Path,
    targets: str,
    network: str,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    linked: bool = False,
) -> Member:
    """Add a Tenant by the command line, and start the agent of a cluster whose API is there."""
    at_hub = await _tenant_kubeconfig(name, hub_kubeconfig, directory, environment)
    link = Link(at_hub) if linked else None
    if link is not None:
        await link.start()
        at_hub = link.kubeconfig
    needed = ("--kubeconfig", str(kubeconfig), "--hub-kubeconfig", str(at_hub), "--tenant", name)
    more = ("--target", targets, "--data-dir", str(directory / "agents"), "--log-format", "json")
    log = directory / f"{name}-agent.log"
    agent = Child(f"{name} agent", fairlead("agent", *needed, *more, *options), log=log, environment=environment)
    await agent.start()
    cluster = Cluster.from_kubeconfig(kubeconfig, name=name)
    return Member(name=name, cluster=cluster, hub=hub, agent=agent, network=network, link=link)


async def _tenant_kubeconfig(
    name: str, hub_kubeconfig: Path, directory: Path, environment: Mapping[str, str] | None
) -> Path:
    path = directory / f"{name}-at-hub.kubeconfig"
    arguments = ("tenant", "add", name, "--kubeconfig", str(hub_kubeconfig))
    # stdout has it in every released version
    code, kubeconfig, problem = await run_fairlead(*arguments, environment=environment)
    if code:
        raise ExpectationFailed(f"fairlead tenant add {name} failed: {problem.strip()}")
    write_private(path, kubeconfig)
    return path
