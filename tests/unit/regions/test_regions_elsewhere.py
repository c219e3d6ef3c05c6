"""What the rest of Fairlead has to know of regions: the agent leaves them alone, a hub serves its own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.agent.sources.service.plan import NotOurs, Ours, decide
from fairlead.api.kubernetes import Service
from fairlead.api.tcploadbalancer import LoadBalancerPort, TCPLoadBalancer, TCPLoadBalancerSpec
from fairlead.hub.intents.tcp import TCPObjects
from fairlead.hub.inventory import Inventory
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig


@pytest.mark.parametrize(
    ("annotations", "class_name", "ours"),
    [
        ({"fairlead.dev/nodepool-selector": "tier=edge"}, "fairlead.dev/envoy", False),
        ({"service.openyurt.io/nodepool-labelselector": "tier=edge"}, "fairlead.dev/envoy", False),
        ({"fairlead.dev/nodepool-selector": " "}, "fairlead.dev/envoy", True),
        ({"fairlead.dev/nodepool-selector": "tier=edge"}, None, True),
        ({}, "fairlead.dev/envoy", True),
    ],
)
def test_the_agent_leaves_a_service_with_regions_to_them(
    annotations: dict[str, str], class_name: str | None, ours: bool
) -> None:
    spec: dict[str, Any] = {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerClass": class_name}
    body = {"metadata": {"name": "web", "namespace": "shop", "annotations": annotations}, "spec": spec}
    decision = decide(msgspec.convert(body, type=Service), cloud="absent")
    assert isinstance(decision, Ours if ours else NotOurs)


@pytest.mark.parametrize(
    ("hub", "of", "serves"), [("", "", True), ("", "a", True), ("a", "a", True), ("a", "b", False), ("a", "", False)]
)
async def test_a_hub_serves_its_own_region(hub: str, of: str, serves: bool) -> None:
    async with Cluster(ClusterConfig(server="http://127.0.0.1:1"), name="nowhere") as cluster:
        spec = TCPLoadBalancerSpec(ports=[LoadBalancerPort(80)], region=of)
        assert TCPObjects(cluster, Inventory(cluster, region=hub)).serves(TCPLoadBalancer(spec=spec)) is serves
