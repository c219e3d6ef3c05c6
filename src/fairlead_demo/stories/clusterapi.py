"""A cluster of Cluster API: an endpoint before the first machine, a rolling replacement, a disabled and a dead machine.

In: a ``MachinesContext``. Out: lines of progress; ``ExpectationFailed`` with one sentence when a check fails.
"""

from __future__ import annotations

from rich.console import Console

from fairlead.api.clusterapi import MARKER_DISABLED
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.errors import NotFound
from fairlead_demo.stories.context import StoryContext
from fairlead_demo.worlds.https_client import HttpsClient
from fairlead_demo.worlds.machines import API_PORT, HOST, NAME, ManagementWorld
from fairlead_demo.worlds.processes import ExpectationFailed, wait_until
from fairlead_demo.worlds.traffic import Traffic

MEMBERS = 3


class MachinesContext(StoryContext):
    """The management cluster, and the load on the endpoint of its workload cluster."""

    def __init__(self, *, world: ManagementWorld, console: Console, plain: bool) -> None:
        super().__init__(console=console, plain=plain)
        self.world = world
        self.endpoint = ""

    def ending(self, *, passed: bool) -> str:
        """Return the suffix of the summary: what was checked in addition to failed requests."""
        return ", no hook or finalizer left on a machine" if passed else ""

    @property
    def traffic(self) -> Traffic:
        """Return the load on the endpoint."""
        return self.traffics[NAME]

    async def close(self) -> None:
        """End traffic and processes."""
        await self.stop_traffic()
        await self.world.close()

    async def answers_from(self, *names: str) -> None:
        """Wait until each of these machines has answered a request that was sent after this call."""
        await self.every_pod_answers(lambda: [(NAME, name) for name in names])


async def start_everything(context: MachinesContext) -> None:
    """Start a management cluster."""
    context.progress.step_started(
        "starting a management cluster with Cluster API's kinds, a hub with its Envoy, and the controller"
    )
    await context.world.start()
    context.progress.step_done("a management cluster runs", "no machines and no endpoint yet")


async def publish_the_endpoint(context: MachinesContext) -> None:
    """Create a Cluster and its LoadBalancer."""
    context.progress.step_started("a Cluster waits for its endpoint")
    context.endpoint = await context.world.create_cluster()
    context.progress.step_done(
        "the Cluster has its endpoint before its first machine",
        f"Cluster {NAME}   spec.controlPlaneEndpoint {context.endpoint}:{API_PORT}   0 members",
    )


async def start_machines(context: MachinesContext) -> None:
    """Start the control plane, and begin to send requests continuously."""
    context.progress.step_started(f"{MEMBERS} control-plane machines start, and are checked over HTTPS at /readyz")
    world = context.world
    for _ in range(MEMBERS):
        await world.start_machine()
    names = list(world.machines)
    await world.until_active(*names)
    connect = HttpsClient(HOST, world.authority).connect
    traffic = context.traffics[NAME] = Traffic(host=context.endpoint, port=API_PORT, connect=connect, new_per_s=30.0)
    traffic.start()
    await context.answers_from(*names)
    context.check_traffic("at first")
    context.progress.step_done("every machine answers at the endpoint", ", ".join(names))


async def disable_a_machine(context: MachinesContext) -> None:
    """Disable one machine by annotation, and enable it again."""
    world = context.world
    name = next(iter(world.machines))
    others = [machine for machine in world.machines if machine != name]
    context.progress.step_started(f"{name} is disabled by annotation")
    await world.annotate(name, {MARKER_DISABLED: "maintenance"})

    async def disabled() -> bool:
        members = (await world.load_balancer()).status.members or ()
        return any(member.name == name and member.state == "disabled" for member in members)

    await wait_until(disabled, f"{name} is disabled")
    await context.answers_from(*others)
    if await world.new_connections_reach(context.endpoint, name):
        raise ExpectationFailed(f"{name} is disabled, and still gets new connections")
    await world.annotate(name, {MARKER_DISABLED: None})
    await world.until_active(*world.machines)
    await context.answers_from(*world.machines)
    context.check_traffic("while a machine was disabled")
    context.progress.step_done(f"{name} was out while it was disabled, and is back", "no request failed")


async def replace_every_machine(context: MachinesContext) -> None:
    """Replace all machines, one by one; the hub is killed meanwhile."""
    world = context.world
    held: list[float] = []
    for number, old in enumerate(list(world.machines)):
        context.progress.step_started(f"{old} is replaced")
        await world.start_machine()
        await world.until_active(*world.machines)
        if number == 1:
            await world.hub.kill()
            await world.hub.start_ready()
        held.append(await world.delete_machine(old))
        context.check_traffic(f"while {old} was replaced")
    await context.answers_from(*world.machines)
    context.progress.step_done(
        "every machine was replaced, the hub was killed meanwhile, and no request failed",
        f"each deleted machine was held for {min(held):.1f} to {max(held):.1f} s: until no connection could reach it",
    )


async def lose_a_machine(context: MachinesContext) -> None:
    """Kill a machine: the health check alone removes it from the load balancer."""
    world = context.world
    name = next(iter(world.machines))
    context.progress.step_started(f"{name} dies without notice")
    with context.traffic.pod_dies():
        await world.machines[name].child.kill()

        async def noticed() -> bool:
            return (await world.load_balancer()).status.active_targets == MEMBERS - 1

        await wait_until(noticed, f"{name} is seen to be dead")
    await world.start_machine()
    await world.delete_machine(name)
    await world.until_active(*world.machines)
    await context.answers_from(*world.machines)
    context.check_traffic("after a machine had died")
    context.progress.step_done(f"{name} died, was taken out by its health check, and was replaced")


async def delete_the_load_balancer(context: MachinesContext) -> None:
    """Delete the LoadBalancer; check that no hook or finalizer of it is left."""
    world = context.world
    await context.stop_traffic()
    context.progress.step_started("the LoadBalancer is deleted")
    await world.cluster.delete(LOAD_BALANCERS, "default", NAME)

    async def load_balancer_gone() -> bool:
        try:
            await world.load_balancer()
        except NotFound:
            return True
        return False

    await wait_until(load_balancer_gone, "the LoadBalancer is gone")
    if marks := await world.marks():
        raise ExpectationFailed(f"hooks or finalizers of Fairlead are left on machines: {marks}")
    context.progress.step_done("the LoadBalancer is gone, and no hook or finalizer of it is left on any machine")


STEPS = (
    start_everything,
    publish_the_endpoint,
    start_machines,
    disable_a_machine,
    replace_every_machine,
    lose_a_machine,
    delete_the_load_balancer,
)
