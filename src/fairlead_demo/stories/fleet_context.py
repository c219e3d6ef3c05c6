"""The context of demos with a hub and two members, and checks of traffic while the control plane is down.

In: a fleet, not started yet. Out: ``FleetContext``; ``ExpectationFailed`` with one sentence when a check fails.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from rich.console import Console

from fairlead.api.gateway import GATEWAYS
from fairlead.api.kubernetes import INGRESSES, LEASES
from fairlead.api.meta import Resource
from fairlead.api.names import AGENT_LEASE
from fairlead_demo.stories.context import StoryContext, instead_of_low_ports
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.member import Member
from fairlead_demo.worlds.processes import ExpectationFailed, wait_until
from fairlead_demo.worlds.web import gateway_address, ingress_address
from fairlead_demo.worlds.workload import Workload

_OUTAGE_S = 4.0


class FleetContext(StoryContext):
    """A fleet with its traffic; ``workloads`` has the pods of each Service, by a name that the demo chooses."""

    def __init__(self, *, fleet: Fleet, apis: EmbeddedApis, console: Console, plain: bool) -> None:
        super().__init__(console=console, plain=plain)
        self.fleet = fleet
        self.apis = apis
        self.workloads: dict[str, Workload] = {}

    @abstractmethod
    def pods(self) -> Iterator[tuple[str, str]]:
        """Yield (title of its traffic, name) of every pod that should answer."""

    def lost(self) -> int:
        """Return the number of requests that were in flight to a pod when it was killed."""
        return sum(traffic.count.lost for traffic in self.traffics.values())

    def cut(self) -> int:
        """Return the number of keep-alive connections that were closed without ``Connection: close``."""
        return sum(traffic.count.cut for traffic in self.traffics.values())

    def sent(self) -> int:
        """Return the number of requests that were sent."""
        return sum(traffic.count.sent for traffic in self.traffics.values())

    def kubectl(self, at_hub: str, in_members: str) -> list[str]:
        """Return kubectl commands that list these kinds at the hub and in the members."""
        hub = self.fleet.kubeconfig
        lines = [f"  fairlead status --kubeconfig {hub}", f"  kubectl --kubeconfig {hub} get {at_hub} -A"]
        return lines + [
            f"  kubectl --kubeconfig {self.apis.kubeconfig(name)} get {in_members}     # {name}"
            for name in self.fleet.members
        ]

    async def roll_pods(self, rolled: str) -> None:
        """Replace every pod, gracefully; ``rolled`` says which, such as "3 pods of each member"."""
        self.progress.step_started("all pods are replaced, one by one: not ready, drained, stopped")
        cut, lost = self.cut(), self.lost()
        await asyncio.gather(*(workload.roll(workload.pods) for workload in self.workloads.values()))
        await self.every_pod_answers(self.pods)
        self.check_traffic("while pods were rolled")
        if (self.cut(), self.lost()) != (cut, lost):
            broken = f"{self.cut() - cut} cut, {self.lost() - lost} lost"
            raise ExpectationFailed(f"rolling pods broke connections: {broken}")
        self.progress.step_done(f"{rolled} were replaced, and no request failed")

    async def survive_control_plane(self, versions: Callable[[], Awaitable[object]], kind: str) -> None:
        """Kill hub and agents with SIGKILL under load and restart them; check that nothing was changed.

        ``versions`` returns the resourceVersions of the users' objects of this ``kind``.

        Raises:
            ExpectationFailed: a request failed, a connection was cut, an object was written or xDS was pushed.
        """
        self.progress.step_started("hub and agents are killed with -9 while traffic flows")
        await self._drained()
        before, cut = await versions(), self.cut()
        agents = [member.agent for member in self.fleet.members.values()]
        await asyncio.gather(*(child.kill() for child in (self.fleet.hub, *agents)))
        sent = self.sent()
        await asyncio.sleep(_OUTAGE_S)
        alone = self.sent() - sent
        self.check_traffic("while hub and agents were dead")
        self.progress.step_started("hub and agents restart, and should change nothing")
        await self.fleet.hub.start_ready()
        await asyncio.gather(*(agent.start() for agent in agents))
        await self._settled()
        changed = await self.fleet.hub.metric("fairlead_xds_changing_pushes_total")
        after = await versions()
        if changed:
            raise ExpectationFailed(f"the restarted hub changed something at Envoy ({changed:g} pushes)")
        if after != before:
            raise ExpectationFailed(f"the restart changed the users' objects: {before} became {after}")
        self.check_traffic("after hub and agents came back")
        if self.cut() != cut:
            raise ExpectationFailed(f"{self.cut() - cut} kept connections were cut by the restart")
        self.progress.step_done(
            "hub and agents were killed with -9, restarted, and changed nothing",
            f"{alone} requests answered meanwhile; 0 changed xDS resources, 0 cut connections, "
            f"0 writes to users' {kind}, the same addresses",
        )

    async def close(self) -> None:
        """End traffic, pods and all processes."""
        await self.stop_traffic()
        await asyncio.gather(*(workload.stop() for workload in self.workloads.values()))
        await self.fleet.close()

    async def _drained(self) -> None:
        """Wait until Envoy has only running pods: a drain in progress would end with the hub."""
        pods = {pod.address for workload in self.workloads.values() for pod in workload.pods}

        async def exactly() -> bool:
            return await self.fleet.hub.envoy_hosts() == pods

        await wait_until(exactly, "the backends of the old pods are gone")

    async def _settled(self) -> None:
        """Wait until both agents have renewed their Leases at the hub, after their initial lists."""
        started = await self._renewals()

        async def renewed() -> bool:
            now = await self._renewals()
            return all(now[name] != started[name] for name in now)

        await wait_until(renewed, "both agents have restarted")

    async def _renewals(self) -> dict[str, str | None]:
        leases = await self.fleet.cluster.list(LEASES, field_selector=f"metadata.name={AGENT_LEASE}")
        return {lease.metadata.namespace: lease.spec.renew_time for lease in leases}


class HTTPSContext(FleetContext):
    """A fleet whose members serve HTTPS by an Ingress or a Gateway ``web``; ``entry``: which of both, by member."""

    def __init__(self, *, fleet: Fleet, apis: EmbeddedApis, console: Console, plain: bool) -> None:
        super().__init__(fleet=fleet, apis=apis, console=console, plain=plain)
        low_ports = service_port(80) == 80
        self.entry: dict[str, Resource[Any]] = {"east": INGRESSES if low_ports else GATEWAYS, "west": GATEWAYS}

    def title(self, member: str) -> str:
        """Return the title of the traffic of a member."""
        return f"{member} {self.entry[member].kind} default/web"

    async def address(self, member: Member) -> str:
        """Return the address of a member's Ingress or Gateway, once it shows one."""
        return await (ingress_address if self.entry[member.name] is INGRESSES else gateway_address)(member, "web")

    def instead_of_ingress(self) -> list[str]:
        """Return a note that a Gateway stands for an Ingress; empty otherwise."""
        stands = self.entry["east"] is GATEWAYS
        return ["an Ingress is served at ports 80 and 443 only: a Gateway stands for it"] if stands else []


async def start_everything(context: FleetContext) -> None:
    """Start a hub and two members."""
    context.progress.step_started("starting a hub, Envoy and two member clusters")
    await context.fleet.start()
    agents = (member.agent for member in context.fleet.members.values())
    processes = [*agents, context.fleet.hub, *context.apis.children.values()]
    names = ", ".join(f"{process.name} {process.pid}" for process in processes)
    context.progress.step_done(
        "a hub and two members run, each with its own API", f"processes: {names}", *instead_of_low_ports()
    )
