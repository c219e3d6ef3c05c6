"""The plan for a Service as a whole: its finalizer, and its pools.

    managed                          finalizer on; one region for each matching pool that is not being deleted
    managed, selector unreadable     finalizer on; the pools stay as they are until it can be read
    deleting, or not managed         every region goes; the finalizer goes when the last PoolService is gone

In: a Service, the pools, the pools that it has now. Out: ``ServicePlan``. Never: a finalizer taken away while a
PoolService is still there, or put on a Service that is not managed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from fairlead.api.selectors import BadSelector, parse_selector
from fairlead.regions.pools import Pool
from fairlead.regions.source import SourceService

FinalizerChange = Literal["", "add", "remove"]

NO_MATCH = "NoMatchNodePool"
BAD_SELECTOR = "InvalidSelector"


class SelectedPools(msgspec.Struct, frozen=True):
    """The pools that a Service selects, by name. ``problem`` and ``sentence`` say what is wrong, for its author."""

    pools: Mapping[str, Pool]
    problem: str = ""
    sentence: str = ""


def wanted_pools(service: SourceService, pools: Iterable[Pool], present: Iterable[str]) -> SelectedPools:
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
    service: SourceService, pools: Iterable[Pool], present: Iterable[str], *, remaining: int
) -> ServicePlan:
    """Plan a Service; ``remaining`` counts its PoolServices that exist, those being deleted included."""
    if service.deleting or not service.managed:
        return ServicePlan("remove" if service.held and not remaining else "", gone=True)
    return ServicePlan("" if service.held else "add", wanted=wanted_pools(service, pools, present))
