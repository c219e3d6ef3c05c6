"""Build the rows of ``fairlead status`` from the objects of the hub's API.

In: objects, leases, the hub's reports about its proxies, and the time. Out: ``FleetStatus``; rows are ordered by name.
Ages are counted from what was written last to ``now``, never taken from a boolean that was written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from fairlead.api.kubernetes import Lease
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.api.meta import WireCondition
from fairlead.api.names import ANNOTATION_ORIGIN, DEFAULT_CLASS, LABEL_POOL_SERVICE_SERVICE
from fairlead.api.poolservice import PoolService
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.api.tenant import Tenant
from fairlead.cli.formatting import age_text
from fairlead.cli.status_rows import FleetStatus, HubRow, LoadBalancerRow, MemberRow, ProxyStatusRow, RegionRow
from fairlead.standalone.proxy_report import ReplicaReport, report_key

#: The same ages as the hub's own (``hub/tenants/member_health.py``).
_STALE_S, _LOST_S = 40.0, 300.0


def build_status(
    tenants: list[Tenant],
    load_balancers: Sequence[TCPLoadBalancer | LoadBalancer],
    leases: Mapping[str, Lease],
    hub_lease: Lease | None,
    reports: Mapping[str, ReplicaReport],
    *,
    now: datetime,
    pool_services: Sequence[PoolService] = (),
) -> FleetStatus:
    """Return all rows and problems; ``leases`` are the agents', by namespace, ``reports`` the hubs', by identity."""
    hub = hub_row(hub_lease, now)
    rows = sorted(map(_load_balancer, load_balancers), key=lambda row: (row.namespace, row.name))
    members = sorted((_member(tenant, leases, rows, now) for tenant in tenants), key=lambda row: row.name)
    proxies = _proxies(reports, hub)
    regions = sorted(map(_region, pool_services), key=lambda row: (row.namespace, row.service, row.region))
    problems = [
        *_hub_problems(hub),
        *_member_problems(members),
        *(f"load balancer {row.origin or f'{row.namespace}/{row.name}'}: {_problem(row)}"
          for row in rows if not row.programmed),
        *(f"region {row.region} of {row.namespace}/{row.service}: {row.message or row.reason}"
          for row in regions if not row.programmed),
        *(f"proxy {row.name} ({row.group}) is {row.state}" for row in proxies if row.state != "SYNCED"),
    ]  # fmt: skip
    return FleetStatus(
        healthy=not problems,
        hub=hub,
        members=members,
        load_balancers=rows,
        proxies=proxies,
        regions=regions,
        problems=problems,
    )


def hub_row(lease: Lease | None, now: datetime) -> HubRow:
    """Return the holder of the hub's lease; an empty row when there is none."""
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


def _load_balancer(lb: TCPLoadBalancer | LoadBalancer) -> LoadBalancerRow:
    worst = _worst(lb.status.conditions)
    raised = (condition for condition in lb.status.conditions or () if condition.type in ("Guarded", "Paused"))
    held = next((condition for condition in sorted(raised, key=_type) if condition.status == "True"), None)
    current = lb.status.observed_generation >= lb.metadata.generation
    return LoadBalancerRow(
        namespace=lb.metadata.namespace,
        name=lb.metadata.name,
        origin=_origin(lb),
        class_name=lb.spec.class_name or DEFAULT_CLASS,
        address=lb.status.address,
        programmed=current and worst is not None and worst.status == "True",
        reason=_reason(lb, worst, held) if current else "Pending",
        message=worst.message if worst is not None and worst.status != "True" else (held.message if held else ""),
        targets=lb.status.backends if isinstance(lb, LoadBalancer) else lb.status.targets,
    )


def _region(pool_service: PoolService) -> RegionRow:
    worst = _worst(pool_service.status.conditions)
    bad = worst is not None and worst.status != "True"
    address = pool_service.status.address
    return RegionRow(
        namespace=pool_service.metadata.namespace,
        service=pool_service.label(LABEL_POOL_SERVICE_SERVICE) or pool_service.metadata.name,
        region=pool_service.spec.nodepool_name,
        class_name=pool_service.spec.load_balancer_class,
        address=address,
        # A layer 2 that is not ours may write no conditions: then an address means that it is programmed.
        programmed=not bad and (worst is not None or bool(address)),
        reason=worst.reason if worst is not None else "" if address else "Pending",
        message=worst.message if worst is not None and bad else "",
        targets=pool_service.status.targets,
    )


def _worst(conditions: Sequence[WireCondition] | None) -> WireCondition | None:
    """Return Accepted when it is False, else Programmed."""
    by_type = {condition.type: condition for condition in conditions or ()}
    accepted = by_type.get("Accepted")
    return accepted if accepted is not None and accepted.status == "False" else by_type.get("Programmed")


def _type(condition: WireCondition) -> str:
    return condition.type


def _origin(lb: TCPLoadBalancer | LoadBalancer) -> str:
    if isinstance(lb, LoadBalancer):
        return ""
    origin = lb.spec.origin
    return lb.annotation(ANNOTATION_ORIGIN) or f"{origin.namespace}/{origin.name}".strip("/")


def _reason(lb: TCPLoadBalancer | LoadBalancer, worst: WireCondition | None, held: WireCondition | None) -> str:
    """Return the reason that says most: what is wrong, or what is held although all works."""
    if lb.deleting:
        return "Deleting"
    if worst is None:
        return "Pending"
    return held.reason if held is not None and worst.status == "True" else worst.reason


def _proxies(reports: Mapping[str, ReplicaReport], hub: HubRow) -> list[ProxyStatusRow]:
    """Return one row for each proxy, from the report of the hub that leads, else from the latest report.

    A hub that has ended, and one that a proxy has disconnected from, leave their last reports behind.
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


def _member_problems(members: list[MemberRow]) -> Iterator[str]:
    for row in members:
        if row.state == "Pending":
            yield f"member {row.name}: its agent was never heard; start it with: fairlead agent"
        elif row.state != "Engaged":
            yield f"member {row.name}: its agent was last heard {age_text(row.last_sync_age_s)} ago"


def _problem(row: LoadBalancerRow) -> str:
    """Return the message without the name that precedes it already."""
    return row.message.removeprefix(f"LoadBalancer/{row.namespace}/{row.name}: ") or row.reason


def _age_s(time: str | None, now: datetime) -> float | None:
    if not time:
        return None
    try:
        # The clocks of two machines: what seems to come from the future is from now.
        return round(max(0.0, (now - datetime.fromisoformat(time)).total_seconds()), 1)
    except ValueError:
        return None
