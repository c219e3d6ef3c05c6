"""``fairlead gc``: what nobody owns, in both directions; a report first, and with --delete it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.options import Output, OutputOption, Verbose
from fairlead.cli.run import FAILED, run_async
from fairlead.cli.subject import Kubeconfig

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
    """List backends that nobody owns, and delete them; exit code 1 when some are left.

    Records whose load balancer is gone, and entries of ours at a provider that no record knows. Members that are not
    ours are never touched.
    """
    rows: list[OrphanRow] = []
    unread: dict[str, str] = {}
    note = ""

    async def collect() -> None:
        nonlocal note
        from fairlead.cli.connect import connect
        from fairlead.cli.gc_rows import orphan_row
        from fairlead.cli.look import look_at
        from fairlead.cli.options import LogFormat, LogLevel, start_logging
        from fairlead.hub.inspect.orphans import orphans_of, remove_orphan

        start_logging(LogLevel.ERROR, LogFormat.AUTO)
        async with connect(kubeconfig, name="the hub") as cluster:
            looked = await look_at(cluster)
            note = looked.note
            for one in looked.found:
                if one.unread:
                    unread[str(one.key)] = one.unread
                for orphan in orphans_of(one):
                    done = await remove_orphan(cluster, one, orphan) if delete else ""
                    rows.append(orphan_row(one, orphan, done or ("on its way out already" if orphan.leaving else "")))

    run_async(collect)
    left = [row for row in rows if not row.done]
    if output is Output.JSON:
        from fairlead.cli.words import print_json

        print_json({"left": len(left), "orphans": rows, "unread": unread})
    else:
        from fairlead.cli.gc_rows import lines_of

        print("\n".join(lines_of(rows, unread, note=note)))
    if left:
        raise typer.Exit(FAILED)
