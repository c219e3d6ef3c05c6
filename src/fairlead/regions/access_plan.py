"""What should a Service show of its regions, and in which order is it written?

    status.loadBalancer.ingress       the union of the regions' access points, sorted, plus what others put there
    annotation access-points          which region has which address: also the record of which entries are ours
    aggregated.<key>                  what layer 2 asks to have shown; a label only where that is a legal label
    condition fairlead.dev/Regions    why not all is well; no news is no condition

A region is shown while its PoolService is wanted, not being deleted, and it has ready backends (or no other has any).
The record is written before an address is shown, and taken back after it is no longer: so no crash leaves an entry
that nobody owns. In: ``AccessView``. Out: ``AccessPlan``. Never: touches an entry, label or annotation of others.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import datetime

import msgspec

from fairlead.api.kubernetes import Ingress
from fairlead.api.meta import JSONObject
from fairlead.api.names import ANNOTATION_BACKENDS
from fairlead.api.poolservice import PoolService
from fairlead.regions.access_condition import AccessView, describe_regions, next_conditions
from fairlead.regions.backends import decode_backends
from fairlead.regions.region_plan import split_by_class
from fairlead.regions.service_annotations import Points, Step, aggregated, marks_step, recorded_points
from fairlead.regions.wire import json_condition, json_ingress

#: A region whose last ready backend has gone is still shown for this long: pods that roll come back.
EMPTY_GRACE_S = 10.0


class AccessPlan(msgspec.Struct, frozen=True):
    """Writes in order; ``news`` is a Warning for the Service once they are done; look again after ``again_s``."""

    steps: tuple[Step, ...] = ()
    news: tuple[str, str] | None = None
    again_s: float | None = None


def plan_access(view: AccessView, *, now: datetime) -> AccessPlan:
    """Plan what a Service shows."""
    service = view.service
    active = service.managed and not service.deleting
    shown, again_s = _shown(view, now) if active else ([], None)
    wanted, points = _union(shown)
    recorded = recorded_points(service)
    ours = {address for addresses in (*recorded.values(), *points.values()) for address in addresses}
    present = list(service.status.load_balancer.ingress or ())
    foreign = [one for one in present if one.address not in ours]
    ingress = sorted([*wanted, *foreign], key=_order)
    condition = describe_regions(view) if active else None
    conditions, news = next_conditions(service, condition, now)
    status: JSONObject = {}
    if not _same(ingress, present) and service.spec.type == "LoadBalancer":
        status["loadBalancer"] = {"ingress": [json_ingress(one) for one in ingress] or None}
    if conditions is not None:
        status["conditions"] = [json_condition(one) for one in conditions]
    labels, annotations = aggregated(one for _, one in shown)
    if service.deleting:
        # It is on its way out with all that is written on it; only its addresses still mean something.
        return AccessPlan((Step("status", {"status": status}),) if status else ())
    still = {one.address for one in present if one.address in ours}
    meanwhile = _kept(recorded, still, points)
    steps = [
        marks_step(service, labels, annotations, meanwhile),
        Step("status", {"status": status}) if status else None,
        marks_step(service, labels, annotations, points, before=meanwhile),
    ]
    if not any(set(points[pool]) - set(recorded.get(pool, ())) for pool in points):
        # Nothing new to record: one write of metadata is enough, after the status.
        steps = [steps[1], marks_step(service, labels, annotations, points)]
    return AccessPlan(tuple(step for step in steps if step is not None), news, again_s)


def _shown(view: AccessView, now: datetime) -> tuple[list[tuple[str, PoolService]], float | None]:
    """Choose the PoolServices whose access points are shown, by pool; and when to look again."""
    by_pool: dict[str, list[PoolService]] = {}
    for region, one in view.regions:
        if region.pool in view.wanted.pools:
            by_pool.setdefault(region.pool, []).append(one)
    candidates: list[tuple[str, PoolService]] = []
    for pool in sorted(by_pool):
        primaries, retiring = split_by_class(by_pool[pool], view.service.spec.load_balancer_class or "")
        taken_over = bool(primaries and primaries[0].status.load_balancer.ingress)
        candidates += [(pool, one) for one in (*primaries[:1], *(() if taken_over else retiring))]
    seen = {one.address for one in view.service.status.load_balancer.ingress or ()}
    empty = [(pool, one) for pool, one in candidates if not _has_backends(one)]
    if len(empty) == len([each for each in candidates if each[1].status.load_balancer.ingress]):
        return candidates, None  # nobody has any: taking away the last address would help nobody
    again_s: float | None = None
    for pool, one in empty:
        since_s = _age_s(one, now)
        known = any(each.address in seen for each in one.status.load_balancer.ingress or ())
        if known and since_s < EMPTY_GRACE_S:
            left_s = EMPTY_GRACE_S - since_s
            again_s = left_s if again_s is None else min(again_s, left_s)
        else:
            candidates.remove((pool, one))
    return candidates, again_s


def _has_backends(one: PoolService) -> bool:
    """Say whether a region can answer; what cannot be read counts as able, since nothing says otherwise."""
    if not one.status.load_balancer.ingress:
        return True
    backends = decode_backends(one.annotation(ANNOTATION_BACKENDS))
    return backends is None or bool(backends.truncated) or backends.ready > 0


def _age_s(one: PoolService, now: datetime) -> float:
    try:
        return max(0.0, (now - datetime.fromisoformat(one.spec.renew_time or "")).total_seconds())
    except ValueError:
        return EMPTY_GRACE_S


def _union(shown: Iterable[tuple[str, PoolService]]) -> tuple[list[Ingress], dict[str, tuple[str, ...]]]:
    entries: dict[str, Ingress] = {}
    points: dict[str, set[str]] = {}
    for pool, one in shown:
        for ingress in one.status.load_balancer.ingress or ():
            entries.setdefault(ingress.address, ingress)
            points.setdefault(pool, set()).add(ingress.address)
    return list(entries.values()), {pool: tuple(sorted(points[pool])) for pool in sorted(points)}


def _same(wanted: list[Ingress], there: list[Ingress]) -> bool:
    """Compare what matters: API servers fill in ipMode VIP, and old ones drop it."""
    return len(wanted) == len(there) and all(
        msgspec.structs.replace(mine, ip_mode=None) == msgspec.structs.replace(theirs, ip_mode=None)
        and theirs.ip_mode in {mine.ip_mode or "VIP", None}
        for mine, theirs in zip(wanted, there, strict=True)
    )


def _order(one: Ingress) -> tuple[int, int, str]:
    """Order IP addresses by number, IPv4 first, then host names by name."""
    try:
        address = ipaddress.ip_address(one.ip)
    except ValueError:
        return (9, 0, one.address)
    return (address.version, int(address), "")


def _kept(recorded: Points, still: set[str], points: Points) -> dict[str, tuple[str, ...]]:
    """Return the record for the time between two writes: what is shown still, and what will be."""
    found: dict[str, set[str]] = {pool: set(addresses) for pool, addresses in points.items()}
    for pool, addresses in recorded.items():
        left = {address for address in addresses if address in still}
        if left:
            found.setdefault(pool, set()).update(left)
    return {pool: tuple(sorted(found[pool])) for pool in sorted(found)}
