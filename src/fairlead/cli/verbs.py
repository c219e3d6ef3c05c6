"""The verbs that look at a hub or change something there: their arguments, options and help.

In: what was typed. Out: a call of the module that does the work, which is imported only then, so that help is printed
at once. Each verb checks its arguments before anything is read.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.complete import (
    complete_explained,
    complete_hostname,
    complete_http_load_balancer,
    complete_load_balancer,
    complete_method,
    complete_object,
)
from fairlead.cli.options import (
    AnyMember,
    CommandGroup,
    Context,
    HubAddress,
    HubApi,
    KeyFile,
    Kubeconfig,
    Labels,
    MemberName,
    Namespace,
    OnlyNamespace,
    OptionGroup,
    Output,
    OutputOption,
    StopOnOption,
    TokenFile,
    ValidDays,
    ValidFor,
    Verbose,
    Watch,
    directory,
    duration_s,
    kubeconfig_help,
    takes_groups,
)
from fairlead.cli.proxy_verbs import DEFAULT_STATE_DIR
from fairlead.cli.run import run_async, run_for_code
from fairlead.status.object_ref import CLASS, kinds_text

if TYPE_CHECKING:
    from fairlead.cli.selection import Selection

_SUBJECT = "svc/NAME, lb/NAME, tcplb/NAME, httplb/NAME, hostname/NAME, class/NAME, or a name as status lists it"


@dataclass(frozen=True)
class ObjectOptions(OptionGroup):
    """KIND/NAME, -n and -l of a verb that reads; all objects without them."""

    subject: Annotated[
        str, typer.Argument(metavar="KIND/NAME", help=f"{_SUBJECT}; all without it.", autocompletion=complete_object)
    ] = ""
    namespace: Namespace = ""
    selector: Labels = ""

    @property
    def selection(self) -> Selection:
        """Return what is meant."""
        from fairlead.cli.selection import selection_of

        return selection_of(self.subject, self.namespace, self.selector)


@dataclass(frozen=True)
class ObjectToChangeOptions(ObjectOptions):
    """KIND/NAME, -n and -l of a verb that changes something, which never means everything."""

    subject: Annotated[
        str,
        typer.Argument(
            metavar="KIND/NAME",
            help=f"{_SUBJECT}. A class means all its load balancers; without it: what -l selects.",
            autocompletion=complete_object,
        ),
    ] = ""


@takes_groups
def status(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Only these: svc/NAME, gateway/NAME, lb/NAME, tcplb/NAME or NAME, with NAMESPACE/ or "
            "MEMBER/NAMESPACE/ before it.",
            autocompletion=complete_load_balancer,
        ),
    ] = None,
    namespace: OnlyNamespace = "",
    selector: Labels = "",
    problems: Annotated[bool, typer.Option("--problems", help="Only rows with problems.")] = False,
    output: OutputOption = Output.TABLE,
    watch: Watch = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until everything serves and no change is pending.")
    ] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help="Time limit of --wait, such as 90s or 2m.")
    ] = "60s",
    hub_url: Annotated[
        str, typer.Option("--hub-url", metavar="URL", help="With -o wide: the traffic figures of the page there, too.")
    ] = "",
    *,
    api: HubApi,
) -> None:
    """Show whether everything serves; the exit code distinguishes warnings, outages and no leader.

    Members, load balancers, regions and proxies on one screen, a summary first. With more than 20 load balancers, only
    those with problems are listed, unless you give a name, -n, -l or -o wide.
    """
    from fairlead.cli.status import Filter, show_status

    asked = Filter(tuple(names or ()), namespace, selector)
    wait_s = duration_s(timeout, "--timeout") if wait else 0.0
    run_for_code(lambda: show_status(api, asked, output, hub_url, problems=problems, watch=watch, wait_s=wait_s))


HubUrl = Annotated[
    str, typer.Option("--hub-url", metavar="URL", help="URL of the hub's page, as set by its --metrics.")
]
DEFAULT_URL = "http://127.0.0.1:9090"


class Sort(StrEnum):
    """Sort order of the load balancers, largest first."""

    BYTES = "bytes"
    CONNECTIONS = "connections"
    REQUESTS = "requests"
    ERRORS = "errors"
    LATENCY = "latency"


class FigureKind(StrEnum):
    """Of what the figures are, as -o json calls them."""

    WHOLE = "loadBalancers"
    BACKENDS = "backends"
    ROUTES = "routes"


@takes_groups
def top(
    options: ObjectOptions,
    count: Annotated[int, typer.Option("--number", metavar="N", min=1, help="Number of rows.")] = 20,
    sort: Annotated[
        Sort, typer.Option("--sort", metavar="BY", help="Sort by bytes, connections, requests, errors or latency.")
    ] = Sort.BYTES,
    backends: Annotated[
        bool, typer.Option("--backends", help="Show the busiest backends of HTTP load balancers instead.")
    ] = False,
    routes: Annotated[
        bool, typer.Option("--routes", help="Show the busiest routes instead, of HTTPLoadBalancers that count them.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Print them once and end.")] = False,
    output: OutputOption = Output.TABLE,
    hub_url: HubUrl = DEFAULT_URL,
    token_file: TokenFile = None,
    *,
    api: HubApi,
) -> None:
    """Show the busiest load balancers, live: connections, bytes, requests by class of status, p50 and p99.

    The figures are of the last seconds, from the statistics of the hub's proxies and HAProxies. What is idle is not
    listed. p50 and p99 are how long a request took, and without HTTP how long a backend took to accept a connection.
    Routes are counted where the HTTPLoadBalancer has the annotation fairlead.dev/route-figures=true. What KIND/NAME,
    -n and -l select is read at the hub's API (--kubeconfig); without them only the page is asked.
    """
    from fairlead.cli.top import LIVE, chosen_load_balancers, show_figures

    if options.namespace.isdecimal():
        raise typer.BadParameter(f"-n is a namespace; the number of rows is --number {options.namespace}")
    if backends and routes:
        raise typer.BadParameter("--backends or --routes, not both")
    part = FigureKind.BACKENDS if backends else FigureKind.ROUTES if routes else FigureKind.WHOLE
    selection = options.selection

    async def show() -> None:
        chosen = await chosen_load_balancers(selection, api)
        await show_figures(hub_url, token_file, count, sort, output, part, chosen, once=once or output not in LIVE)

    run_async(show)


@takes_groups
def plan(options: ObjectOptions, watch: Watch = False, output: OutputOption = Output.TABLE, *, api: HubApi) -> None:
    """Show what would change, and why; exit code 4 when something would.

    Field by field, what is on record -> what is wanted, and what is really there where that differs. What is held
    (=) does not count as a change, and what others changed (!) stays until fairlead repair. -o wide also lists load
    balancers to which nothing would be done.
    """
    from fairlead.cli.changes import show_plan

    selection = options.selection
    run_for_code(lambda: show_plan(selection, api, output, watch=watch))


@takes_groups
def drift(options: ObjectOptions, watch: Watch = False, output: OutputOption = Output.TABLE, *, api: HubApi) -> None:
    """Show what others changed at the provider, and how it is repaired; exit code 4 when an entry of ours was.

    Every load balancer with a ledger is read back. Foreign entries are listed separately and do not count as drift.
    Only the hub configures its own proxies: for their load balancers, it shows whether they have the newest state.
    """
    from fairlead.cli.changes import show_drift

    selection = options.selection
    run_for_code(lambda: show_drift(selection, api, output, watch=watch))


@takes_groups
def gc(
    options: ObjectOptions,
    delete: Annotated[
        bool, typer.Option("--delete", help="Deregister the orphans without a prompt, and print a line for each.")
    ] = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """List orphaned backends, and delete them; exit code 4 when some are left.

    Orphans are records whose load balancer is gone, and entries of ours at a provider without a record. Foreign
    entries are never changed. The hub's own proxies have only the hub's state, and so no orphans.
    """
    from fairlead.cli.changes import collect_orphans

    selection = options.selection
    run_for_code(lambda: collect_orphans(selection, api, output, delete=delete))


@takes_groups
def repair(
    options: ObjectToChangeOptions,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be reverted.")] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help="Time limit for the hub's answer, such as 90s or 2m.")
    ] = "30s",
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Revert, once, what others changed in our entries at a provider; fairlead drift shows it first.

    Shows what will be reverted, requests it from the hub and waits for the answer. Foreign entries are not changed.
    Exit code 1 when something still differs, or when nothing could be read back.
    """
    from fairlead.cli.changes import revert
    from fairlead.cli.selection import certain

    selection = certain(options.selection, "repair")
    timeout_s = duration_s(timeout, "--timeout")
    run_for_code(lambda: revert(selection, api, output, dry_run=dry_run, timeout_s=timeout_s))


