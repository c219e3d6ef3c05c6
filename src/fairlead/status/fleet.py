"""``fairlead status`` from the objects of the hub's API: rows, verdicts, and one ``Problem`` for each fault.

    Programmed, Serving False                               does not serve
    Programmed False: routes rejected, or being deleted     needs attention
    no backend, or none that is ready                       does not serve, unless Serving is True
    no route attached, where there are routes               idle, not a problem
    Accepted, ResolvedRefs, Ready False                     needs attention
    Conflicted, ClockSkewed, Stale, Paused, Drifted,        need attention while they are True
    Guarded, Protected
    Serving: some backends have no healthy target           needs attention: requests to these fail
    Serving Unknown, NotChecked                             shown, not a problem: health is not checked
    Serving Unknown                                         not known yet, unless another condition is worse
    Serving Unknown, ProviderFailed                         not known yet, even if Programmed is False: the provider
                                                            cannot be asked whether it still serves
    Unknown of other types                                  shown, not a problem

In: what was read (``FleetObjects``), and the time. Out: ``FleetStatus``, as ``-o json`` prints it. Rows are ordered by
name, faults of one object begin with the worst, and each problem is a sentence that names the object, the reason and
the next step. Condition types that are not in the table are not a problem. Neither is a name that no zone holds: its
records may be kept by hand. Ages are counted from the API server's own stamps to ``now``, its time too. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec

from fairlead.api.addresspool import ADDRESS_POOLS, COUNTED, AddressPool
from fairlead.api.backendgroup import BackendGroup
from fairlead.api.globalservice import GLOBAL_SERVICES, GlobalMemberState, GlobalService, global_status
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES, DNSZone, Hostname
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, HTTPLoadBalancer, http_status
from fairlead.api.intent import MachinePlacement
from fairlead.api.json_text import read_json
from fairlead.api.kubernetes import Lease
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES, ManagedCertificate
from fairlead.api.meta import KubeObject, WireCondition, condition_of, is_taken_over, is_true
from fairlead.api.multicluster import CONFLICT, EXPORTED_SERVICES, READY, ExportedService, ImportedService
from fairlead.api.names import (
    ANNOTATION_ORIGIN,
    ANNOTATION_PAUSED,
    ANNOTATION_REFUSED,
    DEFAULT_CLASS,
    LABEL_POOL_SERVICE_SERVICE,
    MACHINE_PROVIDERS,
    replica_key,
)
from fairlead.api.poolservice import PoolService
from fairlead.api.proxymachine import PROXY_MACHINES, ProxyGroup, ProxyMachine
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.tenant import StampedLease, Tenant, TenantStatus, age_s, state_by_age
from fairlead.errors import BadConfiguration
from fairlead.model.condition import ConditionReason
from fairlead.model.in_words import counted
from fairlead.model.keys import family_of
from fairlead.status.formatting import age_text
from fairlead.status.machines import AnnouncedRow, MachineRow, announced_rows, machine_problems, machine_rows
from fairlead.status.object_ref import IN_MEMBERS, SERVICE, ObjectRef
from fairlead.translate.addresses import OWN_POOL, AddressRanges
from fairlead.translate.announcing import Announcements
from fairlead.translate.certificates import ending
from fairlead.translate.egress import NOT_POSSIBLE as EGRESS_NOT_POSSIBLE
from fairlead.translate.member import NODES
from fairlead.translate.view import says_no_ready


class Trouble(StrEnum):
    """Classes of trouble, the worst first; ``status`` ends with the exit code of the worst."""

    NOT_KNOWN = "NotKnown"
    NOT_SERVING = "NotServing"
    #: The provider reports health, and has not reported yet, or has stopped reporting.
    UNCONFIRMED = "NotKnownYet"
    ATTENTION = "NeedsAttention"
    #: No traffic is expected yet: not a problem.
    IDLE = "Idle"
    NONE = "Serving"

    @property
    def rank(self) -> int:
        """Return the place among the classes, 0 for the worst."""
        return _RANK.index(self)


class HubRow(msgspec.Struct, frozen=True, rename="camel"):
    """The hub that leads: its identity, the age of its lease's renewal in seconds, whether the lease is still valid."""

    holder: str = ""
    age_s: float | None = None
    leading: bool = False


class MemberRow(msgspec.Struct, frozen=True, rename="camel"):
    """One member, with the age in seconds of its agent's last heartbeat."""

    name: str
    region: str
    namespace: str
    state: str
    last_sync_age_s: float | None
    load_balancers: int


class LoadBalancerRow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One load balancer; ``origin`` is the Service as member/namespace/name, or the IngressClass as member/name.

    ``title`` is what people call it: its origin, or the object; with the kind before it where another is called so.
    ``serving`` is the status of the condition Serving, empty where nothing looks at the health of its backends.
    ``routes`` counts those attached to an HTTPLoadBalancer; None for other kinds, which have none. ``on`` are the proxy
    machines that announce it, and those that join; empty on the hub's own proxies.
    """

    kind: str
    namespace: str
    name: str
    title: str
    origin: str
    origin_kind: str
    class_name: str
    address: str
    on: str = ""
    programmed: bool
    serving: str
    state: Trouble
    reason: str
    message: str
    targets: str
    routes: int | None = None
    announced: list[AnnouncedRow] = msgspec.field(default_factory=list[AnnouncedRow])
    labels: dict[str, str]


class RegionRow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One region's share of a Service: a PoolService, with the access point that its layer 2 made."""

    namespace: str
    service: str
    region: str
    class_name: str
    address: str
    programmed: bool
    state: Trouble
    reason: str
    message: str
    targets: str
    labels: dict[str, str]


