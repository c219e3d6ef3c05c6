from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from kube_scripted import ScriptedApi, Seen, method

from fairlead.api.kubernetes import SERVICES
from fairlead.api.times import wire_time
from fairlead.errors import BadConfiguration, Conflict
from fairlead.kube.cluster import Cluster
from fairlead.kube.lease import Heartbeat, LeaderElector
from fairlead.kube.transport import RetryPolicy
from fairlead.runtime.clock import VirtualClock

ONCE = RetryPolicy(attempts=1)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def cluster(api: ScriptedApi, clock: VirtualClock) -> AsyncIterator[Cluster]:
    async with api.cluster(clock=clock, policy=ONCE, qps=0) as cluster:
        yield cluster


class Candidate:
    """One process that wants to lead."""

    def __init__(self, cluster: Cluster, identity: str) -> None:
        self.elector = LeaderElector(cluster, namespace="fairlead", name="hub", identity=identity)
        self.terms: list[int] = []
        self.working = False
        self.finish = asyncio.Event()
        #: Set by a test whose work takes a while to end.
        self.winds_down: asyncio.Event | None = None
        self.task = asyncio.create_task(self.elector.run(self.work))

    async def work(self, epoch: int) -> None:
        self.terms.append(epoch)
        self.working = True
        try:
            await self.finish.wait()
        finally:
            if self.winds_down is not None:
                await self.winds_down.wait()
            self.working = False

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


def create_namespace(api: ScriptedApi, *, age_s: float = 0.0) -> None:
    created = datetime.now(UTC) - timedelta(seconds=age_s)
    api.put("namespaces", {"metadata": {"name": "fairlead", "creationTimestamp": wire_time(created)}})


def lease(api: ScriptedApi) -> dict[str, object]:
    return api.objects["leases"]["fairlead", "hub"]["spec"]


async def test_one_leads_and_the_other_waits(api: ScriptedApi, cluster: Cluster, clock: VirtualClock) -> None:
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)
    two = Candidate(cluster, "two")
    await clock.advance_until(lambda: clock.monotonic() > 120, step_s=1)
    assert (candidate.terms, two.terms) == ([1], [])
    assert candidate.elector.is_leader
    assert not two.elector.is_leader
    assert two.elector.holder == "one"
    assert lease(api)["holderIdentity"] == "one"
    assert lease(api)["leaseTransitions"] == 1
    await candidate.stop()
    await two.stop()


@pytest.mark.req("W-10")
@pytest.mark.parametrize("looks_after_s", [0.1, 0.9, 1.8])
async def test_a_dead_leader_is_followed_a_second_after_its_lease_at_the_latest(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock, looks_after_s: float
) -> None:
    """Whenever the other one looks at the lease, as against the leader's renewals."""
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)

    async def renewed() -> None:
        before = lease(api)["renewTime"]
        await clock.advance_until(lambda: lease(api)["renewTime"] != before, step_s=0.05)

    await renewed()
    begins_s = clock.monotonic() + looks_after_s
    await clock.advance_until(lambda: clock.monotonic() >= begins_s, step_s=0.05)
    two = Candidate(cluster, "two")
    for _ in range(5):
        await renewed()
    died_s = clock.monotonic()
    api.fault(lambda seen: seen.method == "PUT" and seen.json["spec"]["holderIdentity"] != "two", unreachable, times=99)
    await clock.advance_until(lambda: two.working, step_s=0.05)
    assert clock.monotonic() - died_s <= 16
    await candidate.stop()
    await two.stop()


async def unreachable(_seen: Seen) -> web.StreamResponse:
    return web.Response(status=503)


async def test_a_clean_stop_hands_the_lease_over_at_once(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock
) -> None:
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)
    two = Candidate(cluster, "two")
    await clock.advance_until(lambda: two.elector.holder == "one")
    await candidate.stop()
    assert lease(api)["holderIdentity"] == ""
    before = clock.monotonic()
    await clock.advance_until(lambda: two.working)
    assert clock.monotonic() - before < 5
    assert two.terms == [2]
    await two.stop()


async def test_work_that_finishes_ends_the_candidacy(api: ScriptedApi, cluster: Cluster, clock: VirtualClock) -> None:
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)
    candidate.finish.set()
    await asyncio.wait_for(candidate.task, 180)
    assert lease(api)["holderIdentity"] == ""
    assert not candidate.elector.is_leader


