"""``fairlead tenant``: add, list and remove member clusters, and rotate the keys of their agents.

``remove`` shows what would stop, gives permission and watches; the hub does the work. Run again after an interruption,
it continues. Never: stops load balancers that serve without ``--stop-serving``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.options import (
    HubAddress,
    HubApi,
    KeyFile,
    Labels,
    Output,
    OutputOption,
    PlainCommand,
    PlainGroup,
    ValidDays,
    ValidFor,
    Watch,
    duration_s,
    takes_groups,
)
from fairlead.cli.run import epilog_of, run_async, run_for_code
from fairlead.cli.selection import matcher

if TYPE_CHECKING:
    from fairlead.api.intent import IntentObject
    from fairlead.api.tenant import Tenant
    from fairlead.cli.tenant_access import TenantRow
    from fairlead.kube.cluster import Cluster


_POLL_S = 0.5


@takes_groups
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the member.", show_default=False)],
    stop_serving: Annotated[
        bool, typer.Option("--stop-serving", help="Even if it serves: drain its load balancers, then delete them.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would stop.")] = False,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="Succeed if there is no such member, for scripts.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is gone.")] = True,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help="How long to wait, such as 90s or 10m.")
    ] = "10m",
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Remove a member: show what stops, drain it, delete its load balancers, its namespace and its key.

    Rejected while the member serves, unless --stop-serving is given. The agent removes the addresses from the member's
    Services, each with an Event. Safe to repeat: it continues where it stopped. A missing member is an error, unless
    --ignore-not-found is given.
    """
    wait_s = duration_s(timeout, "--timeout")
    run_async(
        lambda: _remove(
            name.removeprefix("tenant/"),
            api,
            output,
            stop=stop_serving,
            dry_run=dry_run,
            ignore_not_found=ignore_not_found,
            wait_s=wait_s if wait else 0.0,
        )
    )


async def _remove(
    name: str,
    api: HubApi,
    output: Output,
    *,
    stop: bool,
    dry_run: bool,
    ignore_not_found: bool,
    wait_s: float,
) -> None:
    from fairlead.api.tenant import TENANTS
    from fairlead.cli.hub_reader import check_kinds, connect_hub
    from fairlead.cli.output import emit, say
    from fairlead.cli.tenant_access import load_balancers_of, no_tenant
    from fairlead.errors import NotFound

    in_words = output in (Output.TABLE, Output.WIDE)
    async with connect_hub(api) as cluster:
        await check_kinds(cluster)
        try:
            tenant = await cluster.get(TENANTS, "", name)
        except NotFound as error:
            missing = await no_tenant(cluster, name, detail=error.sentence)
            if not ignore_not_found:
                raise missing from error
            value = {"tenant": name, "namespace": "", "done": "NotFound", "loadBalancers": []}
            emit(output, value, lines=lambda: [missing.sentence], names=tuple)
            return
        objects = await load_balancers_of(cluster, tenant.namespace)
        if in_words:
            say(preview_lines(tenant, objects))
        if dry_run:
            done, last = "Nothing", "Nothing was changed (--dry-run)."
        else:
            refuse_what_must_not_stop(tenant, objects, stop=stop)
            await _delete(cluster, tenant, stop=stop and bool(objects))
            done, last = "Asked", f"The hub removes it; to watch it: fairlead tenant remove {name} --ignore-not-found"
        if not dry_run and wait_s:
            await _watch(cluster, tenant, wait_s, say=say if in_words else lambda _lines: None)
            done = "Removed"
            what = f"load balancers, namespace {tenant.namespace}, rights and key"
            last = f"Tenant {name} is removed: {what}."
    emit(output, value_of(tenant, objects, done), lines=lambda: [last], names=lambda: [f"tenant/{name}"])


