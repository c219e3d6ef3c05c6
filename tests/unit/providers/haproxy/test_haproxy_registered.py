"""Which servers this process has registered, and when the drain time of a removed one is over."""

from __future__ import annotations

import pytest

from fairlead.model.change import Action, Reason, TargetChange
from fairlead.model.desired import Target
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol, TargetKey
from fairlead.providers.haproxy.provider import RegisteredServers
from fairlead.runtime.clock import VirtualClock

KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")
HTTP = ListenerKey(Protocol.TCP, 80)
TARGET = TargetKey("10.0.0.1", 80)


def change(action: Action, *, draining: bool = False) -> TargetChange:
    return TargetChange(KEY, HTTP, Target(TARGET, draining=draining), action, Reason.NEW)


@pytest.mark.req("EDGE-13")
def test_registered_is_what_was_added_and_not_removed_since() -> None:
    servers = RegisteredServers(clock=VirtualClock())
    servers.applied(change(Action.REGISTER, draining=True))
    assert servers.of(KEY) == frozenset()
    servers.applied(change(Action.REGISTER))
    assert servers.of(KEY) == {(HTTP, TARGET)}
    servers.applied(change(Action.DRAIN))
    assert servers.of(KEY) == frozenset(), "a reload does not add it again"
    servers.applied(change(Action.REGISTER))
    servers.applied(change(Action.DEREGISTER))
    assert servers.of(KEY) == frozenset()
    servers.applied(change(Action.UPDATE))
    servers.forget(KEY)
    assert servers.of(KEY) == frozenset()


def test_a_drain_starts_at_removal_and_ends_when_desired_again() -> None:
    clock = VirtualClock()
    servers = RegisteredServers(clock=clock)

    def over(action: Action) -> bool:
        return servers.drain_is_over(change(action), timeout_s=30)

    assert not over(Action.DEREGISTER)
    clock.jump(29)
    assert not over(Action.DEREGISTER)
    clock.jump(1)
    assert over(Action.DEREGISTER)
    assert not over(Action.REGISTER)
    assert not over(Action.DEREGISTER), "it begins anew"
    clock.jump(30)
    servers.applied(change(Action.DEREGISTER))
    assert not over(Action.DEREGISTER)
    clock.jump(30)
    servers.forget(KEY)
    assert not over(Action.DEREGISTER)
    assert servers.drain_is_over(change(Action.DEREGISTER), timeout_s=0)


@pytest.mark.req("EDGE-05")
def test_a_replacement_has_a_drain_time_of_its_own() -> None:
    clock = VirtualClock()
    servers = RegisteredServers(clock=clock)
    wanted = change(Action.REGISTER)
    clock.jump(60)
    assert not servers.drain_is_over(wanted, timeout_s=30)
    servers.drains(wanted)
    clock.jump(29)
    servers.drains(wanted)
    assert not servers.drain_is_over(wanted, timeout_s=30)
    clock.jump(1)
    assert servers.drain_is_over(wanted, timeout_s=30)
    servers.applied(wanted)
    assert not servers.drain_is_over(wanted, timeout_s=30)
