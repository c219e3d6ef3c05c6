"""``fairlead proxy``: proxy machines, which serve load balancers outside the hub and announce their addresses.

``token``, ``list``, ``drain``, ``undrain`` and ``remove`` work at the hub's API; ``join`` and ``run``, on the machine
itself, are in ``proxy_machine``.
Never: prints a token anywhere but on stdout, in the one command that uses it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.api.kubernetes import SECRETS
from fairlead.api.names import name_problem
from fairlead.api.proxymachine import DEFAULT_GROUP
from fairlead.api.times import wire_time
from fairlead.cli.hub_reader import check_kinds, connect_hub
from fairlead.cli.options import HubApi, Output, OutputOption, PlainCommand, PlainGroup, takes_groups
from fairlead.cli.output import emit
from fairlead.cli.proxy_machine import join, run
from fairlead.cli.run import epilog_of, run_async
from fairlead.errors import BadConfiguration, Forbidden, Terminal
from fairlead.kube.cluster import Cluster

_NO_ENDPOINT = (
    "No hub serves proxy machines yet: start it with --machines HOST:PORT, an address of the hub that machines reach"
)

app = typer.Typer(cls=PlainGroup, no_args_is_help=True, help="Machines that serve load balancers outside the hub.")


@app.callback()
def proxy() -> None:
    """Machines that serve load balancers outside the hub."""


@app.command("token", cls=PlainCommand, epilog=epilog_of("proxy token"))
@takes_groups
def token(
    group: Annotated[
        str, typer.Option("--group", metavar="NAME", help="Group of the machine that joins with it.")
    ] = DEFAULT_GROUP,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Print the command with which one machine joins; it is valid once, for an hour.

    Run the printed command as root on the machine. The hub has to run with --machines.
    """
    if problem := name_problem(group):
        raise BadConfiguration(f"--group: {problem}")
    run_async(lambda: _token(group, api, output))


async def _token(group: str, api: HubApi, output: Output) -> None:
    # Imported here: these load the cryptography.
    from fairlead.hub.machines.control import read_endpoints
    from fairlead.hub.machines.tokens import new_token

    async with connect_hub(api) as cluster:
        await check_kinds(cluster)
        endpoints = await read_endpoints(cluster)
        if not endpoints:
            raise Terminal(_NO_ENDPOINT)
        endpoint = next(iter(endpoints.values()))
        made = new_token(cluster.server_clock.now(), group=group)
        await _drop_expired(cluster)
        await cluster.create(SECRETS, made.secret)
    command = f"fairlead proxy join {endpoint.address} --token {made.text} --ca-fingerprint {endpoint.fingerprint}"
    value = {
        "command": command,
        "hub": endpoint.address,
        "token": made.text,
        "caFingerprint": endpoint.fingerprint,
        "group": group,
        "expires": wire_time(made.expires),
    }
    emit(output, value, lines=lambda: [command], names=lambda: [command])


async def _drop_expired(cluster: Cluster) -> None:
    from fairlead.hub.machines.tokens import drop_expired

    try:
        await drop_expired(cluster, cluster.server_clock.now())
    except Forbidden:
        return  # one who may only create Secrets leaves expired tokens, which are worth nothing


for command in (join, run):
    app.command(cls=PlainCommand, epilog=epilog_of(f"proxy {command.__name__}"))(command)
