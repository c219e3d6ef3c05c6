"""The status of a Tenant: its acceptance, its agent and the agent's clock.

In: the Tenant, what was ensured for it, and how its agent is. Out: the next status. Never: a write, or a message that
changes by itself: each would be a write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from fairlead.api.conditions import wire_conditions
from fairlead.api.tenant import FormerDomain, Tenant, TenantState, TenantStatus
from fairlead.model.condition import Condition, ConditionReason, ConditionType


class AgentState(msgspec.Struct, frozen=True, gc=False):
    """A member's agent: its state, its last report (RFC 3339, the API server's clock), and how wrong its clock is."""

    state: TenantState = "Pending"
    last_sync: str = ""
    clock_ahead_s: float = 0.0


class Ensured(msgspec.Struct, frozen=True, gc=False):
    """Whether namespace and rights of a tenant are there; ``invalid``: its spec cannot be, as opposed to not now."""

    problem: str = ""
    invalid: bool = False


def next_status(
    tenant: Tenant,
    ensured: Ensured,
    agent: AgentState,
    *,
    now: str,
    removal: Sequence[Condition] = (),
    domain: str = "",
    former: Sequence[FormerDomain] = (),
    domains_taken: Condition | None = None,
) -> TenantStatus:
    """Return the status of ``tenant``; its lastSyncTime changes with the state, not at every sign of life.

    ``domain`` is where names of its objects are made, ``former`` where they are kept. ``removal``: what is to be
    said of a Tenant that is being removed, instead of whether it is ready. ``domains_taken``: that another member
    has a domain of it.
    """
    old, generation = tenant.status, tenant.metadata.generation
    conditions = list(_conditions(tenant, ensured, agent, removal))
    conditions += [domains_taken] if domains_taken is not None else []
    return TenantStatus(
        namespace=tenant.namespace,
        domain=domain,
        former_domains=list(former) or None,
        state=agent.state,
        last_sync_time=(agent.last_sync or None) if agent.state != old.state else old.last_sync_time,
        observed_generation=generation,
        conditions=wire_conditions(conditions, old.conditions, generation=generation, now=now),
    )


def _conditions(
    tenant: Tenant, ensured: Ensured, agent: AgentState, removal: Sequence[Condition]
) -> Iterator[Condition]:
    invalid = ensured.problem if ensured.invalid else ""
    if ensured.problem and not invalid and tenant.refused:
        # Whether the namespace still belongs to another Tenant could not be read.
        invalid = next((each.message for each in tenant.status.conditions or () if each.type == "Accepted"), "")
    reason = ConditionReason.INVALID if invalid else ConditionReason.ACCEPTED
    yield Condition(ConditionType.ACCEPTED, not invalid, reason, invalid)
    yield from removal or [_ready(tenant, ensured, agent)]
    if agent.clock_ahead_s:
        yield Condition(ConditionType.CLOCK_SKEWED, True, ConditionReason.CLOCK_SKEW, skew_text(agent.clock_ahead_s))


def _ready(tenant: Tenant, ensured: Ensured, agent: AgentState) -> Condition:
    def no(reason: ConditionReason, message: str) -> Condition:
        return Condition(ConditionType.READY, False, reason, message)

    name = tenant.metadata.name
    if ensured.problem:
        return no(ConditionReason.INVALID if ensured.invalid else ConditionReason.PENDING, ensured.problem)
    if agent.state == "Pending":
        text = f"its agent has never reported; start it in the member with: fairlead agent --tenant {name}"
        return no(ConditionReason.PENDING, text)
    if agent.state != "Engaged":
        return no(
            ConditionReason.MEMBER_LOST,
            f"its agent last reported at {agent.last_sync}, and its last state is served on; look at the agent's log",
        )
    return Condition(ConditionType.READY, True, ConditionReason.READY, "")


def skew_text(ahead_s: float) -> str:
    """Return what to say of a clock that is ahead (negative: behind) of the hub's; rounded, so that it stays."""
    return (
        f"the clock of the agent's machine is {_about(abs(ahead_s))} {'ahead of' if ahead_s > 0 else 'behind'} "
        "the hub's API; set it (NTP): nothing here is judged by it, but tokens and certificates are judged there"
    )


def _about(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"about {round(seconds / size)} {unit}"
    return "about a minute"
