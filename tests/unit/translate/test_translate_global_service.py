"""A GlobalService and the load balancers of its members become one desired load balancer, and what users see of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.api.drill import Drill
from fairlead.api.globalservice import GlobalService
from fairlead.api.intent import Allocation
from fairlead.api.names import hub_name
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.model.contract import AllocationKind
from fairlead.model.desired import Spillover
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from fairlead.model.observed import MemberSeen
from fairlead.testing.builders import ABLE, decoded, endpoint_slice, lb_class, tcp, tcp_view, tenant
from fairlead.translate.global_service import (
    decide_global,
    member_statuses,
    open_ports,
    shared_backends,
    shares_in_line,
)
from fairlead.translate.view import GlobalView, MemberShare, MemberState, Returning

KEY = LoadBalancerKey("GlobalService", "tenant-east", "web")
SERVICE = "shop/web"
HTTP = ListenerKey(Protocol.TCP, 80)
WITH_ADDRESS = msgspec.structs.replace(ABLE, allocation=AllocationKind.ADDRESS)
#: It knows the weights of targets, and no members.
WEIGHING = msgspec.structs.replace(WITH_ADDRESS, localities=False)


def part(member, *endpoints, ports=({"port": 80},), state=None):
    """Return the view of the load balancer of a member's Service, whose backends are pods."""
    namespace = f"tenant-{member}"
    name = hub_name(*SERVICE.split("/"))
    origin = {"kind": "Service", "namespace": "shop", "name": "web"}
    load_balancer = tcp(name, namespace=namespace, ports=ports, spec={"targets": "Pod", "origin": origin})
    slices = tuple(
        endpoint_slice(f"{member}-{port['port']}", endpoints, load_balancer=name, namespace=namespace,
                       ports=[{"port": 8000 + port["port"], "protocol": "TCP", "name": port.get("name", "")}])
        for port in ports
    )  # fmt: skip
    view = tcp_view(load_balancer, slices=slices, tenant=tenant(member))
    return msgspec.structs.replace(view, member=state or MemberState())


def view(
    members, parts, *, capabilities=WITH_ADDRESS, status=None, down=(), returning=None, at=None, regions=(), **spec
):
    """Return a view; ``members`` are (Tenant, further fields), ``at`` is where the class is, ``regions`` of members."""
    listed = [{"tenant": name, **fields} for name, fields in members.items()]
    meta = {"name": "web", "namespace": "tenant-east", "uid": "u", "generation": 1}
    parsed = decoded(
        {"metadata": meta, "spec": {"service": SERVICE, "members": listed, **spec}, "status": status or {}},
        GlobalService,
    )
    opened = msgspec.structs.replace(parsed.spec, ports=open_ports(parsed.spec, parts.values()))
    return GlobalView(
        key=KEY,
        load_balancer=msgspec.structs.replace(parsed, spec=opened),
        tenant=tenant("east"),
        load_balancer_class=lb_class(spec=at),
        providers={"memory": capabilities},
        nodes=next(iter(parts.values())).nodes if parts else tcp_view(tcp()).nodes,
        allocation=Allocation(address="192.0.2.1"),
        accepted_class=lb_class() if status else None,
        tenants={
            name: tenant(name, spec={"region": dict(regions).get(name, "")})
            for name in (*parts, *(name for name in members if name != "nobody"))
        },
        parts={(name, SERVICE): each for name, each in parts.items()},
        down=frozenset(down),
        returning=returning or {},
    )


def decide(members, parts, **fields):
    return decide_global(view(members, parts, **fields), lambda given: (given.allocation, None))


def localities(decision):
    assert decision.desired is not None
    assert decision.desired.spec.shares is not None
    return {each.name: (each.weight, each.tier) for each in decision.desired.spec.shares.localities}


def condition(decision, type_=ConditionType.RESOLVED_REFS):
    return next(each for each in decision.conditions if each.type is type_)


def states(decision):
    return {member.tenant: member.state for member in decision.members}


WEST, EAST = part("west", "10.1.0.1"), part("east", "10.2.0.1", "10.2.0.2")


