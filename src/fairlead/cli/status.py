"""``fairlead status``: whether all load balancers serve, whether changes have taken effect, and if not, why."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.complete import complete_load_balancer
from fairlead.cli.options import (
    HubApi,
    Labels,
    OnlyNamespace,
    Output,
    OutputOption,
    Watch,
    duration_s,
    takes_groups,
)
from fairlead.cli.run import EXIT_CODE_OF, run_for_code

if TYPE_CHECKING:
    from fairlead.cli.status_table import Filter
    from fairlead.kube.cluster import Cluster
    from fairlead.status.fleet import FleetStatus

_POLL_S = 0.5


@takes_groups
def status(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Only these: svc/NAME, gateway/NAME, lb/NAME, tcplb/NAME or NAME, with NAMESPACE/ or "
            "MEMBER/NAMESPACE/ before it.",
            autocompletion=complete_load_balancer,
        ),
    ] = None,
    namespace: OnlyNamespace = "",
    selector: Labels = "",
    problems: Annotated[bool, typer.Option("--problems", help="Only rows with problems.")] = False,
    output: OutputOption = Output.TABLE,
    watch: Watch = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until everything serves and no change is pending.")
    ] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help="How long --wait waits, such as 90s or 2m.")
    ] = "60s",
    hub_url: Annotated[
        str, typer.Option("--hub-url", metavar="URL", help="With -o wide: the traffic figures of the page there, too.")
    ] = "",
    *,
    api: HubApi,
) -> None:
    """Show whether everything serves; the exit code distinguishes warnings, outages and no leader.

    Members, load balancers, regions and proxies on one screen, a summary first. With more than 20 load balancers, only
    those with problems are listed, unless you give a name, -n, -l or -o wide.
    """
    from fairlead.cli.status_table import Filter

    asked = Filter(tuple(names or ()), namespace, selector)
    wait_s = duration_s(timeout, "--timeout") if wait else 0.0
    run_for_code(lambda: _show(api, asked, output, hub_url, problems=problems, watch=watch, wait_s=wait_s))


async def _show(
    api: HubApi,
    asked: Filter,
    output: Output,
    hub_url: str,
    *,
    problems: bool,
    watch: bool,
    wait_s: float,
) -> int:
    from fairlead.cli.hub_reader import connect_hub
    from fairlead.cli.output import repeat
    from fairlead.cli.status_table import only_problems

    def shown(fleet: FleetStatus) -> FleetStatus:
        return only_problems(fleet) if problems else fleet

    async def write(fleet: FleetStatus) -> None:
        _print(shown(fleet), output, every=not asked.is_open or problems)
        if hub_url and output is Output.WIDE:
            await _print_traffic(hub_url)

    async with connect_hub(api) as cluster:
        fleet = await repeat(
            lambda: _gather(cluster, asked, wait_s), write, lambda fleet: _lasting(shown(fleet)), output, watch=watch
        )
    return EXIT_CODE_OF[fleet.state]


async def _gather(cluster: Cluster, asked: Filter, wait_s: float) -> FleetStatus:
    """Read the status; with ``wait_s`` until it is well, or until that many seconds are over."""
    from fairlead.cli.hub_reader import gather_status, no_kinds
    from fairlead.cli.status_table import filtered
    from fairlead.errors import NotFound, NotServed, Unreachable

    loop = asyncio.get_running_loop()
    end_s = loop.time() + wait_s
    while True:
        over = loop.time() >= end_s
        try:
            fleet = await gather_status(cluster)
        except (Unreachable, NotServed) as error:
            # With --wait the API, or the hub that installs the kinds, may be about to come.
            if over:
                raise no_kinds(error) if isinstance(error, NotServed) else error from error
        else:
            try:
                fleet = filtered(fleet, asked)
            except NotFound:
                if over:
                    raise
            else:
                if fleet.healthy or over:
                    return fleet
        await asyncio.sleep(_POLL_S)


def _print(fleet: FleetStatus, output: Output, *, every: bool) -> None:
    from fairlead.cli.output import emit
    from fairlead.cli.status_table import names_of, print_status

    if output in (Output.TABLE, Output.WIDE):
        print_status(fleet, every=every, wide=output is Output.WIDE)
    else:
        emit(output, fleet, lines=tuple, names=lambda: names_of(fleet))


async def _print_traffic(hub_url: str) -> None:
    from fairlead.cli.output import say
    from fairlead.cli.traffic_rows import lines_of, read_traffic, sorted_figures

    answer = await read_traffic(hub_url)
    say(["", *lines_of(sorted_figures(answer.figures, "bytes"), answer)])


def _lasting(fleet: FleetStatus) -> FleetStatus:
    """Return all of a status but the ages, which change all the time."""
    import msgspec

    replace = msgspec.structs.replace
    members = [replace(row, last_sync_age_s=None) for row in fleet.members]
    return replace(fleet, hub=replace(fleet.hub, age_s=None), members=members)
