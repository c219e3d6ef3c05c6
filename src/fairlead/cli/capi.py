"""``fairlead capi``: load balancers for the clusters of Cluster API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from fairlead.standalone.capi_process import CapiSettings


def capi(
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", metavar="FILE", help=kubeconfig_help("The management cluster's API"))
    ] = None,
    context: Context = "",
    hub_kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--hub-kubeconfig",
            metavar="FILE",
            help="The hub, if it is another cluster: LoadBalancers are read and written there.",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", help="How many load balancers it works on at once.")
    ] = 8,
    release_hooks: Annotated[
        bool,
        typer.Option(
            "--release-hooks",
            help="Remove Fairlead's hooks and finalizers from every machine, and exit; stop all other copies first.",
        ),
    ] = False,
    identity: Identity = "",
    data_dir: StateDir = None,
    metrics: Metrics = "",
    log_level: Level = LogLevel.INFO,
    log_format: Format = LogFormat.AUTO,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Give the clusters of Cluster API an endpoint whose members follow their machines."""
    from fairlead.standalone.capi_process import CapiSettings, run_capi

    settings = CapiSettings(
        kubeconfig=kubeconfig,
        context=context,
        hub_kubeconfig=hub_kubeconfig,
        workers=workers,
        identity=identity,
        data_dir=data_dir,
        metrics=host_and_port(metrics, "--metrics") if metrics else None,
    )
    settings.config()  # a bad number is an error before anything is started
    start_logging(log_level, log_format)
    if release_hooks:
        run_async(lambda: _release(settings))
        return
    run_async(lambda: run_capi(settings))


async def _release(settings: CapiSettings) -> None:
    from fairlead.cli.output import say
    from fairlead.standalone.capi_process import free_all

    freed = await free_all(settings)
    say([*freed, f"{len(freed)} objects were released." if freed else "No object has hooks or finalizers of Fairlead."])
