"""What a TCPLoadBalancer comes to: the happy case, and everything that is served on although something is wrong."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.intent import Allocation, ProxyPort
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import AllocationKind, Capabilities
from fairlead.model.desired import Affinity, GuardPolicy, Listener, Owner, ProxyProtocol
from fairlead.model.health import OutlierDetection
from fairlead.model.keys import IPV6, ListenerKey, Protocol, TargetKey
from fairlead.testing.builders import ABLE, PLAIN, endpoint, endpoint_slice, lb_class, lb_key, tcp, tcp_view, tenant
from fairlead.translate.endpoints import MAX_TARGETS
from fairlead.translate.member import decide_tcp
from fairlead.translate.view import ChecksLimit, MemberState, says_no_ready

ACCEPTED = {"ports": [{"port": 80, "nodePort": 30080}]}
KNOWN = {"accepted": ACCEPTED, "allocation": {"address": "192.0.2.7"}}
BAD = {"loadBalancerSourceRanges": ["nonsense"]}


def conditions(built):
    return {item.type: item for item in built.conditions}


def places(built, port=80, protocol=Protocol.TCP):
    return {str(key) for key in built.desired.targets[ListenerKey(protocol, port)]}


def addresses(built, port=80, protocol=Protocol.TCP):
    return {key.address for key in built.desired.targets[ListenerKey(protocol, port)]}


@pytest.mark.req("K-10", "K-30")
def test_a_load_balancer_of_nodes():
    built = decide_tcp(tcp_view(allocation=Allocation(address="192.0.2.7")))
    assert built.provider == "memory"
    assert built.targets == "nodes"
    assert built.desired.spec.address == "192.0.2.7"
    assert built.desired.spec.group == "tenant-east"
    assert built.desired.spec.listeners == (Listener(80),)
    assert {str(key) for key in built.desired.targets[ListenerKey(Protocol.TCP, 80)]} == {
        "10.0.0.1:30080",
        "10.0.0.2:30080",
    }
    assert built.desired.stale == ""
    assert {item.type for item in built.conditions} == {ConditionType.ACCEPTED, ConditionType.RESOLVED_REFS}
    assert all(item.status for item in built.conditions)


@pytest.mark.req("KI-3", "KI-4")
def test_a_load_balancer_of_pods_with_tcp_and_udp_on_one_number():
    load_balancer = tcp(
        ports=[{"port": 53, "name": "dns", "protocol": "UDP"}, {"port": 53, "name": "dns", "protocol": "TCP"}],
        spec={"targets": "Pod"},
    )
    ports = [{"name": "dns", "port": 5353, "protocol": "UDP"}, {"name": "dns", "port": 5354, "protocol": "TCP"}]
    slices = [endpoint_slice("s", ["10.1.0.1", endpoint("10.1.0.2", ready=False)], load_balancer="web", ports=ports)]
    built = decide_tcp(tcp_view(load_balancer, slices=slices))
    assert [listener.key for listener in built.desired.spec.listeners] == [
        ListenerKey(Protocol.TCP, 53),
        ListenerKey(Protocol.UDP, 53),
    ]
    assert {str(key) for key in built.desired.targets[ListenerKey(Protocol.UDP, 53)]} == {
        "10.1.0.1:5353",
        "10.1.0.2:5353",
    }
    assert built.targets == "2/4"


#: The nodes of a region in which "a" has both families, "b" IPv4 and "c" IPv6.
FOUR = [{**endpoint("10.0.0.1"), "nodeName": "a"}, {**endpoint("10.0.0.2"), "nodeName": "b"}]
SIX = [{**endpoint("fd00::1"), "nodeName": "a"}, {**endpoint("fd00::3"), "nodeName": "c"}]
PAIR = [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]]


@pytest.mark.req("K-4", "K-30")
@pytest.mark.parametrize(
    ("targets", "listed", "families", "ipv6", "expected"),
    [
        ("Address", (FOUR, SIX), ["IPv4", "IPv6"], True, {"10.0.0.1", "10.0.0.2", "fd00::3"}),
        ("Address", (FOUR, SIX), ["IPv6", "IPv4"], True, {"fd00::1", "10.0.0.2", "fd00::3"}),
        ("Address", (FOUR, SIX), ["IPv6", "IPv4"], False, {"10.0.0.1", "10.0.0.2"}),
        ("Address", (FOUR, SIX), [], True, {"10.0.0.1", "10.0.0.2"}),
        # A cloud's load balancer has no node: one target, whatever its addresses are.
        ("Address", PAIR, ["IPv6", "IPv4"], True, {"fd00::1", "fd00::2"}),
        ("Pod", PAIR, ["IPv4", "IPv6"], True, {"10.0.0.1", "10.0.0.2"}),
        ("Pod", (FOUR, SIX), ["IPv4", "IPv6"], True, {"10.0.0.1", "10.0.0.2"}),
    ],
)
def test_targets_of_both_families_are_reached_in_one(targets, listed, families, ipv6, expected):
    load_balancer = tcp(spec={"targets": targets, "ipFamilies": families, "ipFamilyPolicy": "PreferDualStack"})
    of = {"load_balancer": "web"}
    four, six = listed
    slices = [endpoint_slice("four", four, **of), endpoint_slice("six", six, family=IPV6, **of)]
    built = decide_tcp(tcp_view(load_balancer, slices=slices, capabilities=Capabilities(ipv6=ipv6)))
    assert addresses(built) == expected


@pytest.mark.req("K-4", "K-30")
@pytest.mark.parametrize(
    ("families", "nodes"),
    [
        (["IPv4", "IPv6"], ""),
        (["IPv6"], "nodes without an IPv6 address take no traffic (b)"),
        ([], "IPv4 address take no traffic (c)"),
    ],
)
def test_a_region_s_nodes_without_the_families_of_the_service_are_named(families, nodes):
    load_balancer = tcp(spec={"targets": "Address", "ipFamilies": families})
    of = {"load_balancer": "web"}
    slices = [endpoint_slice("four", FOUR, **of), endpoint_slice("six", SIX, family=IPV6, **of)]
    built = decide_tcp(tcp_view(load_balancer, slices=slices, capabilities=Capabilities(ipv6=True)))
    condition = conditions(built)[ConditionType.RESOLVED_REFS]
    assert (condition.status, nodes in condition.message) == (not nodes, True)


@pytest.mark.req("S-6")
def test_a_load_balancer_is_not_a_backend_of_any_load_balancer():
    ports = [{"port": 8099, "protocol": "TCP", "name": ""}]
    load_balancer = tcp(ports=[{"port": 8099, "protocol": "TCP"}], spec={"targets": "Pod"})
    slices = [endpoint_slice("s", ["192.0.2.7", "192.0.2.8", "10.1.0.1"], load_balancer="web", ports=ports)]
    own, another = TargetKey("192.0.2.7", 8099), TargetKey("192.0.2.8", 8099)
    answering = {own: {lb_key("web")}, another: {lb_key("db", namespace="tenant-west")}}
    built = decide_tcp(tcp_view(load_balancer, slices=slices, given=answering))
    assert addresses(built, 8099) == {"10.1.0.1"}
    message = conditions(built)[ConditionType.RESOLVED_REFS].message
    assert "are load balancers themselves are left out (192.0.2.7:8099, its own address, 192.0.2.8:8099)" in message
    assert set(built.desired.excluded_targets) == {own, another}
    # A node that has the address of a load balancer is reached at another port.
    answering = {TargetKey("192.0.2.7", 80): {lb_key("web")}}
    built = decide_tcp(tcp_view(load_balancer, slices=slices, given=answering))
    assert addresses(built, 8099) == {"192.0.2.7", "192.0.2.8", "10.1.0.1"}


@pytest.mark.req("K-4", "K-30")
def test_an_unreachable_cloud_address_is_not_a_node_problem():
    load_balancer = tcp(
        spec={"targets": "Address", "ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "PreferDualStack"}
    )
    four, six = PAIR
    of = {"load_balancer": "web"}
    slices = [endpoint_slice("four", four, **of), endpoint_slice("six", six, family=IPV6, **of)]
    built = decide_tcp(tcp_view(load_balancer, slices=slices, capabilities=Capabilities()))
    assert addresses(built) == set(four)
    assert conditions(built)[ConditionType.RESOLVED_REFS].status


def test_everything_that_the_user_and_the_class_say_is_carried_over():
    load_balancer = tcp(
        "shop.web",
        spec={
            "loadBalancerSourceRanges": ["192.0.2.9/24", "10.0.0.0/8", "192.0.2.0/24"],
            "sessionAffinity": "ClientIP",
            "proxyProtocol": "v2",
            "externalTrafficPolicy": "Local",
            "origin": {"kind": "Service", "namespace": "shop", "name": "web", "uid": "u"},
        },
    )
    spec = {
        "drain": "5m",
        "guard": {"maxRemovalPercent": 20, "minBackends": 3},
        "parameters": {"b": "2", "a": "1"},
        "healthCheck": {"interval": "500ms", "timeout": "1s", "unhealthyThreshold": 4},
    }
    desired = decide_tcp(tcp_view(load_balancer, load_balancer_class=lb_class(spec=spec))).desired
    assert desired.spec.source_ranges == ("10.0.0.0/8", "192.0.2.0/24")
    assert desired.spec.affinity is Affinity.CLIENT_IP
    assert desired.spec.proxy_protocol is ProxyProtocol.V2
    assert desired.spec.local_traffic_only
    assert desired.spec.owner == Owner("east", "Service", "shop", "web", "uid-shop.web")
    assert list(desired.spec.parameters) == ["a", "b"]
    assert (desired.spec.health_check.interval_s, desired.spec.health_check.unhealthy_threshold) == (0.5, 4)
    assert desired.drain_s == 300.0
    assert desired.guard == GuardPolicy(20, 3)


def test_without_an_origin_the_object_itself_is_the_owner():
    assert decide_tcp(tcp_view()).desired.spec.owner == Owner(
        "east", "TCPLoadBalancer", "tenant-east", "web", "uid-web"
    )


def test_health_checks_may_be_off():
    view = tcp_view(load_balancer_class=lb_class(spec={"healthCheck": {"disabled": True}}))
    assert decide_tcp(view).desired.spec.health_check is None


def test_proxy_ports_are_those_on_record():
    load_balancer = tcp(ports=[{"port": 80, "nodePort": 1}, {"port": 443, "nodePort": 2}])
    allocation = Allocation(ports=[ProxyPort(80, "TCP", 10080), ProxyPort(443, "TCP", 10443)])
    built = decide_tcp(tcp_view(load_balancer, allocation=allocation))
    assert [listener.bind_port for listener in built.desired.spec.listeners] == [10080, 10443]


@pytest.mark.req("I-7")
class TestRefused:
    def test_never_accepted_gets_nothing_and_a_reason(self):
        built = decide_tcp(tcp_view(tcp(spec=BAD)))
        assert built.desired is None
        assert conditions(built)[ConditionType.ACCEPTED].reason is ConditionReason.INVALID
        assert not conditions(built)[ConditionType.PROGRAMMED].status

    def test_the_last_accepted_version_is_served_on(self):
        load_balancer = tcp(ports=[{"port": 81, "nodePort": 30081}], spec=BAD, status=KNOWN)
        built = decide_tcp(tcp_view(load_balancer))
        assert built.serving_last_accepted
        assert [listener.port for listener in built.desired.spec.listeners] == [80]
        assert built.desired.spec.address == "192.0.2.7"
        accepted = conditions(built)[ConditionType.ACCEPTED]
        assert not accepted.status
        assert accepted.message.endswith("the last accepted version is served until then")

    def test_with_what_is_on_record_whatever_the_refused_version_was_given(self):
        load_balancer = tcp(spec=BAD, status=KNOWN)
        built = decide_tcp(tcp_view(load_balancer, allocation=Allocation(address="192.0.2.99")))
        assert built.desired.spec.address == "192.0.2.7"

    def test_by_the_class_it_was_accepted_with(self):
        load_balancer = tcp(spec={"className": "gold"}, status=KNOWN)
        built = decide_tcp(tcp_view(load_balancer, load_balancer_class=lb_class("gold", provider="not-run-here")))
        assert built.provider == "memory"
        assert built.desired is not None

    def test_also_when_the_class_it_asks_for_is_not_there(self):
        built = decide_tcp(tcp_view(tcp(spec={"className": "gone"}, status=KNOWN), load_balancer_class=None))
        assert built.provider == "memory"
        assert built.desired is not None
        assert conditions(built)[ConditionType.ACCEPTED].reason is ConditionReason.NO_SUCH_CLASS

    def test_a_served_one_that_cannot_get_another_address_keeps_the_one_it_has(self):
        problem = Condition(ConditionType.PROGRAMMED, False, ConditionReason.PORT_CONFLICT, "192.0.2.8 is taken")
        load_balancer = tcp(spec={"address": "192.0.2.8"}, status=KNOWN)
        built = decide_tcp(tcp_view(load_balancer), lambda view: (view.allocation, problem))
        assert built.desired.spec.address == "192.0.2.7"
        assert built.serving_last_accepted
        accepted = conditions(built)[ConditionType.ACCEPTED]
        assert (accepted.status, accepted.reason) == (False, problem.reason)
        assert ConditionType.PROGRAMMED not in conditions(built), "the hub sees whether the earlier version is"

    def test_a_new_one_that_cannot_get_an_address_is_accepted_and_not_programmed(self):
        problem = Condition(ConditionType.PROGRAMMED, False, ConditionReason.ADDRESS_POOL_EXHAUSTED, "all taken")
        built = decide_tcp(tcp_view(), lambda view: (view.allocation, problem))
        assert built.desired is None
        assert built.condition(ConditionReason.ADDRESS_POOL_EXHAUSTED) == problem
        assert conditions(built)[ConditionType.ACCEPTED].status


@pytest.mark.req("K-33")
class TestLocal:
    def test_only_ready_nodes_with_a_local_endpoint_get_traffic(self):
        load_balancer = tcp(spec={"externalTrafficPolicy": "Local"})
        slices = [endpoint_slice("s", ["10.0.0.2", "10.0.0.3"], load_balancer="web", ports=None)]
        assert addresses(decide_tcp(tcp_view(load_balancer, slices=slices))) == {"10.0.0.2"}

    def test_without_a_local_endpoint_there_is_a_reason(self):
        built = decide_tcp(tcp_view(tcp(spec={"externalTrafficPolicy": "Local"})))
        resolved = conditions(built)[ConditionType.RESOLVED_REFS]
        assert (resolved.status, resolved.reason) == (False, ConditionReason.BACKEND_NOT_FOUND)
        assert resolved.message == "no ready node for TCP/80"
        assert says_no_ready(resolved.reason, resolved.message)


@pytest.mark.req("I-1")
class TestStale:
    def test_a_broken_cache_freezes_removals(self):
        assert decide_tcp(tcp_view(stale="endpointslices: 503")).desired.stale == "endpointslices: 503"

    @pytest.mark.req("K-18")
    def test_old_nodes_are_served_and_reported(self):
        stale = conditions(decide_tcp(tcp_view(nodes_stale="no node is Ready since 12:00")))[ConditionType.STALE]
        assert (stale.status, stale.reason) == (True, ConditionReason.ALL_NODES_NOT_READY)

    def test_old_nodes_do_not_concern_pods(self):
        built = decide_tcp(tcp_view(tcp(spec={"targets": "Pod"}), nodes_stale="x"))
        assert ConditionType.STALE not in conditions(built)

    @pytest.mark.req("KI-7")
    def test_a_silent_member_is_served_on_and_reported(self):
        built = decide_tcp(tcp_view(member=MemberState("last heard at noon")))
        assert addresses(built) == {"10.0.0.1", "10.0.0.2"}
        assert conditions(built)[ConditionType.STALE].message == "last heard at noon"

    def test_a_silent_member_keeps_its_guard(self):
        """Only draining is the operator's intention; the guard is for silence."""
        view = tcp_view(
            load_balancer_class=lb_class(spec={"guard": {"maxRemovalPercent": 20, "minBackends": 3}}),
            member=MemberState("last heard at noon"),
        )
        assert decide_tcp(view).desired.guard == GuardPolicy(20, 3)

    def test_a_drained_member_has_no_targets_and_no_guard(self):
        built = decide_tcp(tcp_view(member=MemberState("drained", drained=True)))
        assert addresses(built) == set()
        assert built.desired.guard == GuardPolicy(100, 0)
        assert built.desired.drain_s > 0

    @pytest.mark.req("MC-18")
    def test_a_dropped_member_has_no_drain_time(self):
        built = decide_tcp(tcp_view(member=MemberState("dropped", drained=True, dropped=True)))
        assert addresses(built) == set()
        assert (built.desired.guard, built.desired.drain_s) == (GuardPolicy(100, 0), 0.0)


