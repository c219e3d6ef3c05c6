"""``fairlead standalone``: API, hub and Envoy by one command, for a machine without Kubernetes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import (
    DEFAULT_POOL,
    AddressPool,
    Domain,
    Format,
    HubMetrics,
    Level,
    Listen,
    LogFormat,
    LogLevel,
    StopProxy,
    Verbose,
    directory,
    host_and_port,
    page_urls,
    start_logging,
)
from fairlead.cli.run import run_async


def standalone(
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="DIR", parser=directory, help="Keeps all state; made if it is missing."),
    ] = None,
    listen: Listen = "127.0.0.1:6443",
    address_pool: AddressPool = DEFAULT_POOL,
    domain: Domain = "",
    metrics: HubMetrics = "",
    stop_proxy: StopProxy = False,
    capi: Annotated[
        bool,
        typer.Option(
            "--cluster-api", help="Serve the Clusters of Cluster API here, too; waits while its kinds are missing."
        ),
    ] = False,
    stop: Annotated[
        bool,
        typer.Option(
            "--stop",
            help="Stop the hub and Envoy of --data-dir; without it, every Envoy whose directory was deleted.",
        ),
    ] = False,
    log_level: Level = LogLevel.WARNING,
    log_format: Format = LogFormat.AUTO,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Run a hub with everything it needs on this machine; its kubeconfig is [cyan]DIR/kubeconfig[/cyan]."""
    from fairlead.errors import BadConfiguration
    from fairlead.standalone.standalone import StandaloneSettings, run_standalone

    if stop:
        run_async(lambda: _stop(data_dir and data_dir.expanduser().absolute()))
        return
    if data_dir is None:
        raise BadConfiguration("--data-dir is missing: name a directory that keeps all state, such as  --data-dir hub")
    host, port = host_and_port(listen, "--listen")
    settings = StandaloneSettings(
        data_dir=data_dir.expanduser().absolute(),
        host=host,
        port=port,
        address_pool=address_pool,
        domain=domain,
        metrics=host_and_port(metrics, "--metrics") if metrics else None,
        stop_proxy=stop_proxy,
        capi=capi,
        api_options=("--log-level", log_level, "--log-format", _format_here(log_format)),
    )
    settings.check()
    start_logging(log_level, log_format)
    run_async(lambda: run_standalone(settings, ready=lambda kubeconfig: _next_steps(kubeconfig, metrics)))


async def _stop(data_dir: Path | None) -> None:
    from fairlead.standalone.stop import stop_machine, stop_orphans

    left: list[Path] = []
    if data_dir is None:
        ended, left = await stop_orphans()
    else:
        ended = await stop_machine(data_dir)
    print("\n".join(f"Ended: {what}" for what in ended) or "Nothing to end.")
    for home in left:
        print(f"Left: the Envoy of {home}; end it with  fairlead standalone --stop --data-dir {home}")


def _format_here(chosen: LogFormat) -> LogFormat:
    """Return the format that ``auto`` comes to; the API server's log passes through ours."""
    if chosen is not LogFormat.AUTO:
        return chosen
    return LogFormat.TEXT if sys.stderr.isatty() else LogFormat.JSON


def _next_steps(kubeconfig: Path, metrics: str = "") -> None:
    print(kubeconfig, flush=True)
    sys.stderr.write(
        "The hub is ready. Next, for each member cluster:\n"
        f"  fairlead tenant add NAME --output NAME.kubeconfig --kubeconfig {kubeconfig}\n"
        "  fairlead agent --kubeconfig MEMBER.kubeconfig --hub-kubeconfig NAME.kubeconfig --tenant NAME\n"
        f"and to see how it is:  fairlead status --kubeconfig {kubeconfig}\n"
        + (f"or in a browser:  {page_urls(metrics)}\n" if metrics else "")
    )
