"""The targets of a listener, and the addresses that may not be targets."""

from __future__ import annotations

import ipaddress

import msgspec
import pytest

from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.tcploadbalancer import LoadBalancerPort
from fairlead.model.keys import TargetKey
from fairlead.testing.builders import decoded, endpoint, endpoint_slice, slice_body
from fairlead.translate.endpoints import (
    Admission,
    EndpointState,
    TargetPolicy,
    admit,
    by_port,
    targets_from_nodes,
    targets_from_slices,
)

HTTP_PORT = LoadBalancerPort(80)
PLAIN = TargetPolicy()


def ready(*addresses):
    return dict.fromkeys(addresses, EndpointState.READY)


def states(*endpoints, port=HTTP_PORT, ports=None, policy=PLAIN):
    fields = {} if ports is None else {"ports": ports}
    slices = by_port([endpoint_slice("s", endpoints, **fields)])
    targets = targets_from_slices(slices.get((port.name, port.protocol), ()), Admission(policy), "shop/web")
    return {str(key): "draining" if target.draining else "ready" for key, target in targets.items()}


@pytest.mark.parametrize(
    ("listed", "state"),
    [
        pytest.param(endpoint("10.0.0.1", ready=True), "ready", id="ready"),
        pytest.param(endpoint("10.0.0.1"), "ready", id="says-nothing"),
        pytest.param({"addresses": ["10.0.0.1"]}, "ready", id="no-conditions"),
        pytest.param({"addresses": ["10.0.0.1"], "conditions": None}, "ready", id="null-conditions"),
        pytest.param(endpoint("10.0.0.1", ready=False), "draining", id="not-ready"),
        pytest.param(endpoint("10.0.0.1", ready=False, serving=False, terminating=True), "draining", id="going"),
    ],
)
def test_condition(listed, state):
    assert states(listed) == {"10.0.0.1:8080": state}


@pytest.mark.parametrize(
    "order", [(True, False), (False, True), (False, True, False)], ids=["ready-first", "ready-last", "in-between"]
)
def test_listed_twice_counts_once_and_ready_wins(order):
    assert states(*(endpoint("10.0.0.1", ready=ready) for ready in order)) == {"10.0.0.1:8080": "ready"}


@pytest.mark.parametrize("field", ["endpoints", "ports"])
def test_lists_may_be_null(field):
    body = slice_body("s", ["10.0.0.1"]) | {field: None}
    assert (
        targets_from_slices(by_port([decoded(body, EndpointSlice)]).get(("", "TCP"), ()), Admission(PLAIN), "shop/web")
        == {}
    )


@pytest.mark.parametrize(("number", "count"), [(-1, 0), (0, 0), (1, 1), (65_535, 1), (65_536, 0), (2**31 - 1, 0)])
def test_a_port_that_no_connection_can_have_is_left_out(number, count):
    assert len(states("10.0.0.1", ports=[{"name": "", "port": number, "protocol": "TCP"}])) == count


def test_an_endpoint_without_addresses_is_nothing():
    assert states({"addresses": None}, {"addresses": []}) == {}


def test_only_the_first_address_of_an_endpoint_counts():
    assert states({"addresses": ["10.0.0.1", "10.0.0.9"]}) == {"10.0.0.1:8080": "ready"}


@pytest.mark.req("KI-3")
class TestPorts:
    PORTS = (
        {"name": "http", "port": 8080, "protocol": "TCP"},
        {"name": "dns", "port": 5353, "protocol": "UDP"},
        {"name": "dns", "port": 5354, "protocol": "TCP"},
    )

    @pytest.mark.parametrize(
        ("port", "number"),
        [
            (LoadBalancerPort(80, "http"), 8080),
            (LoadBalancerPort(53, "dns", "UDP"), 5353),
            (LoadBalancerPort(53, "dns", "TCP"), 5354),
        ],
        ids=["tcp", "udp", "same-number-tcp"],
    )
    def test_by_name_and_protocol(self, port, number):
        assert states("10.0.0.1", port=port, ports=self.PORTS) == {f"10.0.0.1:{number}": "ready"}

    @pytest.mark.parametrize(
        "port", [LoadBalancerPort(80, "web"), LoadBalancerPort(80), LoadBalancerPort(80, "http", "UDP")]
    )
    def test_no_match_gives_no_target(self, port):
        assert states("10.0.0.1", port=port, ports=self.PORTS) == {}

    def test_a_port_without_a_number_is_not_a_target(self):
        assert states("10.0.0.1", ports=[{"name": "", "protocol": "TCP"}]) == {}

    def test_a_port_without_a_protocol_is_tcp(self):
        assert states("10.0.0.1", ports=[{"port": 8080}]) == {"10.0.0.1:8080": "ready"}


