"""``fairlead explain``: why each backend is, or is not, registered, since when, and what it waits for."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.object_ref import Kubeconfig, Namespace, parse_object_ref
from fairlead.cli.options import Output, OutputOption, Verbose
from fairlead.cli.run import run_async


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
    ref = parse_object_ref(subject, namespace)

    async def show() -> None:
        from fairlead.cli.explain_rows import explained
        from fairlead.cli.explain_text import lines_of
        from fairlead.cli.formatting import print_json
        from fairlead.cli.snapshot import take_snapshot

        snapshot = await take_snapshot(kubeconfig, ref)
        rows = [explained(lb, now=snapshot.now, leading=snapshot.hub.leading) for lb in snapshot.load_balancers]
        if output is Output.JSON:
            print_json({"hubLeads": snapshot.hub.leading, "loadBalancers": rows})
            return
        for row in rows:
            print("\n".join(lines_of(row, now=snapshot.now)))
        if not rows:
            print(f"No load balancer is of {ref.title} yet.")
        if snapshot.warning:
            print(snapshot.warning)

    run_async(show)
