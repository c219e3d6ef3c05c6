"""Which EndpointSlices a load balancer has at the hub, for each kind of backends."""

from __future__ import annotations

import msgspec
import pytest
from agent_builders import HUB_NAMESPACE, TENANT, endpoint, service, slice_of

from fairlead.agent.slices import (
    MAX_ENDPOINTS_PER_SLICE,
    Departed,
    SliceTemplate,
    address_slices,
    local_slices,
    mirror_slices,
    of_one_family,
)
from fairlead.agent.sources.caches import is_of_service
from fairlead.api.kubernetes import Endpoint, EndpointSlice
from fairlead.api.meta import OwnerReference
from fairlead.model.keys import IPV4, IPV6
from fairlead.publish.objects import canonical_slice, make_conditions

TEMPLATE = SliceTemplate(("shop", "web"), HUB_NAMESPACE, TENANT)
ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2"}


def local(*slices, addresses=ADDRESSES, before=()):
    made = local_slices(TEMPLATE, slices, IPV4, addresses=addresses, before=before)
    return [(e.addresses[0], e.conditions.ready) for each in made for e in each.endpoints]


DUAL = [{"ip": "2001:db8::7"}, {"ip": "203.0.113.7"}]


@pytest.mark.req("K-4")
def test_slices_of_the_service_s_families_are_mirrored_in_order_of_their_names():
    slices = (
        slice_of(endpoint("10.1.0.2"), name="b"),
        slice_of(endpoint("10.1.0.1"), name="a"),
        slice_of(endpoint("fd00::1"), name="c", address_type="IPv6"),
        slice_of(endpoint("x.example.com"), name="d", address_type="FQDN"),
    )
    mirrored = mirror_slices(TEMPLATE, slices, ("IPv4",))
    assert [each.metadata.name for each in mirrored] == ["shop.web.pod.a", "shop.web.pod.b"]
    assert {each.label("fairlead.dev/load-balancer") for each in mirrored} == {"shop.web"}
    assert {each.metadata.namespace for each in mirrored} == {HUB_NAMESPACE}
    both = [(each.metadata.name, each.address_type) for each in mirror_slices(TEMPLATE, slices, ("IPv6", "IPv4"))]
    assert both == [("shop.web.pod.a", "IPv4"), ("shop.web.pod.b", "IPv4"), ("shop.web.pod.c", "IPv6")]


def test_a_node_is_as_ready_as_the_best_of_its_endpoints():
    first = slice_of(endpoint("10.1.0.1", node="a", ready=False), endpoint("10.1.0.2", node="b", ready=False), name="x")
    second = slice_of(endpoint("10.1.0.3", node="a", ready=True), name="y")
    assert local(first, second) == [("10.0.0.1", True), ("10.0.0.2", False)]


def test_a_node_without_an_address_keeps_the_one_it_had_while_the_service_names_it():
    of_member = slice_of(endpoint("10.1.0.1", node="a"), endpoint("10.1.0.2", node="gone"))
    before = local_slices(TEMPLATE, [of_member], IPV4, addresses={**ADDRESSES, "gone": "10.0.0.9"}, before=())
    assert local(of_member) == [("10.0.0.1", True)]
    assert local(of_member, before=before) == [("10.0.0.1", True), ("10.0.0.9", True)]
    assert local(slice_of(endpoint("10.1.0.1", node="a")), before=before) == [("10.0.0.1", True)]


@pytest.mark.req("K-4", "K-33")
def test_local_nodes_of_a_family_have_endpoints_of_it():
    slices = [
        slice_of(endpoint("10.1.0.1", node="a")),
        slice_of(endpoint("fd00:1::2", node="b"), name="six", address_type="IPv6"),
    ]
    (four,) = local_slices(TEMPLATE, slices, IPV4, addresses=ADDRESSES, before=())
    (six,) = local_slices(TEMPLATE, slices, IPV6, addresses={"a": "fd00::1", "b": "fd00::2"}, before=())
    assert (four.metadata.name, four.address_type) == ("shop.web.local.0", "IPv4")
    assert (six.metadata.name, six.address_type) == ("shop.web.local.ipv6.0", "IPv6")
    assert [[each.addresses for each in made.endpoints or ()] for made in (four, six)] == [
        [["10.0.0.1"]],
        [["fd00::2"]],
    ]
    # An address at the hub does not count as the last known one of the other family.
    (again,) = local_slices(TEMPLATE, slices, IPV6, addresses={}, before=(four,))
    assert again.endpoints == []


def test_no_endpoints_are_one_empty_slice():
    assert [each.endpoints for each in local_slices(TEMPLATE, (), IPV4, addresses={}, before=())] == [[]]
    addresses = {f"n{number}": f"10.{number >> 8}.{number & 255}.1" for number in range(MAX_ENDPOINTS_PER_SLICE + 1)}
    many = slice_of(*(endpoint(f"10.1.0.{number}", node=node) for number, node in enumerate(addresses)))
    made = local_slices(TEMPLATE, [many], IPV4, addresses=addresses, before=())
    assert [len(each.endpoints or ()) for each in made] == [MAX_ENDPOINTS_PER_SLICE, 1]


