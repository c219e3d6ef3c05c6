"""Who does not lead writes nothing at the hub, also in the middle of several writes."""

from __future__ import annotations

import pytest

from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.meta import ObjectMeta
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.errors import Wait
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.publish.objects import HubWrite
from fairlead.publish.publisher import Publisher


class Recording(Cluster):
    """A cluster that answers every apply with what was applied."""

    def __init__(self) -> None:
        super().__init__(ClusterConfig(server="http://127.0.0.1:1"), name="hub")
        self.applied: list[str] = []

    async def apply(self, resource, obj, **_options):
        self.applied.append(obj["metadata"]["name"])
        return resource.type(ObjectMeta(name=obj["metadata"]["name"], namespace="a", resource_version="1"))


@pytest.mark.req("T-survivors", "I-5")
@pytest.mark.parametrize("writes_before", [0, 1, 2])
async def test_another_leader_ends_the_writes_at_once(writes_before: int) -> None:
    cluster = Recording()
    publisher = Publisher(
        hub=cluster,
        load_balancers=WatchCache(cluster, TCP_LOAD_BALANCERS),
        slices=WatchCache(cluster, ENDPOINT_SLICES, indexes={}),
        manager="agent",
        may_write=lambda: len(cluster.applied) < writes_before,
    )
    names = ["one", "two", "three"]
    writes = [HubWrite("apply", TCPLoadBalancer(ObjectMeta(name=name, namespace="a")), "new") for name in names]
    with pytest.raises(Wait, match="not the leader"):
        await publisher.load_balancers.write(writes)
    assert cluster.applied == names[:writes_before]
