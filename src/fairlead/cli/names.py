"""``fairlead names``: every name, who has it, where it points, and whether it resolves to that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.cli.exit_codes import FAILED, OK
from fairlead.cli.options import Context, Kubeconfig, Output, OutputOption, Verbose
from fairlead.cli.run import run_for_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.cli.names_rows import NameRow


def names(
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Show every Hostname: its owner, its records, and whether the zone's own server answers them.

    The authoritative server of each zone is asked from here; exit code 1 when a name does not resolve to what it
    should, or is not published.
    """
    run_for_code(lambda: _show(kubeconfig, context, output))


async def _show(kubeconfig: Path | None, context: str, output: Output) -> int:
    from fairlead.api.dnszone import DNS_ZONES
    from fairlead.api.hostname import HOSTNAMES
    from fairlead.cli.connect import check_kinds, connect
    from fairlead.cli.names_rows import ask_zones, name_rows
    from fairlead.cli.object_ref import ObjectRef
    from fairlead.cli.output import emit

    async with connect(kubeconfig, context=context, name="the hub") as cluster:
        await check_kinds(cluster)
        hostnames, zones = await cluster.list(HOSTNAMES), await cluster.list(DNS_ZONES)
    answers = await ask_zones(hostnames, zones)
    rows = name_rows(hostnames, answers)
    emit(
        output,
        {"healthy": all(row.good for row in rows), "names": rows},
        lines=lambda: _lines(rows),
        names=lambda: (ObjectRef(HOSTNAMES.kind, row.namespace, row.name).path for row in rows),
    )
    return OK if all(row.good for row in rows) else FAILED


def _lines(rows: Sequence[NameRow]) -> list[str]:
    from fairlead.cli.formatting import columns
    from fairlead.cli.names_rows import HEADER, cells

    if not rows:
        return [
            "No names yet; they come from Ingresses, Gateways and Services of members, or kubectl apply a Hostname."
        ]
    bad = [f"✗ {row.host}: {row.message}" for row in rows if not row.good]
    return [*columns([HEADER, *map(cells, rows)], indent=""), *bad]
