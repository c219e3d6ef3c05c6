"""Owners, addresses and slices that a view may bring, and operations next to each other."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest
from difftracker_bench import KEY, Bench, desired_state
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fairlead.api.backendgroup import BackendGroup, BackendRecord
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.errors import Conflict, Retry, Terminal
from fairlead.hub.providers.runner import DrainStarts, registered_of
from fairlead.model.condition import ConditionReason
from fairlead.model.keys import LoadBalancerKey
from fairlead.sync.execute import PARK_S
from fairlead.sync.plan import Registered, Tracker, plan_load_balancer
from fairlead.testing.builders import (
    ABLE,
    HTTP,
    PLAIN,
    decoded,
    endpoint_slice,
    lb_class,
    lb_key,
    slice_body,
    target,
    tcp,
    tcp_view,
)
from fairlead.testing.faults import Fault
from fairlead.testing.simulation import SimulatedProcess
from fairlead.translate.loadbalancer import decide_loadbalancer
from fairlead.translate.member import decide_tcp
from fairlead.translate.view import GroupView, LoadBalancerView

SHARED = LoadBalancerKey("LoadBalancer", "shop", "shared")


def owners_of(groups):
    """Return who owns the one address that each of ``groups`` names."""
    listeners = [{"name": "http", "port": 80, "protocol": "TCP"}]
    spec = {"className": "envoy", "listeners": listeners}
    body = {"metadata": {"name": "shared", "namespace": "shop"}, "spec": spec}
    views = [
        GroupView(
            decoded(
                {
                    "metadata": {"name": name, "namespace": "shop"},
                    "spec": {"loadBalancers": ["shared"], "static": ["10.0.0.1:8080"]},
                },
                BackendGroup,
            )
        )
        for name in groups
    ]
    load_balancer_view = LoadBalancerView(
        SHARED, decoded(body, LoadBalancer), lb_class(), {"memory": ABLE}, tuple(views)
    )
    target = decide_loadbalancer(load_balancer_view).desired.targets[HTTP]
    return {owner.rpartition("/")[2] for it in target.values() for owner in it.owners}, target


@pytest.mark.req("A-49", "A-28")
@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc")), max_size=12))
def test_add_pod_delete_pod_ref_count_symmetry(steps):
    """Any history of joining and leaving, twice or never: wanted by exactly those that are in, gone with the last."""
    members: set[str] = set()
    for joins, name in steps:
        (members.add if joins else members.discard)(name)
        owners, result = owners_of(sorted(members))
        assert owners == members
        assert bool(result) == bool(members)


@pytest.mark.req("A-33", "A-47")
async def test_unknown_state_no_panic():
    spec = {
        "loadBalancer": {"kind": KEY.kind, "namespace": KEY.namespace, "name": KEY.name, "provider": "memory"},
        "listener": {"port": 80, "protocol": "TCP"},
        "target": {"address": "10.0.0.1", "port": 8080},
    }
    record = decoded({"metadata": {"name": "r", "namespace": KEY.namespace}, "spec": spec}, BackendRecord)
    odd = msgspec.structs.replace(record, status=msgspec.structs.replace(record.status, state="FromTheFuture"))
    async with Bench() as bench:
        result = registered_of(odd, DrainStarts(bench.clock))
        assert result.unknown
        bench.engine.tracker.restore(desired_state().spec, {HTTP: {result.target.key: result}})
        bench.engine.put(desired_state(1))
        with capture_logs() as logs:
            await bench.engine.advance()
        assert [line for line in logs if line["event"] == "bug"] == []
        assert (bench.rows, bench.on()) == ([("Register", "1")], {1})


@pytest.mark.req("A-30", "A-39")
async def test_waits_for_pending_pod_deletions():
    """A new process finds a removal that was begun: that is finished before the address is used again."""
    async with Bench(latency_s=1.0) as bench:
        begun = Registered(target("1"), unknown=True, deregistering=True)
        await bench.memory.ensure(desired_state().spec)
        bench.engine.tracker.restore(desired_state().spec, {HTTP: {begun.target.key: begun}}, certain=True)
        bench.engine.put(desired_state(1, 2))
        await bench.engine.advance(30)
        assert [row for row in bench.rows if row[1] == "1"] == [("Deregister", "1"), ("Register", "1")]
        assert bench.on() == {1, 2}


def pods(*addresses, order=0):
    parts = [endpoint_slice(f"s{number}", [each], load_balancer="web") for number, each in enumerate(addresses)]
    random.Random(order).shuffle(parts)
    wanted = decide_tcp(tcp_view(tcp(ports=[{"port": 80}], spec={"targets": "Pod"}), slices=parts)).desired
    assert wanted is not None
    return wanted


@pytest.mark.req("A-31", "A-45")
@pytest.mark.parametrize("order", range(4))
async def test_cold_start_dual_stack_node_restart_convergence(order):
    both = ("10.0.0.1", "fd00::1", "10.0.0.2", "fd00::2")
    async with Bench() as bench:
        first = pods(*both)
        bench.engine.put(first)
        await bench.engine.advance()
        assert {at.address for _, at in bench.cloud.members(KEY)} == set(both)
        again = Tracker()
        again.restore(bench.ledger.specs[KEY], bench.engine.tracker.state(KEY).recorded, certain=True)
        again.put(pods(*both, order=order))
        state = again.state(KEY)
        assert state is not None
        assert plan_load_balancer(KEY, state, now_s=0.0).empty


@pytest.mark.req("A-45")
async def test_non_canonical_ipv6_canonicalizes_location_keys():
    async with Bench() as bench:
        bench.engine.put(pods("FD00:0:0:0::1"))
        await bench.engine.advance()
        bench.engine.put(pods("fd00::1"))
        bench.engine.put(pods("fd00::0001", "FD00::1"))
        await bench.engine.advance(10)
        assert bench.rows == [("Register", "fd00::1")]


@pytest.mark.req("A-43")
def test_fqdn_endpoint_slice_skipped():
    names = {**slice_body("names", ["db.example.com"], load_balancer="web"), "addressType": "FQDN"}
    parts = [decoded(names, type(endpoint_slice("x", []))), endpoint_slice("s", ["10.0.0.1"], load_balancer="web")]
    given = decide_tcp(tcp_view(tcp(ports=[{"port": 80}], spec={"targets": "Pod"}), slices=parts, capabilities=PLAIN))
    assert {at.address for at in given.desired.targets[HTTP]} == {"10.0.0.1"}
    assert "db.example.com" in given.condition(ConditionReason.INVALID).message


@pytest.mark.req("A-34", "A-46")
@pytest.mark.parametrize("error", [Retry("busy"), Conflict("meanwhile"), Terminal("never"), KeyError("a slip")])
async def test_whatever_one_call_raises_is_a_failed_operation_of_one_load_balancer(error):
    async with Bench() as bench:
        bench.memory.errors = (error, error)
        with capture_logs():
            bench.engine.put(desired_state(1), desired_state(2, key=lb_key("other")))
            await bench.engine.advance()
            assert bench.on(lb_key("other")) == {2}
            assert bench.engine.last_report(KEY).failure
            # What is refused for good is parked; what may pass is tried again soon.
            await bench.engine.advance(2 * PARK_S + 1 if isinstance(error, Terminal) else 120)
        assert bench.on() == {1}


@pytest.mark.req("A-46")
async def test_no_more_than_so_many_at_once_and_never_two_for_one():
    bench = Bench()
    bench.provider.latency_s = 1.0
    engine = SimulatedProcess(provider=bench.provider, ledger=bench.ledger, clock=bench.clock, parallel=10)
    under_way = []
    bench.provider.script = lambda _call: under_way.append(bench.provider.concurrent) or Fault.NONE
    async with engine:
        keys = [lb_key(f"lb-{number}") for number in range(25)]
        engine.put(*(desired_state(1, key=key) for key in keys))
        await engine.advance(1.5)
        engine.put(*(desired_state(1, 2, key=key) for key in keys))
        await engine.advance(60)
        assert all(bench.on(key) == {1, 2} for key in keys)
    assert max(under_way) == 10
    assert bench.provider.overlaps == []
    await asyncio.sleep(0)
