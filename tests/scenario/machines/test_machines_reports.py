"""Plans wake those who wait for them, reports become statuses and Leases, and silence moves nothing."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from machines_world import MachinesWorld, TestMachine
from prometheus_client import CollectorRegistry

from fairlead.api.kubernetes import LEASES
from fairlead.api.meta import condition_of
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.api.proxymachine import PROXY_MACHINES, lease_name
from fairlead.errors import NotFound
from fairlead.hub.machines import control, states
from fairlead.model.machine import AddressState, MachinePlan, ProxyState


async def said(world: MachinesWorld, name: str, kind: str, reason: str) -> str:
    """Wait until a condition has this reason; return its message."""

    async def check() -> Any:
        machine = await world.machine(name)
        condition = condition_of(machine.status.conditions, kind) if machine is not None else None
        return condition if condition is not None and condition.reason == reason else None

    return (await world.until(check, f"{kind} {reason} of {name}")).message


async def plan_with(machine: TestMachine, count: int = 1) -> MachinePlan:
    """Wait for a plan in which so many machines announce the first address."""
    after = ""
    while True:
        plan = await machine.plan(after)
        if plan is not None and plan.addresses and len(plan.addresses[0].machines) == count:
            return plan
        after = plan.version if plan is not None else after


@pytest.mark.req("P-1")
@pytest.mark.req("P-11")
async def test_a_waiting_machine_gets_a_new_load_balancer_at_once(world: MachinesWorld):
    machine, other = await world.join("m1"), await world.join("m2")
    assert (await machine.report()).status == 204
    assert (await other.report()).status == 204
    await said(world, "m1", "Ready", "Ready")
    await said(world, "m2", "Ready", "Ready")
    waiting = asyncio.create_task(plan_with(machine, 2))
    address = await world.load_balancer()
    plan = await waiting
    (planned,) = plan.addresses
    assert planned.address == address
    assert (planned.announcement, sorted(planned.machines)) == ("L2", ["m1", "m2"])
    assert planned.load_balancers == ("tenant-east/web",)
    assert plan.epoch == world.hub.elector.epoch > 0
    assert [neighbour.name for neighbour in plan.neighbours] == ["m2"]
    assert plan.link_key
    assert plan.link_key == (await plan_with(other, 2)).link_key
    assert plan.hubs == (f"127.0.0.1:{world.port}",)


@pytest.mark.req("P-10")
async def test_a_machine_without_connections_left_gets_a_load_balancer_once_it_has_some(world: MachinesWorld):
    machine, full = await world.join("m1"), await world.join("m2")
    await machine.report()
    await full.report(open_connections=230, max_files=1000)
    for name in ("m1", "m2"):
        await said(world, name, "Ready", "Ready")
    await world.load_balancer()
    assert (await plan_with(machine)).addresses[0].machines == ("m1",)
    await full.report(open_connections=200, max_files=1000)
    assert set((await plan_with(machine, 2)).addresses[0].machines) == {"m1", "m2"}


@pytest.mark.req("P-5")
async def test_a_report_is_a_status_and_a_lease(world: MachinesWorld, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(control, "_LEASE_S", 3600.0)  # longer than the test
    machine = await world.join("m1")
    started = time.time()
    state = AddressState(
        address="192.0.2.9",
        announced=True,
        interface="eth0",
        mac="02:00:00:00:00:01",
        since=started,
        cause="m2 is silent",
    )
    assert (await machine.report(addresses=(state,))).status == 204
    await said(world, "m1", "Announcing", "Announcing")
    obj = await world.machine("m1")
    assert obj is not None
    assert obj.status.envoy == "1.38.0"
    assert obj.status.announced == 1
    assert obj.status.certificate.serial
    assert obj.status.last_failover is not None
    assert obj.status.last_failover.cause == "m2 is silent"
    lease = await world.user.get(LEASES, SYSTEM_NAMESPACE, lease_name("m1"))
    assert lease.spec.holder_identity == "m1"
    # The same again costs no write.
    version, writes = obj.metadata.resource_version, world.cluster.writes
    for _ in range(20):
        assert (await machine.report(addresses=(state,))).status == 204
    obj = await world.machine("m1")
    assert obj is not None
    assert obj.metadata.resource_version == version
    assert world.cluster.writes - writes <= 2
    again = await world.user.get(LEASES, SYSTEM_NAMESPACE, lease_name("m1"))
    assert again.metadata.resource_version == lease.metadata.resource_version


@pytest.mark.req("P-29")
async def test_the_leader_exports_what_machines_report(world: MachinesWorld):
    registry = CollectorRegistry()
    registry.register(world.endpoint.machines.metrics)
    machine = await world.join("m1")
    assert (await machine.report()).status == 204
    address = await world.load_balancer()
    await plan_with(machine)
    labels = {"announcement": "L2"}
    assert registry.get_sample_value("fairlead_machine_addresses", {**labels, "owners": "0"}) == 1
    taken = AddressState(address=address, announced=True, mac="02::1", cause="m2 is silent", trigger="OwnerSilent")
    assert (await machine.report(addresses=(taken,))).status == 204
    await said(world, "m1", "Announcing", "Announcing")
    assert registry.get_sample_value("fairlead_machine_addresses", {**labels, "owners": "1"}) == 1
    assert registry.get_sample_value("fairlead_machine_ready", {"machine": "m1"}) == 1
    assert registry.get_sample_value("fairlead_machine_takeovers_total", {"machine": "m1", "cause": "OwnerSilent"}) == 1
    ends = registry.get_sample_value("fairlead_machine_certificate_expiry_timestamp_seconds", {"machine": "m1"})
    assert ends is not None
    assert ends > time.time()
    world.leads = False
    assert registry.get_sample_value("fairlead_machine_ready", {"machine": "m1"}) is None


@pytest.mark.req("P-5")
async def test_a_dead_envoy_is_an_event_and_its_return_resolves_it(world: MachinesWorld):
    machine = await world.join("m1")
    assert (await machine.report(proxy=ProxyState())).status == 204
    assert "journalctl" in await said(world, "m1", "Ready", "ProxyDown")
    assert (await machine.report()).status == 204
    await said(world, "m1", "Ready", "Ready")


@pytest.mark.req("P-5")
async def test_a_silent_machine_stays_in_every_plan(world: MachinesWorld, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fairlead.hub.machines.control.UNREACHABLE_S", 1.0)
    monkeypatch.setattr(states, "UNREACHABLE_S", 1.0)
    machine, silent = await world.join("m1"), await world.join("m2")
    for member in (machine, silent):
        assert (await member.report()).status == 204
    await said(world, "m2", "Ready", "Unreachable")
    await world.load_balancer()
    plan = await plan_with(machine, 2)
    assert sorted(plan.addresses[0].machines) == ["m1", "m2"]
    assert (await silent.report()).status == 204
    await said(world, "m2", "Ready", "Ready")


async def test_a_clone_is_found_by_its_network_card(world: MachinesWorld):
    machine = await world.join("m1")
    clone = TestMachine(world, "m1")
    clone.key, clone.certificate, clone.ca = machine.key, machine.certificate, machine.ca
    mine, other = TestMachine(world, "m1").links(), TestMachine(world, "m2").links()
    for _ in range(2):
        assert (await machine.report(links=mine)).status == 204
        assert (await clone.report(links=other)).status == 204
    assert "copy" in await said(world, "m1", "Ready", "DuplicateMachine")


async def test_a_new_network_card_is_not_a_clone(world: MachinesWorld):
    machine = await world.join("m1")
    for name in ("m1", "m2", "m2"):
        assert (await machine.report(links=TestMachine(world, name).links())).status == 204
    await said(world, "m1", "Ready", "Ready")


@pytest.mark.req("P-6")
async def test_draining_is_in_the_plan_at_once_and_removal_ends_the_lease(world: MachinesWorld):
    machine, other = await world.join("m1"), await world.join("m2")
    for member in (machine, other):
        assert (await member.report()).status == 204
    await world.load_balancer()
    plan = await plan_with(machine, 2)
    waiting = asyncio.create_task(machine.plan(plan.version))
    await world.user.merge_patch(PROXY_MACHINES, "", "m1", {"spec": {"drained": True}}, manager="kubectl")
    drained = await waiting
    assert drained is not None
    assert drained.drained
    assert [planned.machines for planned in drained.addresses] == [("m2",)]
    assert (await machine.report(connections_per_s=0.2)).status == 204
    await said(world, "m1", "Announcing", "Drained")
    await world.user.delete(PROXY_MACHINES, "", "m1")

    async def gone() -> bool:
        try:
            await world.user.get(LEASES, SYSTEM_NAMESPACE, lease_name("m1"))
        except NotFound:
            return True
        return False

    await world.until(gone, "the Lease of the machine is deleted")


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"machine": 1}', b'{"machine": "m1", "links": [{"name": []}]}'])
async def test_reports_that_cannot_be_read_are_refused(world: MachinesWorld, body: bytes):
    machine = await world.join("m1")
    answer = await machine.send("POST", "/v1/report", body)
    assert answer.status == 400
    assert "not valid" in answer.body["message"]
    assert (await machine.report()).status == 204
