"""Hostname: a load balancer whose provider is a DNS server, and whose targets are the records of one name.

view       the object, and the DNSZone with the longest suffix of its host
record     the finalizer, and the accepted spec. A name that moves to a zone at another kind of server stays in the
           former zone until the new one answers all of it. Between zones of one kind the provider moves the name.

A DNSZone in use is held by a finalizer; its status counts its names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter

import msgspec

from fairlead.api.backendgroup import BackendRecord
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES, DNSZone, DNSZoneStatus, Hostname, HostnameStatus
from fairlead.api.meta import WireCondition, is_true, only_status_changed, wire_conditions
from fairlead.api.names import FINALIZER_IN_USE, MANAGER_HUB
from fairlead.api.times import wire_time
from fairlead.errors import NotFound
from fairlead.hub.intents.intent import Controller, Intent, IntentContext, RecordResult
from fairlead.hub.intents.member_intent import AcceptedStatus
from fairlead.hub.intents.status import StatusRules, missing_readback
from fairlead.hub.inventory import IntentObjects, Inventory, first_broken
from fairlead.hub.providers.registry import Phase, Placement, ProviderRegistry, missing_targets
from fairlead.hub.tenants.addresses import NOTHING
from fairlead.hub.validation import build_in_use
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import CoalescingWriter, Overlay, hold, release
from fairlead.ledger.records import load_balancer_of
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.hostname import HostnameView, decide_hostname, longest_suffix
from fairlead.translate.view import Decision, is_leaving

#: Many names may be added or removed at once; one write counts them all.
_GATHER_S = 2.0


class HostnameIntent(Intent[HostnameView, Decision]):
    """Hostnames with their DNSZones."""

    def __init__(self, context: IntentContext) -> None:
        objects = HostnameObjects(context.cluster, context.inventory)
        super().__init__(context, objects=objects, rules=HostnameStatusRules(context, objects=objects))
        self._names = objects
        self._context = context
        self._accepted = AcceptedStatus(context.cluster, objects, context.leading)
        self._zones = ZoneController(context, objects)

    def watch(self) -> None:
        """Subscribe to zones; the provider that a zone names is opened."""
        self._names.watch(self._context.providers.open)
        self._zones.watch()

    def lead(self) -> None:
        """Compare the status of every zone."""
        self._zones.lead()

    def view(self, key: LoadBalancerKey) -> HostnameView | None:
        """Return the view of ``key``; None when its object does not exist or is being deleted."""
        obj = self._names.get(key)
        if obj is None:
            return None
        zone = self._names.zone_of(obj)
        dry_run = zone is not None and zone.spec.dry_run and obj.status.accepted is not None
        if is_leaving(obj) and not dry_run:
            return None
        providers, unreadable = self._context.providers, self._names.unreadable_zones()
        return HostnameView(
            key=key,
            load_balancer=obj,
            zone=zone,
            providers=providers.capabilities,
            zones=tuple(sorted({item.spec.zone for item in self._names.zones.values()})),
            provider_problems=providers.problems,
            stale=self._context.inventory.problem_for(key) or unreadable,
            unreadable=unreadable,
        )

    def decide(self, view: HostnameView) -> Decision:
        """Return the decision about ``view``."""
        return decide_hostname(view)

    async def record(self, view: HostnameView, decision: Decision) -> RecordResult:
        """Record the finalizer and the accepted spec, then have the records placed."""
        desired, obj = decision.desired, view.load_balancer
        if desired is None:
            return RecordResult(decision=decision)
        if (preparing := moving(view, decision, self._names, self._context.providers)) is not None:
            return preparing
        if not desired.dry_run:
            await self._accepted.accept(obj, decision, NOTHING)
            for provider in self._context.migration.released(view.key, obj, decision.provider):
                await self._accepted.forget_frontend(obj, provider)
        return RecordResult(decision=decision, placement=Placement(decision))

    def provider_names(self) -> frozenset[str]:
        """Return the providers that DNSZones name."""
        return frozenset(zone.spec.provider for zone in self._names.zones.values())

    def controllers(self) -> Sequence[Controller]:
        """Return the controller of the zones' status."""
        return (Controller("dnszone", self._zones.queue, self._zones.reconcile),)


