"""``fairlead demo``: two members, one hub, real Envoy, real traffic, and what happens when parts die."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from fairlead.cli.options import DemoDir, Plain, PlainCommand, PlainGroup, Verbose
from fairlead.cli.processes import demo_regions
from fairlead.cli.run import epilog_of, run_check

Keep = Annotated[bool, typer.Option("--keep", help="Leave everything running and print how to use it.")]

app = typer.Typer(cls=PlainGroup, help="Show Fairlead at work on this machine.", rich_markup_mode="rich")


@app.callback(invoke_without_command=True, epilog=epilog_of("demo"))
def demo(
    context: typer.Context,
    keep: Keep = False,
    data_dir: DemoDir = None,
    plain: Plain = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Show Fairlead at work on this machine; it needs no cluster.

    Fails when a request fails that should not have.
    """
    from fairlead_demo.run import DemoSettings, run_demo

    if context.invoked_subcommand is not None:
        return
    run_check(lambda: run_demo(DemoSettings(keep=keep, data_dir=data_dir, plain=plain)))


#: What each story shows; ``fairlead_demo.run`` plays it.
STORIES = {
    "cluster-api": """Show the endpoint of a cluster of Cluster API.

    It is there before the first machine; every machine is replaced, one is disabled, one dies, and so does the hub.
    Fails when a request fails.
    """,
    "global": """Show one Service of three members behind one address.

    Shares by weight, failover in order, a member that is killed under load and returns, and weights that move in steps.
    Ends with a table of what was sent, answered and failed, by member. Fails when more requests fail than were in
    flight.
    """,
    "http": """Show an Ingress of one member and a Gateway of another over HTTPS.

    A weighted canary, new certificates, rolled pods and a killed hub under load. Fails when a request fails.
    """,
    "machines": """Show three proxy machines whose addresses survive, announced by ARP and by BGP.

    Power, a cable and the hub are lost, one is drained, Envoy is upgraded, under load. Ends with a table of failed
    connections and gaps; fails when a limit is missed. Needs root; runs in network namespaces of its own.
    """,
    "names": """Show names and certificates of an Ingress and a Gateway, with a real DNS server (BIND 9).

    Both resolve and get certificates by ACME; pods are rolled and certificates renewed under load; what others wrote
    in the zone stays. Fails when a request fails.
    """,
    "rollout": """Show rollouts of ten versions under up to 500 requests/s, with the pod readiness gate and without.

    Ends with a table of failed requests. Fails when one fails with the gate, or when none fails without it.
    """,
}


def _story(name: str) -> Callable[..., None]:
    """Return the command that plays one story."""

    def command(
        keep: Keep = False,
        data_dir: DemoDir = None,
        plain: Plain = False,
        verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
    ) -> None:
        from fairlead_demo.run import STORIES as PLAYED
        from fairlead_demo.run import DemoSettings

        run_check(lambda: PLAYED[name](DemoSettings(keep=keep, data_dir=data_dir, plain=plain)))

    command.__doc__ = STORIES[name]
    return command


for _name in STORIES:
    app.command(_name, cls=PlainCommand, epilog=epilog_of(f"demo {_name}"))(_story(_name))
app.command("regions", cls=PlainCommand, epilog=epilog_of("demo regions"))(demo_regions)