@takes_groups
def pause(options: ObjectToChangeOptions, output: OutputOption = Output.TABLE, *, api: HubApi) -> None:
    """Hold all changes of a load balancer, or of a class.

    Nothing is added, changed or removed until resume; the condition Paused reports it. The held changes are shown here,
    in fairlead plan and in fairlead explain. A load balancer that was never programmed is still programmed, and one
    whose object is deleted is still removed.
    """
    from fairlead.cli.changes import set_paused
    from fairlead.cli.selection import certain

    selection = certain(options.selection, "pause")
    run_async(lambda: set_paused(selection, api, output, paused=True))


@takes_groups
def resume(options: ObjectToChangeOptions, output: OutputOption = Output.TABLE, *, api: HubApi) -> None:
    """Apply the changes that pause held."""
    from fairlead.cli.changes import set_paused
    from fairlead.cli.selection import certain

    selection = certain(options.selection, "resume")
    run_async(lambda: set_paused(selection, api, output, paused=False))


class UsageOutput(StrEnum):
    """Formats of usage."""

    TABLE = "table"
    WIDE = "wide"
    CSV = "csv"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class UsageBy(StrEnum):
    """What each row of usage is of."""

    TENANT = "tenant"
    SUBTENANT = "subtenant"
    NAMESPACE = "namespace"
    LB = "lb"


