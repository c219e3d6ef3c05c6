"""Run an agent as a process: both APIs are checked first, so that a wrong address or key is one sentence.

After that the agent itself waits for what is missing, and may be started again after exit code 3. Its name is kept on
this machine, so that an agent that was killed leads again at once.
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
    """Run an agent until SIGTERM; without ``data_dir`` its name is kept in ``STATE_DIR``.

    Raises:
        Unreachable: one of the two APIs does not answer.
        Unauthorized: one of them does not accept our credentials.
    """
    servers: list[str] = []
    sides = (("the member", config.member_kubeconfig), ("the hub", config.hub_kubeconfig))
    for name, kubeconfig in sides:
        async with Cluster.from_kubeconfig(kubeconfig, name=name, policy=FIRST_CALLS) as cluster:
            # A review needs a sign-in; /version answers without one, and would not show a wrong token.
            await cluster.can_i("list", "", "services", cluster.namespace)
            servers.append(cluster.server)
    if config.identity:
        await run_agent(config)
        return
    # The member's agents meet in the member.
    with claim_for(f"agent-{config.tenant}", servers[0], data_dir=data_dir) as claim:
        await run_agent(msgspec.structs.replace(config, identity=claim.identity, reclaim_lease=claim.lock is not None))