class TestPaused:
    @pytest.mark.parametrize(("value", "paused"), [("true", True), ("", True), ("yes", True), ("false", False)])
    @pytest.mark.req("I-10")
    def test_by_annotation(self, value, paused):
        built = decide_tcp(tcp_view(tcp(annotations={"fairlead.dev/paused": value})))
        assert built.desired.paused is paused
        assert (ConditionType.PAUSED in conditions(built)) is paused


class TestRefusedAddresses:
    def test_are_named_and_the_others_served(self):
        built = decide_tcp(tcp_view(nodes=["10.0.0.1", "127.0.0.1", "169.254.1.1", "224.0.0.1", "0.0.0.0"]))
        assert addresses(built) == {"10.0.0.1"}
        resolved = conditions(built)[ConditionType.RESOLVED_REFS]
        assert resolved.reason is ConditionReason.INVALID
        assert resolved.message.startswith("addresses that may not be backends")
        assert "and more" in resolved.message
        assert "spec.targetRanges" in resolved.message

    def test_the_tenants_ranges_are_all_there_is(self):
        view = tcp_view(tenant=tenant(spec={"targetRanges": ["10.0.0.1/32"]}))
        assert addresses(decide_tcp(view)) == {"10.0.0.1"}

    def test_an_unreadable_range_admits_nothing(self):
        assert addresses(decide_tcp(tcp_view(tenant=tenant(spec={"targetRanges": ["oops"]})))) == set()

    @pytest.mark.req("K-4")
    def test_ipv6_nodes_without_ipv6_in_the_class_are_reported(self):
        built = decide_tcp(tcp_view(nodes=["10.0.0.1", ("six", "2001:db8::1")], capabilities=PLAIN))
        assert addresses(built) == {"10.0.0.1"}
        assert "(six)" in conditions(built)[ConditionType.RESOLVED_REFS].message


