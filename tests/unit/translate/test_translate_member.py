"""Common to all load balancers that members request: owner, version to serve, targets, staleness."""

from __future__ import annotations

import ipaddress

import msgspec
import pytest

from fairlead.api.intent import Allocation
from fairlead.api.tcploadbalancer import Origin
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import GuardPolicy, Owner, Target
from fairlead.model.health import HealthCheck
from fairlead.model.keys import IPV4, IPV6, ListenerKey, Protocol, TargetKey
from fairlead.testing.builders import ABLE, HTTP, desired, lb_class, target, tcp, tcp_view, tenant
from fairlead.translate.endpoints import admit
from fairlead.translate.member import (
    as_accepted,
    build_stale,
    count_targets,
    desired_load_balancer,
    nothing_to_serve,
    owner_of,
    target_policy,
    usable_allocation,
    version_to_serve,
)
from fairlead.translate.view import MemberState, refused

ALLOCATED = Allocation(address="192.0.2.7")
REFUSED = refused(ConditionReason.INVALID, "spec.ports[0].port is 0")
EXHAUSTED = Condition(ConditionType.PROGRAMMED, False, ConditionReason.ADDRESS_POOL_EXHAUSTED, "the pool is empty")
REFUSED_EDIT = msgspec.structs.replace(EXHAUSTED, type=ConditionType.ACCEPTED)
ACCEPTED = {"accepted": {"ports": [{"port": 80}]}, "allocation": {"address": "192.0.2.7"}}


def owner(name="shop.web", origin=None, *, status=None, **fields):
    view = tcp_view(tcp(name, status=status), **fields)
    return owner_of(view, view.load_balancer.metadata, origin or Origin("Service", "shop", "web", "u"))


@pytest.mark.parametrize(
    ("name", "origin", "expected"),
    [
        ("shop.web", Origin("Service", "shop", "web", "u"), "Service/shop/web"),
        ("shop.web", Origin("Service", "victim", "web", "u"), "TCPLoadBalancer/tenant-east/shop.web"),
        ("a.b.c", Origin("Service", "a.b", "c", "u"), "TCPLoadBalancer/tenant-east/a.b.c"),
        ("a.b.c", Origin("Service", "a", "b.c", "u"), "TCPLoadBalancer/tenant-east/a.b.c"),
        ("web", Origin(), "TCPLoadBalancer/tenant-east/web"),
    ],
)
@pytest.mark.req("S-3")
def test_the_origin_counts_when_the_name_proves_it(name, origin, expected):
    kind, namespace, of = expected.split("/")
    assert owner(name, origin) == Owner("east", kind, namespace, of, f"uid-{name}")


def test_without_a_tenant_no_member_is_the_owner():
    assert owner(tenant=None) == Owner("", "TCPLoadBalancer", "tenant-east", "shop.web", "uid-shop.web")


@pytest.mark.parametrize(("provider", "uid"), [("memory", "first"), ("other", "uid-shop.web")])
def test_the_uid_stays_the_one_that_its_provider_was_given_first(provider, uid):
    asked = {"group": "g", "listeners": [], "owner": {"uid": "first"}}
    status = {"provisioned": [{"provider": "memory", "state": "Ensured", "serving": True, "asked": asked}]}
    assert owner(status=status, load_balancer_class=lb_class(provider=provider)).uid == uid


def gives(problem: Condition | None = None, allocation: Allocation = ALLOCATED):
    """Return an allocator that gives this."""
    return lambda _view: (allocation, problem)


def test_the_version_to_serve_is_the_present_one_when_all_is_well():
    view = tcp_view()
    served, refusal, allocation = version_to_serve(view, None, None, gives())
    assert served == msgspec.structs.replace(view, allocation=ALLOCATED)
    assert (refusal, allocation) == (None, ALLOCATED)


@pytest.mark.parametrize(
    ("refusal", "problem", "why"),
    [(REFUSED, None, REFUSED), (None, EXHAUSTED, REFUSED_EDIT), (REFUSED, EXHAUSTED, REFUSED)],
)
def test_what_cannot_be_served_gives_way_to_what_was_last_accepted(refusal, problem, why):
    before, now = lb_class("before"), lb_class("now")
    view = tcp_view(tcp(status=ACCEPTED), load_balancer_class=now, accepted_class=before, allocation=Allocation())
    accepted = view.load_balancer.status.accepted
    served, reason, _ = version_to_serve(view, refusal, accepted, gives(problem, Allocation()))
    assert served is not None
    assert (served.load_balancer_class, served.allocation) == (before, ALLOCATED), "class and address of that version"
    assert reason == why, "an edit without an address is refused, and a refused spec has no say about addresses"


