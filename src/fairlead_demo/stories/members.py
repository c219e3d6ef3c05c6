"""A hub and two members: addresses, rolled and killed pods, a control plane killed with -9, a late delete.

In: a ``MembersContext``. Out: lines of progress; ``ExpectationFailed`` with one sentence when a check fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from fairlead_demo.stories.context import FleetContext, refuses, start_everything
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.processes import ExpectationFailed, wait_until
from fairlead_demo.worlds.traffic import Traffic
from fairlead_demo.worlds.workload import POD_PORT, Workload

REPLICAS = 3
_SENT_AFTER_KILL = 60


class MembersContext(FleetContext):
    """The context of this demo; ``workloads`` has the pods of the Service ``web`` by member."""

    def pods(self) -> Iterator[tuple[str, str]]:
        """Yield (title of its traffic, name) of every pod."""
        return ((_title(name), pod.name) for name, workload in self.workloads.items() for pod in workload.pods)

    def ending(self, *, passed: bool) -> str:
        """Return the suffix of the summary: requests that were lost with the killed pod."""
        del passed
        return f", {self.lost()} lost with the pod that was killed"

    def commands(self) -> list[str]:
        """Return commands that the user can try while everything is kept running."""
        return [
            *self.kubectl("tenants,tcplb", "services,pods"),
            *(
                f"  curl http://{traffic.host}:{traffic.port}/          # {name}"
                for name, traffic in self.traffics.items()
            ),
        ]


async def give_addresses(context: MembersContext) -> None:
    """Create a Service in each member and wait for its address."""
    context.progress.step_started("a Service of type LoadBalancer in each member waits for its address")
    for name, member in context.fleet.members.items():
        workload = Workload(cluster=member.cluster, service="web", directory=context.fleet.directory)
        context.workloads[name] = workload
        host = member.host("web")
        await member.node(host.node, f"{member.network}.1")
        for _ in range(REPLICAS):
            await workload.start_pod(host)
        port = {"port": service_port(80), "targetPort": POD_PORT}
        await member.service("web", port, selector={"app": "web"})
    facts: list[str] = []
    for name, member in context.fleet.members.items():
        address = await member.address("web")
        context.traffics[_title(name)] = Traffic(host=address)
        ports = (await member.get("web")).spec.ports or ()
        port_texts = ",".join(f"{port.port}:{port.node_port}/{port.protocol}" for port in ports)
        facts.append(f"{name}: NAME web   TYPE LoadBalancer   EXTERNAL-IP {address}   PORT(S) {port_texts}")
    context.progress.step_done("both Services have an address", *facts)


async def reach_every_backend(context: MembersContext) -> None:
    """Send traffic until every pod has answered."""
    context.progress.step_started("traffic flows")
    for traffic in context.traffics.values():
        traffic.start()
    await context.every_pod_answers(context.pods)
    answers = [
        f"{name}: " + ", ".join(f"{pod} {number}" for pod, number in sorted(traffic.count.by_pod.items()))
        for name, traffic in context.traffics.items()
    ]
    context.progress.step_done("traffic reaches every backend", *answers)


async def roll_pods(context: MembersContext) -> None:
    """Replace every pod of both members, gracefully."""
    await context.roll_pods(f"{REPLICAS} pods of each member")


async def kill_pod(context: MembersContext) -> None:
    """Kill a pod of the west with SIGKILL."""
    context.progress.step_started("a pod is killed with SIGKILL")
    workload = context.workloads["west"]
    traffic = context.traffics[_title("west")]
    victim = workload.pods[0]
    sent = traffic.count.sent
    with traffic.pod_dies():
        await victim.child.kill()

    async def enough_after() -> bool:
        return traffic.count.sent - sent >= _SENT_AFTER_KILL

    # No EndpointSlice has changed yet: only Envoy's health check keeps traffic away from the dead pod.
    await wait_until(enough_after, "traffic flows on")
    unaware = traffic.count.sent - sent
    await workload.forget(victim)
    await workload.start_pod(victim.host)
    await context.every_pod_answers(context.pods)
    context.check_traffic("after a pod was killed")
    context.progress.step_done(
        f"{victim.name} was killed with SIGKILL, and no new connection failed",
        f"{unaware} requests were sent before the member noticed; {traffic.count.lost} were under way on the pod "
        "and died with it",
    )


async def kill_control_plane(context: MembersContext) -> None:
    """Kill hub and agents with SIGKILL under load and restart them; check that nothing was changed."""
    await context.survive_control_plane(lambda: _services(context), "Services")


async def delete_while_agent_is_down(context: MembersContext) -> None:
    """Delete a Service while its agent is down; check that it is removed at the hub after the agent restarts."""
    context.progress.step_started("a Service is deleted while its agent is down")
    member = context.fleet.members["east"]
    closed = service_port(81)
    await member.service("shop", {"port": closed, "targetPort": POD_PORT}, selector={"app": "shop"})
    address = await member.address("shop")
    await member.agent.kill()
    await member.delete("shop")
    if await context.fleet.at_hub("east", "default.shop") is None:
        raise ExpectationFailed("the load balancer of a Service was gone before its agent could know")
    await member.agent.start()
    await context.fleet.gone("east", "default.shop")

    async def refused() -> bool:
        return await refuses(asyncio.open_connection, address, closed)

    await wait_until(refused, f"nothing listens at {address}:{closed} now")
    context.check_traffic("while the other Service was removed")
    context.progress.step_done(
        "a Service deleted while its agent was down was cleaned up when it came back", f"{address} is free"
    )


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


async def _services(context: MembersContext) -> dict[str, tuple[str, str]]:
    """Return (resourceVersion, address) of every user's Service; any write changes the resourceVersion."""
    return {
        name: ((await member.get("web")).metadata.resource_version, await member.address("web"))
        for name, member in context.fleet.members.items()
    }
