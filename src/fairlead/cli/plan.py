"""``fairlead plan``: what would change now, and why, field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.complete import complete_object
from fairlead.cli.exit_codes import OK, WOULD_CHANGE
from fairlead.cli.object_ref import Namespace, ObjectRef, parse_object_ref
from fairlead.cli.options import Context, Kubeconfig, Output, OutputOption, Verbose
from fairlead.cli.run import run_for_code


def plan(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="KIND/NAME",
            help="svc/NAME, lb/NAME, tcplb/NAME, httplb/NAME, hostname/NAME, or class/NAME; all without it.",
            autocompletion=complete_object,
        ),
    ] = "",
    namespace: Namespace = "default",
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Show what would change, and why; exit code 2 when something would.

    Field by field, what is on record -> what is wanted, and what is really there where that differs. What is held
    (=) does not count as a change, and what others changed (!) stands until fairlead repair. -o wide also lists load
    balancers to which nothing would be done.
    """
    ref = parse_object_ref(subject, namespace) if subject else None
    run_for_code(lambda: _show(ref, kubeconfig, context, output))


async def _show(ref: ObjectRef | None, kubeconfig: Path | None, context: str, output: Output) -> int:
    from fairlead.cli.output import emit
    from fairlead.cli.plan_rows import lines_of, plan_of, summary
    from fairlead.cli.snapshot import take_snapshot

    snapshot = await take_snapshot(kubeconfig, ref, context=context)
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
    emit(output, value, lines=lines, names=lambda: [plan.load_balancer for plan in plans if plan.rows])
    return WOULD_CHANGE if changes else OK
