"""``fairlead hub``: the process that gives load balancers their addresses and configures their providers."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import (
    DEFAULT_POOL,
    AddressPool,
    Context,
    Domain,
    Format,
    HubDir,
    HubMetrics,
    Kubeconfig,
    Level,
    LogFormat,
    LogLevel,
    StopProxy,
    Verbose,
    start_logging,
)
from fairlead.cli.run import run_async

DEFAULT_DATA_DIR = Path("~/.local/state/fairlead/hub")


class EnvoyMode(StrEnum):
    """The place where the proxies run."""

    LOCAL = "local"
    DEPLOYMENT = "deployment"


def hub(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    new_hub: Annotated[
        bool, typer.Option("--new-hub", help="Start even if this cluster is a member of another hub.")
    ] = False,
    envoy: Annotated[
        EnvoyMode,
        typer.Option(
            "--envoy",
            metavar="MODE",
            help="local: Envoy on this machine. deployment: Envoys in the cluster.",
        ),
    ] = EnvoyMode.LOCAL,
    address_pool: AddressPool = "",
    region: Annotated[
        str,
        typer.Option("--region", metavar="NAME", help="Serve only this region; empty: regions without a hub."),
    ] = "",
    tenant_ports: Annotated[
        int,
        typer.Option(
            "--tenant-ports",
            metavar="N",
            min=0,
            help="Port quota of a Tenant without spec.maxPorts; 0: unlimited.",
        ),
    ] = 2000,
    domain: Domain = "",
    metrics: HubMetrics = "",
    data_dir: HubDir = DEFAULT_DATA_DIR,
    envoy_threads: Annotated[
        int,
        typer.Option(
            "--envoy-threads", metavar="N", min=0, help="Threads per local Envoy; 0: one per core, at most 2."
        ),
    ] = 0,
    envoys: Annotated[
        int,
        typer.Option("--envoys", metavar="N", min=1, max=64, help="local: Envoys to spread the addresses over."),
    ] = 1,
    stop_proxy: StopProxy = False,
    xds_listen: Annotated[
        str,
        typer.Option("--xds-listen", metavar="HOST:PORT", help="deployment: address of the xDS server (mTLS)."),
    ] = "0.0.0.0:18000",
    xds_address: Annotated[
        str,
        typer.Option(
            "--xds-address",
            metavar="HOST:PORT",
            help="deployment: how proxies reach the hub; default: its Service, port 18000.",
            show_default=False,
        ),
    ] = "fairlead-hub.fairlead-system.svc:18000",
    proxy_image: Annotated[
        str, typer.Option("--proxy-image", metavar="IMAGE", help="deployment: Envoy's image; empty: the tested one.")
    ] = "",
    proxy_replicas: Annotated[
        int, typer.Option("--proxy-replicas", metavar="N", min=1, max=100, help="deployment: Envoys for each tenant.")
    ] = 2,
    log_level: Level = LogLevel.INFO,
    log_format: Format = LogFormat.AUTO,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Run the hub. With a local Envoy the address pool is 127.200.0.0/16 unless given.

    The local Envoy goes on serving when the hub ends; the next hub adopts it.
    """
    from fairlead.cli.options import host_and_port
    from fairlead.standalone.hub_process import run_hub
    from fairlead.standalone.hub_settings import HubSettings

    settings = HubSettings(
        kubeconfig=kubeconfig,
        context=context,
        new_hub=new_hub,
        deployment=envoy is EnvoyMode.DEPLOYMENT,
        address_pool=address_pool or ("" if envoy is EnvoyMode.DEPLOYMENT else DEFAULT_POOL),
        region=region,
        tenant_ports=tenant_ports,
        domain=domain,
        metrics=host_and_port(metrics, "--metrics") if metrics else None,
        data_dir=data_dir.expanduser(),
        stop_proxy=stop_proxy,
        xds_listen=host_and_port(xds_listen, "--xds-listen"),
        xds_address=host_and_port(xds_address, "--xds-address"),
        proxy_image=proxy_image,
        proxy_replicas=proxy_replicas,
        envoy_concurrency=envoy_threads,
        envoys=envoys,
    )
    settings.check()
    start_logging(log_level, log_format)
    run_async(lambda: run_hub(settings))