class SharedServiceRow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A Service that members share, as namespace/name; ``cluster_set`` is empty for the export of a member in no set.

    ``exported_by`` are the members whose export is ready, ``imported_by`` those that the hub has sent the import to.
    """

    service: str
    cluster_set: str
    exported_by: list[str]
    imported_by: list[str]
    state: Trouble
    reason: str
    message: str


class PoolRow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The use of one pool of addresses: an AddressPool, or ``--address-pool`` of the hub.

    ``note`` is empty, AlmostFull or Full; a pool may be full on purpose, so neither is a problem by itself.
    """

    name: str
    addresses: str
    size: int
    used: int
    reserved: int = 0
    note: str = ""


class ProxyStatusRow(msgspec.Struct, frozen=True, rename="camel"):
    """One proxy as the hub reported it last; UNKNOWN while no hub reports."""

    name: str
    group: str
    state: str
    refused: int
    since: str


class Problem(msgspec.Struct, frozen=True, rename="camel"):
    """One fault as ``-o json`` prints it; ``member`` is the member that has the object, empty for one at the hub."""

    trouble: Trouble
    kind: str
    namespace: str
    name: str
    reason: str
    sentence: str
    member: str = ""


class ObjectFault(NamedTuple):
    """One fault: its trouble, the object at fault, the reason, what is wrong with the subject, and the next step."""

    trouble: Trouble
    kind: str
    namespace: str
    name: str
    reason: str
    subject: str
    text: str
    step: str = ""
    member: str = ""

    @property
    def sentence(self) -> str:
        """Return subject, fault and next step."""
        return f"{self.subject}: {self.text}" + (f"; {self.step}" if self.step else "")

    @property
    def problem(self) -> Problem:
        """Return the fault as a row."""
        key = (self.kind, self.namespace, self.name)
        return Problem(self.trouble, *key, self.reason, self.sentence, self.member)


class FleetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Hub, members, load balancers, proxies, pools and regions, and each problem; none when everything serves.

    ``state`` is the worst trouble of all; ``problems`` are the sentences of ``troubles``.
    """

    healthy: bool
    state: Trouble
    hub: HubRow
    members: list[MemberRow]
    load_balancers: list[LoadBalancerRow] = msgspec.field(name="loadBalancers")
    proxies: list[ProxyStatusRow]
    machines: list[MachineRow] = msgspec.field(default_factory=list[MachineRow])
    pools: list[PoolRow]
    regions: list[RegionRow]
    shared_services: list[SharedServiceRow] = msgspec.field(
        name="sharedServices", default_factory=list[SharedServiceRow]
    )
    problems: list[str]
    troubles: list[Problem]


class ProxyRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One proxy: its name, the load balancers' group it serves, SYNCED or STALE, and how much it refuses now.

    ``statistics``: where it answers the hub for its statistics, "address:port"; empty for one on the hub's machine.
    """

    node: str
    group: str
    state: str
    refused: int = 0
    statistics: str = ""


#: The kinds of load balancers that the status lists.
AnyLoadBalancer = TCPLoadBalancer | HTTPLoadBalancer | LoadBalancer | GlobalService


class ReplicaReport(msgspec.Struct, frozen=True, gc=False):
    """The proxies of one hub replica, since when (RFC 3339), and its ``--address-pool``."""

    since: str
    proxies: list[ProxyRow]
    address_pool: str = ""


class FleetObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that were read: ``leases`` are the agents', by namespace, ``reports`` the hubs', by identity."""

    tenants: Sequence[Tenant] = ()
    load_balancers: Sequence[AnyLoadBalancer] = ()
    pool_services: Sequence[PoolService] = ()
    exports: Sequence[ExportedService] = ()
    imports: Sequence[ImportedService] = ()
    classes: Sequence[LoadBalancerClass] = ()
    groups: Sequence[BackendGroup] = ()
    pools: Sequence[AddressPool] = ()
    zones: Sequence[DNSZone] = ()
    hostnames: Sequence[Hostname] = ()
    certificates: Sequence[ManagedCertificate] = ()
    machines: Sequence[ProxyMachine] = ()
    #: By the name of the Lease.
    proxy_groups: Sequence[ProxyGroup] = ()
    machine_leases: Mapping[str, StampedLease] = msgspec.field(default_factory=dict[str, StampedLease])
    announcements: Announcements = Announcements()
    leases: Mapping[str, StampedLease] = msgspec.field(default_factory=dict[str, StampedLease])
    hub_lease: StampedLease | None = None
    reports: Mapping[str, ReplicaReport] = msgspec.field(default_factory=dict[str, ReplicaReport])


def build_status(read: FleetObjects, *, now: datetime) -> FleetStatus:
    """Return all rows, and what is not well."""
    hub = hub_row(read.hub_lease, now)
    announced = announced_rows(_on_own_proxies(read), read.machines, read.announcements, read.proxy_groups)
    rows = sorted(
        with_kinds(load_balancer_row(lb, announced) for lb in read.load_balancers),
        key=lambda row: (row.namespace, row.name),
    )
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
    pools = pool_rows(read.pools, leader.address_pool if leader is not None else "", given)
    waiting = any(row.reason == ConditionReason.ADDRESS_POOL_EXHAUSTED for row in rows)
    regions = sorted(map(region_row, read.pool_services), key=lambda row: (row.namespace, row.service, row.region))
    faults = [
        *hub_faults(hub),
        *member_faults(members, read.tenants),
        *refusal_faults(members, read.leases),
        *load_balancer_faults(read.load_balancers, rows),
        *region_faults(regions),
        *export_faults(read.exports, read.tenants),
        *class_faults(read.classes),
        *group_faults(read.groups),
        *pool_faults(read.pools, pools, waiting=waiting),
        *zone_faults(read.zones),
        *name_faults(read.hostnames),
        *certificate_faults(read.certificates, now),
        *proxy_faults(proxies),
        *machine_faults(read.machines),
        *announcement_faults(rows),
    ]
    return FleetStatus(
        healthy=not faults,
        state=worst_of(fault.trouble for fault in faults),
        hub=hub,
        members=members,
        load_balancers=rows,
        proxies=proxies,
        machines=machine_rows(read.machines, read.machine_leases, now),
        pools=pools,
        regions=regions,
        shared_services=list(shared_service_rows(read.exports, read.imports, read.tenants).values()),
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


def _on_own_proxies(read: FleetObjects) -> list[AnyLoadBalancer]:
    """Return the load balancers whose addresses proxy machines may announce."""
    own = {cls.metadata.name for cls in read.classes if cls.spec.provider in MACHINE_PROVIDERS}
    return [lb for lb in read.load_balancers if (lb.class_name or DEFAULT_CLASS) in own]


#: Of a member of a GlobalService; all other states are well.
MEMBER_TROUBLES: Mapping[GlobalMemberState, Trouble] = {
    **dict.fromkeys(("Down", "Dropped", "NoEndpoints", "Missing"), Trouble.NOT_SERVING),
    **dict.fromkeys(("UnreachableFromSomeProxies", "Returning", "Flapping"), Trouble.ATTENTION),
    **dict.fromkeys(("Standby", "Draining", "Drilled"), Trouble.IDLE),
}


def load_balancer_row(lb: AnyLoadBalancer, announced: Mapping[str, AnnouncedRow] | None = None) -> LoadBalancerRow:
    """Return the row of one load balancer; ``announced`` has the rows of addresses."""
    targets = lb.status.backends if isinstance(lb, LoadBalancer) else lb.status.targets
    shares = global_status(lb).shares
    routes = lb.status.routes if isinstance(lb, HTTPLoadBalancer) else None
    faults = faults_of_load_balancer(lb.status.conditions, targets, routes)
    by_type = {condition.type: condition for condition in lb.status.conditions or ()}
    current = lb.status.observed_generation >= lb.metadata.generation and "Programmed" in by_type
    accepted = by_type.get("Accepted")
    refused = accepted is not None and accepted.status == "False"
    serving = by_type.get(SERVING)
    origin = _origin(lb)
    return LoadBalancerRow(
        kind=kind_of(lb),
        namespace=lb.metadata.namespace,
        name=lb.metadata.name,
        title=origin or f"{lb.metadata.namespace}/{lb.metadata.name}",
        origin=origin,
        origin_kind=_origin_kind(lb) if origin else "",
        class_name=lb.spec.class_name or DEFAULT_CLASS,
        address=",".join(lb.status.addresses),
        on=_on(lb.status.placement),
        programmed=current and not refused and by_type["Programmed"].status == "True",
        serving=serving.status if serving is not None else "",
        state=worst_of(fault.trouble for fault in faults) if current or refused else Trouble.NOT_SERVING,
        reason="Deleting" if lb.deleting else _reason(faults) if current or refused else "Pending",
        message=faults[0].message if faults else "",
        targets=f"{targets} ({shares})" if shares else targets,
        routes=routes,
        announced=[row for address, _ in lb.status.allocation.places if (row := (announced or {}).get(address))],
        labels=lb.metadata.labels or {},
    )


def _on(placement: MachinePlacement | None) -> str:
    if placement is None:
        return ""
    joining = f" (joining: {','.join(placement.joining)})" if placement.joining else ""
    return f"{','.join(placement.machines) or '-'}{joining}"


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


def _origin(lb: AnyLoadBalancer) -> str:
    if isinstance(lb, LoadBalancer):
        return ""
    origin = lb.spec.origin
    return lb.annotation(ANNOTATION_ORIGIN) or f"{origin.namespace}/{origin.name}".strip("/")


def _origin_kind(lb: AnyLoadBalancer) -> str:
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


_KINDS = {
    TCPLoadBalancer: TCP_LOAD_BALANCERS.kind,
    HTTPLoadBalancer: HTTP_LOAD_BALANCERS.kind,
    LoadBalancer: LOAD_BALANCERS.kind,
    GlobalService: GLOBAL_SERVICES.kind,
}


def kind_of(lb: AnyLoadBalancer) -> str:
    """Return the kind of a load balancer that was read."""
    return _KINDS[type(lb)]


def hub_faults(hub: HubRow) -> Iterator[ObjectFault]:
    """Yield a fault when no hub leads."""
    if hub.leading:
        return
    text, step = "no hub leads", "start one with: fairlead hub"
    if hub.holder:
        text, step = f"the leader {hub.holder} last reported {age_text(hub.age_s)} ago", "is the process running?"
    yield ObjectFault(Trouble.NOT_KNOWN, "Hub", "", hub.holder, "NoHubLeads", "hub", text, step)


def member_faults(members: Iterable[MemberRow], tenants: Iterable[Tenant]) -> Iterator[ObjectFault]:
    """Yield the members whose agent does not report, and the other faults of members."""
    statuses = {tenant.metadata.name: tenant.status for tenant in tenants}
    for row in members:
        silence = list(silence_faults(row))
        yield from silence
        status = statuses.get(row.name, TenantStatus())
        # Its agent reports again, or for the first time, and the hub has not written that yet.
        behind = row.state == "Engaged" and status.state in ("Pending", "Stale", "Lost")
        for fault in faults_of(status.conditions):
            if not silence and not (behind and fault.type == "Ready"):
                yield _member(row, fault.reason, fault.text)


def silence_faults(row: MemberRow) -> Iterator[ObjectFault]:
    """Yield a fault when the agent of a member has never reported, or has not for a while."""
    if row.state == "Pending":
        yield _member(row, row.state, "the agent has never reported", "start it with: fairlead agent")
    elif row.state != "Engaged":
        text = f"the agent last reported {age_text(row.last_sync_age_s)} ago"
        step = f"see the agent's log; if its key has expired: fairlead tenant rotate {row.name}"
        yield _member(row, row.state, text, step)


def refusal_faults(members: Iterable[MemberRow], leases: Mapping[str, Lease]) -> Iterator[ObjectFault]:
    """Yield the objects that their member's agent rejects, in part or as a whole; Events on them have the same text."""
    for row in members:
        lease = leases.get(row.namespace)
        if lease is None:
            continue
        # A newer agent may write it otherwise; its Events on the Services say the same.
        refused = read_json(lease.annotation(ANNOTATION_REFUSED) or "{}", dict[str, str]) or {}
        for key, why in refused.items():
            *kinds, namespace, name = ["", "", *key.split("/")][-3:]
            kind = kinds[0] or SERVICE
            subject = f"{kind} {row.name}/{namespace}/{name}" if name else f"member {row.name}"
            trouble = Trouble.ATTENTION if kinds[0] else Trouble.NOT_SERVING
            text = why if kinds[0] or not name else f"rejected by the agent: {why}"
            yield ObjectFault(trouble, kind, namespace, name, "Refused", subject, text, member=row.name)


