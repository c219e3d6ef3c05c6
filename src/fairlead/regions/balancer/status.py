"""The status of a PoolService, mirrored from its load balancer.

In: the TCPLoadBalancer, and why it could not be made as asked. Out: the PoolService's status. Pure. Never: takes away
an address that users know, as long as no other takes its place.
"""

from __future__ import annotations

import msgspec

from fairlead.api.meta import WireCondition, mirrored_conditions
from fairlead.api.poolservice import PoolService, PoolServiceStatus
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.publish.service import Refused


def build_status(
    pool_service: PoolService, load_balancer: TCPLoadBalancer | None, refused: Refused | None, *, now: str
) -> PoolServiceStatus:
    """Mirror the load balancer's status; ``load_balancer`` None: there is none; ``now`` is RFC 3339 text."""
    old = pool_service.status
    source = load_balancer.status if load_balancer is not None and not load_balancer.deleting else None
    by_type: dict[str, WireCondition] = {each.type: each for each in (source.conditions if source else None) or ()}
    if ConditionType.PROGRAMMED not in by_type:
        by_type[ConditionType.PROGRAMMED] = _condition(
            ConditionType.PROGRAMMED, ConditionReason.PENDING, "no hub has answered yet"
        )
    if refused is not None:
        by_type[ConditionType.ACCEPTED] = _condition(ConditionType.ACCEPTED, refused.reason, refused.sentence)
    generation = pool_service.metadata.generation
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
        conditions=mirrored_conditions(by_type.values(), old.conditions, generation=generation, now=now),
    )


def _condition(kind: ConditionType, reason: ConditionReason, message: str) -> WireCondition:
    return WireCondition(type=kind.value, status="False", reason=reason.value, message=message)
