"""A load balancer moves from one provider to another: made there before it goes here, whatever fails."""

from __future__ import annotations

import pytest
from durable_moves import ADDRESSES, DRAIN_S, Moves
from hub_world import HubWorld, RunningHub

from fairlead.api.backendgroup import BACKEND_RECORDS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import AnyResource
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.cli.changes import plan_of
from fairlead.hub.inspect.preview import preview
from fairlead.testing.builders import NAMESPACE, lb_key, target


@pytest.fixture
async def moves(world: HubWorld) -> Moves:
    return Moves(world)


@pytest.fixture
async def led(moves: Moves, world: HubWorld) -> RunningHub:
    given = await world.start()
    await world.tenant()
    return given


PAIRS = [
    ("envoy", "edge"), ("edge", "envoy"), ("edge", "rack"), ("rack", "envoy"), ("rack", "edge"), ("envoy", "rack"),
]  # fmt: skip


@pytest.mark.req("I-6", "I-9")
@pytest.mark.parametrize(("first", "then"), PAIRS)
async def test_b31_it_is_made_there_before_it_goes_here(moves, led, first, then):
    old = await moves.serve(first)
    moves.cloud(first).add_foreign(lb_key("theirs"), "by-hand", target("200"))
    await moves.ask(then)
    await moves.moved(then)
    load_balancer = await moves.world.get()
    assert moves.watcher.addresses == [old, load_balancer.status.address]
    assert old != load_balancer.status.address
    assert moves.cloud(first).foreign(lb_key("theirs")) == {"by-hand": target("200")}
    assert {str(at) for _, at in moves.cloud(then).members(lb_key())} == {"10.1.0.1:8080", "10.1.0.2:8080"}
    moves.never_without()


@pytest.mark.req("I-10")
async def test_after_a_move_nothing_would_change(moves, led):
    """The second entry of the record counts like the first, also for a preview and after a restart."""
    await moves.serve("rack")
    await moves.ask("edge")
    await moves.moved("edge")
    load_balancer = await moves.world.get()
    assert [(entry.provider, entry.serving, entry.state) for entry in load_balancer.status.provisioned] == [
        ("memory", True, "Ensured")
    ]
    (calm,) = await preview(moves.world.user)
    assert calm.side is not None
    assert calm.side.recorded_spec is not None
    assert (calm.provider, plan_of(calm).rows) == ("memory", [])
    await moves.world.quiet()
    await moves.world.stop(led)
    again = await moves.world.start()
    await moves.world.quiet()
    assert [each for each in again.written if "LoadBalancerClass" not in each] == []
    assert set(again.durable.calls) == {"observe"}


@pytest.mark.req("I-9")
async def test_clients_of_the_old_address_have_the_drain_time_to_follow(moves, led):
    """They are served where they are until then, by whatever pods there are by then."""
    old = await moves.serve("edge")
    await moves.ask("rack")
    await moves.follow(lambda: moves.shows_another_than(old))
    began_s = moves.world.clock.monotonic()
    await moves.world.slice("web", "10.1.0.2", "10.1.0.3")
    await moves.follow(lambda: "10.1.0.3:8080" in moves.ready_at("edge"))
    await moves.moved("rack")
    assert moves.world.clock.monotonic() - began_s >= DRAIN_S - 1
    await moves.follow(lambda: moves.ready_at("rack") == {"10.1.0.2:8080", "10.1.0.3:8080"})
    moves.never_without()


@pytest.mark.req("I-6", "I-7")
@pytest.mark.parametrize("first", ["edge", "envoy"])
async def test_a_load_balancer_that_fails_to_move_serves_at_the_old_provider(moves, led, first):
    """Pods come and go meanwhile; once the cause is removed, the move completes without help."""
    old = await moves.serve(first)
    moves.rack.faults.down = "rack 7 does not answer; look at its cables"
    await moves.ask("rack")
    failed = await moves.world.said("Programmed", "False")
    assert failed.reason == "ProviderFailed"
    assert "rack 7 does not answer" in failed.message
    assert f"LoadBalancerClass {first} serves until LoadBalancerClass rack is ready" in failed.message
    await moves.world.until(moves.world.events)
    assert ("Warning", "ProviderFailed") in await moves.world.events()
    await moves.world.slice("web", "10.1.0.2", "10.1.0.3")
    await moves.follow(lambda: moves.ready_at(first) == {"10.1.0.2:8080", "10.1.0.3:8080"})
    await moves.world.quiet(120)
    assert (await moves.world.get()).status.address == old
    moves.rack.faults.down = ""
    await moves.moved("rack")
    assert moves.watcher.addresses == [old, ADDRESSES["rack"]]
    moves.never_without()


