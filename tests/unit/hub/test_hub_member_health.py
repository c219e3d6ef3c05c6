"""Engaged, stale or lost: by when this hub saw the agent's lease change; no time that an agent wrote counts."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from fairlead.api.tenant import LOST_AFTER_S, STALE_AFTER_S, STAMPED_LEASES, StampedLease, TenantStatus
from fairlead.api.times import wire_time
from fairlead.hub.tenants.tenants import CHECK_EVERY_S, MemberHealth
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig
from fairlead.runtime.clock import VirtualClock
from fairlead.testing.builders import NAMESPACE, agent_lease, tenant
from fairlead.translate.view import MemberState


class Watch:
    def __init__(self):
        self.clock = VirtualClock()
        self.changed: list[str] = []
        cluster = Cluster(ClusterConfig(server="http://127.0.0.1:9"), name="hub", clock=self.clock)
        self.leases: WatchCache[StampedLease] = WatchCache(cluster, STAMPED_LEASES)
        self.members = MemberHealth(clock=self.clock, changed=self.changed.append, leases=self.leases)

    def renew(self, *, ago_s=0.0, ahead_s=0.0, **more):
        """Beat: stored ``ago_s`` ago by the server's clock, written by a clock that was ``ahead_s`` ahead of it."""
        stored = self.clock.now() - timedelta(seconds=ago_s)
        renewed = wire_time(stored + timedelta(seconds=ahead_s))
        self.members.lease_changed(None, agent_lease(renewed=renewed, stored=wire_time(stored), **more))

    @property
    def state(self):
        return self.members.state(NAMESPACE)


@pytest.fixture
async def watch():
    watched = Watch()
    task = asyncio.create_task(watched.members.run())
    yield watched
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


async def test_a_renewal_is_reported_when_silence_was_shown_before_the_next_look(watch):
    await watch.clock.advance(1)
    watch.renew()
    await watch.clock.advance(STALE_AFTER_S)
    assert watch.members.view(tenant(), NAMESPACE).silent_since
    watch.changed.clear()
    watch.renew()
    assert watch.changed == [NAMESPACE]


async def test_each_change_is_reported_once_and_lost_ones_at_every_check(watch):
    watch.renew()
    await watch.clock.advance(STALE_AFTER_S + CHECK_EVERY_S)
    assert len(watch.changed) == 2
    await watch.clock.advance(LOST_AFTER_S - STALE_AFTER_S - 2 * CHECK_EVERY_S)
    assert len(watch.changed) == 2


@pytest.mark.req("X-6")
@pytest.mark.parametrize("ahead_s", [0, 3600, -3600])
@pytest.mark.parametrize(("ago_s", "state"), [(0, "Engaged"), (60, "Stale"), (3600, "Lost")])
async def test_the_first_look_believes_the_server_and_not_the_agent(watch, ago_s, ahead_s, state):
    watch.renew(ago_s=ago_s, ahead_s=ahead_s)
    assert watch.state == state


@pytest.mark.req("X-6")
@pytest.mark.parametrize("ahead_s", [3600, -3600])
async def test_an_agent_with_a_wrong_clock_is_judged_by_its_heartbeat(watch, ahead_s):
    for _ in range(3):
        watch.renew(ahead_s=ahead_s)
        assert watch.state == "Engaged"
        await watch.clock.advance(10)
    assert watch.members.clock_ahead_s(NAMESPACE) == ahead_s
    await watch.clock.advance(STALE_AFTER_S)
    assert watch.state == "Stale"
    await watch.clock.advance(LOST_AFTER_S)
    assert watch.state == "Lost"


@pytest.mark.req("X-6")
async def test_small_clock_skew_is_ignored_and_does_not_flap_at_the_limit(watch):
    seen = []
    for ahead_s in (3, 29, 31, 29, 31, 25, 10):
        watch.renew(ahead_s=ahead_s)
        seen.append(watch.members.clock_ahead_s(NAMESPACE))
        await watch.clock.advance(10)
    assert seen == [0, 0, 31, 29, 31, 25, 0]


@pytest.mark.req("X-6")
async def test_a_clock_that_goes_wrong_or_right_is_reported_once(watch):
    for ahead_s in (0, 900, 901, 902, 0, 0):
        watch.renew(ahead_s=ahead_s)
        await watch.clock.advance(10)
    assert len(watch.changed) == 3


@pytest.mark.req("X-6")
async def test_a_clock_that_is_wrong_the_other_way_now_is_reported_again(watch):
    """A member's clock was reported an hour ahead when it was an hour behind."""
    for ahead_s in (3600, 3601, -3600, -3599):
        watch.renew(ahead_s=ahead_s)
        await watch.clock.advance(10)
    assert len(watch.changed) == 2


async def test_a_wall_clock_that_jumps_on_the_member_changes_nothing(watch):
    watch.renew()
    watch.renew(ahead_s=-7200)
    assert watch.state == "Engaged"


async def test_an_unchanged_lease_is_not_a_sign_of_life(watch):
    lease = agent_lease(renewed="2030-01-01T00:00:00Z")
    watch.members.lease_changed(None, lease)
    await watch.clock.advance(STALE_AFTER_S + 1)
    watch.members.lease_changed(lease, lease)
    assert watch.state == "Stale"


@pytest.mark.parametrize(
    "renewed", ["", "yesterday", "0001-01-01T00:00:00.000000+14:00", "9999-12-31T23:59:59.000000-14:00"]
)
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


