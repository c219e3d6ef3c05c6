"""How is everything, as the hub's API tells it?

In: a connection to the hub. Out: ``Status``: hub, members, load balancers, regions, proxies, and each problem in
a sentence.
Ages are counted to now from what was written last, never taken from a boolean that somebody wrote once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from fairlead.api.kubernetes import LEASES, Lease
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.meta import WireCondition
from fairlead.api.names import (
    AGENT_LEASE,
    ANNOTATION_ORIGIN,
    DEFAULT_CLASS,
    HUB_LEASE,
    LABEL_POOL_SERVICE_SERVICE,
    SYSTEM_NAMESPACE,
)
from fairlead.api.poolservice import POOL_SERVICES, PoolService
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.tenant import TENANTS, Tenant
from fairlead.errors import NotFound
from fairlead.kube.cluster import Cluster
from fairlead.standalone.proxy_report import ReplicaReport, read_reports, report_key

#: The same ages as the hub's own (``hub/tenants/member_health.py``).
_STALE_S, _LOST_S = 40.0, 300.0


class HubRow(msgspec.Struct, frozen=True, rename="camel"):
    """The hub that leads: who, when it was last heard, and whether that is recent enough."""

    holder: str = ""
    age_s: float | None = None
    leading: bool = False


class MemberRow(msgspec.Struct, frozen=True, rename="camel"):
    """One member, with the age in seconds of its agent's last sign of life."""

    name: str
    region: str
    namespace: str
    state: str
    last_sync_age_s: float | None
    load_balancers: int


class LoadBalancerRow(msgspec.Struct, frozen=True, rename="camel"):
    """One load balancer; ``origin`` is the Service as member/namespace/name."""

    namespace: str
    name: str
    origin: str
    class_name: str
    address: str
    programmed: bool
    reason: str
    message: str
    targets: str


class RegionRow(msgspec.Struct, frozen=True, rename="camel"):
    """One region's share of a Service: a PoolService, with the access point that its layer 2 gave it."""

    namespace: str
    service: str
    region: str
    class_name: str
    address: str
    programmed: bool
    reason: str
    message: str
    targets: str


class ProxyStatusRow(msgspec.Struct, frozen=True, rename="camel"):
    """One proxy as the hub reported it last; UNKNOWN while no hub is heard."""

    name: str
    group: str
    state: str
    refused: int
    since: str


class Status(msgspec.Struct, frozen=True):
    """All of it; ``problems`` is empty when all is well."""

    healthy: bool
    hub: HubRow
    members: list[MemberRow]
    load_balancers: list[LoadBalancerRow] = msgspec.field(name="loadBalancers")
    proxies: list[ProxyStatusRow]
    regions: list[RegionRow]
    problems: list[str]


async def gather_status(cluster: Cluster, *, now: datetime | None = None) -> Status:
    """Read everything once."""
    (tcp, shared, pool_services), (tenants, leases, hub_lease, reports) = await asyncio.gather(
        asyncio.gather(cluster.list(TCP_LOAD_BALANCERS), cluster.list(LOAD_BALANCERS), _pool_services(cluster)),
        asyncio.gather(
            cluster.list(TENANTS),
            cluster.list(LEASES, field_selector=f"metadata.name={AGENT_LEASE}"),
            _hub_lease(cluster),
            read_reports(cluster),
        ),
    )
    return build_status(
        tenants, [*tcp, *shared], {one.metadata.namespace: one for one in leases}, hub_lease, reports,
        pool_services=pool_services, now=now or datetime.now(UTC),
    )  # fmt: skip