@pytest.mark.req("I-6", "I-7")
async def test_a_load_balancer_rejected_by_the_new_provider_stays_at_the_old(moves, led):
    old = await moves.serve("edge")
    moves.rack.faults.refuse_new = "no rack has room; order another one"
    await moves.ask("rack")
    failed = await moves.world.said("Programmed", "False")
    assert "no rack has room" in failed.message
    await moves.world.quiet(60)
    assert (await moves.world.get()).status.address == old
    assert moves.ready_at("edge") == {"10.1.0.1:8080", "10.1.0.2:8080"}
    await moves.ask("no-such")
    refused = await moves.world.said("Accepted", "False")
    assert "no-such" in refused.message
    assert "the last accepted version is served until then" in refused.message
    await moves.ask("edge")
    await moves.moved("edge")
    assert moves.watcher.addresses == [old]


@pytest.mark.req("I-6", "I-7")
async def test_one_bad_target_over_there_keeps_it_here(moves, led):
    """Every target that is wanted must be there first: one that is missing would be missed by its users."""
    old = await moves.serve("edge")
    moves.rack.faults.rejected = frozenset({target("10.1.0.2").key})
    await moves.ask("rack")
    await moves.world.quiet(30)
    lacking = await moves.world.said("Programmed", "False")
    assert "1 of 2 targets are not registered yet" in lacking.message
    assert (await moves.world.get()).status.address == old
    await moves.world.slice("web", "10.1.0.1", "10.1.0.3")
    await moves.moved("rack")
    moves.never_without()


@pytest.mark.req("I-6", "I-2")
@pytest.mark.parametrize("first", ["edge", "envoy"])
@pytest.mark.parametrize("restart", [False, True])
async def test_back_again_before_it_was_there(moves, led, first, restart):
    old = await moves.serve(first)
    # One pod that the other side refuses: the move stays in the middle.
    moves.rack.faults.rejected = frozenset({target("10.1.0.2").key})
    await moves.ask("rack")
    await moves.follow(lambda: moves.ready_at("rack") == {"10.1.0.1:8080"}, what="half of it is over there")
    if restart:
        await moves.world.stop(led)
    await moves.ask(first)
    if restart:
        await moves.world.start()
    await moves.moved(first)
    assert moves.watcher.addresses == [old]
    moves.never_without()


@pytest.mark.req("I-6", "I-2")
@pytest.mark.parametrize("back", ["edge", "envoy"])
async def test_back_again_while_the_one_before_is_on_its_way_out(moves, led, back):
    first = {"edge": "envoy", "envoy": "edge"}[back]
    old = await moves.serve(first)
    await moves.ask(back)
    await moves.follow(lambda: moves.shows_another_than(old))
    assert lb_key() in moves.cloud(first).load_balancers
    await moves.ask(first)
    await moves.moved(first)
    assert moves.watcher.addresses[::2] == [old, old]
    moves.never_without()


@pytest.mark.req("I-2", "I-3")
@pytest.mark.parametrize(("first", "then"), [("edge", "rack"), ("envoy", "rack")])
@pytest.mark.parametrize("restart", [False, True])
async def test_deleted_in_the_middle_nothing_is_left_anywhere(moves, led, first, then, restart):
    await moves.serve(first)
    moves.rack.faults.rejected = frozenset({target("10.1.0.2").key})
    await moves.ask(then)
    await moves.follow(lambda: moves.ready_at(then) == {"10.1.0.1:8080"}, what="half of it is over there")
    if restart:
        await moves.world.stop(led)
    await moves.world.delete_lb()
    if restart:
        await moves.world.start()
    await moves.world.until(moves.is_gone, what="nothing of it is left")