def load_balancer_faults(objects: Iterable[AnyLoadBalancer], rows: Iterable[LoadBalancerRow]) -> Iterator[ObjectFault]:
    """Yield all faults of each load balancer."""
    by_key = {(row.kind, row.namespace, row.name): row for row in rows}
    for lb in sorted(objects, key=lambda lb: lb.key):
        row = by_key[kind_of(lb), *lb.key]
        key = (row.kind, row.namespace, row.name)
        subject = f"load balancer {row.title}"
        parts = http_status(lb).refused
        failing = http_status(lb).failing_routes
        faults = faults_of_load_balancer(lb.status.conditions, row.targets, row.routes)
        if row.reason == "Pending" and not faults:
            faults = [ConditionFault(Trouble.NOT_SERVING, "Programmed", "Pending", "")]
        # A member that is lost or leaves is why its load balancers have no target: its pods are not asked for.
        lost = any(fault.reason == ConditionReason.MEMBER_LOST for fault in faults)
        for fault in faults:
            if fault.trouble is Trouble.IDLE:
                continue
            if parts and (fault.type, fault.reason) == ("Programmed", ConditionReason.ROUTES_REFUSED):
                continue  # each of its routes is named below
            if failing and fault.reason == ConditionReason.SOME_BACKENDS_UNHEALTHY:
                continue  # each of its routes is named below
            text = fault.message.removeprefix(f"LoadBalancer/{row.namespace}/{row.name}: ") or fault.reason
            yield ObjectFault(
                fault.trouble, *key, fault.reason, subject, text, "" if lost else next_step(row, fault.reason)
            )
        for part in parts:
            text = f"{part.title} is not served: {part.reason}"
            yield ObjectFault(Trouble.ATTENTION, *key, "Refused", subject, text)
        for entry in http_status(lb).maintenance:
            step = f"end it earlier with: fairlead maintenance off {ObjectRef(row.kind, row.namespace, row.name).path}"
            yield ObjectFault(Trouble.ATTENTION, *key, "Maintenance", subject, entry.sentence, step)
        for route in failing:
            ref = ObjectRef(route.kind, route.namespace, route.object, row.origin.partition("/")[0])
            step = f"does a pod listen there? {_explain(row)}"
            title = f"{ref.title} on {subject}"
            yield ObjectFault(Trouble.ATTENTION, *key, "NoHealthyTargets", title, route.sentence, step)


