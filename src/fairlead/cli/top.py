"""``fairlead top``: the traffic of load balancers, the busiest first."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec

from fairlead.api.json_text import decode
from fairlead.cli.hub_reader import connect_hub, keys_of
from fairlead.cli.options import HubApi, Output
from fairlead.cli.output import ask_until_answered, emit
from fairlead.cli.selection import Selection
from fairlead.cli.verbs import FigureKind, Sort
from fairlead.errors import BadConfiguration, Unauthorized, Unreachable
from fairlead.page.traffic import Figure, TrafficAnswer
from fairlead.status.formatting import columns

_EVERY_S = 5.0
_CLEAR = "\x1b[H\x1b[2J"
#: Formats for people are printed again and again; a program that reads the others waits for their end.
LIVE = (Output.TABLE, Output.WIDE)


async def chosen_load_balancers(selection: Selection, api: HubApi) -> frozenset[str] | None:
    """Return the ids of the load balancers that are selected; None: all of them."""
    if selection.ref is None and not selection.filters:
        return None
    async with connect_hub(api) as cluster:
        return frozenset(map(str, await keys_of(cluster, selection)))


def _load_balancer_of(figure: Figure) -> str:
    """Return the load balancer that a figure is of: the part of its id before the backend or the route."""
    return figure.id.partition("#")[0].partition("@")[0]


async def show_figures(
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
    """Print the figures, until interrupted unless ``once``."""
    answer = await read_traffic(hub_url, token_file)
    while True:
        read = {
            FigureKind.WHOLE: answer.figures,
            FigureKind.BACKENDS: answer.backends,
            FigureKind.ROUTES: answer.routes,
        }
        selected = [figure for figure in read[part] if chosen is None or _load_balancer_of(figure) in chosen]
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


HEAD = ("LOAD BALANCER", "CONN/S", "ACTIVE", "IN/S", "OUT/S", "REQ/S", "2XX", "3XX", "4XX", "5XX", "P50", "P99")
ROUTES_HEAD = ("ROUTE", "LOAD BALANCER", "REQ/S", "2XX", "3XX", "4XX", "5XX", "P50", "P99")
HOW_TO_COUNT = "Count them: kubectl annotate --overwrite httplb NAME -n NAMESPACE fairlead.dev/route-figures=true"
_BY: dict[str, Callable[[Figure], float]] = {
    "bytes": lambda figure: figure.bytes_in + figure.bytes_out,
    "connections": lambda figure: figure.connections,
    "requests": lambda figure: sum(figure.requests),
    "errors": lambda figure: figure.requests[4] if figure.requests else 0.0,
    "latency": lambda figure: figure.p99_ms or 0.0,
}


def sorted_figures(figures: Iterable[Figure], by: str) -> list[Figure]:
    """Return the figures, the most first; those that are equal by requests, then by name."""
    return sorted(figures, key=lambda figure: (-_BY[by](figure), -_BY["requests"](figure), figure.id))


def lines_of(figures: Sequence[Figure], answer: TrafficAnswer) -> list[str]:
    """Return the table."""
    lines = [f"! {answer.problem}"] if answer.problem else []
    if not figures:
        return [*lines, "No load balancer has traffic at the moment."]
    return [*lines, *columns([HEAD, *map(cells, figures)], indent="")]


def lines_of_routes(figures: Sequence[Figure], answer: TrafficAnswer) -> list[str]:
    """Return the table of routes, which have requests and no connections of their own."""
    lines = [f"! {answer.problem}"] if answer.problem else []
    if not figures:
        return [*lines, f"No route that is counted has requests now. {HOW_TO_COUNT}"]
    return [*lines, *columns([ROUTES_HEAD, *map(_route_cells, figures)], indent="")]


def _route_cells(figure: Figure) -> tuple[str, ...]:
    load_balancer, _, route = figure.id.partition("@")
    return (route, load_balancer, *cells(figure)[5:])


def cells(figure: Figure) -> tuple[str, ...]:
    """Return the cells of one line."""
    classes = [number(rate) for rate in figure.requests[1:]] if figure.requests else ["-"] * 4
    return (
        figure.id,
        number(figure.connections),
        str(figure.active),
        size(figure.bytes_in),
        size(figure.bytes_out),
        number(sum(figure.requests)) if figure.requests else "-",
        *classes,
        time(figure.p50_ms),
        time(figure.p99_ms),
    )


def number(value: float) -> str:
    """Return a rate: two digits that matter."""
    return f"{value:.0f}" if value >= 10 or not value else f"{value:.1f}"


def size(value: float) -> str:
    """Return bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{number(value)}{unit}"
        value /= 1024
    return f"{number(value)}TiB"


def time(value: float | None) -> str:
    """Return milliseconds."""
    return "-" if value is None else f"{number(value)}ms"


_TIMEOUT_S = 30.0
T = TypeVar("T")


async def read_traffic(hub_url: str, token_file: Path | None = None) -> TrafficAnswer:
    """Return the figures; raises what ``ask_hub`` does."""
    answer = await ask_hub(hub_url, "/page/traffic", token_file, TrafficAnswer, what="the traffic figures")
    if answer is None:
        raise BadConfiguration(f"--hub-url: {hub_url} does not serve the traffic figures of a hub (HTTP 404)")
    return answer


async def ask_hub(hub_url: str, path: str, token_file: Path | None, of: type[T], *, what: str) -> T | None:
    """Return the answer of a hub's page at ``path``, None for 404; ``what`` it serves there, for errors.

    Raises:
        Unreachable: no hub answers there; Unauthorized: a token is required; BadConfiguration: not a hub's page.
    """
    url = f"{hub_url.rstrip('/')}{path}"
    headers = await token_header(token_file)
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as session,
            session.get(url, headers=headers) as response,
        ):
            body = await response.read()
    except aiohttp.InvalidURL as error:
        raise BadConfiguration(f"--hub-url: {hub_url!r} is not a URL such as http://127.0.0.1:9090") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unreachable(f"No hub answers at {url}; --hub-url is where it was started with --metrics") from error
    if response.status == 404:
        return None
    if response.status in (401, 403):
        raise Unauthorized(f"{url}: {body.decode(errors='replace').strip()}; give it with --token-file")
    if response.status >= 500:
        raise Unreachable(f"{url} answers with HTTP {response.status}")
    try:
        return decode(body, of)
    except msgspec.DecodeError as error:
        raise BadConfiguration(f"--hub-url: {url} does not serve {what} of a hub (HTTP {response.status})") from error


async def token_header(token_file: Path | None) -> dict[str, str]:
    """Return the header with the token of a file, none without a file."""
    if token_file is None:
        return {}
    try:
        token = await asyncio.to_thread(token_file.read_text, encoding="utf-8")
    except OSError as error:
        raise BadConfiguration(f"--token-file: {token_file} cannot be read: {error.strerror}") from error
    return {"Authorization": f"Bearer {token.strip()}"}
