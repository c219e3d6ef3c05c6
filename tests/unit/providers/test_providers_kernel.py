"""The provider of kernels: tables of machines as changes, and what their reports prove."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from fairlead.errors import Terminal
from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.condition import ConditionReason
from fairlead.model.desired import FrontendSpec, Listener, Target
from fairlead.model.health import HealthCheck, HealthRequest
from fairlead.model.keys import LoadBalancerKey, Protocol, TargetKey
from fairlead.model.machine import EgressIdentity, ForwardingState, ForwardingTable
from fairlead.model.observed import Observed, Seen
from fairlead.providers.kernel import SILENT_S, KernelProvider
from fairlead.runtime.clock import VirtualClock

WEB, OTHER = (LoadBalancerKey("TCPLoadBalancer", "east", name) for name in ("web", "other"))
TCP = Listener(80)


def spec(key: LoadBalancerKey = WEB, *machines: str, **fields: Any) -> FrontendSpec:
    return FrontendSpec(key=key, group="east", listeners=(TCP,), address="192.0.2.10", machines=machines, **fields)


def change(address: str, action: Action = Action.REGISTER, key: LoadBalancerKey = WEB) -> TargetChange:
    return TargetChange(key, TCP.key, Target(TargetKey(address, 8080)), action, Reason.NEW)


class Kernels:
    """A provider and its machines."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.provider = KernelProvider(clock=self.clock)
        self.notified: list[LoadBalancerKey] = []
        self.provider.on_change(self.notified.append)

    async def table(self, machine: str, after: str = "") -> ForwardingTable | None:
        return await self.provider.table(machine, after, wait_s=0)

    async def follow(self, machine: str, *, unhealthy: tuple[str, ...] = ()) -> None:
        """Report that a machine has all that there is for it."""
        table = await self.table(machine)
        assert table is not None
        self.provider.reported(machine, ForwardingState(version=table.version, unhealthy=unhealthy))

    async def observed(self, key: LoadBalancerKey = WEB) -> Observed:
        observed = await self.provider.observe(key)
        assert observed is not None
        return observed


@pytest.fixture
async def kernels() -> Kernels:
    kernels = Kernels()
    await kernels.provider.ensure(spec(WEB, "m1", "m2"))
    await kernels.provider.apply([change("10.0.0.1"), change("10.0.0.2")])
    return kernels


async def test_nothing_is_sent_before_everything_was_read(kernels: Kernels):
    assert await kernels.table("m1") is None
    kernels.provider.keep(OTHER, unread=True)
    kernels.provider.publish()
    table = await kernels.table("m1")
    assert table is not None
    assert table.whole
    assert table.kept == (str(OTHER),)
    assert [entry.name for entry in table.load_balancers] == ["east/web"]


@pytest.mark.req("MC-19")
async def test_a_machine_keeps_the_whole_of_what_is_read_in_part(kernels: Kernels):
    kernels.provider.keep(WEB, unread=True)
    kernels.provider.publish()
    first = await kernels.table("m1")
    assert first is not None
    (part,) = first.load_balancers
    had = msgspec.structs.replace(part, ports=())
    assert first.applied_to({part.key: had}) == {part.key: had}
    assert first.applied_to({}) == {part.key: part}, "a machine that has nothing takes the readable part"
    await kernels.provider.apply([change("10.0.0.1", Action.DEREGISTER)])
    second = await kernels.table("m1", first.version)
    assert second is not None
    assert second.applied_to({part.key: had}) == {part.key: had}
    kernels.provider.keep(WEB, unread=False)
    third = await kernels.table("m1", second.version)
    assert third is not None
    (port,) = third.applied_to({part.key: had})[part.key].ports
    assert [target.address for target in port.targets] == ["10.0.0.2"]
    kernels.provider.keep(WEB, unread=True)
    whole = await kernels.table("m1")
    assert whole is not None
    assert not whole.kept, "it was read before"


@pytest.mark.req("P-30")
async def test_a_machine_gets_only_what_changed(kernels: Kernels):
    kernels.provider.publish()
    await kernels.provider.ensure(spec(OTHER, "m1"))
    first = await kernels.table("m1")
    assert first is not None
    assert await kernels.table("m1", first.version) is None
    waiting = asyncio.create_task(kernels.provider.table("m1", first.version, wait_s=60))
    await asyncio.sleep(0)
    await kernels.provider.apply([change("10.0.0.1", Action.DEREGISTER)])
    second = await waiting
    assert second is not None
    assert (second.whole, second.removed) == (False, ())
    (entry,) = second.load_balancers
    assert [target.address for target in entry.ports[0].targets] == ["10.0.0.2"]
    await kernels.provider.delete(OTHER)
    await kernels.provider.ensure(spec(WEB, "m2"))
    third = await kernels.table("m1", second.version)
    assert third is not None
    assert (third.load_balancers, set(third.removed)) == ((), {str(OTHER), str(WEB)})
    again = await kernels.table("m1", "another-process-3")
    assert again is not None
    assert again.whole


