"""Which LoadBalancerClass is in use, by how many and whom first? One that is cannot vanish.

    used       our finalizer is on it; deleted, it takes nothing new and says what keeps it
    unused     the finalizer goes, and with it a class that was deleted

In: classes, LoadBalancers and TCPLoadBalancers of all regions, and records whose load balancer's object is gone. Out:
the finalizer, counts and conditions on the class, an Event when a deletion has to wait. Never: a decision about a
load balancer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from fairlead.api.backendrecord import BackendRecord
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.loadbalancerclass import (
    CHANGEABLE_PARAMETERS,
    LOAD_BALANCER_CLASSES,
    LoadBalancerClass,
    LoadBalancerClassStatus,
)
from fairlead.api.names import DEFAULT_CLASS, FINALIZER_IN_USE, MANAGER_HUB
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, TCPLoadBalancer
from fairlead.api.times import wire_time
from fairlead.errors import NotFound
from fairlead.hub.intents.tcp.status import wire_condition
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.ledger.wire import load_balancer_of
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue

#: Load balancers come and go in crowds; one write tells of all of them, and every agent reads it.
_GATHER_S = 5.0


class ClassProtection:
    """Keeps classes that are in use, and counts."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        engines: ProviderRegistry,
        events: EventRecorder,
        clock: Clock,
        leading: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._engines = engines
        self._events = events
        self._clock = clock
        self._leading = leading
        self.queue: KeyedQueue[str] = KeyedQueue(clock=clock)

    def wire(self) -> None:
        """Hear of everything that may change who uses what."""
        self._inventory.classes.on_change(self._class_changed)
        self._inventory.load_balancers.on_change(self._user_changed)
        self._inventory.shared.on_change(self._user_changed)
        self._inventory.records.on_change(self._record_changed)

    def look_at_all(self) -> None:
        """Look at every class."""
        for one in self._inventory.classes.values():
            self.queue.add(one.metadata.name)

    async def reconcile(self, name: str) -> None:
        """Write what class ``name`` lacks; nothing when it lacks nothing."""
        found = self._inventory.classes.get("", name)
        if found is None or not self._leading():
            return
        users = list(self._users(found))
        finalizers = found.metadata.finalizers or []
        if bool(users) != (FINALIZER_IN_USE in finalizers) and not (users and found.deleting):
            await self._hold(found, bool(users))
            return  # what that made of it brings us back
        await self._tell(found, users)

    def _users(self, found: LoadBalancerClass) -> Iterator[str]:
        name, inventory = found.metadata.name, self._inventory
        for one in inventory.load_balancers.by_index("class", name):
            yield f"{TCP_LOAD_BALANCERS.kind} {'/'.join(one.key)}"
        for one in inventory.shared.by_index("class", name):
            yield f"{LOAD_BALANCERS.kind} {'/'.join(one.key)}"
        for record in inventory.records.values():
            if self._is_orphan(record) and _may_be_of(record, found):
                yield f"BackendRecord {'/'.join(record.key)}"

    def _is_orphan(self, record: BackendRecord) -> bool:
        key = load_balancer_of(record)
        objects = self._inventory.shared if key.kind == LOAD_BALANCERS.kind else self._inventory.load_balancers
        return objects.get(key.namespace, key.name) is None

    async def _hold(self, found: LoadBalancerClass, hold: bool) -> None:
        meta = found.metadata
        others = [one for one in meta.finalizers or () if one != FINALIZER_IN_USE]
        finalizers = [*others, FINALIZER_IN_USE] if hold else others
        patch = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": finalizers}}
        try:
            await self._cluster.merge_patch(LOAD_BALANCER_CLASSES, "", meta.name, patch, manager=MANAGER_HUB)
        except NotFound:
            return  # it went while nobody held it

    async def _tell(self, found: LoadBalancerClass, users: list[str]) -> None:
        meta, old = found.metadata, found.status
        known = {one.type: one for one in old.conditions or ()}
        now = wire_time(self._clock.now())
        conditions = (self._accepted(found), _in_use(found, users))
        new = LoadBalancerClassStatus(
            load_balancers=sum(not one.startswith("BackendRecord ") for one in users),
            observed_generation=meta.generation,
            conditions=[wire_condition(one, known.get(one.type), meta.generation, now) for one in conditions],
        )
        if new == old:
            return
        # Zero is said, too: it would be left out, and that means that nobody has counted.
        status = {**msgspec.to_builtins(new), "loadBalancers": new.load_balancers}
        body = {"metadata": {"name": meta.name, "uid": meta.uid}, "status": status}
        await self._cluster.apply(LOAD_BALANCER_CLASSES, body, manager=MANAGER_HUB, subresource="status")
        if found.deleting and users:
            text = conditions[1].message
            self._events.emit_about(
                LOAD_BALANCER_CLASSES, found, warning=True, reason=ConditionReason.IN_USE.value, message=text
            )

    def _accepted(self, found: LoadBalancerClass) -> Condition:
        provider = found.spec.provider
        if provider in self._engines.capabilities:
            return Condition(ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED, "")
        runs = ", ".join(sorted(self._engines.known)) or "none"
        text = (
            f"spec.provider: this hub does not run {provider!r} (it runs: {runs}); install it, or create another class"
        )
        return Condition(ConditionType.ACCEPTED, False, ConditionReason.NO_SUCH_PROVIDER, text)

    def _class_changed(self, _old: LoadBalancerClass | None, new: LoadBalancerClass | None) -> None:
        if new is not None:
            self.queue.add(new.metadata.name)

    def _user_changed(
        self, old: TCPLoadBalancer | LoadBalancer | None, new: TCPLoadBalancer | LoadBalancer | None
    ) -> None:
        names = {one.spec.class_name or DEFAULT_CLASS for one in (old, new) if one is not None}
        if old is None or new is None or len(names) > 1:
            for name in names:
                found = self._inventory.classes.get("", name)
                held = found is not None and FINALIZER_IN_USE in (found.metadata.finalizers or ())
                self.queue.add_after(name, _GATHER_S if held else 0.0)

    def _record_changed(self, old: BackendRecord | None, new: BackendRecord | None) -> None:
        if new is None and old is not None and self._is_orphan(old):
            for one in self._inventory.classes.values():
                if one.spec.provider == old.spec.load_balancer.provider:
                    self.queue.add_after(one.metadata.name, _GATHER_S)


def _may_be_of(record: BackendRecord, found: LoadBalancerClass) -> bool:
    """Say whether a record was made by this class: same provider, and every parameter that cannot have changed."""
    at = record.spec.load_balancer
    kept = at.parameters or {}
    fixed = {
        key: value
        for key, value in (found.spec.parameters or {}).items()
        if key not in CHANGEABLE_PARAMETERS and not key.startswith("timeout.")
    }
    return at.provider == found.spec.provider and all(kept.get(key) == value for key, value in fixed.items())


def _in_use(found: LoadBalancerClass, users: list[str]) -> Condition:
    if not users:
        return Condition(ConditionType.IN_USE, False, ConditionReason.UNUSED, "nothing uses it")
    count, first = len(users), min(users)
    text = f"used by {count}, first {first}" if count > 1 else f"used by {first}"
    if found.deleting:
        text = (
            f"it was deleted, and stays until nothing uses it: {text}; delete what uses it, or move it to another class"
        )
    return Condition(ConditionType.IN_USE, True, ConditionReason.IN_USE, text)
