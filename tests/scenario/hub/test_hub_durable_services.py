"""Services on load balancers that somebody else runs: what is on record, and moves from one provider to another.

The world has three: the hub's own (class envoy, addresses from its pool), and two whose ledger are BackendRecords.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hub_world import HubWorld, RunningHub, new_world

from fairlead.api.backendrecord import BACKEND_RECORDS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.cli.plan_rows import plan_of
from fairlead.errors import NotFound
from fairlead.hub.inspect.preview import preview
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.testing.builders import NAMESPACE, lb_key, target

ADDRESSES = {"edge": "198.51.100.1", "rack": "198.51.100.2"}
PROVIDERS = {"edge": "memory", "rack": "racks", "envoy": "envoy"}
DRAIN_S = 4.0


class Watcher:
    """Follows one load balancer like a user with a browser: is the address that is shown one that answers?"""

    def __init__(self, world: HubWorld) -> None:
        self.world = world
        self.clouds: dict[str, MemoryCloud] = {}
        self.addresses: list[str] = []
        self.gaps: list[str] = []

    def look(self, shown: str) -> None:
        if not self.addresses or self.addresses[-1] != shown:
            self.addresses.append(shown)
        serving = [name for name, cloud in self.clouds.items() if self._answers(cloud, shown)]
        if not serving:
            self.gaps.append(f"{shown or 'no address'} at {self.world.clock.monotonic():g}")

    def _answers(self, cloud: MemoryCloud, shown: str) -> bool:
        load_balancer = cloud.load_balancers.get(lb_key())
        if load_balancer is None:
            return False
        address = load_balancer.spec.address or load_balancer.spec.parameters.get("address", "")
        return shown == address and any(not member.draining for member in cloud.members(lb_key()).values())


class Moves:
    """One load balancer that is moved from class to class."""

    def __init__(self, world: HubWorld) -> None:
        self.world = world
        self.racks = MemoryCloud(clock=world.clock)
        self.rack = MemoryProvider(cloud=self.racks)
        world.factories["racks"] = self.new_rack
        self.watcher = Watcher(world)
        self.watcher.clouds = {"envoy": world.cloud, "edge": world.outside, "rack": self.racks}

    def new_rack(self) -> MemoryProvider:
        self.rack = MemoryProvider(cloud=self.racks, faults=self.rack.faults)
        return self.rack

    def cloud(self, name: str) -> MemoryCloud:
        return self.watcher.clouds[name]

    async def classes(self) -> None:
        for name, address in ADDRESSES.items():
            spec = {
                "provider": PROVIDERS[name],
                "parameters": {"address": address},
                "targets": "Pod",
                "drain": f"{DRAIN_S:g}s",
            }
            body = {"metadata": {"name": name}, "spec": spec}
            await self.world.user.apply(LOAD_BALANCER_CLASSES, body, manager="kubectl")
        drain = {"spec": {"drain": f"{DRAIN_S:g}s"}}
        await self.world.user.merge_patch(LOAD_BALANCER_CLASSES, "", "envoy", drain)

    async def serve(self, first: str) -> str:
        """Make one that works, by class ``first``; returns its address."""
        await self.classes()
        await self.world.slice("web", "10.1.0.1", "10.1.0.2")
        await self.world.lb(spec={"className": first})
        return await self.world.programmed()

    async def ask(self, name: str) -> None:
        """Move it: what a user does."""
        await self.world.user.merge_patch(TCP_LOAD_BALANCERS, NAMESPACE, "web", {"spec": {"className": name}})

    async def follow(self, check, *, what: str = "", limit_s: float = 120.0):
        """Wait until ``check``; a user looks at every step."""

        async def looked():
            load_balancer = await self.world.get()
            if load_balancer is not None and not load_balancer.deleting:
                self.watcher.look(load_balancer.status.address)
            last = check()
            return await last if asyncio.iscoroutine(last) else last

        return await self.world.until(looked, what=what, limit_s=limit_s)

    async def moved(self, name: str) -> None:
        """Wait until it is at ``name`` and nowhere else, on record too."""
        await self.follow(lambda: self.is_at(name), what=f"it is at {name} alone")

    async def is_at(self, name: str) -> bool:
        load_balancer = await self.world.get()
        if load_balancer is None or load_balancer.status.serving_provider != PROVIDERS[name]:
            return False
        there = {each for each, cloud in self.watcher.clouds.items() if lb_key() in cloud.load_balancers}
        recorded = {record.spec.load_balancer.provider for record in await self.records()}
        durable = {PROVIDERS[name]} - {"envoy"}
        programmed = next(condition for condition in load_balancer.status.conditions if condition.type == "Programmed")
        return (
            there == {name}
            and recorded == durable
            and load_balancer.status.recorded_providers == durable
            and (programmed.status, programmed.observed_generation) == ("True", load_balancer.metadata.generation)
            and bool(load_balancer.status.allocation.address) == (name == "envoy")
        )

    def ready_at(self, name: str) -> set[str]:
        members = self.cloud(name).members(lb_key())
        return {str(at) for (_, at), each in members.items() if not each.draining}

    async def shows_another_than(self, address: str) -> bool:
        return (await self.world.get()).status.address != address

    async def class_is_gone(self, name: str) -> None:
        """Wait until a class that was deleted is gone; whoever holds it on is overruled."""
        with contextlib.suppress(NotFound):
            meta = {"metadata": {"finalizers": None}}
            await self.world.user.merge_patch(LOAD_BALANCER_CLASSES, "", name, meta)
        assert await self.world.find(LOAD_BALANCER_CLASSES, "", name) is None

    async def is_gone(self) -> bool:
        left = [name for name, cloud in self.watcher.clouds.items() if lb_key() in cloud.load_balancers]
        return not left and not await self.records() and await self.world.get() is None

    async def records(self):
        return await self.world.user.list(BACKEND_RECORDS, NAMESPACE)

    def never_without(self) -> None:
        assert self.watcher.gaps == []


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
    """What stands beside on record is as good as what stood there first, also for a preview and after a restart."""
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
async def test_one_that_fails_over_there_serves_over_here_and_says_so(moves, led, first):
    """Its pods come and go meanwhile; when the cause is gone the move ends by itself."""
    old = await moves.serve(first)
    moves.rack.faults.down = "rack 7 does not answer; look at its cables"
    await moves.ask("rack")
    failed = await moves.world.said("Programmed", "False")
    assert failed.reason == "ProviderFailed"
    assert "rack 7 does not answer" in failed.message
    assert f"LoadBalancerClass {first} serves until LoadBalancerClass rack has all of it" in failed.message
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
async def test_one_that_is_refused_over_there_serves_over_here_and_says_so(moves, led):
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
    """Every target that is wanted must be there first: whoever is missing would be missed by somebody."""
    old = await moves.serve("edge")
    moves.rack.faults.rejected = frozenset({target("10.1.0.2").key})
    await moves.ask("rack")
    lacking = await moves.world.said("Programmed", "False")
    assert "1 of 2 targets are not registered yet" in lacking.message
    await moves.world.quiet(30)
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


class Death:
    """Kills a hub at its n-th write of anything but Events and leases: before it arrives, or before its answer does."""

    def __init__(self, hub: RunningHub, number: int, *, arrives: bool) -> None:
        self.left = number
        self.died = asyncio.Event()
        for method in ("apply", "create", "merge_patch", "delete"):
            setattr(hub.cluster, method, self._dying(getattr(hub.cluster, method), arrives=arrives))

    def _dying(self, write, *, arrives: bool):
        async def dying(resource, *rest, **text):
            if resource.kind in ("Event", "Lease"):
                return await write(resource, *rest, **text)
            self.left -= 1
            if self.left > 0:
                return await write(resource, *rest, **text)
            if self.left == 0 and arrives:
                await write(resource, *rest, **text)
            self.died.set()
            return await asyncio.Event().wait()

        return dying


async def move_with_a_death(world: HubWorld, first: str, then: str, number: int, *, arrives: bool) -> bool:
    """Move with a hub that dies at its n-th write; False when it did not write so often."""
    moves = Moves(world)
    hub = await world.start()
    await world.tenant()
    old = await moves.serve(first)
    moves.cloud(first).add_foreign(lb_key("theirs"), "by-hand", target("200"))
    death = Death(hub, number, arrives=arrives)
    await moves.ask(then)

    async def over() -> bool:
        return death.died.is_set() or await moves.is_at(then)

    await moves.follow(over, what="it is moved, or the hub is dead")
    died = death.died.is_set()
    await world.stop(hub)
    # What a hub serves itself is what the next one serves; of all others the next one finds what this one left.
    world.cloud.load_balancers.clear()
    await world.start()
    await moves.moved(then)
    load_balancer = await world.get()
    assert moves.watcher.addresses == [old, load_balancer.status.address]
    assert {str(at) for _, at in moves.cloud(then).members(lb_key())} == {"10.1.0.1:8080", "10.1.0.2:8080"}
    assert moves.cloud(first).foreign(lb_key("theirs")) == {"by-hand": target("200")}
    if "envoy" not in (first, then):
        moves.never_without()
    return died


@pytest.mark.req("I-2", "I-3", "I-4", "I-6")
@pytest.mark.parametrize(
    ("first", "then", "arrives", "step"),
    [("edge", "rack", False, 1), ("edge", "rack", True, 2), ("envoy", "edge", True, 2), ("edge", "envoy", False, 2)],
)
async def test_the_hub_killed_at_every_write_of_a_move(first, then, arrives, step):
    deaths = 0
    for number in range(1, 60, step):
        async with new_world() as world:
            died = await move_with_a_death(world, first, then, number, arrives=arrives)
        if not died:
            break
        deaths += 1
    assert deaths >= 4
    print(f"{first} to {then}: killed at {deaths} writes")
