"""``fairlead gc``: records without a load balancer and entries without a record; --delete has them deregistered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.object_ref import Kubeconfig
from fairlead.cli.options import Output, OutputOption, Verbose
from fairlead.cli.run import FAILED, run_async

if TYPE_CHECKING:
    from fairlead.cli.gc_rows import OrphanRow


def gc(
    delete: Annotated[
        bool, typer.Option("--delete", help="Have the hub deregister them; one line for each, and no question.")
    ] = False,
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """List orphaned backends, and delete them; exit code 1 when some are left.

    Orphans are records whose load balancer is gone, and entries of ours at a provider that no record knows. Entries
    that are not ours are never touched.
    """
    rows: list[OrphanRow] = []
    unread: dict[str, str] = {}
    warning = ""

    async def collect() -> None:
        nonlocal warning
        from fairlead.cli.connect import connect
        from fairlead.cli.gc_rows import orphan_row
        from fairlead.cli.options import LogFormat, LogLevel, start_logging
        from fairlead.cli.snapshot import snapshot_of
        from fairlead.hub.inspect.orphans import orphans_of, remove_orphan

        start_logging(LogLevel.ERROR, LogFormat.AUTO)
        async with connect(kubeconfig, name="the hub") as cluster:
            snapshot = await snapshot_of(cluster)
            warning = snapshot.warning
            for lb in snapshot.load_balancers:
                if lb.unread:
                    unread[str(lb.key)] = lb.unread
                for orphan in orphans_of(lb):
                    done = await remove_orphan(cluster, lb, orphan) if delete else ""
                    rows.append(orphan_row(lb, orphan, done or ("on its way out already" if orphan.leaving else "")))

    run_async(collect)
    left = [row for row in rows if not row.done]
    if output is Output.JSON:
        from fairlead.cli.formatting import print_json

        print_json({"left": len(left), "orphans": rows, "unread": unread})
    else:
        from fairlead.cli.gc_rows import lines_of

        print("\n".join(lines_of(rows, unread, warning=warning)))
    if left:
        raise typer.Exit(FAILED)
