"""The placement of load balancers on proxy machines at the hub: facts in, records out, one step at a time.

    machines, groups, load balancers changed ─┐
    a proxy acknowledged, an address moved ───┴──► next_placements ──► status.placement, then plans and proxies use it

``translate.placement`` decides; this module gathers what it needs, and writes what differs. Every replica answers which
load balancers wait for machines; only the leader writes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec
import structlog

from fairlead.api.intent import IntentObject, MachinePlacement
from fairlead.api.meta import transitions, wire_conditions
from fairlead.api.names import ANNOTATION_MACHINES, DEFAULT_CLASS, MACHINE_PROVIDERS, MANAGER_HUB, MANAGER_PLACEMENT
from fairlead.api.proxymachine import PROXY_GROUPS, ProxyGroup, ProxyGroupStatus, ProxyMachine
from fairlead.api.times import wire_time
from fairlead.errors import FairleadError, NotFound
from fairlead.hub.inventory import Inventory
from fairlead.hub.machines.plans import machines_by_address
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.writes import apply_status, emit_transitions, write_status
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.in_words import counted
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.machine import DrainState, MachineReport, ProcessTraffic
from fairlead.runtime.clock import Clock, wait_for
from fairlead.translate.placement import (
    Joined,
    Placeable,
    Placed,
    group_of,
    joined_machine,
    machines_of_move,
    members_of,
    next_placements,
    placeable,
    placement_on_hub,
)

#: How long a move waits until the new machine announces, in seconds: the address may not be announced at all.
_ANNOUNCED_S = 10.0
#: How long the old machine serves after it has withdrawn an address, for clients that have not noticed.
_NOTICED_S = 30.0
#: Changes within this time are combined; and the pause after a step, as a multiple of the step's duration.
_GATHER_S, PAUSES = 0.1, 5
#: How often moves are checked, and how often machines are checked while nothing moves.
_MOVING_S, _LOOK_S = 1.0, 2.0
_WRITES_AT_ONCE = 8

log = structlog.get_logger(__name__)


class MachineProxies(Protocol):
    """The proxies of machines, as seen by the provider of the hub's own Envoys."""

    def machines(self) -> frozenset[str]:
        """Return the machines whose proxy is connected."""
        ...

    def machines_with(self, key: LoadBalancerKey) -> frozenset[str]:
        """Return the connected machines that have all of a load balancer."""
        ...

    def is_here(self, key: LoadBalancerKey) -> bool:
        """Return whether the hub's own Envoys serve a load balancer."""
        ...


class MachineEnvoys(MachineProxies, Protocol):
    """The Envoys of machines, whose connections to targets are known."""

    def note_drains(self, machine: str, drains: tuple[DrainState, ...] | None) -> None:
        """Record the targets that drain at a machine's Envoy; None: the Envoy's release closes no connections."""
        ...

    def note_traffic(self, machine: str, traffic: Sequence[ProcessTraffic]) -> None:
        """Process the counters of a machine's Envoy."""
        ...


class SeveralProxies:
    """The proxies of machines of several providers; each load balancer belongs to one provider."""

    def __init__(self, *providers: MachineProxies) -> None:
        self._providers = providers

    def machines(self) -> frozenset[str]:
        """Return the machines whose proxy is connected."""
        return frozenset[str]().union(*(provider.machines() for provider in self._providers))

    def machines_with(self, key: LoadBalancerKey) -> frozenset[str]:
        """Return the connected machines that have all of a load balancer."""
        return frozenset[str]().union(*(provider.machines_with(key) for provider in self._providers))

    def is_here(self, key: LoadBalancerKey) -> bool:
        """Return whether the hub's own Envoys serve a load balancer."""
        return any(provider.is_here(key) for provider in self._providers)


class MachineFacts(msgspec.Struct, frozen=True):
    """State of one machine as known to this replica. ``silent``: neither the hub nor another machine hears it."""

    report: MachineReport | None = None
    silent: bool = False