class UsagePer(StrEnum):
    """The time of each row of usage."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    ALL = "all"

    @property
    def length(self) -> int:
        """Return how long the name of such a time is."""
        return {"hour": len("2026-11-26T18"), "day": len("2026-11-26"), "month": len("2026-11"), "all": 0}[self.value]


@takes_groups
def usage(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="KIND/NAME",
            help="Only this load balancer, even if deleted, or tenant/NAME; default: all.",
            autocompletion=complete_object,
        ),
    ] = "",
    namespace: OnlyNamespace = "",
    since: Annotated[
        str, typer.Option("--since", metavar="DURATION", help="Period, such as 24h or 7d; begins at a full hour.")
    ] = "",
    month: Annotated[str, typer.Option("--month", metavar="YYYY-MM", help="A month, in UTC; default: this one.")] = "",
    by: Annotated[
        UsageBy, typer.Option("--by", help="One row for each tenant, subtenant, namespace or lb.")
    ] = UsageBy.LB,
    per: Annotated[
        UsagePer, typer.Option("--per", help="Period of each row: hour, day, month, or all for the whole time.")
    ] = UsagePer.ALL,
    prices: Annotated[
        Path | None,
        typer.Option("--prices", metavar="FILE", help="YAML file with prices, such as gibOut: 0.05; adds the cost."),
    ] = None,
    output: Annotated[
        UsageOutput, typer.Option("--output", "-o", metavar="FORMAT", help="table, csv, json, yaml or name.")
    ] = UsageOutput.TABLE,
    *,
    api: HubApi,
) -> None:
    """Show what tenants used: bytes, connections, requests, and the hours of addresses and certificates.

    Proxies count, and the hub stores the counts of each hour: of this month and the one before by hour, of the last
    thirteen months by day. With the key of its agent, a tenant sees its own usage up to the last full hour.
    """
    from fairlead.cli.selection import selection_of
    from fairlead.cli.usage import read_prices, show_usage, span_of

    span_of(since, month, datetime.now(UTC))  # invalid values are rejected before anything is read
    tariff = read_prices(prices)
    tenant = subject.removeprefix("tenant/") if subject.startswith("tenant/") else ""
    selection = selection_of("" if tenant else subject, namespace, "")
    run_async(
        lambda: show_usage(
            api, selection, output, tenant=tenant, since=since, month=month, by=by, per=per, prices=tariff
        )
    )


@takes_groups
def audit(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="KIND/NAME", help="Only this load balancer; default: all.", autocompletion=complete_object
        ),
    ] = "",
    namespace: OnlyNamespace = "",
    since: Annotated[str, typer.Option("--since", metavar="DURATION", help="Such as 24h or 7d.")] = "90d",
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="Only changes by this user or manager.")] = "",
    hub_url: Annotated[
        str, typer.Option("--hub-url", metavar="URL", help="Ask the hub whose --metrics is at this URL, as tenants do.")
    ] = "",
    token_file: TokenFile = None,
    output: Annotated[
        UsageOutput, typer.Option("--output", "-o", metavar="FORMAT", help="table, csv, json, yaml or name.")
    ] = UsageOutput.TABLE,
    *,
    api: HubApi,
) -> None:
    """Show who changed which load balancer, when, and each field before and after.

    The embedded API stores users. Any other API server stores managers, which are names that clients choose; a user is
    then the claim of a client, and marked. A hub stores changes within 30 seconds, and keeps them for 90 days.
    """
    from fairlead.cli.audit import show_audit
    from fairlead.cli.selection import selection_of
    from fairlead.cli.usage import since_of

    since_of(since, datetime.now(UTC))  # an invalid value is rejected before anything is read
    selection = selection_of(subject, namespace, "")
    run_async(
        lambda: show_audit(api, selection, output, since=since, user=user, hub_url=hub_url, token_file=token_file)
    )


@takes_groups
def explain(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="KIND/NAME",
            help=f"KIND is one of {kinds_text(sharing=True)}; or a name as status lists it.",
            autocompletion=complete_explained,
        ),
    ] = "",
    namespace: Namespace = "",
    selector: Labels = "",
    history: Annotated[
        bool, typer.Option("--history", help="Show the history instead: events, decisions, calls and answers.")
    ] = False,
    hub_url: Annotated[
        str,
        typer.Option(
            "--hub-url",
            metavar="URL",
            help="With --history: also read the recent history from the hub whose --metrics is at this URL.",
        ),
    ] = "",
    token_file: TokenFile = None,
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Say why each backend is, or is not, registered.

    Since when, what it waits for (a guard, a pause, a drain, its provider), and what was left out and why. With
    --history: what happened to the load balancer, also when it no longer exists. With a member's kubeconfig: what the
    member knows of its Service svc/NAME, its Ingress, Gateway or route.
    """
    from fairlead.cli.explain import history_of, present_of
    from fairlead.cli.output import VerbAnswer, show
    from fairlead.cli.selection import selection_of
    from fairlead.errors import BadConfiguration

    selection = selection_of(subject, namespace, selector, sharing=True)
    ref = selection.ref
    if ref is None and not selection.filters:
        raise BadConfiguration("KIND/NAME is missing: name an object, as in svc/web, or several with -n or -l")
    if history and (ref is None or ref.kind == CLASS or selector):
        raise BadConfiguration("--history is of one load balancer: name it, as in svc/web or lb/shared")

    async def ask() -> VerbAnswer:
        if history and ref is not None:
            return await history_of(ref, api, hub_url, token_file)
        return await present_of(selection, api)

    run_for_code(lambda: show(ask, output, watch=watch))