async def test_work_that_fails_fails_the_elector(api: ScriptedApi, cluster: Cluster, clock: VirtualClock) -> None:
    elector = LeaderElector(cluster, namespace="fairlead", name="hub", identity="one")

    async def fail(_epoch: int) -> None:
        raise ValueError("bug")

    task = asyncio.create_task(elector.run(fail))
    await clock.advance_until(task.done)
    with pytest.raises(ValueError, match="bug"):
        await task
    assert lease(api)["holderIdentity"] == ""


@pytest.mark.req("I-5")
@pytest.mark.req("B14")
async def test_a_leader_that_cannot_renew_stops_before_another_may_start(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock
) -> None:
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)
    async with api.cluster(name="other", clock=clock, policy=ONCE, qps=0) as healthy:
        two = Candidate(healthy, "two")
        await clock.advance_until(lambda: two.elector.holder == "one")
        cut = clock.monotonic()
        silent = ("one", "")  # neither its renewals nor its hand-over arrive
        api.answer(lambda s: s.method == "PUT" and s.json["spec"]["holderIdentity"] in silent, 503, times=9999)
        stopped: list[float] = []

        def both_never() -> bool:
            assert not (candidate.working and two.working)
            if not candidate.working and not stopped:
                stopped.append(clock.monotonic())
            return two.working

        await clock.advance_until(both_never, step_s=0.25)
        assert stopped[0] - cut <= 10.5
        assert clock.monotonic() - cut >= 12
        assert two.terms == [2]
        await candidate.stop()
        await two.stop()


@pytest.mark.req("I-5")
@pytest.mark.req("B14")
async def test_a_leader_frozen_past_its_lease_knows_at_once(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock
) -> None:
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)
    assert candidate.elector.is_leader
    clock.jump(60)
    assert not candidate.elector.is_leader  # without having run, or asked the server
    api.objects["leases"]["fairlead", "hub"]["spec"]["holderIdentity"] = "two"
    api.put("leases", api.objects["leases"]["fairlead", "hub"])
    await clock.advance_until(lambda: not candidate.working)
    assert candidate.elector.epoch == 1
    await clock.advance_until(lambda: candidate.elector.holder == "two")
    await candidate.stop()


async def test_a_request_that_hangs_does_not_hide_the_deadline(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock
) -> None:
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)
    hanging = asyncio.Event()
    release = asyncio.Event()

    async def hang(_seen: Seen) -> None:
        hanging.set()
        await release.wait()

    started = clock.monotonic()
    api.fault(method("PUT"), hang, times=99)
    await clock.advance_until(hanging.is_set)
    await clock.advance_until(lambda: not candidate.working)
    assert clock.monotonic() - started <= 10.5
    assert not candidate.elector.is_leader
    release.set()
    await candidate.stop()


@pytest.mark.req("B15")
async def test_a_stolen_lease_ends_the_term(api: ScriptedApi, cluster: Cluster, clock: VirtualClock) -> None:
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)
    stolen = api.objects["leases"]["fairlead", "hub"]
    stolen["spec"].update(holderIdentity="thief", leaseTransitions=7)
    api.put("leases", stolen)
    await clock.advance_until(lambda: not candidate.working, limit_s=5)
    assert candidate.elector.holder == "thief"
    before = clock.monotonic()
    await clock.advance_until(lambda: candidate.working)  # the thief never renews
    assert clock.monotonic() - before >= 12
    assert candidate.terms == [1, 8]
    await candidate.stop()


@pytest.mark.req("B15")
async def test_a_deleted_lease_means_a_new_election_with_a_higher_epoch(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock
) -> None:
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)
    two = Candidate(cluster, "two")
    await clock.advance_until(lambda: two.elector.holder == "one")
    api.drop("leases", "fairlead", "hub")
    await clock.advance_until(lambda: len(candidate.terms) + len(two.terms) == 2)
    assert not (candidate.working and two.working)
    assert sorted(candidate.terms + two.terms) == [1, 2]
    await candidate.stop()
    await two.stop()