# --- properties --------------------------------------------------------------------------------------------------

some_endpoints = st.lists(
    st.builds(endpoint, st.integers(1, 9).map(lambda n: f"10.1.0.{n}"), ready=st.sampled_from([None, True, False])),
    max_size=6,
)


@given(st.lists(some_endpoints, max_size=4), st.permutations([80, 443, 8443]), st.randoms(use_true_random=False))
def test_the_same_view_in_any_order_is_the_same_answer(parts, numbers, rng: random.Random):
    def answer(order, shuffled):
        ports = [{"port": number, "name": f"p{number}"} for number in order]
        slice_ports = [{"port": number + 8000, "name": f"p{number}", "protocol": "TCP"} for number in order]
        slices = [endpoint_slice(f"s{n}", part, ports=slice_ports) for n, part in enumerate(shuffled)]
        return decide_tcp(tcp_view(tcp(ports=ports, spec={"targets": "Pod"}), slices=slices))

    first = answer([80, 443, 8443], parts)
    mixed = [rng.sample(part, len(part)) for part in parts]
    second = answer(numbers, rng.sample(mixed, len(mixed)))
    assert second.desired == first.desired
    assert second.targets == first.targets
    assert second.conditions == first.conditions
    assert answer([80, 443, 8443], parts) == first


