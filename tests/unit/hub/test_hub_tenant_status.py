"""What a Tenant says of its member: Ready only when its agent lives and its rights exist, and whose clock is wrong."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.hub.tenants.tenants import AgentState, TenantEnsured, next_status, skew_text
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.testing.builders import tenant

NOW = "2030-01-01T00:00:00Z"
ALIVE = AgentState("Engaged", NOW)


def conditions(agent=ALIVE, ensured=None):
    status = next_status(tenant(), ensured or TenantEnsured(), agent, now=NOW)
    return {each.type: each for each in status.conditions or ()}


@pytest.mark.req("X-6")
def test_ready_is_an_agent_that_lives_and_rights_that_exist():
    by_type = conditions()
    ready = by_type["Ready"]
    assert (ready.status, ready.reason, ready.message) == ("True", "Ready", "")
    assert set(by_type) == {"Accepted", "Ready"}


@pytest.mark.req("X-6")
@pytest.mark.parametrize(
    ("agent", "ensured", "reason", "says"),
    [
        (AgentState("Pending"), TenantEnsured(), "Pending", "fairlead agent --tenant east"),
        (AgentState("Stale", NOW), TenantEnsured(), "MemberLost", f"last reported at {NOW}"),
        (AgentState("Lost", NOW), TenantEnsured(), "MemberLost", "its last state is served"),
        (ALIVE, TenantEnsured("we may not create roles"), "Pending", "we may not create roles"),
        (ALIVE, TenantEnsured("the namespace is another's", invalid=True), "Invalid", "another's"),
    ],
)
def test_not_ready_says_why(agent, ensured, reason, says):
    ready = conditions(agent, ensured)["Ready"]
    assert (ready.status, ready.reason) == ("False", reason)
    assert says in ready.message


def test_a_temporary_failure_is_not_a_rejection_of_the_tenant():
    assert conditions(ensured=TenantEnsured("not now"))["Accepted"].status == "True"
    assert conditions(ensured=TenantEnsured("never", invalid=True))["Accepted"].status == "False"


@pytest.mark.req("X-6")
@pytest.mark.parametrize(
    ("ahead_s", "says"),
    [(3600, "60 minutes ahead of"), (-600, "10 minutes behind"), (45, "a minute ahead"), (3 * 86_400, "3 days ahead")],
)
def test_a_wrong_clock_is_reported(ahead_s, says):
    agent = msgspec.structs.replace(ALIVE, clock_ahead_s=ahead_s)
    skewed = conditions(agent)["ClockSkewed"]
    assert (skewed.status, skewed.reason) == ("True", "ClockSkew")
    assert says in skewed.message
    assert conditions(agent)["Ready"].status == "True"


def test_a_second_more_or_less_is_the_same_sentence():
    assert skew_text(3601.2) == skew_text(3599.4)


def test_the_time_of_the_last_sync_is_written_with_the_state_only():
    first = next_status(tenant(), TenantEnsured(), ALIVE, now=NOW)
    east = msgspec.structs.replace(tenant(), status=first)
    again = next_status(
        east, TenantEnsured(), AgentState("Engaged", "2030-01-01T00:00:10Z"), now="2030-01-01T00:00:10Z"
    )
    assert again == first


def test_a_taken_domain_is_reported_and_the_member_stays_ready():
    taken = Condition(ConditionType.HOSTNAMES_ACCEPTED, False, ConditionReason.DOMAIN_RESERVED, "it is another's")
    status = next_status(tenant(), TenantEnsured(), ALIVE, now=NOW, domains_taken=taken)
    by_type = {each.type: each for each in status.conditions or ()}
    assert (by_type["HostnamesAccepted"].status, by_type["HostnamesAccepted"].reason) == ("False", "DomainReserved")
    assert by_type["Ready"].status == "True"
