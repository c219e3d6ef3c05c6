"""What can be typed after ``fairlead``?

In: the arguments of the process. Out: its exit code. It only names the commands; each of their files imports what it
needs when it is called, so that ``--help`` and ``version`` answer at once.
Never: shows a traceback for something that a person can put right.
"""

from __future__ import annotations

import typer

from fairlead.cli import (
    agent,
    apiserver,
    crds,
    demo,
    drift,
    explain,
    gc,
    hub,
    pause,
    plan,
    regions,
    standalone,
    status,
    tenant,
    version,
)
from fairlead.cli.run import EXIT_CODES, run_app

app = typer.Typer(
    name="fairlead",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="The load balancer control plane for Kubernetes fleets: a Service of type LoadBalancer in any of your "
    "clusters gets a working address.",
    epilog=EXIT_CODES,
)

_TRY, _RUN, _LOOK = "Try it", "Run it", "Look at it"

app.add_typer(demo.app, name="demo", rich_help_panel=_TRY)
app.command("standalone", rich_help_panel=_TRY, epilog=EXIT_CODES)(standalone.standalone)
app.command("hub", rich_help_panel=_RUN, epilog=EXIT_CODES)(hub.hub)
app.command("agent", rich_help_panel=_RUN, epilog=EXIT_CODES)(agent.agent)
app.command("regions", rich_help_panel=_RUN, epilog=EXIT_CODES)(regions.regions)
app.command("apiserver", rich_help_panel=_RUN, epilog=EXIT_CODES)(apiserver.apiserver)
app.add_typer(tenant.app, name="tenant", rich_help_panel=_RUN)
app.command("crds", rich_help_panel=_RUN, epilog=EXIT_CODES)(crds.crds)
app.command("status", rich_help_panel=_LOOK, epilog=EXIT_CODES)(status.status)
app.command("plan", rich_help_panel=_LOOK, epilog=EXIT_CODES)(plan.plan)
app.command("explain", rich_help_panel=_LOOK, epilog=EXIT_CODES)(explain.explain)
app.command("drift", rich_help_panel=_LOOK, epilog=EXIT_CODES)(drift.drift)
app.command("gc", rich_help_panel=_LOOK, epilog=EXIT_CODES)(gc.gc)
app.command("pause", rich_help_panel=_RUN, epilog=EXIT_CODES)(pause.pause)
app.command("resume", rich_help_panel=_RUN, epilog=EXIT_CODES)(pause.resume)
app.command("version", rich_help_panel=_LOOK, epilog=EXIT_CODES)(version.version)


def main() -> None:
    """Run the command line and leave with its exit code."""
    raise SystemExit(run_app(app))


if __name__ == "__main__":
    main()
