"""The timeline of a fleet: changes, health, failovers and restarts.

    specs, pauses, creations, deletions; what the hub did at providers    change
    a load balancer, a member or a machine fails, or is well again        health
    an address moves to another machine                                   failover
    the hub, its leader, an agent or a proxy starts or ends               restart

Events are noted as caches, histories and proxies change, with and without viewers, and are kept in memory. Their number
is bounded: the member with the most events drops the oldest of its object with the most. What repeats is counted in
place. The first viewer after a restart also gets what objects and stored histories know of the last day. Never:
a write, or a cost that grows with the fleet.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from fairlead.api.hostname import HOSTNAMES, Hostname
from fairlead.api.intent import IntentObject
from fairlead.api.kinds import INTENT_KINDS
from fairlead.api.meta import condition_of
from fairlead.api.names import AGENT_LEASE, ANNOTATION_PAUSED
from fairlead.api.proxymachine import PROXY_MACHINES, Failover, ProxyMachine
from fairlead.api.tenant import TENANTS, StampedLease, Tenant
from fairlead.api.times import parsed_time, wire_time
from fairlead.hub.inventory import Inventory
from fairlead.model.change import HistoryEntry, HistoryKind
from fairlead.model.keys import LoadBalancerKey
from fairlead.page.board import TableSource, VisibleItem
from fairlead.page.tables import load_balancer_since
from fairlead.runtime.clock import Clock
from fairlead.status.fleet import AnyLoadBalancer, ProxyRow, Trouble, load_balancer_row
from fairlead.sync.history import History

#: Events that are kept, those that are read from objects after a restart, and how far these go back.
MOST_EVENTS = 1000
MOST_STORED = 200
STORED_FOR = timedelta(days=1)
#: How many events of an object back one of the same words is counted rather than listed.
_TURNS = 4
_LOOK_S = 5.0
_LONGEST_TEXT = 300
_FIELDS_NAMED = 3


class EventKind(StrEnum):
    """The kinds of events."""

    CHANGE = "change"
    HEALTH = "health"
    FAILOVER = "failover"
    RESTART = "restart"


class EventItem(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """One event; ``at`` is its last time, of ``count``. ``link`` is the id of a load balancer, empty for others."""

    id: str
    at: str
    kind: EventKind
    state: str
    subject: str
    text: str
    link: str = ""
    count: int = 1


class Audience(NamedTuple):
    """The resource, in a namespace, that a viewer of an event must be able to list; empty: every viewer."""

    resource: str
    namespace: str = ""


class Event(NamedTuple):
    """One thing that happened, and who may know; ``at`` None: now."""

    kind: EventKind
    subject: str
    text: str
    audience: Audience
    state: Trouble = Trouble.NONE
    link: str = ""
    at: datetime | None = None


EVERYBODY = Audience("")
_FLEET = Audience(TENANTS.plural)
_RESOURCES = {resource.kind: resource.plural for resource in INTENT_KINDS}
_BY_TYPE = {resource.type: resource for resource in INTENT_KINDS}
_STATES_OF_MEMBERS = {"Engaged": "the agent reports", "Stale": "the agent is silent", "Lost": "the agent is lost"}


class Timeline(TableSource):
    """The events of one hub; a source of the board (table ``event``)."""

    table = "event"

    def __init__(self, inventory: Inventory, history: History, *, clock: Clock, now: Callable[[], datetime]) -> None:
        self._inventory = inventory
        self._history = history
        self._clock = clock
        self._now = now
        self._started = now()
        self._number = 0
        self._events: dict[str, tuple[EventItem, Audience]] = {}
        #: The numbers of the events, oldest first, by namespace and subject; what happened last is the last subject.
        self._of: defaultdict[str, dict[str, deque[str]]] = defaultdict(dict)
        self._sizes: Counter[str] = Counter()
        self._changed: Callable[[Hashable], None] = lambda _key: None
        self._stored_read = False
        self._proxies: set[str] | None = None
        self._leader = ""
        for kind, objects in self._inventory.intents.items():
            if kind in _RESOURCES:
                objects.cache.on_change(self._intent_changed)
        self._inventory.tenants.on_change(self._tenant_changed)
        self._inventory.leases.on_change(self._lease_changed)
        if self._inventory.machines is not None:
            self._inventory.machines.on_change(self._machine_changed)
        self._history.on_note = self._history_noted

    def note(self, event: Event) -> None:
        """Add one event; one of the same words that has just happened is counted instead."""
        subjects, count, text = self._of[event.audience.namespace], 1, event.text[:_LONGEST_TEXT]
        numbers = subjects.pop(event.subject, deque[str]())
        for number in list(numbers)[-_TURNS:]:
            before, audience = self._events[number]
            if (before.kind, before.text, audience) == (event.kind, text, event.audience):
                count += before.count
                numbers.remove(number)
                self._drop(number)
        numbers.append(self._put(event, text, count))
        subjects[event.subject] = numbers
        if len(self._events) > MOST_EVENTS:
            self._drop_fairly()

    def _put(self, event: Event, text: str, count: int) -> str:
        self._number += 1
        number, at = str(self._number), wire_time(event.at or self._now())
        item = EventItem(number, at, event.kind, event.state, event.subject, text, event.link, count)
        self._events[number] = (item, event.audience)
        self._sizes[event.audience.namespace] += 1
        self._changed(number)
        return number

    def _drop(self, number: str) -> None:
        _, audience = self._events.pop(number)
        self._sizes[audience.namespace] -= 1
        self._changed(number)

    def _drop_fairly(self) -> None:
        """Drop the oldest event of the subject with the most, in the namespace with the most."""
        namespace = max(self._sizes, key=self._sizes.__getitem__)
        subjects = self._of[namespace]
        numbers = max(subjects.values(), key=len)
        number = numbers.popleft()
        if not numbers:
            del subjects[self._events[number][0].subject]
        self._drop(number)
        if not subjects:
            del self._of[namespace], self._sizes[namespace]

    async def run(self, proxies: Callable[[], Iterable[ProxyRow]], leader: Callable[[], str], identity: str) -> None:
        """Note the start of this hub, and look at its proxies and at who leads, until cancelled."""
        self.note(Event(EventKind.RESTART, f"hub {identity}", "started", EVERYBODY, at=self._started))
        while True:
            self.look([f"{row.group}/{row.node}" for row in proxies()], leader())
            await self._clock.sleep(_LOOK_S)

    def look(self, proxies: Sequence[str], leader: str) -> None:
        """Note which proxies have connected or left since the last look, and another leader."""
        known, self._proxies = self._proxies, set(proxies)
        for name in sorted(self._proxies - (known or set())):
            self.note(Event(EventKind.RESTART, f"proxy {name}", "connected", _FLEET))
        for name in sorted((known or set()) - self._proxies):
            self.note(
                Event(EventKind.RESTART, f"proxy {name}", "disconnected from this hub", _FLEET, Trouble.ATTENTION)
            )
        if leader != self._leader:
            self._leader = leader
            if leader:
                self.note(Event(EventKind.RESTART, f"hub {leader}", "leads", EVERYBODY))

    # --- the board's table --------------------------------------------------------------------------------------

    def watch(self, changed: Callable[[Hashable], None]) -> None:
        """Call ``changed`` with the number of each event that comes or goes."""
        self._changed = changed

    def all_keys(self) -> Iterable[Hashable]:
        """Return the numbers of all events; the first time, those from before this hub started are read."""
        if not self._stored_read:
            self._stored_read = True
            oldest = self._started - STORED_FOR
            stored = [event for event in self._stored() if event.at is not None and oldest <= event.at < self._started]
            for event in sorted(stored, key=lambda event: event.at or oldest, reverse=True)[:MOST_STORED]:
                if len(self._events) >= MOST_EVENTS:
                    break
                numbers = self._of[event.audience.namespace].setdefault(event.subject, deque())
                numbers.appendleft(self._put(event, event.text[:_LONGEST_TEXT], 1))
        return list(self._events)

    def visible_item(self, key: Hashable) -> VisibleItem | None:
        """Return one event."""
        known = self._events.get(str(key))
        return VisibleItem(known[0], *known[1]) if known is not None else None

    # --- what is noticed ----------------------------------------------------------------------------------------

    def _intent_changed(self, old: IntentObject | None, new: IntentObject | None) -> None:
        if new is None or old is None:
            if new is None and old is not None:
                self.note(self._named(old)._replace(text="deleted"))
            elif new is not None:
                # At its start the hub reads what has been there for long.
                created = parsed_time(new.metadata.creation_timestamp or "")
                if created is not None and created >= self._started:
                    self.note(self._named(new)._replace(text="created"))
            return
        changes: list[tuple[EventKind, str, Trouble]] = []
        if old.metadata.generation != new.metadata.generation and (fields := _changed_fields(old, new)):
            changes.append((EventKind.CHANGE, f"changed: {fields}", Trouble.NONE))
        paused = [obj.annotation(ANNOTATION_PAUSED, "false") != "false" for obj in (old, new)]
        if paused[0] != paused[1]:
            changes.append((EventKind.CHANGE, "paused" if paused[1] else "resumed", Trouble.NONE))
        before, now = (", ".join(obj.status.serving_machines) for obj in (old, new))
        if before and now and before != now:
            changes.append((EventKind.FAILOVER, f"moved from {before} to {now}", Trouble.NONE))
        if isinstance(old, AnyLoadBalancer) and isinstance(new, AnyLoadBalancer):
            changes += _changes_of_health(old, new)
        if changes:
            named = self._named(new)
            for kind, text, state in changes:
                self.note(named._replace(kind=kind, text=text, state=state))

    def _tenant_changed(self, old: Tenant | None, new: Tenant | None) -> None:
        if new is None or old is None or new.status.state == old.status.state:
            return
        subject, text = f"member {new.metadata.name}", _STATES_OF_MEMBERS.get(new.status.state, "")
        if text:
            state = Trouble.NONE if new.status.state == "Engaged" else Trouble.ATTENTION
            self.note(Event(EventKind.HEALTH, subject, text, _FLEET, state))

    def _lease_changed(self, old: StampedLease | None, new: StampedLease | None) -> None:
        if old is None or new is None or new.metadata.name != AGENT_LEASE:
            return
        holder, before = new.spec.holder_identity, old.spec.holder_identity
        tenant = self._inventory.tenant_of(new.metadata.namespace)
        if holder and holder != before and tenant is not None:
            self.note(Event(EventKind.RESTART, f"member {tenant.metadata.name}", f"agent {holder} leads", _FLEET))

    def _machine_changed(self, old: ProxyMachine | None, new: ProxyMachine | None) -> None:
        if new is None or old is None:
            return
        taken = new.status.last_failover
        if taken is not None and taken != old.status.last_failover:
            self.note(_failover(new, taken))
        ready, before = (condition_of(machine.status.conditions, "Ready") for machine in (new, old))
        if ready is not None and (before is None or before.status != ready.status):
            good = ready.status == "True"
            text = "is ready" if good else f"is not ready: {ready.message or ready.reason}"
            state = Trouble.NONE if good else Trouble.ATTENTION
            audience = Audience(PROXY_MACHINES.plural)
            self.note(Event(EventKind.HEALTH, f"machine {new.metadata.name}", text, audience, state))

    def _history_noted(self, key: LoadBalancerKey, entry: HistoryEntry) -> None:
        if (event := self._event_of(key, entry)) is not None:
            self.note(event)

    def _event_of(self, key: LoadBalancerKey, entry: HistoryEntry) -> Event | None:
        """Return what was done at a provider, failed or is held; None for the rest of a history."""
        if entry.kind in (HistoryKind.WOKEN, HistoryKind.DECIDED, HistoryKind.CHANGED) or key.kind not in _RESOURCES:
            return None
        objects = self._inventory.intents.get(key.kind)
        obj = objects.cache.get(key.namespace, key.name) if objects is not None else None
        state = Trouble.NONE if entry.kind is HistoryKind.APPLIED else Trouble.ATTENTION
        subject = self._named(obj).subject if obj is not None else f"{key.namespace}/{key.name}"
        audience = Audience(_RESOURCES[key.kind], key.namespace)
        link = str(key) if key.kind != HOSTNAMES.kind else ""
        return Event(EventKind.CHANGE, subject, entry.text, audience, state, link, entry.last_at or entry.at)

    def _named(self, obj: IntentObject) -> Event:
        """Return an event about an object, without words: its subject, its id, and who may see it."""
        resource, meta = _BY_TYPE[type(obj)], obj.metadata
        audience = Audience(resource.plural, meta.namespace)
        if isinstance(obj, AnyLoadBalancer):
            link = f"{resource.kind}/{meta.namespace}/{meta.name}"
            return Event(EventKind.CHANGE, load_balancer_row(obj).title, "", audience, link=link)
        return Event(
            EventKind.CHANGE, f"name {obj.spec.host if isinstance(obj, Hostname) else meta.name}", "", audience
        )

    def _stored(self) -> Iterator[Event]:
        """Yield what objects and histories know from before this hub started."""
        for key, entry in self._history.latest(MOST_STORED):
            if (event := self._event_of(key, entry)) is not None:
                yield event
        for objects in self._inventory.intents.values():
            for obj in objects.cache.values():
                if isinstance(obj, AnyLoadBalancer) and (health := _health(obj)).state in _TROUBLES:
                    at = parsed_time(load_balancer_since(obj))
                    yield self._named(obj)._replace(kind=EventKind.HEALTH, text=health.text, state=health.state, at=at)
        if self._inventory.machines is not None:
            for machine in self._inventory.machines.values():
                if (taken := machine.status.last_failover) is not None:
                    yield _failover(machine, taken)


class _Health(NamedTuple):
    state: Trouble
    text: str


#: States that are events; others end one.
_TROUBLES = (Trouble.NOT_SERVING, Trouble.UNCONFIRMED, Trouble.ATTENTION)
_VERBS = {
    Trouble.NOT_SERVING: "does not serve",
    Trouble.UNCONFIRMED: "is not known to serve yet",
    Trouble.ATTENTION: "needs attention",
    Trouble.NONE: "serves",
    Trouble.IDLE: "is idle",
}


def _health(lb: AnyLoadBalancer) -> _Health:
    row = load_balancer_row(lb)
    why = row.message or row.reason
    return _Health(row.state, f"{_VERBS[row.state]}: {why}" if row.state in _TROUBLES else _VERBS[row.state])


def _changes_of_health(old: AnyLoadBalancer, new: AnyLoadBalancer) -> list[tuple[EventKind, str, Trouble]]:
    if old.status.conditions == new.status.conditions:
        return []
    before, now = _health(old), _health(new)
    noted = now.state in _TROUBLES or before.state in _TROUBLES
    return [(EventKind.HEALTH, now.text, now.state)] if before != now and noted else []


def _failover(machine: ProxyMachine, taken: Failover) -> Event:
    text = f"took {taken.address} over: {taken.cause}"
    audience = Audience(PROXY_MACHINES.plural)
    return Event(
        EventKind.FAILOVER, f"machine {machine.metadata.name}", text, audience, Trouble.ATTENTION,
        at=parsed_time(taken.time),
    )  # fmt: skip


def _changed_fields(old: Any, new: Any) -> str:
    """Return the names of the first fields of the specs that differ; empty when none does."""
    specs = [msgspec.to_builtins(obj.spec) for obj in (old, new)]
    names = [name for name in {**specs[0], **specs[1]} if specs[0].get(name) != specs[1].get(name)]
    more = len(names) - _FIELDS_NAMED
    return ", ".join(names[:_FIELDS_NAMED]) + (f" and {more} more" if more > 0 else "")
