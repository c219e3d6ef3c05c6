"""``fairlead route``: the listener, route, rule and backends that a request matches, and why no other matches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.complete import complete_http_load_balancer, complete_method
from fairlead.cli.object_ref import Namespace
from fairlead.cli.options import Context, Kubeconfig, Output, OutputOption, Verbose
from fairlead.cli.run import run_check

if TYPE_CHECKING:
    from fairlead.cli.object_ref import ObjectRef
    from fairlead.cli.route_request import TypedRequest
    from fairlead.cli.route_rows import HeldHTTP
    from fairlead.kube.cluster import Cluster


def route(
    method: Annotated[
        str, typer.Argument(metavar="METHOD", help="Such as GET.", autocompletion=complete_method, show_default=False)
    ],
    url: Annotated[str, typer.Argument(metavar="URL", help="http:// or https://; its host is the server name too.")],
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="A header; several may be given."),
    ] = None,
    address: Annotated[
        str, typer.Option("--address", metavar="IP", help="Only the load balancer with this address.")
    ] = "",
    load_balancer: Annotated[
        str,
        typer.Option("--lb", metavar="httplb/NAME", help="Only this LB.", autocompletion=complete_http_load_balancer),
    ] = "",
    namespace: Namespace = "default",
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Say which listener, route, rule and backends a request meets, in which member.

    Also why no other rule matches, what the filters do, and how many targets are ready. Nothing is sent: the
    answer is from what the hub holds. Of several load balancers that take it, all are explained. Exit code 1: nothing
    takes it; what comes nearest is shown, and what to do next.
    """
    from fairlead.cli.route_request import parse_request

    typed = parse_request(method, url, headers or ())
    only = _named(load_balancer, namespace)
    run_check(lambda: _show(kubeconfig, context, typed, only, address or typed.address, output))


def _named(text: str, namespace: str) -> ObjectRef | None:
    from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
    from fairlead.cli.object_ref import parse_object_ref
    from fairlead.errors import BadConfiguration

    if not text:
        return None
    ref = parse_object_ref(text, namespace)
    if ref.kind != HTTP_LOAD_BALANCERS.kind:
        raise BadConfiguration(f"--lb: {text!r} is no HTTPLoadBalancer, as in httplb/tenant-east/ingressclass.fairlead")
    return ref


async def _show(
    kubeconfig: Path | None,
    context: str,
    typed: TypedRequest,
    only: ObjectRef | None,
    address: str,
    output: Output,
) -> bool:
    """Print what the request meets; returns whether it is taken."""
    from fairlead.cli.connect import connect
    from fairlead.cli.options import LogFormat, LogLevel, start_logging
    from fairlead.cli.output import emit
    from fairlead.cli.route_rows import answers
    from fairlead.cli.route_text import lines_of

    start_logging(LogLevel.ERROR, LogFormat.AUTO)
    async with connect(kubeconfig, context=context, name="the hub") as cluster:
        held = await _read(cluster, only, address)
    rows = answers(held, typed)
    emit(
        output,
        {"request": typed.title, "answers": rows},
        lines=lambda: lines_of(rows, typed, wide=output is Output.WIDE),
        names=lambda: [row.load_balancer for row in rows],
    )
    return any(row.taken for row in rows)


async def _read(cluster: Cluster, only: ObjectRef | None, address: str) -> list[HeldHTTP]:
    """Read the load balancers that are meant, as the hub would serve them now."""
    from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
    from fairlead.cli.connect import check_kinds
    from fairlead.cli.route_rows import HeldHTTP
    from fairlead.errors import NotFound
    from fairlead.hub.inspect.preview import preview
    from fairlead.model.keys import LoadBalancerKey

    await check_kinds(cluster)
    key = LoadBalancerKey(only.kind, only.namespace, only.name) if only is not None else None
    previewed = {each.key: each.translation for each in await preview(cluster, key)}
    held: list[HeldHTTP] = []
    for obj in await cluster.list(HTTP_LOAD_BALANCERS):
        translation = previewed.get(LoadBalancerKey(HTTP_LOAD_BALANCERS.kind, *obj.key))
        if translation is not None and address in ("", *obj.status.addresses):
            held.append(HeldHTTP(obj, translation.desired))
    if held or not (only or address):
        return held
    if only is not None and not previewed:
        raise NotFound(only.not_found)
    raise NotFound(f"No HTTPLoadBalancer has the address {address}; kubectl get httplb -A lists them with theirs")
