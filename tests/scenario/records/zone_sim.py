"""A world for names: zones and an API that outlive the process, and a process that dies at any call of either.

In: a seed, which decides what users ask for, how long calls take and what gets no answer. Out: what is in the zones and
in the ledger in the end, and every promise that was broken on the way. A call is one to the API, or a question to, or
an update of, the server of a zone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import Any, cast

from records_api import TinyApi
from records_loop import LoopClock, VirtualLoop

from fairlead.api.hostname import HOSTNAMES, Hostname
from fairlead.api.names import short_hash
from fairlead.errors import Retry
from fairlead.hub.providers.runner import DurableRunner, TermSettings, place_of
from fairlead.kube.cluster import Cluster
from fairlead.model.desired import DesiredLoadBalancer, FrontendSpec, GuardPolicy, Target
from fairlead.model.keys import RECORD_PORT, LoadBalancerKey, TargetKey, backend_key
from fairlead.providers.zones.plan import (
    EMPTY,
    Edit,
    Holder,
    Mark,
    RRKey,
    RRSet,
    RRSets,
    mark_from_text,
    mark_key,
    mark_text,
    marked,
)
from fairlead.providers.zones.provider import DNSProvider
from fairlead.providers.zones.settings import ServerSettings

PARENT, CHILD = "example.test", "dev.example.test"
HOSTS = (f"a.{CHILD}", f"b.{CHILD}")
KEYS = tuple(LoadBalancerKey("Hostname", "fairlead-system", host) for host in HOSTS)
OWNER = "hub-1"

Values = frozenset[tuple[str, str]]
#: The zone and the records of a name; None: it is deleted.
Intended = tuple[str, Values] | None
Step = tuple[float, int, Intended]


def foreign(zone: str) -> dict[RRKey, RRSet]:
    """Return what is in a zone before us: a record next to our names, and the value of another hub at one of them."""
    other = mark_text(Mark(Holder("hub-2", "00"), "192.0.2.77"))
    return {
        RRKey(f"theirs.{zone}", "A"): RRSet(frozenset({"192.0.2.99"}), 300),
        RRKey(HOSTS[0], "TXT"): RRSet(frozenset({"v=spf1 -all"}), 300),
        RRKey(HOSTS[1], "A"): RRSet(frozenset({"192.0.2.77"}), 300),
        mark_key(HOSTS[1], "A"): RRSet(frozenset({other}), 300),
    }


class SimZone:
    """One zone at its server, through the door that ``ZoneServer`` is."""

    immediate = True

    def __init__(self, world: NamesWorld, records: dict[RRKey, RRSet]) -> None:
        self._world = world
        self.records = records
        self.number = 1

    async def check(self) -> int:
        return await self.serial()

    async def serial(self) -> int:
        await self._world.at_call("before")
        return self.number

    async def read(self, keys: Iterable[RRKey]) -> RRSets:
        await self._world.at_call("before")
        return {key: self.records[key] for key in keys if key in self.records}

    answers = kept = read

    async def update(self, edits: Sequence[Edit], there: RRSets) -> bool:
        number = await self._world.at_call("before")
        if any(self.records.get(edit.key, EMPTY) != there.get(edit.key, EMPTY) for edit in edits):
            return False
        for edit in edits:
            now = self.records.get(edit.key, EMPTY)
            values = now.values | {edit.value} if edit.add else now.values - {edit.value}
            self.records[edit.key] = RRSet(values, edit.ttl if edit.add else now.ttl)
        self.records = {key: rrset for key, rrset in self.records.items() if rrset.values}
        self.number += 1
        self._world.check()
        await self._world.at_call("after", number)
        return True

    async def close(self) -> None:
        """Keep what there is."""


class NamesWorld:
    """Everything but the process outlives the process."""

    def __init__(self, loop: VirtualLoop, *, seed: int) -> None:
        self._rng = random.Random(seed)
        random.seed(seed)  # back-off is jittered
        self._clock = LoopClock(loop)
        self.api = TinyApi()
        self.api.at_call = self._api_call
        self.zones = {zone: SimZone(self, foreign(zone)) for zone in (PARENT, CHILD)}
        self.wanted: dict[LoadBalancerKey, Intended] = {}
        self.violations: list[str] = []
        self.calls = self.checks = self.crashes = self.term = 0
        self.die_at: tuple[int, str] | None = None
        self.fault_rate = 0.0
        self.dead = False
        self._died = asyncio.Event()
        self._answered: set[LoadBalancerKey] = set()
        self._task: asyncio.Task[None] | None = None

    # --- what goes wrong --------------------------------------------------------------------------------------

    async def _api_call(self, when: str, _what: str, number: int = 0) -> int:
        return await self.at_call(when, number)

    async def at_call(self, when: str, number: int = 0) -> int:
        """Be at one of the two moments of one call; returns its number."""
        if self.dead:
            await asyncio.get_running_loop().create_future()
        if when == "before":
            self.calls += 1
            number = self.calls
            await asyncio.sleep(self._rng.choice((0.0, 0.0, 0.01, 0.2)))
        if self.die_at == (number, when):
            self.die_at, self.dead = None, True
            self._died.set()
            await asyncio.get_running_loop().create_future()
        if self.fault_rate and self._rng.random() < self.fault_rate:
            raise Retry("no answer", reason="DNSTimeout")
        return number

    # --- promises ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Look at the zones from outside, after every update."""
        self.checks += 1
        recorded = {(place[0], place[1].backend, place[2].address) for place in map(place_of, self.api.records())}
        for name, zone in self.zones.items():
            for key, rrset in foreign(name).items():
                there = zone.records.get(key, EMPTY)
                if not rrset.values <= there.values or there.ttl != rrset.ttl:
                    self._broken(f"{key} of others was touched in {name}")
            for key, host in zip(KEYS, HOSTS, strict=True):
                for type_, value in self.ours(name, host):
                    if (key, type_, value) not in recorded:
                        self._broken(f"{type_} {value} of {host} is in {name}, and nobody knows")
        for key, host in zip(KEYS, HOSTS, strict=True):
            intended = self.wanted.get(key)
            if any(type_ == "A" for zone in self.zones for type_, _ in self.ours(zone, host)):
                self._answered.add(key)
            elif intended is None:
                self._answered.discard(key)
            elif key in self._answered:
                self._broken(f"{host} is answered nowhere, and it is wanted")

    def ours(self, zone: str, host: str) -> set[tuple[str, str]]:
        """Return the values in a zone that a mark says are ours; a mark without its value is a broken promise."""
        records, ours = self.zones[zone].records, set[tuple[str, str]]()
        for type_ in ("A", "AAAA", "CNAME", "TXT"):
            values = {marked(value): value for value in records.get(RRKey(host, type_), EMPTY).values}
            for text in records.get(mark_key(host, type_), EMPTY).values:
                mark = mark_from_text(text)
                if mark is None or mark.holder.owner != OWNER:
                    continue
                if mark.value not in values:
                    self._broken(f"{host} has a mark without its value in {zone}")
                else:
                    ours.add((type_, values[mark.value]))
        return ours

    def _broken(self, what: str) -> None:
        self.violations.append(f"call {self.calls}: {what}")

    # --- the process ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a term: read what is on record, then what is wanted, then work."""
        self.term += 1
        self.dead = False
        self._died.clear()
        term = self.term

        def server(settings: ServerSettings) -> SimZone:
            return self.zones[settings.zone]

        self.engine = DurableRunner(
            TermSettings(
                name="rfc2136",
                provider=DNSProvider(make=server, own=frozenset(), clock=self._clock),
                cluster=cast("Cluster", self.api),
                clock=self._clock,
                report=lambda _report: None,
                epoch=lambda: term,
                resource_of=lambda _kind: HOSTNAMES,
            )
        )
        frontends = {}
        for key in KEYS:
            obj: Hostname | None = self.api.typed(HOSTNAMES, key.namespace, key.name)
            if obj is not None and (entry := obj.status.frontend_of("rfc2136")) is not None:
                frontends[key] = entry
        self.engine.begin(self.api.records(), frontends)
        self._unwatch = self.api.watch(self.engine.record_changed)
        for key in {*self.wanted, *self.engine.tracker}:
            self._reconcile(key)
        self.engine.worker.trigger()
        self._task = asyncio.create_task(self.engine.run())

    async def stop(self) -> None:
        """Kill the process at once."""
        self.dead = True
        self._unwatch()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            if not self._task.cancelled() and (error := self._task.exception()) is not None:
                raise error
        await self.engine.provider.close()  # pyright: ignore[reportAttributeAccessIssue]

    async def let_pass(self, seconds: float) -> None:
        """Let time pass; a process that dies on the way is followed by the next one at once."""
        end_s = self._clock.monotonic() + seconds
        while (left_s := end_s - self._clock.monotonic()) > 1e-6:
            died = asyncio.ensure_future(self._died.wait())
            await asyncio.wait((died,), timeout=left_s)
            died.cancel()
            if self._died.is_set():
                self.crashes += 1
                await self.stop()
                self.start()
        for key in [key for key, intended in self.wanted.items() if intended is None]:
            if key not in self.engine.tracker:
                del self.wanted[key]
                self.api.do_delete(HOSTNAMES, key.namespace, key.name)

    # --- users ------------------------------------------------------------------------------------------------

    def _reconcile(self, key: LoadBalancerKey) -> None:
        intended = self.wanted.get(key)
        tracker = self.engine.tracker
        if tracker.put(desired(key, *intended)) if intended is not None else tracker.remove(key):
            self.engine.worker.trigger()

    def ask(self, key: LoadBalancerKey, intended: Intended) -> None:
        """Have one name created, changed or deleted."""
        if key in self.wanted and self.wanted[key] is None:
            return  # it is on its way out, and cannot be changed back
        if key not in self.wanted:
            if intended is None:
                return
            meta = {"namespace": key.namespace, "name": key.name}
            self.api.do_create(HOSTNAMES, {"metadata": meta, "spec": {"host": key.name}})
        self.wanted[key] = intended
        self._reconcile(key)

    async def play(self, steps: Sequence[Step], ends: dict[LoadBalancerKey, Intended]) -> None:
        """Let users do what the story says, then wait until nothing more can happen."""
        self.start()
        for wait_s, number, intended in steps:
            await self.let_pass(wait_s)
            self.ask(KEYS[number], intended)
        for _ in range(60):
            await self.let_pass(5.0)
            self.fault_rate = 0.0
            for key, intended in ends.items():
                if intended is not None and self.wanted.get(key) != intended:
                    self.ask(key, intended)
            if not self.differences(ends):
                break
        await self.stop()

    def differences(self, ends: dict[LoadBalancerKey, Intended]) -> list[str]:
        """Return where zones or ledger are not as the story ends, in words."""
        out: list[str] = []
        places: set[tuple[Any, ...]] = set()
        for key, intended in ends.items():
            places |= {(key, type_, value) for type_, value in (intended[1] if intended is not None else ())}
            if (key in self.wanted) != (intended is not None):
                out.append(f"{key} has not let go of its object")
            for zone in self.zones:
                there = self.ours(zone, key.name)
                if there != (intended[1] if intended is not None and intended[0] == zone else set()):
                    out.append(f"{key.name} has {sorted(there)} in {zone}")
        records = {place_of(record): record for record in self.api.records()}
        if {(place[0], place[1].backend, place[2].address) for place in records} != places:
            out.append("records without values, or values without records")
        out += [str(record.key) for record in records.values() if record.status.state != "Registered"]
        for name, zone in self.zones.items():
            mine = {key for key in zone.records if key not in foreign(name)}
            expected = sum(intended[0] == name for intended in ends.values() if intended is not None)
            if bool(mine) and not expected:
                out.append(f"{sorted(mine)} is left in {name}")
        return out


