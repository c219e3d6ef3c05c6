"""Build ``fairlead status`` from the objects of the hub's API.

In: what was read (``FleetObjects``), and the time. Out: ``FleetStatus``; rows are ordered by name.
Ages are counted from the API server's own stamps to ``now``, its time too; no clock of a hub, an agent or this machine
counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from fairlead.api.addresspool import AddressPool
from fairlead.api.backendgroup import BackendGroup
from fairlead.api.hostname import DNSZone, Hostname
from fairlead.api.httploadbalancer import HTTPLoadBalancer
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.managedcertificate import ManagedCertificate
from fairlead.api.names import ANNOTATION_ORIGIN, DEFAULT_CLASS, LABEL_POOL_SERVICE_SERVICE, replica_key
from fairlead.api.poolservice import PoolService
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.api.tenant import StampedLease, Tenant, age_s, state_by_age
from fairlead.model.condition import ConditionReason
from fairlead.status import problems
from fairlead.status.object_ref import IN_MEMBERS, SERVICE, ObjectRef
from fairlead.status.problems import SERVING, ConditionFault, faults_of_load_balancer, worst_of
from fairlead.status.rows import (
    FleetStatus,
    HubRow,
    LoadBalancerRow,
    MemberRow,
    ProxyStatusRow,
    RegionRow,
    ReplicaReport,
    Trouble,
)


class FleetObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that were read: ``leases`` are the agents', by namespace, ``reports`` the hubs', by identity."""

    tenants: Sequence[Tenant] = ()
    load_balancers: Sequence[TCPLoadBalancer | HTTPLoadBalancer | LoadBalancer] = ()
    pool_services: Sequence[PoolService] = ()
    classes: Sequence[LoadBalancerClass] = ()
    groups: Sequence[BackendGroup] = ()
    pools: Sequence[AddressPool] = ()
    zones: Sequence[DNSZone] = ()
    hostnames: Sequence[Hostname] = ()
    certificates: Sequence[ManagedCertificate] = ()
    leases: Mapping[str, StampedLease] = msgspec.field(default_factory=dict[str, StampedLease])
    hub_lease: StampedLease | None = None
    reports: Mapping[str, ReplicaReport] = msgspec.field(default_factory=dict[str, ReplicaReport])


def build_status(read: FleetObjects, *, now: datetime) -> FleetStatus:
    """Return all rows, and what is not well."""
    hub = hub_row(read.hub_lease, now)
    rows = sorted(with_kinds(map(load_balancer_row, read.load_balancers)), key=lambda row: (row.namespace, row.name))
    load_balancer_counts = Counter(row.namespace for row in rows)
    members = sorted(
        (
            member_row(tenant, read.leases.get(tenant.namespace), load_balancer_counts[tenant.namespace], now)
            for tenant in read.tenants
        ),
        key=lambda row: row.name,
    )
    proxies = _proxies(read.reports, hub)
    leader = read.reports.get(replica_key(hub.holder))
    given = [address for lb in read.load_balancers for address in lb.status.addresses]
    pools = problems.pool_rows(read.pools, leader.address_pool if leader is not None else "", given)
    waiting = any(row.reason == ConditionReason.ADDRESS_POOL_EXHAUSTED for row in rows)
    regions = sorted(map(region_row, read.pool_services), key=lambda row: (row.namespace, row.service, row.region))
    faults = [
        *problems.of_hub(hub),
        *problems.of_members(members, read.tenants),
        *problems.of_refused(members, read.leases),
        *problems.of_load_balancers(read.load_balancers, rows),
        *problems.of_regions(regions),
        *problems.of_classes(read.classes),
        *problems.of_groups(read.groups),
        *problems.of_pools(read.pools, pools, waiting=waiting),
        *problems.of_zones(read.zones),
        *problems.of_names(read.hostnames),
        *problems.of_certificates(read.certificates, now),
        *problems.of_proxies(proxies),
    ]
    return FleetStatus(
        healthy=not faults,
        state=worst_of(fault.trouble for fault in faults),
        hub=hub,
        members=members,
        load_balancers=rows,
        proxies=proxies,
        pools=pools,
        regions=regions,
        problems=[fault.sentence for fault in faults],
        troubles=[fault.problem for fault in faults],
    )


def hub_row(lease: StampedLease | None, now: datetime) -> HubRow:
    """Return the holder of the hub's lease; an empty row when there is none."""
    if lease is None or not lease.spec.holder_identity:
        return HubRow()
    silent_s = _rounded(age_s(lease, now))
    allowed_s = lease.spec.lease_duration_seconds or 15
    return HubRow(lease.spec.holder_identity, silent_s, silent_s is not None and silent_s <= allowed_s)


def member_row(tenant: Tenant, lease: StampedLease | None, load_balancers: int, now: datetime) -> MemberRow:
    """Return the row of one member; ``lease`` is that of its agent."""
    silent_s = _rounded(age_s(lease, now)) if lease is not None else None
    state = state_by_age(silent_s)
    return MemberRow(tenant.metadata.name, tenant.spec.region, tenant.namespace, state, silent_s, load_balancers)