@takes_groups
def route(
    method: Annotated[
        str, typer.Argument(metavar="METHOD", help="Such as GET.", autocompletion=complete_method, show_default=False)
    ],
    url: Annotated[str, typer.Argument(metavar="URL", help="http:// or https://; its host is the server name too.")],
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="Request header; may be repeated."),
    ] = None,
    address: Annotated[
        str, typer.Option("--address", metavar="IP", help="Only the load balancer with this address.")
    ] = "",
    load_balancer: Annotated[
        str,
        typer.Option("--lb", metavar="httplb/NAME", help="Only this one.", autocompletion=complete_http_load_balancer),
    ] = "",
    namespace: Namespace = "",
    selector: Labels = "",
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Say which listener, route, rule and backends a request meets, in which member.

    Also why no other rule matches, what the filters do, and how many targets are ready. No request is sent: the hub's
    objects give the answer, for every load balancer that accepts the request. Exit code 4: none accepts it; the nearest
    rules and the next step are shown.
    """
    from fairlead.cli.route import parse_request, selection_of_named, show_route

    typed = parse_request(method, url, headers or ())
    selection = selection_of_named(load_balancer, namespace, selector)
    run_for_code(lambda: show_route(api, typed, selection, address or typed.address, output, watch=watch))


@takes_groups
def names(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A host name such as shop.example.com, or hostname/NAME; default: all.",
            autocompletion=complete_hostname,
        ),
    ] = "",
    namespace: OnlyNamespace = "",
    selector: Labels = "",
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Show every Hostname: its owner, its records, and whether the zone's own server answers them.

    The authoritative server of each zone is asked from here; exit code 4 when a name does not resolve to what it
    should, or is not published.
    """
    from fairlead.cli.names import show_names
    from fairlead.cli.selection import matcher

    matcher(selector)  # an invalid selector is rejected before anything is read
    run_for_code(lambda: show_names(name, namespace, selector, api, output, watch=watch))