def build_status(
    tenants: list[Tenant],
    load_balancers: Sequence[TCPLoadBalancer | LoadBalancer],
    leases: Mapping[str, Lease],
    hub_lease: Lease | None,
    reports: Mapping[str, ReplicaReport],
    *,
    now: datetime,
    pool_services: Sequence[PoolService] = (),
) -> Status:
    """Compose the picture; rows are ordered by name."""
    hub = _hub(hub_lease, now)
    rows = sorted((_load_balancer(one) for one in load_balancers), key=lambda row: (row.namespace, row.name))
    members = sorted((_member(one, leases, rows, now) for one in tenants), key=lambda row: row.name)
    proxies = _proxies(reports, hub)
    regions = sorted((_region(one) for one in pool_services), key=lambda row: (row.namespace, row.service, row.region))
    problems = [*_hub_problems(hub), *_member_problems(members), *_load_balancer_problems(rows)]
    problems += [
        f"region {row.region} of {row.namespace}/{row.service}: {row.message or row.reason}"
        for row in regions
        if not row.programmed
    ]
    problems += [f"proxy {row.name} ({row.group}) is {row.state}" for row in proxies if row.state != "SYNCED"]
    return Status(
        healthy=not problems,
        hub=hub,
        members=members,
        load_balancers=rows,
        proxies=proxies,
        regions=regions,
        problems=problems,
    )


async def read_hub(cluster: Cluster, *, now: datetime | None = None) -> HubRow:
    """Read which hub leads."""
    return _hub(await _hub_lease(cluster), now or datetime.now(UTC))


async def _hub_lease(cluster: Cluster) -> Lease | None:
    try:
        found: Lease = await cluster.get(LEASES, SYSTEM_NAMESPACE, HUB_LEASE)
    except NotFound:
        return None
    return found


def _hub(lease: Lease | None, now: datetime) -> HubRow:
    if lease is None or not lease.spec.holder_identity:
        return HubRow()
    age_s = _age_s(lease.spec.renew_time, now)
    allowed_s = lease.spec.lease_duration_seconds or 15
    return HubRow(lease.spec.holder_identity, age_s, age_s is not None and age_s <= allowed_s)


def _member(tenant: Tenant, leases: Mapping[str, Lease], rows: list[LoadBalancerRow], now: datetime) -> MemberRow:
    lease = leases.get(tenant.namespace)
    age_s = _age_s(lease.spec.renew_time, now) if lease is not None else None
    if age_s is None:
        state = "Pending"
    elif age_s < _STALE_S:
        state = "Engaged"
    else:
        state = "Stale" if age_s < _LOST_S else "Lost"
    count = sum(1 for row in rows if row.namespace == tenant.namespace)
    return MemberRow(tenant.metadata.name, tenant.spec.region, tenant.namespace, state, age_s, count)


def _load_balancer(one: TCPLoadBalancer | LoadBalancer) -> LoadBalancerRow:
    conditions = {condition.type: condition for condition in one.status.conditions or ()}
    programmed, accepted = conditions.get("Programmed"), conditions.get("Accepted")
    worst = accepted if accepted is not None and accepted.status == "False" else programmed
    raised = (conditions.get(word) for word in ("Guarded", "Paused"))
    held = next((each for each in raised if each is not None and each.status == "True"), None)
    current = one.status.observed_generation >= one.metadata.generation
    return LoadBalancerRow(
        namespace=one.metadata.namespace,
        name=one.metadata.name,
        origin=_origin(one),
        class_name=one.spec.class_name or DEFAULT_CLASS,
        address=one.status.address,
        programmed=current and worst is not None and worst.status == "True",
        reason=_reason(one, worst, held) if current else "Pending",
        message=worst.message if worst is not None and worst.status != "True" else (held.message if held else ""),
        targets=one.status.backends if isinstance(one, LoadBalancer) else one.status.targets,
    )


def _origin(one: TCPLoadBalancer | LoadBalancer) -> str:
    if isinstance(one, LoadBalancer):
        return ""
    origin = one.spec.origin
    return one.annotation(ANNOTATION_ORIGIN) or f"{origin.namespace}/{origin.name}".strip("/")


async def _pool_services(cluster: Cluster) -> list[PoolService]:
    try:
        found: list[PoolService] = await cluster.list(POOL_SERVICES)
    except NotFound:
        # A hub without regions may have been set up without this kind.
        return []
    return found


