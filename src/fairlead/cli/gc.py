"""``fairlead gc``: records without a load balancer and entries without a record; --delete has them deregistered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.complete import complete_object
from fairlead.cli.exit_codes import ATTENTION, FAILED, OK
from fairlead.cli.options import SUBJECT, Context, Kubeconfig, Labels, Namespace, Output, OutputOption, Verbose
from fairlead.cli.run import run_for_code
from fairlead.cli.selection import Selection, selection_of

if TYPE_CHECKING:
    from fairlead.cli.gc_rows import OrphanRow


def gc(
    subject: Annotated[
        str,
        typer.Argument(metavar="KIND/NAME", help=f"{SUBJECT}; all without it.", autocompletion=complete_object),
    ] = "",
    namespace: Namespace = "",
    selector: Labels = "",
    delete: Annotated[
        bool, typer.Option("--delete", help="Have the hub deregister them; one line for each, and no question.")
    ] = False,
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """List orphaned backends, and delete them; exit code 4 when some are left.

    Orphans are records whose load balancer is gone, and entries of ours at a provider that no record knows. Entries
    that are not ours are never touched. The hub's own proxies have no other state than the hub's: no orphans.
    """
    selection = selection_of(subject, namespace, selector)
    run_for_code(lambda: _collect(selection, kubeconfig, context, output, delete=delete))


async def _collect(selection: Selection, kubeconfig: Path | None, context: str, output: Output, *, delete: bool) -> int:
    from fairlead.cli.connect import connect
    from fairlead.cli.gc_rows import lines_of, orphan_row
    from fairlead.cli.options import LogFormat, LogLevel, start_logging
    from fairlead.cli.output import emit
    from fairlead.cli.snapshot import snapshot_of
    from fairlead.hub.inspect.orphans import orphans_of, remove_orphan

    rows: list[OrphanRow] = []
    unread: dict[str, str] = {}
    start_logging(LogLevel.ERROR, LogFormat.AUTO)
    async with connect(kubeconfig, context=context, name="the hub") as cluster:
        snapshot = await snapshot_of(cluster, selection)
        for lb in snapshot.load_balancers:
            if lb.unread and not lb.served:
                unread[str(lb.key)] = lb.unread
            for orphan in orphans_of(lb):
                done = await remove_orphan(cluster, lb, orphan) if delete else ""
                rows.append(orphan_row(lb, orphan, done or ("on its way out already" if orphan.leaving else "")))
    left = [row for row in rows if not row.done]
    served = sum(lb.served for lb in snapshot.load_balancers)
    emit(
        output,
        {"left": len(left), "orphans": rows, "unread": unread},
        lines=lambda: lines_of(rows, unread, warning=snapshot.warning, served=served),
        names=lambda: dict.fromkeys(row.load_balancer for row in left),
    )
    return ATTENTION if left else FAILED if unread else OK