def next_step(row: LoadBalancerRow, reason: str) -> str:
    """Return what to check next where the condition cannot know it; empty for other reasons."""
    member, _, service = row.origin.partition("/")
    namespace, _, name = service.partition("/")
    explain = _explain(row)
    if reason == "NoTargets" and row.targets == NODES:
        local = "and with externalTrafficPolicy Local a pod on it"
        return f"is a node of member {member} ready, {local}? kubectl get nodes"
    if reason in ("NoTargets", "NoBackend") and name and row.origin_kind == SERVICE:
        slices = f"kubectl get endpointslices -n {namespace} -l kubernetes.io/service-name={name}"
        return f"does an EndpointSlice of the Service list a ready endpoint in member {member}? {slices}"
    if reason in ("NoTargets", "NoBackend", "NoBackendReady"):
        return f"see which backends are excluded, and why: {explain}"
    if reason == "NoHealthyTargets":
        tries = f"See which: {explain}. To connect to each from the hub's machine: fairlead doctor --connect"
        return f"does a process listen on the port, and can the hub's proxies reach it? {tries}"
    return ""


def _explain(row: LoadBalancerRow) -> str:
    return f"fairlead explain {ObjectRef(row.kind, row.namespace, row.name).path}"


def region_faults(regions: Iterable[RegionRow]) -> Iterator[ObjectFault]:
    """Yield the faults of Services in their regions."""
    for row in regions:
        if row.state not in (Trouble.NONE, Trouble.IDLE):
            subject = f"region {row.region} of {row.namespace}/{row.service}"
            text = row.message or row.reason
            yield ObjectFault(row.state, "PoolService", row.namespace, row.service, row.reason, subject, text)


class SetKey(NamedTuple):
    """A Service of a cluster set; without a set, of ``member`` alone."""

    namespace: str
    name: str
    cluster_set: str
    member: str = ""


def set_key(obj: ExportedService | ImportedService, tenant: Tenant | None) -> SetKey:
    """Return the Service and the set of an export or import; ``tenant`` is the member in whose namespace it is."""
    cluster_set = tenant.spec.cluster_set if tenant is not None else ""
    member = tenant.metadata.name if tenant is not None else obj.metadata.namespace
    return SetKey(obj.spec.namespace, obj.spec.name, cluster_set, "" if cluster_set else member)


def shared_service_rows(
    exports: Iterable[ExportedService], imports: Iterable[ImportedService], tenants: Iterable[Tenant]
) -> dict[SetKey, SharedServiceRow]:
    """Return the row of each Service of each set, ordered; exports of members in no set are rows of their own."""
    by_namespace = {tenant.namespace: tenant for tenant in tenants}
    importers: dict[SetKey, list[str]] = {}
    for obj in imports:
        if (tenant := by_namespace.get(obj.metadata.namespace)) is not None:
            importers.setdefault(set_key(obj, tenant), []).append(tenant.metadata.name)
    shared: dict[SetKey, dict[str, ExportedService]] = {key: {} for key in importers}
    for obj in exports:
        tenant = by_namespace.get(obj.metadata.namespace)
        shared.setdefault(set_key(obj, tenant), {})[_exporter(obj, by_namespace)] = obj
    rows: dict[SetKey, SharedServiceRow] = {}
    for key, by_member in sorted(shared.items()):
        faults = [fault for obj in by_member.values() for fault in _export_faults(obj)]
        ready = [member for member, obj in by_member.items() if is_true(obj.status.conditions, READY)]
        rows[key] = SharedServiceRow(
            service=f"{key.namespace}/{key.name}",
            cluster_set=key.cluster_set,
            exported_by=sorted(ready),
            imported_by=sorted(importers.get(key, ())),
            state=Trouble.ATTENTION if faults else Trouble.NONE,
            reason=faults[0].reason if faults else "Exported" if ready else ConditionReason.PENDING,
            message=faults[0].text if faults else "",
        )
    return rows


def export_faults(exports: Iterable[ExportedService], tenants: Iterable[Tenant]) -> Iterator[ObjectFault]:
    """Yield the exports that no member can import, and those that differ from others."""
    by_namespace = {tenant.namespace: tenant for tenant in tenants}
    for obj in sorted(exports, key=lambda obj: obj.key):
        member = _exporter(obj, by_namespace)
        for fault in _export_faults(obj):
            subject = f"export of Service {obj.spec.namespace}/{obj.spec.name} by member {member}"
            yield ObjectFault(fault.trouble, EXPORTED_SERVICES.kind, *obj.key, fault.reason, subject, fault.text)


def _exporter(obj: ExportedService, by_namespace: Mapping[str, Tenant]) -> str:
    """Return the member that exports a Service; its namespace while its Tenant is unknown."""
    tenant = by_namespace.get(obj.metadata.namespace)
    return tenant.metadata.name if tenant is not None else obj.metadata.namespace