@pytest.mark.req("MC-9", "MC-10")
def test_members_become_localities_of_one_load_balancer():
    decision = decide({"west": {"weight": 60}, "east": {"weight": 30}}, {"west": WEST, "east": EAST})
    assert localities(decision) == {"west": (60, 0), "east": (30, 0)}
    targets = decision.desired.targets[HTTP]
    assert {key.address: target.locality for key, target in targets.items()} == {
        "10.1.0.1": "west",
        "10.2.0.1": "east",
        "10.2.0.2": "east",
    }
    assert condition(decision).status is True
    assert decision.targets == "3/3"


@pytest.mark.req("MC-13")
@pytest.mark.parametrize("drained", ["member", "tenant"])
def test_targets_of_a_drained_member_drain_where_connections_are_closed(drained):
    fields = {"drain": True} if drained == "member" else {}
    gone = MemberState("Tenant west is being removed", drained=True) if drained == "tenant" else None
    members, parts = {"west": fields, "east": {}}, {"west": part("west", "10.1.0.1", state=gone), "east": EAST}
    for drain, expected in (("", set()), ("5m", {"west"})):
        seen = view(members, parts, drain=drain)
        decision, shared = decide_global(seen, lambda given: (given.allocation, None)), shared_backends(seen)
        backend = shared["tenant-east", SERVICE]["", "TCP"]
        assert decision.desired.spec.drain_s == backend.shares.drain_s == (300.0 if drain else None)
        for targets in (decision.desired.targets[HTTP], backend.targets):
            assert {target.locality for target in targets.values() if target.draining} == expected
        assert decision.targets == "3/3"
        assert states(decision) == {"west": "Draining", "east": "Standby"}


@pytest.mark.req("MC-10")
def test_gaps_between_priorities_are_closed():
    members = {"west": {"priority": 4}, "east": {"priority": 9}}
    assert localities(decide(members, {"west": WEST, "east": EAST})) == {"west": (100, 0), "east": (100, 1)}


NORTH = part("north", "10.3.0.1")
REGIONS = {"west": "us-1", "east": "eu-1", "north": "eu-2"}


@pytest.mark.req("MC-17")
@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ({"region": "eu-1"}, {"east": (50, 0), "west": (60, 1), "north": (10, 2)}),
        ({"region": "eu-1", "nearRegions": ["eu-2"]}, {"east": (50, 0), "north": (10, 1), "west": (60, 2)}),
        ({"region": "us-1", "nearRegions": ["eu-1", "eu-2"]}, {"west": (60, 0), "east": (50, 1), "north": (10, 2)}),
        # Without a member nearby, priorities decide as they do without a region.
        ({"region": "asia"}, {"west": (60, 0), "east": (50, 0), "north": (10, 1)}),
    ],
)
def test_members_in_the_region_of_the_proxies_come_first(at, expected):
    members = {"west": {"weight": 60}, "east": {"weight": 50}, "north": {"weight": 10, "priority": 1}}
    fields: dict[str, Any] = {"at": at, "regions": REGIONS, "trafficDistribution": "PreferSameRegion"}
    parts = {"west": WEST, "east": EAST, "north": NORTH}
    decision = decide(members, parts, **fields)
    assert localities(decision) == expected
    shared = shared_backends(view(members, parts, **fields))["tenant-east", SERVICE]["", "TCP"]
    assert shared.shares == decision.desired.spec.shares
    farther = {member.tenant for member in decision.members if member.why}
    assert farther == {name for name, (_, tier) in expected.items() if tier and REGIONS[name] != at["region"]}


@pytest.mark.req("MC-13", "MC-17")
def test_a_drain_is_judged_by_the_members_that_are_nearest():
    members = {"west": {"maxShare": 90}, "east": {"drain": True}, "north": {}}
    fields: dict[str, Any] = {"regions": REGIONS, "trafficDistribution": "PreferSameRegion"}
    parts = {"west": WEST, "east": EAST, "north": NORTH}
    assert condition(decide(members, parts, **fields, at={"region": "eu-1"}), ConditionType.ACCEPTED).status
    refusal = condition(decide(members, parts, **fields, at={"region": "us-1"}), ConditionType.ACCEPTED)
    assert "west would get 100 %" in refusal.message


@pytest.mark.req("MC-10", "MC-13")
@pytest.mark.parametrize("fields", [{"weight": 0}, {"drain": True}])
def test_a_member_without_a_share_keeps_its_targets_and_no_tier(fields):
    decision = decide({"west": {"priority": 0, **fields}, "east": {"priority": 1}}, {"west": WEST, "east": EAST})
    assert localities(decision) == {"west": (0, 0), "east": (100, 0)}
    assert TargetKey("10.1.0.1", 8080) in decision.desired.targets[HTTP]


