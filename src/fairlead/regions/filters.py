"""The keys that a change concerns, at a cost that does not grow with the cluster.

In: an object before and after. Out: yes or no, or keys. Pure; what to do about a key is never decided here.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.names import AGGREGATED_PREFIX, ANNOTATION_ACCESS_POINTS
from fairlead.api.poolservice import PoolService
from fairlead.api.selectors import BadSelector, parse_selector
from fairlead.regions.backends import endpoints_in_pool, pools_of_slice
from fairlead.regions.identity import is_ours, services_named
from fairlead.regions.pools import Membership, Pool
from fairlead.regions.source import ServiceKey, SourceService


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


def selectors_that_flip(old: Pool | None, new: Pool | None, selectors: Iterable[str]) -> list[str]:
    """Return the selectors that match exactly one of two versions of a pool.

    A pool that is deleted, or being deleted, matches none.
    """
    return [text for text in selectors if selected(text, old) != selected(text, new)]


def selected(text: str, pool: Pool | None) -> bool:
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