@given(st.sampled_from([BAD, {"address": "x"}, {"className": "gone"}, {"proxyProtocol": "v1"}]), st.booleans())
@pytest.mark.req("I-7")
def test_a_bad_version_never_changes_what_is_served(spec, with_ports):
    good = decide_tcp(tcp_view(tcp(status=KNOWN)))
    ports = [{"port": 9, "nodePort": 9} if with_ports else {"port": 80, "nodePort": 30080}]
    load_balancer = tcp(ports=ports, spec=spec, status=KNOWN)
    plain = msgspec.structs.replace(PLAIN, allocation=AllocationKind.ADDRESS)
    bad = decide_tcp(
        tcp_view(
            load_balancer, load_balancer_class=None if spec == {"className": "gone"} else lb_class(), capabilities=plain
        )
    )
    assert not conditions(bad)[ConditionType.ACCEPTED].status or spec.get("proxyProtocol") is None
    assert bad.desired == good.desired


def test_targets_beyond_the_limit_are_reported():
    ports = [{"port": number, "name": f"p{number}"} for number in range(1, 257)]
    listed = [endpoint(f"10.1.{number // 250}.{number % 250 + 1}") for number in range(400)]
    in_slice = [{"name": port["name"], "port": port["port"], "protocol": "TCP"} for port in ports]
    slices = [endpoint_slice("s", listed, load_balancer="web", ports=in_slice)]
    built = decide_tcp(tcp_view(tcp(ports=ports, spec={"targets": "Pod"}), slices=slices))
    assert sum(map(len, built.desired.targets.values())) == MAX_TARGETS
    said = conditions(built)[ConditionType.RESOLVED_REFS]
    assert (said.status, said.reason) == (False, ConditionReason.QUOTA_EXCEEDED)
    assert "more than 100,000 endpoints" in said.message
    assert "several load balancers" in said.message


