"""Simulate the machines of one link on virtual time, with faults that a seed decides.

``python -m tests.simulate.layer2 --seeds 10000`` runs many schedules, ``--seed 8`` prints the story of one.

Machines, a gateway, clients and foreign hosts are in segments: a partition is several segments. Kernels answer ARP for
the addresses on their interface, also while the process is stalled or dead. After each schedule the link heals. The
schedule ends once no machine waits for anything: from then on the same hellos repeat.

Invariants, for each address:

* after the heal exactly one machine has it: the best ranked one that can serve it;
* while nothing changes, a segment with a healthy machine has an owner after ``OWNER_WITHIN_S``, and at most one after
  ``ONE_WITHIN_S``;
* no machine takes an address that a foreign host answered for during the whole probe.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import os
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from fairlead.announce.layer2_state import PROBE_S, Election, Hello, Want, _Life

ADDRESSES: tuple[str, ...] = ("10.0.0.100", "10.0.0.101", "2001:db8::100")
FAULTS = (
    *("partition", "partition", "heal", "one_way", "loss", "crash", "hold", "power", "start", "start", "nic", "stall"),
    *("jump", "serving", "foreign", "gateway", "plan", "plan", "cut"),
)
FAULTS_S, HEAL_S = 14.0, 22.0
OWNER_WITHIN_S, ONE_WITHIN_S, HANDED_OVER_WITHIN_S = 4.5, 1.5, 0.3
CHECK_EVERY_S = 0.05
SETTLED_EVERY_S = 0.5
#: Real time between two lines of progress.
PROGRESS_EVERY_S = 10.0
#: Moves of an address while nothing happens: to the best machine once it is no longer new, after another one took it.
MOVES = 3


@dataclass
class Plan:
    """What the hub sends: the order of the machines for each address, and the drained ones."""

    epoch: int
    version: str
    order: dict[str, tuple[str, ...]]
    drained: frozenset[str] = frozenset()


class SimMachine:
    """One machine: a kernel with addresses, and a process that may be dead or stalled."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.mac = f"02:00:00:00:00:{len(world.machines) + 1:02x}"
        self.plan = world.plan
        self.kernel: set[str] = set()
        self.process: Election | None = None
        self.wakes = 0
        self.powered = True
        self.nic = True
        self.jumped_s = 0.0
        self.stalled_until_s = 0.0
        self.inbox: list[Callable[[Election, float], None]] = []
        self.serving = dict.fromkeys(ADDRESSES, True)

    @property
    def clock_s(self) -> float:
        return self.world.now + self.jumped_s

    def start(self) -> None:
        if not self.powered or self.process is not None:
            return
        self.inbox.clear()
        instance = self.world.random.getrandbits(63)
        self.process = Election(self.name, instance=instance, mac=self.mac, now=self.clock_s)
        self.process.set_link(self.clock_s, up=self.nic)
        self.configure()
        for address in sorted(self.kernel):
            self.process.keep(self.clock_s, address)
        self.kernel &= self.process.owned
        self.wake()

    def configure(self) -> None:
        if self.process is None:
            return
        wants = {
            address: Want(machines=order, serve=self.serving[address], leaving=self.name in self.plan.drained)
            for address, order in self.plan.order.items()
        }
        self.process.configure(
            self.clock_s,
            wants,
            neighbours=self.world.machines,
            epoch=self.plan.epoch,
            plan=self.plan.version,
            keyed=True,
        )

    def crash(self, *, power: bool = False, hold: bool = False) -> None:
        if self.process is not None and hold:
            self.send(self.process.hellos(self.clock_s, hold_s=10.0))
        self.process = None
        if power:
            self.powered = False
            self.kernel.clear()

    def take_in(self, event: Callable[[Election, float], None]) -> None:
        if self.process is not None:
            self.inbox.append(event)
            self.wake()

    def wake(self) -> None:
        process = self.process
        if process is None:
            return
        if self.world.now < self.stalled_until_s:
            self.wake_at(self.stalled_until_s)
            return
        inbox, self.inbox = self.inbox, []
        for event in inbox:
            event(process, self.clock_s)
        gateway = self.world.gateway_up and self.nic and self.world.segment[self.name] == self.world.segment["gateway"]
        process.set_gateway(answers=gateway)
        for kind, address in process.step(self.clock_s):
            if self.world.crash_now():
                self.world.note(f"{self.name} crashes before {kind} {address}")
                self.crash()
                return
            if kind == "add":
                self.world.taken(self, address)
                self.kernel.add(address)
            elif kind == "remove":
                self.kernel.discard(address)
            elif kind == "probe":
                self.world.probe(self, address)
            else:
                self.world.announce(self, address)
        assert process.owned == self.kernel, (self.name, process.owned, self.kernel)
        for machine in sorted(process.held):
            if self.world.reaches(self.name, machine) and self.world.machines[machine].powered:
                self.take_in_later(machine)
        self.send([*process.replies(), *process.hellos(self.clock_s)])
        self.wake_at(self.world.now + min(0.2, max(0.001, process.next_s() - self.clock_s)))

    def take_in_later(self, machine: str) -> None:
        self.inbox.append(lambda process, now: process.answered(now, machine))

    def wake_at(self, when: float) -> None:
        """Wake once at a time; a wake in between replaces this one."""
        self.wakes += 1
        wakes = self.wakes
        self.world.at(when, lambda: self.wake() if wakes == self.wakes else None)

    def send(self, hellos: list[tuple[str, Hello]]) -> None:
        for receiver, hello in hellos:
            self.world.deliver(self.name, receiver, hello)


