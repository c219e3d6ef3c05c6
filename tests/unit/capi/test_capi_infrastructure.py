"""Kinds of other providers: which are followed, and what is not known of them."""

from __future__ import annotations

from fairlead.api.capiside import InfrastructureReference
from fairlead.capi.inventory import Infrastructures
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig

REF = InfrastructureReference("far.example", "FarLoadBalancer", "far")


async def test_an_object_of_an_unwatched_kind_is_not_taken_for_gone():
    async with Cluster(ClusterConfig(server="http://127.0.0.1:9"), name="hub") as api:
        kinds = Infrastructures(api, changed=lambda _kind, _obj: None, looked=lambda: None, look_s=1.0)
        assert kinds.get("fleet", REF) is None
        assert "has not been discovered yet" in kinds.problem("fleet", REF)
        assert not kinds.is_absent("fleet", REF)
        assert kinds.caches == {}
