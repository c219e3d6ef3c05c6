"""``fairlead explain``: why each backend is, or is not, registered, since when, and what it waits for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from fairlead.cli.complete import complete_explained
from fairlead.cli.options import (
    HubApi,
    Labels,
    Namespace,
    Output,
    OutputOption,
    TokenFile,
    Watch,
    takes_groups,
)
from fairlead.cli.run import run_for_code
from fairlead.cli.selection import Selection, selection_of
from fairlead.errors import BadConfiguration, NotFound
from fairlead.status.object_ref import CLASS, IN_MEMBERS, SERVICE, ObjectRef, kinds_text

if TYPE_CHECKING:
    from fairlead.cli.explain_member import RequestsRow, ServiceRow
    from fairlead.cli.output import VerbAnswer


@takes_groups
def explain(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="KIND/NAME",
            help=f"KIND is one of {kinds_text(sharing=True)}; or a name as status lists it.",
            autocompletion=complete_explained,
        ),
    ] = "",
    namespace: Namespace = "",
    selector: Labels = "",
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
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Say why each backend is, or is not, registered.

    Since when, what it waits for (a guard, a pause, a drain, its provider), and what was left out and why. With
    --history: what happened to the load balancer, also when it no longer exists. With a member's kubeconfig: what the
    member knows of its Service svc/NAME, its Ingress, Gateway or route.
    """
    from fairlead.cli.output import show

    selection = selection_of(subject, namespace, selector, sharing=True)
    ref = selection.ref
    if ref is None and not selection.filters:
        raise BadConfiguration("KIND/NAME is missing: name an object, as in svc/web, or several with -n or -l")
    if history and (ref is None or ref.kind == CLASS or selector):
        raise BadConfiguration("--history is of one load balancer: name it, as in svc/web or lb/shared")

    async def ask() -> VerbAnswer:
        if history and ref is not None:
            return await _history(ref, api, hub_url, token_file)
        return await _present(selection, api)

    run_for_code(lambda: show(ask, output, watch=watch))


async def _present(selection: Selection, api: HubApi) -> VerbAnswer:
    from fairlead.cli.explain_rows import explained, lines_of
    from fairlead.cli.hub_reader import NO_KINDS, take_snapshot
    from fairlead.cli.output import VerbAnswer
    from fairlead.errors import NotServed

    ref = selection.ref
    try:
        snapshot = await take_snapshot(api, selection)
    except (NotFound, NotServed) as error:
        # A member has none of the hub's kinds; and a hub may be a member of its own.
        if ref is not None and ref.kind in IN_MEMBERS:
            if (there := await _at_member(ref, api)) is not None:
                return VerbAnswer(there.row, lambda: there.lines, lambda: [ref.path])
            if error.reason == NO_KINDS:
                raise NotFound(ref.not_found) from None
        raise error from None
    own = None
    if ref is not None and ref.kind in IN_MEMBERS:
        own = await _at_member(ref, api, own_hub=True)
    rows = [explained(lb, now=snapshot.now, leading=snapshot.hub.leading) for lb in snapshot.load_balancers]

    def lines() -> list[str]:
        printed = [line for row in rows for line in lines_of(row, now=snapshot.now)]
        return [
            *(own.lines if own is not None else ()),
            *(printed or [f"No load balancer is of {selection.title} yet."]),
            *([snapshot.warning] if snapshot.warning else []),
        ]

    value = {"hubLeads": snapshot.hub.leading, "loadBalancers": rows} | ({"object": own.row} if own is not None else {})
    return VerbAnswer(value, lines, lambda: [row.load_balancer for row in rows])


class _MemberObject(NamedTuple):
    """An object as its own cluster knows it: None and a line that says why where that may not be read."""

    row: ServiceRow | RequestsRow | None
    lines: list[str]


async def _at_member(ref: ObjectRef, api: HubApi, *, own_hub: bool = False) -> _MemberObject | None:
    """Explain an object where it is; None where there is none. ``own_hub``: only where the hub is its cluster, too."""
    from fairlead.cli.explain_member import explain_requests, explain_service, requests_lines, service_lines
    from fairlead.cli.hub_reader import connect_hub
    from fairlead.errors import Forbidden
    from fairlead.standalone.right_cluster import OWN_TENANT, has_own_tenant

    async with connect_hub(api, name="the member") as cluster:
        try:
            is_own = ref.member in ("", OWN_TENANT) and await has_own_tenant(cluster)
            if own_hub and not is_own:
                return None
            if ref.kind == SERVICE:
                service = await explain_service(cluster, ref, own_hub=is_own)
                return None if service is None else _MemberObject(service, service_lines(service))
            requests = await explain_requests(cluster, ref, own_hub=is_own)
            return None if requests is None else _MemberObject(requests, requests_lines(requests))
        except Forbidden as error:
            if not own_hub:
                raise
            return _MemberObject(None, [f"Note: what {ref.title} itself says could not be read: {error.sentence}"])


async def _history(ref: ObjectRef, api: HubApi, hub_url: str, token_file: Path | None) -> VerbAnswer:
    from fairlead.cli.explain_rows import history_lines, read_history
    from fairlead.cli.hub_reader import NO_KINDS, check_kinds, connect_hub
    from fairlead.cli.output import VerbAnswer
    from fairlead.cli.selection import resolve_one
    from fairlead.errors import NotServed
    from fairlead.model.keys import LoadBalancerKey

    async with connect_hub(api) as cluster:
        try:
            await check_kinds(cluster)
        except NotServed as error:
            events = "; without --history the Events of it in this member are shown" if ref.kind in IN_MEMBERS else ""
            raise NotServed(
                f"The history of {ref.title} is at the hub, and {cluster.server} is not a hub: give the hub's "
                f"--kubeconfig{events}",
                detail=error.sentence,
                reason=NO_KINDS,
            ) from error
        matching = await resolve_one(cluster, ref)
        key = LoadBalancerKey(matching.kind, matching.namespace, matching.name)
        entries = await read_history(cluster, key, hub_url, token_file)

    def lines() -> list[str]:
        more = "A hub that serves /metrics has it in memory: fairlead explain --history --hub-url http://HOST:PORT"
        return [*history_lines(str(key), entries), *([more] if not entries and not hub_url else [])]

    return VerbAnswer({"loadBalancer": str(key), "history": entries}, lines, lambda: [str(key)])
