"""A hub and two members: addresses, rolled and killed pods, a control plane killed with -9, a late delete.

In: a ``MembersStage``. Out: lines of the show; ``ExpectationFailed`` with one sentence for a broken promise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from fairlead.demo.stories.fleet_stage import FleetStage, start_everything
from fairlead.demo.stories.stage import refuses
from fairlead.testing.worlds.loopback import service_port
from fairlead.testing.worlds.processes import ExpectationFailed, wait_until
from fairlead.testing.worlds.traffic import Traffic
from fairlead.testing.worlds.workload import POD_PORT, Workload

REPLICAS = 3
_SENT_AFTER_KILL = 60


class MembersStage(FleetStage):
    """``workloads``: the pods of the Service ``web`` by member."""

    def pods(self) -> Iterator[tuple[str, str]]:
        """Return every pod with the name of its traffic."""
        return ((_title(name), pod.name) for name, workload in self.workloads.items() for pod in workload.pods)

    def ending(self, *, passed: bool) -> str:
        """Return what was lost, passed or not."""
        del passed
        return f", {self.lost()} lost with the pod that was killed"

    def commands(self) -> list[str]:
        """Return commands to try while everything is kept running."""
        return [
            *self.kubectl("tenants,tcplb", "services,pods"),
            *(f"  curl http://{each.host}:{each.port}/          # {name}" for name, each in self.traffics.items()),
        ]


async def give_addresses(stage: MembersStage) -> None:
    """Create a Service in each member and wait for its address."""
    stage.show.doing("a Service of type LoadBalancer in each member waits for its address")
    for name, member in stage.fleet.members.items():
        workload = Workload(cluster=member.cluster, service="web", directory=stage.fleet.directory)
        stage.workloads[name] = workload
        host = member.host("web")
        await member.node(host.node, f"{member.network}.1")
        for _ in range(REPLICAS):
            await workload.start_pod(host)
        port = {"port": service_port(80), "targetPort": POD_PORT}
        await member.service("web", port, selector={"app": "web"})
    facts: list[str] = []
    for name, member in stage.fleet.members.items():
        address = await member.address("web")
        stage.traffics[_title(name)] = Traffic(host=address)
        ports = (await member.get("web")).spec.ports or ()
        shown = ",".join(f"{port.port}:{port.node_port}/{port.protocol}" for port in ports)
        facts.append(f"{name}: NAME web   TYPE LoadBalancer   EXTERNAL-IP {address}   PORT(S) {shown}")
    stage.show.done("both Services have an address", *facts)


async def reach_every_backend(stage: MembersStage) -> None:
    """Send traffic until every pod has answered."""
    stage.show.doing("traffic flows")
    for traffic in stage.traffics.values():
        traffic.start()
    await stage.every_pod_answers(stage.pods)
    answers = [
        f"{name}: " + ", ".join(f"{pod} {number}" for pod, number in sorted(traffic.count.by_pod.items()))
        for name, traffic in stage.traffics.items()
    ]
    stage.show.done("traffic reaches every backend", *answers)


async def roll_pods(stage: MembersStage) -> None:
    """Replace every pod of both members, gracefully."""
    stage.show.doing("all pods are replaced, one by one: not ready, drained, stopped")
    before = stage.lost()
    await asyncio.gather(*(workload.roll(workload.pods) for workload in stage.workloads.values()))
    await stage.every_pod_answers(stage.pods)
    stage.check_traffic("while pods were rolled")
    if stage.lost() != before or stage.cut():
        raise ExpectationFailed(f"rolling pods broke connections: {stage.cut()} cut, {stage.lost() - before} lost")
    stage.show.done(f"{REPLICAS} pods of each member were replaced, and no request failed")


async def kill_pod(stage: MembersStage) -> None:
    """Kill a pod of the west with SIGKILL."""
    stage.show.doing("a pod is killed with SIGKILL")
    workload = stage.workloads["west"]
    traffic = stage.traffics[_title("west")]
    victim = workload.pods[0]
    sent = traffic.count.sent
    with traffic.pod_dies():
        await victim.child.kill()

    async def enough_after() -> bool:
        return traffic.count.sent - sent >= _SENT_AFTER_KILL

    # The cluster knows nothing yet: what keeps traffic away from the dead pod is Envoy alone.
    await wait_until(enough_after, "traffic flows on")
    unaware = traffic.count.sent - sent
    await workload.forget(victim)
    await workload.start_pod(victim.host)
    await stage.every_pod_answers(stage.pods)
    stage.check_traffic("after a pod was killed")
    stage.show.done(
        f"{victim.name} was killed with SIGKILL, and no new connection failed",
        f"{unaware} requests were sent before the member noticed; {traffic.count.lost} were under way on the pod "
        "and died with it",
    )


async def kill_control_plane(stage: MembersStage) -> None:
    """Kill hub and agents with SIGKILL while traffic flows; bring them back; look for any difference."""
    alone = await stage.survive_control_plane(lambda: _services(stage))
    stage.show.done(
        "hub and agents were killed with -9, came back, and changed nothing",
        f"{alone} requests answered meanwhile; 0 changed xDS resources, 0 cut connections, "
        "0 writes to users' Services, the same addresses",
    )


async def delete_while_agent_is_down(stage: MembersStage) -> None:
    """Delete a Service while the agent of its member is down; it is cleaned up when the agent is back."""
    stage.show.doing("a Service is deleted while its agent is down")
    member = stage.fleet.members["east"]
    closed = service_port(81)
    await member.service("shop", {"port": closed, "targetPort": POD_PORT}, selector={"app": "shop"})
    address = await member.address("shop")
    await member.agent.kill()
    await member.delete("shop")
    if await stage.fleet.at_hub("east", "default.shop") is None:
        raise ExpectationFailed("the load balancer of a Service was gone before its agent could know")
    await member.agent.start()
    await stage.fleet.gone("east", "default.shop")

    async def refused() -> bool:
        return await refuses(asyncio.open_connection, address, closed)

    await wait_until(refused, f"nothing listens at {address}:{closed} any more")
    stage.check_traffic("while the other Service was removed")
    stage.show.done("a Service deleted while its agent was down was cleaned up when it came back", f"{address} is free")


STEPS = (
    start_everything,
    give_addresses,
    reach_every_backend,
    roll_pods,
    kill_pod,
    kill_control_plane,
    delete_while_agent_is_down,
)


def _title(member: str) -> str:
    return f"{member} default/web"


async def _services(stage: MembersStage) -> dict[str, tuple[str, str]]:
    """Return version and address of every user's Service: any write changes the version."""
    return {
        name: ((await member.get("web")).metadata.resource_version, await member.address("web"))
        for name, member in stage.fleet.members.items()
    }
