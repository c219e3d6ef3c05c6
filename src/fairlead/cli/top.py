"""``fairlead top``: the traffic of load balancers, the busiest first."""

from __future__ import annotations

import asyncio
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.options import (
    HubApi,
    Output,
    OutputOption,
    TokenFile,
    takes_groups,
)
from fairlead.cli.run import run_async
from fairlead.cli.selection import Selected, Selection

if TYPE_CHECKING:
    from fairlead.page.traffic import Figure

HubUrl = Annotated[
    str, typer.Option("--hub-url", metavar="URL", help="Where the hub was started with --metrics; its page is there.")
]
DEFAULT_URL = "http://127.0.0.1:9090"
_EVERY_S = 5.0
_CLEAR = "\x1b[H\x1b[2J"
#: Formats for people are printed again and again; a program that reads the others waits for their end.
_LIVE = (Output.TABLE, Output.WIDE)


class Sort(StrEnum):
    """By what the load balancers are sorted, the most first."""

    BYTES = "bytes"
    CONNECTIONS = "connections"
    REQUESTS = "requests"
    ERRORS = "errors"
    LATENCY = "latency"


class FigureKind(StrEnum):
    """Of what the figures are, as -o json calls them."""

    WHOLE = "loadBalancers"
    BACKENDS = "backends"
    ROUTES = "routes"


@takes_groups
def top(
    selected: Selected,
    count: Annotated[int, typer.Option("--number", metavar="N", min=1, help="Number of rows.")] = 20,
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
    *,
    api: HubApi,
) -> None:
    """Show the busiest load balancers, live: connections, bytes, requests by class of status, p50 and p99.

    The figures are of the last seconds, from the statistics of the hub's proxies and HAProxies. What is idle is not
    listed. p50 and p99 are how long a request took, and without HTTP how long a backend took to accept a connection.
    Routes are counted where the HTTPLoadBalancer has the annotation fairlead.dev/route-figures=true. What KIND/NAME,
    -n and -l select is read at the hub's API (--kubeconfig); without them only the page is asked.
    """
    if selected.namespace.isdecimal():
        raise typer.BadParameter(f"-n is a namespace; the number of rows is --number {selected.namespace}")
    if backends and routes:
        raise typer.BadParameter("--backends or --routes, not both")
    part = FigureKind.BACKENDS if backends else FigureKind.ROUTES if routes else FigureKind.WHOLE
    selection = selected.selection

    async def show() -> None:
        chosen = await _chosen(selection, api)
        await _show(hub_url, token_file, count, sort, output, part, chosen, once=once or output not in _LIVE)

    run_async(show)


async def _chosen(selection: Selection, api: HubApi) -> frozenset[str] | None:
    """Return the ids of the load balancers that are selected; None: all of them."""
    from fairlead.cli.hub_reader import connect_hub, keys_of

    if selection.ref is None and not selection.filters:
        return None
    async with connect_hub(api) as cluster:
        return frozenset(map(str, await keys_of(cluster, selection)))


def _load_balancer_of(figure: Figure) -> str:
    """Return the load balancer that a figure is of: the part of its id before the backend or the route."""
    return figure.id.partition("#")[0].partition("@")[0]


async def _show(
    hub_url: str,
    token_file: Path | None,
    count: int,
    sort: Sort,
    output: Output,
    part: FigureKind,
    chosen: frozenset[str] | None,
    *,
    once: bool,
) -> None:
    from fairlead.cli.output import ask_until_answered, emit
    from fairlead.cli.traffic_rows import lines_of, lines_of_routes, read_traffic, sorted_figures

    answer = await read_traffic(hub_url, token_file)
    while True:
        read = {
            FigureKind.WHOLE: answer.figures,
            FigureKind.BACKENDS: answer.backends,
            FigureKind.ROUTES: answer.routes,
        }
        selected = [each for each in read[part] if chosen is None or _load_balancer_of(each) in chosen]
        figures = sorted_figures(selected, sort.value)[:count]
        if not once and sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        value = {"at": answer.at, "problem": answer.problem, part.value: figures}
        shown = list(figures)
        emit(
            output,
            value,
            lines=lambda shown=shown, answer=answer: (lines_of_routes if part is FigureKind.ROUTES else lines_of)(
                shown, answer
            ),
            names=lambda shown=shown: dict.fromkeys(map(_load_balancer_of, shown)),
        )
        sys.stdout.flush()
        if once:
            return
        await asyncio.sleep(_EVERY_S)
        answer = await ask_until_answered(lambda: read_traffic(hub_url, token_file))
