"""``fairlead tenant``: adds member clusters to the hub, with a kubeconfig for each agent."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.exit_codes import epilog_of
from fairlead.cli.help_types import PlainCommand, PlainGroup
from fairlead.cli.options import Context, HubAddress, KeyFile, Kubeconfig, ValidDays, ValidFor, Verbose
from fairlead.cli.run import run_async
from fairlead.cli.tenant_list import list_tenants
from fairlead.cli.tenant_remove import remove


def rotate(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the member.", show_default=False)],
    output: KeyFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    valid_for: ValidFor = "24h",
    valid_days: ValidDays = None,
    server: HubAddress = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Revoke all tokens of a tenant, and write a kubeconfig with a new one.

    What is served goes on. An agent that finds the new key in its --hub-kubeconfig goes on without a restart.
    """
    from fairlead.cli.tenant_access import check_server, validity_s
    from fairlead.cli.tenant_objects import check_output

    check_server(server)
    check_output(output)
    valid_s = validity_s(valid_for, valid_days)
    run_async(
        lambda: _rotate(
            name.removeprefix("tenant/"), kubeconfig, context, output=output, valid_s=valid_s, server=server
        )
    )


async def _rotate(
    name: str, kubeconfig: Path | None, context: str, *, output: Path | None, valid_s: int, server: str
) -> None:
    from fairlead.api.tenant import TENANTS
    from fairlead.cli.authority import cluster_trust
    from fairlead.cli.connect import check_kinds, connect
    from fairlead.cli.tenant_access import end_keys, issue_access
    from fairlead.cli.tenant_objects import hand_over, no_tenant
    from fairlead.errors import NotFound

    async with connect(kubeconfig, context=context, name="the hub") as cluster:
        await check_kinds(cluster)
        try:
            tenant = await cluster.get(TENANTS, "", name)
        except NotFound as error:
            raise await no_tenant(cluster, name, detail=error.sentence) from error
        trust = cluster_trust(kubeconfig, context)
        await end_keys(cluster, tenant.namespace)
        access = await issue_access(cluster, name=name, region="", valid_s=valid_s, server=server, trust=trust)
    hand_over(access.kubeconfig, output)
    sys.stderr.write(
        f"Every earlier key of tenant {name} has ended; the new one is valid until {access.expires}.\n"
        "Next: put it where the agent's --hub-kubeconfig is; the agent reads it by itself.\n"
    )


app = typer.Typer(cls=PlainGroup, no_args_is_help=True, help="Member clusters at the hub.")


@app.callback()
def tenant() -> None:
    """Member clusters at the hub."""


@app.command("add", cls=PlainCommand, epilog=epilog_of("tenant add"))
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the member, such as east.", show_default=False)],
    output: KeyFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    region: Annotated[
        str, typer.Option("--region", metavar="NAME", help="Region of the member, such as eu-central.")
    ] = "",
    valid_for: ValidFor = "24h",
    valid_days: ValidDays = None,
    server: HubAddress = "",
    new_hub: Annotated[
        bool, typer.Option("--new-hub", help="No hub has run there yet: install the kinds, and go on.")
    ] = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Create a Tenant and write a kubeconfig for its agent, which can reach that tenant's namespace only.

    Safe to repeat: nothing changes for an existing Tenant, and a fresh token is written.
    """
    from fairlead.cli.tenant_access import check_name, check_server, validity_s
    from fairlead.cli.tenant_objects import check_output

    check_name(name, region)
    check_server(server)
    check_output(output)
    valid_s = validity_s(valid_for, valid_days)
    run_async(
        lambda: _add(
            name,
            kubeconfig=kubeconfig,
            context=context,
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
    kubeconfig: Path | None,
    context: str,
    output: Path | None,
    region: str,
    valid_s: int,
    server: str,
    new_hub: bool,
) -> None:
    from fairlead.cli.authority import cluster_trust
    from fairlead.cli.connect import connect
    from fairlead.cli.tenant_access import issue_access
    from fairlead.cli.tenant_objects import hand_over
    from fairlead.standalone.await_hub import await_hub
    from fairlead.standalone.right_cluster import check_has_hub

    if kubeconfig is not None:
        await await_hub(kubeconfig, partial(_is_file, kubeconfig), what="its kubeconfig")
    async with connect(kubeconfig, context=context, name="the hub") as cluster:
        await check_has_hub(cluster, new_hub=new_hub, kubeconfig=kubeconfig)
        access = await issue_access(
            cluster,
            name=name,
            region=region,
            valid_s=valid_s,
            server=server,
            trust=cluster_trust(kubeconfig, context),
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
