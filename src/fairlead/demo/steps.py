"""What does the demo show, one step after the other? Each acts, waits for what is promised, and checks that it is so.

In: a running ``World`` and its traffic. Out: lines of the show; ``StepFailed`` with one sentence for a broken promise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from fairlead.api.kubernetes import SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.demo.pods import Workload
from fairlead.demo.process import StepFailed, wait_until
from fairlead.demo.show import Show
from fairlead.demo.traffic import Traffic
from fairlead.demo.world import World
from fairlead.kube.cluster import Cluster

REPLICAS = 3
_OUTAGE_S = 4.0
_EVERY_POD_S = 20.0


class Stage(msgspec.Struct):
    """What the steps work on: workloads and traffic by member."""

    world: World
    show: Show
    traffics: dict[str, Traffic]
    workloads: dict[str, Workload] = msgspec.field(default_factory=dict[str, Workload])

    @property
    def cluster(self) -> Cluster:
        """Return the hub's API."""
        if self.world.cluster is None:
            raise StepFailed("the hub has not been started")
        return self.world.cluster

    def failures(self) -> list[str]:
        """Return what has gone wrong with requests so far."""
        return [
            f"{name}: {traffic.count.failed} requests failed ({'; '.join(traffic.count.failures)})"
            for name, traffic in self.traffics.items()
            if traffic.count.failed
        ]


async def start_everything(stage: Stage) -> None:
    """Start a hub and two members."""
    stage.show.doing("starting a hub, Envoy and two member clusters")
    await stage.world.start()
    names = ", ".join(f"{child.name} {child.pid}" for child in stage.world.processes())
    stage.show.done("a hub and two members run, each with its own API", f"processes: {names}")


async def give_addresses(stage: Stage) -> None:
    """Create a Service in each member and wait for its address."""
    stage.show.doing("a Service of type LoadBalancer in each member waits for its address")
    for name, member in stage.world.members.items():
        workload = stage.workloads[name] = member.workload("web")
        await workload.create(REPLICAS)
    facts: list[str] = []
    for name, workload in stage.workloads.items():
        await wait_until(workload.address, f"the Service of {name} gets an address")
        address = await workload.address()
        stage.traffics[f"{name} default/web"] = Traffic(host=address)
        ports = (await workload.service()).spec.ports or ()
        shown = ",".join(f"{port.port}:{port.node_port}/{port.protocol}" for port in ports)
        facts.append(f"{name}: NAME web   TYPE LoadBalancer   EXTERNAL-IP {address}   PORT(S) {shown}")
    stage.show.done("both Services have an address", *facts)


async def reach_every_backend(stage: Stage) -> None:
    """Send traffic until every pod has answered."""
    stage.show.doing("traffic flows")
    for traffic in stage.traffics.values():
        traffic.start()
    await _every_pod_answers(stage)
    stage.show.done("traffic reaches every backend", *_answers(stage))


async def roll_pods(stage: Stage) -> None:
    """Replace every pod of both members, gracefully."""
    stage.show.doing("all pods are replaced, one by one: not ready, drained, stopped")
    before = _lost(stage)
    await asyncio.gather(*(workload.roll() for workload in stage.workloads.values()))
    await _every_pod_answers(stage)
    _no_failures(stage, "while pods were rolled")
    if _lost(stage) != before or _cut(stage):
        raise StepFailed(f"rolling pods broke connections: {_cut(stage)} cut, {_lost(stage) - before} lost")
    stage.show.done(f"{REPLICAS} pods of each member were replaced, and no request failed")


async def kill_pod(stage: Stage) -> None:
    """Kill a pod of the west with SIGKILL."""
    stage.show.doing("a pod dies without a word")
    workload = stage.workloads["west"]
    traffic = next(one for name, one in stage.traffics.items() if name.startswith("west"))
    victim = workload.pods[0]
    sent = traffic.count.sent
    traffic.pod_killed()
    await victim.child.kill()

    async def enough_after() -> bool:
        return traffic.count.sent - sent >= 60

    # The cluster knows nothing yet: what keeps traffic away from the dead pod is Envoy alone.
    await wait_until(enough_after, "traffic flows on")
    unaware = traffic.count.sent - sent
    await workload.forget(victim)
    await workload.start_pod()
    await _every_pod_answers(stage)
    _no_failures(stage, "after a pod was killed")
    stage.show.done(
        f"{victim.name} was killed with SIGKILL, and no new connection failed",
        f"{unaware} requests were sent before the member noticed; {traffic.count.lost} were under way on the pod "
        "and died with it",
    )