def convert(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE", help="YAML or JSON files with Ingresses; - is stdin. Without files, the cluster is read."
        ),
    ] = None,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NS",
            help="Read only this namespace; for files: namespace of objects without one.",
        ),
    ] = "",
    selector: Annotated[
        str, typer.Option("--selector", "-l", metavar="SELECTOR", help="Only the Ingresses with these labels.")
    ] = "",
    ingress_class: Annotated[
        str, typer.Option("--ingress-class", metavar="NAME", help="Only the Ingresses of this class.")
    ] = "",
    gateway: Annotated[
        str,
        typer.Option(
            "--gateway",
            metavar="NS/NAME",
            help="Name of the Gateway; default: ingress, in the namespace of the Ingresses.",
        ),
    ] = "",
    gateway_class: Annotated[
        str, typer.Option("--gateway-class", metavar="NAME", help="The GatewayClass of the Gateway.")
    ] = "fairlead",
    output: Annotated[
        Output,
        typer.Option(
            "--output", "-o", metavar="FORMAT", help="yaml for kubectl apply; json and name as of other verbs."
        ),
    ] = Output.YAML,
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", metavar="FILE", help=kubeconfig_help("The member's API"))
    ] = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Print Ingresses, with annotations of ingress-nginx, as objects of Gateway API.

    Nothing is written to a cluster. Settings without an equivalent in Gateway API are listed on stderr and as comments
    before the objects; the exit code is then 4. A path that would behave differently is omitted and listed.
    """
    from fairlead.cli.convert import gateway_key, print_converted
    from fairlead.cli.selection import matcher

    matches = matcher(selector)
    gateway_key(gateway, namespace)  # an invalid name is rejected before anything is read
    run_for_code(
        lambda: print_converted(
            files or [], namespace, matches, ingress_class, gateway, gateway_class, output, kubeconfig, context
        )
    )


class For(StrEnum):
    """Readers of the definitions other than the API server."""

    CAPI = "capi"


def crds(
    reader: Annotated[
        For | None,
        typer.Option(
            "--for", help="capi: with the labels by which Cluster API and clusterctl know a provider's kinds."
        ),
    ] = None,
) -> None:
    """Print all CustomResourceDefinitions as YAML: [cyan]fairlead crds | kubectl apply -f -[/cyan]."""
    import yaml

    from fairlead.api.clusterapi import labelled
    from fairlead.api.kinds import all_crds

    definitions = labelled(all_crds()) if reader is For.CAPI else all_crds()
    yaml.safe_dump_all(definitions, sys.stdout, sort_keys=False, explicit_start=True, width=120)


MemberKubeconfig = Annotated[
    Path | None,
    typer.Option("--member-kubeconfig", metavar="FILE", help="A member's API; without --kubeconfig only that one."),
]
MemberContext = Annotated[
    str,
    typer.Option("--member-context", metavar="NAME", help="Context of --member-kubeconfig; default: its current one."),
]
DoctorDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", parser=directory, help="Check this hub's directory, and this machine."),
]


DoctorStateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        parser=directory,
        help=f"Check this machine as a proxy machine; default: {DEFAULT_STATE_DIR}, if it exists.",
    ),
]


@dataclass(frozen=True)
class Where(OptionGroup):
    """The clusters and the directory to look at."""

    kubeconfig: Kubeconfig = None
    context: Context = ""
    member_kubeconfig: MemberKubeconfig = None
    member_context: MemberContext = ""
    data_dir: DoctorDir = None
    state_dir: DoctorStateDir = None

    @property
    def proxy(self) -> Path | None:
        """Return the state directory of this proxy machine, None when it is none."""
        return self.state_dir or (DEFAULT_STATE_DIR if DEFAULT_STATE_DIR.exists() else None)

    @property
    def member(self) -> tuple[Path | None, str] | None:
        """Return kubeconfig and context of the member, None when it is not looked at."""
        given = (self.member_kubeconfig, self.member_context)
        return given if any(given) else None

    @property
    def hub(self) -> tuple[Path | None, str] | None:
        """Return kubeconfig and context of the hub, None when only a member or a proxy machine is looked at."""
        given = (self.kubeconfig, self.context)
        return given if any(given) or (self.member is None and self.proxy is None) else None


@takes_groups
def doctor(
    where: Where,
    machine: Annotated[
        bool, typer.Option("--machine", help="Also check this machine, on which a hub runs its Envoy.")
    ] = False,
    connect: Annotated[
        bool, typer.Option("--connect", help="Connect from this machine to every target, as a proxy here would.")
    ] = False,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NS",
            help="Only faults of objects in this namespace, at the hub or in a member.",
        ),
    ] = "",
    selector: Annotated[
        str, typer.Option("--selector", "-l", metavar="SELECTOR", help="Only faults of objects with these labels.")
    ] = "",
    watch: Watch = False,
    list_checks: Annotated[bool, typer.Option("--list", help="List the checks without running them.")] = False,
    output: OutputOption = Output.TABLE,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Check hub, member and machine, and print for each fault the object and the command that fixes it.

    Nothing is changed. On a proxy machine, that machine is checked. With the administrator's kubeconfigs of hub and
    member, everything is checked. -o name lists the objects that other verbs take, each once: load balancers,
    Services, classes, names and tenants.
    """
    from fairlead.cli.doctor import examined, print_checks
    from fairlead.cli.output import show
    from fairlead.cli.selection import matcher

    if list_checks:
        print_checks(output)
        return
    matches = matcher(selector) if selector else None

    run_for_code(
        lambda: show(
            lambda: examined(where, machine=machine, connect=connect, namespace=namespace, matches=matches),
            output,
            watch=watch,
        )
    )