#: All that the conditions of one endpoint can be: (ready, serving, terminating), each of them also unset.
CONDITIONS = tuple(itertools.product((None, False, True), repeat=3))
#: The four states in which kube-proxy knows an endpoint, one of each.
STATES = ((True, True, False), (False, True, True), (False, False, True), (False, True, False))


def kube_proxy(listed):
    """Return the endpoints that kube-proxy sends new connections to: (address, conditions) of one Service port."""
    ready, terminating = set(), set()
    for address, (is_ready, is_serving, is_terminating) in listed:
        if is_ready is not False:
            ready.add(address)
        elif is_serving is not False and is_terminating:
            terminating.add(address)
    return ready or terminating


def endpoint_at(address, conditions, **fields):
    named = zip(("ready", "serving", "terminating"), conditions, strict=True)
    return {"addresses": [address], "conditions": {name: value for name, value in named if value is not None}, **fields}


def serving(built, protocol):
    (targets,) = (targets for key, targets in built.desired.targets.items() if key.protocol is protocol)
    return {key.address for key, each in targets.items() if not each.draining}


@pytest.mark.req("L4-1")
class TestEndpointsAsKubeProxyReadsThem:
    """Every combination of conditions, by kind of target, traffic policy, protocol, and place in slices."""

    @pytest.mark.parametrize("protocol", list(Protocol))
    @pytest.mark.parametrize("policy", ["Cluster", "Local"])
    @pytest.mark.parametrize("split", [False, True], ids=["one-slice", "two-slices"])
    def test_pods(self, protocol, policy, split):
        port = {"port": 80, "protocol": protocol.value}
        load_balancer = tcp(ports=[port], spec={"targets": "Pod", "externalTrafficPolicy": policy})
        ports = [{"name": "", "port": 8080, "protocol": protocol.value}]
        for first, second in itertools.product(CONDITIONS, repeat=2):
            listed = [("10.0.0.1", first), ("10.0.0.2", second)]
            endpoints = [endpoint_at(*each) for each in listed]
            shares = [endpoints[:1], endpoints[1:]] if split else [endpoints]
            slices = [endpoint_slice(f"s{at}", share, ports=ports) for at, share in enumerate(shares)]
            built = decide_tcp(tcp_view(load_balancer, slices=slices))
            assert serving(built, protocol) == kube_proxy(listed), listed
            assert len(built.desired.targets[ListenerKey(protocol, 80)]) == 2, "those that do not serve are drained"
            resolved = conditions(built)[ConditionType.RESOLVED_REFS]
            assert resolved.status == bool(kube_proxy(listed))

    @pytest.mark.parametrize("protocol", list(Protocol))
    def test_an_address_in_two_slices_has_the_better_state(self, protocol):
        port = {"port": 80, "protocol": protocol.value}
        ports = [{"name": "", "port": 8080, "protocol": protocol.value}]
        load_balancer = tcp(ports=[port], spec={"targets": "Pod"})
        for first, second, other in itertools.product(STATES, repeat=3):
            slices = [
                endpoint_slice("a", [endpoint_at("10.0.0.1", first), endpoint_at("10.0.0.2", other)], ports=ports),
                endpoint_slice("b", [endpoint_at("10.0.0.1", second)], ports=ports),
            ]
            best = min(STATES.index(first), STATES.index(second))
            expected = kube_proxy([("10.0.0.1", STATES[best]), ("10.0.0.2", other)])
            assert serving(decide_tcp(tcp_view(load_balancer, slices=slices)), protocol) == expected

    def test_each_port_is_a_set_of_its_own(self):
        load_balancer = tcp(ports=[{"port": 80, "name": "a"}, {"port": 81, "name": "b"}], spec={"targets": "Pod"})
        slices = [
            endpoint_slice("a", [endpoint_at("10.0.0.1", STATES[0])], ports=[{"name": "a", "port": 1}]),
            endpoint_slice("b", [endpoint_at("10.0.0.2", STATES[1])], ports=[{"name": "b", "port": 2}]),
        ]
        targets = decide_tcp(tcp_view(load_balancer, slices=slices)).desired.targets
        assert {key.port: [each.draining for each in by_key.values()] for key, by_key in targets.items()} == {
            80: [False],
            81: [False],
        }

    @pytest.mark.parametrize("protocol", list(Protocol))
    def test_nodes_with_local_traffic_only_have_the_state_of_their_own_endpoints(self, protocol):
        port = {"port": 80, "protocol": protocol.value, "nodePort": 30080}
        load_balancer = tcp(ports=[port], spec={"externalTrafficPolicy": "Local"})
        for first, second in itertools.product(CONDITIONS, repeat=2):
            listed = [("10.0.0.1", first), ("10.0.0.2", second), ("10.0.0.9", STATES[0])]
            slices = [endpoint_slice("s", [endpoint_at(*each) for each in listed], ports=None)]
            built = decide_tcp(tcp_view(load_balancer, slices=slices))
            # The third has a ready endpoint, but is not a node that is Ready.
            assert serving(built, protocol) == kube_proxy(listed[:2]), listed

    @pytest.mark.parametrize("protocol", list(Protocol))
    def test_nodes_of_the_whole_cluster_serve_whatever_the_endpoints_are(self, protocol):
        port = {"port": 80, "protocol": protocol.value, "nodePort": 30080}
        for state in STATES:
            slices = [endpoint_slice("s", [endpoint_at("10.0.0.1", state)], ports=None)]
            built = decide_tcp(tcp_view(tcp(ports=[port]), slices=slices))
            assert serving(built, protocol) == {"10.0.0.1", "10.0.0.2"}

    def test_a_pod_of_both_families_that_only_terminates_is_reached_in_one(self):
        load_balancer = tcp(spec={"targets": "Pod", "ipFamilies": ["IPv4", "IPv6"]})
        slices = [
            endpoint_slice("four", [endpoint_at("10.0.0.1", STATES[1])]),
            endpoint_slice("six", [endpoint_at("fd00::1", STATES[1])], family=IPV6),
        ]
        both = msgspec.structs.replace(PLAIN, ipv6=True)
        assert serving(decide_tcp(tcp_view(load_balancer, slices=slices, capabilities=both)), Protocol.TCP) == {
            "10.0.0.1"
        }