@pytest.mark.req("CORE-04")
async def test_a_deleted_lease_is_taken_only_after_its_holder_has_stopped(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock
) -> None:
    async with api.cluster(name="cut off", clock=clock, policy=ONCE, qps=0) as cut_off:
        candidate = Candidate(cut_off, "one")
        await clock.advance_until(lambda: candidate.working)
        two = Candidate(cluster, "two")
        await clock.advance_until(lambda: two.elector.holder == "one")
        await clock.advance_until(lambda: clock.monotonic() > 30)
        # The leader cannot renew, so it does not learn that the lease is gone.
        api.answer(lambda seen: seen.method != "GET" and seen.json["spec"]["holderIdentity"] == "one", 503, times=9999)
        api.drop("leases", "fairlead", "hub")

        def taken() -> bool:
            assert not (candidate.elector.is_leader and two.elector.is_leader)
            return two.working

        await clock.advance_until(taken, step_s=0.25)
        assert two.terms == [2]
        await candidate.stop()
        await two.stop()


@pytest.mark.req("CORE-04")
async def test_a_candidate_that_never_saw_a_deleted_lease_waits_for_its_holder(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock
) -> None:
    create_namespace(api, age_s=3600)
    async with api.cluster(name="cut off", clock=clock, policy=ONCE, qps=0) as cut_off:
        candidate = Candidate(cut_off, "one")
        await clock.advance_until(lambda: candidate.working)
        await clock.advance_until(lambda: clock.monotonic() > 60)
        api.answer(lambda seen: seen.method != "GET" and seen.json["spec"]["holderIdentity"] == "one", 503, times=9999)
        api.drop("leases", "fairlead", "hub")
        two = Candidate(cluster, "two")

        def taken() -> bool:
            assert not (candidate.elector.is_leader and two.elector.is_leader)
            return two.working

        await clock.advance_until(taken, step_s=0.25)
        await candidate.stop()
        await two.stop()


@pytest.mark.req("CORE-04")
@pytest.mark.parametrize(("age_s", "waits_s"), [(0.0, 0.0), (3.0, 0.0), (6.0, 10.0), (-3600.0, 10.0)])
async def test_a_first_leader_waits_only_where_another_one_may_have_led(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock, age_s: float, waits_s: float
) -> None:
    create_namespace(api, age_s=age_s)
    started_s = clock.monotonic()
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working, step_s=0.25)
    assert waits_s <= clock.monotonic() - started_s <= waits_s + 1
    await candidate.stop()


@pytest.mark.req("CORE-04")
@pytest.mark.parametrize("transitions", [2**31 - 1, 2**40, -5])
async def test_a_lease_with_an_absurd_epoch_is_still_taken(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock, transitions: int
) -> None:
    """A real API server accepts no number above 2^31 - 1."""
    api.put(
        "leases",
        {
            "metadata": {"namespace": "fairlead", "name": "hub"},
            "spec": {"holderIdentity": "", "leaseTransitions": transitions},
        },
    )
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)
    assert candidate.terms == [1]
    assert await candidate.elector.raise_epoch(0) == 1
    await candidate.stop()


@pytest.mark.req("CORE-04")
@pytest.mark.parametrize("duration_s", [2**31 - 1, 601, 0, -5])
async def test_a_lease_with_an_absurd_duration_expires_like_our_own(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock, duration_s: int
) -> None:
    spec = {"holderIdentity": "gone", "leaseTransitions": 1, "leaseDurationSeconds": duration_s}
    api.put("leases", {"metadata": {"namespace": "fairlead", "name": "hub"}, "spec": spec})
    started_s = clock.monotonic()
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working, step_s=0.25)
    assert 15 <= clock.monotonic() - started_s <= 16
    assert candidate.terms == [2]
    await candidate.stop()


@pytest.mark.req("CORE-04")
async def test_a_raised_epoch_is_in_the_lease_before_it_is_used(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock
) -> None:
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)
    assert await candidate.elector.raise_epoch(0) == 1
    started_s = clock.monotonic()
    raising = asyncio.create_task(candidate.elector.raise_epoch(4))
    await clock.advance_until(raising.done)
    assert raising.result() == candidate.elector.epoch == lease(api)["leaseTransitions"] == 5
    assert clock.monotonic() - started_s >= 10, "a leader with epoch 4 may not have noticed yet"
    await clock.advance_until(lambda: clock.monotonic() - started_s > 60)
    assert (candidate.terms, candidate.working) == ([1], True), "the renewals go on from the raised epoch"
    await candidate.stop()


