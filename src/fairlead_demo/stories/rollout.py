"""Rollouts under load, with the readiness gate and without: what a Deployment does, and how many requests fail.

In: a ``RolloutContext``. Out: lines of progress, and a table of both rollouts. Pods of both members are ready some
seconds before a proxy reaches them, as in slow networks. Without the gate the old pods are gone by then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from fairlead_demo.stories.context import FleetContext, start_everything
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.processes import ExpectationFailed, wait_until
from fairlead_demo.worlds.traffic import Traffic
from fairlead_demo.worlds.workload import POD_PORT, Workload

REPLICAS, VERSIONS = 3, 10
#: How long after its kubelet a proxy reaches a new pod.
REACHED_AFTER_S = 2.0
#: Requests per second: on connections of their own, and on kept ones.
_NEW_PER_S, _KEPT, _KEPT_PER_S = 100.0, 20, 20.0
#: The members, by whether their pods have the gate.
_GATED = {"east": True, "west": False}


class RolloutContext(FleetContext):
    """The context of this demo: the Service ``web`` of each member; ``took_s`` is how long each rollout took."""

    def __init__(self, *, fleet: Fleet, apis: EmbeddedApis, console: Console, plain: bool) -> None:
        super().__init__(fleet=fleet, apis=apis, console=console, plain=plain)
        self.took_s: dict[str, float] = {}
        self.versions = VERSIONS

    def pods(self) -> Iterator[tuple[str, str]]:
        """Yield (title of its traffic, name) of every pod."""
        return ((title(name), pod.name) for name, workload in self.workloads.items() for pod in workload.pods)

    def failures(self) -> list[str]:
        """Return one sentence if requests failed although pods have the gate."""
        count = self.traffics[title("east")].count if title("east") in self.traffics else None
        if count is None or not count.failed:
            return []
        return [f"{title('east')}: {count.failed} requests failed ({'; '.join(count.failures)})"]

    def table(self) -> Table | None:
        """Return the table of both rollouts; None before the first one."""
        if not self.took_s:
            return None
        table = Table("member", "readiness gate", "rollout", "requests", "failed", title="Rollouts under load")
        for member, took_s in self.took_s.items():
            count = self.traffics[title(member)].count
            rollout = f"{self.versions} versions x {REPLICAS} pods in {took_s:.0f} s"
            table.add_row(member, "yes" if _GATED[member] else "no", rollout, f"{count.sent}", f"{count.failed}")
        return table

    def ending(self, *, passed: bool) -> str:
        """Return the suffix of the summary: requests may fail in the rollout without the gate."""
        del passed
        return " (without the gate only)"


async def give_addresses(context: RolloutContext) -> None:
    """Create a Service with its pods in each member, and wait for its address."""
    context.progress.step_started("a Service of type LoadBalancer in each member waits for its address")
    facts: list[str] = []
    for name, member in context.fleet.members.items():
        workload = Workload(
            cluster=member.cluster,
            service="web",
            directory=context.fleet.directory,
            gated=_GATED[name],
            reached_after_s=REACHED_AFTER_S,
        )
        context.workloads[name] = workload
        host = member.host("web")
        await member.node(host.node, f"{member.network}.1")
        await member.service("web", {"port": service_port(80), "targetPort": POD_PORT}, selector={"app": "web"})
        address = await member.address("web")
        await asyncio.gather(*(workload.start_pod(host) for _ in range(REPLICAS)))
        context.traffics[title(name)] = Traffic(host=address, new_per_s=_NEW_PER_S, kept=_KEPT, kept_per_s=_KEPT_PER_S)
        facts.append(f"{name}: {address}, pods {'with' if _GATED[name] else 'without'} the readiness gate")
    context.progress.step_done("both Services have an address, and their pods are ready", *facts)


async def roll_with_gate(context: RolloutContext) -> None:
    """Roll out all versions where pods have the gate; no request may fail."""
    await _roll(context, "east")
    context.check_traffic("in the rollout with the readiness gate")
    context.progress.step_done("no request failed: the rollout waited for the proxies")


async def roll_without_gate(context: RolloutContext) -> None:
    """Roll out the same where pods do not have the gate; requests fail, or the demo shows nothing."""
    await _roll(context, "west")
    failed = context.traffics[title("west")].count.failed
    if not failed:
        raise ExpectationFailed("no request failed without the readiness gate, so this demo shows no difference")
    context.progress.step_done(f"{failed} requests failed: old pods went before the proxies reached the new ones")


STEPS = (start_everything, give_addresses, roll_with_gate, roll_without_gate)


def title(member: str) -> str:
    """Return the title of the traffic of a member."""
    return f"{member} default/web"


async def _roll(context: RolloutContext, member: str) -> None:
    """Replace all pods once for each version, as a Deployment with maxUnavailable 0 and maxSurge 1."""
    workload, traffic = context.workloads[member], context.traffics[title(member)]
    gate = "with" if _GATED[member] else "without"
    context.progress.step_started(f"{context.versions} versions are rolled out {gate} the readiness gate")
    await wait_until(traffic.is_answered, f"{member} answers")
    traffic.start()
    started_s = time.monotonic()
    async with asyncio.TaskGroup() as leaving:
        for _ in range(context.versions):
            for old in [pod for pod in workload.pods if not pod.terminating]:
                await workload.start_pod(old.host)
                old.terminating = True
                leaving.create_task(workload.retire_pod(old))
    context.took_s[member] = time.monotonic() - started_s
    await traffic.stop()