@pytest.mark.req("MC-13")
def test_a_member_whose_tenant_is_drained_gets_no_new_connections():
    gone = part("west", "10.1.0.1", state=MemberState("Tenant west is being removed", drained=True))
    decision = decide({"west": {}, "east": {}}, {"west": gone, "east": EAST})
    assert localities(decision) == {"west": (0, 0), "east": (100, 0)}
    assert states(decision)["west"] == "Draining"


def drilled(mode, members, parts, **fields):
    """Return the decision while a drill takes west out of service."""
    body = {"metadata": {"name": "d"}, "spec": {"member": "west", "mode": mode}, "status": {"endsAt": "18:00"}}
    shown = msgspec.structs.replace(view(members, parts, **fields), drill=decoded(body, Drill))
    return decide_global(shown, lambda given: (given.allocation, None))


@pytest.mark.req("MC-25")
@pytest.mark.parametrize("mode", ["Drain", "Dark"])
def test_a_drilled_member_serves_only_when_no_other_can(mode):
    members, parts = {"west": {}, "east": {}}, {"west": WEST, "east": EAST}
    decision = drilled(mode, members, parts)
    assert localities(decision) == {"west": (100, 1), "east": (100, 0)}
    assert [each.dark for each in decision.desired.spec.shares.localities] == [False, mode == "Dark"]
    west = next(member for member in decision.members if member.tenant == "west")
    assert west.state == "Drilled"
    assert "drill d until 18:00" in west.why
    # The other one is down, or has no endpoint: the drill has no effect.
    down = drilled(mode, members, parts, returning={"east": Returning()})
    assert localities(down) == {"west": (100, 0), "east": (100, 1)}
    assert not any(each.dark for each in down.desired.spec.shares.localities)
    alone = drilled(mode, members, {"west": WEST, "east": part("east")})
    assert localities(alone)["west"] == (100, 0)
    assert states(alone)["west"] == "Standby"
    # A provider that only weighs targets.
    weighed = drilled("Drain", members, parts, capabilities=WEIGHING)
    weights = {at.address: target.weight for at, target in weighed.desired.targets[HTTP].items()}
    assert weights["10.1.0.1"] == 0
    assert weights["10.2.0.1"] > 0


@pytest.mark.req("MC-10")
@pytest.mark.parametrize(
    ("members", "fields", "reason", "part_of_message"),
    [
        ({"west": {"weight": 0}, "east": {"weight": 0}}, {}, ConditionReason.INVALID, "every weight is 0"),
        ({"west": {"drain": True}, "east": {"weight": 0}}, {}, ConditionReason.INVALID, "every weight is 0"),
        ({"west": {"drain": True}, "east": {"maxShare": 60}}, {}, ConditionReason.INVALID, "maxShare"),
        ({"west": {}, "east": {"priority": 1}}, {"capabilities": WEIGHING}, ConditionReason.INVALID, "priorities"),
        (
            {"west": {"minHealthyPercent": 50}, "east": {}},
            {"capabilities": WEIGHING},
            ConditionReason.INVALID,
            "minHealthyPercent",
        ),
        ({"west": {}}, {"trafficDistribution": "PreferSameRegion"}, ConditionReason.INVALID, "no spec.region"),
        (
            {"west": {}},
            {"trafficDistribution": "PreferSameRegion", "at": {"region": "eu"}, "capabilities": WEIGHING},
            ConditionReason.INVALID,
            "no tiers",
        ),
        ({"west": {}}, {"ports": [{"port": 80}, {"port": 80}]}, ConditionReason.PORT_CONFLICT, "twice"),
    ],
)
def test_a_refused_spec_names_the_field_and_the_last_good_one_serves(members, fields, reason, part_of_message):
    parts = {"west": WEST, "east": EAST}
    accepted = {"service": SERVICE, "members": [{"tenant": "east"}], "ports": [{"port": 80}]}
    status = {"accepted": accepted, "allocation": {"address": "192.0.2.1"}}
    decision = decide(members, parts, status=status, **fields)
    refusal = condition(decision, ConditionType.ACCEPTED)
    assert (refusal.status, refusal.reason) == (False, reason)
    assert part_of_message in refusal.message
    assert decision.serving_last_accepted
    assert decision.desired.spec.addresses == ("192.0.2.1",)
    assert {target.key.address for target in decision.desired.targets[HTTP].values()} == {"10.2.0.1", "10.2.0.2"}
    assert decide(members, parts, **fields).desired is None


