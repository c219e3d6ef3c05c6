"""The commands that run until they are stopped: hub, agent, run, standalone, regions, capi and apiserver.

In: options. Out: checked settings, then the process of ``standalone/``. Each imports what it needs when it is called.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.api.names import DEFAULT_POOL
from fairlead.cli.options import (
    AddressPool,
    Announce,
    Context,
    DataDir,
    DemoDir,
    Domain,
    HubDir,
    HubMetrics,
    Kubeconfig,
    Listen,
    LogFormat,
    LogOptions,
    MachinesAt,
    OptionalDataDir,
    Plain,
    QuietLogOptions,
    ReplicaOptions,
    StopProxy,
    Verbose,
    directory,
    host_and_port,
    kubeconfig_help,
    machines_at,
    metrics_at,
    page_urls,
    takes_groups,
)
from fairlead.cli.run import run_async, run_check

if TYPE_CHECKING:
    from fairlead.standalone.controllers import CapiSettings


DEFAULT_DATA_DIR = Path("~/.local/state/fairlead/hub")


class EnvoyMode(StrEnum):
    """The place where the proxies run."""

    LOCAL = "local"
    DEPLOYMENT = "deployment"


class CloudLoadBalancer(StrEnum):
    """Whether the member has its own load balancer implementation."""

    PRESENT = "present"
    ABSENT = "absent"


class TrafficTarget(StrEnum):
    """Where traffic enters the member."""

    NODE = "Node"
    POD = "Pod"


Cloud = Annotated[
    CloudLoadBalancer,
    typer.Option(
        "--cloud-load-balancer",
        metavar="present|absent",
        help="present: Fairlead serves only Services that ask for it.",
    ),
]
Target = Annotated[
    TrafficTarget, typer.Option("--target", metavar="Node|Pod", help="Node: each node's nodePort. Pod: pods directly.")
]
ReadinessGates = Annotated[bool, typer.Option("--readiness-gates", help="Open readiness gates of pods.")]
Egress = Annotated[bool, typer.Option("--egress", help="Serve the egress of labelled pods.")]
ClusterKubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", metavar="FILE", help=kubeconfig_help("The cluster's API"))
]
Workers = Annotated[
    int, typer.Option("--workers", metavar="N", help="How many Services or load balancers are worked on at once.")
]


@takes_groups
def hub(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    new_hub: Annotated[
        bool, typer.Option("--new-hub", help="Start even if this cluster is a member of another hub.")
    ] = False,
    envoy: Annotated[
        EnvoyMode, typer.Option("--envoy", metavar="MODE", help="local: on this machine. deployment: in the cluster.")
    ] = EnvoyMode.LOCAL,
    address_pool: AddressPool = "",
    region: Annotated[
        str, typer.Option("--region", metavar="NAME", help="Serve only this region; empty: regions without a hub.")
    ] = "",
    tenant_ports: Annotated[
        int,
        typer.Option(
            "--tenant-ports", metavar="N", min=0, help="Port quota of a Tenant without spec.maxPorts; 0: unlimited."
        ),
    ] = 2000,
    domain: Domain = "",
    metrics: HubMetrics = "",
    machines: MachinesAt = "",
    announce: Announce = False,
    data_dir: HubDir = DEFAULT_DATA_DIR,
    envoy_threads: Annotated[
        int,
        typer.Option(
            "--envoy-threads", metavar="N", min=0, help="Threads per local Envoy; 0: one per core, at most 2."
        ),
    ] = 0,
    envoys: Annotated[
        int, typer.Option("--envoys", metavar="N", min=1, max=64, help="local: Envoys to spread the addresses over.")
    ] = 1,
    stop_proxy: StopProxy = False,
    xds_listen: Annotated[
        str, typer.Option("--xds-listen", metavar="HOST:PORT", help="deployment: address of the xDS server (mTLS).")
    ] = "0.0.0.0:18000",
    xds_address: Annotated[
        str,
        typer.Option(
            "--xds-address",
            metavar="HOST:PORT",
            help="deployment: how proxies reach the hub; default: its Service, port 18000.",
            show_default=False,
        ),
    ] = "fairlead-hub.fairlead-system.svc:18000",
    proxy_image: Annotated[
        str, typer.Option("--proxy-image", metavar="IMAGE", help="deployment: Envoy's image; empty: the tested one.")
    ] = "",
    proxy_replicas: Annotated[
        int, typer.Option("--proxy-replicas", metavar="N", min=1, max=100, help="deployment: Envoys for each tenant.")
    ] = 2,
    *,
    logs: LogOptions,
) -> None:
    """Run the hub. With a local Envoy the address pool is 127.200.0.0/16 unless given.

    The local Envoy keeps serving when the hub ends; the next hub adopts it.
    """
    from fairlead.standalone.hub_process import run_hub
    from fairlead.standalone.hub_settings import HubSettings

    settings = HubSettings(
        kubeconfig=kubeconfig,
        context=context,
        new_hub=new_hub,
        deployment=envoy is EnvoyMode.DEPLOYMENT,
        address_pool=address_pool or ("" if envoy is EnvoyMode.DEPLOYMENT else DEFAULT_POOL),
        region=region,
        tenant_ports=tenant_ports,
        domain=domain,
        metrics=metrics_at(metrics),
        machines=machines_at(machines),
        announce=announce,
        data_dir=data_dir.expanduser(),
        stop_proxy=stop_proxy,
        xds_listen=host_and_port(xds_listen, "--xds-listen"),
        xds_address=host_and_port(xds_address, "--xds-address"),
        proxy_image=proxy_image,
        proxy_replicas=proxy_replicas,
        envoy_concurrency=envoy_threads,
        envoys=envoys,
    )
    settings.check()
    logs.start()
    run_async(lambda: run_hub(settings))


@takes_groups
def agent(
    tenant: Annotated[str, typer.Option("--tenant", metavar="NAME", help="The member's Tenant at the hub.")],
    hub_kubeconfig: Annotated[
        Path, typer.Option("--hub-kubeconfig", metavar="FILE", help="The hub, as `fairlead tenant add` wrote it.")
    ],
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", metavar="FILE", help=kubeconfig_help("The member's API"))
    ] = None,
    context: Context = "",
    hub_context: Annotated[
        str,
        typer.Option("--hub-context", metavar="NAME", help="Context of --hub-kubeconfig; default: its current one."),
    ] = "",
    cloud_load_balancer: Cloud = CloudLoadBalancer.ABSENT,
    target: Target = TrafficTarget.NODE,
    region: Annotated[str, typer.Option("--region", metavar="NAME", help="Region of the member.")] = "",
    readiness_gates: ReadinessGates = False,
    egress: Egress = False,
    *,
    replica: ReplicaOptions,
    logs: LogOptions,
) -> None:
    """Run the agent of one member: its Services get their addresses from the hub."""
    from fairlead.agent.config import AgentConfig
    from fairlead.standalone.agent_process import run_agent_process

    config = AgentConfig(
        tenant=tenant,
        member_kubeconfig=str(kubeconfig) if kubeconfig else None,
        member_context=context,
        hub_kubeconfig=str(hub_kubeconfig),
        hub_context=hub_context,
        region=region,
        cloud_load_balancer=cloud_load_balancer.value,
        target=target.value,
        readiness_gates=readiness_gates,
        egress=egress,
        identity=replica.identity,
        metrics=metrics_at(replica.metrics),
    )
    config.check()
    logs.start()
    run_async(lambda: run_agent_process(config, data_dir=replica.data_dir))


@takes_groups
def egress_node(
    node: Annotated[str, typer.Option("--node", metavar="NAME", help="Name of this node in its cluster.")],
    kubeconfig: ClusterKubeconfig = None,
    context: Context = "",
    *,
    logs: LogOptions,
) -> None:
    """Send packets of labelled pods of this node to the proxy machine that has the address of their Service.

    Needs the network of the node and the capability NET_ADMIN. Rules and routes stay when this ends; the next run
    takes them over.
    """
    from fairlead.standalone.agent_process import run_egress_node

    logs.start()
    run_async(lambda: run_egress_node(node, kubeconfig=kubeconfig, context=context))


DEFAULT_DIR = Path("~/.local/state/fairlead/run")


@takes_groups
def run(
    kubeconfig: ClusterKubeconfig = None,
    context: Context = "",
    address_pool: AddressPool = DEFAULT_POOL,
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir", metavar="DIR", parser=directory, help="Envoy's files and the name of this copy in leases."
        ),
    ] = DEFAULT_DIR,
    target: Target = TrafficTarget.POD,
    cloud_load_balancer: Cloud = CloudLoadBalancer.ABSENT,
    readiness_gates: ReadinessGates = False,
    egress: Egress = False,
    domain: Domain = "",
    metrics: HubMetrics = "",
    machines: MachinesAt = "",
    announce: Announce = False,
    stop_proxy: StopProxy = False,
    *,
    logs: QuietLogOptions,
) -> None:
    """Serve one cluster from this machine: its Services of type LoadBalancer, its Ingresses and its Gateways.

    The cluster is hub and member at once, and one Envoy on this machine takes the traffic: what a site has in place
    of a separate load balancer and an ingress controller. Without --stop-proxy Envoy keeps serving when this ends,
    however it ends; the next run takes it over.
    """
    from fairlead.standalone.one_machine import RunSettings, run_hub_and_member

    settings = RunSettings(
        kubeconfig=kubeconfig,
        context=context,
        data_dir=data_dir.expanduser().absolute(),
        address_pool=address_pool,
        target=target.value,
        cloud_load_balancer=cloud_load_balancer.value,
        readiness_gates=readiness_gates,
        egress=egress,
        domain=domain,
        metrics=metrics_at(metrics),
        machines=machines_at(machines),
        announce=announce,
        stop_proxy=stop_proxy,
    )
    settings.check()
    logs.start()
    run_async(lambda: run_hub_and_member(settings, ready=_print))


def _print(lines: list[str]) -> None:
    from fairlead.cli.output import say

    say(lines)
    sys.stdout.flush()


@takes_groups
def regions(
    kubeconfig: ClusterKubeconfig = None,
    context: Context = "",
    workers: Workers = 3,
    layer1_only: Annotated[
        bool, typer.Option("--layer1-only", help="Make PoolServices only, and leave every class to other controllers.")
    ] = False,
    *,
    replica: ReplicaOptions,
    logs: LogOptions,
) -> None:
    """Give Services with a NodePool selector an access point in each matching region."""
    from fairlead.standalone.controllers import RegionsSettings, run_regions

    settings = RegionsSettings(
        kubeconfig=kubeconfig,
        context=context,
        workers=workers,
        balancer=not layer1_only,
        identity=replica.identity,
        data_dir=replica.data_dir,
        metrics=metrics_at(replica.metrics),
    )
    settings.config()  # a bad number is an error before anything is started
    logs.start()
    run_async(lambda: run_regions(settings))


def demo_regions(
    data_dir: DemoDir = None,
    loopback: Annotated[
        bool, typer.Option("--loopback", help="Use loopback ranges also where network namespaces could be made.")
    ] = False,
    plain: Plain = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Show one Service in three regions, each on a network of its own.

    Fails when a request fails that should not have, or reaches another region's pods.
    """
    from fairlead_demo.run import DemoSettings, run_regions_demo

    run_check(lambda: run_regions_demo(DemoSettings(data_dir=data_dir, loopback=loopback, plain=plain)))


