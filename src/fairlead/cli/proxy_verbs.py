"""``fairlead proxy``: the commands for proxy machines, which serve load balancers outside the hub.

In: arguments. Out: a call of ``cli.proxy``, which works at the hub's API, or on the machine itself of
``fairlead.machine``. Both are imported only then.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from fairlead.cli.options import (
    CommandGroup,
    HubApi,
    Labels,
    LogOptions,
    Output,
    OutputOption,
    PlainCommand,
    QuietLogOptions,
    Watch,
    directory,
    duration_s,
    host_and_port,
    takes_groups,
)
from fairlead.cli.run import epilog_of, run_async, run_for_code

DEFAULT_STATE_DIR = Path("/var/lib/fairlead-proxy")

StateDir = Annotated[
    Path,
    typer.Option("--state-dir", metavar="DIR", parser=directory, help="Keeps the certificate and all that is served."),
]
EnvoyThreads = Annotated[
    int, typer.Option("--envoy-threads", metavar="N", min=0, help="Threads of Envoy; 0: one per core.")
]
BgpSpeaker = Annotated[
    Literal["bird", "frr"], typer.Option("--bgp", help="Program that announces by BGP; it has to be installed.")
]
ExternalRoutes = Annotated[
    str,
    typer.Option(
        "--external-routes",
        metavar="PLACE",
        help="Routes of announcement External, for a routing daemon of this machine: table:NUMBER, or "
        "include:/PATH,COMMAND for a BIRD.",
    ),
]
DEFAULT_ROUTES = "table:7771"
SyncConnections = Annotated[
    str,
    typer.Option(
        "--sync-connections",
        metavar="ADDRESS",
        help="Keep open connections of the kernel path at the machine with this address, too, by conntrackd.",
    ),
]
MachineName = Annotated[str, typer.Argument(metavar="MACHINE", help="Name of the machine.", show_default=False)]
DrainTime = Annotated[
    str, typer.Option("--for", metavar="DURATION", help="How long existing connections may last, such as 90s or 10m.")
]
Force = Annotated[bool, typer.Option("--force", help="Even if no other machine can announce some of the addresses.")]

app = CommandGroup("proxy", "Machines that serve load balancers outside the hub.")


@app.verb("token")
def token(
    group: Annotated[
        str, typer.Option("--group", metavar="NAME", help="Group of the machine that joins with it.")
    ] = "default",
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Print the command with which one machine joins; it is valid once, for an hour.

    Run the printed command as root on the machine. The hub has to run with --machines.
    """
    from fairlead.api.names import name_problem
    from fairlead.cli.proxy import create_token
    from fairlead.errors import BadConfiguration

    if problem := name_problem(group):
        raise BadConfiguration(f"--group: {problem}")
    run_async(lambda: create_token(group, api, output))


