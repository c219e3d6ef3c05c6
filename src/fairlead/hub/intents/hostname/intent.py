"""Hostname as an intent: the records of one name are the targets of a load balancer whose provider is a DNS server.

view       the object, the DNSZone with the longest suffix of its host
record     the finalizer, and the accepted spec; a name that moves to a zone at another kind of server stays in the
           former zone until the new one answers all of it. Between zones of one kind its provider moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter

import msgspec

from fairlead.api.backendgroup import BackendRecord
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES, DNSZone, DNSZoneStatus, Hostname, HostnameStatus
from fairlead.api.intent import Allocation
from fairlead.api.meta import WireCondition, is_true, only_status_changed, wire_conditions
from fairlead.api.names import FINALIZER_IN_USE, MANAGER_HUB
from fairlead.api.times import wire_time
from fairlead.errors import NotFound
from fairlead.hub.intents.intent import Controller, Intent, IntentContext, Recorded
from fairlead.hub.intents.member_intent import AcceptedStatus
from fairlead.hub.intents.status_rules import StatusRules
from fairlead.hub.intents.target_counts import not_seen
from fairlead.hub.inventory import IntentObjects, Inventory, first_broken
from fairlead.hub.providers.migration import Phase, Placement, missing_targets
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.providers.runner import DurableRunner, ProviderRunner
from fairlead.hub.validation import build_in_use
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.status import write_status
from fairlead.kube.writes import hold, release
from fairlead.ledger.records import load_balancer_of
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.desired import DesiredLoadBalancer
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Observed
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.hostname import HostnameView, decide_hostname, longest_suffix
from fairlead.translate.view import Decision, is_leaving


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
        """Subscribe to zones; a provider that a zone names is opened."""
        self._names.watch(self._context.providers.open)
        self._zones.watch()

    def lead(self) -> None:
        """Compare the status of every zone."""
        self._zones.lead()

    def view(self, key: LoadBalancerKey) -> HostnameView | None:
        """Return the view of ``key``; None when its object does not exist or is being deleted."""
        obj: Hostname | None = self.objects.get(key)
        if obj is None:
            return None
        zone = self._names.zone_of(obj)
        held = zone is not None and zone.spec.dry_run and obj.status.accepted is not None
        if is_leaving(obj) and not held:
            return None
        providers, unreadable = self._context.providers, self._names.unreadable_zones()
        return HostnameView(
            key=key,
            load_balancer=obj,
            zone=zone,
            providers=providers.capabilities,
            zones=tuple(sorted({each.spec.zone for each in self._names.zones.values()})),
            provider_problems=providers.problems,
            stale=self._context.inventory.problem_for(key) or unreadable,
            unreadable=unreadable,
        )

    def decide(self, view: HostnameView) -> Decision:
        """Return what is decided about ``view``."""
        return decide_hostname(view)

    async def record(self, view: HostnameView, translation: Decision) -> Recorded:
        """Record the finalizer and the accepted spec, then have the records placed."""
        desired, obj = translation.desired, view.load_balancer
        if desired is None:
            return Recorded(translation=translation)
        if (preparing := moving(view, translation, self._names, self._context.providers)) is not None:
            return preparing
        if not desired.dry_run:
            await self._accepted.accept(obj, translation, Allocation())
            for provider in self._context.migration.released(view.key, obj, translation.provider):
                await self._accepted.forget_frontend(obj, provider)
        return Recorded(translation=translation, placement=Placement(translation))

    def provider_names(self) -> frozenset[str]:
        """Return the providers that DNSZones name."""
        return frozenset(zone.spec.provider for zone in self._names.zones.values())

    def controllers(self) -> Sequence[Controller]:
        """Return the controller of the zones' status."""
        return (Controller("dnszone", self._zones.queue, self._zones.reconcile),)


class HostnameStatusRules(StatusRules[Hostname, Decision]):
    """The rules for the status of Hostnames; certificate and waiting are written by who knows of them."""

    needs_address = False
    needs_all_targets = True
    #: Most names are published within that time; then their first status is their last.
    first_s = 5.0
    owned_elsewhere = (*StatusRules.owned_elsewhere, "accepted", "certificate", "waiting")

    def __init__(self, context: IntentContext, *, objects: HostnameObjects) -> None:
        super().__init__(events=context.events, resource=objects.resource)
        self._objects = objects

    def compose(
        self, obj: Hostname, translation: Decision, conditions: list[WireCondition], observed: Observed | None
    ) -> HostnameStatus:
        """Return the status with the zone and its records: answered of all."""
        status: HostnameStatus = super().compose(obj, translation, conditions, observed)
        zone, there = self._objects.zone_of(obj), self._objects.recorded_zone_of(obj)
        if there is not None and not is_true(conditions, ConditionType.PROGRAMMED):
            zone = there  # until it has moved
        health = observed.health if observed is not None else None
        records = f"{health.healthy if health is not None else 0}/{translation.targets or 0}"
        return msgspec.structs.replace(
            status,
            zone=zone.metadata.name if zone is not None else obj.status.zone,
            records=records if translation.targets else obj.status.records,
        )

    def is_wanted(self, obj: Hostname, translation: Decision) -> bool:
        """Return whether a zone could publish the name, or the status says that one did."""
        asked = any(condition.status is not None for condition in translation.conditions)
        return asked or translation.desired is not None or bool(obj.status.conditions)

    def programmed(self, obj: Hostname, status: HostnameStatus) -> str:
        """Return what is published."""
        return f"{obj.spec.host} is published in zone {status.zone}, records {status.records}"