@dataclass
class World:
    """One link, its machines, and the schedule of one seed."""

    seed: int
    now: float = 0.0
    machines: dict[str, SimMachine] = field(default_factory=dict[str, SimMachine])
    problems: list[str] = field(default_factory=list[str])
    story: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.gateway_up = True
        self.loss = 0.0
        self.one_way: set[tuple[str, str]] = set()
        self.foreign: dict[str, float] = {ADDRESSES[0]: 0.0} if self.random.random() < 0.2 else {}
        self.takes: dict[str, list[float]] = {}
        self.two_since_s: dict[tuple[str, int], float] = {}
        self.changing_until_s = 0.0
        self.foreign_until_s: dict[str, float] = {}
        self.quiet_since_s = 0.0
        self.crashing = False
        names = [f"machine-{number}" for number in range(1, self.random.choice((1, 2, 2, 3, 3, 3, 4)) + 1)]
        self.plan = Plan(1, "1", {address: self.shuffled(names) for address in ADDRESSES})
        self.segment = dict.fromkeys([*names, "gateway", "foreign"], 0)
        for name in names:
            self.machines[name] = SimMachine(self, name)

    def shuffled(self, names: list[str]) -> tuple[str, ...]:
        return tuple(self.random.sample(names, len(names)))

    def note(self, text: str) -> None:
        self.quiet_since_s = self.now
        self.foreign_until_s.update(dict.fromkeys(self.foreign, self.now))
        self.story.append(f"{self.now:7.3f} {text}")

    def at(self, when: float, run: Callable[[], None]) -> None:
        heapq.heappush(self.events, (when, next(self.order), run))

    def run_until(self, end: float) -> None:
        while self.events and self.events[0][0] <= end:
            self.now, _, run = heapq.heappop(self.events)
            run()
        self.now = end

    # --- The link ---------------------------------------------------------------------------------------------

    def up(self, name: str) -> bool:
        machine = self.machines.get(name)
        return machine is None or (machine.powered and machine.nic)

    def reaches(self, sender: str, receiver: str) -> bool:
        same = self.segment[sender] == self.segment[receiver] and (sender, receiver) not in self.one_way
        return same and self.up(sender) and self.up(receiver)

    def deliver(self, sender: str, receiver: str, hello: Hello) -> None:
        if self.random.random() >= self.loss:
            self.pass_on(sender, receiver, lambda process, now: process.heard(now, hello))

    def pass_on(self, sender: str, receiver: str, event: Callable[[Election, float], None]) -> None:
        def arrive() -> None:
            if self.reaches(sender, receiver):
                self.machines[receiver].take_in(event)

        self.at(self.now + self.random.uniform(0.0002, 0.003), arrive)

    def probe(self, machine: SimMachine, address: str) -> None:
        for other in self.machines.values():
            if other is not machine and address in other.kernel and self.reaches(machine.name, other.name):
                self.pass_on(other.name, machine.name, self.seen(address, other.mac))
        if address in self.foreign and self.segment[machine.name] == self.segment["foreign"] and self.up(machine.name):
            self.pass_on("foreign", machine.name, self.seen(address, "02:ff:00:00:00:01"))

    def announce(self, machine: SimMachine, address: str) -> None:
        for other in self.machines:
            if other != machine.name:
                self.pass_on(machine.name, other, self.seen(address, machine.mac))

    def seen(self, address: str, mac: str) -> Callable[[Election, float], None]:
        return lambda process, now: process.seen(now, address, mac)

    def taken(self, machine: SimMachine, address: str) -> None:
        takes = self.takes.setdefault(address, [])
        takes.append(self.now)
        if not self.loss and sum(at > self.quiet_since_s + ONE_WITHIN_S for at in takes) > MOVES:
            self.problems.append(f"{self.now:.3f} {address} moves to {machine.name} without a cause")
        since = self.foreign.get(address)
        same = self.segment[machine.name] == self.segment["foreign"] and machine.nic
        if since is not None and same and self.now - max(since, self.quiet_since_s) > PROBE_S + 0.1:
            self.problems.append(f"{self.now:.3f} {machine.name} took {address}, which a foreign host has")

    def crash_now(self) -> bool:
        return self.crashing and self.random.random() < 0.02

    # --- The faults -------------------------------------------------------------------------------------------

    def fault(self) -> None:
        machine = self.random.choice(list(self.machines.values()))
        kind = self.random.choice(FAULTS)
        what = f"{kind} {machine.name}"
        match kind:
            case "partition":
                self.segment = {name: self.random.randint(0, 1) for name in self.segment}
                what = f"segments {self.segment}"
            case "heal":
                self.segment = dict.fromkeys(self.segment, 0)
            case "cut":
                self.segment[machine.name] = 2
            case "one_way":
                self.one_way ^= {(machine.name, self.random.choice(list(self.machines)))}
                what = f"one way {sorted(self.one_way)}"
            case "loss":
                self.loss = 0.0 if self.loss else 0.3
                what = f"loss {self.loss}"
            case "crash" | "hold" | "power":
                machine.crash(power=kind == "power", hold=kind == "hold")
            case "start":
                machine.powered = True
                machine.plan = self.plan if self.random.random() < 0.5 else machine.plan
                machine.start()
            case "nic":
                self.set_nic(machine, up=not machine.nic)
                what = f"{machine.name}: interface {'up' if machine.nic else 'down'}"
            case "stall":
                length_s = self.random.choice((0.3, 0.8, 2.0, 5.0))
                machine.stalled_until_s = self.now + length_s
                machine.wake()
                what += f" for {length_s}"
            case "jump":
                machine.jumped_s += self.random.choice((0.5, 3.0, 3600.0))
            case "serving":
                address = self.random.choice(ADDRESSES)
                machine.serving[address] = not machine.serving[address]
                machine.configure()
                machine.wake()
                what += f" {address} {machine.serving[address]}"
            case "foreign":
                address = self.random.choice(ADDRESSES)
                if self.foreign.pop(address, None) is not None:
                    self.foreign_until_s[address] = self.now
                elif not self.holders(address):
                    self.foreign[address] = self.now
                what = f"foreign {self.foreign}"
            case "gateway":
                self.gateway_up = not self.gateway_up
                what = f"gateway {self.gateway_up}"
            case _:
                self.new_plan()
                what = f"plan {self.plan}"
        self.note(what)

    def set_nic(self, machine: SimMachine, *, up: bool) -> None:
        machine.nic = up
        machine.take_in(lambda process, now: process.set_link(now, up=up))

    def new_plan(self) -> None:
        names = list(self.machines)
        order = {address: self.shuffled(names) for address in ADDRESSES}
        if self.random.random() < 0.5:  # a placement on fewer machines
            order = {address: machines[: self.random.randint(1, len(names))] for address, machines in order.items()}
        drained = (
            frozenset({self.random.choice(names)}) if self.random.random() < 0.3 and len(names) > 1 else frozenset()
        )
        epoch = self.plan.epoch + self.random.randint(0, 1)
        self.plan = Plan(epoch, str(int(self.plan.version) + 1), order, drained)
        for machine in self.machines.values():
            if self.random.random() < 0.7:
                self.at(self.now + self.random.uniform(0, 2), self.planned(machine, self.plan))

    def planned(self, machine: SimMachine, plan: Plan) -> Callable[[], None]:
        def follow() -> None:
            if int(plan.version) > int(machine.plan.version):
                machine.plan = plan
                machine.configure()
                machine.wake()
                self.quiet_since_s = self.now

        return follow

    def heal(self) -> None:
        self.segment = dict.fromkeys(self.segment, 0)
        self.foreign_until_s.update(dict.fromkeys(self.foreign, self.now))
        self.one_way, self.loss, self.gateway_up, self.crashing, self.foreign = set(), 0.0, True, False, {}
        for machine in self.machines.values():
            machine.powered = True
            machine.plan = self.plan
            if not machine.nic:
                self.set_nic(machine, up=True)
            machine.configure()
            machine.start()
        self.note("heals")

    # --- The invariants ---------------------------------------------------------------------------------------

    def holders(self, address: str) -> list[SimMachine]:
        return [machine for machine in self.machines.values() if address in machine.kernel]

    def healthy(self, machine: SimMachine, address: str) -> bool:
        """Return whether nothing keeps this machine from the address, and it knows so."""
        others = [other for other in self.machines if other != machine.name]
        cut_off = bool(others) and not self.gateway_up
        cut_off |= bool(others) and self.segment["gateway"] != self.segment[machine.name]
        return (
            (machine.process is not None and machine.nic and self.now >= machine.stalled_until_s)
            and (machine.serving[address] and not cut_off)
            and (machine.name in machine.plan.order[address] and machine.name not in machine.plan.drained)
        )

    def check(self) -> None:
        if self.one_way or self.loss:
            return
        quiet_s = self.now - max([self.quiet_since_s] + [m.stalled_until_s for m in self.machines.values()])
        if quiet_s < ONE_WITHIN_S:
            self.changing_until_s = self.now
            return
        for segment in sorted(set(self.segment.values())):
            here = [m for m in self.machines.values() if self.segment[m.name] == segment and m.nic]
            for address in ADDRESSES:
                owners = [m for m in here if address in m.kernel]
                foreign = address in self.foreign and self.segment["foreign"] == segment
                running = [m for m in owners if m.process is not None]
                if len(running) < 2:
                    self.two_since_s[address, segment] = self.now
                elif self.now - max(self.two_since_s.get((address, segment), 0.0), self.changing_until_s) > (
                    HANDED_OVER_WITHIN_S
                ):
                    self.problems.append(f"{self.now:.3f} {address} has owners {[m.name for m in running]}")
                if owners or quiet_s <= OWNER_WITHIN_S:
                    continue
                able = any(self.healthy(m, address) for m in here)
                # An address that was found in use is probed again only after a while.
                unused = not foreign and self.now > self.foreign_until_s.get(address, -99.0) + 12.0
                if able and unused:
                    self.problems.append(f"{self.now:.3f} {address} has no owner in segment {segment}")

    def settled(self) -> bool:
        """Return whether no machine waits for anything: no timer, and no line of a table that is under way."""
        for machine in self.machines.values():
            process = machine.process
            if process is None or machine.inbox or self.now < machine.stalled_until_s:
                return False
            if process._dirty or process._timers or process._introduced or process.held or process._isolated:
                return False
            if machine.clock_s < process._listen_until_s:
                return False
            for peer in process._peers.values():
                other = self.machines[peer.name].process
                if other is None or (peer.instance, peer.version) != (other._instance, other._version):
                    return False
                if peer.life is not _Life.FRESH or not peer.complete:
                    return False
        return True

    def check_healed(self) -> None:
        for address, order in self.plan.order.items():
            owners = [machine.name for machine in self.holders(address)]
            able = [name for name in order if self.healthy(self.machines[name], address)]
            if able and owners != able[:1]:
                self.problems.append(f"{self.now:.3f} {address} is at {owners} after the heal, not at {able[0]}")
            if len(owners) > 1:
                self.problems.append(f"{self.now:.3f} {address} has owners {owners} after the heal")


