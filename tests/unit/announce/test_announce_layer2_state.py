"""The ownership of addresses on a link: rules one by one, and a few hundred random schedules of faults."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from fairlead.announce import layer2_state
from fairlead.announce.layer2_state import ANNOUNCE_AT_S, CLAIMS, ENTRIES, HOLD_S, Election, Renewals, Want
from tests.simulate.layer2 import World, run

A, B = "10.0.0.100", "2001:db8::100"
NAMES = ("m1", "m2", "m3")
FOREIGN = "02:ff:00:00:00:01"


class Link:
    """Elections that hear each other, on a clock that the test moves."""

    def __init__(self, *names: str) -> None:
        self.now = 100.0
        self.names = names
        self.cut: set[str] = set()
        self.actions: dict[str, list[tuple[float, str, str]]] = {}
        self.elections: dict[str, Election] = {}
        self.sent = 0
        self.log: list[tuple[str, str, str]] = []
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        number = self.names.index(name) + 1
        instance = int(self.now * 1000) * 10 + number
        self.elections[name] = Election(name, instance=instance, mac=f"02:00:00:00:00:0{number}", now=self.now)
        self.actions[name] = []

    def plan(self, wants: dict[str, Want], *, only: tuple[str, ...] = (), epoch: int = 1) -> None:
        for name in only or tuple(self.elections):
            self.elections[name].configure(
                self.now, wants, neighbours=self.names, epoch=epoch, plan=str(self.now), keyed=True
            )

    def run(self, seconds: float, *, step_s: float = 0.02) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += step_s
            for name, election in list(self.elections.items()):
                for kind, address in election.step(self.now):
                    self.actions[name].append((self.now, kind, address))
                    self.log.append((name, kind, address))
                for receiver, hello in [*election.replies(), *election.hellos(self.now)]:
                    self.sent += 1
                    assert len(hello.entries) <= ENTRIES
                    if receiver in self.elections and not self.cut & {name, receiver}:
                        self.elections[receiver].heard(self.now, hello)

    def owners(self, address: str = A) -> list[str]:
        return [name for name, election in self.elections.items() if address in election.owned]

    def done(self, name: str, kind: str, address: str = A) -> list[float]:
        return [at for at, *action in self.actions[name] if action == [kind, address]]

    def before(self, *log: tuple[str, str]) -> bool:
        """Return whether the last actions of some machines for the address were in this order."""
        places = [max(at for at, line in enumerate(self.log) if line == (*entry, A)) for entry in log]
        return places == sorted(places)


def want(
    *machines: str, serve: bool | None = True, healthy: bool | None = True, fast: bool = False, leaving: bool = False
) -> Want:
    return Want(machines=machines, serve=serve, healthy=healthy, fast=fast, leaving=leaving)


@pytest.fixture
def link() -> Link:
    made = Link(*NAMES)
    made.plan({A: want(*NAMES), B: want(*NAMES)})
    made.run(2)
    return made


@pytest.mark.req("P-11")
def test_the_first_of_the_order_owns_an_address(link):
    assert (link.owners(A), link.owners(B)) == (["m1"], ["m1"])


@pytest.mark.req("P-9", "P-11")
def test_a_former_vacancy_does_not_let_two_machines_take_an_address():
    link = Link(*NAMES)
    order = ("m1", "m3", "m2")
    link.plan({A: want(*order)})
    link.run(0.3)  # no machine owns it yet
    link.plan({A: want(*order, serve=False)}, only=("m2",))
    link.run(8)
    link.plan({A: want(*order, serve=False)}, only=("m1",))
    link.plan({A: want(*order)}, only=("m2",))
    link.run(3)
    assert link.owners() == ["m3"]
    assert link.done("m2", "add") == []


@pytest.mark.req("P-15")
def test_an_address_is_probed_before_it_is_taken(link):
    taken = link.done("m1", "add")[0]
    probes = [at for at in link.done("m1", "probe") if at < taken]
    assert len(probes) == 3
    assert taken - probes[0] >= 0.28


@pytest.mark.req("P-12")
@pytest.mark.parametrize(("fast", "limit_s"), [(False, 0.9), (True, 0.5)])
def test_a_silent_owner_is_replaced_within_the_dead_time(link, fast, limit_s):
    link.plan({A: want(*NAMES, fast=fast)})
    link.run(2)
    silent = link.now
    link.cut.add("m1")
    link.run(2)
    assert silent + 0.2 < link.done("m2", "add")[0] < silent + limit_s
    assert link.done("m3", "add") == []


@pytest.mark.req("P-13")
def test_after_a_partition_the_later_claim_stays(link):
    link.cut.add("m1")
    link.run(2)
    assert link.owners() == ["m1", "m2"]
    link.cut.clear()
    healed = link.now
    link.run(1)
    assert link.owners() == ["m2"]
    assert link.done("m1", "remove")[-1] - healed <= 1.0


@pytest.mark.req("P-13")
def test_the_winner_of_a_partition_announces_again(link):
    link.cut.add("m1")
    link.run(20)
    link.cut.clear()
    healed = link.now
    link.run(1)
    assert [at for at in link.done("m2", "announce") if healed < at <= healed + 0.5]


@pytest.mark.req("P-13")
def test_a_machine_with_a_newer_plan_wins_over_a_later_take_over(link):
    link.cut.add("m1")
    link.run(2)
    link.plan({A: want(*NAMES)}, only=("m1",), epoch=2)
    link.cut.clear()
    link.run(1)
    assert link.owners() == ["m1"]
    assert link.elections["m1"].ownership(A).claim == 2 * CLAIMS


def test_an_owner_that_comes_back_is_given_its_addresses_without_a_gap(link):
    link.cut.add("m1")
    link.run(2)
    link.cut.clear()
    link.run(10)
    assert link.owners() == ["m1"]
    assert link.before(("m1", "add"), ("m2", "remove"))


@pytest.mark.req("P-9")
def test_an_owner_that_comes_back_waits_for_a_healthy_target(link):
    link.cut.add("m1")
    link.run(2)
    link.cut.clear()
    link.plan({A: want(*NAMES, healthy=False), B: want(*NAMES)}, only=("m1",))
    link.run(20)
    assert (link.owners(A), link.owners(B)) == (["m2"], ["m1"])
    assert link.elections["m1"].due_back
    link.plan({A: want(*NAMES), B: want(*NAMES)}, only=("m1",))
    link.run(2)
    assert link.owners() == ["m1"]
    assert not link.elections["m1"].due_back


@pytest.mark.req("P-9")
def test_an_owner_that_comes_back_waits_for_a_while_if_health_is_unknown(link):
    link.cut.add("m1")
    link.run(2)
    link.cut.clear()
    link.plan({A: want(*NAMES, healthy=None), B: want(*NAMES)}, only=("m1",))
    link.run(18)
    assert (link.owners(A), link.owners(B)) == (["m2"], ["m1"])
    link.run(10)
    assert link.owners(A) == ["m1"]
    assert link.before(("m1", "add"), ("m2", "remove"))


@pytest.mark.req("P-9")
def test_a_planned_move_waits_for_known_health(link):
    link.run(6)
    link.plan({A: want("m3", "m1", "m2", healthy=None), B: want(*NAMES)}, epoch=2)
    link.run(4)
    assert link.owners() == ["m1"]
    link.plan({A: want("m3", "m1", "m2", healthy=False), B: want(*NAMES)}, epoch=2)
    link.run(20)
    assert link.owners() == ["m1"]
    link.plan({A: want("m3", "m1", "m2"), B: want(*NAMES)}, epoch=2)
    link.run(2)
    assert link.owners() == ["m3"]


@pytest.mark.req("P-12")
@pytest.mark.parametrize("healthy", [False, None])
def test_a_machine_without_a_healthy_target_replaces_an_owner_that_is_dead(link, healthy):
    link.plan({A: want(*NAMES, healthy=healthy)}, only=("m2", "m3"))
    link.cut.add("m1")
    link.run(2)
    assert "m2" in link.owners()


@pytest.mark.req("P-9")
def test_a_planned_move_makes_before_it_breaks(link):
    link.run(6)
    link.plan({A: want("m3", "m1", "m2"), B: want(*NAMES)}, epoch=2)
    link.run(2)
    assert link.owners() == ["m3"]
    assert link.before(("m3", "add"), ("m1", "remove"))
    assert link.done("m1", "remove")[-1] < link.done("m3", "add")[-1] + 0.3


@pytest.mark.req("P-6", "P-9")
@pytest.mark.parametrize("wants", [{A: want(*NAMES, leaving=True)}, {}], ids=["drained", "no longer planned"])
def test_a_machine_that_leaves_yields_first(link, wants):
    link.plan(wants, only=("m1",))
    link.run(1)
    assert link.owners() == ["m2"]
    assert link.before(("m2", "add"), ("m1", "remove"))


def test_a_deleted_address_is_removed_everywhere(link):
    link.plan({})
    link.run(3)
    assert link.owners() == []


@pytest.mark.req("P-5")
def test_an_owner_that_cannot_serve_yields_to_one_that_can(link):
    link.plan({A: want(*NAMES, serve=False)}, only=("m1", "m2"))
    link.run(1)
    assert link.owners() == ["m3"]


def test_the_last_owner_stays_when_no_machine_can_serve(link):
    link.plan({A: want(*NAMES, serve=False)})
    link.run(5)
    assert link.owners() == ["m1"]


@pytest.mark.req("P-4")
def test_unknown_health_changes_nothing(link):
    link.plan({A: want(*NAMES, serve=None), B: want(*NAMES)})
    link.run(5)
    assert link.owners() == ["m1"]


@pytest.mark.req("P-27")
def test_an_owner_names_how_it_got_the_address(link):
    def state(name: str) -> tuple[str, str]:
        ownership = link.elections[name].ownership(A)
        return ownership.trigger, ownership.cause

    assert state("m1") == ("Vacant", "no other machine owns the address")
    link.plan({A: want("m2", "m1", "m3")})
    link.run(7)
    assert state("m2") == ("OwnerYielded", "m1 yielded")
    assert state("m1")[0] == "BetterRanked"
    assert "m2 took over" in state("m1")[1]
    link.cut.add("m2")
    link.run(2)
    assert state("m1") == ("OwnerSilent", "m2 is silent")


@pytest.mark.req("P-27")
@pytest.mark.parametrize(
    ("wants", "trigger"),
    [
        ({A: want(*NAMES, leaving=True)}, "NotPlanned"),
        ({A: want("m2", "m3")}, "NotPlanned"),
        ({A: want(*NAMES, serve=False)}, "NotServing"),
    ],
    ids=["drained", "placed elsewhere", "not serving"],
)
def test_a_former_owner_names_why_it_withdrew(link, wants, trigger):
    link.plan(wants, only=("m1",))
    link.run(1)
    assert link.owners() == ["m2"]
    assert link.elections["m1"].ownership(A).trigger == trigger


@pytest.mark.req("P-27")
def test_a_machine_that_cannot_serve_and_owns_nothing_says_why():
    link = Link("m1")
    link.plan({A: want("m1", serve=False)})
    link.run(2)
    assert link.owners() == []
    assert link.elections["m1"].ownership(A).trigger == "NotServing"


@pytest.mark.req("P-15")
def test_an_address_of_a_foreign_host_is_not_taken():
    link = Link("m1", "m2")
    link.plan({A: want("m1", "m2")})
    for _ in range(100):
        link.run(0.05)
        for election in link.elections.values():
            election.seen(link.now, A, FOREIGN)
    state = link.elections["m1"].ownership(A)
    assert link.owners() == []
    assert (state.reason, state.other_mac) == ("AddressInUse", FOREIGN)
    link.run(15)
    assert link.owners() == ["m1"]


@pytest.mark.req("P-13", "P-39")
def test_an_address_is_taken_soon_after_a_foreign_host_is_gone():
    link = Link("m1", "m2")
    link.plan({A: want("m1", "m2")})
    answered, reasons = 0, []
    for _ in range(240):
        link.run(0.05)
        reasons.append(link.elections["m1"].ownership(A).reason)
        probes = [at for name in link.elections for at in link.done(name, "probe")]
        for election in link.elections.values() if len(probes) > answered else ():
            election.seen(link.now, A, FOREIGN)
        answered = len(probes)
    assert link.owners() == []
    assert set(reasons[reasons.index("AddressInUse") :]) == {"AddressInUse"}, "it does not come and go"
    link.run(4.5)
    assert link.owners() == ["m1"]


@pytest.mark.req("P-13")
def test_an_owner_defends_a_contested_address(link):
    link.run(20)
    begin = link.now
    for _ in range(40):
        link.elections["m1"].seen(link.now, A, FOREIGN)
        link.run(0.1)
    state = link.elections["m1"].ownership(A)
    assert (state.owned, state.reason, state.other_mac) == (True, "Contested", FOREIGN)
    assert 3 <= len([at for at in link.done("m1", "announce") if at > begin]) <= 6
    link.run(6)
    assert link.elections["m1"].ownership(A).reason == ""


@pytest.mark.req("P-13")
def test_a_killed_process_whose_kernel_still_answers_is_contested(link):
    del link.elections["m1"]
    link.run(2)
    link.elections["m2"].seen(link.now, A, "02:00:00:00:00:01")
    link.run(0.1)
    state = link.elections["m2"].ownership(A)
    assert (state.owned, state.reason, state.other_mac) == (True, "Contested", "02:00:00:00:00:01")


@pytest.mark.req("P-13")
def test_without_most_machines_and_the_gateway_an_owner_stops(link):
    link.cut.add("m1")
    link.elections["m1"].set_gateway(answers=True)
    link.run(3)
    assert "m1" in link.owners()
    link.elections["m1"].set_gateway(answers=False)
    link.run(0.1)
    assert "m1" not in link.owners()
    assert link.elections["m1"].ownership(A).reason == "Isolated"


@pytest.mark.req("P-13")
def test_a_single_machine_keeps_its_addresses_without_a_gateway():
    link = Link("m1")
    link.plan({A: want("m1")})
    link.run(2)
    link.elections["m1"].set_gateway(answers=False)
    link.run(5)
    assert link.owners() == ["m1"]


def test_a_machine_that_another_one_hears_is_not_silent(link):
    lost: set[tuple[str, str]] = {("m1", "m2")}
    for _ in range(200):
        link.now += 0.02
        for name, election in link.elections.items():
            election.step(link.now)
            for receiver, hello in [*election.replies(), *election.hellos(link.now)]:
                if (name, receiver) not in lost:
                    link.elections[receiver].heard(link.now, hello)
    assert link.owners() == ["m1"]


@pytest.mark.req("P-16")
def test_a_link_that_flaps_keeps_its_addresses_and_announces(link):
    link.run(20)
    link.elections["m1"].set_link(link.now, up=False)
    link.cut.add("m1")
    link.run(0.3)
    link.elections["m1"].set_link(link.now, up=True)
    link.cut.clear()
    up = link.now
    link.run(3)
    assert link.owners() == ["m1"]
    assert link.done("m1", "announce")[-1] > up
    assert link.done("m2", "add") == []


@pytest.mark.req("P-12", "P-16")
def test_an_interface_that_is_down_loses_its_addresses_to_another_machine(link):
    link.elections["m1"].set_link(link.now, up=False)
    link.cut.add("m1")
    link.run(2)
    assert link.owners() == ["m2"]


@pytest.mark.req("P-14")
def test_announcements_come_at_fixed_times_and_at_each_refresh(link):
    taken = link.done("m1", "add")[0]
    link.run(160, step_s=0.05)
    offsets = [round(at - taken, 1) for at in link.done("m1", "announce")]
    assert offsets[: len(ANNOUNCE_AT_S)] == [round(at, 1) for at in ANNOUNCE_AT_S]
    later = offsets[len(ANNOUNCE_AT_S) - 1 :]
    assert len(later) >= 3
    assert max(after - before for before, after in itertools.pairwise(later)) <= 60.1


@pytest.mark.req("P-14")
def test_many_addresses_are_refreshed_at_a_steady_rate_in_all(monkeypatch):
    monkeypatch.setattr(layer2_state, "REFRESHES_PER_S", 1)
    link = Link("m1")
    link.plan({f"198.51.100.{number}": want("m1") for number in range(120)})
    link.run(30, step_s=0.2)
    link.actions["m1"].clear()
    link.run(240, step_s=0.2)
    counts = Counter(address for _, kind, address in link.actions["m1"] if kind == "announce")
    assert len(counts) == 120
    assert counts.total() <= 240 / 0.75


@pytest.mark.req("P-21")
def test_a_restart_adopts_what_is_there_and_announces_nothing(link):
    election = link.elections.pop("m1")
    for receiver, hello in election.hellos(link.now, hold_s=10.0):
        link.elections[receiver].heard(link.now, hello)
    for _ in range(30):
        link.run(0.1)
        for name in ("m2", "m3"):
            assert link.elections[name].held == {"m1"}
            link.elections[name].answered(link.now, "m1")
    link.start("m1")
    link.plan({A: want(*NAMES), B: want(*NAMES)})
    for address in (A, B):
        link.elections["m1"].keep(link.now, address)
    link.run(10)
    assert (link.owners(A), link.owners(B)) == (["m1"], ["m1"])
    assert [
        action for name in NAMES for _, *action in link.actions[name] if name != "m1" or action[0] == "announce"
    ] == []


@pytest.mark.req("P-21")
def test_a_machine_that_restarts_and_loses_its_power_is_replaced(link):
    election = link.elections.pop("m1")
    for receiver, hello in election.hellos(link.now, hold_s=10.0):
        link.elections[receiver].heard(link.now, hello)
    begin = link.now
    link.run(3)  # its kernel does not answer
    assert link.owners() == ["m2"]
    assert link.done("m2", "add")[0] - begin < 1.5


@pytest.mark.req("P-13")
def test_an_owner_knows_whether_another_machine_would_take_over(link):
    assert link.elections["m1"].has_successor(A)
    for serving in (("m2", False), ("m3", False)):
        link.plan({A: want(*NAMES, serve=serving[1])}, only=(serving[0],))
    link.run(1)
    assert not link.elections["m1"].has_successor(A)
    link.plan({A: want("m2", "m1", "m3")}, only=("m1", "m2"))
    for _ in range(600):
        link.run(0.02)
        if "m2" in link.owners():
            break
    assert link.elections["m2"].has_successor(A), "in the moment of a planned move, too"
    link.cut.update({"m1", "m3"})
    link.run(2)
    assert not link.elections["m2"].has_successor(A)


@pytest.mark.req("P-13")
def test_a_machine_that_was_stopped_knows_that_it_may_have_missed_a_take_over(link):
    link.run(0.5)  # announcements of its take-over are due still
    assert link.elections["m1"].informed
    stopped = link.elections.pop("m1")
    link.run(3)
    assert link.owners() == ["m2"]
    for receiver, hello in link.elections["m2"].hellos(link.now + 1):
        if receiver == "m1":
            stopped.heard(link.now, hello)
    assert [action for action in stopped.step(link.now) if action.kind == "announce"] == []
    assert not stopped.informed
    stopped.hellos(link.now)
    assert stopped.next_s() > link.now, "overdue announcements wait without a busy loop"
    link.elections["m1"] = stopped
    link.log.clear()
    link.run(0.5)
    assert ("m1", "announce", A) not in link.log
    assert stopped.informed
    assert link.owners() == ["m2"]


@pytest.mark.req("P-9")
def test_machines_with_different_plans_do_not_pass_an_address_to_and_fro(link):
    link.plan({A: want("m2", "m1", "m3")}, only=("m1",))
    link.plan({A: want("m1", "m2", "m3")}, only=("m2",))
    link.run(30)
    assert len([line for line in link.log if line[1:] == ("add", A)]) == 1


@pytest.mark.req("P-12")
def test_machines_with_different_plans_leave_no_address_without_an_owner(link):
    link.plan({A: want("m1", "m3", "m2")}, only=("m2",))
    link.plan({A: want("m1", "m2", "m3")}, only=("m3",))
    link.cut.add("m1")
    link.run(3.5)
    assert len([name for name in link.owners() if name != "m1"]) == 1


@pytest.mark.req("P-9")
def test_machines_with_three_different_plans_do_not_pass_an_address_around(link):
    link.run(6)
    for name, better in (("m1", "m2"), ("m2", "m3"), ("m3", "m1")):
        link.plan({A: want(better, name)}, only=(name,))
    link.log.clear()
    link.run(30)
    assert len([line for line in link.log if line[1:] == ("add", A)]) <= 4


def test_a_stalled_process_calls_no_other_machine_silent(link):
    link.run(5)
    link.now += 30
    link.run(2)
    assert link.owners() == ["m1"]
    assert [name for name in NAMES if link.done(name, "remove")] == []


def test_many_addresses_are_sent_in_pieces_and_only_once(link):
    addresses = {f"10.1.{number // 250}.{number % 250}": want(*NAMES) for number in range(300)}
    link.plan(addresses)
    link.run(4)
    assert all(link.owners(address) == ["m1"] for address in addresses)
    link.run(1)
    before = link.sent
    link.run(2)
    assert link.sent - before <= 6 * 11
    link.cut.add("m1")
    link.run(2)
    assert all("m2" in link.owners(address) for address in addresses)


def test_a_recording_is_not_evidence_of_life(link):
    recorded = [hello for receiver, hello in link.elections["m1"].hellos(link.now + 1) if receiver == "m2"]
    link.run(1)
    link.cut.add("m1")
    begin = link.now
    for _ in range(100):
        link.run(0.02)
        for hello in recorded:
            link.elections["m2"].heard(link.now, hello)
    assert link.done("m2", "add")[0] - begin < 1.0


def test_without_a_key_nothing_is_taken_where_there_are_neighbours():
    link = Link("m1", "m2")
    for election in link.elections.values():
        election.configure(link.now, {A: want("m1", "m2")}, neighbours=("m1", "m2"), epoch=1, plan="1", keyed=False)
    link.run(5)
    assert link.owners() == []
    assert link.elections["m1"].ownership(A).reason == "NoLinkKey"


@pytest.mark.req("P-39", "P-37")
@pytest.mark.parametrize("first", range(0, 100, 25))
def test_random_schedules_violate_no_invariant(first):
    """``make simulate-layer2`` runs 10,000 of them."""
    assert {seed: problems[0] for seed in range(first, first + 25) if (problems := run(seed).problems)} == {}


@pytest.mark.req("P-39")
@pytest.mark.parametrize("seed", [101381, 105222])
def test_machines_whose_patience_ends_at_once_take_an_address_one_by_one(seed):
    assert run(seed).problems == []


@pytest.mark.req("P-39")
def test_the_simulation_notices_a_machine_that_never_yields(monkeypatch):
    monkeypatch.setattr(Election, "_rival", lambda _self, _record: None)
    assert any(run(seed).problems for seed in range(40))


@pytest.mark.req("P-39")
def test_the_simulation_notices_a_machine_that_does_not_probe(monkeypatch):
    monkeypatch.setattr(World, "probe", lambda _self, _machine, _address: None)
    assert any("foreign host" in problem for seed in range(60) for problem in run(seed).problems)


@pytest.mark.req("P-13")
@pytest.mark.parametrize(
    "many", [[f"10.1.{n // 250}.{n % 250}" for n in range(5000)], [f"2001:db8::{n:x}" for n in range(1000)]]
)
def test_no_lifetime_ends_after_thousands_of_addresses_came(many):
    """A longer round must not begin before the lifetimes of the shorter one allow it."""
    election, now = Election("m1", instance=1, mac="02:00:00:00:00:01", now=0.0), 0.0
    renewals, ends = Renewals(now), dict[str, float]()
    for addresses in ([A], [A, *many]):
        wants = {address: Want(machines=("m1",), serve=True) for address in addresses}
        election.configure(now, wants, neighbours=[], epoch=1, plan="1", keyed=True)
        for address in sorted(election.owned ^ wants.keys()):
            election.keep(now, address)
            ends[address] = now + renewals.valid_s
        for _ in range(400 * 4):
            now += 0.25
            assert min(ends.values()) > now
            ends.update(dict.fromkeys(renewals.due(now, election), now + renewals.valid_s))
    assert renewals.valid_s > 2 * 21, "renewals of many addresses are rare"


def test_a_machine_that_had_no_address_renews_those_that_it_takes():
    election, now = Election("m1", instance=1, mac="02:00:00:00:00:01", now=0.0), 0.0
    renewals = Renewals(now)
    for _ in range(4 * 60):
        now += 0.25
        assert renewals.due(now, election) == []
    wants = {f"10.1.0.{number}": Want(machines=("m1",), serve=True) for number in range(200)}
    election.configure(now, wants, neighbours=[], epoch=1, plan="1", keyed=True)
    for address in wants:
        election.keep(now, address)
    ends = dict.fromkeys(wants, now + renewals.valid_s)
    for _ in range(4 * 120):
        now += 0.25
        assert min(ends.values()) - now > HOLD_S, "another machine waits for so long"
        ends.update(dict.fromkeys(renewals.due(now, election), now + renewals.valid_s))


@pytest.mark.req("P-13", "P-21")
def test_a_new_process_renews_what_it_found_before_that_can_end():
    election = Election("m1", instance=1, mac="02:00:00:00:00:01", now=0.0)
    wants = {f"10.1.0.{number}": Want(machines=("m1",), serve=True) for number in range(200)}
    election.configure(0.0, wants, neighbours=[], epoch=1, plan="1", keyed=True)
    for address in wants:
        election.keep(0.0, address)
    renewals, renewed = Renewals(0.0), set[str]()
    # A former process leaves at least two rounds of seven seconds, and may be gone for as long as others wait for it.
    for tick in range(int(2 * 7 - HOLD_S) * 4):
        renewed.update(renewals.due(tick / 4, election))
    assert renewed == wants.keys()