class TestAdmit:
    @pytest.mark.parametrize(
        "raw",
        ["127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0", "fe80::1", "::1", "ff02::1", "::", "::ffff:127.0.0.1",
         "::ffff:169.254.169.254", "2001:db8::1%eth0"],
    )  # fmt: skip
    def test_local_and_multicast_addresses_are_refused(self, raw):
        assert admit(raw, TargetPolicy(ipv6=True)) is None

    @pytest.mark.req("K-4")
    def test_ipv6_is_refused_unless_the_provider_serves_it(self):
        assert admit("2001:db8::1", TargetPolicy()) is None
        assert admit("2001:DB8::0:1", TargetPolicy(ipv6=True)) == "2001:db8::1"

    def test_loopback_is_allowed_where_everything_is_one_machine(self):
        assert admit("127.0.0.5", TargetPolicy(loopback=True)) == "127.0.0.5"

    @pytest.mark.req("S-6")
    @pytest.mark.parametrize(
        "raw",
        [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "169.254.169.254",
            "fe80::1",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "ff02::1",
            "0.1.2.3",
            "255.255.255.255",
            "::ffff:0.0.0.1",
            "::ffff:255.255.255.255",
            # An IPv4 address inside: NAT64, 6to4, Teredo (server and client), IPv4-compatible.
            "64:ff9b::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b::224.0.0.1",
            "64:ff9b::",
            "64:ff9b:1::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "2002:7f00:1::",
            "2002:7f00:1::1",
            "2002:a9fe:a9fe::1",
            "2002::1",
            "2001:0:7f00:1::1",
            "2001:0:a00:1:0:0:80ff:fffe",
            "::127.0.0.1",
            "::169.254.169.254",
            "::2",
            # A zone: an interface of one machine.
            "fe80::1%eth0",
            "2001:db8::1%eth0",
            "::1%lo",
            "::ffff:127.0.0.1%1",
            "127.0.0.1%lo",
        ],
    )
    def test_no_range_opens_the_hub_itself(self, raw):
        wide = tuple(map(ipaddress.ip_network, ("0.0.0.0/0", "::/0")))
        assert admit(raw, TargetPolicy(ranges=wide, ipv6=True, host_names=True)) is None
        assert admit(raw, TargetPolicy(ipv6=True, host_names=True)) is None
        only = (ipaddress.ip_network("169.254.20.0/24"),)
        assert admit("169.254.20.1", TargetPolicy(ranges=only)) == "169.254.20.1", "named as such by the operator"

    @pytest.mark.parametrize(
        "raw", ["64:ff9b::808:808", "2002:808:808::1", "2001:0:808:808::f7f7:f7f7", "::8.8.8.8", "2001:db8::7f00:1"]
    )
    def test_addresses_that_embed_a_global_address_may_be_targets(self, raw):
        assert admit(raw, TargetPolicy(ipv6=True)) == str(ipaddress.ip_address(raw))

    def test_loopback_inside_of_another_address_is_refused_on_one_machine_too(self):
        assert admit("64:ff9b::127.0.0.1", TargetPolicy(ipv6=True, loopback=True)) is None
        assert admit("2002:7f00:1::1", TargetPolicy(ipv6=True, loopback=True)) is None

    def test_ranges_replace_the_default(self):
        policy = TargetPolicy(ranges=(ipaddress.ip_network("10.1.0.0/16"),))
        assert admit("10.1.2.3", policy) == "10.1.2.3"
        assert admit("10.2.0.1", policy) is None
        assert admit("web.example.com", msgspec.structs.replace(policy, host_names=True)) is None

    @pytest.mark.parametrize(
        ("raw", "name"),
        [
            ("Web.Example.COM", "web.example.com"),
            ("web.example.com.", "web.example.com"),
            ("db", "db"),
            ("my-localhost.example.com", "my-localhost.example.com"),
        ],
    )
    def test_a_host_name_is_canonical(self, raw, name):
        assert admit(raw, TargetPolicy(host_names=True)) == name

    @pytest.mark.parametrize(
        "raw",
        ["localhost", "x.localhost", "127.1", "0x7f.1", "2130706433", "010.0.0.1", "a b", "", "-x.example", "256.1.1.1",
         "a" * 64 + ".com"],
    )  # fmt: skip
    def test_names_that_look_like_addresses_are_not_host_names(self, raw):
        assert admit(raw, TargetPolicy(host_names=True)) is None

    @pytest.mark.parametrize(
        "raw",
        ["LOCALHOST", "localhost.", "a.b.localhost", "localhost.localdomain", "localhost.localdomain.", "localhost4",
         "localhost6.localdomain6", "ip6-localhost", "ip6-loopback", "loopback", "localhost.example.com"],
    )  # fmt: skip
    def test_loopback_names_are_not_targets(self, raw):
        assert admit(raw, TargetPolicy(host_names=True, loopback=True)) is None

    def test_host_names_only_where_the_provider_resolves_them(self):
        assert admit("web.example.com", TargetPolicy()) is None

    def test_refused_addresses_are_collected(self):
        admission = Admission(PLAIN)
        targets_from_slices([(endpoint_slice("s", ["10.0.0.1", "127.0.0.1", "FE80::1"]), 8080)], admission, "shop/web")
        targets_from_nodes(ready("169.254.0.1", "10.0.0.1"), 30080, admission)
        assert admission.refused == {"127.0.0.1", "FE80::1", "169.254.0.1"}


def test_a_few_slices_and_ports_do_not_make_targets_without_end():
    admission = Admission(PLAIN, limit=5)
    slices = by_port([endpoint_slice("s", ["10.0.0.1", "10.0.0.2", "10.0.0.3"])])
    per_port = [targets_from_slices(slices["", "TCP"], admission, "shop/web") for _ in range(3)]
    assert [len(targets) for targets in per_port] == [3, 2, 0]
    assert targets_from_nodes(ready("10.0.0.9"), 30080, admission) == {}
    assert admission.full


@pytest.mark.req("K-14", "K-30")
def test_each_node_is_a_target_at_the_node_port():
    targets = targets_from_nodes(ready("10.0.0.2", "10.0.0.1"), 30080, Admission(PLAIN))
    assert set(targets) == {TargetKey("10.0.0.1", 30080), TargetKey("10.0.0.2", 30080)}
    assert not any(target.draining for target in targets.values())
