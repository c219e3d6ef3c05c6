"""``fairlead explain``: why each backend is, or is not, registered, since when, and what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.options import Verbose
from fairlead.cli.run import FAILED, run_async
from fairlead.cli.subject import Kubeconfig, Namespace, subject_of

if TYPE_CHECKING:
    from fairlead.hub.preview import Previewed


def explain(
    subject: Annotated[str, typer.Argument(metavar="KIND/NAME", help="One load balancer.")],
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Say of each backend of one load balancer where it stands, since when, and what it waits for."""
    from fairlead.model.keys import LoadBalancerKey

    kind, name = subject_of(subject)
    found: list[Previewed] = []

    async def show() -> None:
        from fairlead.cli.connect import connect
        from fairlead.hub.preview import preview

        async with connect(kubeconfig, name="the hub") as cluster:
            found.extend(await preview(cluster, LoadBalancerKey(kind, namespace, name)))

    run_async(show)
    if not found:
        print(f"there is no {kind} {namespace}/{name} with a ledger")
        raise typer.Exit(FAILED)
    for line in explained(found[0]):
        print(line)


def explained(one: Previewed) -> list[str]:
    """Return the explanation, line by line."""
    lines = [f"{one.key} (provider {one.provider})"]
    lines += [
        f"  {condition.type}={condition.status} {condition.reason} {condition.message}".rstrip()
        for condition in (one.built.conditions if one.built is not None else ())
    ]
    for record in one.records:
        target, status = record.spec.target, record.status
        owners = ", ".join(record.spec.owners or ()) or "its Service"
        source = f" ({target.source})" if target.source else ""
        lines.append(
            f"  {target.address}:{target.port}{source}: {status.state or 'Pending'} since {status.since or '?'}, "
            f"{status.reason}; wanted by {owners}"
        )
        if status.message:
            lines.append(f"      {status.message}")
    recorded = {(record.spec.target.address, record.spec.target.port) for record in one.records}
    lines += [
        f"  {change.key}: {change.action} is next, {change.reason}"
        for change in one.plan.changes
        if (change.key.address, change.key.port) not in recorded
    ]
    lines += [f"  {held.change.key}: {held.change.action} is held, {held.message}" for held in one.plan.held]
    if one.drift.sentence:
        lines.append(f"  drift: {one.drift.sentence}")
    if one.unread:
        lines.append(f"  not read back: {one.unread}")
    return lines