@pytest.mark.req("L4-9")
def test_endpoints_of_an_earlier_service_of_the_name_are_not_served():
    origin = {"kind": "Service", "namespace": "shop", "name": "web", "uid": "second"}
    load_balancer = tcp("shop.web", spec={"targets": "Pod", "origin": origin})

    def of_uid(uid, address):
        listed = endpoint_slice(uid or "unknown", [address])
        labels = {"fairlead.dev/origin-uid": uid} if uid else {}
        return msgspec.structs.replace(listed, metadata=msgspec.structs.replace(listed.metadata, labels=labels))

    slices = [of_uid("first", "10.0.0.1"), of_uid("second", "10.0.0.2"), of_uid("", "10.0.0.3")]
    desired = decide_tcp(tcp_view(load_balancer, slices=slices)).desired
    targets = desired.targets[ListenerKey(Protocol.TCP, 80)]
    assert {key.address for key in targets} == {"10.0.0.2", "10.0.0.3"}
    assert {owner for each in targets.values() for owner in each.owners} == {"Service/shop/web/second"}
    assert desired.owners == {ListenerKey(Protocol.TCP, 80): {"Service/shop/web/second"}}


@pytest.mark.req("F-11", "F-13")
def test_a_health_check_of_its_own_counts_before_that_of_the_class():
    asked = {"healthCheck": {"path": "/healthz", "interval": "2s"}, "outlierDetection": {"consecutive5xx": 5}}
    spec = decide_tcp(tcp_view(tcp(spec=asked))).desired.spec
    assert spec.health_check.request.path == "/healthz"
    assert (spec.health_check.interval_s, spec.health_check.timeout_s) == (2.0, 1.0)
    assert spec.outlier_detection == OutlierDetection(consecutive_5xx=5)
    assert decide_tcp(tcp_view(tcp(spec={"healthCheck": {"type": "none"}}))).desired.spec.health_check is None