@pytest.mark.req("CORE-04")
async def test_who_no_longer_holds_the_lease_cannot_raise_the_epoch(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock
) -> None:
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)
    stolen = api.objects["leases"]["fairlead", "hub"]
    stolen["spec"].update(holderIdentity="thief", leaseTransitions=7)
    api.put("leases", stolen)
    with pytest.raises(Conflict):
        await candidate.elector.raise_epoch(9)
    assert lease(api)["leaseTransitions"] == 7
    await candidate.stop()


@pytest.mark.req("CORE-10")
async def test_a_term_that_has_lapsed_ends_although_the_lease_is_renewed(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock
) -> None:
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)
    renewing, answer = asyncio.Event(), asyncio.Event()

    async def suspended(_seen: Seen) -> None:
        renewing.set()
        await answer.wait()

    api.fault(method("PUT"), suspended)
    await clock.advance_until(renewing.is_set)
    clock.jump(11)  # the machine sleeps; no timer of ours runs before the answer arrives
    assert not candidate.elector.is_leader
    answer.set()
    await clock.advance_until(lambda: len(candidate.terms) == 2)
    assert candidate.terms == [1, 2], "what was dropped meanwhile is queued by a new term"
    await candidate.stop()


@pytest.mark.req("T-1")
@pytest.mark.parametrize("how", ["stolen", "deleted"])
async def test_who_knows_that_the_lease_is_lost_does_not_lead_while_its_work_winds_down(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock, how: str
) -> None:
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)
    candidate.winds_down = asyncio.Event()
    if how == "stolen":
        stolen = api.objects["leases"]["fairlead", "hub"]
        stolen["spec"].update(holderIdentity="thief", leaseTransitions=7)
        api.put("leases", stolen)
    else:
        api.drop("leases", "fairlead", "hub")
    since_s = clock.monotonic()
    await clock.advance_until(lambda: not candidate.elector.is_leader, limit_s=20)
    assert clock.monotonic() - since_s < 5, (
        "known at the first renewal, long before the proof of the last candidate ends"
    )
    assert candidate.working
    await clock.advance(30)
    assert candidate.working
    assert not candidate.elector.is_leader
    candidate.winds_down.set()
    await clock.advance_until(lambda: len(candidate.terms) == 2)
    await candidate.stop()


@pytest.mark.req("T-survivors", "I-5")
@pytest.mark.parametrize("how", ["taken", "renewed"])
async def test_leadership_counts_from_before_the_request_not_from_after_its_answer(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock, how: str
) -> None:
    """The server may have stored it at once and answered late: others count from when it was stored."""
    asked_at_s: list[float] = []

    async def late(_seen: Seen) -> None:
        asked_at_s.append(clock.monotonic())
        await clock.sleep(3)

    if how == "taken":
        api.fault(method("POST"), late)
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working, step_s=0.25)
    if how == "renewed":
        api.fault(method("PUT"), late)
        await clock.advance_until(lambda: bool(asked_at_s), step_s=0.25)
        answered = len(api.requests("PUT"))
        api.answer(lambda s: s.method == "PUT" and len(api.requests("PUT")) > answered, 503, times=99)
    else:
        api.answer(method("PUT"), 503, times=99)
    await clock.advance_until(lambda: not candidate.elector.is_leader, step_s=0.25)
    assert clock.monotonic() - asked_at_s[0] <= 10.5
    await candidate.stop()


async def test_an_answer_that_was_lost_is_not_a_lost_lease(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock
) -> None:
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)
    mine = api.objects["leases"]["fairlead", "hub"]
    api.put("leases", dict(mine, metadata=dict(mine["metadata"])))  # as stored by a PUT that we believe failed
    await clock.advance_until(lambda: len(api.requests("PUT")) >= 4)
    assert candidate.terms == [1]
    assert candidate.working
    await candidate.stop()


async def test_a_twin_with_our_name_is_waited_for(api: ScriptedApi, cluster: Cluster, clock: VirtualClock) -> None:
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 15, "leaseTransitions": 3}
    api.put("leases", {"metadata": {"namespace": "fairlead", "name": "hub"}, "spec": spec})
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)
    assert clock.monotonic() >= 15
    assert candidate.terms == [4]
    await candidate.stop()