def test_a_refused_spec_is_given_nothing():
    asked = []
    version_to_serve(tcp_view(), REFUSED, None, lambda view: asked.append(view) or (ALLOCATED, None))
    assert asked == []


@pytest.mark.parametrize(
    ("status", "accepted_class"), [({}, lb_class()), (ACCEPTED, None)], ids=["never accepted", "its class is gone"]
)
def test_a_missing_version_is_allowed(status, accepted_class):
    view = tcp_view(tcp(status=status), accepted_class=accepted_class)
    accepted = view.load_balancer.status.accepted
    assert version_to_serve(view, None, accepted, gives(EXHAUSTED))[:2] == (None, EXHAUSTED)
    assert version_to_serve(view, REFUSED, accepted, gives(EXHAUSTED))[:2] == (None, REFUSED)


CHECK = {"intervalSeconds": 0.5, "timeoutSeconds": 2.0, "unhealthyThreshold": 4, "healthyThreshold": 5}
ASKED = {"parameters": {"zone": "a"}, "healthCheck": CHECK}


@pytest.mark.parametrize(
    ("class_there", "asked", "behaviour"),
    [
        (True, ASKED, ({"pool": "b"}, HealthCheck(5.0, 1.0, 2, 1))),
        (False, ASKED, ({"zone": "a"}, HealthCheck(0.5, 2.0, 4, 5))),
        (False, {}, ({}, None)),
        (False, None, ({}, HealthCheck(5.0, 1.0, 2, 1))),
    ],
    ids=["the class is there", "gone", "gone, without checks", "gone, nothing on record"],
)
def test_served_load_balancers_keep_their_recorded_parameters(class_there, asked, behaviour):
    entry = {"provider": "memory", "state": "Ensured", "serving": True} | ({} if asked is None else {"asked": asked})
    accepted_class = lb_class("gold", spec={"parameters": {"pool": "b"}}) if class_there else None
    view = tcp_view(tcp(status={**ACCEPTED, "provisioned": [entry]}), accepted_class=accepted_class)
    served = as_accepted(view)
    assert served is not None
    assert served.provider == "memory"
    assert (dict(served.behaviour.parameters), served.behaviour.health_check) == behaviour


def test_nothing_to_serve_says_whether_the_spec_or_the_address_is_the_reason():
    view = tcp_view()
    of_spec = nothing_to_serve(view, REFUSED, Allocation())
    assert (of_spec.desired, of_spec.provider) == (None, "memory")
    assert of_spec.conditions == (REFUSED, msgspec.structs.replace(REFUSED, type=ConditionType.PROGRAMMED))
    of_address = nothing_to_serve(view, EXHAUSTED, Allocation())
    assert of_address.desired is None
    assert [(item.type, item.status) for item in of_address.conditions] == [
        (ConditionType.ACCEPTED, True),
        (ConditionType.PROGRAMMED, False),
    ]


@pytest.mark.parametrize(("kind", "usable"), [(AllocationKind.NONE, Allocation()), (AllocationKind.ADDRESS, ALLOCATED)])
def test_a_provider_that_needs_no_allocation_gets_none(kind, usable):
    capable = msgspec.structs.replace(ABLE, allocation=kind)
    assert usable_allocation(tcp_view(capabilities=capable, allocation=ALLOCATED)) == usable


def test_an_allocation_is_kept_while_the_provider_is_not_known():
    view = tcp_view(load_balancer_class=lb_class(provider="not running"), allocation=ALLOCATED)
    assert usable_allocation(view) == ALLOCATED


def test_where_targets_may_be():
    capable = msgspec.structs.replace(ABLE, host_name_targets=True, ipv6=True)
    ranges = {"targetRanges": ["10.1.2.3/8", "nonsense"]}
    policy = target_policy(tcp_view(capabilities=capable, tenant=tenant(spec=ranges), loopback_targets=True))
    admitted, unreadable = policy.ranges
    assert admitted == ipaddress.ip_network("10.0.0.0/8"), "also when it is not written from its first address on"
    assert unreadable == ipaddress.ip_network("255.255.255.255/32"), "admits nothing, and opens nothing"
    assert (policy.loopback, policy.host_names, policy.ipv6) == (True, True, True)


