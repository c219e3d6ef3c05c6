"""``fairlead explain``: why each backend is, or is not, registered, since when, and what it waits for."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.options import Output, OutputOption, Verbose
from fairlead.cli.run import run_async
from fairlead.cli.subject import Kubeconfig, Namespace, subject_of


def explain(
    subject: Annotated[str, typer.Argument(metavar="KIND/NAME", help="lb/NAME, tcplb/NAME, or class/NAME.")],
    namespace: Namespace = "default",
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Say why each backend is, or is not, registered.

    Since when, what it waits for (a guard, a pause, a drain, its provider), and what was left out and why.
    """
    meant = subject_of(subject, namespace)

    async def show() -> None:
        from fairlead.cli.explain_rows import explained, lines_of
        from fairlead.cli.look import look
        from fairlead.cli.words import print_json

        looked = await look(kubeconfig, meant)
        rows = [explained(one, now=looked.now, leading=looked.hub.leading) for one in looked.found]
        if output is Output.JSON:
            print_json({"hubLeads": looked.hub.leading, "loadBalancers": rows})
            return
        for one in rows:
            print("\n".join(lines_of(one, now=looked.now)))
        if not rows:
            print(f"No load balancer is of {meant.words} yet.")
        if looked.note:
            print(looked.note)

    run_async(show)