async def kill_control_plane(stage: Stage) -> None:
    """Kill hub and agents with SIGKILL while traffic flows; bring them back; look for any difference."""
    stage.show.doing("hub and agents are killed with -9 while traffic flows")
    world = stage.world
    await _drained(stage)
    before = await _services(stage)
    cut = _cut(stage)
    victims = [world.hub, *(member.agent for member in world.members.values())]
    await asyncio.gather(*(child.kill() for child in victims))
    sent = sum(traffic.count.sent for traffic in stage.traffics.values())
    await asyncio.sleep(_OUTAGE_S)
    alone = sum(traffic.count.sent for traffic in stage.traffics.values()) - sent
    _no_failures(stage, "while hub and agents were dead")
    stage.show.doing("hub and agents come back, and should change nothing")
    await world.start_hub()
    await asyncio.gather(*(member.agent.start() for member in world.members.values()))
    await _settled(stage)
    changed = await world.metric("fairlead_xds_changing_pushes_total")
    after = await _services(stage)
    if changed:
        raise StepFailed(f"the restarted hub changed something at Envoy ({changed:g} pushes)")
    if after != before:
        raise StepFailed(f"the restart touched the users' Services: {before} became {after}")
    _no_failures(stage, "after hub and agents came back")
    if _cut(stage) != cut:
        raise StepFailed(f"{_cut(stage) - cut} kept connections were cut by the restart")
    stage.show.done(
        "hub and agents were killed with -9, came back, and changed nothing",
        f"{alone} requests answered meanwhile; 0 changed xDS resources, 0 cut connections, "
        "0 writes to users' Services, the same addresses",
    )


async def delete_while_agent_is_down(stage: Stage) -> None:
    """Delete a Service while the agent of its member is dead; it is cleaned up when the agent is back."""
    stage.show.doing("a Service is deleted while its agent is down")
    member = stage.world.members["east"]
    extra = member.workload("shop", port=81)
    await extra.create(0)
    await wait_until(extra.address, "the second Service of east gets an address")
    address = await extra.address()
    await member.agent.kill()
    await extra.delete_service()
    if not await _at_hub(stage, "default.shop"):
        raise StepFailed("the load balancer of a Service was gone before its agent could know")
    await member.agent.start()

    async def gone() -> bool:
        return not await _at_hub(stage, "default.shop")

    await wait_until(gone, "the load balancer of the deleted Service is removed")

    async def refused() -> bool:
        try:
            _, writer = await asyncio.open_connection(address, 81)
        except OSError:
            return True
        writer.close()
        return False

    await wait_until(refused, f"nobody listens at {address}:81 any more")
    _no_failures(stage, "while the other Service was removed")
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


async def _every_pod_answers(stage: Stage) -> None:
    """Wait until every pod of now has answered something since now."""
    start = {name: traffic.count.by_pod.copy() for name, traffic in stage.traffics.items()}

    async def all_answered() -> bool:
        return all(
            all(traffic.count.by_pod[pod.name] > start[name][pod.name] for pod in workload.pods)
            for (name, traffic), workload in zip(stage.traffics.items(), stage.workloads.values(), strict=True)
        )

    await wait_until(all_answered, "every pod answers", timeout_s=_EVERY_POD_S)


async def _drained(stage: Stage) -> None:
    """Wait until Envoy has exactly the pods of now: what is still draining would end with the hub that drains it."""
    pods = {pod.address for workload in stage.workloads.values() for pod in workload.pods}

    async def exactly() -> bool:
        return await stage.world.hosts() == pods

    await wait_until(exactly, "the targets of the old pods are gone")


async def _settled(stage: Stage) -> None:
    """Wait until the agents have been heard again, and Envoy has acknowledged all that the hub has to say."""
    started: Mapping[str, str | None] = await _renewals(stage)

    async def heard_again() -> bool:
        now = await _renewals(stage)
        return all(now[name] != started[name] for name in now)

    await wait_until(heard_again, "both agents are back")


async def _renewals(stage: Stage) -> dict[str, str | None]:
    from fairlead.api.kubernetes import LEASES
    from fairlead.api.names import AGENT_LEASE

    found = await stage.cluster.list(LEASES, field_selector=f"metadata.name={AGENT_LEASE}")
    return {one.metadata.namespace: one.spec.renew_time for one in found}


async def _services(stage: Stage) -> dict[str, tuple[str, str]]:
    """Return version and address of every user's Service: any write changes the version."""
    found: dict[str, tuple[str, str]] = {}
    for name, workload in stage.workloads.items():
        member = stage.world.members[name].cluster
        if member is None:
            continue
        service = await member.get(SERVICES, "default", workload.name)
        found[name] = (service.metadata.resource_version, await workload.address())
    return found


async def _at_hub(stage: Stage, name: str) -> bool:
    return any(one.metadata.name == name for one in await stage.cluster.list(TCP_LOAD_BALANCERS))


def _answers(stage: Stage) -> list[str]:
    return [
        f"{name}: " + ", ".join(f"{pod} {number}" for pod, number in sorted(traffic.count.by_pod.items()))
        for name, traffic in stage.traffics.items()
    ]


def _lost(stage: Stage) -> int:
    return sum(traffic.count.lost for traffic in stage.traffics.values())


def _cut(stage: Stage) -> int:
    return sum(traffic.count.cut for traffic in stage.traffics.values())


def _no_failures(stage: Stage, when: str) -> None:
    if failures := stage.failures():
        raise StepFailed(f"requests failed {when}: {'; '.join(failures)}")
