"""``fairlead plan``: what would change now, and why, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.options import Output, OutputOption, Verbose
from fairlead.cli.run import run_async
from fairlead.cli.subject import Kubeconfig, Namespace, subject_of

if TYPE_CHECKING:
    from fairlead.hub.preview import Previewed

WOULD_CHANGE = 2


def plan(
    subject: Annotated[str, typer.Argument(metavar="[KIND/NAME]", help="One load balancer; all without it.")] = "",
    namespace: Namespace = "default",
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Show what would change and why; exit code 2 when something would. Nothing is changed.

    Covers load balancers whose ledger is BackendRecords; those that the hub serves itself (envoy) need none.
    """
    from fairlead.model.keys import LoadBalancerKey

    key = LoadBalancerKey(subject_of(subject)[0], namespace, subject_of(subject)[1]) if subject else None
    changes = False

    async def show() -> None:
        nonlocal changes
        from fairlead.cli.connect import connect
        from fairlead.hub.preview import preview

        async with connect(kubeconfig, name="the hub") as cluster:
            found = await preview(cluster, key)
        changes = any(not one.plan.empty for one in found)
        _print(found, output)

    run_async(show)
    if changes:
        raise typer.Exit(WOULD_CHANGE)


def rows_of(one: Previewed) -> list[dict[str, str]]:
    """Return the rows of one plan, in words."""
    out: list[dict[str, str]] = []
    name = str(one.key)
    if one.plan.frontend is not None:
        frontend = one.plan.frontend
        out.append({"loadBalancer": name, "action": frontend.action, "reason": frontend.reason, "target": ""})
    for change in one.plan.changes:
        target = f"{change.listener} {change.key}"
        out.append({"loadBalancer": name, "action": change.action, "reason": change.reason, "target": target})
    for held in one.plan.held:
        row = held.change
        target = f"{row.listener} {row.key}"
        out.append(
            {"loadBalancer": name, "action": f"hold {row.action}", "reason": held.reason, "target": target}
            | {"message": held.message}
        )
    return out


def _print(found: list[Previewed], output: Output) -> None:
    rows = [row for one in found for row in rows_of(one)]
    if output is Output.JSON:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        return
    for row in rows:
        print(f"{row['loadBalancer']}  {row['action']:16} {row['target']:32} {row['reason']}")
        if row.get("message"):
            print(f"    {row['message']}")
    if not rows:
        print(f"nothing would change ({len(found)} load balancers)")
