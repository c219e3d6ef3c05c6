"""A PoolService as a TCPLoadBalancer: which nodes of its pool are backends."""

from __future__ import annotations

import pytest
from regions_builders import membership, pool_service, service, slice_of

from fairlead.publish.publication import Publication
from fairlead.regions.backends import PoolNode, build_backends
from fairlead.regions.balancer.translate import translate

NODES = [PoolNode("n1", "10.1.0.1", True), PoolNode("n2", "10.1.0.2", True), PoolNode("n3", "10.1.0.3", True)]
PODS = slice_of(("10.244.0.1", "n1", True), ("10.244.0.2", "n2", False))


def node_addresses(policy: str) -> set[str]:
    """Return the nodes that are backends of a Service with node ports: one pod is ready on n1, one on n2 is not."""
    of = service(
        class_name="fairlead.dev/envoy",
        externalTrafficPolicy=policy,
        ports=[{"name": "http", "port": 80, "nodePort": 30080, "protocol": "TCP"}],
    )
    backends = build_backends("east", [PODS], membership(n1="east", n2="east", n3="east"), nodes=NODES)
    built = translate(pool_service("test", "east", of=of, class_name="fairlead.dev/envoy"), backends, region="east")
    assert isinstance(built, Publication)
    return {
        address
        for each in built.slices or ()
        for endpoint in each.endpoints or ()
        for address in endpoint.addresses or ()
    }


@pytest.mark.req("T-survivors")
@pytest.mark.parametrize(
    ("policy", "addresses"),
    [("Cluster", {"10.1.0.1", "10.1.0.2", "10.1.0.3"}), ("Local", {"10.1.0.1"})],
)
def test_with_local_traffic_only_nodes_with_a_ready_pod_are_backends(policy: str, addresses: set[str]) -> None:
    assert node_addresses(policy) == addresses