class HostnameStatusRules(StatusRules[Hostname, Decision]):
    """The status of Hostnames; other controllers write ``certificate`` and ``waiting``."""

    needs_address = False
    needs_all_targets = True
    #: Most names are published within this time, so that their first status is final.
    first_s = 5.0
    owned_elsewhere = (*StatusRules.owned_elsewhere, "accepted", "certificate", "waiting")

    def __init__(self, context: IntentContext, *, objects: HostnameObjects) -> None:
        super().__init__(events=context.events, resource=objects.resource)
        self._objects = objects

    def compose(
        self, obj: Hostname, decision: Decision, conditions: list[WireCondition], observed: Observed | None
    ) -> HostnameStatus:
        """Return the status with the zone, and the number of answered records of all records."""
        status: HostnameStatus = super().compose(obj, decision, conditions, observed)
        zone, recorded_zone = self._objects.zone_of(obj), self._objects.recorded_zone_of(obj)
        if recorded_zone is not None and not is_true(conditions, ConditionType.PROGRAMMED):
            zone = recorded_zone  # until the name has moved
        health = observed.health if observed is not None else None
        records = f"{health.healthy if health is not None else 0}/{decision.targets or 0}"
        return msgspec.structs.replace(
            status,
            zone=zone.metadata.name if zone is not None else obj.status.zone,
            records=records if decision.targets else obj.status.records,
        )

    def has_status(self, obj: Hostname, decision: Decision) -> bool:
        """Return whether a zone could publish the name, or the status says that one did."""
        decided = any(condition.status is not None for condition in decision.conditions)
        return decided or decision.desired is not None or bool(obj.status.conditions)

    def programmed(self, obj: Hostname, status: HostnameStatus) -> str:
        """Return the message of the Event about a published name."""
        return f"{obj.spec.host} is published in zone {status.zone}, records {status.records}"


def moving(
    view: HostnameView, decision: Decision, names: HostnameObjects, providers: ProviderRegistry
) -> RecordResult | None:
    """Return the placement until the zone of ``decision`` has the whole name; None if the name does not move."""
    obj, desired = view.load_balancer, decision.desired
    former, serving = names.recorded_zone_of(obj), obj.status.serving_provider
    if desired is None or former is None or serving in ("", decision.provider) or former.spec.provider != serving:
        return None
    runner = providers.get(decision.provider)
    if serving not in providers or runner is None:
        return None
    idle = desired.paused or bool(desired.dry_run)
    missing = "paused, or a dry run" if idle else missing_targets(runner, view.key, desired)
    durable = providers.durable.get(decision.provider)
    if not missing and durable is not None:
        seen = durable.readback.seen.get(view.key)
        if not isinstance(seen, Observed):
            missing = seen or "the server does not answer all of them yet"
        elif not seen.programmed or missing_readback(desired, seen.health):
            missing = "the server does not answer all of them yet"
        if missing:
            durable.readback.notice(view.key)
    if not missing:
        return None
    accepted = msgspec.structs.replace(obj, spec=obj.status.accepted or obj.spec)
    before = decide_hostname(msgspec.structs.replace(view, zone=former, load_balancer=accepted))
    return RecordResult(
        decision=decision,
        placement=Placement(before, None if idle else decision, Phase.PREPARING),
        waiting_for=f"DNSZone {former.metadata.name} has the records until {decision.provider} has them ({missing})",
    )