def moving(
    view: HostnameView, translation: Decision, names: HostnameObjects, providers: ProviderRegistry
) -> Recorded | None:
    """Return what is placed until the zone of ``translation`` has the whole name."""
    obj, desired = view.load_balancer, translation.desired
    former, serving = names.recorded_zone_of(obj), obj.status.serving_provider
    if desired is None or former is None or serving in ("", translation.provider) or former.spec.provider != serving:
        return None
    runner = providers.get(translation.provider)
    if serving not in providers or runner is None:
        return None
    idle = desired.paused or bool(desired.dry_run)
    missing = "it is paused, or a dry run" if idle else _missing(runner, view.key, desired)
    if not missing:
        return None
    accepted = msgspec.structs.replace(obj, spec=obj.status.accepted or obj.spec)
    before = decide_hostname(msgspec.structs.replace(view, zone=former, load_balancer=accepted))
    return Recorded(
        translation=translation,
        placement=Placement(before, None if idle else translation, Phase.PREPARING),
        waiting_for=f"DNSZone {former.metadata.name} has the records until {translation.provider} has them ({missing})",
    )


def _missing(runner: ProviderRunner, key: LoadBalancerKey, desired: DesiredLoadBalancer) -> str:
    """Return what of ``desired`` is not answered yet, in one phrase; empty when all of it is."""
    if (missing := missing_targets(runner, key, desired)) or not isinstance(runner, DurableRunner):
        return missing
    seen = runner.readback.seen.get(key)
    if isinstance(seen, Observed) and seen.programmed and not not_seen(desired, seen.health):
        return ""
    runner.readback.notice(key)
    return seen if isinstance(seen, str) else "its server does not answer all of them yet"


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


class HostnameObjects(IntentObjects[Hostname]):
    """Names are in no region: the hub that serves all regions serves them, so that each has one writer."""

    def __init__(self, cluster: Cluster, inventory: Inventory) -> None:
        super().__init__(
            WatchCache(
                cluster,
                HOSTNAMES,
                indexes={
                    "namespace": lambda obj: [obj.metadata.namespace],
                    # In no LoadBalancerClass: the zone of a name follows from the name.
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
        # Which names an unreadable zone holds is not known.
        inventory.wake_on_readability(DNS_ZONES.kind, self.zones, lambda _zone: map(self.key, self.served()))

    def watch(self, opened: Callable[[str], bool]) -> None:
        """Wake names when their zone changes; ``opened`` is called with the provider that a zone names."""

        def changed(old: DNSZone | None, new: DNSZone | None) -> None:
            zone = new or old
            if zone is None or (old and new and only_status_changed(old, new)):
                return
            if new is not None:
                opened(new.spec.provider)
            # The first zone, and the last one that goes, decide whether names without a zone are a problem.
            only = (old is None or new is None) and sum(1 for _ in self.zones.values()) == (new is not None)
            keys = map(self.key, self.served()) if only else self.keys_by_index("suffix", zone.spec.zone)
            self._inventory.wake(keys, f"DNSZone {zone.metadata.name} changed")

        self.zones.on_change(changed)

    def zone_of(self, obj: Hostname) -> DNSZone | None:
        """Return where its records are to be: the zone with the longest suffix; of equal ones that which has them."""
        there = self.recorded_zone_of(obj)
        best = longest_suffix(obj.spec.host, (each for each in self.zones.values() if not each.deleting))
        if there is None or (best is not None and len(best.spec.zone) > len(there.spec.zone)):
            return best
        return there

    def recorded_zone_of(self, obj: Hostname) -> DNSZone | None:
        """Return the zone that has its records, None when none has, or it has been deleted."""
        zone = self.zones.get("", obj.status.zone) if obj.status.zone and obj.status.accepted is not None else None
        return zone if zone is not None and zone.spec.zone in suffixes(obj.spec.host) else None

    def unreadable_zones(self) -> str:
        """Return which DNSZone cannot be decoded, empty when there is none."""
        return first_broken(DNS_ZONES.kind, self.zones, sorted(self.zones.broken))


def suffixes(host: str) -> list[str]:
    """Return ``host`` and every name above it."""
    labels = host.split(".")
    return [".".join(labels[at:]) for at in range(len(labels))]