@app.verb("list")
def list_machines(
    name: Annotated[str, typer.Argument(metavar="MACHINE", help="Only this machine; all without it.")] = "",
    selector: Labels = "",
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """List machines: group, state, announced addresses, last report, and last failover with its cause."""
    from fairlead.cli.proxy import show_machines

    run_for_code(lambda: show_machines(name, selector, api, output, watch=watch))


@app.verb("drain")
def drain(
    machine: MachineName,
    for_: DrainTime = "5m",
    force: Force = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Take a machine out of service: other machines announce its addresses, and existing connections may end.

    Waits until it announces nothing, gets less than one new connection a second and has no open ones, or until --for is
    over. Rejected when no other machine can announce one of its addresses, unless --force is given. To use it again:
    undrain.
    """
    from fairlead.cli.proxy import drain_machine

    wait_s = duration_s(for_, "--for")
    run_for_code(lambda: drain_machine(machine, api, output, wait_s=wait_s, force=force))


@app.verb("undrain")
def undrain(machine: MachineName, output: OutputOption = Output.TABLE, *, api: HubApi) -> None:
    """Use a drained machine again."""
    from fairlead.cli.proxy import undrain_machine

    run_async(lambda: undrain_machine(machine, api, output))


@app.verb("remove")
def remove(
    machine: MachineName,
    for_: DrainTime = "5m",
    force: Force = False,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="Succeed if there is no such machine, for scripts.")
    ] = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Drain a machine, revoke its certificate and forget it.

    A machine that has not reported for 30 seconds is not drained first: it cannot be asked. It may still serve; stop
    it there, too.
    """
    from fairlead.cli.proxy import remove_machine

    wait_s = duration_s(for_, "--for")
    run_for_code(
        lambda: remove_machine(machine, api, output, wait_s=wait_s, force=force, ignore_not_found=ignore_not_found)
    )


@takes_groups
def upgrade(
    to: Annotated[
        str, typer.Option("--to", metavar="VERSION", help="Version; a machine that finds another one refuses.")
    ] = "",
    binary: Annotated[
        str, typer.Option("--binary", metavar="PATH", help="Envoy on each machine; default: the one of pip there.")
    ] = "",
    group: Annotated[str, typer.Option("--group", metavar="NAME", help="Only machines of this group.")] = "",
    for_: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long connections of a machine may stay open.")
    ] = "5m",
    force: Force = False,
    status: Annotated[bool, typer.Option("--status", help="Only show how far the upgrade is.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Do not begin with further machines.")] = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Change Envoy on the machines, one after another; each is drained first, and in service again afterwards.

    Install the new Envoy on every machine before, with pip or at --binary. The first machine that is not healthy goes
    back to its former Envoy, and no further one begins. Give the same command again to continue.
    """
    from fairlead.api.names import name_problem
    from fairlead.cli.proxy import show_upgrade, upgrade_machines
    from fairlead.errors import BadConfiguration

    if group and (problem := name_problem(group)):
        raise BadConfiguration(f"--group: {problem}")
    if binary and not binary.startswith("/"):
        raise BadConfiguration("--binary: not an absolute path; give the path that Envoy has on the machines")
    if status or stop:
        if to or binary or (status and stop):
            raise BadConfiguration("--status and --stop take no version or path, and not each other")
        run_for_code(lambda: show_upgrade(group, api, output, stop=stop))
        return
    if not (to or binary):
        raise BadConfiguration(
            "name the Envoy to change to: --to VERSION if pip has installed it on the machines, else --binary PATH"
        )
    drain_s = round(duration_s(for_, "--for"))
    wanted = {"binary": binary, "version": to.removeprefix("v"), "drainSeconds": drain_s, "force": force}
    run_for_code(lambda: upgrade_machines(wanted, group, api, output))


@takes_groups
def join(
    hub: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="The hub's --machines address.", show_default=False)
    ] = "",
    token: Annotated[str, typer.Option("--token", metavar="TOKEN", help="One-time token of the hub.")] = "",
    fingerprint: Annotated[
        str, typer.Option("--ca-fingerprint", metavar="sha256:HEX", help="Fingerprint of the hub's authority.")
    ] = "",
    node: Annotated[
        Path | None,
        typer.Option("--node", metavar="DIR", help="In a Pod: the directory with its token and the addresses of hubs."),
    ] = None,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name of this machine; default: its host name.")
    ] = "",
    state_dir: StateDir = DEFAULT_STATE_DIR,
    envoy_threads: EnvoyThreads = 0,
    bgp: BgpSpeaker = "bird",
    external_routes: ExternalRoutes = DEFAULT_ROUTES,
    sync_connections: SyncConnections = "",
    run_after: Annotated[
        bool, typer.Option("--run/--no-run", help="--no-run: only join; the systemd unit runs it.")
    ] = True,
    *,
    logs: QuietLogOptions,
) -> None:
    """Join this machine to a hub, then serve. At the hub, fairlead proxy token prints the whole command.

    The private key is made here and never leaves this machine. After a reboot: fairlead proxy run. With --node, a
    machine that has joined is only started, and other machines take over before it ends.
    """
    from fairlead.cli.output import say
    from fairlead.errors import BadConfiguration
    from fairlead.machine.app import MachineSettings, join_machine, join_node, run_machine
    from fairlead.machine.connections import checked_peer
    from fairlead.machine.state import StateDirectory
    from fairlead.model.in_words import host_port

    if node is None and not (hub and token and fingerprint):
        raise BadConfiguration("HOST:PORT, --token and --ca-fingerprint belong together; fairlead proxy token has them")
    place = host_port(*host_and_port(hub, "HOST:PORT")) if node is None else ""
    state = StateDirectory(state_dir.expanduser())
    logs.start()

    settings = MachineSettings(
        envoy_threads=envoy_threads,
        speaker=bgp,
        external=external_routes,
        withdraw=node is not None,
        sync_connections=checked_peer(sync_connections),
    )

    async def run() -> None:
        own = (name or os.uname().nodename).lower()
        if node is not None:
            joined = await join_node(state, node, name=own)
        else:
            joined = await join_machine(state, hub=place, token=token, fingerprint=fingerprint, name=own)
        say([f"This machine has joined as {joined}."])
        if run_after:
            await run_machine(settings, state)

    run_async(run)


@takes_groups
def run(
    state_dir: StateDir = DEFAULT_STATE_DIR,
    envoy_threads: EnvoyThreads = 0,
    bgp: BgpSpeaker = "bird",
    external_routes: ExternalRoutes = DEFAULT_ROUTES,
    sync_connections: SyncConnections = "",
    *,
    logs: LogOptions,
) -> None:
    """Serve and announce on this machine, which has joined a hub. It needs no hub to start.

    Envoy and the announced addresses stay when this ends, however it ends; the next run takes them over.
    """
    from fairlead.machine.app import MachineSettings, run_machine
    from fairlead.machine.connections import checked_peer
    from fairlead.machine.state import StateDirectory

    logs.start()
    settings = MachineSettings(
        envoy_threads=envoy_threads,
        speaker=bgp,
        external=external_routes,
        sync_connections=checked_peer(sync_connections),
    )
    run_async(lambda: run_machine(settings, StateDirectory(state_dir.expanduser())))


for command in (upgrade, join, run):
    app.command(cls=PlainCommand, epilog=epilog_of(f"proxy {command.__name__}"))(command)
