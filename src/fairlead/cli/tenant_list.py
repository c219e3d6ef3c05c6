"""``fairlead tenant list``: the members of a hub, and the state of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.options import Context, Kubeconfig, Labels, Output, OutputOption, Verbose, Watch
from fairlead.cli.run import run_for_code
from fairlead.cli.selection import matcher

if TYPE_CHECKING:
    from fairlead.cli.tenant_rows import TenantRow


def list_tenants(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Only this member; all without it.")] = "",
    selector: Labels = "",
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """List members: state and version of the agent, load balancers, addresses, and clock skew.

    Ages are those of the hub's API; no clock of a member, or of this machine, counts.
    """
    matches = matcher(selector)
    run_for_code(lambda: _list(name.removeprefix("tenant/"), matches, kubeconfig, context, output, watch=watch))


async def _list(
    name: str,
    matches: Callable[[Mapping[str, str] | None], bool],
    kubeconfig: Path | None,
    context: str,
    output: Output,
    *,
    watch: bool,
) -> int:
    import asyncio

    import msgspec

    from fairlead.api.heartbeat import STAMPED_LEASES
    from fairlead.api.names import AGENT_LEASE
    from fairlead.api.tenant import TENANTS
    from fairlead.cli.connect import check_kinds, connect
    from fairlead.cli.output import Answer, show
    from fairlead.cli.tenant_objects import load_balancers_of, no_tenant
    from fairlead.cli.tenant_rows import tenant_rows

    async def ask() -> Answer:
        async with connect(kubeconfig, context=context, name="the hub") as cluster:
            await check_kinds(cluster)
            tenants, leases, served = await asyncio.gather(
                cluster.list(TENANTS),
                cluster.list(STAMPED_LEASES, field_selector=f"metadata.name={AGENT_LEASE}"),
                load_balancers_of(cluster),
            )
            chosen = [each for each in tenants if matches(each.metadata.labels) and name in ("", each.metadata.name)]
            if name and not chosen:
                raise await no_tenant(cluster, name)
        by_namespace = {lease.metadata.namespace: lease for lease in leases}
        rows = tenant_rows(chosen, by_namespace, [each for _, each in served], now=cluster.server_clock.now())
        return Answer(
            rows,
            lambda: _lines(rows, of_all=bool(tenants), wide=output is Output.WIDE),
            lambda: (f"tenant/{row.name}" for row in rows),
            lasting=[msgspec.structs.replace(row, heard_s=None, clock_ahead_s=None) for row in rows],
        )

    return await show(ask, output, watch=watch)


def _lines(rows: Sequence[TenantRow], *, of_all: bool, wide: bool) -> list[str]:
    from fairlead.cli.tenant_rows import HEADER, cells
    from fairlead.status.formatting import columns

    if not rows and of_all:
        return ["No member has these labels; fairlead tenant list without -l shows all of them."]
    if not rows:
        return ["No members yet; add one with: fairlead tenant add NAME --output FILE"]
    return columns([HEADER, *(cells(row, wide=wide) for row in rows)], indent="")
