"""``fairlead drift``: what others changed at the provider, our entries and foreign ones apart."""

from __future__ import annotations

from pathlib import Path

from fairlead.cli.exit_codes import FAILED, OK
from fairlead.cli.options import Context, Kubeconfig, Output, OutputOption, Verbose
from fairlead.cli.run import run_for_code


def drift(
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Show what others changed at the provider, and how it is repaired; exit code 1 when an entry of ours was.

    Every load balancer with a ledger is read back. Foreign entries are listed separately, and are no drift.
    What cannot be read back from here ends with exit code 1 as well. Only the hub configures its
    own proxies: of their load balancers it is shown whether they have the newest state.
    """
    run_for_code(lambda: _show(kubeconfig, context, output))


async def _show(kubeconfig: Path | None, context: str, output: Output) -> int:
    from fairlead.cli.drift_rows import drift_row, lines_of, summary
    from fairlead.cli.output import emit
    from fairlead.cli.snapshot import take_snapshot

    snapshot = await take_snapshot(kubeconfig, context=context)
    read = [lb for lb in snapshot.load_balancers if lb.served or lb.unread or lb.side.recorded_spec is not None]
    rows = [drift_row(lb) for lb in read]
    emit(
        output,
        {"drifted": any(row.ours for row in rows), "loadBalancers": rows},
        lines=lambda: [*(line for row in rows for line in lines_of(row)), summary(rows)],
        names=lambda: [row.load_balancer for row in rows if row.ours],
    )
    return FAILED if any(row.ours or row.unread for row in rows) else OK
