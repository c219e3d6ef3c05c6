"""Infrastructure that is managed externally: when nothing is asked of the API at all."""

from __future__ import annotations

from typing import Any

from capi_builders import cluster

from fairlead.api.capiside import Endpoint
from fairlead.capi.external import ExternallyManaged


async def test_a_cluster_without_infrastructure_asks_nothing():
    nothing: Any = None
    assert await ExternallyManaged(nothing).provision(cluster(), Endpoint("192.0.2.1", 6443)) == ""
