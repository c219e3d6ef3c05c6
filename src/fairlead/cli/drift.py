"""``fairlead drift``: what was changed behind our back, ours and foreign apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from fairlead.cli.options import Output, OutputOption, Verbose
from fairlead.cli.run import FAILED, run_async
from fairlead.cli.subject import Kubeconfig

if TYPE_CHECKING:
    from fairlead.hub.preview import Previewed


def drift(
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Read load balancers back and compare them with the ledger; exit code 1 when something of ours differs."""
    rows: list[dict[str, object]] = []

    async def show() -> None:
        from fairlead.cli.connect import connect
        from fairlead.hub.preview import preview

        async with connect(kubeconfig, name="the hub") as cluster:
            rows.extend(_row(one) for one in await preview(cluster))

    run_async(show)
    if output is Output.JSON:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
    else:
        for row in rows:
            words = [
                f"{what}: {row[what]}" for what in ("missing", "changed", "foreign", "vanished", "unread") if row[what]
            ]
            print(f"{row['loadBalancer']}  {'; '.join(words) or 'as recorded'}")
        if not rows:
            print("no load balancer has a ledger")
    if any(row["missing"] or row["changed"] or row["vanished"] for row in rows):
        raise typer.Exit(FAILED)


def _row(one: Previewed) -> dict[str, object]:
    return {
        "loadBalancer": str(one.key),
        "missing": [str(at) for _, at in one.drift.missing],
        "changed": [str(at) for _, at in one.drift.changed],
        "foreign": list(one.drift.foreign),
        "vanished": one.drift.vanished,
        "unread": one.unread,
    }
