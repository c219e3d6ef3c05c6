"""``fairlead run``: one cluster, one command; hub, agent and Envoy on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.agent import CloudLoadBalancer, Target
from fairlead.cli.options import (
    DEFAULT_POOL,
    AddressPool,
    Context,
    Domain,
    Format,
    HubMetrics,
    Level,
    LogFormat,
    LogLevel,
    StopProxy,
    Verbose,
    directory,
    host_and_port,
    kubeconfig_help,
    start_logging,
)
from fairlead.cli.run import run_async

DEFAULT_DIR = Path("~/.local/state/fairlead/run")


def run(
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", metavar="FILE", help=kubeconfig_help("The cluster's API"))
    ] = None,
    context: Context = "",
    address_pool: AddressPool = DEFAULT_POOL,
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir", metavar="DIR", parser=directory, help="Envoy's files and the name of this copy in leases."
        ),
    ] = DEFAULT_DIR,
    target: Annotated[
        Target, typer.Option("--target", metavar="Node|Pod", help="Pod: pods directly. Node: each node's nodePort.")
    ] = Target.POD,
    cloud_load_balancer: Annotated[
        CloudLoadBalancer,
        typer.Option(
            "--cloud-load-balancer",
            metavar="present|absent",
            help="present: the cluster has its own; Fairlead serves only Services that ask for it.",
        ),
    ] = CloudLoadBalancer.ABSENT,
    domain: Domain = "",
    metrics: HubMetrics = "",
    stop_proxy: StopProxy = False,
    log_level: Level = LogLevel.WARNING,
    log_format: Format = LogFormat.AUTO,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Serve one cluster from this machine: its Services of type LoadBalancer, its Ingresses and its Gateways.

    The cluster is hub and member at once, and one Envoy on this machine takes the traffic: what a site has in place
    of a separate load balancer and an ingress controller. Without --stop-proxy Envoy goes on serving when this ends,
    however it ends; the next run takes it over.
    """
    from fairlead.standalone.one_cluster import RunSettings, run_hub_and_member

    settings = RunSettings(
        kubeconfig=kubeconfig,
        context=context,
        data_dir=data_dir.expanduser().absolute(),
        address_pool=address_pool,
        target=target.value,
        cloud_load_balancer=cloud_load_balancer.value,
        domain=domain,
        metrics=host_and_port(metrics, "--metrics") if metrics else None,
        stop_proxy=stop_proxy,
    )
    settings.check()
    start_logging(log_level, log_format)
    run_async(lambda: run_hub_and_member(settings, ready=_print))


def _print(lines: list[str]) -> None:
    from fairlead.cli.output import say

    say(lines)
    sys.stdout.flush()