def desired(key: LoadBalancerKey, zone: str, values: Values) -> DesiredLoadBalancer:
    """Return one name as the hub asks for it."""
    parameters = {"zone": zone, "host": key.name, "ownerId": OWNER, "server": f"{short_hash(zone)}.invalid"}
    targets: dict[Any, Any] = {}
    for type_, value in values:
        at = TargetKey(value, RECORD_PORT)
        targets.setdefault(backend_key(type_), {})[at] = Target(at, parameters=(("ttl", "60"),))
    spec = FrontendSpec(key, key.namespace, (), health_check=None, parameters=parameters)
    return DesiredLoadBalancer(spec=spec, targets=targets, guard=GuardPolicy(100, 1))


def story(seed: int) -> tuple[list[Step], dict[LoadBalancerKey, Intended]]:
    """Make up what users do: names come, change their values, move between zones and go."""
    rng = random.Random(seed)
    steps: list[Step] = [(0.0, number, _some(rng)) for number in range(len(KEYS))]
    steps += [(rng.choice((0.0, 0.3, 2.0, 5.0)), rng.randrange(len(KEYS)), _some(rng)) for _ in range(2)]
    ends: dict[LoadBalancerKey, Intended] = {}
    for number, key in enumerate(KEYS):
        ends[key] = None if rng.random() < 0.3 else _some(rng)
        steps.append((rng.choice((0.0, 0.5, 5.0)), number, ends[key]))
    return steps, ends


def _some(rng: random.Random) -> tuple[str, Values]:
    values = {("A", f"192.0.2.{rng.randint(1, 3)}"), ("A", f"192.0.2.{rng.randint(1, 3)}")}
    if rng.random() < 0.4:
        values.add(("AAAA", "2001:db8::1"))
    if rng.random() < 0.3:
        values.add(("TXT", rng.choice(("hello, world", "x" * 120))))
    return rng.choice((PARENT, CHILD)), frozenset(values)
