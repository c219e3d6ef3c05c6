"""``fairlead standalone``: API, hub and Envoy in one process, for a machine without Kubernetes."""

from __future__ import annotations

import sys
from pathlib import Path

from fairlead.cli.options import (
    DEFAULT_POOL,
    AddressPool,
    DataDir,
    Format,
    Level,
    Listen,
    LogFormat,
    LogLevel,
    Metrics,
    StopProxy,
    Verbose,
    host_and_port,
    start_logging,
)
from fairlead.cli.run import run_async


def standalone(
    data_dir: DataDir,
    listen: Listen = "127.0.0.1:6443",
    address_pool: AddressPool = DEFAULT_POOL,
    metrics: Metrics = "",
    stop_proxy: StopProxy = False,
    log_level: Level = LogLevel.WARNING,
    log_format: Format = LogFormat.AUTO,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Run a hub with everything it needs on this machine; its kubeconfig is [cyan]DIR/kubeconfig[/cyan]."""
    from fairlead.standalone.standalone import StandaloneSettings, run_standalone

    host, port = host_and_port(listen, "--listen")
    settings = StandaloneSettings(
        data_dir=data_dir.expanduser().absolute(),
        host=host,
        port=port,
        address_pool=address_pool,
        metrics=host_and_port(metrics, "--metrics") if metrics else None,
        stop_proxy=stop_proxy,
    )
    settings.check()
    start_logging(log_level, log_format)
    run_async(lambda: run_standalone(settings, ready=_next_steps))


def _next_steps(kubeconfig: Path) -> None:
    print(kubeconfig, flush=True)
    sys.stderr.write(
        "The hub is ready. Next, for each member cluster:\n"
        f"  fairlead tenant add NAME --kubeconfig {kubeconfig} > NAME.kubeconfig\n"
        "  fairlead agent --kubeconfig MEMBER.kubeconfig --hub-kubeconfig NAME.kubeconfig --tenant NAME\n"
        f"and to see how it is:  fairlead status --kubeconfig {kubeconfig}\n"
    )
