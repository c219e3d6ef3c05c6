"""A PoolService as a TCPLoadBalancer: which nodes of its pool are backends."""

from __future__ import annotations

import pytest
from regions_builders import membership, pool_service, service, slice_of

from fairlead.model.condition import ConditionReason
from fairlead.publish.objects import Publication, Refused
from fairlead.regions.balancer_plan import translate
from fairlead.regions.source import DOCUMENT_LIMIT_BYTES, PoolNode, build_backends, document_of

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
        if endpoint.ready
        for address in endpoint.addresses or ()
    }


@pytest.mark.req("T-survivors")
@pytest.mark.parametrize(
    ("policy", "addresses"), [("Cluster", {"10.1.0.1", "10.1.0.2", "10.1.0.3"}), ("Local", {"10.1.0.1"})]
)
def test_with_local_traffic_only_nodes_with_a_ready_pod_are_backends(policy: str, addresses: set[str]) -> None:
    assert node_addresses(policy) == addresses


def built(address: str, *families: str, asked: str = "", policy: str = "PreferDualStack") -> Publication | Refused:
    """Return what becomes of a Service with a pod at ``address``."""
    of = service(
        class_name="fairlead.dev/envoy",
        ipFamilies=list(families),
        ipFamilyPolicy=policy,
        annotations={"fairlead.dev/address-request": asked},
    )
    pods = slice_of((address, "n1", True), address_type="IPv6" if ":" in address else "IPv4")
    backends = build_backends("east", [pods], membership(n1="east"))
    return translate(pool_service("test", "east", of=of, class_name="fairlead.dev/envoy"), backends, region="east")


@pytest.mark.req("K-58")
def test_each_region_has_the_families_of_the_service() -> None:
    both = built("10.244.0.1", "IPv6", "IPv4", policy="RequireDualStack")
    assert isinstance(both, Publication)
    assert (both.load_balancer.spec.ip_families, both.load_balancer.spec.ip_family_policy) == (
        ("IPv6", "IPv4"),
        "RequireDualStack",
    )
    single = built("10.244.0.1", "IPv4")
    assert isinstance(single, Publication)
    assert single.load_balancer.spec.ip_families == (), "nothing that was published before changes"


@pytest.mark.req("K-58")
def test_a_family_without_backends_is_refused_with_the_way_out() -> None:
    refused = built("10.244.0.1", "IPv6", policy="SingleStack")
    assert isinstance(refused, Refused)
    assert refused.reason is ConditionReason.UNSUPPORTED_ADDRESS_FAMILY
    assert refused.sentence.startswith("the backends in this pool have IPv4 addresses, and spec.ipFamilies of the Ser")
    assert refused.keep, "what is served stays"


@pytest.mark.parametrize(
    ("asked", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("east=10.0.0.1, west=10.0.0.2", "10.0.0.1"),
        ("east=10.0.0.1,east=2001:db8::1,west=10.0.0.2", "10.0.0.1,2001:db8::1"),
        ("10.0.0.1,2001:db8::1,west=10.0.0.2", "10.0.0.1,2001:db8::1"),
        ("10.0.0.9, east=2001:db8::1", "2001:db8::1"),
        ("west=10.0.0.2", ""),
    ],
)
def test_which_addresses_are_asked_for_in_a_pool(asked: str, address: str) -> None:
    made = built("10.244.0.1", "IPv4", "IPv6", asked=asked)
    assert isinstance(made, Publication)
    assert made.load_balancer.spec.address == address


DUAL = [PoolNode("n1", "10.1.0.1", True, "fd00::1"), PoolNode("n2", "10.1.0.2", True)]


@pytest.mark.req("K-4", "K-30")
@pytest.mark.parametrize(
    ("families", "expected"),
    [
        (["IPv4"], {"IPv4": ["10.1.0.1", "10.1.0.2"]}),
        # By its other family the hub names the node that takes no traffic.
        (["IPv6"], {"IPv4": ["10.1.0.2"], "IPv6": ["fd00::1"]}),
        (["IPv6", "IPv4"], {"IPv4": ["10.1.0.1", "10.1.0.2"], "IPv6": ["fd00::1"]}),
    ],
)
def test_nodes_are_listed_in_the_families_of_the_service(families: list[str], expected: dict[str, list[str]]) -> None:
    ports = [{"name": "http", "port": 80, "nodePort": 30080, "protocol": "TCP"}]
    of = service(class_name="fairlead.dev/envoy", ipFamilies=families, ports=ports)
    backends = build_backends("east", [PODS], membership(n1="east", n2="east"), nodes=DUAL)
    built = translate(pool_service("test", "east", of=of, class_name="fairlead.dev/envoy"), backends, region="east")
    assert isinstance(built, Publication)
    listed = {
        each.address_type: [endpoint.addresses[0] for endpoint in each.endpoints or () if endpoint.addresses]
        for each in built.slices or ()
    }
    assert listed == expected


@pytest.mark.req("EDGE-03")
@pytest.mark.parametrize(
    ("annotations", "ranges", "names"),
    [
        ({"service.beta.kubernetes.io/load-balancer-source-ranges": "203.0.113.0/24"}, ["203.0.113.0/24"], []),
        ({"fairlead.dev/hostname": "web.example.com"}, [], ["web.example.com"]),
        ({"fairlead.dev/hostname": "east=e.example.com, west=w.example.com"}, [], ["e.example.com"]),
    ],
)
def test_a_region_obeys_the_annotations_that_an_agent_obeys(
    annotations: dict[str, str], ranges: list[str], names: list[str]
) -> None:
    of = service(class_name="fairlead.dev/envoy", annotations=annotations)
    backends = build_backends("east", [PODS], membership(n1="east", n2="east"))
    made = translate(pool_service("test", "east", of=of, class_name="fairlead.dev/envoy"), backends, region="east")
    assert isinstance(made, Publication)
    spec = made.load_balancer.spec
    assert (spec.load_balancer_source_ranges, spec.hostnames) == (ranges, names)


@pytest.mark.req("EDGE-03")
@pytest.mark.parametrize(
    "annotation",
    ["service.beta.kubernetes.io/load-balancer-source-ranges", "fairlead.dev/hostname", "fairlead.dev/proxy-protocol"],
)
def test_a_region_refuses_what_an_agent_refuses(annotation: str) -> None:
    of = service(class_name="fairlead.dev/envoy", annotations={annotation: "no_value"})
    backends = build_backends("east", [PODS], membership(n1="east", n2="east"))
    refused = translate(pool_service("test", "east", of=of, class_name="fairlead.dev/envoy"), backends, region="east")
    assert isinstance(refused, Refused)
    assert annotation in refused.sentence
    assert refused.keep


@pytest.mark.req("EDGE-03")
def test_a_document_that_is_cut_keeps_the_annotations_that_restrict() -> None:
    restricts = "service.beta.kubernetes.io/load-balancer-source-ranges"
    of = service(
        class_name="fairlead.dev/envoy",
        annotations={restricts: "203.0.113.0/24", "example.com/notes": "x" * DOCUMENT_LIMIT_BYTES},
    )
    document = document_of(of, {"type": "LoadBalancer"})
    assert restricts in document
    assert "example.com/notes" not in document
