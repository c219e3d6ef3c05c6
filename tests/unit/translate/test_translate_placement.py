"""The placement of load balancers on proxy machines: even, stable, zones apart; and the steps of a move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.api.announcing import MachineChoice
from fairlead.api.intent import MachinePlacement
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import ANNOTATION_MACHINES
from fairlead.api.proxymachine import ProxyGroup, ProxyGroupSpec, ProxyMachine, ProxyMachineSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.testing.builders import tcp
from fairlead.translate.placement import (
    DEFAULT_PROXY_GROUP,
    Choice,
    Member,
    Placeable,
    Placed,
    Unit,
    advance,
    choose,
    final_choices,
    group_of,
    joined_machine,
    machines_of_move,
    members_of,
    next_placements,
    one_machines_worth,
    placeable,
)

ADDRESSES = [f"192.0.{number // 250}.{number % 250 + 1}" for number in range(1000)]
MACHINES = ("a", "b", "c", "d", "e")
EVERY = MachineChoice(names=list(MACHINES))


def members(*names: str, **changes: Member) -> list[Member]:
    return [changes.get(name, Member(name)) for name in names]


def units(choices: Mapping[str, Choice] | None = None, addresses: Sequence[str] = ADDRESSES) -> list[Unit]:
    return [Unit(address, machines=choices[address].machines if choices else ()) for address in addresses]


def loads(choices: Mapping[str, Choice]) -> Counter[str]:
    return Counter(name for choice in choices.values() for name in choice.machines)


def owners(choices: Mapping[str, Choice]) -> Counter[str]:
    return Counter(choice.machines[0] for choice in choices.values())


def moved(before: Mapping[str, Choice], after: Mapping[str, Choice]) -> set[str]:
    return {name for name in before if set(before[name].machines) != set(after[name].machines)}


@pytest.mark.req("P-7")
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_thousand_load_balancers_are_even_on_five_machines(replicas: int) -> None:
    choices = choose(units(), members(*MACHINES), replicas=replicas)
    mean = 1000 * replicas / 5
    assert all(abs(load - mean) <= 0.15 * mean for load in loads(choices).values())
    assert all(len(set(choice.machines)) == replicas for choice in choices.values())
    assert not any(choice.problem for choice in choices.values())


@pytest.mark.req("P-11")
@pytest.mark.parametrize("replicas", [0, 1, 2])
def test_owners_differ_by_one_at_most(replicas: int) -> None:
    counts = owners(choose(units(), members(*MACHINES), replicas=replicas)).values()
    assert max(counts) - min(counts) <= 1


@pytest.mark.req("P-7")
@pytest.mark.parametrize("replicas", [0, 1, 2])
@pytest.mark.parametrize("how", ["gone", "drained"])
def test_when_one_leaves_only_its_share_moves(replicas: int, how: str) -> None:
    before = choose(units(), members(*MACHINES), replicas=replicas)
    left = members("a", "b", "d", "e") if how == "gone" else members(*MACHINES, c=Member("c", drained=True))
    after = choose(units(before), left, replicas=replicas)
    assert moved(before, after) == {name for name, choice in before.items() if "c" in choice.machines}
    for name, choice in before.items():
        assert set(choice.machines) - {"c"} <= set(after[name].machines)
        if choice.machines[0] != "c":
            assert after[name].machines[0] == choice.machines[0], "no other owner changes"
    mean = 1000 * (replicas or 4) / 4
    assert all(abs(load - mean) <= 0.15 * mean for load in loads(after).values())
    assert max(owners(after).values()) - min(owners(after).values()) <= 0.1 * 250


@pytest.mark.req("P-7")
def test_a_machine_that_joins_gets_its_share_and_nothing_else_moves() -> None:
    before = choose(units(), members("a", "b", "c", "d"), replicas=1)
    after = choose(units(before), members(*MACHINES), replicas=1)
    assert {after[name].machines for name in moved(before, after)} == {("e",)}
    assert len(moved(before, after)) == 200
    assert all(abs(load - 200) <= 30 for load in loads(after).values())
    assert choose(units(after), members(*MACHINES), replicas=1) == after


@pytest.mark.req("P-8")
@given(seed=st.integers(0, 1000), replicas=st.integers(0, 3))
@settings(deadline=None, max_examples=30)
def test_every_replica_of_the_hub_chooses_the_same(seed: int, replicas: int) -> None:
    random = Random(seed)
    some, machines = units(addresses=ADDRESSES[:60]), members(*MACHINES)
    first = choose(some, machines, replicas=replicas)
    random.shuffle(some)
    random.shuffle(machines)
    assert choose(some, machines, replicas=replicas) == first


ZONES = st.lists(st.sampled_from(["", "north", "south", "west"]), min_size=1, max_size=7)


@pytest.mark.req("P-7")
@given(zones=ZONES, replicas=st.integers(1, 4), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=100)
def test_machines_of_one_load_balancer_are_in_zones_apart(zones: list[str], replicas: int, seed: int) -> None:
    machines = [Member(f"m{number}", zone=zone) for number, zone in enumerate(zones)]
    random = Random(seed)
    recorded = {
        address: Choice(tuple(member.name for member in random.sample(machines, min(replicas, len(machines)))))
        for address in ADDRESSES[:40]
    }
    for some in (units(addresses=ADDRESSES[:40]), units(recorded, ADDRESSES[:40])):
        for choice in choose(some, machines, replicas=replicas).values():
            of = {member.name: member.zone or member.name for member in machines}
            count = min(replicas, len(machines))
            assert len(choice.machines) == count
            if replicas < len(machines):
                assert len({of[name] for name in choice.machines}) == min(count, len(set(of.values())))


@pytest.mark.req("P-7")
@given(
    counts=st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["", "drained", "silent"])), min_size=1, max_size=6),
    replicas=st.integers(0, 3),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=60)
def test_choices_are_stable_once_they_are_recorded(counts: list[tuple[int, str]], replicas: int, seed: int) -> None:
    machines = [
        Member(f"m{number}", zone=f"z{zone}", drained=state == "drained", silent=state == "silent")
        for number, (zone, state) in enumerate(counts)
    ]
    random = Random(seed)
    names = [*(member.name for member in machines), "gone"]
    recorded = {
        address: Choice(tuple(random.sample(names, random.randint(0, min(3, len(names))))))
        for address in ADDRESSES[:50]
    }
    chosen = choose(units(recorded, ADDRESSES[:50]), machines, replicas=replicas)
    assert choose(units(chosen, ADDRESSES[:50]), machines, replicas=replicas) == chosen
    for name, choice in chosen.items():
        assert len(set(choice.machines)) == len(choice.machines)
        assert choice.machines or choice.problem or not machines, name


@pytest.mark.req("P-9")
@pytest.mark.parametrize(("silent", "moves"), [(("a",), True), (("a", "b"), False), (("a", "b", "c", "d"), False)])
def test_half_of_a_group_silent_at_once_moves_nothing(silent: tuple[str, ...], *, moves: bool) -> None:
    before = choose(units(), members("a", "b", "c", "d"), replicas=1)
    quiet = [Member(name, silent=name in silent) for name in ("a", "b", "c", "d")]
    after = choose(units(before), quiet, replicas=1)
    assert bool(moved(before, after)) is moves
    fresh = choose([*units(before), Unit("198.51.100.1")], quiet, replicas=1)["198.51.100.1"]
    assert bool(set(fresh.machines) - set(silent)) is (len(silent) < 4)
    assert bool(fresh.problem) is (len(silent) == 4)


@pytest.mark.req("P-10")
def test_what_finds_no_room_goes_elsewhere_and_says_why() -> None:
    machines = [Member("a", room=10), Member("b", room=500), Member("c")]
    choices = choose([Unit(name, listeners=2) for name in ADDRESSES[:100]], machines, replicas=1)
    assert loads(choices)["a"] == 5
    assert not any(choice.problem for choice in choices.values())
    full = choose(
        [Unit(name, listeners=2) for name in ADDRESSES[:10]], [Member("a", room=10)], group="edge", replicas=1
    )
    refused = [choice for choice in full.values() if not choice.machines]
    assert len(refused) == 5
    assert all("a: 10 of 10" in choice.problem and "group edge" in choice.problem for choice in refused)


@pytest.mark.req("P-10")
@pytest.mark.parametrize("replicas", [0, 1])
def test_a_machine_without_open_files_keeps_what_it_has_and_gets_nothing_new(replicas: int) -> None:
    served = [Unit(name, machines=("a",)) for name in ADDRESSES[:5]]
    new = [Unit(name) for name in ADDRESSES[5:10]]
    choices = choose([*served, *new], [Member("a", full=True), Member("b")], replicas=replicas)
    assert all("a" in choices[unit.name].machines for unit in served)
    assert {choices[unit.name].machines for unit in new} == {("b",)}
    alone = choose(new, [Member("a", full=True)], group="edge", replicas=replicas)
    assert all(not choice.machines and "a: almost no open files left" in choice.problem for choice in alone.values())


@pytest.mark.req("P-8")
def test_a_pinned_load_balancer_stays_where_the_annotation_says() -> None:
    pinned = Unit("192.0.2.9", machines=("a",), pinned=("e", "b"))
    assert choose([*units(), pinned], members(*MACHINES), replicas=1)["192.0.2.9"] == Choice(("e", "b"))
    choice = choose([msgspec.structs.replace(pinned, pinned=("x",))], members(*MACHINES), replicas=1)["192.0.2.9"]
    assert choice.machines == ("a",)  # what serves goes on
    assert "fairlead.dev/machines" in choice.problem
    assert "x" in choice.problem


@pytest.mark.req("P-7")
@pytest.mark.parametrize("left", [(), (Member("a", drained=True),)])
def test_without_a_usable_machine_what_serves_goes_on(left: tuple[Member, ...]) -> None:
    choices = choose([Unit("192.0.2.1", machines=("a",)), Unit("192.0.2.2")], left, group="edge", replicas=2)
    assert choices["192.0.2.1"].machines == ("a",)
    assert choices["192.0.2.2"].machines == ()
    assert all("group edge" in choice.problem for choice in choices.values())


@pytest.mark.req("P-8")
@pytest.mark.parametrize(("text", "names"), [("", ()), ("a", ("a",)), (" b, a ,,b", ("b", "a"))])
def test_pins_are_names_after_commas(text: str, names: tuple[str, ...]) -> None:
    obj = tcp(annotations={ANNOTATION_MACHINES: text}, status={"allocation": {"address": "192.0.2.1"}})
    made = placeable(LoadBalancerKey("TCPLoadBalancer", "t", "web"), obj, Placed(None), ports=2)
    assert (made.pinned, made.listeners, made.addresses) == (names, 2, ("192.0.2.1",))


@pytest.mark.req("P-7")
@pytest.mark.parametrize(
    ("class_name", "pool", "group"),
    [("envoy", "public", "pools"), ("gold", "", "classes"), ("envoy", "", "all"), ("gold", "public", "pools")],
)
def test_the_most_precise_group_serves(class_name: str, pool: str, group: str) -> None:
    groups = [
        ProxyGroup(ObjectMeta(name="all")),
        ProxyGroup(ObjectMeta(name="classes"), ProxyGroupSpec(classes=["gold"])),
        ProxyGroup(ObjectMeta(name="pools"), ProxyGroupSpec(pools=["public"])),
    ]
    chosen = group_of(groups, class_name, pool)
    assert chosen is not None
    assert chosen.metadata.name == group
    assert group_of(groups[1:], "envoy", "") is None
    assert group_of((), "envoy", "") is DEFAULT_PROXY_GROUP


@pytest.mark.req("P-7")
def test_a_group_has_the_machines_that_it_selects() -> None:
    machines = [
        joined_machine(ProxyMachine(ObjectMeta(name="a", labels={"rack": "1"}), ProxyMachineSpec(group="edge"))),
        joined_machine(ProxyMachine(ObjectMeta(name="b", labels={"rack": "2", "zone": "north"}))),
    ]
    edge = ProxyGroup(ObjectMeta(name="edge"))
    second = MachineChoice(match_labels={"rack": "2"})
    rack = ProxyGroup(ObjectMeta(name="rack"), ProxyGroupSpec(machines=second, zones_key="zone"))
    assert [member.name for member in members_of(edge, machines)] == ["a"]
    assert members_of(rack, machines) == [Member("b", zone="north")]
    assert [member.name for member in members_of(DEFAULT_PROXY_GROUP, machines)] == ["a", "b"]


@pytest.mark.req("P-8")
def test_load_balancers_that_share_an_address_are_one_unit() -> None:
    keys = [LoadBalancerKey("TCPLoadBalancer", "t", name) for name in ("a", "b", "c", "d")]
    shared = [("192.0.2.1", "2001:db8::1"), ("192.0.2.1",), ("2001:db8::1",), ("192.0.2.9",)]
    some = [Placeable(key, addresses, Placed(None)) for key, addresses in zip(keys, shared, strict=True)]
    machines = [joined_machine(ProxyMachine(ObjectMeta(name=name))) for name in MACHINES]
    groups = [ProxyGroup(ObjectMeta(name="one"), ProxyGroupSpec(mode="Replicas", replicas=1, machines=EVERY))]
    records = next_placements(some, machines, groups, reachable=MACHINES)
    placed = [record.machines if record is not None else () for record in map(records.get, keys)]
    assert placed[0] == placed[1] == placed[2] != ()
    choices = final_choices(some, machines, groups)
    assert [choices[key].machines for key in keys] == placed
    assert next_placements(some, (), groups, reachable=()) == dict.fromkeys(keys)


@pytest.mark.req("P-6", "P-7")
def test_a_drained_machine_leaves_what_no_group_serves_and_comes_back() -> None:
    key = LoadBalancerKey("TCPLoadBalancer", "t", "a")
    groups = [ProxyGroup(ObjectMeta(name="other"), ProxyGroupSpec(pools=["other"]))]

    def after(record: MachinePlacement | None, *drained: str, gone: str = "", late: bool = False) -> MachinePlacement:
        placed = Placed(record, frozenset(MACHINES), frozenset(MACHINES), patience_over=late)
        machines = [
            joined_machine(ProxyMachine(ObjectMeta(name=name), ProxyMachineSpec(drained=name in drained)))
            for name in MACHINES
            if name != gone
        ]
        load_balancer = Placeable(key, ("192.0.2.1",), placed)
        made = next_placements([load_balancer], machines, groups, reachable=MACHINES)[key]
        assert made is not None
        return made

    record = MachinePlacement(("a", "b"))
    assert after(record) == record
    assert after(record, "a", "b") == record, "nothing else can serve"
    drained = after(record, "a")
    assert drained == MachinePlacement(("b",), leaving=("a",))
    assert after(drained, "a", late=True) == drained
    back = after(after(drained))
    assert set(back.machines) == {"a", "b"}
    assert back.machines[0] == "b", "the owner stays"
    assert after(drained, gone="a", late=True) == MachinePlacement(("b",))
    assert after(record, gone="a").machines == ("b",)


# --- moves ----------------------------------------------------------------------------------------------------------

PRESENT = {name: Member(name) for name in MACHINES}


def step(
    record: MachinePlacement | None,
    machines: tuple[str, ...],
    *,
    acknowledged: str = "",
    announcing: str = "",
    late: bool = False,
    on_hub: bool = False,
    reachable: str = "abcde",
    present: Mapping[str, Member] = PRESENT,
) -> MachinePlacement:
    placed = Placed(record, frozenset(acknowledged), frozenset(announcing), on_hub=on_hub, patience_over=late)
    (after,) = advance([placed], Choice(machines), members=present, reachable=reachable)
    return after


@pytest.mark.req("P-9")
def test_the_new_machine_serves_and_announces_before_the_old_one_withdraws() -> None:
    first = step(None, ("a",))
    assert (first.machines, first.serving) == (("a",), ("a",))
    joining = step(first, ("b",), acknowledged="a", announcing="a")
    assert (joining.machines, joining.serving) == (("a",), ("a", "b"))
    assert step(joining, ("b",), acknowledged="a", late=True) == joining
    both = step(joining, ("b",), acknowledged="ab")
    assert (both.machines, both.serving) == (("b", "a"), ("b", "a"))
    assert step(both, ("b",), acknowledged="ab", announcing="a") == both
    moved = step(both, ("b",), acknowledged="ab", announcing="ab")
    assert (moved.machines, moved.serving) == (("b",), ("b", "a"))
    assert step(moved, ("b",), acknowledged="ab", announcing="b") == moved
    done = step(moved, ("b",), acknowledged="ab", announcing="b", late=True)
    assert (done.machines, done.serving) == (("b",), ("b",))
    assert step(done, ("b",), late=True) == done


@pytest.mark.req("P-9")
def test_a_move_from_the_hub_and_one_that_is_given_up() -> None:
    joining = step(None, ("a",), on_hub=True)
    assert (joining.machines, joining.serving) == ((), ("", "a"))
    assert step(joining, ("a",), on_hub=True, acknowledged="a").serving == ("a",)
    other = step(MachinePlacement(("a",), ("b",), ("a",)), ("c",))
    assert (other.machines, other.joining) == (("a",), ("c",))
    assert step(other, ("a",)) == MachinePlacement(("a",))


@pytest.mark.req("P-6")
def test_a_drained_machine_serves_its_old_connections_until_it_is_gone() -> None:
    moved = MachinePlacement(("b",), (), ("a",))
    drained = {**PRESENT, "a": Member("a", drained=True)}
    assert step(moved, ("b",), present=drained, late=True) == moved
    gone = {name: member for name, member in PRESENT.items() if name != "a"}
    assert step(moved, ("b",), present=gone) == MachinePlacement(("b",))


@pytest.mark.req("P-5")
def test_a_machine_that_the_hub_does_not_reach_holds_no_move_back() -> None:
    joining = MachinePlacement(("a",), ("b", "c"))
    assert step(joining, ("a", "b", "c"), acknowledged="ab", reachable="ab").machines == ("a", "b", "c")
    assert step(joining, ("a", "b", "c"), acknowledged="ab") == joining
    assert step(MachinePlacement(("a",), ("b",), ("a",)), ("b",), reachable="a").machines == ("a",)


@pytest.mark.req("P-8")
def test_load_balancers_of_one_address_move_together() -> None:
    two = [
        Placed(MachinePlacement(("a",), ("b",), ("a",)), acknowledged=frozenset("ab")),
        Placed(MachinePlacement(("a",), ("b",), ("a",)), acknowledged=frozenset("a")),
    ]
    after = advance(two, Choice(("b",)), members=PRESENT, reachable="ab")
    assert [record.machines for record in after] == [("a",), ("a",)]
    third = Placed(None)
    after = advance([*two, third], Choice(("b",)), members=PRESENT, reachable="ab")
    assert after[2].machines == ("b",)  # nothing serves it yet


@pytest.mark.req("P-9")
@given(seed=st.integers(0, 10_000), replicas=st.integers(0, 2))
@settings(deadline=None, max_examples=25)
def test_moves_end_serve_always_and_have_one_machine_in_common(seed: int, replicas: int) -> None:
    random = Random(seed)
    names = ADDRESSES[:30]
    records: dict[str, MachinePlacement | None] = dict.fromkeys(names)
    machines = {name: Member(name) for name in "abcd"}
    for _ in range(60):
        if random.random() < 0.1:
            name = random.choice("abcdef")
            match random.choice(["add", "drain", "remove"]):
                case "add":
                    machines[name] = Member(name)
                case "drain" if name in machines:
                    machines[name] = Member(name, drained=True)
                case "remove" if len(machines) > 1:
                    machines.pop(name, None)
                case _:
                    pass
        records = next_records(records, machines, replicas, random=random)
    for _ in range(200):
        before, records = records, next_records(records, machines, replicas)
        if before == records:
            break
    usable = {name for name, member in machines.items() if not member.drained}
    for record in records.values() if usable else ():
        assert record is not None
        assert (record.joining, usable & set(record.leaving)) == ((), set())
        assert set(record.machines) <= usable
        assert len(record.machines) == min(replicas or len(usable), len(usable))
    assert next_records(records, machines, replicas) == records


def next_records(
    records: Mapping[str, MachinePlacement | None],
    machines: Mapping[str, Member],
    replicas: int,
    *,
    random: Random | None = None,
) -> dict[str, MachinePlacement | None]:
    """Take the records one step further as the hub does; machines answer at random, or at once without ``random``."""
    some = [Unit(name, machines=record.target if record is not None else ()) for name, record in records.items()]
    moving = {unit: names for unit, record in records.items() if (names := machines_of_move(record))}
    choices = one_machines_worth(
        some,
        choose(some, machines.values(), replicas=replicas),
        moving,
        is_lost=lambda name: name not in machines or machines[name].drained,
    )
    begun: list[frozenset[str]] = []
    after: dict[str, MachinePlacement | None] = {}
    for unit in some:
        record = records[unit.name]
        answered = frozenset(name for name in machines if random is None or random.random() < 0.6)
        placed = Placed(record, answered, answered, patience_over=random is None)
        (new,) = advance([placed], choices[unit.name], members=machines, reachable=list(machines))
        if record is not None and record.machines:
            # A machine that has announced it goes on with that.
            assert set(new.machines) & (set(record.machines) | set(record.joining)) or not set(record.machines) & set(
                machines
            )
            assert set(record.machines) <= set(new.serving) | (set(record.leaving)) or not set(record.machines) <= set(
                machines
            )
            assert set(new.machines) - set(record.machines) <= set(record.joining)
            if new != record and machines_of_move(new) and not machines_of_move(record):
                begun.append(machines_of_move(new))
        after[unit.name] = new
    if begun:
        assert frozenset.intersection(*begun, *moving.values()), (begun, moving)
    return after