@takes_groups
def collect(
    where: Where,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Output file; default: fairlead-TIME.tar.gz in the working directory.",
        ),
    ] = None,
    hub_url: Annotated[
        str,
        typer.Option(
            "--hub-url", metavar="URL", help="URL of a hub's --metrics, such as http://127.0.0.1:9090; adds its pages."
        ),
    ] = "",
    log: Annotated[
        list[Path] | None,
        typer.Option(
            "--log",
            metavar="FILE|DIR",
            help="Add the end of this log, or of Fairlead's logs in this directory; may be repeated.",
        ),
    ] = None,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Gather what a bug report needs in one file: objects, Events, histories, metrics, logs, and what doctor says.

    Keys, tokens, passwords and the contents of Secrets are removed. It works with a broken hub too: what could not
    be read is listed in the file.
    """
    from fairlead.cli.doctor import collect_bundle

    now = datetime.now(UTC)
    path = output or Path(f"fairlead-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    run_async(lambda: collect_bundle(where, path, now, hub_url, log or []))


tenant_app = CommandGroup("tenant", "Member clusters at the hub.")


@tenant_app.verb("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the member, such as east.", show_default=False)],
    output: KeyFile = None,
    region: Annotated[
        str, typer.Option("--region", metavar="NAME", help="Region of the member, such as eu-central.")
    ] = "",
    valid_for: ValidFor = "24h",
    valid_days: ValidDays = None,
    server: HubAddress = "",
    new_hub: Annotated[
        bool,
        typer.Option("--new-hub", help="For a cluster in which no hub has run yet: install the CRDs and continue."),
    ] = False,
    *,
    api: HubApi,
) -> None:
    """Create a Tenant and write a kubeconfig for its agent, which can reach that tenant's namespace only.

    Safe to repeat: nothing changes for an existing Tenant, and a fresh token is written.
    """
    from fairlead.cli.tenant import add_tenant, check_name, check_output, check_server, validity_s

    check_name(name, region)
    check_server(server)
    check_output(output)
    valid_s = validity_s(valid_for, valid_days)
    run_async(
        lambda: add_tenant(name, api=api, output=output, region=region, valid_s=valid_s, server=server, new_hub=new_hub)
    )


@tenant_app.verb("list")
def list_tenants(
    name: AnyMember = "",
    selector: Labels = "",
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """List members: state and version of the agent, load balancers, addresses, and clock skew.

    Ages are measured by the clock of the hub's API server only.
    """
    from fairlead.cli.selection import matcher
    from fairlead.cli.tenant import tenant_table

    matches = matcher(selector)
    run_for_code(lambda: tenant_table(name.removeprefix("tenant/"), matches, api, output, watch=watch))


@tenant_app.verb("usage")
def tenant_usage(
    name: AnyMember = "",
    selector: Labels = "",
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Show how much of its limits each member uses, and the field that sets each limit.

    From 80 percent on, a limit is marked, and the exit code is 4. For traffic, see fairlead usage.
    """
    from fairlead.cli.selection import matcher
    from fairlead.cli.tenant import tenant_quotas

    matches = matcher(selector)
    run_for_code(lambda: tenant_quotas(name.removeprefix("tenant/"), matches, api, output, watch=watch))


