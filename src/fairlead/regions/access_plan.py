"""The addresses, labels and condition that a Service shows of its regions, and the order of their writes.

    status.loadBalancer.ingress       the union of the regions' access points, sorted, plus what others put there
    annotation access-points          which region has which address: also the record of our own entries
    aggregated.<key>                  what layer 2 asks to have shown; a label only where that is a legal label
    condition fairlead.dev/Regions    why not all is well; absent while nothing was ever wrong

A region is shown while its PoolService is wanted and not being deleted, and has ready backends (or no other has any).
The record is written before an address is shown, and removed after it is no longer shown, so no crash leaves an entry
without an owner. In: ``AccessView``. Out: ``AccessPlan``. Pure. Never: touches an entry, label or annotation of others.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal

import msgspec

from fairlead.api.json_text import read_json
from fairlead.api.kubernetes import Ingress
from fairlead.api.meta import JSONObject, WireCondition
from fairlead.api.names import AGGREGATED_PREFIX, ANNOTATION_ACCESS_POINTS, ANNOTATION_BACKENDS
from fairlead.api.poolservice import PoolService
from fairlead.api.times import parsed_time, wire_time
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.publish.objects import object_from_ingress, same_ingress, whole
from fairlead.regions.backends import decode_backends
from fairlead.regions.plan import SelectedPools, split_by_class
from fairlead.regions.source import RegionKey, SourceService

#: A region whose last ready backend has gone is still shown for this long: pods that roll come back.
EMPTY_GRACE_S = 10.0


class AccessPlan(msgspec.Struct, frozen=True):
    """Writes in order; ``warning`` is for the Service once they are done; reconcile after ``again_s`` seconds."""

    steps: tuple[AccessStep, ...] = ()
    warning: tuple[str, str] | None = None
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
    foreign = [each for each in present if each.address not in ours]
    ingress = sorted([*wanted, *foreign], key=_order)
    condition = describe_regions(view) if active else None
    conditions, warning = next_conditions(service, condition, now)
    status: JSONObject = {}
    if not same_ingress(ingress, present) and service.spec.type == "LoadBalancer":
        status["loadBalancer"] = {"ingress": [object_from_ingress(each) for each in ingress] or None}
    if conditions is not None:
        status["conditions"] = [whole(each) for each in conditions]
    labels, annotations = aggregated(pool_service for _, pool_service in shown)
    if service.deleting:
        # It is on its way out with all that is written on it; only its addresses still mean something.
        return AccessPlan((AccessStep("status", {"status": status}),) if status else ())
    still = {each.address for each in present if each.address in ours}
    meanwhile = _kept(recorded, still, points)
    steps = [
        annotations_step(service, labels, annotations, meanwhile),
        AccessStep("status", {"status": status}) if status else None,
        annotations_step(service, labels, annotations, points, before=meanwhile),
    ]
    if not any(set(points[pool]) - set(recorded.get(pool, ())) for pool in points):
        # Nothing new to record: one write of metadata is enough, after the status.
        steps = [steps[1], annotations_step(service, labels, annotations, points)]
    return AccessPlan(tuple(step for step in steps if step is not None), warning, again_s)


def _shown(view: AccessView, now: datetime) -> tuple[list[tuple[str, PoolService]], float | None]:
    """Choose the PoolServices whose access points are shown, by pool; and in how many seconds to reconcile again."""
    by_pool: dict[str, list[PoolService]] = {}
    for region, pool_service in view.regions:
        if region.pool in view.wanted.pools:
            by_pool.setdefault(region.pool, []).append(pool_service)
    candidates: list[tuple[str, PoolService]] = []
    for pool in sorted(by_pool):
        primaries, retiring = split_by_class(by_pool[pool], view.service.spec.load_balancer_class or "")
        taken_over = bool(primaries and primaries[0].status.load_balancer.ingress)
        candidates += [(pool, each) for each in (*primaries[:1], *(() if taken_over else retiring))]
    seen = {each.address for each in view.service.status.load_balancer.ingress or ()}
    empty = [(pool, each) for pool, each in candidates if not _has_backends(each)]
    if len(empty) == len([each for each in candidates if each[1].status.load_balancer.ingress]):
        return candidates, None  # none has any: taking away the last address would help no client
    again_s: float | None = None
    for pool, pool_service in empty:
        since_s = _age_s(pool_service, now)
        known = any(each.address in seen for each in pool_service.status.load_balancer.ingress or ())
        if known and since_s < EMPTY_GRACE_S:
            left_s = EMPTY_GRACE_S - since_s
            again_s = left_s if again_s is None else min(again_s, left_s)
        else:
            candidates.remove((pool, pool_service))
    return candidates, again_s


def _has_backends(pool_service: PoolService) -> bool:
    """Return whether a region can answer; what cannot be read counts as able, since nothing says otherwise."""
    if not pool_service.status.load_balancer.ingress:
        return True
    backends = decode_backends(pool_service.annotation(ANNOTATION_BACKENDS))
    return backends is None or bool(backends.truncated) or backends.ready > 0


def _age_s(pool_service: PoolService, now: datetime) -> float:
    renewed = parsed_time(pool_service.spec.renew_time)
    return EMPTY_GRACE_S if renewed is None else max(0.0, (now - renewed).total_seconds())


def _union(shown: Iterable[tuple[str, PoolService]]) -> tuple[list[Ingress], dict[str, tuple[str, ...]]]:
    entries: dict[str, Ingress] = {}
    points: dict[str, set[str]] = {}
    for pool, pool_service in shown:
        for ingress in pool_service.status.load_balancer.ingress or ():
            entries.setdefault(ingress.address, ingress)
            points.setdefault(pool, set()).add(ingress.address)
    return list(entries.values()), {pool: tuple(sorted(points[pool])) for pool in sorted(points)}


def _order(ingress: Ingress) -> tuple[int, int, str]:
    """Order IP addresses by number, IPv4 first, then host names by name."""
    try:
        address = ipaddress.ip_address(ingress.ip)
    except ValueError:
        return (9, 0, ingress.address)
    return (address.version, int(address), "")


def _kept(recorded: Points, still: set[str], points: Points) -> dict[str, tuple[str, ...]]:
    """Return the record for the time between two writes: what is shown still, and what will be."""
    kept: dict[str, set[str]] = {pool: set(addresses) for pool, addresses in points.items()}
    for pool, addresses in recorded.items():
        remaining = {address for address in addresses if address in still}
        if remaining:
            kept.setdefault(pool, set()).update(remaining)
    return {pool: tuple(sorted(kept[pool])) for pool in sorted(kept)}


#: Pool name to its addresses, sorted.
Points = Mapping[str, tuple[str, ...]]

_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_ENCODER = msgspec.json.Encoder(order="deterministic")


class AccessStep(msgspec.Struct, frozen=True):
    """One merge patch of the Service or of its status."""

    part: Literal["metadata", "status"]
    patch: JSONObject


def recorded_points(service: SourceService) -> dict[str, tuple[str, ...]]:
    """Return by pool the addresses that were written, or about to be written, to the Service."""
    text = service.annotation(ANNOTATION_ACCESS_POINTS)
    return (read_json(text, dict[str, tuple[str, ...]]) or {}) if text else {}


def aggregated(shown: Iterable[PoolService]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the aggregated labels and annotations of regions: values sorted, unique, joined by commas.

    A label whose joined value is not a legal label value becomes an annotation. Keys that are none are left out.
    """
    for_labels: dict[str, set[str]] = {}
    for_annotations: dict[str, set[str]] = {}
    for pool_service in shown:
        for source, target in (
            (pool_service.status.aggregate_to_labels, for_labels),
            (pool_service.status.aggregate_to_annotations, for_annotations),
        ):
            for key, value in source.items():
                if _is_key(AGGREGATED_PREFIX + key):
                    target.setdefault(AGGREGATED_PREFIX + key, set()).add(value)
    labels: dict[str, str] = {}
    for key, values in for_labels.items():
        joined = ",".join(sorted(values))
        if _LABEL_VALUE.fullmatch(joined):
            labels[key] = joined
        else:
            for_annotations.setdefault(key, set()).update(values)
    return labels, {key: ",".join(sorted(values)) for key, values in for_annotations.items()}


