"""``fairlead drift``: what others changed at the provider, our entries and foreign ones apart."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.complete import complete_object
from fairlead.cli.exit_codes import ATTENTION, FAILED, OK
from fairlead.cli.options import SUBJECT, Context, Kubeconfig, Labels, Namespace, Output, OutputOption, Verbose, Watch
from fairlead.cli.run import run_for_code
from fairlead.cli.selection import Selection, selection_of


def drift(
    subject: Annotated[
        str,
        typer.Argument(metavar="KIND/NAME", help=f"{SUBJECT}; all without it.", autocompletion=complete_object),
    ] = "",
    namespace: Namespace = "",
    selector: Labels = "",
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Show what others changed at the provider, and how it is repaired; exit code 4 when an entry of ours was.

    Every load balancer with a ledger is read back. Foreign entries are listed separately, and are no drift.
    Only the hub configures its own proxies: of their load balancers it is shown whether they have the newest state.
    """
    selection = selection_of(subject, namespace, selector)
    run_for_code(lambda: _show(selection, kubeconfig, context, output, watch=watch))


async def _show(selection: Selection, kubeconfig: Path | None, context: str, output: Output, *, watch: bool) -> int:
    from fairlead.cli.drift_rows import drift_row, lines_of, summary
    from fairlead.cli.output import Answer, show
    from fairlead.cli.snapshot import take_snapshot

    async def ask() -> Answer:
        snapshot = await take_snapshot(kubeconfig, selection, context=context)
        read = [lb for lb in snapshot.load_balancers if lb.served or lb.unread or lb.side.recorded_spec is not None]
        rows = [drift_row(lb) for lb in read]
        drifted, unread = any(row.ours for row in rows), any(row.unread for row in rows)
        return Answer(
            {"drifted": drifted, "loadBalancers": rows},
            lambda: [*(line for row in rows for line in lines_of(row)), summary(rows)],
            lambda: [row.load_balancer for row in rows if row.ours],
            ATTENTION if drifted else FAILED if unread else OK,
        )

    return await show(ask, output, watch=watch)