@pytest.mark.req("S-2")
@pytest.mark.parametrize(
    ("on_hub_machine", "address", "hub_allows_loopback", "tenant_allows_names", "names", "loopback"),
    [
        (True, "192.0.2.1", False, False, False, False),
        (True, "192.0.2.1", False, True, True, False),
        (True, "127.0.1.1", True, False, True, True),
        # An AddressPool that others reach, next to --address-pool on loopback.
        (True, "192.0.2.1", True, False, False, False),
        (False, "192.0.2.1", False, False, True, False),
    ],
)
def test_public_listeners_never_lead_to_loopback(
    on_hub_machine, address, hub_allows_loopback, tenant_allows_names, names, loopback
):
    """A name of the member's own domain led to the hub's page, with all that other members have there."""
    capable = msgspec.structs.replace(
        ABLE, host_name_targets=True, on_hub_machine=on_hub_machine, allocation=AllocationKind.ADDRESS
    )
    view = tcp_view(
        capabilities=capable,
        tenant=tenant(spec={"hostNameTargets": tenant_allows_names}),
        loopback_targets=hub_allows_loopback,
        allocation=msgspec.structs.replace(ALLOCATED, address=address),
    )
    policy = target_policy(view)
    assert (policy.host_names, policy.loopback) == (names, loopback)
    assert (admit("hub.attacker.example", policy) is not None) == names
    assert (admit("127.0.0.1", policy) is not None) == loopback


def test_without_tenant_and_provider_the_strictest_policy_applies():
    policy = target_policy(tcp_view(tenant=None, load_balancer_class=lb_class(provider="not running")))
    assert (policy.ranges, policy.loopback, policy.host_names, policy.ipv6) == ((), False, False, False)


def test_the_class_says_how_changes_are_made():
    spec = {"drain": "2m", "guard": {"maxRemovalPercent": 30, "minBackends": 2}}
    view = tcp_view(load_balancer_class=lb_class(spec=spec), stale="the cache is behind")
    like = desired([target("1")])
    built = desired_load_balancer(view, like.spec, like.targets, paused=True)
    assert (built.spec, built.targets) == (like.spec, like.targets)
    assert (built.drain_s, built.guard, built.stale, built.paused) == (
        120.0,
        GuardPolicy(30, 2),
        "the cache is behind",
        True,
    )


def test_the_guard_does_not_keep_an_operator_from_draining_a_member():
    view = tcp_view(member=MemberState("its lease has expired", drained=True))
    built = desired_load_balancer(view, desired().spec, {}, paused=False)
    assert built.guard == GuardPolicy(100, 0)


@pytest.mark.parametrize(
    ("nodes_stale", "message", "nodes", "reason"),
    [
        ("", "", (IPV4, IPV6), None),
        ("", "lost", (IPV4, IPV6), ConditionReason.MEMBER_LOST),
        ("all unready", "", (IPV4, IPV6), ConditionReason.ALL_NODES_NOT_READY),
        ("all unready", "lost", (IPV4, IPV6), ConditionReason.ALL_NODES_NOT_READY),
        ("all unready", "", (), None),
        ("all unready", "", (IPV6,), None),
        ("all unready", "lost", (), ConditionReason.MEMBER_LOST),
    ],
)
def test_stale_is_a_member_that_is_lost_or_nodes_that_are_out_of_date(nodes_stale, message, nodes, reason):
    stale = build_stale(tcp_view(nodes_stale=nodes_stale, member=MemberState(message)), nodes=nodes)
    assert (stale.reason if stale is not None else None) == reason
    if stale is not None:
        assert stale.status
        assert stale.message == (message if reason is ConditionReason.MEMBER_LOST else nodes_stale)


def test_a_target_of_several_listeners_counts_once_and_is_ready_when_it_is_for_any():
    first, second = target("1"), target("2", draining=True)
    other: dict[TargetKey, Target] = {each.key: each for each in (target("1", draining=True), second)}
    of_http = {each.key: each for each in (first, second)}
    assert count_targets({HTTP: of_http, ListenerKey(Protocol.TCP, 443): other}) == "1/2"
    assert count_targets({}) == "0/0"


@pytest.mark.req("L4-7")
@pytest.mark.parametrize("admitted", ["10.0.0.1", "10.0.0.1/32", "10.0.0.9/24"])
def test_target_ranges_are_cidrs_or_addresses(admitted):
    view = tcp_view(tenant=tenant(spec={"targetRanges": [admitted]}))
    (network,) = target_policy(view).ranges
    assert ipaddress.ip_address("10.0.0.1") in network
