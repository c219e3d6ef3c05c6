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
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal

import msgspec

from fairlead.api.kubernetes import Ingress
from fairlead.api.meta import JSONObject, WireCondition
from fairlead.api.names import AGGREGATED_PREFIX, ANNOTATION_ACCESS_POINTS, ANNOTATION_BACKENDS
from fairlead.api.poolservice import PoolService
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.regions.backends import decode_backends
from fairlead.regions.identity import RegionKey
from fairlead.regions.region_plan import split_by_class
from fairlead.regions.service_plan import Wanted
from fairlead.regions.source import SourceService
from fairlead.regions.wire import json_condition, json_ingress

CONDITION = "fairlead.dev/Regions"
FAILING = "RegionsFailing"
WELL = "AllRegions"
#: A region whose last ready backend has gone is still shown for this long: pods that roll come back.
EMPTY_GRACE_S = 10.0
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_ENCODER = msgspec.json.Encoder(order="deterministic")

#: Pool name to its addresses, sorted.
Points = Mapping[str, tuple[str, ...]]


class AccessView(msgspec.Struct, frozen=True):
    """All that the decision depends on. ``regions`` are the PoolServices of the Service that are ours.

    ``conflicts`` are wanted pools in whose place there is somebody else's PoolService, with its name.
    """

    service: SourceService
    wanted: Wanted
    regions: tuple[tuple[RegionKey, PoolService], ...]
    conflicts: Mapping[str, str] = {}


class Step(msgspec.Struct, frozen=True):
    """One merge patch of the Service or of its status."""

    part: Literal["metadata", "status"]
    patch: JSONObject


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
    condition = _condition(view) if active else None
    conditions, news = _conditions(service, condition, now)
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
        _metadata(service, labels, annotations, meanwhile),
        Step("status", {"status": status}) if status else None,
        _metadata(service, labels, annotations, points, before=meanwhile),
    ]
    if not any(set(points[pool]) - set(recorded.get(pool, ())) for pool in points):
        # Nothing new to record: one write of metadata is enough, after the status.
        steps = [steps[1], _metadata(service, labels, annotations, points)]
    return AccessPlan(tuple(step for step in steps if step is not None), news, again_s)


def recorded_points(service: SourceService) -> dict[str, tuple[str, ...]]:
    """Return which addresses we have shown, or were about to show, for which pool."""
    text = service.annotation(ANNOTATION_ACCESS_POINTS)
    try:
        return msgspec.json.decode(text, type=dict[str, tuple[str, ...]]) if text else {}
    except msgspec.DecodeError:
        return {}


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


def aggregated(shown: Iterable[PoolService]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations that regions ask to have shown: sorted, unique, joined by commas.

    A label whose joined value is no legal label value becomes an annotation. Keys that are none are left out.
    """
    for_labels: dict[str, set[str]] = {}
    for_annotations: dict[str, set[str]] = {}
    for one in shown:
        for source, target in (
            (one.status.aggregate_to_labels, for_labels),
            (one.status.aggregate_to_annotations, for_annotations),
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


def _metadata(
    service: SourceService,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    points: Points,
    *,
    before: Points | None = None,
) -> Step | None:
    """Plan one write of labels and annotations; ``before`` is the record that an earlier step leaves behind."""
    meta = service.metadata
    marks = dict(annotations)
    if points:
        marks[ANNOTATION_ACCESS_POINTS] = _ENCODER.encode(points).decode()
    if before is not None:
        if before == points:
            return None
        return Step(
            "metadata", {"metadata": {"annotations": {ANNOTATION_ACCESS_POINTS: marks.get(ANNOTATION_ACCESS_POINTS)}}}
        )
    metadata: JSONObject = {}
    if changes := _changes(labels, meta.labels or {}):
        metadata["labels"] = changes
    if changes := _changes(marks, meta.annotations or {}):
        metadata["annotations"] = changes
    return Step("metadata", {"metadata": metadata}) if metadata else None


def _changes(wanted: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str | None]:
    """Return what to set, and with None what to take away; keys that are not ours are not in it."""
    changes: dict[str, str | None] = {key: value for key, value in wanted.items() if there.get(key) != value}
    for key in there:
        if (key.startswith(AGGREGATED_PREFIX) or key == ANNOTATION_ACCESS_POINTS) and key not in wanted:
            changes[key] = None
    return changes


def _condition(view: AccessView) -> tuple[bool, str, str]:
    """Say how the regions are: (all well, reason, message)."""
    if view.wanted.problem:
        return (False, view.wanted.problem, view.wanted.sentence)
    failing = [f"{pool}: PoolService {name} is somebody else's" for pool, name in sorted(view.conflicts.items())]
    with_access = 0
    for region, one in sorted(view.regions, key=lambda each: each[0]):
        with_access += bool(one.status.load_balancer.ingress) and not one.deleting
        problem = _problem_of(one)
        if problem and not one.deleting and region.pool in view.wanted.pools:
            failing.append(f"{region.pool}: {problem}")
    if not failing:
        return (True, WELL, "")
    message = f"{with_access} of {len(view.wanted.pools)} regions have an access point; {'; '.join(failing)}"
    return (False, FAILING, message[:1024])


def _problem_of(one: PoolService) -> str:
    """Return layer 2's own complaint about a region; what is only on its way is none."""
    for condition in one.status.conditions or ():
        told = condition.type in {ConditionType.ACCEPTED, ConditionType.PROGRAMMED} and condition.status == "False"
        if told and condition.reason != ConditionReason.PENDING:
            return f"{condition.reason}: {condition.message}" if condition.message else condition.reason
    return ""


def _conditions(
    service: SourceService, wanted: tuple[bool, str, str] | None, now: datetime
) -> tuple[list[WireCondition] | None, tuple[str, str] | None]:
    """Return the list to write, None when it is as it should be; and what is news about it."""
    present = service.status.conditions or []
    others = [one for one in present if one.type != CONDITION]
    old = next((one for one in present if one.type == CONDITION), None)
    if wanted is None:
        return (others if old is not None else None), None
    well, reason, message = wanted
    if old is None and well:
        return None, None
    status = "True" if well else "False"
    if old is not None and (old.status, old.reason, old.message) == (status, reason, message):
        return None, None
    same = old is not None and old.status == status
    since = old.last_transition_time if same and old is not None else now.strftime("%Y-%m-%dT%H:%M:%SZ")
    new = WireCondition(type=CONDITION, status=status, reason=reason, message=message, last_transition_time=since)
    told = old is not None and old.status == status and old.reason == reason
    return [*others, new], (None if well or told else (reason, message))