def value_of(tenant: Tenant, objects: list[tuple[str, IntentObject]], done: str) -> dict[str, object]:
    """Return what programs get; ``done`` is Removed, Asked (the hub goes on with it) or Nothing (--dry-run).

    Of a member that is not there it is NotFound, with --ignore-not-found.
    """
    return {
        "tenant": tenant.metadata.name,
        "namespace": tenant.namespace,
        "done": done,
        "loadBalancers": [
            {
                "kind": kind,
                "namespace": each.metadata.namespace,
                "name": each.metadata.name,
                "address": each.status.address,
            }
            for kind, each in objects
        ],
    }


def preview_lines(tenant: Tenant, objects: list[tuple[str, IntentObject]]) -> list[str]:
    """Return what would stop."""
    from fairlead.api.names import ANNOTATION_ORIGIN
    from fairlead.model.in_words import counted
    from fairlead.status.formatting import columns

    agent = tenant.status.state or "Pending"
    head = f"Tenant {tenant.metadata.name} (namespace {tenant.namespace}, agent {agent})"
    if not objects:
        return [f"{head} serves nothing."]
    rows = [
        (kind, each.annotation(ANNOTATION_ORIGIN) or str(each.key), each.status.address or "<pending>")
        for kind, each in objects
    ]
    return [f"{head} has {counted(len(objects), 'load balancer')}, which would stop:", *columns(rows)]


def refuse_what_must_not_stop(tenant: Tenant, objects: list[tuple[str, IntentObject]], *, stop: bool) -> None:
    """Raise ``Terminal`` when something may not stop: without permission, or labelled do-not-delete."""
    from fairlead.api.names import ANNOTATION_STOP_SERVING, LABEL_DO_NOT_DELETE
    from fairlead.errors import Terminal
    from fairlead.model.in_words import counted

    for kind, each in objects:
        if LABEL_DO_NOT_DELETE in (each.metadata.labels or {}):
            raise Terminal(
                f"{kind} {each.key} has the label {LABEL_DO_NOT_DELETE}, so nothing was changed; take the label away "
                "where it was set, then run this again"
            )
    allowed = stop or tenant.annotation(ANNOTATION_STOP_SERVING, "false") != "false"
    if objects and not allowed:
        raise Terminal(
            f"Tenant {tenant.metadata.name} serves {counted(len(objects), 'load balancer')}, so nothing was changed; "
            "delete its Services in the member first, or drain and stop all of them with --stop-serving"
        )


async def _delete(cluster: Cluster, tenant: Tenant, *, stop: bool) -> None:
    """Give permission and delete; where both was done before, nothing is written."""
    from fairlead.api.names import ANNOTATION_STOP_SERVING, MANAGER_CLI
    from fairlead.api.tenant import TENANTS

    name = tenant.metadata.name
    if stop and not tenant.annotation(ANNOTATION_STOP_SERVING):
        patch = {"metadata": {"uid": tenant.metadata.uid, "annotations": {ANNOTATION_STOP_SERVING: "true"}}}
        await cluster.merge_patch(TENANTS, "", name, patch, manager=MANAGER_CLI)
    if not tenant.deleting:
        await cluster.delete(TENANTS, "", name, uid=tenant.metadata.uid)


async def _watch(cluster: Cluster, tenant: Tenant, wait_s: float, *, say: Callable[[list[str]], None]) -> None:
    """Say what the hub says until the Tenant is gone; raise when that takes too long."""
    from fairlead.api.meta import condition_of
    from fairlead.api.tenant import TENANTS
    from fairlead.cli.hub_reader import read_hub
    from fairlead.errors import NotFound, Terminal

    loop = asyncio.get_running_loop()
    end_s, said = loop.time() + wait_s, ""
    while True:
        try:
            now = await cluster.get(TENANTS, "", tenant.metadata.name)
        except NotFound:
            return
        if now.metadata.uid != tenant.metadata.uid:
            return
        ready = condition_of(now.status.conditions, "Ready")
        if now.deleting and ready is not None and ready.status == "False" and ready.message != said:
            said = ready.message
            say([said])
        if loop.time() >= end_s:
            hub = await read_hub(cluster)
            why = "" if hub.leading else " No hub leads, so nothing changes; start one with: fairlead hub."
            raise Terminal(
                f"Tenant {tenant.metadata.name} is not removed after {wait_s:g} s; the hub continues, the same command "
                f"watches it again.{why}"
            )
        await asyncio.sleep(_POLL_S)