@pytest.mark.req("MC-13")
def test_force_drains_past_the_max_share_of_others():
    members = {"west": {"drain": True, "force": True}, "east": {"maxShare": 60}}
    assert localities(decide(members, {"west": WEST, "east": EAST}))["west"] == (0, 0)


@pytest.mark.req("MC-10")
@pytest.mark.parametrize("name", ["nobody", "north"])
def test_a_member_that_has_not_joined_is_named_and_the_others_serve(name):
    decision = decide({"west": {}, name: {}}, {"west": WEST})
    problem = condition(decision)
    assert (problem.status, problem.reason) == (False, ConditionReason.BACKEND_NOT_FOUND)
    assert "spec.members[1].tenant" in problem.message
    assert localities(decision) == {"west": (100, 0)}
    assert states(decision)[name] == "Missing"


@pytest.mark.req("MC-10")
def test_ports_that_differ_are_united_and_the_member_without_one_is_named():
    both = part("east", "10.2.0.1", ports=({"port": 80, "name": "http"}, {"port": 443, "name": "https"}))
    decision = decide({"west": {}, "east": {}}, {"west": WEST, "east": both})
    assert [listener.port for listener in decision.desired.spec.listeners] == [80, 443]
    problem = condition(decision)
    assert problem.reason is ConditionReason.PORT_CONFLICT
    assert "member west" in problem.message
    assert "TCP/443" in problem.message


@pytest.mark.req("MC-10")
def test_an_endpoint_in_two_members_serves_the_first_of_them_only():
    decision = decide({"west": {}, "east": {}}, {"west": WEST, "east": part("east", "10.1.0.1", "10.2.0.1")})
    assert {key.address: target.locality for key, target in decision.desired.targets[HTTP].items()} == {
        "10.1.0.1": "west",
        "10.2.0.1": "east",
    }
    assert "10.1.0.1:8080" in condition(decision).message


def test_before_any_member_publishes_nothing_is_served():
    decision = decide({"west": {}}, {})
    assert decision.desired is None
    assert condition(decision, ConditionType.PROGRAMMED).reason is ConditionReason.BACKEND_NOT_FOUND


@pytest.mark.req("MC-12")
def test_a_member_with_too_few_healthy_endpoints_is_down():
    members = {"west": {"minHealthyPercent": 50}, "east": {"priority": 1}}
    decision = decide(members, {"west": WEST, "east": EAST}, down={"west"})
    assert localities(decision) == {"west": (0, 0), "east": (100, 0)}
    assert states(decision)["west"] == "Down"
    # It was down by a limit that no longer applies.
    decision = decide({"west": {}, "east": {"priority": 1}}, {"west": WEST, "east": EAST}, down={"west"})
    assert localities(decision) == {"west": (100, 0), "east": (100, 1)}


@pytest.mark.req("MC-12")
def test_no_member_counts_as_down_when_all_are():
    members = {"west": {"minHealthyPercent": 50}, "east": {"minHealthyPercent": 50}}
    decision = decide(members, {"west": WEST, "east": EAST}, down={"west", "east"})
    assert localities(decision) == {"west": (100, 0), "east": (100, 0)}


@pytest.mark.req("MC-10")
def test_a_provider_without_localities_gets_weights_of_targets():
    decision = decide({"west": {"weight": 50}, "east": {"weight": 50}}, {"west": WEST, "east": EAST},
                      capabilities=WEIGHING)  # fmt: skip
    assert decision.desired.spec.shares is None
    weights = {target.key.address: target.weight for target in decision.desired.targets[HTTP].values()}
    assert weights == {"10.1.0.1": 256, "10.2.0.1": 128, "10.2.0.2": 128}


@pytest.mark.req("MC-14")
def test_a_stop_on_failed_connections_needs_a_class_that_counts_them():
    shift = {"stopOn": "failed>1%"}
    decision = decide({"west": {}, "east": {}}, {"west": WEST, "east": EAST}, capabilities=WEIGHING, shift=shift)
    refusal = condition(decision, ConditionType.ACCEPTED)
    assert (refusal.status, refusal.reason) == (False, "Invalid")
    assert "spec.shift.stopOn" in refusal.message
    shift["stopOn"] = "5xx>1%"
    decision = decide({"west": {}, "east": {}}, {"west": WEST, "east": EAST}, capabilities=WEIGHING, shift=shift)
    assert condition(decision, ConditionType.ACCEPTED).status


