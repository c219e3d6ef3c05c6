"""What is an object informed of about its host names?

    nothing refused, nothing made    nothing at all, which is no write
    the hub made a name              that name
    a name is refused                condition HostnamesAccepted=False; True once it is refused no more

In: the claims of one source with the decision about each, the names as they stand in the status. Out: ``NamesStatus``.
Never: a word about another member. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.conditions import wire_conditions
from fairlead.api.intent import NamesStatus
from fairlead.hub.names.claims import Claimant
from fairlead.hub.names.ownership import Decision
from fairlead.model.condition import Condition, ConditionReason, ConditionType

_SENTENCES = {
    ConditionReason.HOSTNAME_TAKEN: "has another owner, so it does not resolve to here; use another name, or ask the "
    "operator. Requests for it that come to the address of this object are served",
    ConditionReason.DOMAIN_RESERVED: "is in a domain that the operator gave to others, so it does not resolve to here; "
    "use another name, or ask the operator. Requests for it that come to the address of this object are served",
}
_SHOWN = 3


def names_status(
    claims: Mapping[str, Claimant],
    decisions: Mapping[str, Decision],
    before: NamesStatus,
    *,
    generation: int,
    now: str,
) -> NamesStatus:
    """Return the names of a source as they are to stand in its status; ``now`` is RFC 3339."""
    refused: dict[str, ConditionReason] = {}
    generated = ""
    for host, claimant in sorted(claims.items()):
        decision = decisions.get(host)
        if decision is None:
            continue
        if (reason := decision.refused.get(claimant.space)) is not None:
            refused[host] = reason
        elif claimant.generated and decision.owner is not None:
            generated = host
    condition = _condition(refused, was_refused=bool(before.conditions))
    conditions = wire_conditions(
        [condition] if condition is not None else [], before.conditions, generation=generation, now=now
    )
    return NamesStatus(hostname=generated, conditions=conditions or None)


def _condition(refused: Mapping[str, ConditionReason], *, was_refused: bool) -> Condition | None:
    kind = ConditionType.HOSTNAMES_ACCEPTED
    if refused:
        reason = next(iter(refused.values()))
        hosts = [host for host, why in refused.items() if why is reason]
        more = f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else ""
        return Condition(kind, False, reason, f"host {', '.join(hosts[:_SHOWN])}{more}: the name {_SENTENCES[reason]}")
    if was_refused:
        return Condition(kind, True, ConditionReason.HOSTNAMES_ACCEPTED, "")
    return None