class Placements:
    """The placement of all load balancers of one hub. ``facts`` has an entry for each machine that ever reported."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        machines: WatchCache[ProxyMachine],
        proxies: MachineProxies,
        facts: Callable[[], Mapping[str, MachineFacts]],
        leading: Callable[[], bool],
        events: EventRecorder,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._machines = machines
        self._proxies = proxies
        self._facts = facts
        self._leading = leading
        self._events = events
        self._clock = clock
        self.groups: WatchCache[ProxyGroup] = WatchCache(cluster, PROXY_GROUPS)
        self._dirty = asyncio.Event()
        self._active = False
        #: The record of each moving load balancer, and the time since when it has been at this step.
        self._since: dict[LoadBalancerKey, tuple[MachinePlacement, float]] = {}
        self.groups.on_object(lambda _group: self.changed())
        machines.on_object(lambda _machine: self.changed())
        for objects in inventory.intents.values():
            objects.cache.on_object(lambda _obj: self.changed(), part=_concerns)

    # --- for others ---------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Decide again."""
        self._dirty.set()

    def acknowledged(self, key: LoadBalancerKey) -> None:
        """Decide again if this load balancer moves: its proxies have answered."""
        if key in self._since:
            self._dirty.set()

    def reported(self) -> None:
        """Decide again if anything moves: a machine announces other addresses."""
        if self._since:
            self._dirty.set()

    def are_moving(self) -> bool:
        """Return whether a load balancer is moving from one machine to another."""
        return any(machines_of_move(record) for record, _ in self._since.values())

    def awaits_machines(self, key: LoadBalancerKey) -> bool:
        """Return whether a load balancer without recorded machines should be placed on machines."""
        obj = self._inventory.intent(key)
        if obj is None or not self._active or obj.status.placement is not None:
            return False
        group = group_of(self.groups.values(), *_class_and_pool(obj))
        return group is not None and any(not member.drained for member in members_of(group, self._others()))

    def load_balancers(self) -> list[IntentObject]:
        """Return the load balancers with an address on the hub's own proxies, or on machines, in order."""
        return [obj for _key, obj in sorted(self._ours().items())]

    def by_address(self, load_balancers: Iterable[IntentObject]) -> dict[str, tuple[str, ...]]:
        """Return the machines that announce each address, by its recorded placement; the first one owns it."""
        drained = {machine.metadata.name for machine in self._machines.values() if machine.drained}
        return machines_by_address(load_balancers, drained, otherwise=placement_on_hub(self._machines.values()))

    def is_ours(self, obj: IntentObject) -> bool:
        """Return whether the hub's own proxies, or machines, serve a load balancer."""
        cls = self._inventory.load_balancer_class(obj.class_name)
        return cls is not None and cls.spec.provider in MACHINE_PROVIDERS

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.groups.run())
            tasks.create_task(self._work())

    # --- inside -------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        await self.groups.wait_synced()
        self._active = True
        seen: object = None
        while True:
            self._dirty.clear()
            busy, took_s = False, 0.0
            if self._leading():
                seen = self._joined(), self._proxies.machines()
                began_s = self._clock.processor_s()
                records = self._next()
                took_s = self._clock.processor_s() - began_s
                busy = await self._record(records)
            while not self._dirty.is_set():
                await wait_for(self._dirty, self._clock, _MOVING_S if busy else _LOOK_S)
                if busy or seen != (self._joined(), self._proxies.machines()):
                    break
            # With thousands of load balancers a step takes a while, so other tasks run first.
            await self._clock.sleep(max(_GATHER_S, PAUSES * took_s))

    def _next(self) -> dict[LoadBalancerKey, MachinePlacement | None]:
        """Return the record of each load balancer, one step further."""
        announcing = {
            name: frozenset(state.address for state in facts.report.addresses if state.announced)
            for name, facts in self._facts().items()
            if facts.report is not None
        }
        some = [self._placeable(key, obj, announcing) for key, obj in self._ours().items()]
        # If the hub's machine is the only one, no record is needed: it serves load balancers without a record.
        machines = self._joined() if self._others() else []
        return next_placements(some, machines, list(self.groups.values()), reachable=self._proxies.machines())

    async def _record(self, records: Mapping[LoadBalancerKey, MachinePlacement | None]) -> bool:
        """Write the differences; return whether any move is in progress."""
        ours = self._ours()
        free = asyncio.Semaphore(_WRITES_AT_ONCE)
        writes = [
            self._write(key, record, free)
            for key, record in records.items()
            if key in ours and record != ours[key].status.placement
        ]
        done = await asyncio.gather(*writes)
        await self._write_groups(ours)
        # Remember which load balancers are moving, and since when they have been at this step.
        drained = {each.machine.name for each in self._joined() if each.drained}
        now_s, before = self._clock.monotonic(), self._since
        self._since = {}
        for key, record in records.items():
            if record is None or not (machines_of_move(record) or set(record.leaving) - set(drained)):
                continue
            known = before.get(key)
            self._since[key] = known if known is not None and known[0] == record else (record, now_s)
        return bool(self._since) or not all(done)

    def _placeable(
        self, key: LoadBalancerKey, obj: IntentObject, announcing: Mapping[str, frozenset[str]]
    ) -> Placeable:
        addresses = {address for address, _ in obj.status.allocation.places}
        record, on_hub = obj.status.placement, self._proxies.is_here(key)
        if record is None and on_hub:
            record = placement_on_hub(self._machines.values())
        placed = Placed(
            record,
            acknowledged=self._proxies.machines_with(key),
            announcing=frozenset(machine for machine, its in announcing.items() if addresses <= its),
            on_hub=on_hub,
            patience_over=self._is_patience_over(key, record),
        )
        return placeable(key, obj, placed, ports=len(self._inventory.intents[key.kind].open_ports(obj)))

    def _is_patience_over(self, key: LoadBalancerKey, record: MachinePlacement | None) -> bool:
        known = self._since.get(key)
        if known is None or known[0] != record:
            return False
        patience_s = _ANNOUNCED_S if machines_of_move(record) else _NOTICED_S
        return self._clock.monotonic() - known[1] >= patience_s

    def _ours(self) -> dict[LoadBalancerKey, IntentObject]:
        """Return the load balancers with an address on the hub's own proxies, or on machines."""
        return {
            key: self._inventory.intent(key) or obj
            for key, obj in self._inventory.objects()
            if obj.status.allocation.address and not obj.deleting and self.is_ours(obj) and self._inventory.decides(key)
        }

    def _joined(self) -> list[Joined]:
        facts, connected = self._facts(), self._proxies.machines()
        joined: list[Joined] = []
        for machine in sorted(self._machines.values(), key=lambda machine: machine.metadata.name):
            known = facts.get(machine.metadata.name, MachineFacts())
            silent = known.silent and machine.metadata.name not in connected
            room, full = (known.report.max_listeners, known.report.is_full) if known.report is not None else (0, False)
            if not machine.deleting:
                joined.append(joined_machine(machine, silent=silent, room=room, full=full))
        return joined

    def _others(self) -> list[Joined]:
        """Return the joined machines, except the hub's own."""
        of_hub = placement_on_hub(self._machines.values())
        names = of_hub.machines if of_hub is not None else ()
        return [joined for joined in self._joined() if joined.machine.name not in names]

    async def _write(self, key: LoadBalancerKey, record: MachinePlacement | None, free: asyncio.Semaphore) -> bool:
        """Record the placement of one load balancer; return whether that is done."""
        objects = self._inventory.intents[key.kind]
        async with free:
            obj = objects.get(key)
            if obj is None:
                return True
            status = {} if record is None else {"placement": msgspec.to_builtins(record)}
            try:
                answer = await apply_status(self._cluster, objects.resource, obj, status, manager=MANAGER_PLACEMENT)
            except NotFound:
                return True
            except FairleadError as error:
                log.warning("placement not recorded", load_balancer=str(key), sentence=error.sentence)
                return False
        objects.present.written(answer, before=obj)
        message, before = record.message if record is not None else "", obj.status.placement
        if message and message != (before.message if before is not None else ""):
            self._events.emit_about(objects.resource, obj, warning=True, reason="NotPlaced", message=message)
        self._inventory.wake([key], "the proxy machines of the load balancer changed")
        return True

    async def _write_groups(self, ours: Mapping[LoadBalancerKey, IntentObject]) -> None:
        groups = list(self.groups.values())
        if not groups:
            return
        serving = (group_of(groups, *_class_and_pool(obj)) for obj in ours.values())
        counts, joined = Counter(group.metadata.name for group in serving if group is not None), self._joined()
        for group in groups:
            members, now = len(members_of(group, joined)), wire_time(self._clock.now())
            status = group_status(group, members, counts[group.metadata.name], now=now)
            with suppress(NotFound):
                always = ("machines", "loadBalancers")
                written = await write_status(
                    self._cluster, PROXY_GROUPS, group, group.status, status, manager=MANAGER_HUB, always=always
                )
                if written is not None:
                    changes = transitions(group.status.conditions, status.conditions)
                    emit_transitions(self._events, PROXY_GROUPS, group, changes)


