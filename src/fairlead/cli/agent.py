"""``fairlead agent``: the process that runs for each member cluster and exports its Services to the hub."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import (
    Context,
    Format,
    Identity,
    Level,
    LogFormat,
    LogLevel,
    Metrics,
    StateDir,
    Verbose,
    host_and_port,
    kubeconfig_help,
    start_logging,
)
from fairlead.cli.run import run_async


class CloudLoadBalancer(StrEnum):
    """Whether the member has its own load balancer implementation."""

    PRESENT = "present"
    ABSENT = "absent"


class Target(StrEnum):
    """Where traffic enters the member."""

    NODE = "Node"
    POD = "Pod"


def agent(
    tenant: Annotated[str, typer.Option("--tenant", metavar="NAME", help="The member's Tenant at the hub.")],
    hub_kubeconfig: Annotated[
        Path, typer.Option("--hub-kubeconfig", metavar="FILE", help="The hub, as `fairlead tenant add` wrote it.")
    ],
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", metavar="FILE", help=kubeconfig_help("The member's API"))
    ] = None,
    context: Context = "",
    hub_context: Annotated[
        str,
        typer.Option("--hub-context", metavar="NAME", help="Context of --hub-kubeconfig; default: its current one."),
    ] = "",
    cloud_load_balancer: Annotated[
        CloudLoadBalancer,
        typer.Option(
            "--cloud-load-balancer",
            metavar="WHICH",
            help="present: the member has its own, and Fairlead serves only Services that ask for it. Or absent.",
        ),
    ] = CloudLoadBalancer.ABSENT,
    target: Annotated[
        Target, typer.Option("--target", metavar="Node|Pod", help="Node: each node's nodePort. Pod: pods directly.")
    ] = Target.NODE,
    region: Annotated[str, typer.Option("--region", metavar="NAME", help="Region that the member is in.")] = "",
    identity: Identity = "",
    data_dir: StateDir = None,
    metrics: Metrics = "",
    log_level: Level = LogLevel.INFO,
    log_format: Format = LogFormat.AUTO,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Run the agent of one member: its Services get their addresses from the hub."""
    from fairlead.agent.config import AgentConfig
    from fairlead.standalone.agent_process import run_agent_process

    config = AgentConfig(
        tenant=tenant,
        member_kubeconfig=str(kubeconfig) if kubeconfig else None,
        member_context=context,
        hub_kubeconfig=str(hub_kubeconfig),
        hub_context=hub_context,
        region=region,
        cloud_load_balancer=cloud_load_balancer.value,
        target=target.value,
        identity=identity,
        metrics=host_and_port(metrics, "--metrics") if metrics else None,
    )
    config.check()
    start_logging(log_level, log_format)
    run_async(lambda: run_agent_process(config, data_dir=data_dir))
