"""``fairlead tenant``: how does a member cluster get its place, and its key, at the hub?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import Verbose, kubeconfig_help
from fairlead.cli.run import EXIT_CODES, run_async

app = typer.Typer(no_args_is_help=True, help="Member clusters at the hub.")


@app.callback()
def tenant() -> None:
    """Member clusters at the hub."""


@app.command("add", epilog=EXIT_CODES)
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the member, such as east.", show_default=False)],
    kubeconfig: Annotated[
        Path | None,
        typer.Option("--kubeconfig", metavar="FILE", help=kubeconfig_help("The hub, as an administrator")),
    ] = None,
    region: Annotated[str, typer.Option("--region", help="Region that the member is in, such as eu-central.")] = "",
    valid_days: Annotated[
        int, typer.Option("--valid-days", min=1, max=3650, help="Days that the printed token is asked to be valid.")
    ] = 365,
    server: Annotated[
        str,
        typer.Option("--server", metavar="URL", help="Address of the hub as the member sees it; default: as we do."),
    ] = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Create a Tenant and print a kubeconfig for its agent, which can reach that tenant's namespace only.

    Safe to repeat: nothing changes for an existing Tenant, and a fresh token is printed.
    """
    run_async(lambda: _add(name, kubeconfig, region, valid_days, server))


async def _add(name: str, kubeconfig: Path | None, region: str, valid_days: int, server: str) -> None:
    from fairlead.cli.connect import connect
    from fairlead.cli.tenant_access import check_name, check_server, issue_access

    check_name(name, region)
    check_server(server)
    async with connect(kubeconfig, name="the hub") as cluster:
        access = await issue_access(
            cluster, name=name, region=region, valid_s=valid_days * 86_400, server=server, kubeconfig=kubeconfig
        )
    sys.stdout.write(access.kubeconfig)
    sys.stdout.flush()
    file = f"{name}-at-hub.kubeconfig"
    sys.stderr.write(
        f"Tenant {name} has namespace {access.namespace} at {server or cluster.server}; "
        f"the token is valid until {access.expires}.\n"
        f"Next: save the kubeconfig ({file}, readable by you only), then run the agent of that member:\n"
        f"  fairlead agent --kubeconfig MEMBER.kubeconfig --hub-kubeconfig {file} --tenant {name}\n"
    )
