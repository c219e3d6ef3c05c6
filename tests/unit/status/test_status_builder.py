"""What ``fairlead status`` makes of what the hub's API says."""

from __future__ import annotations

import io
import re

import msgspec
import pytest
from rich.console import Console

from fairlead.api.loadbalancer import LoadBalancer, LoadBalancerObjectStatus, LoadBalancerSpec
from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.api.poolservice import PoolService, PoolServiceSpec, PoolServiceStatus
from fairlead.cli.status import print_status
from fairlead.standalone.proxy_report import ProxyRow, ReplicaReport
from tests.fleet_objects import EAST, GOOD, fleet_of, lease, load_balancer, status


def test_all_is_well() -> None:
    fleet = status()
    assert fleet.healthy
    assert fleet.problems == []
    assert fleet.members[0].last_sync_age_s == 3.0
    assert fleet.members[0].load_balancers == 1
    assert fleet.load_balancers[0].programmed


def test_removals_that_are_held_are_seen_although_all_works() -> None:
    guarded = WireCondition(type="Guarded", status="True", reason="RemovalsHeld", message="3 removals held: why")
    row = status(lb=load_balancer(*GOOD, guarded)).load_balancers[0]
    assert (row.programmed, row.reason, row.message) == (True, "RemovalsHeld", "3 removals held: why")


@pytest.mark.parametrize(
    ("age_s", "state"), [(None, "Pending"), (1.0, "Engaged"), (60.0, "Stale"), (1000.0, "Lost"), (-5.0, "Engaged")]
)
def test_a_member_is_as_old_as_its_last_sign_of_life(age_s: float | None, state: str) -> None:
    fleet = status(agent_age_s=age_s)
    assert fleet.members[0].state == state
    assert fleet.healthy is (state == "Engaged")


def test_no_hub_and_a_silent_hub_are_distinct_and_the_state_of_proxies_is_unknown() -> None:
    assert "no hub leads" in status(hub_age_s=None).problems[0]
    silent = status(hub_age_s=300)
    assert "last reported 5m ago" in silent.problems[0]
    assert silent.proxies[0].state == "UNKNOWN"


def test_a_stale_proxy_is_a_problem() -> None:
    assert status(state="STALE").problems == ["proxy local/here (local): STALE, 0 resources rejected"]


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ({"hub-1": (1, "SYNCED"), "hub-2": (9, "STALE")}, "SYNCED"),
        ({"hub-1": (9, "STALE"), "hub-2": (1, "SYNCED")}, "STALE"),
        ({"hub-2": (1, "STALE"), "hub-3": (9, "SYNCED")}, "SYNCED"),
        ({"hub-2": (9, "SYNCED"), "hub-3": (1, "STALE")}, "SYNCED"),
    ],
)
def test_a_proxy_is_shown_once_the_leader_is_believed_and_then_the_last_to_speak(
    said: dict[str, tuple[int, str]], state: str
) -> None:
    reports = {
        identity: ReplicaReport(f"2029-12-01T00:00:0{second}Z", [ProxyRow("local/here", "local", word)])
        for identity, (second, word) in said.items()
    }
    fleet = fleet_of(tenants=[EAST], leases={"tenant-east": lease(1.0)}, reports=reports)
    assert [row.state for row in fleet.proxies] == [state]
    assert fleet.healthy == (state == "SYNCED")


def test_a_refusal_is_shown_with_its_message() -> None:
    refused = WireCondition(type="Accepted", status="False", reason="PortConflict", message="port 80 is taken")
    fleet = status(lb=load_balancer(refused, GOOD[1]))
    row = fleet.load_balancers[0]
    assert (row.programmed, row.reason) == (False, "PortConflict")
    assert fleet.problems == ["load balancer east/default/web: port 80 is taken"]


def test_a_status_of_an_older_generation_is_not_believed() -> None:
    fleet = status(lb=load_balancer(*GOOD, generation=2, observed=1))
    assert not fleet.load_balancers[0].programmed
    assert fleet.load_balancers[0].reason == "Pending"


def test_a_load_balancer_of_backend_groups_is_a_row_like_any_other() -> None:
    status_of = LoadBalancerObjectStatus(backends="1/2", observed_generation=1, conditions=list(GOOD))
    meta = ObjectMeta(name="shared", namespace="shop", generation=1)
    shown = LoadBalancer(metadata=meta, spec=LoadBalancerSpec(class_name="edge"), status=status_of)
    refused = WireCondition(type="Accepted", status="False", reason="NoSuchClass", message="there is no class gold")
    lost = msgspec.structs.replace(
        shown,
        metadata=msgspec.structs.replace(meta, name="lost"),
        status=msgspec.structs.replace(status_of, conditions=[refused, GOOD[1]]),
    )
    fleet = fleet_of(load_balancers=[shown, lost])
    rows = [(row.name, row.class_name, row.programmed, row.reason, row.targets) for row in fleet.load_balancers]
    assert rows == [("lost", "edge", False, "NoSuchClass", "1/2"), ("shared", "edge", True, "Programmed", "1/2")]
    assert fleet.problems == ["load balancer shop/lost: there is no class gold"]
    out = io.StringIO()
    print_status(fleet, Console(file=out))
    assert re.search(r"shop/shared +edge +- +True +Programmed +1/2", out.getvalue())
    assert re.search(r"shop/lost +edge +<pending> +False +NoSuchClass", out.getvalue())


def test_a_pause_is_seen_although_all_works() -> None:
    paused = WireCondition(type="Paused", status="True", reason="PausedByUser", message="2 held")
    row = status(lb=load_balancer(*GOOD, paused)).load_balancers[0]
    assert (row.programmed, row.reason, row.message) == (True, "PausedByUser", "2 held")


def pool_service(region: str, *conditions: WireCondition, address: str = "") -> PoolService:
    return PoolService(
        metadata=ObjectMeta(name=f"web-{region}", namespace="shop", labels={"openyurt.io/service-name": "web"}),
        spec=PoolServiceSpec(nodepool_name=region, load_balancer_class="fairlead.dev/envoy"),
        status=PoolServiceStatus(address=address, targets="1/1" if address else "", conditions=list(conditions)),
    )


def test_each_region_of_a_service_has_a_row_and_its_problem_a_sentence() -> None:
    refused = WireCondition(type="Programmed", status="False", reason="AddressPoolExhausted", message="no address left")
    regions = [
        pool_service("paris", *GOOD, address="127.200.0.7"),
        pool_service("lyon", refused),
        pool_service("nice", address="198.51.100.1"),
        pool_service("metz"),
    ]
    fleet = fleet_of(pool_services=regions)
    assert [(row.region, row.programmed, row.reason) for row in fleet.regions] == [
        ("lyon", False, "AddressPoolExhausted"),
        ("metz", False, "Pending"),
        ("nice", True, ""),
        ("paris", True, "Programmed"),
    ]
    assert fleet.problems == ["region lyon of shop/web: no address left", "region metz of shop/web: Pending"]
    out = io.StringIO()
    print_status(fleet, Console(file=out))
    text = out.getvalue()
    assert "No members" not in text
    for word in ("shop/web", "paris", "127.200.0.7", "fairlead.dev/envoy", "AddressPoolExhausted", "✗ region lyon"):
        assert word in text