async def test_a_target_drains_before_it_is_removed(kernels: Kernels):
    kernels.provider.publish()
    await kernels.provider.apply([change("10.0.0.1", Action.DRAIN)])
    table = await kernels.table("m1")
    assert table is not None
    assert [target.draining for target in table.load_balancers[0].ports[0].targets] == [True, False]


async def test_programmed_is_what_every_machine_that_is_heard_has(kernels: Kernels):
    kernels.provider.publish()
    observed = await kernels.observed()
    assert (observed.programmed, observed.proxies) == (False, 0)
    await kernels.follow("m1")
    assert (await kernels.observed()).programmed, "a machine that was never heard holds nothing back"
    kernels.provider.reported("m2", ForwardingState())
    assert not (await kernels.observed()).programmed
    assert kernels.provider.machines_with(WEB) == {"m1"}
    kernels.notified.clear()
    await kernels.follow("m2")
    assert kernels.notified == [WEB]
    assert (await kernels.observed()).programmed
    await kernels.clock.advance(SILENT_S)
    assert not (await kernels.observed()).programmed


async def test_the_condition_says_whose_address_targets_see(kernels: Kernels):
    replaced = (await kernels.observed()).data_path
    await kernels.provider.ensure(spec(WEB, "m1", "m2", parameters={"clientAddress": "Keep"}))
    kept = (await kernels.observed()).data_path
    assert "load balancer" in replaced
    assert "client's" in kept


@pytest.mark.req("P-32")
async def test_health_is_what_machines_see(kernels: Kernels):
    kernels.provider.publish()
    await kernels.follow("m1", unhealthy=("TCP 10.0.0.1 8080",))
    health = (await kernels.observed()).health
    assert health is not None
    assert (health.serving, health.healthy, health.total) == (True, 1, 2)
    assert kernels.provider.seen_of(WEB, TCP.key, TargetKey("10.0.0.1", 8080)) is Seen.UNHEALTHY
    await kernels.follow("m1", unhealthy=("TCP 10.0.0.1 8080", "TCP 10.0.0.2 8080"))
    health = (await kernels.observed()).health
    assert health is not None
    assert (health.serving, health.reason) == (False, ConditionReason.NO_HEALTHY_TARGETS)


async def test_a_machine_with_a_problem_is_named(kernels: Kernels):
    kernels.provider.reported("m1", ForwardingState(problem="nft is missing"))
    assert "m1: nft is missing" in (await kernels.observed()).rejected
    kernels.provider.reported("m2", None)
    assert "upgrade" in (await kernels.observed()).rejected


async def test_a_check_of_a_path_is_refused(kernels: Kernels):
    with pytest.raises(Terminal, match="provider envoy"):
        await kernels.provider.ensure(spec(WEB, "m1", health_check=HealthCheck(request=HealthRequest())))


def test_parameters_of_a_class_are_checked():
    provider = KernelProvider(clock=VirtualClock())
    assert provider.class_problem({"clientAddress": "Keep"}) == ""
    assert "clientAddress" in provider.class_problem({"clientAddress": "yes"})
    assert "parameters.dataPath" in provider.class_problem({"dataPath": "kernel"})
    assert Protocol.UDP in provider.capabilities.protocols
    assert not provider.capabilities.l7
    assert not provider.capabilities.proxy_protocol


@pytest.mark.req("F-1")
async def test_a_target_that_no_machine_was_given_is_not_seen_healthy(kernels: Kernels):
    kernels.provider.publish()
    for machine in ("m1", "m2"):
        await kernels.follow(machine)
    given, later = TargetKey("10.0.0.1", 8080), TargetKey("10.0.0.3", 8080)
    assert [kernels.provider.seen_of(WEB, TCP.key, key) for key in (given, later)] == [Seen.HEALTHY, Seen.WAITING]
    await kernels.provider.apply([change("10.0.0.1", Action.DRAIN)])
    for machine in ("m1", "m2"):
        await kernels.follow(machine)
    assert kernels.provider.seen_of(WEB, TCP.key, given) is Seen.WAITING


@pytest.mark.req("P-35")
async def test_identities_are_in_whole_tables_and_in_changes_that_lack_them() -> None:
    provider = KernelProvider(clock=VirtualClock())
    provider.publish()
    web = EgressIdentity(address="192.0.2.10", sources=("10.0.0.1",), first_port=32_768, last_port=60_999)
    provider.set_egress((web,))
    table = await provider.table("m1", "", wait_s=0)
    assert table is not None
    assert table.egress == (web,)
    provider.set_egress((web,))
    assert await provider.table("m1", table.version, wait_s=0) is None, "nothing has changed"
    provider.set_egress(())
    change = await provider.table("m1", table.version, wait_s=0)
    assert change is not None
    assert (change.whole, change.egress) == (False, ())
    provider.set_egress((), kept=("192.0.2.10",))
    change = await provider.table("m1", change.version, wait_s=0)
    assert change is not None
    assert (change.egress, change.kept_egress) == ((), ("192.0.2.10",))
