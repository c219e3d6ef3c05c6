"""``fairlead explain``: why each backend is, or is not, registered, since when, and what it waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.complete import complete_explained
from fairlead.cli.object_ref import CLASS, IN_MEMBERS, SERVICE, Namespace, ObjectRef, parse_object_ref
from fairlead.cli.options import Context, Kubeconfig, Output, OutputOption, TokenFile, Verbose
from fairlead.cli.run import run_async


def explain(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="KIND/NAME",
            help="svc/NAME, ingress/NAME, gateway/NAME, httproute/NAME, grpcroute/NAME, tlsroute/NAME, lb/NAME, "
            "tcplb/NAME, httplb/NAME, hostname/NAME, class/NAME.",
            autocompletion=complete_explained,
        ),
    ],
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
    token_file: TokenFile = None,
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Say why each backend is, or is not, registered.

    Since when, what it waits for (a guard, a pause, a drain, its provider), and what was left out and why. With
    --history: what happened to the load balancer, also when it no longer exists. With a member's kubeconfig: what the
    member knows of its Service svc/NAME, its Ingress, Gateway or route.
    """
    ref = parse_object_ref(subject, namespace, sharing=True)
    if history:
        run_async(lambda: _history(ref, kubeconfig, context, hub_url, token_file, output))
    else:
        run_async(lambda: _present(ref, kubeconfig, context, output))


async def _present(ref: ObjectRef, kubeconfig: Path | None, context: str, output: Output) -> None:
    from fairlead.cli.connect import NO_KINDS
    from fairlead.cli.explain_rows import explained
    from fairlead.cli.explain_text import lines_of
    from fairlead.cli.output import emit
    from fairlead.cli.snapshot import take_snapshot
    from fairlead.errors import NotFound

    try:
        snapshot = await take_snapshot(kubeconfig, ref, context=context)
    except NotFound as error:
        # A member has none of the hub's kinds; and a hub may be a member of its own.
        if ref.kind in IN_MEMBERS and await _at_member(ref, kubeconfig, context, output):
            return
        if ref.kind in IN_MEMBERS and error.reason == NO_KINDS:
            raise NotFound(ref.not_found) from None
        raise error from None
    rows = [explained(lb, now=snapshot.now, leading=snapshot.hub.leading) for lb in snapshot.load_balancers]

    def lines() -> list[str]:
        printed = [line for row in rows for line in lines_of(row, now=snapshot.now)]
        return [
            *(printed or [f"No load balancer is of {ref.title} yet."]),
            *([snapshot.warning] if snapshot.warning else []),
        ]

    value = {"hubLeads": snapshot.hub.leading, "loadBalancers": rows}
    emit(output, value, lines=lines, names=lambda: [row.load_balancer for row in rows])


async def _at_member(ref: ObjectRef, kubeconfig: Path | None, context: str, output: Output) -> bool:
    """Explain an object where it is; returns whether there is one."""
    from fairlead.cli import explain_requests, explain_service
    from fairlead.cli.connect import connect
    from fairlead.cli.output import emit

    async with connect(kubeconfig, context=context, name="the member") as cluster:
        if ref.kind == SERVICE:
            service = await explain_service.explain_service(cluster, ref)
            row, lines = service, explain_service.lines_of(service) if service is not None else []
        else:
            requests = await explain_requests.explain_requests(cluster, ref)
            row, lines = requests, explain_requests.lines_of(requests) if requests is not None else []
    if row is not None:
        emit(output, row, lines=lambda: lines, names=lambda: [ref.path])
    return row is not None


async def _history(
    ref: ObjectRef, kubeconfig: Path | None, context: str, hub_url: str, token_file: Path | None, output: Output
) -> None:
    from fairlead.cli.connect import connect
    from fairlead.cli.history_reader import read_history
    from fairlead.cli.history_rows import history_lines
    from fairlead.cli.output import emit
    from fairlead.cli.service_ref import resolve_one
    from fairlead.errors import BadConfiguration
    from fairlead.model.keys import LoadBalancerKey

    if ref.kind == CLASS:
        raise BadConfiguration("--history is of one load balancer: name it, as in svc/web or lb/shared")
    async with connect(kubeconfig, context=context, name="the hub") as cluster:
        matching = await resolve_one(cluster, ref)
        key = LoadBalancerKey(matching.kind, matching.namespace, matching.name)
        entries = await read_history(cluster, key, hub_url, token_file)

    def lines() -> list[str]:
        more = "A hub that serves /metrics has it in memory: fairlead explain --history --hub-url http://HOST:PORT"
        return [*history_lines(str(key), entries), *([more] if not entries and not hub_url else [])]

    emit(output, {"loadBalancer": str(key), "history": entries}, lines=lines, names=lambda: [str(key)])
