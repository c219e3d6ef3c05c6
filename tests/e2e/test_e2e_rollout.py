"""Rollouts under load, with and without the pod readiness gate, and gates whose hub is gone."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from fairlead.api.kubernetes import PODS
from fairlead.api.names import ANNOTATION_DRAIN, CONDITION_SERVING
from fairlead_demo.run import run_story
from fairlead_demo.stories import rollout
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.loopback import service_port
from fairlead_demo.worlds.processes import wait_until
from fairlead_demo.worlds.workload import POD_PORT
from tests.e2e.conftest import working_directory

pytestmark = [pytest.mark.envoy, pytest.mark.slow]


@pytest.mark.req("F-1", "F-3", "F-4")
async def test_a_rollout_fails_requests_only_without_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer versions and requests than in the demo, which needs minutes."""
    monkeypatch.setattr(rollout, "_NEW_PER_S", 40.0)
    monkeypatch.setattr(rollout, "_KEPT_PER_S", 5.0)
    with working_directory() as directory:
        context = made(directory)
        context.versions = 2
        try:
            assert await run_story(context, rollout.STEPS)
            with_gate, without = (context.traffics[rollout.title(name)].count for name in ("east", "west"))
            assert with_gate.answered > 100
            assert (with_gate.failed, without.failed > 0) == (0, True)
            pods = await context.fleet.members["east"].cluster.list(PODS, "default")
            assert all(pod.is_open(CONDITION_SERVING) for pod in pods)
            if os.geteuid() == 0:
                await drains_in_time(context)
        finally:
            await context.close()


async def drains_in_time(context: rollout.RolloutContext) -> None:
    """Have a pod terminate that a client is connected to, and check that its connection is closed in time."""
    member, workload = context.fleet.members["west"], context.workloads["west"]
    port = {"port": service_port(80), "targetPort": POD_PORT}
    await member.service("web", port, annotations={ANNOTATION_DRAIN: "8s"}, selector={"app": "web"})

    async def accepted() -> bool:
        obj = await context.fleet.at_hub("west", "default.web")
        return obj is not None and obj.status.accepted is not None and obj.status.accepted.drain == "8s"

    await wait_until(accepted, "the drain time is accepted")
    leaving, *others = workload.pods
    for pod in others:
        await workload.retire_pod(pod)
    await wait_until(context.traffics[rollout.title("west")].is_answered, "the pod answers")
    reader, writer = await asyncio.open_connection(await member.address("web"), service_port(80))
    writer.write(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n")
    await workload.start_pod(leaving.host)
    leaving.terminating = True
    await workload.publish()

    async def shown() -> bool:
        obj = await context.fleet.at_hub("west", "default.web")
        return obj is not None and obj.status.draining is not None and obj.status.draining.connections == 1

    await wait_until(shown, "the status shows the connection that drains")
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(180):
            await reader.read()
    writer.close()
    assert leaving.child.running

    async def over() -> bool:
        obj = await context.fleet.at_hub("west", "default.web")
        return obj is not None and obj.status.draining is None

    await wait_until(over, "nothing drains any longer")


def made(directory: Path) -> rollout.RolloutContext:
    apis = EmbeddedApis(directory, ("hub", "east", "west"))
    fleet = Fleet(
        apis=apis,
        directory=directory,
        members={"east": "Pod", "west": "Pod"},
        drain="3s",
        agent_options=("--readiness-gates",),
    )
    return rollout.RolloutContext(fleet=fleet, apis=apis, console=Console(file=io.StringIO()), plain=True)