def _region(one: PoolService) -> RegionRow:
    conditions = {condition.type: condition for condition in one.status.conditions or ()}
    programmed, accepted = conditions.get("Programmed"), conditions.get("Accepted")
    worst = accepted if accepted is not None and accepted.status == "False" else programmed
    bad = worst is not None and worst.status != "True"
    return RegionRow(
        namespace=one.metadata.namespace,
        service=one.label(LABEL_POOL_SERVICE_SERVICE) or one.metadata.name,
        region=one.spec.nodepool_name,
        class_name=one.spec.load_balancer_class,
        address=one.status.address,
        # Somebody else's layer 2 may know no conditions: then an address is its word.
        programmed=not bad and (worst is not None or bool(one.status.address)),
        reason=worst.reason if worst is not None else "" if one.status.address else "Pending",
        message=worst.message if worst is not None and bad else "",
        targets=one.status.targets,
    )


def _reason(one: TCPLoadBalancer | LoadBalancer, worst: WireCondition | None, held: WireCondition | None) -> str:
    """Return the one word that says most: what is wrong, or what is being held although all works."""
    if one.deleting:
        return "Deleting"
    if worst is None:
        return "Pending"
    return held.reason if held is not None and worst.status == "True" else worst.reason


def _proxies(reports: Mapping[str, ReplicaReport], hub: HubRow) -> list[ProxyStatusRow]:
    """Show each proxy once: a hub that is gone has left its last word, and so has one that the proxy turned away from.

    The hub that leads is believed first, then whoever spoke last.
    """
    best: dict[tuple[str, str], tuple[bool, str]] = {}
    shown: dict[tuple[str, str], ProxyStatusRow] = {}
    for identity, report in reports.items():
        rank = (identity == report_key(hub.holder), report.since)
        for row in report.proxies:
            name = (row.group, row.node)
            if name not in best or rank > best[name]:
                state = row.state if hub.leading else "UNKNOWN"
                best[name] = rank
                shown[name] = ProxyStatusRow(row.node, row.group, state, row.refused, report.since)
    return [shown[name] for name in sorted(shown)]


def _hub_problems(hub: HubRow) -> list[str]:
    if hub.leading:
        return []
    if not hub.holder:
        return ["no hub leads; start one with: fairlead hub"]
    return [f"the hub {hub.holder} was last heard {age_text(hub.age_s)} ago; is it running?"]


def _member_problems(members: list[MemberRow]) -> list[str]:
    problems: list[str] = []
    for row in members:
        if row.state == "Pending":
            problems.append(f"member {row.name}: its agent was never heard; start it with: fairlead agent")
        elif row.state != "Engaged":
            problems.append(f"member {row.name}: its agent was last heard {age_text(row.last_sync_age_s)} ago")
    return problems


def _load_balancer_problems(rows: list[LoadBalancerRow]) -> list[str]:
    return [
        f"load balancer {row.origin or f'{row.namespace}/{row.name}'}: {_once(row)}"
        for row in rows
        if not row.programmed
    ]


def _once(row: LoadBalancerRow) -> str:
    """Return what is wrong, without the name that stands before it already."""
    return row.message.removeprefix(f"LoadBalancer/{row.namespace}/{row.name}: ") or row.reason


def _age_s(time: str | None, now: datetime) -> float | None:
    if not time:
        return None
    try:
        # Two machines' clocks: what seems to come from the future is from now.
        return round(max(0.0, (now - datetime.fromisoformat(time)).total_seconds()), 1)
    except ValueError:
        return None


def age_text(age_s: float | None) -> str:
    """Write an age as kubectl does: 7s, 3m, 5h, 2d."""
    if age_s is None:
        return "never"
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "m"), (172_800, 3600, "h")):
        if age_s < limit:
            return f"{int(age_s // size)}{unit}"
    return f"{int(age_s // 86_400)}d"