@takes_groups
def standalone(
    data_dir: OptionalDataDir = None,
    listen: Listen = "127.0.0.1:6443",
    address_pool: AddressPool = DEFAULT_POOL,
    domain: Domain = "",
    metrics: HubMetrics = "",
    machines: MachinesAt = "",
    announce: Announce = False,
    stop_proxy: StopProxy = False,
    capi: Annotated[
        bool,
        typer.Option(
            "--cluster-api", help="Serve the Clusters of Cluster API here, too; waits while its kinds are missing."
        ),
    ] = False,
    stop: Annotated[
        bool,
        typer.Option(
            "--stop", help="Stop the hub and Envoy of --data-dir; without it, every Envoy whose directory was deleted."
        ),
    ] = False,
    *,
    logs: QuietLogOptions,
) -> None:
    """Run a hub with everything it needs on this machine; its kubeconfig is [cyan]DIR/kubeconfig[/cyan]."""
    from fairlead.errors import BadConfiguration
    from fairlead.standalone.one_machine import StandaloneSettings, run_standalone

    if stop:
        run_async(lambda: _stop(data_dir and data_dir.expanduser().absolute()))
        return
    if data_dir is None:
        raise BadConfiguration("--data-dir is missing: name a directory that keeps all state, such as  --data-dir hub")
    host, port = host_and_port(listen, "--listen")
    settings = StandaloneSettings(
        data_dir=data_dir.expanduser().absolute(),
        host=host,
        port=port,
        address_pool=address_pool,
        domain=domain,
        metrics=metrics_at(metrics),
        machines=machines_at(machines),
        announce=announce,
        stop_proxy=stop_proxy,
        capi=capi,
        api_options=("--log-level", logs.log_level, "--log-format", _format_here(logs.log_format)),
    )
    settings.check()
    logs.start()
    run_async(
        lambda: run_standalone(
            settings, ready=lambda kubeconfig: _next_steps(kubeconfig, metrics=metrics, machines=machines)
        )
    )


