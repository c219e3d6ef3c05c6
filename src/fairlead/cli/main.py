"""The commands of ``fairlead``.

In: the arguments of the process. Out: its exit code. It names the commands and answers ``version``; each of the other
files imports what it needs when it is called, so that ``--help`` and ``version`` answer at once.
Never: shows a traceback for something that a person can put right.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead import __version__
from fairlead.cli import changes, convert, demo, doctor, explain, names, processes, route, status, tenant, top
from fairlead.cli.options import Context, Output, OutputOption, PlainCommand, PlainGroup, Verbose
from fairlead.cli.run import epilog_of, run_app, run_async

ORDER = (
    "demo", "run", "standalone", "hub", "agent", "regions", "capi", "apiserver",
    "status", "top", "doctor", "plan", "explain", "route", "names", "drift", "collect", "version",
    "pause", "resume", "repair", "gc",
    "tenant", "convert", "crds",
)  # fmt: skip


class _InOrder(PlainGroup):
    """Shows the commands in the order in which a newcomer needs them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return sorted(super().list_commands(ctx), key=ORDER.index)


def version(
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", metavar="FILE", help="Print the version of this API server, too.")
    ] = None,
    context: Context = "",
    output: OutputOption = Output.TABLE,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Print the version of this program and, with --kubeconfig, of the API server."""
    versions = {"client": f"v{__version__}"}
    if kubeconfig is not None or context:
        run_async(lambda: _ask(kubeconfig, context, versions))
    from fairlead.cli.output import emit

    names = [f"{name}: {value}" for name, value in versions.items()]
    emit(output, versions, lines=lambda: names, names=lambda: names)


def print_version_and_exit(asked: bool) -> None:
    """Answer ``fairlead --version`` as ``fairlead version`` does."""
    if asked:
        version()
        raise typer.Exit


async def _ask(kubeconfig: Path | None, context: str, versions: dict[str, str]) -> None:
    from fairlead.cli.hub_reader import connect

    async with connect(kubeconfig, context=context, name="server") as cluster:
        versions["server"] = await cluster.version()


app = typer.Typer(
    name="fairlead",
    cls=_InOrder,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=epilog_of(""),
)

_RUN, _LOOK, _OPERATE, _SET_UP = "Run", "Look", "Operate", "Set up"


@app.callback(invoke_without_command=True)
def fairlead(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=print_version_and_exit, is_eager=True),
    ] = False,
) -> None:
    """The load balancer control plane for Kubernetes fleets.

    A Service of type LoadBalancer in any of your clusters gets a working address. Begin with: fairlead demo
    """


app.add_typer(demo.app, name="demo", rich_help_panel=_RUN, short_help="Show Fairlead at work on this machine.")
for name, panel, command, in_one_line in (
    ("run", _RUN, processes.run, "Serve one cluster from this machine."),
    ("standalone", _RUN, processes.standalone, "Run a hub with its API and Envoy on this machine."),
    ("hub", _RUN, processes.hub, "Run the hub against a Kubernetes API."),
    ("agent", _RUN, processes.agent, "Run the agent of one member cluster."),
    ("regions", _RUN, processes.regions, "Give Services an access point in each region."),
    ("capi", _RUN, processes.capi, "Serve control-plane endpoints of Cluster API."),
    ("apiserver", _RUN, processes.apiserver, "Run an embedded Kubernetes-compatible API server."),
    ("status", _LOOK, status.status, "Show whether everything serves."),
    ("top", _LOOK, top.top, "Show the busiest load balancers, live."),
    ("doctor", _LOOK, doctor.doctor, "Find faults, and print how to fix them."),
    ("plan", _LOOK, changes.plan, "Show what would change, and why."),
    ("explain", _LOOK, explain.explain, "Show the state of each backend, and why."),
    ("route", _LOOK, route.route, "Show which route and backends a request matches."),
    ("names", _LOOK, names.names, "List host names, and check that they resolve."),
    ("drift", _LOOK, changes.drift, "Show changes made outside Fairlead."),
    ("collect", _LOOK, doctor.collect, "Write a support bundle without secrets."),
    ("version", _LOOK, version, "Print the version."),
    ("pause", _OPERATE, changes.pause, "Hold all changes of a load balancer or class."),
    ("resume", _OPERATE, changes.resume, "Apply the changes that pause held."),
    ("repair", _OPERATE, changes.repair, "Revert changes made outside Fairlead."),
    ("gc", _OPERATE, changes.gc, "Find and delete orphaned backends."),
    ("convert", _SET_UP, convert.convert, "Print Ingresses as Gateway API objects."),
    ("crds", _SET_UP, convert.crds, "Print the CustomResourceDefinitions."),
):
    app.command(name, cls=PlainCommand, rich_help_panel=panel, epilog=epilog_of(name), short_help=in_one_line)(command)
app.add_typer(tenant.app, name="tenant", rich_help_panel=_SET_UP, short_help="Add and remove member clusters.")


def main() -> None:
    """Run the command line and leave with its exit code."""
    raise SystemExit(run_app(app))


if __name__ == "__main__":
    main()
