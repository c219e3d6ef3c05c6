"""What became of a PoolService? The status of its load balancer, mirrored.

In: the TCPLoadBalancer, and why it could not be made as asked. Out: the PoolService's status. Never: takes away an
address that users have been told, as long as no other takes its place.
"""

from __future__ import annotations

import msgspec

from fairlead.api.meta import WireCondition
from fairlead.api.poolservice import PoolService, PoolServiceStatus
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.regions.balancer_plan import Refusal


def build_status(
    pool_service: PoolService, load_balancer: TCPLoadBalancer | None, refusal: Refusal | None, *, now: str
) -> PoolServiceStatus:
    """Mirror what became of the load balancer; an address that was told stays until another one takes its place."""
    old = pool_service.status
    generation = pool_service.metadata.generation
    source = load_balancer.status if load_balancer is not None and not load_balancer.deleting else None
    found: dict[str, WireCondition] = {one.type: one for one in (source.conditions if source else None) or ()}
    if ConditionType.PROGRAMMED not in found:
        found[ConditionType.PROGRAMMED] = _condition(
            ConditionType.PROGRAMMED, ConditionReason.PENDING, "no hub has answered yet"
        )
    if refusal is not None:
        found[ConditionType.ACCEPTED] = _condition(ConditionType.ACCEPTED, refusal.reason, refusal.sentence)
    known = {one.type: one for one in old.conditions or ()}
    order = list(ConditionType)
    conditions = [
        _since(found[kind], known.get(kind), generation, now)
        for kind in sorted(found, key=lambda kind: order.index(ConditionType(kind)) if kind in order else len(order))
    ]
    told = old.load_balancer.ingress
    if load_balancer is not None and load_balancer.deleting:
        told = None  # nobody will answer there
    ingress = list((source.load_balancer.ingress if source else None) or told or ())
    return msgspec.structs.replace(
        old,
        address=ingress[0].address if ingress else "",
        targets=source.targets if source else old.targets,
        load_balancer=msgspec.structs.replace(old.load_balancer, ingress=ingress or None),
        observed_generation=generation,
        conditions=conditions,
    )


def _condition(kind: ConditionType, reason: ConditionReason, message: str) -> WireCondition:
    return WireCondition(type=kind.value, status="False", reason=reason.value, message=message)


def _since(one: WireCondition, old: WireCondition | None, generation: int, now: str) -> WireCondition:
    same = old is not None and old.status == one.status
    since = old.last_transition_time if same and old is not None else one.last_transition_time or now
    return msgspec.structs.replace(one, observed_generation=generation, last_transition_time=since)