async def _stop(data_dir: Path | None) -> None:
    from fairlead.standalone.process import stop_machine, stop_orphans

    left: list[Path] = []
    if data_dir is None:
        ended, left = await stop_orphans()
    else:
        ended = await stop_machine(data_dir)
    lines = [f"Ended: {what}" for what in ended] or ["Nothing to end."]
    lines += [f"Left: the Envoy of {home}; end it with  fairlead standalone --stop --data-dir {home}" for home in left]
    _print(lines)


def _format_here(chosen: LogFormat) -> LogFormat:
    """Return the format that ``auto`` comes to; the API server's log passes through ours."""
    if chosen is not LogFormat.AUTO:
        return chosen
    return LogFormat.TEXT if sys.stderr.isatty() else LogFormat.JSON


def _next_steps(kubeconfig: Path, *, metrics: str = "", machines: str = "") -> None:
    _print([str(kubeconfig)])
    sys.stderr.write(
        "The hub is ready. Next, for each member cluster:\n"
        f"  fairlead tenant add NAME --output NAME.kubeconfig --kubeconfig {kubeconfig}\n"
        "  fairlead agent --kubeconfig MEMBER.kubeconfig --hub-kubeconfig NAME.kubeconfig --tenant NAME\n"
        + (f"for each proxy machine:  fairlead proxy token --kubeconfig {kubeconfig}\n" if machines else "")
        + f"and to see how it is:  fairlead status --kubeconfig {kubeconfig}\n"
        # Port 0 is any free one, which only the hub's process finds out.
        + (f"or in a browser:  {page_urls(metrics)}\n" if metrics and not metrics.endswith(":0") else "")
    )