def _is_key(key: str) -> bool:
    prefix, _, name = key.rpartition("/")
    return bool(_KEY_NAME.fullmatch(name)) and len(prefix) <= 253


def annotations_step(
    service: SourceService,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    points: Points,
    *,
    before: Points | None = None,
) -> AccessStep | None:
    """Plan one write of labels and annotations; ``before`` is the record that an earlier step leaves behind."""
    meta = service.metadata
    desired = dict(annotations)
    if points:
        desired[ANNOTATION_ACCESS_POINTS] = _ENCODER.encode(points).decode()
    if before is not None:
        if before == points:
            return None
        return AccessStep(
            "metadata", {"metadata": {"annotations": {ANNOTATION_ACCESS_POINTS: desired.get(ANNOTATION_ACCESS_POINTS)}}}
        )
    metadata: JSONObject = {}
    if changes := _changes(labels, meta.labels or {}):
        metadata["labels"] = changes
    if changes := _changes(desired, meta.annotations or {}):
        metadata["annotations"] = changes
    return AccessStep("metadata", {"metadata": metadata}) if metadata else None


def _changes(wanted: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str | None]:
    """Return what to set, and with None what to take away; keys that are not ours are not in it."""
    changes: dict[str, str | None] = {key: value for key, value in wanted.items() if present.get(key) != value}
    for key in present:
        if (key.startswith(AGGREGATED_PREFIX) or key == ANNOTATION_ACCESS_POINTS) and key not in wanted:
            changes[key] = None
    return changes


