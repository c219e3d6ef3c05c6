"""``fairlead top``: the traffic of load balancers, the busiest first."""

from __future__ import annotations

import asyncio
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import Output, OutputOption, TokenFile, Verbose
from fairlead.cli.run import run_async

HubUrl = Annotated[
    str, typer.Option("--hub-url", metavar="URL", help="Where the hub was started with --metrics; its page is there.")
]
DEFAULT_URL = "http://127.0.0.1:9090"
_EVERY_S = 5.0
_CLEAR = "\x1b[H\x1b[2J"


class Sort(StrEnum):
    """By what the load balancers are sorted, the most first."""

    BYTES = "bytes"
    CONNECTIONS = "connections"
    REQUESTS = "requests"
    ERRORS = "errors"
    LATENCY = "latency"


class Part(StrEnum):
    """Of what the figures are, as -o json calls them."""

    WHOLE = "loadBalancers"
    BACKENDS = "backends"
    ROUTES = "routes"


def top(
    count: Annotated[int, typer.Option("--number", "-n", metavar="N", min=1, help="Number of rows.")] = 20,
    sort: Annotated[
        Sort,
        typer.Option("--sort", metavar="BY", help="Sort by bytes, connections, requests, errors or latency."),
    ] = Sort.BYTES,
    backends: Annotated[
        bool, typer.Option("--backends", help="The busiest backends of HTTP load balancers instead: where requests go.")
    ] = False,
    routes: Annotated[
        bool,
        typer.Option("--routes", help="The busiest routes instead, of HTTPLoadBalancers that are asked to count them."),
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Print them once and end.")] = False,
    output: OutputOption = Output.TABLE,
    hub_url: HubUrl = DEFAULT_URL,
    token_file: TokenFile = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Show the busiest load balancers, live: connections, bytes, requests by class of status, p50 and p99.

    The figures are of the last seconds, from the statistics of the hub's proxies and HAProxies. What is idle is not
    listed. p50 and p99 are how long a request took, and without HTTP how long a backend took to accept a connection.
    Routes are counted where the HTTPLoadBalancer has the annotation fairlead.dev/route-figures=true.
    """
    if backends and routes:
        raise typer.BadParameter("--backends or --routes, not both")
    part = Part.BACKENDS if backends else Part.ROUTES if routes else Part.WHOLE
    run_async(lambda: _show(hub_url, token_file, count, sort, output, part, once=once or output.is_data))


async def _show(
    hub_url: str, token_file: Path | None, count: int, sort: Sort, output: Output, part: Part, *, once: bool
) -> None:
    from fairlead.cli.output import emit
    from fairlead.cli.traffic_reader import read_traffic
    from fairlead.cli.traffic_rows import lines_of, lines_of_routes, sorted_figures

    while True:
        answer = await read_traffic(hub_url, token_file)
        read = {Part.WHOLE: answer.figures, Part.BACKENDS: answer.backends, Part.ROUTES: answer.routes}
        figures = sorted_figures(read[part], sort.value)[:count]
        if not once and sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        value = {"at": answer.at, "problem": answer.problem, part.value: figures}
        shown = list(figures)
        emit(
            output,
            value,
            lines=lambda shown=shown, answer=answer: (lines_of_routes if part is Part.ROUTES else lines_of)(
                shown, answer
            ),
            names=lambda shown=shown: [figure.id for figure in shown],
        )
        sys.stdout.flush()
        if once:
            return
        await asyncio.sleep(_EVERY_S)