@pytest.mark.req("B19")
async def test_without_writes_no_candidate_leads_and_the_reason_is_known(
    api: ScriptedApi, cluster: Cluster, clock: VirtualClock
) -> None:
    api.answer(lambda s: s.method != "GET", 503, "ServiceUnavailable", "read only", times=3)
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: "read only" in candidate.elector.problem)
    assert not candidate.terms
    await clock.advance_until(lambda: candidate.working)
    assert candidate.elector.problem == ""
    await candidate.stop()


async def test_what_others_wrote_into_the_lease_stays(api: ScriptedApi, cluster: Cluster, clock: VirtualClock) -> None:
    meta = {"namespace": "fairlead", "name": "hub", "labels": {"team": "a"}, "annotations": {"note": "b"}}
    api.put("leases", {"metadata": meta, "spec": {}})
    candidate = Candidate(cluster, "one")
    await clock.advance_until(lambda: candidate.working)
    stored = api.objects["leases"]["fairlead", "hub"]["metadata"]
    assert (stored["labels"], stored["annotations"]) == ({"team": "a"}, {"note": "b"})
    await candidate.stop()


async def test_times_that_make_no_sense_are_refused(cluster: Cluster) -> None:
    with pytest.raises(BadConfiguration, match="lease"):
        LeaderElector(cluster, namespace="a", name="b", identity="c", lease_s=5, renew_s=10)


async def test_a_heartbeat_makes_and_renews_its_lease(api: ScriptedApi, cluster: Cluster, clock: VirtualClock) -> None:
    notes = {"fairlead.dev/version": "1"}
    beat = Heartbeat(
        cluster,
        namespace="tenant-a",
        name="agent",
        identity="pod-1",
        interval_s=10,
        annotations=lambda: notes,
        labels={"x": "y"},
    )
    task = asyncio.create_task(beat.run())
    await clock.advance_until(lambda: beat.beats == 1)
    stored = api.objects["leases"]["tenant-a", "agent"]
    assert stored["spec"]["holderIdentity"] == "pod-1"
    assert stored["metadata"]["annotations"] == notes
    assert stored["metadata"]["labels"] == {"x": "y"}
    assert datetime.fromisoformat(stored["spec"]["renewTime"]) <= clock.now()
    api.answer(method("PATCH"), 403, "Forbidden")
    await clock.advance_until(lambda: "patch" in beat.problem)
    api.drop("leases", "tenant-a", "agent")
    notes["fairlead.dev/version"] = "2"
    await clock.advance_until(lambda: beat.beats == 2)
    assert beat.problem == ""
    assert api.objects["leases"]["tenant-a", "agent"]["metadata"]["annotations"]["fairlead.dev/version"] == "2"
    task.cancel()


@pytest.mark.req("CORE-14")
@pytest.mark.parametrize("qps", [0, 1])
async def test_writes_that_hang_keep_no_lease_from_its_connection(api: ScriptedApi, qps: float) -> None:
    """A webhook that answers after half a minute took all connections, and leadership changed again and again."""
    released = asyncio.Event()

    async def hang(_seen: Seen) -> web.StreamResponse | None:
        await released.wait()
        return None

    api.fault(lambda seen: seen.method == "PATCH" and "/leases" not in seen.path, hang, times=10_000)
    # Without a limit of the rate the writes take all connections; with one they wait for their turn.
    create_namespace(api)
    async with api.cluster(policy=ONCE, qps=qps) as cluster:
        elector = LeaderElector(
            cluster, namespace="fairlead", name="hub", identity="one", lease_s=3.0, renew_s=2.0, retry_s=0.2
        )
        terms: list[int] = []

        async def lead(epoch: int) -> None:
            terms.append(epoch)
            writes = [cluster.merge_patch(SERVICES, "a", f"web-{number}", {}) for number in range(200)]
            await asyncio.gather(*writes, return_exceptions=True)

        task = asyncio.create_task(elector.run(lead))
        try:
            await api.until(lambda: len([seen for seen in api.seen if "/leases" in seen.path]) >= 20)
            assert terms == [1]
            assert elector.is_leader
        finally:
            released.set()
            task.cancel()
            await asyncio.wait({task})
