"""A cluster of Cluster API: an endpoint before the first machine, a rolling replacement, a disabled and a dead machine.

In: a ``MachinesStage``. Out: lines of the show; ``ExpectationFailed`` with one sentence for a broken promise.
"""

from __future__ import annotations

from rich.console import Console

from fairlead.api.clusterapi import MARKER_DISABLED
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.demo.stories.stage import Stage
from fairlead.errors import NotFound
from fairlead.testing.worlds.https_client import HttpsClient
from fairlead.testing.worlds.machines import API_PORT, HOST, NAME, ManagementWorld
from fairlead.testing.worlds.processes import ExpectationFailed, wait_until
from fairlead.testing.worlds.traffic import Traffic

MEMBERS = 3


class MachinesStage(Stage):
    """One load, on the endpoint of the cluster."""

    def __init__(self, *, world: ManagementWorld, console: Console, plain: bool) -> None:
        super().__init__(console=console, plain=plain)
        self.world = world
        self.endpoint = ""

    def ending(self, *, passed: bool) -> str:
        """Return what else was checked."""
        return ", nothing of ours left on a machine" if passed else ""

    @property
    def traffic(self) -> Traffic:
        """Return the load on the endpoint."""
        return self.traffics[NAME]

    async def close(self) -> None:
        """End traffic and processes."""
        await self.stop_traffic()
        await self.world.close()

    async def answers_from(self, *names: str) -> None:
        """Wait until each of these machines has answered something since now."""
        await self.every_pod_answers(lambda: [(NAME, name) for name in names])


async def start_everything(stage: MachinesStage) -> None:
    """Start a management cluster."""
    stage.show.doing("starting a management cluster with Cluster API's kinds, a hub with its Envoy, and the controller")
    await stage.world.start()
    stage.show.done("a management cluster runs", "no machine, no endpoint yet")


async def publish_the_endpoint(stage: MachinesStage) -> None:
    """Create a Cluster and its LoadBalancer."""
    stage.show.doing("a Cluster waits for its endpoint")
    stage.endpoint = await stage.world.create_cluster()
    stage.show.done(
        "the Cluster has its endpoint before its first machine",
        f"Cluster {NAME}   spec.controlPlaneEndpoint {stage.endpoint}:{API_PORT}   0 members",
    )


async def start_machines(stage: MachinesStage) -> None:
    """Start the control plane; from here on requests are sent without a pause."""
    stage.show.doing(f"{MEMBERS} control-plane machines start, and are checked over HTTPS at /readyz")
    world = stage.world
    for _ in range(MEMBERS):
        await world.start_machine()
    names = list(world.machines)
    await world.until_active(*names)
    connect = HttpsClient(HOST, world.authority).connect
    traffic = stage.traffics[NAME] = Traffic(host=stage.endpoint, port=API_PORT, connect=connect, new_per_s=30.0)
    traffic.start()
    await stage.answers_from(*names)
    stage.check_traffic("at first")
    stage.show.done("every machine answers at the endpoint", ", ".join(names))


async def disable_a_machine(stage: MachinesStage) -> None:
    """Take one machine out, and back in."""
    world = stage.world
    name = next(iter(world.machines))
    others = [each for each in world.machines if each != name]
    stage.show.doing(f"{name} is disabled by annotation")
    await world.annotate(name, {MARKER_DISABLED: "maintenance"})

    async def disabled() -> bool:
        members = (await world.load_balancer()).status.members or ()
        return any(each.name == name and each.state == "disabled" for each in members)

    await wait_until(disabled, f"{name} is disabled")
    await stage.answers_from(*others)
    if await world.new_connections_reach(stage.endpoint, name):
        raise ExpectationFailed(f"{name} is disabled, and still gets new connections")
    await world.annotate(name, {MARKER_DISABLED: None})
    await world.until_active(*world.machines)
    await stage.answers_from(*world.machines)
    stage.check_traffic("while a machine was disabled")
    stage.show.done(f"{name} was out while it was disabled, and is back", "no request failed")


async def replace_every_machine(stage: MachinesStage) -> None:
    """Replace all machines, one by one; the hub is killed meanwhile."""
    world = stage.world
    held: list[float] = []
    for number, old in enumerate(list(world.machines)):
        stage.show.doing(f"{old} is replaced")
        await world.start_machine()
        await world.until_active(*world.machines)
        if number == 1:
            await world.hub.kill()
            await world.hub.start_ready()
        held.append(await world.delete_machine(old))
        stage.check_traffic(f"while {old} was replaced")
    await stage.answers_from(*world.machines)
    stage.show.done(
        "every machine was replaced, the hub was killed meanwhile, and no request failed",
        f"each deleted machine was held for {min(held):.1f} to {max(held):.1f} s: until no connection could reach it",
    )


async def lose_a_machine(stage: MachinesStage) -> None:
    """Kill a machine: the health check takes it out, nothing else does."""
    world = stage.world
    name = next(iter(world.machines))
    stage.show.doing(f"{name} dies without a word")
    with stage.traffic.pod_dies():
        await world.machines[name].child.kill()

        async def noticed() -> bool:
            return (await world.load_balancer()).status.active_targets == MEMBERS - 1

        await wait_until(noticed, f"{name} is seen to be dead")
    await world.start_machine()
    await world.delete_machine(name)
    await world.until_active(*world.machines)
    await stage.answers_from(*world.machines)
    stage.check_traffic("after a machine had died")
    stage.show.done(f"{name} died, was taken out by its health check, and was replaced")


async def delete_the_load_balancer(stage: MachinesStage) -> None:
    """Delete the LoadBalancer: no hook and no finalizer is left."""
    world = stage.world
    await stage.stop_traffic()
    stage.show.doing("the LoadBalancer is deleted")
    await world.cluster.delete(LOAD_BALANCERS, "default", NAME)

    async def gone() -> bool:
        try:
            await world.load_balancer()
        except NotFound:
            return True
        return False

    await wait_until(gone, "the LoadBalancer is gone")
    if marks := await world.marks():
        raise ExpectationFailed(f"something of ours is left on machines: {marks}")
    stage.show.done("the LoadBalancer is gone, and no hook or finalizer of it is left on any machine")


STEPS = (
    start_everything,
    publish_the_endpoint,
    start_machines,
    disable_a_machine,
    replace_every_machine,
    lose_a_machine,
    delete_the_load_balancer,
)
