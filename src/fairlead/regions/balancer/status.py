"""What became of a PoolService? The status of its load balancer, mirrored.

In: the TCPLoadBalancer, and why it could not be made as asked. Out: the PoolService's status, its JSON, and the Events
of what changed. Pure. Never: takes away an address that users know, as long as no other takes its place.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from fairlead.api.meta import JSONObject, WireCondition
from fairlead.api.poolservice import PoolService, PoolServiceStatus
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.publish.publication import Refused
from fairlead.publish.wire import object_from_condition, object_from_ingress

_GOOD_WHEN_TRUE = frozenset({ConditionType.ACCEPTED, ConditionType.RESOLVED_REFS, ConditionType.PROGRAMMED})


class StatusEvent(NamedTuple):
    """One Event on the PoolService."""

    warning: bool
    reason: str
    message: str


def build_status(
    pool_service: PoolService, load_balancer: TCPLoadBalancer | None, refused: Refused | None, *, now: str
) -> PoolServiceStatus:
    """Mirror the load balancer's status; ``load_balancer`` None: there is none, ``now`` as on the wire."""
    old = pool_service.status
    source = load_balancer.status if load_balancer is not None and not load_balancer.deleting else None
    by_type: dict[str, WireCondition] = {each.type: each for each in (source.conditions if source else None) or ()}
    if ConditionType.PROGRAMMED not in by_type:
        by_type[ConditionType.PROGRAMMED] = _condition(
            ConditionType.PROGRAMMED, ConditionReason.PENDING, "no hub has answered yet"
        )
    if refused is not None:
        by_type[ConditionType.ACCEPTED] = _condition(ConditionType.ACCEPTED, refused.reason, refused.sentence)
    known = {each.type: each for each in old.conditions or ()}
    generation = pool_service.metadata.generation
    conditions = [_since(by_type[kind], known.get(kind), generation, now) for kind in sorted(by_type, key=_order)]
    shown = old.load_balancer.ingress
    if load_balancer is not None and load_balancer.deleting:
        shown = None  # nothing will answer there
    ingress = list((source.load_balancer.ingress if source else None) or shown or ())
    return msgspec.structs.replace(
        old,
        address=ingress[0].address if ingress else "",
        targets=source.targets if source else old.targets,
        load_balancer=msgspec.structs.replace(old.load_balancer, ingress=ingress or None),
        observed_generation=generation,
        conditions=conditions,
    )


def object_from_status(status: PoolServiceStatus) -> JSONObject:
    """Write the fields of a status that layer 2 owns."""
    ingress = [object_from_ingress(each) for each in status.load_balancer.ingress or ()]
    return {
        "address": status.address,
        "targets": status.targets,
        "loadBalancer": {"ingress": ingress} if ingress else {},
        "observedGeneration": status.observed_generation,
        "conditions": [object_from_condition(each) for each in status.conditions or ()],
    }


def status_events(old: PoolServiceStatus, new: PoolServiceStatus) -> list[StatusEvent]:
    """Return an Event for each condition that has become bad, and one when the load balancer is programmed."""
    before = {each.type: (each.status, each.reason) for each in old.conditions or ()}
    events: list[StatusEvent] = []
    for condition in new.conditions or ():
        same = before.get(condition.type) == (condition.status, condition.reason)
        if same or condition.reason == ConditionReason.PENDING:
            continue
        if (condition.status == "True") != (condition.type in _GOOD_WHEN_TRUE):
            events.append(StatusEvent(True, condition.reason, condition.message or condition.type))
        elif condition.type == ConditionType.PROGRAMMED:
            events.append(StatusEvent(False, condition.reason, f"serving at {new.address}"))
    return events


def _order(kind: str) -> int:
    order = [each.value for each in ConditionType]
    return order.index(kind) if kind in order else len(order)


def _condition(kind: ConditionType, reason: ConditionReason, message: str) -> WireCondition:
    return WireCondition(type=kind.value, status="False", reason=reason.value, message=message)


def _since(condition: WireCondition, old: WireCondition | None, generation: int, now: str) -> WireCondition:
    same = old is not None and old.status == condition.status
    since = old.last_transition_time if same and old is not None else condition.last_transition_time or now
    return msgspec.structs.replace(condition, observed_generation=generation, last_transition_time=since)
