"""``fairlead plan``: what would change now, and why, field by field."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.options import Output, OutputOption, Verbose
from fairlead.cli.run import WOULD_CHANGE, run_async
from fairlead.cli.subject import Kubeconfig, Namespace, subject_of


def plan(
    subject: Annotated[
        str, typer.Argument(metavar="KIND/NAME", help="lb/NAME, tcplb/NAME, or class/NAME; all without it.")
    ] = "",
    namespace: Namespace = "default",
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Show what would change, and why; exit code 2 when something would.

    Field by field, what is on record -> what is wanted, and what is really there where that differs. What is held
    (=) does not count as a change. Load balancers of the hub's own proxies have no ledger to compare with.
    """
    meant = subject_of(subject, namespace) if subject else None
    changes = False

    async def show() -> None:
        nonlocal changes
        from fairlead.cli.look import look
        from fairlead.cli.plan_rows import lines_of, plan_of, summary
        from fairlead.cli.words import print_json

        looked = await look(kubeconfig, meant)
        plans = [plan_of(one) for one in looked.found if not one.served]
        changes = any(not row.held_by for one in plans for row in one.rows)
        if output is Output.JSON:
            print_json({"wouldChange": changes, "hubLeads": looked.hub.leading, "loadBalancers": plans})
            return
        for one in plans:
            if one.rows or one.problem or one.unread:
                print("\n".join(lines_of(one)))
        served = sum(one.served for one in looked.found)
        print(summary(plans, served=served, compared=len(plans)))
        if looked.note:
            print(looked.note)

    run_async(show)
    if changes:
        raise typer.Exit(WOULD_CHANGE)