def group_status(group: ProxyGroup, members: int, load_balancers: int, *, now: str) -> ProxyGroupStatus:
    """Return the status of a group with this number of machines and load balancers."""
    name, generation = group.metadata.name, group.metadata.generation
    if members:
        sentence = f"{counted(members, 'machine')} for {counted(load_balancers, 'load balancer')}"
        if members > 1 and group.spec.mode == "Replicas" and group.spec.replicas == 1:
            sentence += "; each is at one machine, so no other takes over at once when that fails"
        condition = Condition(ConditionType.READY, True, ConditionReason.READY, sentence)
    else:
        sentence = (
            f"ProxyGroup {name} has no machine. What serves is not changed. Let one join with the command of: fairlead "
            f"proxy token --group {name}"
        )
        condition = Condition(ConditionType.READY, False, ConditionReason.NO_MACHINES, sentence)
    return ProxyGroupStatus(
        machines=members,
        load_balancers=load_balancers,
        observed_generation=generation,
        conditions=wire_conditions([condition], group.status.conditions, generation=generation, now=now),
    )


def _class_and_pool(obj: IntentObject) -> tuple[str, str]:
    return obj.class_name or DEFAULT_CLASS, obj.status.allocation.pool


def _concerns(obj: IntentObject) -> object:
    status = obj.status
    pinned = obj.annotation(ANNOTATION_MACHINES)
    # Not the record: it is ours.
    return obj.deleting, obj.class_name, status.allocation, pinned
