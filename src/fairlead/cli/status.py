"""``fairlead status``: is it healthy, did my change land, and if not, why?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import Output, OutputOption, Verbose, kubeconfig_help
from fairlead.cli.run import FAILED, run_async

_POLL_S = 0.5


def status(
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", metavar="FILE", help=kubeconfig_help("The hub's API"))
    ] = None,
    output: OutputOption = Output.TABLE,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until everything is healthy.")] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help="How long --wait waits, such as 90s or 2m.")
    ] = "60s",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Show members, load balancers and proxies on one screen; exit code 1 when something is not healthy."""
    healthy = True

    async def show() -> None:
        nonlocal healthy
        healthy = await _show(kubeconfig, output, _seconds(timeout) if wait else 0.0)

    run_async(show)
    if not healthy:
        raise typer.Exit(FAILED)


def _seconds(text: str) -> float:
    from fairlead.api.durations import seconds_from_duration
    from fairlead.errors import BadConfiguration

    plain = text.strip()
    try:
        return float(plain) if plain.isdigit() else seconds_from_duration(plain)
    except (ValueError, KeyError) as error:
        raise BadConfiguration(f"--timeout: {text!r} is not a duration such as 60s or 2m") from error


async def _show(kubeconfig: Path | None, output: Output, wait_s: float) -> bool:
    import asyncio
    import sys

    import msgspec

    from fairlead.cli.connect import connect, no_kinds
    from fairlead.cli.status_reader import gather_status
    from fairlead.cli.status_table import print_status
    from fairlead.errors import NotFound, Unreachable

    loop = asyncio.get_running_loop()
    end_s = loop.time() + wait_s
    async with connect(kubeconfig, name="the hub") as cluster:
        while True:
            try:
                fleet = await gather_status(cluster)
            except (Unreachable, NotFound) as error:
                # With --wait the API, or the hub that installs the kinds, may be about to come.
                if loop.time() >= end_s:
                    raise no_kinds(error) if isinstance(error, NotFound) else error from error
                await asyncio.sleep(_POLL_S)
                continue
            if fleet.healthy or loop.time() >= end_s:
                break
            await asyncio.sleep(_POLL_S)
    if output is Output.JSON:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(fleet), indent=2) + b"\n")
    else:
        print_status(fleet)
    return fleet.healthy
