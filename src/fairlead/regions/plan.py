"""The plan for one PoolService: what it should be, what has to be written, and which changes matter to it.

    nothing there under any of its names     create
    there, of this class                     update what differs; renewTime moves only when content does
    there, of the class that was before      kept current until the new one has an access point, then deleted
    there, not ours                          not changed, ManagedConflict emitted
    its pool no longer wanted                leaves the Service's status first, then deleted

In: ``RegionView``: one Service, one pool, what is there. Out: writes with reasons. Pure: the time comes in as text.
Never: touches what is not ours, or deletes while something that would contradict it cannot be seen (``frozen``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Literal

import msgspec

from fairlead.api.kubernetes import SERVICES, EndpointSlice
from fairlead.api.meta import JSONObject, OwnerReference
from fairlead.api.names import AGGREGATED_PREFIX, ANNOTATION_ACCESS_POINTS, ANNOTATION_BACKENDS, ANNOTATION_SERVICE
from fairlead.api.poolservice import PoolService
from fairlead.api.selectors import BadSelector, parse_selector
from fairlead.publish.objects import whole
from fairlead.regions.backends import Backends, Membership, RegionPool, endpoints_in_pool, pools_of_slice
from fairlead.regions.source import (
    RegionKey,
    ServiceKey,
    SourceService,
    class_in_document,
    is_ours,
    pool_service_labels,
    pool_service_names,
    services_named,
)

NODE_POOL_KIND = "NodePool"


class RegionView(msgspec.Struct, frozen=True):
    """All that one decision depends on.

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
        taken = {each.metadata.name for each in (*view.present, *view.name_conflicts)}
        foreign = {each.metadata.name: each for each in view.name_conflicts if not is_ours(each)}
        names = pool_service_names(view.key.service, view.key.pool, wanted_class)
        if names[0] in foreign:
            return RegionPlan(tuple(writes), conflict=foreign[names[0]])
        free = next((name for name in names if name not in taken), "")
        if not free:
            return RegionPlan(waits=f"PoolService {names[0]} is still being deleted")
        if not retiring and any(each.deleting for each in view.present):
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
            # It goes on being what it was, also for a provider that reads the document.
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
    for each in sorted(present, key=attrgetter("age_order")):
        if each.deleting:
            continue
        written = class_in_document(each.annotation(ANNOTATION_SERVICE)) or each.spec.load_balancer_class
        (primaries if wanted_class in {each.spec.load_balancer_class, written} else retiring).append(each)
    return primaries, retiring


def _plan_removals(view: RegionView, present: tuple[PoolService, ...] | list[PoolService], why: str) -> RegionPlan:
    writes: list[PoolServiceWrite] = []
    waits = ""
    shown = {each.address for each in view.service.status.load_balancer.ingress or ()}
    leaving = [each for each in present if not each.deleting]
    staying = {
        ingress.address
        for each in view.present
        if each not in leaving
        for ingress in each.status.load_balancer.ingress or ()
    }
    for each in leaving:
        own_addresses = {ingress.address for ingress in each.status.load_balancer.ingress or ()} - staying
        staying_ours = view.service.managed and not view.service.deleting
        if view.frozen and staying_ours:
            waits = view.frozen
        elif staying_ours and own_addresses & shown:
            waits = f"{', '.join(sorted(own_addresses & shown))} is still in the status of the Service"
        else:
            writes.append(PoolServiceWrite("delete", why, each.metadata.name, target=each))
    return RegionPlan(tuple(writes), waits=waits)


def _new(view: RegionView, name: str, class_name: str, now: str) -> JSONObject:
    assert view.pool is not None
    return {
        "metadata": {
            "namespace": view.key.namespace,
            "name": name,
            "labels": pool_service_labels(view.key.service, view.key.pool),
            "annotations": {ANNOTATION_SERVICE: view.service.document, ANNOTATION_BACKENDS: view.backends.encode()},
            "ownerReferences": [whole(each) for each in owners(view.service, view.pool)],
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
        metadata["ownerReferences"] = [whole(each) for each in references]
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
    others = [each for each in references if each.kind not in {SERVICES.kind, NODE_POOL_KIND} and not each.controller]
    if list(ours) == [each for each in references if each not in others]:
        return None
    return [*ours, *others]


FinalizerChange = Literal["", "add", "remove"]

NO_MATCH = "NoMatchNodePool"
BAD_SELECTOR = "InvalidSelector"


class SelectedPools(msgspec.Struct, frozen=True):
    """The pools that a Service selects, by name. ``problem`` and ``sentence`` say what is wrong, for its author."""

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
    return any(each is not None and is_ours(each) and bool(services_named(each)) for each in (old, new))


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
    touched = frozenset[str]().union(*(pools_of_slice(each, membership) for each in (old, new) if each is not None))
    if old is None or new is None or old.ports != new.ports or old.deleting != new.deleting:
        return touched
    return frozenset(
        pool for pool in touched if endpoints_in_pool(pool, old, membership) != endpoints_in_pool(pool, new, membership)
    )
