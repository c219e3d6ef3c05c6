"""How does an agent run as a process? Both APIs are looked at once, so that a wrong address or key is a sentence.

After that the agent itself waits for whatever is missing; whoever starts it again after exit code 3 loses nothing.
"""

from __future__ import annotations

from fairlead.agent.app import run_agent
from fairlead.agent.config import AgentConfig
from fairlead.kube.cluster import Cluster
from fairlead.standalone.first_calls import FIRST_CALLS


async def run_agent_process(config: AgentConfig) -> None:
    """Run an agent until it is told to stop.

    Raises:
        Unreachable: one of the two APIs does not answer.
        Unauthorized: one of them does not know us.
    """
    sides = (("the member", config.member_kubeconfig), ("the hub", config.hub_kubeconfig))
    for name, kubeconfig in sides:
        async with Cluster.from_kubeconfig(kubeconfig, name=name, policy=FIRST_CALLS) as cluster:
            # Reviews are for everybody who is signed in; /version answers strangers too, and would not tell.
            await cluster.can_i("list", "", "services", cluster.namespace)
    await run_agent(config)
