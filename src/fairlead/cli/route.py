"""``fairlead route``: the listener, route, rule and backends that a request matches, and why no other matches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.complete import complete_http_load_balancer, complete_method
from fairlead.cli.options import (
    HubApi,
    Labels,
    Namespace,
    Output,
    OutputOption,
    Watch,
    takes_groups,
)
from fairlead.cli.run import ATTENTION, OK, run_for_code
from fairlead.cli.selection import Selection, selection_of

if TYPE_CHECKING:
    from fairlead.cli.route_rows import HeldHTTP, TypedRequest
    from fairlead.kube.cluster import Cluster


@takes_groups
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
        typer.Option("--lb", metavar="httplb/NAME", help="Only this one.", autocompletion=complete_http_load_balancer),
    ] = "",
    namespace: Namespace = "",
    selector: Labels = "",
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Say which listener, route, rule and backends a request meets, in which member.

    Also why no other rule matches, what the filters do, and how many targets are ready. No request is sent: the hub's
    objects give the answer, for every load balancer that accepts the request. Exit code 4: none accepts it; the nearest
    rules and the next step are shown.
    """
    from fairlead.cli.route_rows import parse_request

    typed = parse_request(method, url, headers or ())
    selection = _named(load_balancer, namespace, selector)
    run_for_code(lambda: _show(api, typed, selection, address or typed.address, output, watch=watch))


def _named(text: str, namespace: str, selector: str) -> Selection:
    from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
    from fairlead.errors import BadConfiguration
    from fairlead.status.object_ref import ANY

    selection = selection_of(text, namespace, selector)
    if selection.ref is not None and selection.ref.kind not in (HTTP_LOAD_BALANCERS.kind, ANY):
        raise BadConfiguration(
            f"--lb: {text!r} is not an HTTPLoadBalancer such as httplb/tenant-east/ingressclass.fairlead"
        )
    return selection


async def _show(
    api: HubApi,
    typed: TypedRequest,
    selection: Selection,
    address: str,
    output: Output,
    *,
    watch: bool,
) -> int:
    """Print what the request meets; the exit code says whether it is taken."""
    from fairlead.cli.hub_reader import connect_hub
    from fairlead.cli.output import VerbAnswer, show
    from fairlead.cli.route_rows import answers, lines_of

    async def ask() -> VerbAnswer:
        async with connect_hub(api, quiet=True) as cluster:
            held = await _read(cluster, selection, address)
        rows = answers(held, typed)
        return VerbAnswer(
            {"request": typed.title, "answers": rows},
            lambda: lines_of(rows, typed, wide=output is Output.WIDE),
            lambda: [row.load_balancer for row in rows],
            OK if any(row.taken for row in rows) else ATTENTION,
        )

    return await show(ask, output, watch=watch)


async def _read(cluster: Cluster, selection: Selection, address: str) -> list[HeldHTTP]:
    """Read the load balancers that are meant, as the hub would serve them now."""
    from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
    from fairlead.cli.hub_reader import snapshot_of
    from fairlead.cli.route_rows import HeldHTTP
    from fairlead.errors import NotFound
    from fairlead.model.keys import LoadBalancerKey

    snapshot = await snapshot_of(cluster, selection)
    previewed = {lb.key: lb.translation for lb in snapshot.load_balancers}
    held: list[HeldHTTP] = []
    for obj in await cluster.list(HTTP_LOAD_BALANCERS):
        translation = previewed.get(LoadBalancerKey(HTTP_LOAD_BALANCERS.kind, *obj.key))
        if translation is not None and address in ("", *obj.status.addresses):
            held.append(HeldHTTP(obj, translation.desired))
    if held or not (selection.ref or address):
        return held
    if not address:
        raise NotFound(f"{selection.title} is not an HTTPLoadBalancer; to list them: kubectl get httplb -A")
    raise NotFound(f"No HTTPLoadBalancer has the address {address}; to list addresses: kubectl get httplb -A")