@pytest.mark.req("I-7")
@pytest.mark.parametrize("restart", [False, True])
async def test_the_class_before_deleted_in_the_middle(moves, led, restart):
    """Who serves is on record, parameters and all."""
    old = await moves.serve("edge")
    moves.rack.faults.down = "rack 7 does not answer"
    await moves.ask("rack")
    await moves.world.said("Programmed", "False")
    await moves.world.user.delete(LOAD_BALANCER_CLASSES, "", "edge")
    await moves.class_is_gone("edge")
    if restart:
        await moves.world.stop(led)
        await moves.world.start()
    await moves.world.slice("web", "10.1.0.2", "10.1.0.3")
    await moves.follow(lambda: moves.ready_at("edge") == {"10.1.0.2:8080", "10.1.0.3:8080"})
    assert (await moves.world.get()).status.address == old
    moves.rack.faults.down = ""
    await moves.moved("rack")
    moves.never_without()


@pytest.mark.req("I-7", "I-2")
async def test_the_class_after_deleted_in_the_middle(moves, led):
    old = await moves.serve("edge")
    moves.rack.faults.rejected = frozenset({target("10.1.0.2").key})
    await moves.ask("rack")
    await moves.follow(lambda: moves.ready_at("rack") == {"10.1.0.1:8080"})
    await moves.world.user.delete(LOAD_BALANCER_CLASSES, "", "rack")
    await moves.world.quiet(20)
    assert (await moves.world.get()).status.address == old
    await moves.ask("edge")
    await moves.moved("edge")
    assert moves.watcher.addresses == [old]
    moves.never_without()


@pytest.mark.req("I-8", "I-6")
async def test_a_second_replica_serves_what_is_on_record_and_prepares_what_comes(moves, led):
    second = await moves.world.start(identity="hub-1", lead=False)
    await moves.serve("edge")
    await moves.ask("envoy")
    await moves.moved("envoy")
    await moves.world.until(lambda: lb_key() in second.hub.providers["envoy"].tracker)
    assert second.written == []
    await moves.ask("edge")
    await moves.moved("edge")
    await moves.world.until(lambda: lb_key() not in second.hub.providers["envoy"].tracker)
    await moves.world.stop(led)
    await moves.world.until(lambda: second.hub.leading)
    await moves.world.quiet()
    assert await moves.is_at("edge")
    moves.never_without()


@pytest.mark.req("CORE-03")
@pytest.mark.parametrize("lost", ["one record", "all records", "records and the load balancer"])
async def test_what_serves_is_adopted_after_a_restore_without_its_records(moves, led, lost):
    world, cloud = moves.world, moves.cloud("edge")
    address = await moves.serve("edge")
    await world.quiet()
    await world.stop(led)
    records = sorted(await moves.records(), key=lambda record: record.spec.target.address)
    forgotten: list[tuple[AnyResource, str]] = [
        (BACKEND_RECORDS, record.metadata.name) for record in records[lost == "one record" :]
    ]
    if lost.endswith("load balancer"):
        forgotten.append((TCP_LOAD_BALANCERS, "web"))
    for resource, name in forgotten:
        await world.user.merge_patch(resource, NAMESPACE, name, {"metadata": {"finalizers": None}})
        await world.user.delete(resource, NAMESPACE, name)
    if lost.endswith("load balancer"):
        await world.lb(spec={"className": "edge"})
    await world.slice("web", "10.1.0.2", "10.1.0.3")
    there = cloud.load_balancers[lb_key()]
    await world.start()

    async def recorded() -> bool:
        return {record.spec.target.address for record in await moves.records()} == {"10.1.0.2", "10.1.0.3"}

    await world.until(recorded, what="the targets are recorded")
    assert await world.programmed() == address
    await world.quiet()
    assert cloud.load_balancers[lb_key()] is there
    # A backend without a record is foreign, and so never removed.
    unrecorded = set() if lost == "one record" else {"10.1.0.1:8080"}
    assert moves.ready_at("edge") == {"10.1.0.2:8080", "10.1.0.3:8080", *unrecorded}