def run(seed: int) -> World:
    """Return the world after the schedule of a seed."""
    world = World(seed)
    for machine in world.machines.values():
        world.at(world.random.uniform(0, 0.5), machine.start)
    world.crashing = world.random.random() < 0.5
    for at in sorted(world.random.uniform(0.5, FAULTS_S) for _ in range(world.random.randint(1, 9))):
        world.at(at, world.fault)
    world.at(FAULTS_S, world.heal)
    end = FAULTS_S + HEAL_S
    for number in range(int(end / CHECK_EVERY_S)):
        world.at(number * CHECK_EVERY_S, world.check)
    world.run_until(FAULTS_S)
    while world.now < end:
        world.run_until(min(end, world.now + SETTLED_EVERY_S))
        if world.settled():
            break
    world.check_healed()
    return world


def problems_of(seed: int) -> tuple[int, list[str]]:
    """Return a seed and what it violates."""
    return seed, run(seed).problems


def main() -> None:
    """Run many seeds on all cores, or one with its story."""
    commands = argparse.ArgumentParser(prog="python -m tests.simulate.layer2", description=__doc__.splitlines()[0])
    commands.add_argument("--seeds", type=int, default=10_000)
    commands.add_argument("--first", type=int, default=0)
    commands.add_argument("--seed", type=int)
    arguments = commands.parse_args()
    if arguments.seed is not None:
        world = run(arguments.seed)
        print(*world.story, *world.problems[:10], sep="\n")
        sys.exit(bool(world.problems))
    bad, began_s = 0, time.monotonic()
    printed_s = began_s
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        for done, (seed, problems) in enumerate(pool.map(problems_of, seeds, chunksize=20), start=1):
            if problems:
                bad += 1
                print(f"seed {seed}: {problems[0]}", flush=True)
            now_s = time.monotonic()
            if now_s >= printed_s + PROGRESS_EVERY_S or done == len(seeds):
                printed_s = now_s
                rate = done / (now_s - began_s)
                print(f"{done:,} of {len(seeds):,} schedules, {rate:.1f} a second, {bad} with violations", flush=True)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