@takes_groups
def list_tenants(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Only this member; all without it.")] = "",
    selector: Labels = "",
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """List members: state and version of the agent, load balancers, addresses, and clock skew.

    Ages are measured by the clock of the hub's API server only.
    """
    matches = matcher(selector)
    run_for_code(lambda: _list(name.removeprefix("tenant/"), matches, api, output, watch=watch))


async def _list(
    name: str,
    matches: Callable[[Mapping[str, str] | None], bool],
    api: HubApi,
    output: Output,
    *,
    watch: bool,
) -> int:
    import asyncio

    import msgspec

    from fairlead.api.names import AGENT_LEASE
    from fairlead.api.tenant import STAMPED_LEASES, TENANTS
    from fairlead.cli.hub_reader import check_kinds, connect_hub
    from fairlead.cli.output import VerbAnswer, show
    from fairlead.cli.tenant_access import load_balancers_of, no_tenant, tenant_rows

    async def ask() -> VerbAnswer:
        async with connect_hub(api) as cluster:
            await check_kinds(cluster)
            tenants, leases, served = await asyncio.gather(
                cluster.list(TENANTS),
                cluster.list(STAMPED_LEASES, field_selector=f"metadata.name={AGENT_LEASE}"),
                load_balancers_of(cluster),
            )
            chosen = [each for each in tenants if matches(each.metadata.labels) and name in ("", each.metadata.name)]
            if name and not chosen:
                raise await no_tenant(cluster, name)
        by_namespace = {lease.metadata.namespace: lease for lease in leases}
        rows = tenant_rows(chosen, by_namespace, [each for _, each in served], now=cluster.server_clock.now())
        return VerbAnswer(
            rows,
            lambda: _lines(rows, of_all=bool(tenants), wide=output is Output.WIDE),
            lambda: (f"tenant/{row.name}" for row in rows),
            lasting=[msgspec.structs.replace(row, heard_s=None, clock_ahead_s=None) for row in rows],
        )

    return await show(ask, output, watch=watch)


def _lines(rows: Sequence[TenantRow], *, of_all: bool, wide: bool) -> list[str]:
    from fairlead.cli.tenant_access import HEADER, cells
    from fairlead.status.formatting import columns

    if not rows and of_all:
        return ["No member has these labels; fairlead tenant list without -l shows all of them."]
    if not rows:
        return ["No members yet; add one with: fairlead tenant add NAME --output FILE"]
    return columns([HEADER, *(cells(row, wide=wide) for row in rows)], indent="")


@takes_groups
def rotate(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the member.", show_default=False)],
    output: KeyFile = None,
    valid_for: ValidFor = "24h",
    valid_days: ValidDays = None,
    server: HubAddress = "",
    *,
    api: HubApi,
) -> None:
    """Revoke all tokens of a tenant, and write a kubeconfig with a new one.

    Traffic is not affected. An agent that finds the new key in its --hub-kubeconfig continues without a restart.
    """
    from fairlead.cli.tenant_access import check_output, check_server, validity_s

    check_server(server)
    check_output(output)
    valid_s = validity_s(valid_for, valid_days)
    run_async(lambda: _rotate(name.removeprefix("tenant/"), api, output=output, valid_s=valid_s, server=server))


async def _rotate(name: str, api: HubApi, *, output: Path | None, valid_s: int, server: str) -> None:
    from fairlead.api.tenant import TENANTS
    from fairlead.cli.hub_reader import check_kinds, connect_hub
    from fairlead.cli.tenant_access import cluster_trust, end_keys, hand_over, issue_access, no_tenant
    from fairlead.errors import NotFound

    async with connect_hub(api) as cluster:
        await check_kinds(cluster)
        try:
            tenant = await cluster.get(TENANTS, "", name)
        except NotFound as error:
            raise await no_tenant(cluster, name, detail=error.sentence) from error
        trust = cluster_trust(api.kubeconfig, api.context)
        await end_keys(cluster, tenant.namespace)
        access = await issue_access(cluster, name=name, region="", valid_s=valid_s, server=server, trust=trust)
    hand_over(access.kubeconfig, output)
    sys.stderr.write(
        f"All earlier credentials of tenant {name} are revoked; the new one is valid until {access.expires}.\n"
        "Next: replace the file of the agent's --hub-kubeconfig; the agent reads it without a restart.\n"
    )


app = typer.Typer(cls=PlainGroup, no_args_is_help=True, help="Member clusters at the hub.")


@app.callback()
def tenant() -> None:
    """Member clusters at the hub."""


@app.command("add", cls=PlainCommand, epilog=epilog_of("tenant add"))
@takes_groups
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the member, such as east.", show_default=False)],
    output: KeyFile = None,
    region: Annotated[
        str, typer.Option("--region", metavar="NAME", help="Region of the member, such as eu-central.")
    ] = "",
    valid_for: ValidFor = "24h",
    valid_days: ValidDays = None,
    server: HubAddress = "",
    new_hub: Annotated[
        bool, typer.Option("--new-hub", help="No hub has run there yet: install the kinds, and continue.")
    ] = False,
    *,
    api: HubApi,
) -> None:
    """Create a Tenant and write a kubeconfig for its agent, which can reach that tenant's namespace only.

    Safe to repeat: nothing changes for an existing Tenant, and a fresh token is written.
    """
    from fairlead.cli.tenant_access import check_name, check_output, check_server, validity_s

    check_name(name, region)
    check_server(server)
    check_output(output)
    valid_s = validity_s(valid_for, valid_days)
    run_async(
        lambda: _add(
            name,
            api=api,
            output=output,
            region=region,
            valid_s=valid_s,
            server=server,
            new_hub=new_hub,
        )
    )


