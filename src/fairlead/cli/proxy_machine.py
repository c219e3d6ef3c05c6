"""``fairlead proxy join`` and ``fairlead proxy run``, the commands on a proxy machine.

In: options. Out: the process of ``fairlead.machine``; a machine that has joined needs no hub to run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from fairlead.cli.options import LogOptions, QuietLogOptions, directory, host_and_port, takes_groups
from fairlead.cli.run import run_async

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
    from fairlead.machine.state import StateDirectory
    from fairlead.model.in_words import host_port

    if node is None and not (hub and token and fingerprint):
        raise BadConfiguration("HOST:PORT, --token and --ca-fingerprint belong together; fairlead proxy token has them")
    place = host_port(*host_and_port(hub, "HOST:PORT")) if node is None else ""
    state = StateDirectory(state_dir.expanduser())
    logs.start()

    settings = MachineSettings(
        envoy_threads=envoy_threads, speaker=bgp, external=external_routes, withdraw=node is not None
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
    *,
    logs: LogOptions,
) -> None:
    """Serve and announce on this machine, which has joined a hub. It needs no hub to start.

    Envoy and the announced addresses stay when this ends, however it ends; the next run takes them over.
    """
    from fairlead.machine.app import MachineSettings, run_machine
    from fairlead.machine.state import StateDirectory

    logs.start()
    settings = MachineSettings(envoy_threads=envoy_threads, speaker=bgp, external=external_routes)
    run_async(lambda: run_machine(settings, StateDirectory(state_dir.expanduser())))
