"""LoadBalancers that Clusters get by themselves: what is written, and by whom."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.capi.reconcile import LoadBalancerCreator
from fairlead.errors import Wait


async def test_a_replica_that_does_not_lead_makes_nothing():
    nothing: Any = SimpleNamespace()
    maker = LoadBalancerCreator(hub=nothing, inventory=nothing, events=nothing, leading=lambda: False)
    with pytest.raises(Wait, match="not the leader"):
        await maker.reconcile("fleet")