async def _is_file(path: Path) -> bool:
    return path.exists()  # noqa: ASYNC240 - one look at a local file


async def _add(
    name: str,
    *,
    api: HubApi,
    output: Path | None,
    region: str,
    valid_s: int,
    server: str,
    new_hub: bool,
) -> None:
    from fairlead.cli.hub_reader import connect_hub
    from fairlead.cli.tenant_access import cluster_trust, hand_over, issue_access
    from fairlead.standalone.right_cluster import await_hub, check_has_hub

    if api.kubeconfig is not None:
        await await_hub(api.kubeconfig, partial(_is_file, api.kubeconfig), what="the kubeconfig")
    async with connect_hub(api) as cluster:
        await check_has_hub(cluster, new_hub=new_hub, kubeconfig=api.kubeconfig)
        access = await issue_access(
            cluster,
            name=name,
            region=region,
            valid_s=valid_s,
            server=server,
            trust=cluster_trust(api.kubeconfig, api.context),
        )
    hand_over(access.kubeconfig, output)
    file = str(output) if output is not None else f"{name}-at-hub.kubeconfig"
    save = "" if output is not None else f"save the key as {file}, then "
    sys.stderr.write(
        f"Tenant {name} has namespace {access.namespace} at {server or cluster.server}; "
        f"the token is valid until {access.expires}; the agent renews it.\n"
        f"Next: {save}run the agent of that member:\n"
        f"  fairlead agent --kubeconfig MEMBER.kubeconfig --hub-kubeconfig {file} --tenant {name}\n"
    )


app.command("list", cls=PlainCommand, epilog=epilog_of("tenant list"))(list_tenants)
app.command("rotate", cls=PlainCommand, epilog=epilog_of("tenant rotate"))(rotate)
app.command("remove", cls=PlainCommand, epilog=epilog_of("tenant remove"))(remove)