@pytest.mark.req("F-11")
@pytest.mark.parametrize(
    ("check", "capabilities", "parts"),
    [
        ({"interval": "0s"}, ABLE, ["spec.healthCheck: interval is '0s'", "1s to 5m"]),
        ({"path": "healthz"}, ABLE, ["spec.healthCheck: path is 'healthz'", "slash"]),
        ({"type": "tcp", "path": "/x"}, ABLE, ["spec.healthCheck: path needs type http"]),
        ({"type": "http"}, PLAIN, ["spec.healthCheck: health checks of this class cannot be set", "envoy"]),
        (
            {"type": "grpc"},
            msgspec.structs.replace(ABLE, health_checks=frozenset({"tcp"})),
            ["tcp checks and no grpc checks"],
        ),
    ],
)
def test_a_wrong_health_check_is_refused_and_the_last_good_one_stays(check, capabilities, parts):
    status = {**KNOWN, "accepted": {**ACCEPTED, "healthCheck": {"path": "/good"}}}
    built = decide_tcp(tcp_view(tcp(spec={"healthCheck": check}, status=status), capabilities=capabilities))
    refusal = conditions(built)[ConditionType.ACCEPTED]
    assert (refusal.status, refusal.reason) == (False, ConditionReason.INVALID)
    assert all(part in refusal.message for part in parts), refusal.message
    assert built.desired.spec.health_check.request.path == "/good"


@pytest.mark.req("F-11")
def test_a_member_above_its_limit_has_its_targets_checked_less_often():
    limited = tenant(spec={"maxChecksPerSecond": 10})
    load_balancer = tcp(spec={"healthCheck": {"interval": "1s"}})
    asked = decide_tcp(tcp_view(load_balancer, tenant=limited))
    # Two nodes, each checked once a second to balance and once to report.
    assert asked.checks_per_s == 4.0
    assert ConditionType.CHECKS_SLOWED not in conditions(asked)
    slowed = decide_tcp(tcp_view(load_balancer, tenant=limited, checks=ChecksLimit(4, 32.0)))
    assert slowed.checks_per_s == 4.0, "what is asked for, not what is made"
    assert slowed.desired.spec.health_check.interval_s == 4.0
    said = conditions(slowed)[ConditionType.CHECKS_SLOWED]
    assert (said.status, said.reason) == (True, ConditionReason.QUOTA_EXCEEDED)
    assert all(part in said.message for part in ("4 times", "32", "spec.maxChecksPerSecond", "10"))
    # Without a limit nothing is counted, and nothing differs.
    assert decide_tcp(tcp_view(load_balancer)).checks_per_s == 0.0