class ZoneController:
    """Holds zones that are in use, and writes their status."""

    def __init__(self, context: IntentContext, objects: HostnameObjects) -> None:
        self._context = context
        self._objects = objects
        self._present: Overlay[DNSZone] = Overlay(objects.zones)
        self._writer: CoalescingWriter[DNSZone] = CoalescingWriter(
            context.cluster,
            DNS_ZONES,
            objects=self._present,
            clock=context.clock,
            manager=MANAGER_HUB,
            always=("names",),
        )
        self.queue: KeyedQueue[str] = KeyedQueue(clock=context.clock)

    def watch(self) -> None:
        """Subscribe to zones, names and records."""
        self._objects.zones.on_change(self._zone_changed)
        self._objects.cache.on_change(self._name_changed)
        self._context.inventory.records.on_change(self._record_changed)

    def lead(self) -> None:
        """Compare every zone, as the leader."""
        for zone in self._objects.zones.values():
            self.queue.add(zone.metadata.name)

    async def reconcile(self, name: str) -> float | None:
        """Hold or release zone ``name``, and write its status; return seconds until the next comparison."""
        zone = self._present.get("", name)
        if zone is None or not self._context.leading():
            return None
        users = self._users(zone)
        if bool(users) != zone.held_by(FINALIZER_IN_USE) and not (users and zone.deleting):
            with suppress(NotFound):
                change = hold if users else release
                await change(self._context.cluster, DNS_ZONES, zone, FINALIZER_IN_USE, manager=MANAGER_HUB)
            return None  # the watch queues the object again
        generation, now = zone.metadata.generation, wire_time(self._context.clock.now())
        conditions = [self._accepted(zone), build_in_use(zone, users, short="zone")]
        new = DNSZoneStatus(
            names=sum(not user.startswith("BackendRecord ") for user in users),
            observed_generation=generation,
            conditions=wire_conditions(conditions, zone.status.conditions, generation=generation, now=now),
        )
        _, wait_s = await self._writer.write(zone, zone.status, new)
        return wait_s or None

    def _users(self, zone: DNSZone) -> list[str]:
        below = self._objects.cache.by_index("suffix", zone.spec.zone)
        names = (
            obj
            for obj in below
            if any(item is not None and item.key == zone.key for item in self._objects.zones_of(obj))
        )
        users = [f"{HOSTNAMES.kind} {obj.metadata.namespace}/{obj.metadata.name}" for obj in names]
        inventory = self._context.inventory
        return users + [
            f"BackendRecord {record.key}"
            for record in inventory.records.values()
            if _zone_of(record) == zone.spec.zone and not inventory.exists(load_balancer_of(record))
        ]

    def _accepted(self, zone: DNSZone) -> Condition:
        provider, providers = zone.spec.provider, self._context.providers
        capabilities = providers.capabilities.get(provider)
        first = min(
            (item for item in self._objects.zones.values() if item.spec.zone == zone.spec.zone),
            key=attrgetter("age_order"),
            default=zone,
        )
        if first.metadata.name != zone.metadata.name:
            text = f"spec.zone: DNSZone {first.metadata.name} is older and has {zone.spec.zone}; delete one of them"
            return Condition(ConditionType.ACCEPTED, False, ConditionReason.INVALID, text)
        if capabilities is not None and capabilities.publishes_names:
            # No server is queried: the condition of each name shows a server's answer.
            parameters = {**zone.spec.parameters, "zone": zone.spec.zone}
            if zone.spec.peer_lease_seconds:
                parameters["peerLeaseSeconds"] = str(zone.spec.peer_lease_seconds)
            if problem := providers.class_problem(provider, parameters):
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
        elif old is not None:
            self._writer.forget(*old.key)

    def _name_changed(self, old: Hostname | None, new: Hostname | None) -> None:
        if old is not None and new is not None and old.status.zone == new.status.zone:
            return
        for obj in filter(None, (old, new)):
            for zone in filter(None, self._objects.zones_of(obj)):
                self.queue.add_after(zone.metadata.name, _GATHER_S if zone.held_by(FINALIZER_IN_USE) else 0.0)

    def _record_changed(self, old: BackendRecord | None, new: BackendRecord | None) -> None:
        if new is None and old is not None and old.spec.load_balancer.kind == HOSTNAMES.kind:
            for zone in self._objects.zones.values():
                if zone.spec.zone == _zone_of(old) and zone.deleting:
                    self.queue.add_after(zone.metadata.name, _GATHER_S)


