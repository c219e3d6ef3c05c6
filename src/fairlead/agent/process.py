"""An agent as a process: clusters, the agent and its status page, until a signal.

In: settings. Never: decides anything.
"""

from __future__ import annotations

from fairlead.agent.app import Agent
from fairlead.agent.config import AgentConfig
from fairlead.kube.cluster import CONTROLLER_QPS, Cluster
from fairlead.runtime.background import Supervisor
from fairlead.runtime.telemetry import StatusServer


async def run_agent(config: AgentConfig) -> None:
    """Run one agent as this process, until SIGTERM or SIGINT.

    Raises:
        BadConfiguration: a setting, a kubeconfig or an address is wrong.
    """
    config.check()
    member = Cluster.from_kubeconfig(
        config.member_kubeconfig, context=config.member_context, name="the member", qps=CONTROLLER_QPS
    )
    hub = Cluster.from_kubeconfig(config.hub_kubeconfig, context=config.hub_context, name="the hub", qps=CONTROLLER_QPS)
    async with member, hub:
        agent = Agent(member=member, hub=hub, config=config)
        supervisor = Supervisor()
        if config.metrics is not None:
            supervisor.spawn("status", StatusServer(*config.metrics, agent.registry, agent.readiness).run)
        supervisor.spawn("agent", agent.run)
        await supervisor.run_until_stopped()
