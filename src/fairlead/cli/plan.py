"""``fairlead plan``: what would change now, and why, field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.complete import complete_object
from fairlead.cli.exit_codes import ATTENTION, OK
from fairlead.cli.options import SUBJECT, Context, Kubeconfig, Labels, Namespace, Output, OutputOption, Verbose, Watch
from fairlead.cli.run import run_for_code
from fairlead.cli.selection import Selection, selection_of


def plan(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="KIND/NAME",
            help=f"{SUBJECT}; all without it.",
            autocompletion=complete_object,
        ),
    ] = "",
    namespace: Namespace = "",
    selector: Labels = "",
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Show what would change, and why; exit code 4 when something would.

    Field by field, what is on record -> what is wanted, and what is really there where that differs. What is held
    (=) does not count as a change, and what others changed (!) stands until fairlead repair. -o wide also lists load
    balancers to which nothing would be done.
    """
    selection = selection_of(subject, namespace, selector)
    run_for_code(lambda: _show(selection, kubeconfig, context, output, watch=watch))


async def _show(selection: Selection, kubeconfig: Path | None, context: str, output: Output, *, watch: bool) -> int:
    from fairlead.cli.output import Answer, show
    from fairlead.cli.plan_rows import lines_of, plan_of, summary
    from fairlead.cli.snapshot import take_snapshot

    async def ask() -> Answer:
        snapshot = await take_snapshot(kubeconfig, selection, context=context)
        plans = [plan_of(lb, leading=snapshot.hub.leading) for lb in snapshot.load_balancers]
        changes = any(not row.held_by for plan in plans for row in plan.rows)

        def lines() -> list[str]:
            printed = [plan for plan in plans if plan.says_something or output is Output.WIDE]
            return [
                *(line for plan in printed for line in lines_of(plan)),
                summary(plans),
                *([snapshot.warning] if snapshot.warning else []),
            ]

        value = {"wouldChange": changes, "hubLeads": snapshot.hub.leading, "loadBalancers": plans}
        names = [plan.load_balancer for plan in plans if plan.rows]
        return Answer(value, lines, lambda: names, ATTENTION if changes else OK)

    return await show(ask, output, watch=watch)