def _zone_of(record: BackendRecord) -> str:
    at = record.spec.load_balancer
    return (at.parameters or {}).get("zone", "") if at.kind == HOSTNAMES.kind else ""


class HostnameObjects(IntentObjects[Hostname]):
    """Names are in no region: the hub that serves all regions serves them, so that each has one writer."""

    def __init__(self, cluster: Cluster, inventory: Inventory) -> None:
        super().__init__(
            WatchCache(
                cluster,
                HOSTNAMES,
                indexes={
                    "namespace": lambda obj: [obj.metadata.namespace],
                    # Not in any LoadBalancerClass: the zone is determined by the name.
                    "class": lambda _obj: [],
                    "suffix": lambda obj: suffixes(obj.spec.host),
                },
            ),
            HOSTNAMES,
            serves=lambda _obj: not inventory.region,
            recorded=lambda obj: (obj.status.accepted, obj.status.zone),
        )
        self._inventory = inventory
        self.zones: WatchCache[DNSZone] = WatchCache(cluster, DNS_ZONES)
        inventory.register(self, {DNS_ZONES.plural: self.zones})
        # The names in an unreadable zone are unknown.
        inventory.wake_on_readability(DNS_ZONES.kind, self.zones, lambda _zone: map(self.key, self.served()))

    def watch(self, opened: Callable[[str], bool]) -> None:
        """Wake names when their zone changes; ``opened`` is called with the provider that a zone names."""

        def changed(old: DNSZone | None, new: DNSZone | None) -> None:
            zone = new or old
            if zone is None or (old and new and only_status_changed(old, new)):
                return
            if new is not None:
                opened(new.spec.provider)
            # With the first zone, and without the last one, names without a zone change too.
            only = (old is None or new is None) and sum(1 for _ in self.zones.values()) == (new is not None)
            keys = map(self.key, self.served()) if only else self.keys_by_index("suffix", zone.spec.zone)
            self._inventory.wake(keys, f"DNSZone {zone.metadata.name} changed")

        self.zones.on_change(changed)

    def zone_of(self, obj: Hostname) -> DNSZone | None:
        """Return the zone for a name's records: the longest suffix, and on a tie the zone that has the records."""
        recorded = self.recorded_zone_of(obj)
        best = longest_suffix(obj.spec.host, (zone for zone in self.zones.values() if not zone.deleting))
        if recorded is None or (best is not None and len(best.spec.zone) > len(recorded.spec.zone)):
            return best
        return recorded

    def recorded_zone_of(self, obj: Hostname) -> DNSZone | None:
        """Return the zone that has a name's records, None if there is none or it was deleted."""
        zone = self.zones.get("", obj.status.zone) if obj.status.zone and obj.status.accepted is not None else None
        return zone if zone is not None and zone.spec.zone in suffixes(obj.spec.host) else None

    def zones_of(self, obj: Hostname) -> tuple[DNSZone | None, DNSZone | None]:
        """Return the zone for a name's records, and the zone that has them now."""
        return self.zone_of(obj), self.recorded_zone_of(obj)

    def unreadable_zones(self) -> str:
        """Return the first DNSZone that cannot be decoded; empty if there is none."""
        return first_broken(DNS_ZONES.kind, self.zones, sorted(self.zones.broken))


def suffixes(host: str) -> list[str]:
    """Return ``host`` and every name above it."""
    labels = host.split(".")
    return [".".join(labels[at:]) for at in range(len(labels))]
