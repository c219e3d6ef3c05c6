"""Engaged, stale or lost: by the age of the agent's lease, which only the first look takes from a wall clock."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from fairlead.hub.tenants.member_health import CHECK_EVERY_S, LOST_AFTER_S, STALE_AFTER_S, MemberHealth
from fairlead.runtime.clock import VirtualClock
from fairlead.testing.builders import NAMESPACE, agent_lease, tenant


class Watch:
    def __init__(self):
        self.clock = VirtualClock()
        self.changed: list[str] = []
        self.members = MemberHealth(clock=self.clock, changed=self.changed.append)

    def renew(self, *, ago_s=0.0, **words):
        renewed = (self.clock.now() - timedelta(seconds=ago_s)).isoformat().replace("+00:00", "Z")
        self.members.lease_changed(None, agent_lease(renewed=renewed, **words))

    @property
    def state(self):
        return self.members.state(NAMESPACE)


@pytest.fixture
async def watch():
    one = Watch()
    task = asyncio.create_task(one.members.run())
    yield one
    task.cancel()
    await asyncio.wait({task})


async def test_never_heard_is_pending(watch):
    assert watch.state == "Pending"
    assert watch.members.age_s(NAMESPACE) is None
    assert watch.members.view(tenant(), NAMESPACE).message == ""


async def test_silence_makes_stale_then_lost_and_a_renewal_engages_again(watch):
    watch.renew()
    assert watch.state == "Engaged"
    await watch.clock.advance(STALE_AFTER_S - 1)
    assert watch.state == "Engaged"
    await watch.clock.advance(CHECK_EVERY_S + 1)
    assert watch.state == "Stale"
    await watch.clock.advance(LOST_AFTER_S)
    assert watch.state == "Lost"
    watch.renew()
    assert watch.state == "Engaged"
    assert watch.changed[:2] == [NAMESPACE, NAMESPACE]
    assert watch.changed[-1] == NAMESPACE


async def test_each_change_is_told_once_and_lost_ones_at_every_check(watch):
    watch.renew()
    await watch.clock.advance(STALE_AFTER_S + CHECK_EVERY_S)
    assert len(watch.changed) == 2
    await watch.clock.advance(LOST_AFTER_S - STALE_AFTER_S - 2 * CHECK_EVERY_S)
    assert len(watch.changed) == 2


@pytest.mark.parametrize(("ago_s", "state"), [(0, "Engaged"), (60, "Stale"), (3600, "Lost"), (-3600, "Engaged")])
async def test_only_the_first_look_believes_the_wall_clock(watch, ago_s, state):
    watch.renew(ago_s=ago_s)
    assert watch.state == state


async def test_a_wall_clock_that_jumps_on_the_member_changes_nothing(watch):
    watch.renew()
    watch.renew(ago_s=7200)
    assert watch.state == "Engaged"


async def test_a_lease_that_is_seen_again_unchanged_is_no_sign_of_life(watch):
    lease = agent_lease(renewed="2030-01-01T00:00:00Z")
    watch.members.lease_changed(None, lease)
    await watch.clock.advance(STALE_AFTER_S + 1)
    watch.members.lease_changed(lease, lease)
    assert watch.state == "Stale"


@pytest.mark.parametrize("renewed", ["", "yesterday"])
async def test_an_unreadable_time_does_no_harm(watch, renewed):
    watch.members.lease_changed(None, agent_lease(renewed=renewed))
    assert watch.state in {"Pending", "Engaged"}


async def test_a_time_without_a_zone_does_no_harm(watch):
    watch.members.lease_changed(None, agent_lease(renewed="2030-01-01T00:00:00"))
    assert watch.state == "Engaged"


@pytest.mark.req("I-1")
async def test_a_deleted_lease_leaves_what_was_known(watch):
    watch.renew()
    watch.members.lease_changed(agent_lease(renewed="x"), None)
    assert watch.state == "Engaged"


async def test_other_leases_are_nobody(watch):
    watch.renew(name="something-else")
    assert watch.state == "Pending"


@pytest.mark.req("KI-7")
class TestView:
    async def test_a_silent_member_is_served_on_and_the_message_does_not_change_by_itself(self, watch):
        watch.renew()
        await watch.clock.advance(STALE_AFTER_S + 1)
        first = watch.members.view(tenant(), NAMESPACE)
        assert "the agent of east was last heard at 2030-01-01T00:00:00Z" in first.message
        assert first.message.endswith("its last state is served on")
        assert not first.drained
        await watch.clock.advance(10 * LOST_AFTER_S)
        assert watch.members.view(tenant(), NAMESPACE) == first

    async def test_it_is_drained_only_when_its_tenant_says_so_and_when(self, watch):
        one = tenant(spec={"drainWhenLost": "10m"})
        watch.renew()
        await watch.clock.advance(599)
        assert not watch.members.view(one, NAMESPACE).drained
        await watch.clock.advance(2)
        assert watch.members.view(one, NAMESPACE).drained
        watch.renew()
        assert not watch.members.view(one, NAMESPACE).drained

    async def test_never_before_it_is_lost(self, watch):
        one = tenant(spec={"drainWhenLost": "1s"})
        watch.renew()
        await watch.clock.advance(LOST_AFTER_S - 1)
        assert not watch.members.view(one, NAMESPACE).drained
        await watch.clock.advance(2)
        assert watch.members.view(one, NAMESPACE).drained