def _export_faults(obj: ExportedService) -> list[ConditionFault]:
    conflict = condition_of(obj.status.conditions, CONFLICT)
    differs = [conflict] if conflict is not None and conflict.status == "True" else []
    return [
        *faults_of(obj.status.conditions),
        *(ConditionFault(Trouble.ATTENTION, CONFLICT, each.reason, each.message) for each in differs),
    ]


def class_faults(classes: Iterable[LoadBalancerClass]) -> Iterator[ObjectFault]:
    """Yield the classes that are rejected, accept no new load balancers, or are paused."""
    for cls in sorted(classes, key=lambda cls: cls.metadata.name):
        name = cls.metadata.name
        faults = [(fault.reason, fault.text, "") for fault in faults_of(cls.status.conditions)]
        if cls.deleting:
            in_use = next((c.message for c in cls.status.conditions or () if c.type == "InUse"), "")
            faults.insert(0, ("Deleting", in_use or "the class was deleted and accepts no new load balancers", ""))
        if cls.annotation(ANNOTATION_PAUSED, "false") != "false":
            faults.append(("PausedByUser", "the class is paused", f"resume it with: fairlead resume class/{name}"))
        for reason, text, step in faults:
            yield ObjectFault(Trouble.ATTENTION, "LoadBalancerClass", "", name, reason, f"class {name}", text, step)


def group_faults(groups: Iterable[BackendGroup]) -> Iterator[ObjectFault]:
    """Yield the groups whose backends are not registered as requested."""
    for group in sorted(groups, key=lambda group: group.key):
        for fault in faults_of(group.status.conditions)[:1]:
            subject = f"group {group.key}"
            yield ObjectFault(Trouble.ATTENTION, "BackendGroup", *group.key, fault.reason, subject, fault.text)


def proxy_faults(proxies: Sequence[ProxyStatusRow]) -> Iterator[ObjectFault]:
    """Yield the proxies that do not have the newest state."""
    for row in proxies:
        if row.state != "SYNCED":
            text = f"{row.state}, {counted(row.refused, 'resource')} rejected"
            subject = f"proxy {row.name} ({row.group})"
            yield ObjectFault(Trouble.ATTENTION, "Proxy", row.group, row.name, row.state, subject, text)


def machine_faults(machines: Iterable[ProxyMachine]) -> Iterator[ObjectFault]:
    """Yield the faults of proxy machines."""
    for machine in sorted(machines, key=lambda machine: machine.metadata.name):
        name = machine.metadata.name
        for reason, sentence in machine_problems(machine):
            yield ObjectFault(Trouble.ATTENTION, PROXY_MACHINES.kind, "", name, reason, f"machine {name}", sentence)


def announcement_faults(rows: Iterable[LoadBalancerRow]) -> Iterator[ObjectFault]:
    """Yield the addresses that no machine announces, two machines answer for, or with which pods cannot leave."""
    for row in rows:
        for address in row.announced:
            key = (row.kind, row.namespace, row.name)
            if address.egress_problem:
                text = f"egress with address {address.address}: {address.egress_problem}"
                yield ObjectFault(Trouble.ATTENTION, *key, EGRESS_NOT_POSSIBLE, f"load balancer {row.title}", text)
            if address.problem:
                reason = ConditionReason.CONTESTED if address.machines else ConditionReason.NOT_ANNOUNCED
                text = f"address {address.address} is not announced: {address.problem}"
                if address.machines:
                    text = f"address {address.address} is {address.problem}"
                yield ObjectFault(Trouble.ATTENTION, *key, reason, f"load balancer {row.title}", text)


def _member(row: MemberRow, reason: str, text: str, step: str = "") -> ObjectFault:
    return ObjectFault(Trouble.ATTENTION, "Tenant", "", row.name, reason, f"member {row.name}", text, step)


def pool_rows(pools: Iterable[AddressPool], own: str, given: Iterable[str]) -> list[PoolRow]:
    """Return the use of ``--address-pool`` (``own``, empty for none) and of each AddressPool.

    ``given`` are the addresses of all load balancers.
    """
    rows = [pool_row(pool) for pool in sorted(pools, key=lambda pool: pool.metadata.name)]
    if not own:
        return rows
    try:
        ranges = AddressRanges.parse(own)
    except BadConfiguration:
        return rows  # written by a hub of a version that has other ranges
    used = Counter(family_of(address) for address in set(given) if address in ranges)
    fullest = max(used[family] / ranges.of(family).size for family in ranges.families)
    size, note = min(ranges.size, COUNTED), _note(fullest)
    return [PoolRow(name=OWN_POOL, addresses=own, size=size, used=used.total(), note=note), *rows]


def pool_row(pool: AddressPool) -> PoolRow:
    """Return the use of one AddressPool, as its hub counted it."""
    status = pool.status
    taken = status.used + status.reserved
    exhausted = bool(status.size) and 0 in (status.free, status.free_ipv4, status.free_ipv6)
    return PoolRow(
        name=pool.metadata.name,
        addresses=", ".join(pool.spec.addresses),
        size=status.size,
        used=status.used,
        reserved=status.reserved,
        note=_note(1.0 if exhausted else taken / status.size if status.size else 0.0),
    )