async def test_nothing_is_kept_of_a_member_whose_tenant_is_gone(watch):
    watch.renew()
    watch.members.forget(NAMESPACE)
    assert watch.state == "Pending"
    watch.changed.clear()
    await watch.clock.advance(LOST_AFTER_S)
    assert watch.changed == []


async def test_other_leases_say_nothing_of_an_agent(watch):
    watch.renew(name="something-else")
    assert watch.state == "Pending"


@pytest.mark.req("KI-7")
class TestView:
    async def test_a_silent_member_is_served_on_and_the_message_does_not_change_by_itself(self, watch):
        watch.renew()
        await watch.clock.advance(STALE_AFTER_S + 1)
        first = watch.members.view(tenant(), NAMESPACE)
        assert "the agent of east last reported at 2030-01-01T00:00:00Z" in first.message
        assert first.message.endswith("its last state is served")
        assert not first.drained
        await watch.clock.advance(10 * LOST_AFTER_S)
        assert watch.members.view(tenant(), NAMESPACE) == first

    async def test_a_member_is_drained_only_as_its_tenant_sets(self, watch):
        east = tenant(spec={"drainWhenLost": "10m"})
        watch.renew()
        await watch.clock.advance(599)
        assert not watch.members.view(east, NAMESPACE).drained
        await watch.clock.advance(2)
        assert watch.members.view(east, NAMESPACE).drained
        watch.renew()
        assert not watch.members.view(east, NAMESPACE).drained

    async def test_never_before_it_is_lost(self, watch):
        east = tenant(spec={"drainWhenLost": "1s"})
        watch.renew()
        await watch.clock.advance(LOST_AFTER_S - 1)
        assert not watch.members.view(east, NAMESPACE).drained
        await watch.clock.advance(2)
        assert watch.members.view(east, NAMESPACE).drained


@pytest.mark.req("I-1")
async def test_recorded_states_are_kept_while_leases_are_unreadable(watch):
    watch.renew()
    watch.leases.problem = "the server answered 502"
    for _ in range(2):
        await watch.clock.advance(LOST_AFTER_S)
        assert watch.members.state(NAMESPACE, "Engaged") == "Engaged"
        assert watch.members.state(NAMESPACE, "Stale") == "Stale"
        assert watch.members.state(NAMESPACE, "Lost") == "Lost"
    watch.leases.problem = ""
    await watch.clock.advance(STALE_AFTER_S - CHECK_EVERY_S)
    assert watch.members.state(NAMESPACE, "Engaged") == "Engaged", "they have time to report"
    await watch.clock.advance(CHECK_EVERY_S)
    assert watch.members.state(NAMESPACE, "Engaged") == "Lost"
    watch.renew()
    assert watch.members.state(NAMESPACE, "Lost") == "Engaged"


async def test_agents_are_not_drained_for_time_without_a_hub(watch):
    """As after a pause of ``fairlead standalone``, whose API no agent reached meanwhile."""
    east = tenant(spec={"drainWhenLost": "10m"})
    engaged, lost = (msgspec.structs.replace(east, status=TenantStatus(state=state)) for state in ("Engaged", "Lost"))
    watch.renew(ago_s=3600)
    assert watch.members.view(engaged, NAMESPACE) == MemberState()
    assert watch.members.view(lost, NAMESPACE).drained, "the hub before has drained it"
    watch.changed.clear()
    await watch.clock.advance(STALE_AFTER_S + CHECK_EVERY_S)
    assert watch.members.view(engaged, NAMESPACE).drained, "it is silent now, too"
    assert watch.changed
    watch.renew()
    assert watch.members.view(lost, NAMESPACE) == MemberState()


@pytest.mark.req("MC-18")
async def test_time_in_which_the_hub_cannot_hear_does_not_count(watch):
    east = msgspec.structs.replace(tenant(spec={"drainWhenLost": "10m"}), status=TenantStatus(state="Engaged"))
    watch.renew()
    await watch.clock.advance(120)
    watch.leases.problem = "the server answered 502"
    await watch.clock.advance(3600)
    watch.leases.problem = ""
    await watch.clock.advance(470)
    view = watch.members.view(east, NAMESPACE)
    assert view.silent_since
    assert not view.drained, "the hub has heard 590 s of silence"
    await watch.clock.advance(30)
    assert watch.members.view(east, NAMESPACE).drained


@pytest.mark.req("MC-18")
@pytest.mark.parametrize(
    ("of_tenant", "drain", "drop", "state"),
    [
        ({}, "", "", (False, False)),
        ({"drainWhenLost": "10m", "dropWhenLost": "1h"}, "", "", (True, False)),
        ({"drainWhenLost": "10m", "dropWhenLost": "20m"}, "", "", (True, True)),
        ({"dropWhenLost": "20m"}, "", "never", (False, False)),
        ({"drainWhenLost": "10m", "dropWhenLost": "20m"}, "", "never", (True, False)),
        ({"drainWhenLost": "10m"}, "never", "", (False, False)),
        ({}, "10m", "", (True, False)),
        ({"drainWhenLost": "10m"}, "2h", "", (False, False)),
    ],
)
async def test_a_service_may_replace_what_its_tenant_says(watch, of_tenant, drain, drop, state):
    watch.renew()
    await watch.clock.advance(1800)
    view = watch.members.view(tenant(spec=of_tenant), NAMESPACE, drain=drain, drop=drop)
    assert (view.drained, view.dropped) == state