@tenant_app.verb("rotate")
def rotate(
    name: MemberName,
    output: KeyFile = None,
    valid_for: ValidFor = "24h",
    valid_days: ValidDays = None,
    server: HubAddress = "",
    *,
    api: HubApi,
) -> None:
    """Revoke all tokens of a tenant, and write a kubeconfig with a new one.

    Traffic is not affected. An agent that finds the new key in its --hub-kubeconfig continues without a restart.
    """
    from fairlead.cli.tenant import check_output, check_server, rotate_token, validity_s

    check_server(server)
    check_output(output)
    valid_s = validity_s(valid_for, valid_days)
    run_async(lambda: rotate_token(name.removeprefix("tenant/"), api, output=output, valid_s=valid_s, server=server))


@tenant_app.verb("remove")
def remove(
    name: MemberName,
    stop_serving: Annotated[
        bool,
        typer.Option(
            "--stop-serving", help="Also remove a member that serves: drain its load balancers, then delete them."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would stop serving.")] = False,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="Succeed if the member does not exist, for scripts.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is gone.")] = True,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help="How long to wait, such as 90s or 10m.")
    ] = "10m",
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Remove a member: show what stops, drain it, delete its load balancers, its namespace and its key.

    Rejected while the member serves, unless --stop-serving is given. The agent removes the addresses from the member's
    Services, each with an Event. Safe to repeat: it continues where it stopped. A missing member is an error, unless
    --ignore-not-found is given.
    """
    from fairlead.cli.tenant import remove_tenant

    wait_s = duration_s(timeout, "--timeout")
    run_async(
        lambda: remove_tenant(
            name.removeprefix("tenant/"),
            api,
            output,
            stop=stop_serving,
            dry_run=dry_run,
            ignore_not_found=ignore_not_found,
            wait_s=wait_s if wait else 0.0,
        )
    )


drill_app = CommandGroup("drill", "Rehearse the failure of a member.")


class DrillMode(StrEnum):
    """How a member is taken out of service."""

    DRAIN = "drain"
    DARK = "dark"


@drill_app.verb("member")
def drill_member(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the member, as its Tenant.", show_default=False)],
    service: Annotated[
        str,
        typer.Option(
            "--service",
            metavar="NAMESPACE/NAME",
            help="Only this GlobalService, given by its own name or its Service's; default: all.",
        ),
    ] = "",
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="How long, from 5s to 24h.")] = "5m",
    mode: Annotated[
        DrillMode,
        typer.Option(
            "--mode", metavar="MODE", help="drain: no new connections. dark: endpoints count as unhealthy at proxies."
        ),
    ] = DrillMode.DRAIN,
    stop_on: StopOnOption = "",
    region: Annotated[
        str, typer.Option("--region", metavar="NAME", help="Region of the hub that runs the drill.")
    ] = "",
    preview: Annotated[
        bool, typer.Option("--preview", help="Only show what would happen, without writing anything.")
    ] = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Take a member out of GlobalServices for a time, measure the traffic, and print a report.

    The drill ends at its time, also when this command or the hub has ended. Rejected while another drill is under way,
    when the member is dark already, when others lack capacity, and in a blocked window of a DrillSchedule.
    """
    from fairlead.api.drill import DrillSpec
    from fairlead.cli.drill import preview_drill, run_drill

    spec = DrillSpec(
        name.removeprefix("tenant/"),
        service,
        mode="Dark" if mode is DrillMode.DARK else "Drain",
        duration=duration,
        stop_on=stop_on,
        region=region,
    )
    run_for_code(lambda: preview_drill(spec, api, output) if preview else run_drill(spec, api, output))


@drill_app.verb("history")
def drill_history(
    name: Annotated[str, typer.Argument(metavar="DRILL", help="Print the report of this drill as Markdown.")] = "",
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """List all drills, the newest first; or print the report of one as Markdown."""
    from fairlead.cli.drill import show_drills

    run_for_code(lambda: show_drills(name.removeprefix("drill/"), api, output))


@drill_app.verb("stop")
def drill_stop(
    name: Annotated[str, typer.Argument(metavar="DRILL", help="Name of the drill.", show_default=False)],
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """End a drill now; the member serves again."""
    from fairlead.cli.drill import stop_drill

    run_async(lambda: stop_drill(name.removeprefix("drill/"), api, output))


maintenance_app = CommandGroup("maintenance", "Answer requests with a page for a time.")


MaintenanceSubject = Annotated[
    str,
    typer.Argument(
        metavar="KIND/NAME",
        help="gateway, httplb: all hosts, or those of --host. ingress, httproute, grpcroute, svc: their hosts.",
        show_default=False,
    ),
]
Hosts = Annotated[list[str] | None, typer.Option("--host", metavar="HOST", help="Only this host; may be repeated.")]


@maintenance_app.verb("on")
def on(
    subject: MaintenanceSubject,
    namespace: Namespace = "",
    hosts: Hosts = None,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="HTML page of at most 65536 bytes.")
    ] = None,
    status: Annotated[
        int, typer.Option("--status", min=400, max=599, metavar="CODE", help="Status code of the answers.")
    ] = 503,
    retry_after: Annotated[
        str,
        typer.Option(
            "--retry-after",
            metavar="DURATION",
            help="When clients should retry, such as 600 or 10m; 0: no Retry-After header.",
        ),
    ] = "0",
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="CIDR", help="Clients that still reach the routes; may be repeated."),
    ] = None,
    lasts: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="When the maintenance ends automatically.")
    ] = "1h",
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Answer the requests of hosts with a page, instead of their routes.

    A second call for a host replaces the first one. Challenges of certificate authorities are still answered.
    """
    from fairlead.cli.maintenance import change_maintenance, entry_until
    from fairlead.status.object_ref import parse_object_ref

    until = datetime.now(UTC) + timedelta(seconds=duration_s(lasts, "--for"))
    retry_after_s = int(duration_s(retry_after, "--retry-after"))
    entry = entry_until(until, status=status, retry_after_s=retry_after_s, allow=allow or (), page=page)
    ref = parse_object_ref(subject, namespace, sharing=True)
    run_async(lambda: change_maintenance(ref, hosts or [], api, output, entry))


@maintenance_app.verb("off")
def off(
    subject: MaintenanceSubject,
    namespace: Namespace = "",
    hosts: Hosts = None,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Serve the routes of hosts again; without --host, all hosts of a load balancer or Gateway."""
    from fairlead.cli.maintenance import change_maintenance
    from fairlead.status.object_ref import parse_object_ref

    ref = parse_object_ref(subject, namespace, sharing=True)
    run_async(lambda: change_maintenance(ref, hosts or [], api, output, None))


