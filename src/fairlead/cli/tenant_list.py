"""``fairlead tenant list``: the members of a hub, and the state of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.cli.options import Context, Kubeconfig, Output, OutputOption, Verbose
from fairlead.cli.run import run_async

if TYPE_CHECKING:
    from fairlead.cli.tenant_rows import TenantRow


def list_tenants(
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """List members: state and version of the agent, load balancers, addresses, and clock skew.

    Ages are those of the hub's API; no clock of a member, or of this machine, counts.
    """
    run_async(lambda: _list(kubeconfig, context, output))


async def _list(kubeconfig: Path | None, context: str, output: Output) -> None:
    import asyncio

    from fairlead.api.heartbeat import STAMPED_LEASES
    from fairlead.api.names import AGENT_LEASE
    from fairlead.api.tenant import TENANTS
    from fairlead.cli.connect import check_kinds, connect
    from fairlead.cli.output import emit
    from fairlead.cli.tenant_objects import load_balancers_of
    from fairlead.cli.tenant_rows import tenant_rows

    async with connect(kubeconfig, context=context, name="the hub") as cluster:
        await check_kinds(cluster)
        tenants, leases, served = await asyncio.gather(
            cluster.list(TENANTS),
            cluster.list(STAMPED_LEASES, field_selector=f"metadata.name={AGENT_LEASE}"),
            load_balancers_of(cluster),
        )
        by_namespace = {lease.metadata.namespace: lease for lease in leases}
        rows = tenant_rows(tenants, by_namespace, [each for _, each in served], now=cluster.server_clock.now())
    emit(output, rows, lines=lambda: _lines(rows), names=lambda: (f"tenant/{row.name}" for row in rows))


def _lines(rows: Sequence[TenantRow]) -> list[str]:
    from fairlead.cli.formatting import columns
    from fairlead.cli.tenant_rows import HEADER, cells

    if not rows:
        return ["No members yet; add one with: fairlead tenant add NAME --output FILE"]
    return columns([HEADER, *map(cells, rows)], indent="")
