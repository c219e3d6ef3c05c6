"""Read the hub's API for a verb: its status, which hub leads, and load balancers as a hub would see them now.

In: a kubeconfig and what is selected. Out: ``FleetStatus``, ``HubRow``, ``Snapshot``. Timeouts are short, because a
person is waiting. Never: a write.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from fairlead.api.addresspool import ADDRESS_POOLS
from fairlead.api.announcing import ADVERTISEMENTS, BGP_PEERS
from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.globalservice import GLOBAL_SERVICES
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES
from fairlead.api.meta import KubeObject, Resource
from fairlead.api.multicluster import EXPORTED_SERVICES, IMPORTED_SERVICES
from fairlead.api.names import AGENT_LEASE, HUB_LEASE, LABEL_PROXY_MACHINE, SYSTEM_NAMESPACE
from fairlead.api.poolservice import POOL_SERVICES
from fairlead.api.proxymachine import PROXY_GROUPS, PROXY_MACHINES, ProxyGroup, ProxyMachine
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import STAMPED_LEASES, TENANTS, StampedLease
from fairlead.cli.options import HubApi, LogFormat, LogLevel, start_logging
from fairlead.cli.selection import EVERYTHING, Selection, select
from fairlead.errors import Forbidden, NotFound, NotServed, first_of
from fairlead.kube.cluster import Cluster
from fairlead.kube.transport import RetryPolicy
from fairlead.model.keys import LoadBalancerKey
from fairlead.standalone.proxy_report import read_reports
from fairlead.standalone.right_cluster import not_a_hub, refuse_tenants_key, serves_kinds
from fairlead.status.fleet import FleetObjects, FleetStatus, HubRow, build_status, hub_row
from fairlead.status.machines import in_force
from fairlead.status.object_ref import ANY, CLASS, IN_MEMBERS
from fairlead.translate.announcing import Announcements

if TYPE_CHECKING:
    from fairlead.hub.inspect.preview import Previewed

_NO_LEADER = "No hub leads now, so nothing is done; start one with: fairlead hub"


class Snapshot(NamedTuple):
    """The load balancers ordered by key, the hub that leads (or none), and when they were read."""

    load_balancers: list[Previewed]
    hub: HubRow
    now: datetime

    @property
    def warning(self) -> str:
        """Return what a reader of the rows has to know: that no hub leads; empty when one does."""
        return "" if self.hub.leading else _NO_LEADER


async def take_snapshot(api: HubApi, selection: Selection = EVERYTHING) -> Snapshot:
    """Read all load balancers, or those that are selected; ``NotFound`` when there are none of those."""
    async with connect_hub(api, quiet=True) as cluster:
        return await snapshot_of(cluster, selection)


async def snapshot_of(cluster: Cluster, selection: Selection = EVERYTHING) -> Snapshot:
    """Read as ``take_snapshot`` does, over an open connection."""
    from fairlead.hub.inspect.preview import preview  # loads what a hub runs, which other verbs need not wait for

    classes = await check_kinds(cluster)
    now = cluster.server_clock.now()
    hub = await read_hub(cluster, now=now)
    ref = selection.ref
    if ref is None and not selection.filters:
        return Snapshot(await preview(cluster), hub, now)
    if ref is not None and ref.kind == CLASS:
        if ref.name not in classes:
            raise NotFound(ref.not_found)
        of_class = [lb for lb in await preview(cluster) if lb.class_name == ref.name]
        if selection.selector:
            keys = await keys_of(cluster, selection)
            of_class = [lb for lb in of_class if lb.key in keys]
        return Snapshot(of_class, hub, now)
    if ref is not None and ref.kind not in (ANY, *IN_MEMBERS) and not selection.selector:
        load_balancers = await preview(cluster, LoadBalancerKey(ref.kind, ref.namespace, ref.name))
        if not load_balancers:
            raise NotFound(ref.not_found)
        return Snapshot(load_balancers, hub, now)
    return Snapshot(await _selected(cluster, selection), hub, now)


async def _selected(cluster: Cluster, selection: Selection) -> list[Previewed]:
    """Return the load balancers that are found by their objects; in a namespace also those that are only on record."""
    from fairlead.hub.inspect.preview import preview

    try:
        keys, missing = await keys_of(cluster, selection), None
    except NotFound as error:
        if selection.ref is not None or selection.selector:
            raise
        keys, missing = set(), error
    namespace = "" if selection.ref is not None or selection.selector else selection.namespace
    chosen = [
        lb
        for lb in await preview(cluster, next(iter(keys)) if len(keys) == 1 and not namespace else None)
        if lb.key in keys or (lb.gone and lb.key.namespace == namespace)
    ]
    if missing is not None and not chosen:
        raise missing
    return chosen


async def keys_of(cluster: Cluster, selection: Selection) -> set[LoadBalancerKey]:
    """Return the keys of all that is selected; ``NotFound`` when nothing is."""
    return {LoadBalancerKey(ref.kind, ref.namespace, ref.name) for ref in await select(cluster, selection)}


#: The reason of the error for an API server without our kinds.
NO_KINDS = "NoKinds"
IMPATIENT = RetryPolicy(attempts=3, base_s=0.2, limit_s=1.0, deadline_s=10.0, connect_s=4.0, read_s=8.0)


@asynccontextmanager
async def connect_hub(api: HubApi, *, quiet: bool = False, name: str = "the hub") -> AsyncGenerator[Cluster]:
    """Open the cluster that the options of a verb name; ``quiet``: warnings of providers are not part of the answer.

    Raises:
        NotServed: with reason ``NO_KINDS``, it has none of our kinds: it is a member, or no hub has run there.
    """
    if quiet:
        start_logging(LogLevel.ERROR, LogFormat.AUTO)
    async with connect(api.kubeconfig, context=api.context, name=name) as cluster:
        try:
            yield cluster
        except (NotFound, NotServed, BaseExceptionGroup) as error:
            cause = first_of(error)
            if not isinstance(cause, NotFound | NotServed) or cause.reason == NO_KINDS or await serves_kinds(cluster):
                raise
            raise NotServed(await not_a_hub(cluster), detail=cause.sentence, reason=NO_KINDS) from error


@asynccontextmanager
async def connect(kubeconfig: Path | None, *, name: str, context: str = "") -> AsyncGenerator[Cluster]:
    """Open the cluster of a kubeconfig for one command; an empty context is the kubeconfig's current one.

    Raises:
        BadConfiguration: the kubeconfig is wrong, or what was denied is so because it is the key of an agent.
    """
    async with Cluster.from_kubeconfig(kubeconfig, context=context, name=name, policy=IMPATIENT) as cluster:
        try:
            yield cluster
        except (Forbidden, BaseExceptionGroup) as error:
            if isinstance(first_of(error), Forbidden):
                await refuse_tenants_key(cluster)
            raise


async def check_kinds(cluster: Cluster) -> set[str]:
    """Return the names of the classes; raise ``NotServed`` where no hub has ever run."""
    return {cls.metadata.name for cls in await cluster.list(LOAD_BALANCER_CLASSES)}


T = TypeVar("T", bound=KubeObject)


async def gather_status(cluster: Cluster) -> FleetStatus:
    """Read everything once."""
    (
        (tcp, http, shared, global_services),
        (pool_services, classes, groups),
        (tenants, leases, hub_lease, reports),
        (pools, zones, hostnames, certificates),
        (exports, imports),
        (machines, machine_leases, announcements, proxy_groups),
    ) = await asyncio.gather(
        asyncio.gather(
            cluster.list(TCP_LOAD_BALANCERS),
            _if_known(cluster, HTTP_LOAD_BALANCERS),
            cluster.list(LOAD_BALANCERS),
            _if_known(cluster, GLOBAL_SERVICES),
        ),
        asyncio.gather(
            _if_known(cluster, POOL_SERVICES), cluster.list(LOAD_BALANCER_CLASSES), cluster.list(BACKEND_GROUPS)
        ),
        asyncio.gather(
            cluster.list(TENANTS),
            cluster.list(STAMPED_LEASES, field_selector=f"metadata.name={AGENT_LEASE}"),
            _hub_lease(cluster),
            read_reports(cluster),
        ),
        asyncio.gather(
            _if_known(cluster, ADDRESS_POOLS),
            _if_known(cluster, DNS_ZONES),
            _if_known(cluster, HOSTNAMES),
            _if_known(cluster, MANAGED_CERTIFICATES),
        ),
        asyncio.gather(_if_known(cluster, EXPORTED_SERVICES), _if_known(cluster, IMPORTED_SERVICES)),
        read_machines(cluster),
    )
    read = FleetObjects(
        tenants=tenants,
        load_balancers=[*tcp, *http, *shared, *global_services],
        pool_services=pool_services,
        exports=exports,
        imports=imports,
        classes=classes,
        groups=groups,
        pools=pools,
        zones=zones,
        hostnames=hostnames,
        certificates=certificates,
        machines=machines,
        proxy_groups=proxy_groups,
        machine_leases=machine_leases,
        announcements=announcements,
        leases={lease.metadata.namespace: lease for lease in leases},
        hub_lease=hub_lease,
        reports=reports,
    )
    return build_status(read, now=cluster.server_clock.now())


class MachineObjects(NamedTuple):
    """The proxy machines, their Leases by name, and the announcements in force."""

    machines: list[ProxyMachine]
    leases: dict[str, StampedLease]
    announcements: Announcements
    groups: list[ProxyGroup]


async def read_machines(cluster: Cluster) -> MachineObjects:
    """Read what is known of proxy machines; one request where there are none."""
    machines = await _if_known(cluster, PROXY_MACHINES)
    if not machines:
        return MachineObjects([], {}, Announcements(), [])
    leases, peers, advertisements, groups = await asyncio.gather(
        cluster.list(STAMPED_LEASES, SYSTEM_NAMESPACE, label_selector=LABEL_PROXY_MACHINE),
        _if_known(cluster, BGP_PEERS),
        _if_known(cluster, ADVERTISEMENTS),
        _if_known(cluster, PROXY_GROUPS),
    )
    by_name = {lease.metadata.name: lease for lease in leases}
    return MachineObjects(machines, by_name, in_force(peers, advertisements), groups)


async def read_hub(cluster: Cluster, *, now: datetime | None = None) -> HubRow:
    """Read which hub leads."""
    lease = await _hub_lease(cluster)
    return hub_row(lease, now or cluster.server_clock.now())


async def _hub_lease(cluster: Cluster) -> StampedLease | None:
    try:
        return await cluster.get(STAMPED_LEASES, SYSTEM_NAMESPACE, HUB_LEASE)
    except NotFound:
        return None


async def _if_known(cluster: Cluster, resource: Resource[T]) -> list[T]:
    try:
        return await cluster.list(resource)
    except NotServed:
        # A hub without regions, and one of version 0.1, may have been set up without this kind.
        return []
