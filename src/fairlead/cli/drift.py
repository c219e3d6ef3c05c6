"""``fairlead drift``: what others changed at the provider, our entries and foreign ones apart."""

from __future__ import annotations

import typer

from fairlead.cli.object_ref import Kubeconfig
from fairlead.cli.options import Output, OutputOption, Verbose
from fairlead.cli.run import FAILED, run_async


def drift(
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Show what others changed at the provider; exit code 1 when an entry of ours was.

    Every load balancer with a ledger is read back. Members that are not ours are listed apart, and are no drift.
    What cannot be read back from here ends with exit code 1 as well.
    """
    bad = False

    async def show() -> None:
        nonlocal bad
        from fairlead.cli.drift_rows import drift_row, lines_of
        from fairlead.cli.formatting import counted, print_json
        from fairlead.cli.snapshot import take_snapshot

        snapshot = await take_snapshot(kubeconfig)
        rows = [drift_row(lb) for lb in snapshot.load_balancers if lb.unread or lb.side.recorded_spec is not None]
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
