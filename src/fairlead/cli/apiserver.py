"""``fairlead apiserver``: a Kubernetes API on this machine, for trying things out without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import (
    DataDir,
    Format,
    Level,
    Listen,
    LogFormat,
    LogLevel,
    Verbose,
    host_and_port,
    start_logging,
)
from fairlead.cli.run import run_async


def apiserver(
    data_dir: DataDir,
    listen: Listen = "127.0.0.1:0",
    memory: Annotated[bool, typer.Option("--memory", help="Keep state in memory only; lost on exit.")] = False,
    service_range: Annotated[
        str,
        typer.Option(
            "--service-cluster-ip-range",
            metavar="CIDRS",
            help="Where cluster IPs of Services are from: one range, or one of each family. Services that name no "
            "family have the first. Default: 10.96.0.0/16 and fd00:10:96::/112.",
            show_default=False,
        ),
    ] = "10.96.0.0/16,fd00:10:96::/112",
    with_parent: Annotated[
        bool, typer.Option("--end-with-parent", hidden=True, help="Exit when stdin is closed or the parent ends.")
    ] = False,
    log_level: Level = LogLevel.WARNING,
    log_format: Format = LogFormat.AUTO,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Serve a Kubernetes-compatible API; its kubeconfig is [cyan]DIR/kubeconfig[/cyan], printed when it is ready."""
    host, port = host_and_port(listen, "--listen")
    start_logging(log_level, log_format)
    home = data_dir.expanduser().absolute()
    run_async(lambda: _serve(home, host, port, service_range, memory=memory, with_parent=with_parent))


async def _serve(data_dir: Path, host: str, port: int, service_range: str, *, memory: bool, with_parent: bool) -> None:
    from fairlead.runtime.supervisor import Supervisor
    from fairlead.standalone.api import end_with_parent, serve_api

    supervisor = Supervisor(stop_deadline_s=4.0)
    supervisor.spawn(
        "apiserver",
        lambda: serve_api(
            data_dir,
            host,
            port,
            memory=memory,
            ready=lambda path: print(path, flush=True),
            service_range=service_range,
        ),
    )
    if with_parent:
        supervisor.spawn("parent", lambda: end_with_parent(supervisor.stop))
    await supervisor.run_until_stopped()
