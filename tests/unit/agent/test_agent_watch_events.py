"""The keys that a change enqueues."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.agent.app import WatchEvents
from fairlead.agent.identity import ServiceKey
from fairlead.agent.sources import Sources
from fairlead.api.meta import ObjectMeta
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.runtime.queue import KeyedQueue

BEFORE = TCPLoadBalancer(metadata=ObjectMeta(name="shop.web", namespace="tenant-east", uid="u", generation=1))


def later(**changes: object) -> TCPLoadBalancer:
    return msgspec.structs.replace(BEFORE, metadata=msgspec.structs.replace(BEFORE.metadata, **changes))


@pytest.fixture
async def queues() -> tuple[Sources, KeyedQueue[ServiceKey], KeyedQueue[ServiceKey]]:
    config = ClusterConfig(server="http://127.0.0.1:1")
    member, hub = Cluster(config, name="member"), Cluster(config, name="hub")
    sources = Sources(member=member, hub=hub, hub_namespace="tenant-east")
    exports, feedbacks = KeyedQueue[ServiceKey](), KeyedQueue[ServiceKey]()
    WatchEvents(sources=sources, tenant="east", exports=exports, feedbacks=feedbacks, nodes=KeyedQueue[str]())
    return sources, exports, feedbacks


@pytest.mark.parametrize(
    ("old", "new", "exported"),
    [
        (None, BEFORE, True),
        (BEFORE, None, True),
        (BEFORE, later(resource_version="2"), False),
        (BEFORE, later(generation=2), True),
        (BEFORE, later(labels={"fairlead.dev/tenant": "west"}), True),
        (BEFORE, later(annotations={"fairlead.dev/origin": "elsewhere"}), True),
        (BEFORE, later(finalizers=["fairlead.dev/load-balancer"]), True),
        (BEFORE, later(deletion_timestamp="2026-11-23T00:00:00Z"), True),
        (BEFORE, later(uid="made-again"), True),
    ],
)
async def test_an_export_is_not_compared_again_for_a_status_of_the_hub(
    queues: tuple[Sources, KeyedQueue[ServiceKey], KeyedQueue[ServiceKey]],
    old: TCPLoadBalancer | None,
    new: TCPLoadBalancer | None,
    exported: bool,
) -> None:
    sources, exports, feedbacks = queues
    sources.load_balancers._notify(old, new)
    assert len(feedbacks) == 1
    assert len(exports) == exported
