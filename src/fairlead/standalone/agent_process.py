"""Run an agent as a process.

The process asks both APIs first, so that a wrong address or key is reported in one sentence, and waits for an API that
does not answer. The identity of the agent is stored on this machine, so that a killed agent leads again at once.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from fairlead.agent.app import run_agent
from fairlead.agent.config import AgentConfig
from fairlead.agent.egress import EgressNode
from fairlead.kube.cluster import Cluster, RetryPolicy
from fairlead.runtime.background import Supervisor
from fairlead.standalone.process import FIRST_CALLS, claim_for, wait_for_api
from fairlead.standalone.right_cluster import check_agent_sides


async def run_agent_process(config: AgentConfig, *, data_dir: Path | None = None) -> None:
    """Run an agent until SIGTERM; without ``data_dir`` its name is kept in ``state_dir``.

    Raises:
        Unauthorized: one of them does not accept our credentials.
        BadConfiguration: one of the kubeconfigs is not for that side.
    """
    if not await wait_for_api(lambda: _check_both(config), pages=config.metrics):
        return
    async with _member(config) as member:
        server = member.server
    if config.identity:
        await run_agent(config)
        return
    # The member's agents meet in the member.
    with claim_for(f"agent-{config.tenant}", server, data_dir=data_dir) as claim:
        await run_agent(msgspec.structs.replace(config, identity=claim.identity, reclaim_lease=claim.lock is not None))


async def run_egress_node(node: str, *, kubeconfig: Path | None, context: str) -> None:
    """Send the packets of labelled pods of one node to their machines, until SIGTERM.

    Raises:
        Unauthorized: the API does not accept our credentials.
        BadConfiguration: the kubeconfig is wrong.
    """

    def connect(policy: RetryPolicy | None = None) -> Cluster:
        return Cluster.from_kubeconfig(kubeconfig, context=context, name="the cluster", policy=policy)

    async def check() -> None:
        async with connect(FIRST_CALLS) as cluster:
            await cluster.can_i("list", "", "pods", "")

    if await wait_for_api(check):
        async with connect() as cluster:
            supervisor = Supervisor()
            supervisor.spawn("egress", EgressNode(cluster, node=node).run)
            await supervisor.run_until_stopped()


def _member(config: AgentConfig) -> Cluster:
    return Cluster.from_kubeconfig(
        config.member_kubeconfig, context=config.member_context, name="the member", policy=FIRST_CALLS
    )


async def _check_both(config: AgentConfig) -> None:
    """Ask both APIs whether they know us, and whether they are what they should be."""
    member = _member(config)
    hub = Cluster.from_kubeconfig(config.hub_kubeconfig, context=config.hub_context, name="the hub", policy=FIRST_CALLS)
    config.namespace_at_hub(hub.namespace)
    async with member, hub:
        for cluster in (member, hub):
            # A review needs a sign-in; /version answers without one, and would not show a wrong token.
            await cluster.can_i("list", "", "services", cluster.namespace)
        await check_agent_sides(member, hub, tenant=config.tenant)
