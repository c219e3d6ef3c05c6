"""``fairlead explain``: why each backend is, or is not, registered, since when, and what it waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.object_ref import CLASS, Kubeconfig, Namespace, ObjectRef, parse_object_ref
from fairlead.cli.options import Output, OutputOption, Verbose
from fairlead.cli.run import run_async


def explain(
    subject: Annotated[str, typer.Argument(metavar="KIND/NAME", help="lb/NAME, tcplb/NAME, or class/NAME.")],
    namespace: Namespace = "default",
    history: Annotated[
        bool, typer.Option("--history", help="Show what happened to it instead: events, decisions, calls, answers.")
    ] = False,
    hub_url: Annotated[
        str,
        typer.Option(
            "--hub-url", metavar="URL", help="With --history: also read the memory of the hub with --metrics there."
        ),
    ] = "",
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Say why each backend is, or is not, registered.

    Since when, what it waits for (a guard, a pause, a drain, its provider), and what was left out and why. With
    --history: what happened to the load balancer, also when it no longer exists.
    """
    ref = parse_object_ref(subject, namespace)
    run_async(lambda: _history(ref, kubeconfig, hub_url, output) if history else _present(ref, kubeconfig, output))


async def _present(ref: ObjectRef, kubeconfig: Path | None, output: Output) -> None:
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


async def _history(ref: ObjectRef, kubeconfig: Path | None, hub_url: str, output: Output) -> None:
    from fairlead.cli.connect import connect
    from fairlead.cli.formatting import print_json
    from fairlead.cli.history_reader import read_history
    from fairlead.cli.history_rows import history_lines
    from fairlead.errors import BadConfiguration
    from fairlead.model.keys import LoadBalancerKey

    if ref.kind == CLASS:
        raise BadConfiguration("--history is of one load balancer: name it, as in lb/shared or tcplb/shop.web")
    key = LoadBalancerKey(*ref)
    async with connect(kubeconfig, name="the hub") as cluster:
        entries = await read_history(cluster, key, hub_url)
    if output is Output.JSON:
        print_json({"loadBalancer": str(key), "history": entries})
        return
    print("\n".join(history_lines(str(key), entries)))
    if not entries and not hub_url:
        print("A hub that serves /metrics has it in memory: fairlead explain --history --hub-url http://HOST:PORT")
