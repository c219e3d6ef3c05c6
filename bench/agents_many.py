"""Many agents in one process: ``python -m bench.agents_many DIRECTORY FIRST END``.

Each is the agent that ``fairlead agent`` runs, with connections of its own to its member (``DIRECTORY/member-N``) and
to the hub (``DIRECTORY/hub-N``). The socket ``DIRECTORY/agents-FIRST`` answers a line with a time, in seconds of the
machine's monotonic clock, with the number of agents that have heard the hub since on every watch, without a problem.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

from fairlead.agent.app import Agent
from fairlead.agent.config import AgentConfig
from fairlead.cli.run import run_async
from fairlead.kube.cluster import CONTROLLER_QPS, Cluster
from fairlead.runtime.logs import configure_logging


def _agent(directory: Path, number: int) -> Agent:
    """Return an agent as ``fairlead agent`` makes it: its name is kept over a restart, so it leads again at once."""
    clusters = [
        Cluster.from_kubeconfig(directory / f"{side}-{number}", name=f"the {side}", qps=CONTROLLER_QPS)
        for side in ("member", "hub")
    ]
    config = AgentConfig(tenant=f"m-{number}", target="Pod", identity=f"agent-{number}", reclaim_lease=True)
    return Agent(member=clusters[0], hub=clusters[1], config=config)


def _heard(agent: Agent, since_s: float) -> bool:
    """Say whether every cache of the hub has been heard since, on a watch that works."""
    silent_s = time.monotonic() - since_s
    caches = (*agent.caches.of_hub, *agent.http.of_hub)
    return all(cache.synced and not cache.problem and cache.age_s < silent_s for cache in caches)


async def main(directory: Path, first: int, end: int) -> None:
    """Run the agents until killed."""
    configure_logging("warning")
    async with AsyncExitStack() as stack:
        agents = [_agent(directory, number) for number in range(first, end)]
        for agent in agents:
            await stack.enter_async_context(agent.member)
            await stack.enter_async_context(agent.hub)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            since_s = float(await reader.readline())
            writer.write(str(sum(_heard(agent, since_s) for agent in agents)).encode())
            await writer.drain()
            writer.close()

        await asyncio.start_unix_server(answer, directory / f"agents-{first}")
        async with asyncio.TaskGroup() as group:
            for agent in agents:
                group.create_task(agent.run())


if __name__ == "__main__":
    run_async(lambda: main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
