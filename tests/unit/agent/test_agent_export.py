"""What the hub should have for one Service: targets, ports, slices, names, refusals."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from agent_builders import HUB_NAMESPACE, TENANT, endpoint, service, slice_of
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.agent.identity import service_of, slice_name
from fairlead.agent.sources.service.plan import (
    NotYet,
    Ours,
    Scenario,
    ServiceView,
    Settings,
    build_export,
    service_in_effect,
    slices_in_effect,
)
from fairlead.api.names import LABEL_LOAD_BALANCER, LABEL_SERVICE_NAME, hub_name, label_value
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.model.keys import IPV4
from fairlead.publish.objects import Publication, Refused, object_from_load_balancer, object_from_slice
from tests.published import stored_load_balancer, stored_slice

SETTINGS = Settings(tenant=TENANT, namespace=HUB_NAMESPACE)
POD = {"fairlead.dev/target": "Pod"}
THREE = Ours(Scenario.IMPLEMENTED)


def export(item, *slices, ours=THREE, config=SETTINGS, **view):
    result = build_export(ServiceView(service=item, slices=slices, **view), ours, config)
    assert isinstance(result, Publication), result
    return result


def addresses(publication: Publication):
    return [(e.addresses[0], e.conditions.ready) for s in publication.slices for e in s.endpoints]


@pytest.mark.req("K-8")
@pytest.mark.req("K-15")
@pytest.mark.req("E-1")
def test_one_service_is_one_load_balancer_that_knows_its_origin():
    given = export(service(), ours=Ours(Scenario.IMPLEMENTED, "edge")).load_balancer
    assert given.metadata.name == "shop.web"
    assert given.metadata.namespace == HUB_NAMESPACE
    assert given.metadata.finalizers == ["fairlead.dev/cleanup"]
    assert given.metadata.annotations == {"fairlead.dev/origin": "east/shop/web"}
    assert given.spec.class_name == "edge"
    assert (given.spec.origin.kind, given.spec.origin.namespace, given.spec.origin.name) == ("Service", "shop", "web")
    assert given.spec.origin.uid == "uid-1"
    assert service_of(given, tenant=TENANT) == ("shop", "web")


@pytest.mark.req("K-14")
@pytest.mark.req("K-35")
@pytest.mark.req("K-32")
def test_node_targets_have_node_ports_and_no_slices():
    result = export(service(), slice_of(endpoint("10.1.0.1", node="a")))
    assert result.load_balancer.spec.targets == "Node"
    assert result.load_balancer.spec.ports[0].node_port == 30080
    assert result.slices == ()


@pytest.mark.req("K-14")
def test_without_a_node_port_it_is_refused_with_what_to_do():
    ports = [{"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81}]
    refused = build_export(ServiceView(service=service(ports=ports)), THREE, SETTINGS)
    assert isinstance(refused, Refused)
    assert refused.reason == "NodePortMissing"
    assert refused.keep
    assert "port 81" in refused.sentence
    assert "fairlead.dev/target: Pod" in refused.sentence
    assert export(service(ports=ports, annotations=POD)).load_balancer.spec.ports[1].node_port == 0


@pytest.mark.req("KI-3")
@pytest.mark.req("KI-4")
@pytest.mark.req("E-2")
@pytest.mark.req("E-8")
def test_many_ports_and_both_protocols_on_one_number():
    ports = [
        {"name": "dns-udp", "port": 53, "protocol": "UDP", "nodePort": 30053},
        {"name": "dns", "port": 53, "protocol": "TCP", "nodePort": 30054},
        {"name": "http", "port": 8, "protocol": "TCP", "nodePort": 30055},
    ]
    for order in itertools.permutations(ports):
        spec = export(service(ports=list(order))).load_balancer.spec
        assert [(p.port, p.protocol, p.name) for p in spec.ports] == [
            (8, "TCP", "http"),
            (53, "TCP", "dns"),
            (53, "UDP", "dns-udp"),
        ]


@pytest.mark.req("KI-10")
def test_sctp_and_no_ports_are_refused():
    sctp = service(ports=[{"port": 80, "protocol": "SCTP", "nodePort": 30080}])
    for each, reason in ((sctp, "UnsupportedProtocol"), (service(ports=[]), "Invalid")):
        refused = build_export(ServiceView(service=each), THREE, SETTINGS)
        assert isinstance(refused, Refused)
        assert refused.reason == reason


def test_requested_settings_are_passed_on():
    given = service(
        annotations={"fairlead.dev/proxy-protocol": "v2"},
        loadBalancerIP="192.0.2.10",
        loadBalancerSourceRanges=["10.0.0.0/8"],
        sessionAffinity="ClientIP",
        externalTrafficPolicy="Local",
    )
    spec = export(given).load_balancer.spec
    assert (spec.proxy_protocol, spec.address, spec.session_affinity) == ("v2", "192.0.2.10", "ClientIP")
    assert (spec.load_balancer_source_ranges, spec.external_traffic_policy) == (["10.0.0.0/8"], "Local")


TARGETS = [
    # annotation, class, what classes say, agent's own, expected
    ("", "", {}, "Node", "Node"),
    ("", "", {}, "Pod", "Pod"),
    ("", "", {"envoy": "Pod"}, "Node", "Pod"),
    ("", "edge", {"envoy": "Pod"}, "Node", "Node"),
    ("", "edge", {"edge": "Pod"}, "Node", "Pod"),
    ("Node", "edge", {"edge": "Pod"}, "Pod", "Node"),
    ("Pod", "edge", {"edge": "Node"}, "Node", "Pod"),
]


@pytest.mark.parametrize(("annotation", "class_name", "classes", "own", "expected"), TARGETS)
def test_who_decides_on_targets(annotation, class_name, classes, own, expected):
    given = service(annotations={"fairlead.dev/target": annotation} if annotation else {})
    config = msgspec.structs.replace(SETTINGS, target=own)
    result = export(given, ours=Ours(Scenario.IMPLEMENTED, class_name), config=config, class_targets=classes)
    assert result.load_balancer.spec.targets == expected


@pytest.mark.req("KI-11")
@pytest.mark.req("E-3")
def test_pod_targets_mirror_the_member_s_slices():
    endpoints = [
        endpoint("10.1.0.2", node="b", ready=False, serving=True, terminating=True),
        endpoint("10.1.0.1", node="a", ready=None),
        endpoint("10.1.0.3", node="c", ready=False),
    ]
    given = service(annotations=POD, selector=None)
    result = export(given, slice_of(*endpoints, name="web-a"), slice_of(endpoint("10.1.0.9"), name="web-b"))
    assert [s.metadata.name for s in result.slices] == ["shop.web.pod.web-a", "shop.web.pod.web-b"]
    first = result.slices[0]
    assert [
        (e.addresses[0], e.conditions.ready, e.conditions.serving, e.conditions.terminating) for e in first.endpoints
    ] == [("10.1.0.1", True, True, False), ("10.1.0.2", False, True, True), ("10.1.0.3", False, True, False)]
    assert [(p.name, p.port, p.protocol) for p in first.ports] == [("http", 8080, "TCP")]
    assert first.label(LABEL_LOAD_BALANCER) == "shop.web"
    assert first.label(LABEL_SERVICE_NAME) == ""
    assert first.label("endpointslice.kubernetes.io/managed-by") == "fairlead.dev"


@pytest.mark.req("K-4")
def test_ipv6_and_host_name_slices_are_left_out():
    slices = (
        slice_of(endpoint("fd00::1"), name="v6", address_type="IPv6"),
        slice_of(endpoint("db.example.com"), name="names", address_type="FQDN"),
        slice_of(endpoint("10.1.0.1"), name="v4"),
    )
    result = export(service(annotations=POD), *slices)
    assert [s.metadata.name for s in result.slices] == ["shop.web.pod.v4"]


@pytest.mark.req("I-1")
def test_an_empty_slice_is_exported_as_it_is():
    result = export(service(annotations=POD), slice_of(ports=[]))
    assert [(s.endpoints, s.ports) for s in result.slices] == [([], [])]


NODES = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3", "d": "10.0.0.4"}


@pytest.mark.req("K-33")
@pytest.mark.req("E-10")
def test_local_lists_the_nodes_that_have_endpoints():
    slices = (
        slice_of(endpoint("10.1.0.1", node="a"), endpoint("10.1.0.2", node="a", ready=False), name="1"),
        slice_of(endpoint("10.1.0.3", node="b", ready=False, serving=True, terminating=True), name="2"),
        slice_of(endpoint("10.1.0.4", node="c", ready=False), endpoint("10.1.0.5"), name="3"),
    )
    result = export(service(externalTrafficPolicy="Local"), *slices, node_addresses={IPV4: NODES})
    assert addresses(result) == [("10.0.0.1", True), ("10.0.0.2", False), ("10.0.0.3", False)]
    assert [s.ports for s in result.slices] == [[]]
    assert [e.conditions.terminating for e in result.slices[0].endpoints] == [False, True, False]


@pytest.mark.req("K-33")
@pytest.mark.req("K-17")
def test_a_removed_node_causes_no_write_for_local_services():
    given = service(externalTrafficPolicy="Local")
    slices = (slice_of(endpoint("10.1.0.1", node="a"), endpoint("10.1.0.2", node="b")),)
    before = export(given, *slices, node_addresses={IPV4: NODES})
    hub = tuple(stored_slice(s) for s in before.slices)
    fewer = {"a": NODES["a"]}
    assert export(given, *slices, node_addresses={IPV4: fewer}, before=hub).slices == before.slices


def test_more_than_a_thousand_local_nodes_are_several_slices():
    nodes = {f"n{i}": f"10.{i // 250}.0.{i % 250}" for i in range(1001)}
    slices = (slice_of(*[endpoint("10.9.9.9", node=name) for name in nodes]),)
    result = export(service(externalTrafficPolicy="Local"), *slices, node_addresses={IPV4: nodes})
    assert [len(s.endpoints or ()) for s in result.slices] == [1000, 1]


CLOUD = Ours(Scenario.CLOUD)


@pytest.mark.req("K-21")
def test_the_cloud_s_address_and_the_service_port_are_the_endpoint():
    ingress = [{"ip": "203.0.113.7"}, {"hostname": "lb.cloud.example"}, {"ip": "2001:db8::1"}]
    result = export(service(ingress=ingress), slice_of(endpoint("10.1.0.1")), ours=CLOUD)
    assert result.load_balancer.spec.targets == "Address"
    assert result.load_balancer.spec.ports[0].node_port == 0
    assert [(s.metadata.name, s.address_type, s.endpoints[0].addresses) for s in result.slices] == [
        ("shop.web.address.fqdn", "FQDN", ["lb.cloud.example"]),
        ("shop.web.address.ipv4", "IPv4", ["203.0.113.7"]),
    ]
    assert [(p.name, p.port) for p in result.slices[0].ports] == [("http", 80)]


@pytest.mark.req("B04")
@pytest.mark.req("I-1")
def test_when_the_cloud_s_address_disappears_the_last_one_stays():
    before = export(service(ingress=[{"ip": "203.0.113.7"}]), ours=CLOUD)
    hub = tuple(stored_slice(s) for s in before.slices)
    result = export(service(), ours=CLOUD, before=hub)
    assert result.slices is None


@pytest.mark.req("K-21")
def test_before_the_cloud_has_answered_nothing_is_exported():
    assert isinstance(build_export(ServiceView(service=service()), CLOUD, SETTINGS), NotYet)


# --- names ---------------------------------------------------------------------------------------------------

label = st.from_regex(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
subdomain = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,240}[a-z0-9])?", fullmatch=True)


@pytest.mark.req("KI-5")
@pytest.mark.req("B32")
@pytest.mark.req("B29")
@pytest.mark.req("E-6")
@given(first=st.tuples(label, label), second=st.tuples(label, label))
def test_two_services_never_share_a_name(first, second):
    if first != second:
        assert hub_name(*first) != hub_name(*second)
        assert label_value(hub_name(*first)) != label_value(hub_name(*second))


@pytest.mark.req("KI-5")
@pytest.mark.req("B32")
def test_adversarial_names():
    assert hub_name("a", "b-c") != hub_name("a-b", "c")
    long = ("n" * 63, "s" * 63)
    other = ("n" * 63, "s" * 62 + "t")
    for key in (long, other):
        result = export(
            service(key[1], namespace=key[0], annotations=POD),
            slice_of(endpoint("10.1.0.1"), name="x" * 253, service_name=key[1], namespace=key[0]),
        )
        assert len(result.load_balancer.metadata.name) <= 253
        for each in (result.load_balancer, *result.slices):
            assert len(each.metadata.name) <= 253
            assert all(len(value) <= 63 for value in each.metadata.labels.values())
            assert service_of(each, tenant=TENANT) == key
    assert slice_name(long, "pod", "x" * 253) != slice_name(other, "pod", "x" * 253)
    assert slice_name(long, "pod", "x" * 253) != slice_name(long, "pod", "x" * 252 + "y")


@pytest.mark.req("KI-5")
@given(key=st.tuples(label, label), names=st.lists(subdomain, min_size=2, max_size=5, unique=True))
def test_slices_never_share_a_name(key, names):
    made = [slice_name(key, role, name) for role in ("pod", "local", "address") for name in names]
    assert len(set(made)) == len(made)
    assert all(len(name) <= 253 for name in made)


@pytest.mark.req("B25")
@pytest.mark.req("I-4")
def test_what_only_looks_like_ours_is_not():
    given = export(service()).load_balancer
    meta = given.metadata
    other_name = msgspec.structs.replace(meta, name="by-hand")
    other_tenant = msgspec.structs.replace(meta, labels={**(meta.labels or {}), "fairlead.dev/tenant": "west"})
    other_manager = msgspec.structs.replace(
        meta, labels={**(meta.labels or {}), "app.kubernetes.io/managed-by": "helm"}
    )
    for changed in (other_name, other_tenant, other_manager):
        assert service_of(msgspec.structs.replace(given, metadata=changed), tenant=TENANT) is None


# --- properties ----------------------------------------------------------------------------------------------

endpoints_strategy = st.lists(
    st.builds(
        endpoint,
        st.integers(1, 40).map(lambda i: f"10.1.0.{i}"),
        node=st.sampled_from(["", "a", "b", "c", "gone"]),
        ready=st.sampled_from([True, False, None]),
        serving=st.sampled_from([True, False, None]),
        terminating=st.sampled_from([True, False, None]),
    ),
    max_size=6,
)


@given(
    slices=st.lists(endpoints_strategy, max_size=3),
    annotations=st.sampled_from([{}, POD]),
    policy=st.sampled_from(["Cluster", "Local"]),
    data=st.data(),
)
@settings(max_examples=80, deadline=None)
@pytest.mark.req("I-10")
def test_an_export_does_not_depend_on_order_and_survives_the_wire(slices, annotations, policy, data):
    def build(shuffle):
        made = [slice_of(*shuffle(each), name=f"s{i}") for i, each in enumerate(slices)]
        nodes = dict(shuffle(list(NODES.items())))
        given = service(annotations=annotations, externalTrafficPolicy=policy)
        return export(given, *shuffle(made), node_addresses={IPV4: nodes})

    first = build(list)
    second = build(lambda items: data.draw(st.permutations(items)))
    assert first == second
    assert stored_load_balancer(first.load_balancer).spec == first.load_balancer.spec
    for slice_ in first.slices:
        stored = stored_slice(slice_)
        assert (stored.endpoints, stored.ports, stored.address_type) == (
            slice_.endpoints,
            slice_.ports,
            slice_.address_type,
        )
        assert object_from_slice(slice_)["addressType"] == slice_.address_type
    assert msgspec.convert(object_from_load_balancer(first.load_balancer), type=TCPLoadBalancer).spec.ports


@pytest.mark.req("K-4")
@pytest.mark.parametrize(
    ("families", "policy", "asked"),
    [
        (None, None, ((), "")),
        (["IPv4"], "SingleStack", ((), "")),
        (["IPv6"], "SingleStack", (("IPv6",), "")),
        (["IPv4", "IPv6"], "PreferDualStack", (("IPv4", "IPv6"), "PreferDualStack")),
        (["IPv6", "IPv4"], "RequireDualStack", (("IPv6", "IPv4"), "RequireDualStack")),
    ],
)
def test_the_families_of_a_service_are_asked_for_and_ipv4_alone_is_not_written(families, policy, asked):
    result = export(service(annotations=POD, ipFamilies=families, ipFamilyPolicy=policy))
    spec = result.load_balancer.spec
    assert (spec.ip_families, spec.ip_family_policy) == asked
    written = object_from_load_balancer(result.load_balancer)["spec"]
    assert ("ipFamilies" in written, "ipFamilyPolicy" in written) == (bool(asked[0]), bool(asked[1]))


@pytest.mark.req("CORE-03", "L4-2")
def test_endpoints_of_an_unreadable_service_follow_while_ports_are_known():
    before = export(service(annotations=POD), slice_of(endpoint("10.1.0.1")))
    at_hub = before.slices or ()

    def followed(*slices):
        readable = service_in_effect(before.load_balancer, slices, at_hub)
        view = ServiceView(service=readable, slices=slices, before=at_hub)
        followed_slices = slices_in_effect(view, before.load_balancer, SETTINGS)
        return None if followed_slices is None else addresses(Publication(before.load_balancer, followed_slices))

    assert followed(slice_of(endpoint("10.1.0.2"))) == [("10.1.0.2", True)]
    renamed = [{"name": "web", "port": 8080, "protocol": "TCP"}]
    assert followed(slice_of(endpoint("10.1.0.2"), ports=renamed)) is None
    assert followed(slice_of(ports=[])) == [], "no pod is left"
