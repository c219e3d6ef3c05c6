"""Status of BackendTLSPolicies: an entry for each Gateway."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.sources.gateway.plan import Judgement, ParentKey
from fairlead.agent.sources.gateway.policies import MAX_ANCESTORS, policy_status
from fairlead.api.gateway import BackendTLSPolicy, PolicyAncestorStatus
from fairlead.api.names import GATEWAY_CONTROLLER
from tests.unit.agent.gateway_builders import GATEWAY

NOW, BEFORE = "2026-03-01T00:00:00Z", "2026-02-01T00:00:00Z"
JUDGEMENTS = (Judgement("Accepted", "True", "Accepted"), Judgement("ResolvedRefs", "True", "ResolvedRefs"))
OTHER = ParentKey("Gateway", "infra", "other")


def policy(*ancestors: PolicyAncestorStatus, generation: int = 3) -> BackendTLSPolicy:
    body = {"metadata": {"name": "p", "namespace": "infra", "generation": generation}}
    status = {"status": {"ancestors": msgspec.to_builtins(list(ancestors))}} if ancestors else {}
    return msgspec.convert({**body, **status}, BackendTLSPolicy)


def foreign(name: str) -> PolicyAncestorStatus:
    ancestor: dict[str, Any] = {"ancestorRef": {"name": name}, "controllerName": "example.com/other"}
    return msgspec.convert(ancestor, PolicyAncestorStatus)


def entries(of: BackendTLSPolicy, *gateways: ParentKey, now: str = NOW) -> list[PolicyAncestorStatus]:
    return policy_status(JUDGEMENTS, of, gateways, now=now).ancestors or []


@pytest.mark.req("G-86", "G-89")
def test_an_entry_for_each_gateway() -> None:
    first, second = entries(policy(), OTHER, GATEWAY)
    assert (first.ancestor_ref.kind, first.ancestor_ref.namespace, first.ancestor_ref.name) == GATEWAY
    assert (first.ancestor_ref.group, first.controller_name) == ("gateway.networking.k8s.io", GATEWAY_CONTROLLER)
    assert second.ancestor_ref.name == "other"
    assert [(each.type, each.status, each.observed_generation) for each in first.conditions or ()] == [
        ("Accepted", "True", 3),
        ("ResolvedRefs", "True", 3),
    ]


@pytest.mark.req("G-8", "G-16")
def test_what_has_not_changed_is_equal() -> None:
    before = entries(policy(foreign("x")), GATEWAY, OTHER, now=BEFORE)
    assert entries(policy(*before), OTHER, GATEWAY) == before
    again = entries(policy(*before, generation=4), GATEWAY)
    assert [entry.ancestor_ref.name for entry in again] == ["x", "main"]
    (accepted, _) = again[1].conditions or []
    assert (accepted.observed_generation, accepted.last_transition_time) == (4, BEFORE)


@pytest.mark.req("G-17")
def test_a_younger_generation_is_not_written_over() -> None:
    before = entries(policy(generation=9), GATEWAY)
    assert entries(policy(*before), GATEWAY) == before


def test_sixteen_entries_at_most_and_those_of_others_stay() -> None:
    others = [foreign(f"x{number}") for number in range(10)]
    gateways = [ParentKey("Gateway", "infra", f"g{number:02}") for number in range(20)]
    after = entries(policy(*others), *gateways)
    assert len(after) == MAX_ANCESTORS
    assert after[:10] == others


def test_nothing_to_say() -> None:
    assert policy_status(JUDGEMENTS, policy(), (), now=NOW) == policy().status
    assert policy_status(JUDGEMENTS, policy(*entries(policy(), GATEWAY)), (), now=NOW).ancestors == []