SHARES = (
    MemberShare("west", weight=60, ready=2, total=2, state="Standby"),
    MemberShare("east", weight=30, ready=2, total=2, state="Standby"),
    MemberShare("north", weight=10, ready=2, total=2, state="Standby"),
    MemberShare("backup", weight=100, tier=1, ready=1, total=1, state="Standby"),
)


@pytest.mark.req("MC-12")
@pytest.mark.parametrize(
    ("spillover", "healthy", "line"),
    [
        (Spillover.STRICT, (2, 2, 2), "west 60%, east 30%, north 10%, backup standby"),
        (Spillover.STRICT, (1, 2, 2), "west 60%, east 30%, north 10%, backup standby"),
        (Spillover.STRICT, (0, 2, 2), "west down, east 75%, north 25%, backup standby"),
        (Spillover.STRICT, (0, 0, 0), "west down, east down, north down, backup 100%"),
        (Spillover.PROPORTIONAL, (1, 2, 2), "west 51%, east 37%, north 12%, backup standby"),
        (Spillover.PROPORTIONAL, (0, 2, 2), "west down, east 70%, north 23%, backup 7%"),
        (Spillover.PROPORTIONAL, (0, 1, 2), "west down, east 47%, north 23%, backup 30%"),
        (Spillover.PROPORTIONAL, (0, 0, 2), "west down, east down, north 47%, backup 53%"),
    ],
)
def test_shares_are_shown_as_envoy_divides_connections(spillover, healthy, line):
    healthy_of = zip(("west", "east", "north"), healthy, strict=True)
    seen = {name: MemberSeen(name, count, 2) for name, count in healthy_of}
    assert shares_in_line(member_statuses(SHARES, spillover, {**seen, "backup": MemberSeen("backup", 1, 1)})) == line


SILENT = MemberState("west is silent; its last state is served", silent_since="2030-01-01T00:00:00Z")
DRAINED = msgspec.structs.replace(SILENT, drained=True)
DROPPED = msgspec.structs.replace(DRAINED, dropped=True)


def silent(state, *endpoints):
    return part("west", *(endpoints or ("10.1.0.1",)), state=state)


@pytest.mark.req("MC-18")
def test_a_silent_member_serves_as_long_as_nothing_else_is_set():
    decision = decide({"west": {}, "east": {}}, {"west": silent(SILENT), "east": EAST})
    assert localities(decision) == {"west": (100, 0), "east": (100, 0)}
    (west, _) = member_statuses(decision.members, Spillover.STRICT, {})
    assert (west.state, west.share, west.silent_since) == ("Serving", "50%", "2030-01-01T00:00:00Z")


@pytest.mark.req("MC-18")
def test_a_drained_silent_member_is_the_last_resort():
    members = {"west": {}, "east": {}, "backup": {"priority": 1}}
    decision = decide(members, {"west": silent(DRAINED), "east": EAST, "backup": part("backup", "10.3.0.1")})
    assert localities(decision) == {"west": (100, 2), "east": (100, 0), "backup": (100, 1)}
    assert TargetKey("10.1.0.1", 8080) in decision.desired.targets[HTTP], "its connections are kept"

    def shown(**healthy):
        seen = {name: MemberSeen(name, count, 2) for name, count in healthy.items()}
        return [(each.state, each.share) for each in member_statuses(decision.members, Spillover.STRICT, seen)]

    assert shown()[0] == ("Draining", "0%")
    assert shown(west=0)[0] == ("Down", "0%"), "health decides"
    assert shown(west=1, east=0, backup=0)[0] == ("Serving", "100%")


@pytest.mark.req("MC-18")
def test_the_targets_of_a_dropped_member_are_removed_without_a_guard():
    decision = decide({"west": {}, "east": {}}, {"west": silent(DROPPED), "east": EAST})
    assert TargetKey("10.1.0.1", 8080) not in decision.desired.targets[HTTP]
    assert decision.desired.owners[HTTP] == {"Member/east/shop/web"}
    assert states(decision)["west"] == "Dropped"
    shared = shared_backends(view({"west": {}, "east": {}}, {"west": silent(DROPPED), "east": EAST}))
    (backend,) = shared["tenant-east", "shop/web"].values()
    assert {target.locality for target in backend.targets.values()} == {"east"}
    assert backend.owners == {"Member/east/shop/web"}