CONDITION = "fairlead.dev/Regions"
FAILING = "RegionsFailing"
WELL = "AllRegions"


# --- the condition ---------------------------------------------------------------------------------------------------


class AccessView(msgspec.Struct, frozen=True):
    """All that the decision depends on. ``regions`` are the PoolServices of the Service that are ours.

    ``conflicts`` are wanted pools for which a PoolService that is not ours has the name, with that name.
    """

    service: SourceService
    wanted: SelectedPools
    regions: tuple[tuple[RegionKey, PoolService], ...]
    conflicts: Mapping[str, str] = {}


def describe_regions(view: AccessView) -> tuple[bool, str, str]:
    """Return (whether all regions are well, reason, message) for the condition."""
    if view.wanted.problem:
        return (False, view.wanted.problem, view.wanted.sentence)
    failing = [
        f"{pool}: PoolService {name} is not managed by Fairlead" for pool, name in sorted(view.conflicts.items())
    ]
    with_access = 0
    for region, pool_service in sorted(view.regions, key=lambda each: each[0]):
        with_access += bool(pool_service.status.load_balancer.ingress) and not pool_service.deleting
        problem = _problem_of(pool_service)
        if problem and not pool_service.deleting and region.pool in view.wanted.pools:
            failing.append(f"{region.pool}: {problem}")
    if not failing:
        return (True, WELL, "")
    message = f"{with_access} of {len(view.wanted.pools)} regions have an access point; {'; '.join(failing)}"
    return (False, FAILING, message[:1024])


def _problem_of(pool_service: PoolService) -> str:
    """Return the problem that layer 2 reports of a region; empty while it is only pending."""
    for condition in pool_service.status.conditions or ():
        bad = condition.type in {ConditionType.ACCEPTED, ConditionType.PROGRAMMED} and condition.status == "False"
        if bad and condition.reason != ConditionReason.PENDING:
            return f"{condition.reason}: {condition.message}" if condition.message else condition.reason
    return ""


def next_conditions(
    service: SourceService, wanted: tuple[bool, str, str] | None, now: datetime
) -> tuple[list[WireCondition] | None, tuple[str, str] | None]:
    """Return the conditions to write (None: unchanged), and the message of the Warning to emit."""
    present = service.status.conditions or []
    others = [each for each in present if each.type != CONDITION]
    old = next((each for each in present if each.type == CONDITION), None)
    if wanted is None:
        return (others if old is not None else None), None
    well, reason, message = wanted
    if old is None and well:
        return None, None
    status = "True" if well else "False"
    if old is not None and (old.status, old.reason, old.message) == (status, reason, message):
        return None, None
    unchanged = old is not None and old.status == status
    since = old.last_transition_time if unchanged and old is not None else wire_time(now)
    new = WireCondition(type=CONDITION, status=status, reason=reason, message=message, last_transition_time=since)
    known = unchanged and old is not None and old.reason == reason
    return [*others, new], (None if well or known else (reason, message))
