"""``fairlead tenant rotate``: end every key of a tenant, and write a new one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import Context, HubAddress, KeyFile, Kubeconfig, ValidDays, ValidFor, Verbose
from fairlead.cli.run import run_async


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
    from fairlead.cli.tenant_key import check_output

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
    from fairlead.cli.tenant_key import hand_over
    from fairlead.cli.tenant_objects import no_tenant
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
