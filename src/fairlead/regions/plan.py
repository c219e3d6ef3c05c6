"""The plans of regions: the writes for one PoolService, and the status of its Service.

    nothing there under any of its names     create
    there, of this class                     update what differs; renewTime moves only when content does
    there, of the class that was before      kept current until the new one has an access point, then deleted
    there, not ours                          not changed, ManagedConflict emitted
    its pool no longer wanted                leaves the Service's status first, then deleted

    status.loadBalancer.ingress       the union of the regions' access points, sorted, plus what others put there
    annotation access-points          which region has which address: also the record of our own entries
    aggregated.<key>                  what layer 2 asks to have shown; a label only where that is a legal label
    condition fairlead.dev/Regions    why not all is well; absent while nothing was ever wrong

A region is shown while its PoolService is wanted and not being deleted, and has ready backends (or no other has any).
The record is written before an address is shown, and removed after it is no longer shown, so no crash leaves an entry
without an owner. In: ``RegionView`` or ``AccessView``. Out: writes with reasons. Pure: the time comes in as text.
Never: touches what is not ours, or deletes while something that would contradict it cannot be seen (``frozen``).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Literal

import msgspec

from fairlead.api.json_text import read_json
from fairlead.api.kubernetes import SERVICES, EndpointSlice, Ingress
from fairlead.api.meta import JSONObject, OwnerReference, WireCondition
from fairlead.api.names import AGGREGATED_PREFIX, ANNOTATION_ACCESS_POINTS, ANNOTATION_BACKENDS, ANNOTATION_SERVICE
from fairlead.api.poolservice import PoolService
from fairlead.api.selectors import BadSelector, parse_selector
from fairlead.api.times import parsed_time, wire_time
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.publish.objects import object_from_ingress, same_ingress, whole
from fairlead.regions.source import (
    Backends,
    Membership,
    RegionKey,
    RegionPool,
    ServiceKey,
    SourceService,
    class_in_document,
    decode_backends,
    endpoints_in_pool,
    is_ours,
    pool_service_labels,
    pool_service_names,
    pools_of_slice,
    services_named,
)

NODE_POOL_KIND = "NodePool"


class RegionView(msgspec.Struct, frozen=True):
    """The input of one decision.

    ``present`` are the PoolServices of this pair, ours, by any name. ``name_conflicts`` are the objects that have one
    of its names and are not of this pair. ``pool`` is None when it is not wanted, or no longer. ``frozen`` says why
    nothing may be deleted now.
    """

    key: RegionKey
    service: SourceService
    pool: RegionPool | None
    backends: Backends
    present: tuple[PoolService, ...] = ()
    name_conflicts: tuple[PoolService, ...] = ()
    frozen: str = ""


class PoolServiceWrite(msgspec.Struct, frozen=True):
    """One write. ``body`` is the object to create or the merge patch; ``target`` is what is there, for the others.

    ``modified``: which of our fields another client had changed; they are put back.
    """

    action: Literal["create", "update", "delete"]
    reason: str
    name: str
    body: JSONObject = {}
    target: PoolService | None = None
    modified: str = ""


class RegionPlan(msgspec.Struct, frozen=True):
    """Writes in order; ``conflict`` is an object in the way that is not ours; ``waits`` says what must come first."""

    writes: tuple[PoolServiceWrite, ...] = ()
    conflict: PoolService | None = None
    waits: str = ""


def plan_region(view: RegionView, *, now: str) -> RegionPlan:
    """Plan one region of a Service."""
    if view.pool is None:
        return _plan_removals(view, view.present, "the Service no longer selects the pool")
    wanted_class = view.service.spec.load_balancer_class or ""
    primaries, retiring = split_by_class(view.present, wanted_class)
    writes: list[PoolServiceWrite] = []
    primary = primaries[0] if primaries else None
    if primary is None:
        taken = {pool_service.metadata.name for pool_service in (*view.present, *view.name_conflicts)}
        foreign = {
            name_conflict.metadata.name: name_conflict
            for name_conflict in view.name_conflicts
            if not is_ours(name_conflict)
        }
        names = pool_service_names(view.key.service, view.key.pool, wanted_class)
        if names[0] in foreign:
            return RegionPlan(tuple(writes), conflict=foreign[names[0]])
        free = next((name for name in names if name not in taken), "")
        if not free:
            return RegionPlan(waits=f"PoolService {names[0]} is still being deleted")
        if not retiring and any(pool_service.deleting for pool_service in view.present):
            # Its successor takes the same name.
            return RegionPlan(waits=f"PoolService {names[0]} is still being deleted")
        writes.append(
            PoolServiceWrite("create", f"the Service wants {view.pool.name}", free, _new(view, free, wanted_class, now))
        )
    else:
        writes += _update(view, primary, wanted_class, view.service.document, now)
    has_taken_over = primary is not None and bool(primary.status.load_balancer.ingress)
    for old in retiring:
        if not has_taken_over:
            # Make before break: users are on this one, so its backends stay current.
            # It continues to be what it was, also for a provider that reads the document.
            writes += _update(view, old, old.spec.load_balancer_class, old.annotation(ANNOTATION_SERVICE), now)
    done = [*primaries[1:], *(retiring if has_taken_over else ())]
    removals = _plan_removals(view, done, "another PoolService has taken over")
    return RegionPlan((*writes, *removals.writes), waits=removals.waits)


def split_by_class(present: Iterable[PoolService], wanted_class: str) -> tuple[list[PoolService], list[PoolService]]:
    """Separate those of the wanted class from those of a class that the Service had before.

    A class that was edited in the PoolService itself is tampering, and counts as the wanted one: it is put back.
    """
    primaries: list[PoolService] = []
    retiring: list[PoolService] = []
    for pool_service in sorted(present, key=attrgetter("age_order")):
        if pool_service.deleting:
            continue
        written = (
            class_in_document(pool_service.annotation(ANNOTATION_SERVICE)) or pool_service.spec.load_balancer_class
        )
        (primaries if wanted_class in {pool_service.spec.load_balancer_class, written} else retiring).append(
            pool_service
        )
    return primaries, retiring


def _plan_removals(view: RegionView, present: tuple[PoolService, ...] | list[PoolService], why: str) -> RegionPlan:
    writes: list[PoolServiceWrite] = []
    waits = ""
    shown = {entry.address for entry in view.service.status.load_balancer.ingress or ()}
    leaving = [pool_service for pool_service in present if not pool_service.deleting]
    staying = {
        ingress.address
        for pool_service in view.present
        if pool_service not in leaving
        for ingress in pool_service.status.load_balancer.ingress or ()
    }
    for pool_service in leaving:
        own_addresses = {ingress.address for ingress in pool_service.status.load_balancer.ingress or ()} - staying
        staying_ours = view.service.managed and not view.service.deleting
        if view.frozen and staying_ours:
            waits = view.frozen
        elif staying_ours and own_addresses & shown:
            waits = f"{', '.join(sorted(own_addresses & shown))} is still in the status of the Service"
        else:
            writes.append(PoolServiceWrite("delete", why, pool_service.metadata.name, target=pool_service))
    return RegionPlan(tuple(writes), waits=waits)


def _new(view: RegionView, name: str, class_name: str, now: str) -> JSONObject:
    assert view.pool is not None
    return {
        "metadata": {
            "namespace": view.key.namespace,
            "name": name,
            "labels": pool_service_labels(view.key.service, view.key.pool),
            "annotations": {ANNOTATION_SERVICE: view.service.document, ANNOTATION_BACKENDS: view.backends.encode()},
            "ownerReferences": [whole(owner) for owner in owners(view.service, view.pool)],
        },
        "spec": {"nodepoolName": view.pool.name, "renewTime": now, "loadBalancerClass": class_name},
    }


def _update(view: RegionView, present: PoolService, class_name: str, document: str, now: str) -> list[PoolServiceWrite]:
    """Plan the merge patch that restores the desired fields of ``present``; None when it has them."""
    assert view.pool is not None
    metadata: JSONObject = {}
    spec: JSONObject = {}
    repaired: list[str] = []
    changed: list[str] = []
    labels = pool_service_labels(view.key.service, view.key.pool)
    wrong = {key: value for key, value in labels.items() if present.label(key) != value}
    if wrong:
        metadata["labels"] = wrong
        repaired.append("labels")
    references = _merged_owners(present, owners(view.service, view.pool))
    if references is not None:
        metadata["ownerReferences"] = [whole(reference) for reference in references]
        repaired.append("ownerReferences")
    annotations = {ANNOTATION_SERVICE: document, ANNOTATION_BACKENDS: view.backends.encode()}
    stale = {key: value for key, value in annotations.items() if present.annotation(key) != value}
    if stale:
        metadata["annotations"] = stale
        changed += [{ANNOTATION_SERVICE: "Service", ANNOTATION_BACKENDS: "backends"}[key] for key in stale]
    if present.spec.nodepool_name != view.pool.name:
        spec["nodepoolName"] = view.pool.name
        repaired.append("spec.nodepoolName")
    if present.spec.load_balancer_class != class_name:
        spec["loadBalancerClass"] = class_name
        repaired.append("spec.loadBalancerClass")
    if changed or spec or present.spec.renew_time is None:
        spec["renewTime"] = now
    body: JSONObject = ({"metadata": metadata} if metadata else {}) | ({"spec": spec} if spec else {})
    if not body:
        return []
    reason = f"changed: {', '.join(changed)}" if changed else f"put back: {', '.join(repaired)}"
    return [PoolServiceWrite("update", reason, present.metadata.name, body, present, ", ".join(repaired))]


def plan_backends(present: PoolService, backends: Backends, *, now: str) -> tuple[PoolServiceWrite, ...]:
    """Plan to keep the backends current of a PoolService that otherwise stays as it is."""
    text = backends.encode()
    if present.deleting or present.annotation(ANNOTATION_BACKENDS) == text:
        return ()
    body: JSONObject = {"metadata": {"annotations": {ANNOTATION_BACKENDS: text}}, "spec": {"renewTime": now}}
    return (PoolServiceWrite("update", "changed: backends", present.metadata.name, body, present),)


def owners(service: SourceService, pool: RegionPool) -> tuple[OwnerReference, OwnerReference]:
    """Return the owner references of a PoolService: the Service as controller, and the NodePool."""
    meta = service.metadata
    return (
        OwnerReference(SERVICES.api_version, SERVICES.kind, meta.name, meta.uid, True, True),
        OwnerReference(pool.api_version, NODE_POOL_KIND, pool.name, pool.uid, None, True),
    )


def _merged_owners(present: PoolService, ours: tuple[OwnerReference, ...]) -> list[OwnerReference] | None:
    """Return the references as they should be, None when they are; those that another client added stay.

    Only one of all may be the controller, and that is the Service.
    """
    references = present.metadata.owner_references or []
    others = [
        reference
        for reference in references
        if reference.kind not in {SERVICES.kind, NODE_POOL_KIND} and not reference.controller
    ]
    if list(ours) == [reference for reference in references if reference not in others]:
        return None
    return [*ours, *others]


FinalizerChange = Literal["", "add", "remove"]

NO_MATCH = "NoMatchNodePool"
BAD_SELECTOR = "InvalidSelector"


class SelectedPools(msgspec.Struct, frozen=True):
    """The pools that a Service selects, by name. ``problem`` and ``sentence`` describe an error for its author."""

    pools: Mapping[str, RegionPool]
    problem: str = ""
    sentence: str = ""


def wanted_pools(service: SourceService, pools: Iterable[RegionPool], present: Iterable[str]) -> SelectedPools:
    """Match a managed Service; ``present`` are the pools that it has now."""
    by_name = {pool.name: pool for pool in pools if not pool.deleting}
    try:
        selector = parse_selector(service.selector)
    except BadSelector as error:
        kept = {name: by_name[name] for name in present if name in by_name}
        sentence = f"the NodePool selector cannot be read: {error}; the regions stay as they were until it can"
        return SelectedPools(kept, BAD_SELECTOR, sentence)
    matching = {name: pool for name, pool in by_name.items() if selector.matches(pool.labels)}
    if not matching:
        sentence = f"no NodePool matches {service.selector!r}: `kubectl get nodepools --show-labels` shows their labels"
        return SelectedPools({}, NO_MATCH, sentence)
    return SelectedPools(matching)


class ServicePlan(msgspec.Struct, frozen=True):
    """The plan for one Service; ``gone`` says that all of its PoolServices have to go."""

    finalizer: FinalizerChange = ""
    gone: bool = False
    wanted: SelectedPools = SelectedPools({})


def plan_service(
    service: SourceService, pools: Iterable[RegionPool], present: Iterable[str], *, remaining: int
) -> ServicePlan:
    """Plan a Service; ``remaining`` counts its PoolServices that exist, those being deleted included."""
    if service.deleting or not service.managed:
        return ServicePlan("remove" if service.held and not remaining else "", gone=True)
    return ServicePlan("" if service.held else "add", wanted=wanted_pools(service, pools, present))


# --- which changes matter ---------------------------------------------------------------------------------------------


def service_matters(old: SourceService | None, new: SourceService | None) -> bool:
    """Return whether a change of a Service is work for layer 1."""
    if old is None or new is None:
        service = new or old
        return service is not None and service.concerns_us
    if not (old.concerns_us or new.concerns_us):
        return False
    return _about(old) != _about(new) or _shown(old) != _shown(new)


def _about(service: SourceService) -> tuple[object, ...]:
    meta = service.metadata
    return (
        service.managed,
        service.deleting,
        service.selector,
        service.spec.type,
        service.spec.load_balancer_class,
        sorted(meta.finalizers or ()),
        service.document,
        meta.uid,
    )


def _shown(service: SourceService) -> tuple[object, ...]:
    """Return the fields of a Service that layer 1 writes, so that a change by another client is repaired."""
    meta = service.metadata
    own = {
        (kind, key): value
        for kind, values in (("label", meta.labels), ("annotation", meta.annotations))
        for key, value in (values or {}).items()
        if key.startswith(AGGREGATED_PREFIX) or key == ANNOTATION_ACCESS_POINTS
    }
    return (own, service.status)


def pool_service_matters(old: PoolService | None, new: PoolService | None) -> bool:
    """Return whether a change of a PoolService is work for layer 1: only if it is, or was, ours."""
    return any(version is not None and is_ours(version) and bool(services_named(version)) for version in (old, new))


def services_of_pool_service(old: PoolService | None, new: PoolService | None) -> set[ServiceKey]:
    """Return the Services to reconcile: those that it names now, and those that it named before."""
    return services_named(old) | services_named(new)


def selectors_that_flip(old: RegionPool | None, new: RegionPool | None, selectors: Iterable[str]) -> list[str]:
    """Return the selectors that match exactly one of two versions of a pool.

    A pool that is deleted, or being deleted, matches none.
    """
    return [text for text in selectors if selected(text, old) != selected(text, new)]


def selected(text: str, pool: RegionPool | None) -> bool:
    """Return whether a selector matches this pool; an invalid one matches none."""
    if pool is None or pool.deleting:
        return False
    try:
        return parse_selector(text).matches(pool.labels)
    except BadSelector:
        return False


def pools_of_slice_change(
    old: EndpointSlice | None, new: EndpointSlice | None, membership: Membership
) -> frozenset[str]:
    """Return the pools whose backends differ between two versions of a slice."""
    touched = frozenset[str]().union(
        *(pools_of_slice(version, membership) for version in (old, new) if version is not None)
    )
    if old is None or new is None or old.ports != new.ports or old.deleting != new.deleting:
        return touched
    return frozenset(
        pool for pool in touched if endpoints_in_pool(pool, old, membership) != endpoints_in_pool(pool, new, membership)
    )


#: A region whose last ready backend has gone is still shown for this long: pods that roll come back.
EMPTY_GRACE_S = 10.0


class AccessPlan(msgspec.Struct, frozen=True):
    """Writes in order; ``warning`` is for the Service once they are done; reconcile after ``again_s`` seconds."""

    steps: tuple[AccessStep, ...] = ()
    warning: tuple[str, str] | None = None
    again_s: float | None = None


def plan_access(view: AccessView, *, now: datetime) -> AccessPlan:
    """Plan the addresses and conditions of a Service."""
    service = view.service
    active = service.managed and not service.deleting
    shown, again_s = _access_plan_shown(view, now) if active else ([], None)
    wanted, points = _union(shown)
    recorded = recorded_points(service)
    ours = {address for addresses in (*recorded.values(), *points.values()) for address in addresses}
    present = list(service.status.load_balancer.ingress or ())
    foreign = [entry for entry in present if entry.address not in ours]
    ingress = sorted([*wanted, *foreign], key=_order)
    condition = describe_regions(view) if active else None
    conditions, warning = next_conditions(service, condition, now)
    status: JSONObject = {}
    if not same_ingress(ingress, present) and service.spec.type == "LoadBalancer":
        status["loadBalancer"] = {"ingress": [object_from_ingress(entry) for entry in ingress] or None}
    if conditions is not None:
        status["conditions"] = [whole(condition) for condition in conditions]
    labels, annotations = aggregated(pool_service for _, pool_service in shown)
    if service.deleting:
        # It is on its way out with all that is written on it; only its addresses still mean something.
        return AccessPlan((AccessStep("status", {"status": status}),) if status else ())
    still = {entry.address for entry in present if entry.address in ours}
    kept: dict[str, set[str]] = {pool: set(addresses) for pool, addresses in points.items()}
    for pool, addresses in recorded.items():
        remaining = {address for address in addresses if address in still}
        if remaining:
            kept.setdefault(pool, set()).update(remaining)
    meanwhile = {pool: tuple(sorted(kept[pool])) for pool in sorted(kept)}
    steps = [
        annotations_step(service, labels, annotations, meanwhile),
        AccessStep("status", {"status": status}) if status else None,
        annotations_step(service, labels, annotations, points, before=meanwhile),
    ]
    if not any(set(points[pool]) - set(recorded.get(pool, ())) for pool in points):
        # Nothing new to record: one write of metadata is enough, after the status.
        steps = [steps[1], annotations_step(service, labels, annotations, points)]
    return AccessPlan(tuple(step for step in steps if step is not None), warning, again_s)


def _access_plan_shown(view: AccessView, now: datetime) -> tuple[list[tuple[str, PoolService]], float | None]:
    """Choose the PoolServices whose access points are shown, by pool; and in how many seconds to reconcile again."""
    by_pool: dict[str, list[PoolService]] = {}
    for region, pool_service in view.regions:
        if region.pool in view.wanted.pools:
            by_pool.setdefault(region.pool, []).append(pool_service)
    candidates: list[tuple[str, PoolService]] = []
    for pool in sorted(by_pool):
        primaries, retiring = split_by_class(by_pool[pool], view.service.spec.load_balancer_class or "")
        taken_over = bool(primaries and primaries[0].status.load_balancer.ingress)
        candidates += [(pool, primary) for primary in (*primaries[:1], *(() if taken_over else retiring))]
    seen = {ingress.address for ingress in view.service.status.load_balancer.ingress or ()}
    empty = [(pool, candidate) for pool, candidate in candidates if not _has_backends(candidate)]
    if len(empty) == len([candidate for candidate in candidates if candidate[1].status.load_balancer.ingress]):
        return candidates, None  # none has any: taking away the last address would help no client
    again_s: float | None = None
    for pool, pool_service in empty:
        renewed = parsed_time(pool_service.spec.renew_time)
        since_s = EMPTY_GRACE_S if renewed is None else max(0.0, (now - renewed).total_seconds())
        known = any(ingress.address in seen for ingress in pool_service.status.load_balancer.ingress or ())
        if known and since_s < EMPTY_GRACE_S:
            left_s = EMPTY_GRACE_S - since_s
            again_s = left_s if again_s is None else min(again_s, left_s)
        else:
            candidates.remove((pool, pool_service))
    return candidates, again_s


def _has_backends(pool_service: PoolService) -> bool:
    """Return whether a region has backends; a region with unreadable backends counts."""
    if not pool_service.status.load_balancer.ingress:
        return True
    backends = decode_backends(pool_service.annotation(ANNOTATION_BACKENDS))
    return backends is None or bool(backends.truncated) or backends.ready > 0


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
    """Return the keys to set, and those to remove with the value None; only our own keys."""
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
    """The input of the decision. ``regions`` are our PoolServices of the Service.

    ``conflicts`` are wanted pools for which a PoolService that is not ours has the name, with that name.
    """

    service: SourceService
    wanted: SelectedPools
    regions: tuple[tuple[RegionKey, PoolService], ...]
    conflicts: Mapping[str, str] = {}


def describe_regions(view: AccessView) -> tuple[bool, str, str]:
    """Return (whether all regions are healthy, reason, message) for the condition."""
    if view.wanted.problem:
        return (False, view.wanted.problem, view.wanted.sentence)
    failing = [
        f"{pool}: PoolService {name} is not managed by Fairlead" for pool, name in sorted(view.conflicts.items())
    ]
    with_access = 0
    for region, pool_service in sorted(view.regions, key=itemgetter(0)):
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
    others = [condition for condition in present if condition.type != CONDITION]
    old = next((condition for condition in present if condition.type == CONDITION), None)
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
