"""The commands of ``fairlead``.

In: the arguments of the process. Out: its exit code. It names the commands and answers ``version``; the module of a
command is imported when it is called, so that ``--help`` and ``version`` answer at once.
Never: shows a traceback for something that a person can put right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from fairlead import __version__
from fairlead.cli.options import Context, Output, OutputOption, PlainCommand, PlainGroup, Verbose
from fairlead.cli.run import epilog_of, run_app, run_async

_RUN, _LOOK, _OPERATE, _SET_UP = "Run", "Look", "Operate", "Set up"


class Verb(NamedTuple):
    """One command: its panel in the help, ``module:name`` of its function or group, and what it does in one line."""

    panel: str
    path: str
    in_one_line: str


#: In the order in which a newcomer needs them.
VERBS = {
    "demo": Verb(_RUN, "demo:app", "Show Fairlead at work on this machine."),
    "run": Verb(_RUN, "processes:run", "Serve one cluster from this machine."),
    "standalone": Verb(_RUN, "processes:standalone", "Run a hub with its API and Envoy on this machine."),
    "hub": Verb(_RUN, "processes:hub", "Run the hub against a Kubernetes API."),
    "agent": Verb(_RUN, "processes:agent", "Run the agent of one member cluster."),
    "egress-node": Verb(_RUN, "processes:egress_node", "Let labelled pods of a node leave with their address."),
    "regions": Verb(_RUN, "processes:regions", "Give Services an access point in each region."),
    "capi": Verb(_RUN, "processes:capi", "Serve control-plane endpoints of Cluster API."),
    "apiserver": Verb(_RUN, "processes:apiserver", "Run an embedded Kubernetes-compatible API server."),
    "status": Verb(_LOOK, "verbs:status", "Show whether everything serves."),
    "top": Verb(_LOOK, "verbs:top", "Show the busiest load balancers, live."),
    "usage": Verb(_LOOK, "verbs:usage", "Show what each tenant used, by hour and load balancer."),
    "audit": Verb(_LOOK, "verbs:audit", "Show who changed what, and when."),
    "doctor": Verb(_LOOK, "verbs:doctor", "Find faults, and print how to fix them."),
    "plan": Verb(_LOOK, "verbs:plan", "Show what would change, and why."),
    "explain": Verb(_LOOK, "verbs:explain", "Show the state of each backend, and why."),
    "route": Verb(_LOOK, "verbs:route", "Show which route and backends a request matches."),
    "names": Verb(_LOOK, "verbs:names", "List host names, and check that they resolve."),
    "drift": Verb(_LOOK, "verbs:drift", "Show changes made outside Fairlead."),
    "collect": Verb(_LOOK, "verbs:collect", "Write a support bundle without secrets."),
    "version": Verb(_LOOK, "main:version", "Print the version."),
    "pause": Verb(_OPERATE, "verbs:pause", "Hold all changes of a load balancer or class."),
    "resume": Verb(_OPERATE, "verbs:resume", "Apply the changes that pause held."),
    "maintenance": Verb(_OPERATE, "verbs:maintenance_app", "Answer requests with a page for a time."),
    "repair": Verb(_OPERATE, "verbs:repair", "Revert changes made outside Fairlead."),
    "gc": Verb(_OPERATE, "verbs:gc", "Find and delete orphaned backends."),
    "member": Verb(_OPERATE, "verbs:member_app", "Drain a member of GlobalServices, and use it again."),
    "shift": Verb(_OPERATE, "verbs:shift", "Move the weights of a GlobalService in steps."),
    "drill": Verb(_OPERATE, "verbs:drill_app", "Rehearse the failure of a member."),
    "tenant": Verb(_SET_UP, "verbs:tenant_app", "Add and remove member clusters."),
    "proxy": Verb(_SET_UP, "proxy_verbs:app", "Add, drain and remove proxy machines."),
    "convert": Verb(_SET_UP, "verbs:convert", "Print Ingresses as Gateway API objects."),
    "crds": Verb(_SET_UP, "verbs:crds", "Print the CustomResourceDefinitions."),
}


class _Commands(Mapping[str, Any]):
    """The commands by name, each made when it is asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = command_of(name)
        return self._made[name]


def command_of(name: str) -> Any:
    """Return a command; only its arguments are imported, not what it does."""
    verb = VERBS[name]
    module, _, attribute = verb.path.partition(":")
    command = getattr(import_module(f"fairlead.cli.{module}"), attribute)
    holder = typer.Typer(rich_markup_mode="rich", add_completion=False)
    named: dict[str, Any] = {"rich_help_panel": verb.panel, "short_help": verb.in_one_line}
    if isinstance(command, typer.Typer):
        holder.add_typer(command, name=name, **named)
    else:
        holder.command(name, cls=PlainCommand, epilog=epilog_of(name), **named)(command)
    return typer.main.get_group(holder).commands[name]


class _Verbs(PlainGroup):
    """The group of all commands; its help shows them in the order of ``VERBS`` and imports none."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.commands: Any = _Commands()
        self._listing = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the signature of click
        """Return the names of all commands."""
        return list(VERBS)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, for which the lines of ``VERBS`` are enough."""
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return one command; for the help only its name, its panel and its line."""
        if not self._listing:
            return super().get_command(ctx, cmd_name)
        verb = VERBS[cmd_name]
        return PlainCommand(name=cmd_name, help=verb.in_one_line, rich_help_panel=verb.panel)


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
    cls=_Verbs,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=epilog_of(""),
)


@app.callback(invoke_without_command=True)
def fairlead(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=print_version_and_exit, is_eager=True),
    ] = False,
) -> None:
    """The load balancer control plane for Kubernetes fleets.

    A Service of type LoadBalancer gets an address. Begin with: fairlead demo
    """


def main() -> None:
    """Run the command line and leave with its exit code."""
    raise SystemExit(run_app(app))


if __name__ == "__main__":
    main()