@pytest.mark.parametrize(
    ("ingress", "expected"),
    [
        (None, []),
        ([{"ip": "fd00::1"}], []),
        ([{"ip": "203.0.113.8"}, {"ip": "203.0.113.7"}], [("IPv4", ["203.0.113.7", "203.0.113.8"])]),
        ([{"hostname": "lb.example.com"}], [("FQDN", ["lb.example.com"])]),
        (
            [{"ip": "203.0.113.7"}, {"hostname": "lb.example.com"}],
            [("FQDN", ["lb.example.com"]), ("IPv4", ["203.0.113.7"])],
        ),
        ([{"ip": "203.0.113.7", "hostname": "lb.example.com"}], [("IPv4", ["203.0.113.7"])]),
        (DUAL, [("IPv4", ["203.0.113.7"]), ("IPv6", ["2001:db8::7"])]),
    ],
)
def test_the_member_s_own_load_balancer_is_the_backend(ingress, expected):
    families = ["IPv6", "IPv4"] if ingress == DUAL else None
    made = address_slices(TEMPLATE, service(ingress=ingress, ipFamilies=families))
    assert [(each.address_type, [e.addresses[0] for e in each.endpoints]) for each in made] == expected
    assert all([(port.name, port.port) for port in each.ports] == [("http", 80)] for each in made)


def test_backends_of_requests_are_of_ipv4_unless_only_ipv6_has_endpoints():
    four, six = slice_of(endpoint("10.1.0.1"), name="a"), slice_of(endpoint("fd00::1"), name="b", address_type="IPv6")
    none = slice_of(name="c")
    assert of_one_family([six, four]) == [four]
    assert of_one_family([none, six]) == [six]
    assert of_one_family([none]) == [none]


def pods(name, of="web", **uids):
    """Return a slice of a Service in which each address (a number) is a pod."""
    listed = [
        {"addresses": [f"10.1.0.{number[1:]}"], "targetRef": {"kind": "Pod", "name": uid, "uid": uid}}
        for number, uid in uids.items()
    ]
    raw = slice_of(name=name, service_name=of)
    with_pods = msgspec.structs.replace(raw, endpoints=msgspec.convert(listed, type=list[Endpoint]))
    return canonical_slice(with_pods, targets=True)


@pytest.mark.req("L4-2")
class TestDeparted:
    KEY = ("shop", "web")

    def departed(self, *, other):
        """Return what of Service web, whose list is empty now, is another pod's by the slice ``other``."""
        known, before, after = Departed(), pods("a", "web", _1="first"), pods("a", "web")
        known.note(self.KEY, None, before)
        known.note(self.KEY, before, after)
        return known, [each.endpoints[0] for each in known.reused(self.KEY, [after, other])]

    def test_an_address_that_another_pod_has_is_reported_as_gone(self):
        known, (gone,) = self.departed(other=pods("b", "api", _1="second"))
        assert gone.addresses == ["10.1.0.1"]
        assert (gone.conditions.ready, gone.conditions.serving, gone.conditions.terminating) == (False, False, True)
        assert known.waiting_for(pods("b", "api", _1="second")) == {self.KEY}
        assert known.waiting_for(pods("b", "api", _2="second")) == set()

    @pytest.mark.parametrize("other", [pods("b", "api", _1="first"), pods("b", "api", _2="second"), pods("b", "api")])
    def test_a_list_that_may_be_wrong_is_not_believed(self, other):
        _, gone = self.departed(other=other)
        assert gone == []

    @pytest.mark.req("L4-8")
    def test_replaced_pods_are_reported_by_their_address(self):
        known, _ = self.departed(other=pods("b", "api"))
        again = pods("a", "web", _3="third")
        known.note(self.KEY, pods("a", "web"), again)
        (gone,) = known.reused(self.KEY, [again, pods("b", "api", _1="second")])
        assert gone.endpoints[0].addresses == ["10.1.0.1"]

    def test_a_pod_that_was_reported_as_terminating_has_not_departed(self):
        known, before = Departed(), pods("a", "web", _1="first")
        going = [
            msgspec.structs.replace(each, conditions=make_conditions(ready=False, serving=True, terminating=True))
            for each in before.endpoints
        ]
        known.note(self.KEY, before, terminating := msgspec.structs.replace(before, endpoints=going))
        known.note(self.KEY, terminating, pods("a", "web"))
        assert known.waiting_for(pods("b", "api", _1="second")) == set()

    @pytest.mark.parametrize(
        ("published", "reported"),
        [
            (pods("pod", "web", _1="first"), ["10.1.0.1"]),
            (pods("pod", "web", _1="second"), []),  # the same pod, which another Service selects now
            (pods("pod", "web", _1=""), []),  # published by an earlier release, without uids
            (pods("pod", "web", _3="third"), []),
        ],
    )
    def test_what_left_while_no_agent_ran_is_known_from_what_was_published(self, published, reported):
        known, present, other = Departed(), pods("a", "web", _3="third"), pods("b", "api", _1="second")
        known.note_published(self.KEY, [published], [present])
        gone = known.reused(self.KEY, [present, other])
        assert [address for each in gone for address in each.endpoints[0].addresses] == reported
        known.note_published(self.KEY, [pods("pod", "web", _1="fourth")], [present])
        assert known.reused(self.KEY, [present, other]) == gone, "all later changes are seen"

    def test_a_service_that_is_gone_is_forgotten(self):
        known, _ = self.departed(other=pods("b", "api"))
        known.forget(self.KEY)
        assert known.waiting_for(pods("b", "api", _1="second")) == set()


@pytest.mark.req("L4-9")
def test_slices_of_an_earlier_service_of_the_name_are_not_read() -> None:
    def owned(name: str, uid: str) -> EndpointSlice:
        raw = slice_of(name=name, service_name="web")
        owners = [OwnerReference(api_version="v1", kind="Service", name="web", uid=uid)] if uid else []
        meta = msgspec.structs.replace(raw.metadata, owner_references=owners)
        return msgspec.structs.replace(raw, metadata=meta)

    assert [each for each in ("first", "second", "") if is_of_service(owned("a", each), "second")] == ["second", ""]
