"""The status of a group of machines."""

from __future__ import annotations

import pytest

from fairlead.api.meta import ObjectMeta, condition_of
from fairlead.api.proxymachine import ProxyGroup, ProxyGroupSpec
from fairlead.hub.machines.placement import group_status

NOW = "2026-11-26T08:00:00Z"


@pytest.mark.req("P-7")
@pytest.mark.parametrize(("members", "status", "reason"), [(2, "True", "Ready"), (0, "False", "NoMachines")])
def test_a_group_without_machines_is_not_ready(members: int, status: str, reason: str):
    group = ProxyGroup(ObjectMeta(name="edge", generation=3))
    made = group_status(group, members, 7, now=NOW)
    condition = condition_of(made.conditions, "Ready")
    assert condition is not None
    assert (condition.status, condition.reason, condition.observed_generation) == (status, reason, 3)
    assert (made.machines, made.load_balancers) == (members, 7)
    assert ("--group edge" in condition.message) is (members == 0)


@pytest.mark.req("P-7")
def test_a_group_with_one_replica_says_that_nothing_takes_over_at_once():
    texts = []
    for replicas in (1, 2):
        group = ProxyGroup(ObjectMeta(name="edge"), ProxyGroupSpec(mode="Replicas", replicas=replicas))
        condition = condition_of(group_status(group, 2, 7, now=NOW).conditions, "Ready")
        assert condition is not None
        assert condition.status == "True"
        texts.append("takes over" in condition.message)
    assert texts == [True, False]