def _note(part: float) -> str:
    return "Full" if part >= 1 else "AlmostFull" if part >= ALMOST_FULL else ""


#: From this part of a pool on, ``fairlead status`` and the page point at it.
ALMOST_FULL = 0.8


def pool_faults(pools: Iterable[AddressPool], rows: Iterable[PoolRow], *, waiting: bool) -> Iterator[ObjectFault]:
    """Yield invalid pools, and full ones while a load balancer waits for an address.

    A pool may be full on purpose: while nothing waits, that is not a fault.
    """
    yield from _first_faults("pool", ((pool, pool.status.conditions) for pool in pools), ADDRESS_POOLS.kind)
    for row in rows:
        if waiting and row.note == "Full":
            step = "start the hub with a larger range" if row.name == OWN_POOL else "add ranges to spec.addresses"
            text = f"{pool_use(row)}, and a load balancer waits for one"
            kind, reason = ADDRESS_POOLS.kind, ConditionReason.ADDRESS_POOL_EXHAUSTED
            yield ObjectFault(Trouble.ATTENTION, kind, "", row.name, reason, f"pool {row.name}", text, step)


def pool_use(row: PoolRow) -> str:
    """Return how many addresses of a pool are used, in words."""
    reserved = f" and {row.reserved} reserved" if row.reserved else ""
    return f"{row.used} of {row.size} addresses are used{reserved}"


def zone_faults(zones: Iterable[DNSZone]) -> Iterator[ObjectFault]:
    """Yield the zones that cannot be written, or are only written as a dry run."""
    return _first_faults("zone", ((zone, zone.status.conditions) for zone in zones), DNS_ZONES.kind)


def _first_faults(
    noun: str, objects: Iterable[tuple[KubeObject, list[WireCondition] | None]], kind: str
) -> Iterator[ObjectFault]:
    """Yield the first fault of each cluster-scoped object, by name."""
    for obj, conditions in sorted(objects, key=lambda pair: pair[0].metadata.name):
        name = obj.metadata.name
        for fault in faults_of(conditions)[:1]:
            yield ObjectFault(Trouble.ATTENTION, kind, "", name, fault.reason, f"{noun} {name}", fault.text)


def name_faults(hostnames: Iterable[Hostname]) -> Iterator[ObjectFault]:
    """Yield the names that are not published by the zone that holds them."""
    for obj in sorted(hostnames, key=lambda obj: obj.spec.host):
        for fault in faults_of(obj.status.conditions if obj.status.zone else ())[:1]:
            subject = f"name {obj.spec.host} in zone {obj.status.zone}"
            yield ObjectFault(Trouble.ATTENTION, HOSTNAMES.kind, *obj.key, fault.reason, subject, fault.text)


def certificate_faults(certificates: Iterable[ManagedCertificate], now: datetime) -> Iterator[ObjectFault]:
    """Yield certificates that have expired, expire soon though they should have been renewed, or were not issued."""
    for row in ending(certificates, now):
        hosts = ", ".join(row.hosts)
        trouble, reason, text = Trouble.ATTENTION, "NotIssued", f"not issued yet: {row.why}"
        if row.ends is not None and row.ends <= now:
            trouble, reason = Trouble.NOT_SERVING, "Ended"
            text = f"expired at {row.ends:%Y-%m-%d %H:%M} UTC: {row.why}"
        elif row.ends is not None:
            reason, text = "EndsSoon", f"expires at {row.ends:%Y-%m-%d %H:%M} UTC: {row.why}"
        key = (MANAGED_CERTIFICATES.kind, row.namespace, row.name)
        yield ObjectFault(trouble, *key, reason, f"certificate for {hosts}", text)


SERVING, PROGRAMMED, ACCEPTED = "Serving", "Programmed", "Accepted"
#: Types that name a problem while they are False, and what that means for traffic.
_GOOD_WHEN_TRUE = {
    PROGRAMMED: Trouble.NOT_SERVING,
    SERVING: Trouble.NOT_SERVING,
    ACCEPTED: Trouble.ATTENTION,
    "ResolvedRefs": Trouble.ATTENTION,
    "Ready": Trouble.ATTENTION,
}
_BAD_WHEN_TRUE = ("ClockSkewed", "Conflicted", "Drifted", "Guarded", "Paused", "Protected", "Stale")
#: Reasons of Serving that have the same cause as references without a ready endpoint.
_WITHOUT_TARGETS = (ConditionReason.NO_TARGETS, ConditionReason.SOME_BACKENDS_UNHEALTHY)
#: Reasons for which Serving stays Unknown: nothing looks at all, or the other, backends.
_UNCHECKED = (ConditionReason.NOT_CHECKED, ConditionReason.SOME_BACKENDS_UNHEALTHY)
_COUNTS = re.compile(r"(\d+)/(\d+)")
_RANK = list(Trouble)


class ConditionFault(NamedTuple):
    """The fault that one condition of an object reports."""

    trouble: Trouble
    type: str
    reason: str
    message: str

    @property
    def text(self) -> str:
        """Return the message of the condition, its reason without one."""
        return self.message or self.reason