def load_balancer_row(lb: TCPLoadBalancer | HTTPLoadBalancer | LoadBalancer) -> LoadBalancerRow:
    """Return the row of one load balancer."""
    targets = lb.status.backends if isinstance(lb, LoadBalancer) else lb.status.targets
    routes = lb.status.routes if isinstance(lb, HTTPLoadBalancer) else None
    faults = faults_of_load_balancer(lb.status.conditions, targets, routes)
    by_type = {condition.type: condition for condition in lb.status.conditions or ()}
    current = lb.status.observed_generation >= lb.metadata.generation and "Programmed" in by_type
    accepted = by_type.get("Accepted")
    refused = accepted is not None and accepted.status == "False"
    serving = by_type.get(SERVING)
    origin = _origin(lb)
    return LoadBalancerRow(
        kind=problems.kind_of(lb),
        namespace=lb.metadata.namespace,
        name=lb.metadata.name,
        title=origin or f"{lb.metadata.namespace}/{lb.metadata.name}",
        origin=origin,
        origin_kind=_origin_kind(lb) if origin else "",
        class_name=lb.spec.class_name or DEFAULT_CLASS,
        address=",".join(lb.status.addresses),
        programmed=current and not refused and by_type["Programmed"].status == "True",
        serving=serving.status if serving is not None else "",
        state=worst_of(fault.trouble for fault in faults) if current or refused else Trouble.NOT_SERVING,
        reason="Deleting" if lb.deleting else _reason(faults) if current or refused else "Pending",
        message=faults[0].message if faults else "",
        targets=targets,
        routes=routes,
        labels=lb.metadata.labels or {},
    )


def with_kinds(rows: Iterable[LoadBalancerRow]) -> list[LoadBalancerRow]:
    """Return the rows in their order; those with one title have their kind in it, as svc/east/default/web."""
    listed = list(rows)
    counts = Counter(row.title for row in listed)
    replace = msgspec.structs.replace
    return [replace(row, title=title_with_kind(row)) if counts[row.title] > 1 else row for row in listed]


def title_with_kind(row: LoadBalancerRow) -> str:
    """Return the title of a row with its kind, as where another load balancer has the same title."""
    if row.origin_kind in IN_MEMBERS and row.origin.count("/") == 2:
        member, namespace, name = row.origin.split("/")
        return ObjectRef(row.origin_kind, namespace, name, member).path
    return ObjectRef(row.kind, row.namespace, row.name).path


def region_row(pool_service: PoolService) -> RegionRow:
    """Return the row of one region's share of a Service."""
    status = pool_service.status
    faults = faults_of_load_balancer(status.conditions, status.targets)
    programmed = any(condition.type == "Programmed" for condition in status.conditions or ())
    # A layer 2 that is not ours may write no conditions: then an address means that it is programmed.
    known = programmed or bool(faults) or bool(status.address)
    return RegionRow(
        namespace=pool_service.metadata.namespace,
        service=pool_service.label(LABEL_POOL_SERVICE_SERVICE) or pool_service.metadata.name,
        region=pool_service.spec.nodepool_name,
        class_name=pool_service.spec.load_balancer_class,
        address=status.address,
        programmed=known and all(fault.type not in ("Accepted", "Programmed") for fault in faults),
        state=worst_of(fault.trouble for fault in faults) if known else Trouble.NOT_SERVING,
        reason=_reason(faults) if faults or programmed else "" if known else "Pending",
        message=faults[0].message if faults else "",
        targets=status.targets,
        labels=pool_service.metadata.labels or {},
    )


def _reason(faults: Sequence[ConditionFault]) -> str:
    """Return the reason (else the type) of the worst fault, "Programmed" when there is none."""
    return (faults[0].reason or faults[0].type) if faults else "Programmed"


def _origin(lb: TCPLoadBalancer | HTTPLoadBalancer | LoadBalancer) -> str:
    if isinstance(lb, LoadBalancer):
        return ""
    origin = lb.spec.origin
    return lb.annotation(ANNOTATION_ORIGIN) or f"{origin.namespace}/{origin.name}".strip("/")


def _origin_kind(lb: TCPLoadBalancer | HTTPLoadBalancer | LoadBalancer) -> str:
    """Return the kind of the object that asked for it; an older agent does not say that it is a Service."""
    if isinstance(lb, LoadBalancer):
        return ""
    return lb.spec.origin.kind or (SERVICE if isinstance(lb, TCPLoadBalancer) else "")


def _proxies(reports: Mapping[str, ReplicaReport], hub: HubRow) -> list[ProxyStatusRow]:
    """Return one row for each proxy, from the report of the hub that leads, else from the latest report.

    A hub that has ended, and one that a proxy has disconnected from, leave their last reports behind.
    """
    best: dict[tuple[str, str], tuple[bool, str]] = {}
    newest: dict[tuple[str, str], ProxyStatusRow] = {}
    for identity, report in reports.items():
        rank = (identity == replica_key(hub.holder), report.since)
        for row in report.proxies:
            name = (row.group, row.node)
            if name not in best or rank > best[name]:
                state = row.state if hub.leading else "UNKNOWN"
                best[name] = rank
                newest[name] = ProxyStatusRow(row.node, row.group, state, row.refused, report.since)
    return [newest[name] for name in sorted(newest)]


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
