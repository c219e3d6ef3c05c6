"""``fairlead regions``: one Service, one access point per region; and the demo of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import (
    Context,
    DemoDir,
    Format,
    Identity,
    Level,
    LogFormat,
    LogLevel,
    Metrics,
    Plain,
    StateDir,
    Verbose,
    host_and_port,
    kubeconfig_help,
    start_logging,
)
from fairlead.cli.run import run_async, run_check


def regions(
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", metavar="FILE", help=kubeconfig_help("The cluster's API"))
    ] = None,
    context: Context = "",
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", help="How many Services each controller works on at once.")
    ] = 3,
    layer1_only: Annotated[
        bool, typer.Option("--layer1-only", help="Make PoolServices only, and leave every class to other controllers.")
    ] = False,
    identity: Identity = "",
    data_dir: StateDir = None,
    metrics: Metrics = "",
    log_level: Level = LogLevel.INFO,
    log_format: Format = LogFormat.AUTO,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Give Services with a NodePool selector an access point in each matching region."""
    from fairlead.standalone.regions_process import RegionsSettings, run_regions

    settings = RegionsSettings(
        kubeconfig=kubeconfig,
        context=context,
        workers=workers,
        balancer=not layer1_only,
        identity=identity,
        data_dir=data_dir,
        metrics=host_and_port(metrics, "--metrics") if metrics else None,
    )
    settings.config()  # a bad number is an error before anything is started
    start_logging(log_level, log_format)
    run_async(lambda: run_regions(settings))


def demo_regions(
    data_dir: DemoDir = None,
    loopback: Annotated[
        bool, typer.Option("--loopback", help="Use loopback ranges also where network namespaces could be made.")
    ] = False,
    plain: Plain = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Show one Service in three regions, each on a network of its own.

    Fails when a request fails that should not have, or reaches another region's pods.
    """
    from fairlead.demo.run import DemoSettings, run_regions_demo

    run_check(lambda: run_regions_demo(DemoSettings(data_dir=data_dir, loopback=loopback, plain=plain)))
