"""``fairlead tenant remove``: what would stop, permission, and the way to the end; the hub does the work.

In: a name. Out: a Tenant that is gone, with its namespace and its key. Run again after anything, it goes on watching.
Never: stops what is served without ``--stop-serving``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.options import Context, Kubeconfig, Output, OutputOption, Verbose, duration_s
from fairlead.cli.run import run_async

if TYPE_CHECKING:
    from fairlead.api.intent import IntentObject
    from fairlead.api.tenant import Tenant
    from fairlead.kube.cluster import Cluster

_POLL_S = 0.5


def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the member.", show_default=False)],
    stop_serving: Annotated[
        bool, typer.Option("--stop-serving", help="Also when it serves: drain its load balancers, then delete them.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would stop.")] = False,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="There is no such member: end well, for scripts that repeat it.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is gone.")] = True,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help="How long to wait, such as 90s or 10m.")
    ] = "10m",
    output: OutputOption = Output.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Remove a member: show what stops, drain it, delete its load balancers, its namespace and its key.

    Refused while the member serves, unless --stop-serving says otherwise. The agent takes the addresses from the
    member's Services, each with an Event. Safe to repeat: it continues where it stopped. What is not there is an
    error, unless --ignore-not-found says otherwise.
    """
    wait_s = duration_s(timeout, "--timeout")
    run_async(
        lambda: _remove(
            name.removeprefix("tenant/"),
            kubeconfig,
            context,
            output,
            stop=stop_serving,
            dry_run=dry_run,
            ignore_not_found=ignore_not_found,
            wait_s=wait_s if wait else 0.0,
        )
    )


async def _remove(
    name: str,
    kubeconfig: Path | None,
    context: str,
    output: Output,
    *,
    stop: bool,
    dry_run: bool,
    ignore_not_found: bool,
    wait_s: float,
) -> None:
    from fairlead.api.tenant import TENANTS
    from fairlead.cli.connect import check_kinds, connect
    from fairlead.cli.output import emit, say
    from fairlead.cli.tenant_objects import load_balancers_of, no_tenant
    from fairlead.errors import NotFound

    in_words = output in (Output.TABLE, Output.WIDE)
    async with connect(kubeconfig, context=context, name="the hub") as cluster:
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
            what = f"its load balancers, its namespace {tenant.namespace}, its rights and its key"
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
    from fairlead.api.conditions import condition_of
    from fairlead.api.tenant import TENANTS
    from fairlead.cli.status_reader import read_hub
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
            why = "" if hub.leading else " No hub leads, so nothing is done; start one with: fairlead hub."
            raise Terminal(
                f"Tenant {tenant.metadata.name} is not gone after {wait_s:g} s; the hub goes on, and the same command "
                f"watches it again.{why}"
            )
        await asyncio.sleep(_POLL_S)
