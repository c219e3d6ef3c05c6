"""The status of a BackendTLSPolicy.

One entry for each Gateway that sends requests to its Services, at most 16 with those of other controllers, which stay
as they are. In: the policy, its conditions, the Gateways, the time. Out: ``PolicyStatus``; equal to the present one
when nothing has changed. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.agent.l7.gateway.judgements import renewed
from fairlead.agent.l7.gateway.plan import Judgement, ParentKey
from fairlead.api.gateway import GATEWAY_GROUP, BackendTLSPolicy, ParentReference, PolicyAncestorStatus, PolicyStatus
from fairlead.api.names import GATEWAY_CONTROLLER

#: What the API server takes.
MAX_ANCESTORS = 16


def policy_status(
    judgements: Iterable[Judgement], policy: BackendTLSPolicy, gateways: Iterable[ParentKey], *, now: str
) -> PolicyStatus:
    """Return the status of ``policy`` at ``now``, RFC 3339; of too many ``gateways`` those that are there stay."""
    judgements = tuple(judgements)
    wanted = dict.fromkeys(
        ParentReference(GATEWAY_GROUP, gateway.kind, gateway.namespace, gateway.name) for gateway in sorted(gateways)
    )
    entries: list[PolicyAncestorStatus] = []
    for entry in policy.status.ancestors or ():
        if entry.controller_name != GATEWAY_CONTROLLER:
            entries.append(entry)
        elif entry.ancestor_ref in wanted:
            del wanted[entry.ancestor_ref]
            entries.append(renewed(entry, judgements, policy, now))
    entries += [
        renewed(PolicyAncestorStatus(reference, GATEWAY_CONTROLLER), judgements, policy, now) for reference in wanted
    ]
    if not entries and not policy.status.ancestors:
        return policy.status
    return PolicyStatus(entries[:MAX_ANCESTORS])