@takes_groups
def apiserver(
    data_dir: DataDir,
    listen: Listen = "127.0.0.1:0",
    memory: Annotated[bool, typer.Option("--memory", help="Keep state in memory only; lost on exit.")] = False,
    service_range: Annotated[
        str,
        typer.Option(
            "--service-cluster-ip-range",
            metavar="CIDRS",
            help="Where cluster IPs of Services are from: one range, or one of each family. Services that name no "
            "family have the first. Default: 10.96.0.0/16 and fd00:10:96::/112.",
            show_default=False,
        ),
    ] = "10.96.0.0/16,fd00:10:96::/112",
    with_parent: Annotated[
        bool, typer.Option("--end-with-parent", hidden=True, help="Exit when stdin is closed or the parent ends.")
    ] = False,
    *,
    logs: QuietLogOptions,
) -> None:
    """Serve a Kubernetes-compatible API; its kubeconfig is [cyan]DIR/kubeconfig[/cyan], printed when it is ready."""
    host, port = host_and_port(listen, "--listen")
    logs.start()
    home = data_dir.expanduser().absolute()
    run_async(lambda: _serve(home, host, port, service_range, memory=memory, with_parent=with_parent))


async def _serve(data_dir: Path, host: str, port: int, service_range: str, *, memory: bool, with_parent: bool) -> None:
    from fairlead.runtime.background import Supervisor
    from fairlead.standalone.api import end_with_parent, serve_api

    supervisor = Supervisor(stop_deadline_s=4.0)
    supervisor.spawn(
        "apiserver",
        lambda: serve_api(
            data_dir, host, port, memory=memory, ready=lambda path: _print([str(path)]), service_range=service_range
        ),
    )
    if with_parent:
        supervisor.spawn("parent", lambda: end_with_parent(supervisor.stop))
    await supervisor.run_until_stopped()


@takes_groups
def capi(
    kubeconfig: ClusterKubeconfig = None,
    context: Context = "",
    hub_kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--hub-kubeconfig",
            metavar="FILE",
            help="The hub, if it is another cluster: LoadBalancers are read and written there.",
        ),
    ] = None,
    workers: Workers = 8,
    release_hooks: Annotated[
        bool,
        typer.Option(
            "--release-hooks",
            help="Remove Fairlead's hooks and finalizers from every machine, and exit; stop all other copies first.",
        ),
    ] = False,
    *,
    replica: ReplicaOptions,
    logs: LogOptions,
) -> None:
    """Give the clusters of Cluster API an endpoint whose members follow their machines."""
    from fairlead.standalone.controllers import CapiSettings, run_capi

    settings = CapiSettings(
        kubeconfig=kubeconfig,
        context=context,
        hub_kubeconfig=hub_kubeconfig,
        workers=workers,
        identity=replica.identity,
        data_dir=replica.data_dir,
        metrics=metrics_at(replica.metrics),
    )
    settings.config()  # a bad number is an error before anything is started
    logs.start()
    if release_hooks:
        run_async(lambda: _release(settings))
        return
    run_async(lambda: run_capi(settings))


async def _release(settings: CapiSettings) -> None:
    from fairlead.cli.output import say
    from fairlead.standalone.controllers import free_all

    freed = await free_all(settings)
    say([*freed, f"{len(freed)} objects were released." if freed else "No object has hooks or finalizers of Fairlead."])