def faults_of(conditions: Iterable[WireCondition] | None) -> list[ConditionFault]:
    """Return the faults that conditions report, the worst first, then in the order of the conditions.

    A fault that two conditions report in the same words is returned once: a rejection is in Accepted and Programmed.
    """
    by_words: dict[tuple[str, str], ConditionFault] = {}
    for fault in sorted(condition_faults(conditions), key=lambda fault: fault.trouble.rank):
        by_words.setdefault((fault.reason, fault.message), fault)
    return list(by_words.values())


def condition_faults(conditions: Iterable[WireCondition] | None) -> list[ConditionFault]:
    """Return the fault of each condition that reports one."""
    return [fault for condition in conditions or () for fault in _fault(condition)]


def faults_of_load_balancer(
    conditions: Sequence[WireCondition] | None, targets: str, routes: int | None = None
) -> list[ConditionFault]:
    """Return the faults of a load balancer; ``targets`` is ready/total, and may have more words after it.

    ``routes`` counts the attached routes, None for kinds without routes.
    """
    faults = faults_of(conditions)
    by_type = {condition.type: condition for condition in conditions or ()}
    if ACCEPTED in (fault.type for fault in faults) and not _is_true(by_type.get(PROGRAMMED)):
        # Rejected, and no earlier version was accepted: nothing can serve.
        faults = [fault._replace(trouble=Trouble.NOT_SERVING) if fault.type == ACCEPTED else fault for fault in faults]
    if routes == 0:
        # No traffic is expected yet, so this is not a fault.
        faults.append(ConditionFault(Trouble.IDLE, PROGRAMMED, "NoRoute", "no Ingress or route is attached yet"))
        return faults
    serving = by_type.get(SERVING)
    if serving is not None and (serving.status, serving.reason) == ("Unknown", ConditionReason.PROVIDER_FAILED):
        faults = [
            fault._replace(trouble=Trouble.UNCONFIRMED) if fault.type == PROGRAMMED else fault for fault in faults
        ]
    without = _without_backend(targets, by_type)
    if any(fault.reason in _WITHOUT_TARGETS for fault in faults):
        # References without an endpoint are the cause of missing targets: reported once.
        faults = [fault for fault in faults if not says_no_ready(fault.reason, fault.message)]
    if any(fault.trouble in (Trouble.NOT_SERVING, Trouble.UNCONFIRMED) for fault in faults):
        return faults
    if without is not None:
        faults.insert(0, without)
    elif serving is not None and serving.status == "Unknown" and serving.reason not in _UNCHECKED:
        faults.insert(0, ConditionFault(Trouble.UNCONFIRMED, SERVING, serving.reason, serving.message))
    return faults


def counted_of(targets: str) -> tuple[int, int] | None:
    """Return how many backends are ready, of how many; None when ``targets`` has no such counts."""
    counts = _COUNTS.match(targets)
    return (int(counts[1]), int(counts[2])) if counts is not None else None


def worst_of(troubles: Iterable[Trouble]) -> Trouble:
    """Return the worst trouble, ``NONE`` without any."""
    return min(troubles, key=_RANK.index, default=Trouble.NONE)


def _fault(condition: WireCondition) -> Iterator[ConditionFault]:
    trouble = _GOOD_WHEN_TRUE.get(condition.type) if condition.status == "False" else None
    if condition.status == "True" and condition.type in _BAD_WHEN_TRUE:
        trouble = Trouble.ATTENTION
    if condition.type == PROGRAMMED and condition.reason == ConditionReason.ROUTES_REFUSED:
        trouble = Trouble.ATTENTION  # all other routes are served, unless Serving says otherwise
    if condition.type == PROGRAMMED and condition.reason == ConditionReason.DELETING:
        trouble = Trouble.ATTENTION  # being deleted: no longer meant to serve
    if condition.reason == ConditionReason.SOME_BACKENDS_UNHEALTHY:
        trouble = Trouble.ATTENTION  # whatever its status: requests to some of its backends fail
    if trouble is not None:
        yield ConditionFault(trouble, condition.type, condition.reason, condition.message)


def _without_backend(targets: str, by_type: dict[str, WireCondition]) -> ConditionFault | None:
    counts = counted_of(targets)
    serving = by_type.get(SERVING)
    if counts is None or counts[0] or not is_taken_over(by_type.get(PROGRAMMED)) or _is_true(serving):
        return None
    guarded = _is_true(by_type.get("Guarded"))
    if guarded or (counts[1] and _is_true(by_type.get("Stale"))):
        # The backends that were ready last are still in use.
        return None
    if not counts[1] and serving is not None and serving.reason == ConditionReason.PENDING:
        return None  # which ones there are is not known
    if not counts[1]:
        return ConditionFault(Trouble.NOT_SERVING, PROGRAMMED, "NoBackend", "no backends yet")
    return ConditionFault(Trouble.NOT_SERVING, PROGRAMMED, "NoBackendReady", f"none of {counts[1]} backends is ready")


def _is_true(condition: WireCondition | None) -> bool:
    return condition is not None and condition.status == "True"
