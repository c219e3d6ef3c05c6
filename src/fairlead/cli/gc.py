"""``fairlead gc``: orphans in both directions, records without owners and entries without records."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.options import Verbose
from fairlead.cli.run import run_async
from fairlead.cli.subject import Kubeconfig


def gc(
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete orphaned records: the hub deregisters their backends.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """List records whose load balancer is gone, and entries of ours that no record knows; the latter are only told."""
    lines: list[str] = []

    async def collect() -> None:
        from fairlead.api.backendrecord import BACKEND_RECORDS
        from fairlead.cli.connect import connect
        from fairlead.hub.preview import preview

        async with connect(kubeconfig, name="the hub") as cluster:
            for one in await preview(cluster):
                lines.extend(f"entry without a record: {one.key} {at} (remove it by hand)" for at in one.unrecorded)
                if one.built is not None:
                    continue
                for record in one.records:
                    state = "is on its way out" if record.deleting else "deleted" if delete else "orphaned"
                    lines.append(f"record without a load balancer: {'/'.join(record.key)} {state}")
                    if delete and not record.deleting:
                        await cluster.delete(BACKEND_RECORDS, *record.key, uid=record.metadata.uid)

    run_async(collect)
    print("\n".join(lines) or "no orphans")