member_app = CommandGroup("member", "Drain a member of GlobalServices, and use it again.")


DrainedMember = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the member, as its Tenant.", show_default=False)
]


@member_app.verb("drain")
def drain(
    name: DrainedMember,
    force: Annotated[
        bool, typer.Option("--force", help="Drain even if other members then exceed their maxShare.")
    ] = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Send new connections of all GlobalServices to other members; existing connections are kept.

    Rejected when a GlobalService would have no other member, or when another member would exceed its maxShare and
    --force is not given. To use the member again: undrain.
    """
    from fairlead.cli.member import change_drain

    run_async(lambda: change_drain(name.removeprefix("tenant/"), api, output, drained=True, force=force))


@member_app.verb("undrain")
def undrain(name: DrainedMember, output: OutputOption = Output.TABLE, *, api: HubApi) -> None:
    """Use a drained member of GlobalServices again."""
    from fairlead.cli.member import change_drain

    run_async(lambda: change_drain(name.removeprefix("tenant/"), api, output, drained=False, force=False))


@takes_groups
def shift(
    service: Annotated[
        str, typer.Argument(metavar="NAMESPACE/NAME", help="A GlobalService, or its Service.", show_default=False)
    ],
    weights: Annotated[
        list[str] | None, typer.Argument(metavar="MEMBER=WEIGHT", help="New weight of a member.", show_default=False)
    ] = None,
    step: Annotated[
        int, typer.Option(min=1, max=100, metavar="PERCENT", help="Percentage of connections that a step moves.")
    ] = 10,
    every: Annotated[str, typer.Option(metavar="DURATION", help="Time between two steps.")] = "1m",
    stop_on: StopOnOption = "",
    stay: Annotated[bool, typer.Option("--stay", help="End the shift in progress at its present weights.")] = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Move the weights of a GlobalService in steps.

    The hub takes the steps, also when this command has ended. Existing connections are kept. Rejected while another
    shift is under way, and when a member would exceed its maxShare.
    """
    from fairlead.api.globalservice import GlobalShift
    from fairlead.cli.member import move_weights, parsed_weights
    from fairlead.errors import BadConfiguration

    if stay == bool(weights):
        raise BadConfiguration("give new weights such as west=10 east=90, or --stay to end a shift where it is")
    wanted = parsed_weights(weights or ())
    run_async(lambda: move_weights(service, wanted, GlobalShift(step, every, stop_on), api, output))
