"""Egress identities: which pods leave with which Service, and what the hub makes of it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

import msgspec
import pytest

from fairlead.api.kubernetes import Pod, PodIP, PodSpec, PodStatus, Service, ServiceSpec
from fairlead.api.meta import ObjectKey, ObjectMeta
from fairlead.api.names import LABEL_EGRESS, LABEL_MANAGED_BY, MANAGED_BY
from fairlead.translate.egress import (
    FIRST_PORT,
    INVALID_LABEL,
    LAST_PORT,
    NOT_POSSIBLE,
    Egress,
    EgressPods,
    EgressRequest,
    decide_egress,
    egress_pods,
    free_ports,
)
from fairlead.translate.endpoints import TargetPolicy

WEB = ObjectKey("shop", "web")
VIP, VIP6 = "192.0.2.10", "2001:db8::10"


def pod(
    name: str,
    *addresses: str,
    label: str = "web",
    phase: str = "Running",
    created: str = "2026-01-01T00:00:00Z",
    deleting: bool = False,
    host_network: bool = False,
) -> Pod:
    return Pod(
        ObjectMeta(
            name=name,
            namespace="shop",
            uid=name,
            labels={LABEL_EGRESS: label},
            creation_timestamp=created,
            deletion_timestamp="2026-01-02T00:00:00Z" if deleting else None,
        ),
        PodSpec(host_network=host_network),
        PodStatus(phase=phase, pod_ip=addresses[0] if addresses else None, pod_ips=[PodIP(ip=a) for a in addresses]),
    )


def service(name: str = "web", *, labels: Mapping[str, str] | None = None, kind: str = "LoadBalancer") -> Service:
    return Service(ObjectMeta(name=name, namespace="shop", labels=dict(labels or {})), ServiceSpec(type=kind))


def decided(*pods: Pod, services: tuple[Service, ...] = (service(),)) -> EgressPods:
    by_key = {each.key: each for each in services}
    return egress_pods(pods, by_key.get, lambda each: "" if each.spec.type == "LoadBalancer" else "type ClusterIP")


@pytest.mark.req("A-20")
@pytest.mark.req("A-49")
def test_a_service_has_the_addresses_of_its_labelled_pods_until_the_last_is_gone():
    first, second = pod("a", "10.0.0.1", "fd00::1"), pod("b", "10.0.0.2")
    assert decided(first, second).sources == {WEB: ("10.0.0.1", "10.0.0.2", "fd00::1")}
    assert decided(second).sources == {WEB: ("10.0.0.2",)}
    assert decided(pod("b", "10.0.0.2", deleting=True)).sources == {WEB: ("10.0.0.2",)}, "it still sends"
    for gone in (pod("b", "10.0.0.2", phase="Succeeded"), pod("b", "10.0.0.2", phase="Failed"), pod("b")):
        assert decided(gone) == EgressPods(), "no address, or one that another pod may have by now"
    assert decided().sources == {}


@pytest.mark.req("A-50")
@pytest.mark.parametrize(
    ("wrong", "reason", "text"),
    [
        (pod("p", "10.0.0.1", label=""), INVALID_LABEL, "''"),
        (pod("p", "10.0.0.1", label="Web"), INVALID_LABEL, "'Web'"),
        (pod("p", "10.0.0.1", label="other.web"), INVALID_LABEL, "'other.web'"),
        (pod("p", "10.0.0.1", label="ours"), INVALID_LABEL, "ours"),
        (pod("p", "10.0.0.1", label="missing"), NOT_POSSIBLE, "no Service missing"),
        (pod("p", "10.0.0.1", label="internal"), NOT_POSSIBLE, "ClusterIP"),
        (pod("p", "10.0.0.1", host_network=True), NOT_POSSIBLE, "hostNetwork"),
    ],
)
def test_a_label_that_cannot_be_followed_is_an_event_on_its_pod(wrong: Pod, reason: str, text: str):
    ours = service("ours", labels={LABEL_MANAGED_BY: MANAGED_BY})
    answer = decided(wrong, pod("good", "10.0.0.9"), services=(service(), ours, service("internal", kind="ClusterIP")))
    assert answer.sources == {WEB: ("10.0.0.9",)}
    event = answer.problems[wrong.key]
    assert (event.warning, event.reason) == (True, reason)
    assert text in event.message


@pytest.mark.req("A-50")
def test_an_address_of_two_pods_is_that_of_the_one_that_stays():
    leaves = pod("old", "10.0.0.1", label="api", deleting=True, created="2026-01-03T00:00:00Z")
    stays = pod("new", "10.0.0.1", created="2026-01-02T00:00:00Z")
    earlier = pod("older", "10.0.0.1", label="api")
    answer = decided(leaves, earlier, stays, services=(service(), service("api")))
    assert answer.sources == {WEB: ("10.0.0.1",)}
    assert set(answer.problems) == {leaves.key, earlier.key}


def request(
    name: str, text: str, *, created: str = "1", addresses: tuple[str, ...] = (VIP,), ranges: tuple[str, ...] = ()
) -> EgressRequest:
    networks = tuple(ipaddress.ip_network(each) for each in ranges)
    key = ObjectKey("east", name)
    return EgressRequest(f"east/{name}", (created, key), text, addresses, TargetPolicy(ranges=networks, ipv6=True))


def at_hub(
    *requests: EgressRequest, ports: Mapping[str, set[int]] | None = None, reserved: set[str] | None = None
) -> Egress:
    return decide_egress(requests, ports=ports or {}, reserved=reserved or set())


@pytest.mark.req("A-20")
def test_pods_leave_with_the_address_of_their_family():
    answer = at_hub(request("web", "10.0.0.1,fd00::1", addresses=(VIP, VIP6)))
    assert {each.address: each.sources for each in answer.identities} == {VIP: ("10.0.0.1",), VIP6: ("fd00::1",)}
    assert (answer.sources, answer.problems) == ({"east/web": 2}, {"east/web": ""})
    only4 = at_hub(request("web", "10.0.0.1,fd00::1"))
    assert only4.sources == {"east/web": 1}
    assert "IPv6" in only4.problems["east/web"]


@pytest.mark.req("A-50")
@pytest.mark.parametrize(
    "bad", ["", "web", "127.0.0.1", "0.0.0.0", "224.0.0.1", "169.254.1.1", "10.0.0.1/24", VIP, "10.9.9.9"]
)
def test_what_cannot_be_a_pod_of_the_member_is_left_out_and_named(bad: str):
    answer = at_hub(request("web", f"{bad},10.0.0.1", ranges=("10.0.0.0/24", "127.0.0.0/8")), reserved={VIP})
    assert [each.sources for each in answer.identities] == [("10.0.0.1",)]
    assert bad in answer.problems["east/web"]
    assert "targetRanges" in answer.problems["east/web"]


@pytest.mark.req("A-50")
def test_a_source_is_that_of_the_oldest_load_balancer():
    older, newer = (
        request("web", "10.0.0.1"),
        request("api", "10.0.0.1,10.0.0.2", created="2", addresses=("192.0.2.11",)),
    )
    for order in ((older, newer), (newer, older)):
        answer = at_hub(*order)
        by_address = {each.address: each.sources for each in answer.identities}
        assert by_address == {VIP: ("10.0.0.1",), "192.0.2.11": ("10.0.0.2",)}
        assert "10.0.0.1" in answer.problems["east/api"]
        assert answer.problems["east/web"] == ""
        assert answer.sources == {"east/web": 1, "east/api": 1}


def test_load_balancers_that_share_an_address_are_one_identity():
    answer = at_hub(request("web", "10.0.0.1"), request("api", "10.0.0.2"))
    assert [(each.address, each.sources) for each in answer.identities] == [(VIP, ("10.0.0.1", "10.0.0.2"))]


@pytest.mark.req("P-35")
def test_source_ports_are_apart_from_those_of_listeners():
    assert free_ports(()) == (FIRST_PORT, LAST_PORT)
    assert free_ports({80, 443, 65_000}) == (FIRST_PORT, LAST_PORT)
    assert free_ports({40_000}) == (40_001, LAST_PORT)
    assert free_ports({FIRST_PORT, LAST_PORT}) == (FIRST_PORT + 1, LAST_PORT - 1)
    crowded = set(range(FIRST_PORT, LAST_PORT + 1, 500))
    answer = at_hub(request("web", "10.0.0.1"), ports={VIP: crowded})
    assert answer.identities == ()
    assert answer.sources == {"east/web": 0}
    assert "too few" in answer.problems["east/web"]


def test_without_a_policy_what_leaves_stays_and_nothing_new_is_admitted():
    unknown = msgspec.structs.replace(request("web", "10.0.0.1"), policy=None)
    answer = at_hub(unknown, request("api", "10.0.0.2", addresses=("192.0.2.11",)))
    assert [each.address for each in answer.identities] == ["192.0.2.11"]
    assert answer.kept == (VIP,)
    assert "Tenant" in answer.problems["east/web"]
