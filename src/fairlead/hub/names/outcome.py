"""The status of an object's host names: its generated name, and conditions about refused and unpublished names.

    nothing refused, nothing made    nothing at all, which is no write
    the hub made a name              that name
    a name is refused                condition HostnamesAccepted=False; True once it is refused no more
    its records cannot be written    condition HostnamesPublished=False, with the reason as one word; True once they are

In: the claims of one source with the decision about each, what is not published, the names as they stand in the status.
Out: ``NamesStatus``. Never: names another member or the operator's servers. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.conditions import wire_conditions
from fairlead.api.intent import NamesStatus
from fairlead.api.tenant import DEFAULT_MAX_HOSTNAMES
from fairlead.hub.names.claims import Claimant
from fairlead.hub.names.ownership import Decision
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.in_words import listed

_SENTENCES = {
    ConditionReason.HOSTNAME_TAKEN: "has another owner, so it does not point here; use another name, or ask the "
    "operator. Requests for it that come to the address of this object are served",
    ConditionReason.DOMAIN_RESERVED: "is in a domain that is reserved for others, so it does not point here; "
    "use another name, or ask the operator. Requests for it that come to the address of this object are served",
    ConditionReason.QUOTA_EXCEEDED: "is one more than this member may have (spec.maxHostnames of its Tenant, "
    f"{DEFAULT_MAX_HOSTNAMES} when it is 0), so it does not point here; remove hosts that are not needed, or ask the "
    "operator for more. Requests for it that come to the address of this object are served",
    ConditionReason.WILDCARD_NOT_GRANTED: "stands for all names of a top-level domain or of a zone of the operator, so "
    "it does not point here; write the hosts one by one, or ask the operator to add the domain behind the asterisk to "
    "spec.domains of the Tenant. Requests for it that come to the address of this object are served",
}
_SHOWN = 3


def names_status(
    claims: Mapping[str, Claimant],
    decisions: Mapping[str, Decision],
    before: NamesStatus,
    *,
    generation: int,
    now: str,
    unpublished: Mapping[str, str] = {},
) -> NamesStatus:
    """Return the names of a source as they are to stand in its status; ``now`` is RFC 3339.

    ``unpublished``: the hosts of the source whose records have not been written for a while, each with the reason.
    """
    refused: dict[str, ConditionReason] = {}
    generated = ""
    for host, claimant in sorted(claims.items()):
        decision = decisions.get(host)
        if decision is None or claimant.former:
            continue  # a name in a former domain has no condition
        if (reason := decision.refused.get(claimant.space)) is not None:
            refused[host] = reason
        elif claimant.generated and decision.owner is not None:
            generated = host
    previous_types = {each.type for each in before.conditions or ()}
    wanted = (
        _condition(refused, was_refused=ConditionType.HOSTNAMES_ACCEPTED in previous_types),
        _published(unpublished, was_not=ConditionType.HOSTNAMES_PUBLISHED in previous_types),
    )
    conditions = wire_conditions(
        [each for each in wanted if each is not None], before.conditions, generation=generation, now=now
    )
    return NamesStatus(hostname=generated, conditions=conditions or None)


def _condition(refused: Mapping[str, ConditionReason], *, was_refused: bool) -> Condition | None:
    kind = ConditionType.HOSTNAMES_ACCEPTED
    if refused:
        reason = next(iter(refused.values()))
        hosts = [host for host, why in refused.items() if why is reason]
        return Condition(kind, False, reason, f"host {listed(hosts, _SHOWN)}: the name {_SENTENCES[reason]}")
    if was_refused:
        return Condition(kind, True, ConditionReason.HOSTNAMES_ACCEPTED, "")
    return None


def _published(unpublished: Mapping[str, str], *, was_not: bool) -> Condition | None:
    kind = ConditionType.HOSTNAMES_PUBLISHED
    if unpublished:
        why = min(unpublished.values())
        hosts = [host for host, reason in sorted(unpublished.items()) if reason == why]
        text = (
            f"host {listed(hosts, _SHOWN)}: its records cannot be written ({why}), so it may not resolve to "
            "here; it is tried again, and the operator reads more in the Hostname of that name. Requests for it that "
            "come to the address of this object are served"
        )
        return Condition(kind, False, ConditionReason.HOSTNAME_NOT_PUBLISHED, text)
    return Condition(kind, True, ConditionReason.HOSTNAMES_PUBLISHED, "") if was_not else None
