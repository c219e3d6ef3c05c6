"""``fairlead plan``: what would change now, and why, field by field."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.object_ref import Kubeconfig, Namespace, parse_object_ref
from fairlead.cli.options import Output, OutputOption, Verbose
from fairlead.cli.run import WOULD_CHANGE, run_async


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
    ref = parse_object_ref(subject, namespace) if subject else None
    changes = False

    async def show() -> None:
        nonlocal changes
        from fairlead.cli.formatting import print_json
        from fairlead.cli.plan_rows import lines_of, plan_of, summary
        from fairlead.cli.snapshot import take_snapshot

        snapshot = await take_snapshot(kubeconfig, ref)
        plans = [plan_of(lb) for lb in snapshot.load_balancers if not lb.served]
        changes = any(not row.held_by for plan in plans for row in plan.rows)
        if output is Output.JSON:
            print_json({"wouldChange": changes, "hubLeads": snapshot.hub.leading, "loadBalancers": plans})
            return
        for plan in plans:
            if plan.rows or plan.problem or plan.unread:
                print("\n".join(lines_of(plan)))
        served = sum(lb.served for lb in snapshot.load_balancers)
        print(summary(plans, served=served, compared=len(plans)))
        if snapshot.warning:
            print(snapshot.warning)

    run_async(show)
    if changes:
        raise typer.Exit(WOULD_CHANGE)
