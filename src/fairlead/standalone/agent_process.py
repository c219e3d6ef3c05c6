"""How does an agent run as a process? Both APIs are looked at once, so that a wrong address or key is a sentence.

After that the agent itself waits for whatever is missing; whoever starts it again after exit code 3 loses nothing. Its
name is kept on this machine, so that one that was killed leads again at once.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from fairlead.agent.config import AgentConfig
from fairlead.agent.process import run_agent
from fairlead.kube.cluster import Cluster
from fairlead.standalone.first_calls import FIRST_CALLS
from fairlead.standalone.identity import claim_for


async def run_agent_process(config: AgentConfig, *, data_dir: Path | None = None) -> None:
    """Run an agent until it is told to stop; without ``data_dir`` its name is kept in the usual place.

    Raises:
        Unreachable: one of the two APIs does not answer.
        Unauthorized: one of them does not know us.
    """
    servers: list[str] = []
    sides = (("the member", config.member_kubeconfig), ("the hub", config.hub_kubeconfig))
    for name, kubeconfig in sides:
        async with Cluster.from_kubeconfig(kubeconfig, name=name, policy=FIRST_CALLS) as cluster:
            # Reviews are for everybody who is signed in; /version answers strangers too, and would not tell.
            await cluster.can_i("list", "", "services", cluster.namespace)
            servers.append(cluster.server)
    if config.identity:
        await run_agent(config)
        return
    # The member's agents meet in the member.
    with claim_for(f"agent-{config.tenant}", servers[0], data_dir=data_dir) as claim:
        await run_agent(msgspec.structs.replace(config, identity=claim.identity, reclaim_lease=claim.lock is not None))
