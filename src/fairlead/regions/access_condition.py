"""The condition ``fairlead.dev/Regions`` of a Service; absent while no region ever had a problem.

In: what access points depend on. Out: the condition fairlead.dev/Regions, and the Warning that it deserves.
Never: touches another's condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from fairlead.api.meta import WireCondition
from fairlead.api.poolservice import PoolService
from fairlead.api.times import wire_time
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.regions.identity import RegionKey
from fairlead.regions.region_plan import SelectedPools
from fairlead.regions.source import SourceService

CONDITION = "fairlead.dev/Regions"
FAILING = "RegionsFailing"
WELL = "AllRegions"


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
