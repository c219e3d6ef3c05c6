"""Who writes, and what a load balancer owns: the parts of the reconcile that no scenario needs an API server for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from capi_builders import cluster, lb

from fairlead.api.meta import ObjectKey
from fairlead.capi.reconcile import CapiReconciler, _owners
from fairlead.errors import Wait


@pytest.mark.req("C-7")
def test_a_load_balancer_keeps_its_other_owners_with_its_cluster():
    plain = lb()
    assert [each["kind"] for each in _owners(plain, cluster())] == ["Cluster"]


async def test_a_replica_that_does_not_lead_writes_nothing():
    nothing: Any = SimpleNamespace()
    made = CapiReconciler(
        cluster=nothing,
        hub=nothing,
        hub_events=nothing,
        inventory=nothing,
        facts=nothing,
        events=nothing,
        leading=lambda: False,
    )
    with pytest.raises(Wait):
        await made.reconcile(ObjectKey("fleet", "api"))


async def test_a_load_balancer_that_is_gone_is_forgotten():
    dropped: list[ObjectKey] = []
    inventory: Any = SimpleNamespace(view=lambda *_args, **_named: None)
    facts: Any = SimpleNamespace(
        authority=lambda _key: "", probe=lambda _key: None, plane=lambda _key: None, forget=dropped.append
    )
    nothing: Any = SimpleNamespace()
    made = CapiReconciler(
        cluster=nothing,
        hub=nothing,
        hub_events=nothing,
        inventory=inventory,
        facts=facts,
        events=nothing,
        leading=lambda: True,
    )
    assert await made.reconcile(ObjectKey("fleet", "api")) is None
    assert dropped == [ObjectKey("fleet", "api")]
