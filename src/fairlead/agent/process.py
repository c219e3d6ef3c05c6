"""An agent as a process: clusters, the agent and its status page, until a signal.

In: settings. Never: decides anything.
"""

from __future__ import annotations

from fairlead.agent.app import Agent
from fairlead.agent.config import AgentConfig
from fairlead.kube.cluster import Cluster
from fairlead.runtime.supervisor import Supervisor
from fairlead.runtime.telemetry import StatusServer

_QPS, _BURST = 1000.0, 2000


async def run_agent(config: AgentConfig) -> None:
    """Run one agent as this process, until SIGTERM or SIGINT.

    Raises:
        BadConfiguration: a setting, a kubeconfig or an address is wrong.
    """
    config.check()
    member = Cluster.from_kubeconfig(
        config.member_kubeconfig, context=config.member_context, name="the member", qps=_QPS, burst=_BURST
    )
    hub = Cluster.from_kubeconfig(
        config.hub_kubeconfig, context=config.hub_context, name="the hub", qps=_QPS, burst=_BURST
    )
    async with member, hub:
        agent = Agent(member=member, hub=hub, config=config)
        supervisor = Supervisor()
        if config.status_listen:
            host, port = config.status_address()
            server = StatusServer(host, port, agent.registry, agent.readiness)
            supervisor.spawn("status", server.run)
        supervisor.spawn("agent", agent.run)
        await supervisor.run_until_stopped()
