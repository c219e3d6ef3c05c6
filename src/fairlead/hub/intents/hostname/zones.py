"""Holds each DNSZone that is in use by a finalizer, and writes its status.

In: zones, Hostnames, and records whose Hostname is gone. Out: the finalizer, the number of names and the conditions of
each zone. Never: a decision about a name.
"""

from __future__ import annotations

from contextlib import suppress
from operator import attrgetter

from fairlead.api.backendrecord import BackendRecord
from fairlead.api.conditions import wire_conditions
from fairlead.api.dnszone import DNS_ZONES, DNSZone, DNSZoneStatus
from fairlead.api.hostname import HOSTNAMES, Hostname
from fairlead.api.meta import only_status_changed
from fairlead.api.names import FINALIZER_IN_USE, MANAGER_HUB
from fairlead.api.times import wire_time
from fairlead.errors import NotFound
from fairlead.hub.intents.hostname.objects import HostnameObjects
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.validation.in_use import build_in_use
from fairlead.kube.finalizers import hold, release
from fairlead.kube.status import write_status
from fairlead.ledger.wire import load_balancer_of
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.runtime.queue import KeyedQueue

#: Many names may come and go at once; one write counts them all.
_GATHER_S = 2.0


class ZoneController:
    """Holds zones that are in use, and writes their status."""

    def __init__(self, context: IntentContext, objects: HostnameObjects) -> None:
        self._context = context
        self._objects = objects
        self.queue: KeyedQueue[str] = KeyedQueue(clock=context.clock)

    def watch(self) -> None:
        """Subscribe to zones, names and records."""
        self._objects.zones.on_change(self._zone_changed)
        self._objects.cache.on_change(self._name_changed)
        self._context.inventory.records.on_change(self._record_changed)

    def lead(self) -> None:
        """Compare every zone: this replica has begun to lead."""
        for zone in self._objects.zones.values():
            self.queue.add(zone.metadata.name)

    async def reconcile(self, name: str) -> None:
        """Hold or release zone ``name``, and write its status when it differs."""
        zone = self._objects.zones.get("", name)
        if zone is None or not self._context.leading():
            return
        users = self._users(zone)
        if bool(users) != zone.held_by(FINALIZER_IN_USE) and not (users and zone.deleting):
            with suppress(NotFound):
                change = hold if users else release
                await change(self._context.cluster, DNS_ZONES, zone, FINALIZER_IN_USE, manager=MANAGER_HUB)
            return  # the watch queues the object again
        await self._write(zone, users)

    def _users(self, zone: DNSZone) -> list[str]:
        below = self._objects.cache.by_index("suffix", zone.spec.zone)
        names = (obj for obj in below if zone in (self._objects.zone_of(obj), self._objects.recorded_zone_of(obj)))
        users = [f"{HOSTNAMES.kind} {obj.metadata.namespace}/{obj.metadata.name}" for obj in names]
        inventory = self._context.inventory
        return users + [
            f"BackendRecord {record.key}"
            for record in inventory.records.values()
            if _zone_of(record) == zone.spec.zone and not inventory.exists(load_balancer_of(record))
        ]

    async def _write(self, zone: DNSZone, users: list[str]) -> None:
        old, generation = zone.status, zone.metadata.generation
        now = wire_time(self._context.clock.now())
        conditions = [self._accepted(zone), build_in_use(zone, users, short="zone")]
        new = DNSZoneStatus(
            names=sum(not user.startswith("BackendRecord ") for user in users),
            observed_generation=generation,
            conditions=wire_conditions(conditions, old.conditions, generation=generation, now=now),
        )
        await write_status(self._context.cluster, DNS_ZONES, zone, old, new, manager=MANAGER_HUB, always=("names",))

    def _accepted(self, zone: DNSZone) -> Condition:
        provider, providers = zone.spec.provider, self._context.providers
        capabilities = providers.capabilities.get(provider)
        first = min(
            (each for each in self._objects.zones.values() if each.spec.zone == zone.spec.zone),
            key=attrgetter("age_order"),
            default=zone,
        )
        if first.metadata.name != zone.metadata.name:
            text = f"spec.zone: DNSZone {first.metadata.name} is older and has {zone.spec.zone}; delete one of them"
            return Condition(ConditionType.ACCEPTED, False, ConditionReason.INVALID, text)
        if capabilities is not None and capabilities.publishes_names:
            # No server is asked: what one answers, or not, is a condition of each name.
            if problem := providers.class_problem(provider, {**zone.spec.parameters, "zone": zone.spec.zone}):
                text = f"spec.{problem}; correct it"
                return Condition(ConditionType.ACCEPTED, False, ConditionReason.INVALID, text)
            return Condition(ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED, "")
        text = providers.problems.get(provider) or (
            f"spec.provider: this hub runs no provider {provider!r} that publishes names; create another DNSZone"
        )
        return Condition(ConditionType.ACCEPTED, False, ConditionReason.NO_SUCH_PROVIDER, text)

    def _zone_changed(self, old: DNSZone | None, new: DNSZone | None) -> None:
        if new is not None and old is not None and only_status_changed(old, new):
            self.queue.add_after(new.metadata.name, _GATHER_S)  # most often our own write
        elif new is not None:
            self.queue.add(new.metadata.name)

    def _name_changed(self, old: Hostname | None, new: Hostname | None) -> None:
        if old is not None and new is not None and old.status.zone == new.status.zone:
            return
        for obj in filter(None, (old, new)):
            for zone in filter(None, (self._objects.zone_of(obj), self._objects.recorded_zone_of(obj))):
                self.queue.add_after(zone.metadata.name, _GATHER_S if zone.held_by(FINALIZER_IN_USE) else 0.0)

    def _record_changed(self, old: BackendRecord | None, new: BackendRecord | None) -> None:
        if new is None and old is not None and old.spec.load_balancer.kind == HOSTNAMES.kind:
            for zone in self._objects.zones.values():
                if zone.spec.zone == _zone_of(old) and zone.deleting:
                    self.queue.add_after(zone.metadata.name, _GATHER_S)


def _zone_of(record: BackendRecord) -> str:
    at = record.spec.load_balancer
    return (at.parameters or {}).get("zone", "") if at.kind == HOSTNAMES.kind else ""
