"""Advertisements and BGPPeers reach the plans of machines, and what is wrong with them is in their statuses."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from machines_world import MachinesWorld

from fairlead.api.announcing import ADVERTISEMENTS, BGP_PEERS
from fairlead.api.kubernetes import SECRETS
from fairlead.api.meta import AnyResource, condition_of
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.model.machine import MachinePlan, SessionState

ROUTER = {"asn": 65000, "localASN": 65001, "address": "192.0.2.254", "passwordSecret": "tor"}


async def write(world: MachinesWorld, resource: AnyResource, name: str, spec: dict[str, Any]) -> None:
    await world.user.apply(resource, {"metadata": {"name": name}, "spec": spec}, manager="kubectl")


async def said(world: MachinesWorld, resource: Any, name: str, kind: str, status: str) -> Any:
    """Wait until a condition has this status; return the object."""

    async def check() -> Any:
        obj = await world.user.get(resource, "", name)
        condition = condition_of(obj.status.conditions, kind)
        return obj if condition is not None and condition.status == status else None

    return await world.until(check, f"{kind}={status} of {name}")


async def planned(world: MachinesWorld, machine: Any, check: Any) -> MachinePlan:
    async def look() -> Any:
        plan = await machine.plan()
        return plan if plan is not None and check(plan) else None

    return await world.until(look, "a plan")


@pytest.mark.req("P-18")
async def test_a_router_is_in_the_plan_with_its_password_and_sessions_in_its_status(world: MachinesWorld):
    machine = await world.join("m1")
    assert (await machine.report()).status == 204
    await world.load_balancer()
    await write(world, BGP_PEERS, "tor", ROUTER)
    await write(world, ADVERTISEMENTS, "all", {"announcement": "BGP", "communities": ["65000:1"]})
    await said(world, BGP_PEERS, "tor", "ResolvedRefs", "False")
    plan = await planned(world, machine, lambda plan: plan.bgp_peers)
    assert plan.bgp_peers[0].keep_password
    secret = {"password": base64.b64encode(b"secret-of-the-test").decode()}
    meta = {"namespace": SYSTEM_NAMESPACE, "name": "tor"}
    await world.user.create(SECRETS, {"metadata": meta, "type": "Opaque", "data": secret})
    # A changed BGPPeer has its Secret read at once.
    await write(world, BGP_PEERS, "tor", {**ROUTER, "bfd": True})
    plan = await planned(world, machine, lambda plan: plan.bgp_peers and plan.bgp_peers[0].password)
    assert plan.bgp_peers[0].password == "secret-of-the-test"
    assert [(address.announcement, address.machines) for address in plan.addresses] == [("BGP", ("m1",))]
    await said(world, BGP_PEERS, "tor", "ResolvedRefs", "True")
    session = SessionState(peer="tor", state="Established", up=True)
    assert (await machine.report(sessions=(session,))).status == 204
    peer = await said(world, BGP_PEERS, "tor", "Ready", "True")
    assert peer.status.sessions == "1/1"
    advertisement = await said(world, ADVERTISEMENTS, "all", "Accepted", "True")
    assert advertisement.status.addresses == 1
    down = SessionState(peer="tor", state="Active", problem="192.0.2.254 refuses the connection")
    assert (await machine.report(sessions=(down,))).status == 204
    peer = await said(world, BGP_PEERS, "tor", "Ready", "False")
    condition = condition_of(peer.status.conditions, "Ready")
    assert condition is not None
    assert "refuses the connection" in condition.message


@pytest.mark.req("P-18", "F-24")
async def test_an_invalid_router_keeps_the_last_good_one(world: MachinesWorld):
    machine = await world.join("m1")
    assert (await machine.report()).status == 204
    await write(world, BGP_PEERS, "tor", {**ROUTER, "passwordSecret": ""})
    await said(world, BGP_PEERS, "tor", "Accepted", "True")
    assert (await machine.report(sessions=(SessionState(peer="tor", state="Established", up=True),))).status == 204
    await said(world, BGP_PEERS, "tor", "Ready", "True")
    await write(world, BGP_PEERS, "tor", {**ROUTER, "passwordSecret": "", "address": "nonsense"})
    peer = await said(world, BGP_PEERS, "tor", "Accepted", "False")
    # The session is that of the last good spec.
    ready, stalled = (condition_of(peer.status.conditions, kind) for kind in ("Ready", "Stalled"))
    assert ready is not None
    assert stalled is not None
    assert (ready.status, ready.reason, stalled.status) == ("False", "Invalid", "True")
    assert peer.status.observed_generation == peer.metadata.generation
    plan = await planned(world, machine, lambda plan: plan.bgp_peers)
    assert plan.bgp_peers[0].address == "192.0.2.254"