@pytest.mark.req("MC-18")
@pytest.mark.parametrize("state", [DRAINED, DROPPED])
def test_silence_never_takes_the_last_member_out_of_service(state):
    both = {"west": silent(state), "east": part("east", "10.2.0.1", state=state)}
    decision = decide({"west": {}, "east": {}}, both)
    assert localities(decision) == {"west": (100, 0), "east": (100, 0)}
    assert len(decision.desired.targets[HTTP]) == 2
    # The other one has no endpoint, is drained, or too few of its endpoints are healthy.
    for members, parts, down in (
        ({"west": {}, "east": {}}, {"west": silent(state), "east": part("east")}, ()),
        ({"west": {}, "east": {"drain": True}}, {"west": silent(state), "east": EAST}, ()),
        ({"west": {}, "east": {"minHealthyPercent": 50}}, {"west": silent(state), "east": EAST}, ("east",)),
    ):
        assert localities(decide(members, parts, down=down))["west"] == (100, 0)
    # All are down, so they count as healthy, and the other one is not silent.
    members = {name: {"minHealthyPercent": 50} for name in ("west", "east")}
    decision = decide(members, {"west": silent(state), "east": EAST}, down=("west", "east"))
    assert localities(decision)["east"] == (100, 0)
    assert localities(decision)["west"] == (100, 1)


@pytest.mark.req("MC-18")
def test_a_provider_without_localities_sends_a_silent_member_nothing():
    decision = decide({"west": {}, "east": {}}, {"west": silent(DRAINED), "east": EAST}, capabilities=WEIGHING)
    weights = {target.key.address: target.weight for target in decision.desired.targets[HTTP].values()}
    assert weights == {"10.1.0.1": 0, "10.2.0.1": 256, "10.2.0.2": 256}
    assert states(decision)["west"] == "Draining"


@pytest.mark.req("MC-18")
def test_a_member_that_some_proxies_do_not_reach_serves_at_the_others():
    decision = decide({"west": {}, "east": {}}, {"west": WEST, "east": EAST})
    seen = {"west": MemberSeen("west", 1, 1, blind=1, proxies=2), "east": MemberSeen("east", 2, 2, proxies=2)}
    statuses = member_statuses(decision.members, Spillover.STRICT, seen)
    assert (statuses[0].state, statuses[0].share) == ("UnreachableFromSomeProxies", "50%")
    assert "1 of 2 proxies" in statuses[0].message
    assert shares_in_line(statuses) == "west 50% from some proxies, east 50%"


@pytest.mark.req("MC-15")
def test_a_member_that_returns_gets_a_growing_part_of_its_share():
    parts = {"west": WEST, "east": EAST}
    decision = decide({"west": {"weight": 50}, "east": {"weight": 50}}, parts, returning={"west": Returning(0.1)})
    (west, east) = (localities(decision)[name] for name in ("west", "east"))
    assert west == (east[0] // 10, 0)
    statuses = member_statuses(decision.members, Spillover.STRICT, {})
    assert shares_in_line(statuses) == "west 9% returning, east 91%"


@pytest.mark.req("MC-15", "MC-16")
def test_a_member_that_is_down_is_the_last_resort():
    members, parts = {"west": {}, "east": {"priority": 1}}, {"west": WEST, "east": EAST}
    decision = decide(members, parts, returning={"west": Returning()})
    assert localities(decision) == {"west": (100, 1), "east": (100, 0)}
    assert states(decision)["west"] == "Down"
    seen = {"west": MemberSeen("west", 1, 1), "east": MemberSeen("east", 0, 2)}
    assert member_statuses(decision.members, Spillover.STRICT, seen)[0].state == "Serving"
    flapping = decide(members, parts, returning={"west": Returning(flaps=True)})
    assert states(flapping)["west"] == "Flapping"
    # A silent member with healthy endpoints is needed when the other one is down.
    decision = decide(
        members, {"west": WEST, "east": part("east", "10.2.0.1", state=DROPPED)}, returning={"west": Returning()}
    )
    assert states(decision)["east"] != "Dropped"
