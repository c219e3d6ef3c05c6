"""``fairlead drift``: what was changed behind our back, ours and foreign apart."""

from __future__ import annotations

import typer

from fairlead.cli.options import Output, OutputOption, Verbose
from fairlead.cli.run import FAILED, run_async
from fairlead.cli.subject import Kubeconfig


def drift(
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Show what was changed behind our back; exit code 1 when something of ours was.

    Every load balancer with a ledger is read back. Members that are not ours are listed apart, and are no drift.
    What cannot be read back from here ends with exit code 1 as well.
    """
    bad = False

    async def show() -> None:
        nonlocal bad
        from fairlead.cli.drift_rows import drift_row, lines_of
        from fairlead.cli.look import look
        from fairlead.cli.words import counted, print_json

        looked = await look(kubeconfig)
        rows = [drift_row(one) for one in looked.found if one.unread or one.side.done_spec is not None]
        bad = any(row.ours or row.unread for row in rows)
        if output is Output.JSON:
            print_json({"drifted": any(row.ours for row in rows), "loadBalancers": rows})
            return
        for row in rows:
            print("\n".join(lines_of(row)))
        drifted = sum(bool(row.ours) for row in rows)
        text = f"{drifted} of {counted(len(rows), 'load balancer')} drifted" if drifted else "Nothing of ours drifted"
        print(f"{text}." if rows else "There is nothing to read back: no load balancer has a ledger yet.")

    run_async(show)
    if bad:
        raise typer.Exit(FAILED)
