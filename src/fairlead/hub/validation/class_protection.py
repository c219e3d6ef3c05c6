"""The LoadBalancerClasses in use, by how many and by which first; one in use is held by a finalizer.

    used       our finalizer is on it; deleted, it accepts nothing new, and its condition says what uses it
    unused     the finalizer goes, and with it a class that was deleted
    default    deleted, it goes at once and is made again as it was: every Service without a class needs it

In: classes, intents of all regions, and records whose load balancer's object is gone. Out:
the finalizer, counts and conditions on the class, an Event when a deletion has to wait. Never: a decision about a
load balancer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import msgspec

from fairlead.api.backendgroup import BackendRecord
from fairlead.api.intent import IntentObject
from fairlead.api.loadbalancerclass import (
    CHANGEABLE_PARAMETERS,
    LOAD_BALANCER_CLASSES,
    LoadBalancerClass,
    LoadBalancerClassStatus,
)
from fairlead.api.meta import JSONObject, KubeObject, wire_conditions
from fairlead.api.names import DEFAULT_CLASS, FINALIZER_IN_USE, MANAGER_HUB
from fairlead.api.times import wire_time
from fairlead.errors import AlreadyExists, NotFound
from fairlead.hub.inventory import Inventory
from fairlead.hub.pacing import CoalescingWriter
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.writes import Overlay, hold, release
from fairlead.ledger.wire import load_balancer_of
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.member import class_place_problem

#: Many load balancers may come and go at once; one write counts all of them, and every agent reads it.
_GATHER_S = 5.0
#: How long a status is held back when only the number of its users has changed.
_COUNT_S = 30.0
#: Serves nothing: providers are held to its behaviour by tests.
_NOT_OFFERED = frozenset({"memory"})


class ClassProtection:
    """Holds classes that are in use, and counts their users."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        providers: ProviderRegistry,
        events: EventRecorder,
        clock: Clock,
        leading: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._providers = providers
        self._events = events
        self._clock = clock
        self._leading = leading
        self.queue: KeyedQueue[str] = KeyedQueue(clock=clock)
        self._writer: CoalescingWriter[LoadBalancerClass] = CoalescingWriter(
            cluster,
            LOAD_BALANCER_CLASSES,
            objects=Overlay(inventory.classes),
            clock=clock,
            # Left out, zero would mean that it was not counted.
            always=("loadBalancers",),
            settle_s=_COUNT_S,
        )

    def watch(self) -> None:
        """Subscribe to everything that may change which class is used."""
        self._inventory.classes.on_change(self._class_changed)
        for objects in self._inventory.intents.values():
            objects.cache.on_change(self._user_changed)
        self._inventory.records.on_change(self._record_changed)

    def lead(self) -> None:
        """Reconcile every class: this replica has begun to lead."""
        for load_balancer_class in self._inventory.classes.values():
            self.queue.add(load_balancer_class.metadata.name)
        self.queue.add(DEFAULT_CLASS)

    async def reconcile(self, name: str) -> float | None:
        """Hold or release class ``name``, and write its status; returns seconds until it is due again."""
        load_balancer_class = self._inventory.classes.get("", name)
        if not self._leading():
            return None
        if load_balancer_class is None:
            self._writer.forget("", name)
            if name == DEFAULT_CLASS:
                await self._create_default()
            return None
        users = list(self._users(load_balancer_class))
        too_late = bool(users) and load_balancer_class.deleting  # the API server takes no finalizer now
        if name == DEFAULT_CLASS and load_balancer_class.deleting:
            await self._make_again(load_balancer_class)
            return None
        if bool(users) != load_balancer_class.held_by(FINALIZER_IN_USE) and not too_late:
            await self._hold(load_balancer_class, bool(users))
            return None  # the watch queues the object again
        return await self._write(load_balancer_class, users)

    def _users(self, load_balancer_class: LoadBalancerClass) -> Iterator[str]:
        for key in self._inventory.users_of_class(load_balancer_class.metadata.name):
            yield f"{key.kind} {key.namespace}/{key.name}"
        for record in self._inventory.records.values():
            if self._is_orphan(record) and _may_be_of(record, load_balancer_class):
                yield f"BackendRecord {record.key}"

    def _is_orphan(self, record: BackendRecord) -> bool:
        return not self._inventory.exists(load_balancer_of(record))

    async def _hold(self, load_balancer_class: LoadBalancerClass, in_use: bool) -> None:
        change = hold if in_use else release
        with suppress(NotFound):  # it went while it had no finalizer
            await change(
                self._cluster, LOAD_BALANCER_CLASSES, load_balancer_class, FINALIZER_IN_USE, manager=MANAGER_HUB
            )

    async def _make_again(self, deleted: LoadBalancerClass) -> None:
        """Have the default class deleted, and make it again with the spec, labels and annotations that it had.

        Its load balancers are served as before meanwhile: the inventory has it as it was.
        """
        await self._hold(deleted, False)
        self._events.emit_about(
            LOAD_BALANCER_CLASSES,
            deleted,
            warning=True,
            reason=ConditionReason.DELETING.value,
            message="the default class was deleted and is made again as it was: Services without a class need it; "
            "to have nothing new use it, set spec.draining",
        )

    async def _create_default(self) -> None:
        with suppress(AlreadyExists):
            await self._cluster.create(LOAD_BALANCER_CLASSES, default_class(self._inventory.last_default_class))

    async def _write(self, load_balancer_class: LoadBalancerClass, users: list[str]) -> float | None:
        old, generation = load_balancer_class.status, load_balancer_class.metadata.generation
        conditions = [self._accepted(load_balancer_class, users), build_in_use(load_balancer_class, users, short="lbc")]
        now = wire_time(self._clock.now())
        new = LoadBalancerClassStatus(
            load_balancers=sum(not user.startswith("BackendRecord ") for user in users),
            observed_generation=generation,
            conditions=wire_conditions(conditions, old.conditions, generation=generation, now=now),
        )
        written, wait_s = await self._writer.write(load_balancer_class, old, new)
        if written is None:
            return wait_s or None
        if load_balancer_class.deleting and users:
            text = conditions[1].message
            self._events.emit_about(
                LOAD_BALANCER_CLASSES,
                load_balancer_class,
                warning=True,
                reason=ConditionReason.IN_USE.value,
                message=text,
            )
        return None

    def _accepted(self, load_balancer_class: LoadBalancerClass, users: list[str]) -> Condition:
        provider = load_balancer_class.spec.provider
        if provider in self._providers.capabilities:
            reason, text = self._problem(load_balancer_class, users)
            return Condition(ConditionType.ACCEPTED, not text, reason, text)
        runs = ", ".join(sorted(set(self._providers.known) - _NOT_OFFERED)) or "none"
        text = (
            f"spec.provider: this hub does not run {provider!r} (it runs: {runs}); install it, or create another class"
        )
        return Condition(ConditionType.ACCEPTED, False, ConditionReason.NO_SUCH_PROVIDER, text)

    def _problem(self, load_balancer_class: LoadBalancerClass, users: list[str]) -> tuple[ConditionReason, str]:
        """Return why nothing can be made of the class, before anything uses it; the text is empty when it can be."""
        spec = load_balancer_class.spec
        if problem := self._providers.class_problem(spec.provider, spec.parameters):
            name = problem.removeprefix("parameters.").split(" ")[0].rstrip(":")
            step = "correct it" if _may_change(name) else "it is immutable: create another class instead"
            return ConditionReason.INVALID, f"spec.{problem}; {step}"
        if not any(user.startswith("LoadBalancer ") for user in users):
            # LoadBalancers are the hub's own: they may share a place.
            places = self._providers.capabilities[spec.provider].place_parameters
            if problem := class_place_problem(load_balancer_class, places):
                return ConditionReason.CLASS_NOT_USABLE, problem
        return ConditionReason.ACCEPTED, ""

    def _class_changed(self, old: LoadBalancerClass | None, new: LoadBalancerClass | None) -> None:
        changed = new or old
        if changed is None or (new is None and changed.metadata.name != DEFAULT_CLASS):
            return
        self.queue.add(changed.metadata.name)

    def _user_changed(self, old: IntentObject | None, new: IntentObject | None) -> None:
        names = {obj.class_name or DEFAULT_CLASS for obj in (old, new) if obj is not None}
        if old is None or new is None or len(names) > 1:
            for name in names:
                load_balancer_class = self._inventory.classes.get("", name)
                held = load_balancer_class is not None and load_balancer_class.held_by(FINALIZER_IN_USE)
                self.queue.add_after(name, _GATHER_S if held else 0.0)

    def _record_changed(self, old: BackendRecord | None, new: BackendRecord | None) -> None:
        if new is None and old is not None and self._is_orphan(old):
            for load_balancer_class in self._inventory.classes.values():
                if load_balancer_class.spec.provider == old.spec.load_balancer.provider:
                    self.queue.add_after(load_balancer_class.metadata.name, _GATHER_S)


def default_class(deleted: LoadBalancerClass | None = None) -> JSONObject:
    """Return the class of load balancers that name none: as it was when it was ``deleted``, else as at first."""
    if deleted is None:
        return {"metadata": {"name": DEFAULT_CLASS}, "spec": {"provider": DEFAULT_CLASS}}
    kept = {"labels": deleted.metadata.labels, "annotations": deleted.metadata.annotations}
    metadata = {"name": DEFAULT_CLASS, **{name: values for name, values in kept.items() if values}}
    return {"metadata": metadata, "spec": msgspec.to_builtins(deleted.spec)}


def _may_change(parameter: str) -> bool:
    return parameter in CHANGEABLE_PARAMETERS or parameter.startswith("timeout.")


def _may_be_of(record: BackendRecord, load_balancer_class: LoadBalancerClass) -> bool:
    """Return whether a record was made by this class: same provider, and every parameter that cannot have changed."""
    at = record.spec.load_balancer
    kept = at.parameters or {}
    fixed = {key: value for key, value in (load_balancer_class.spec.parameters or {}).items() if not _may_change(key)}
    return at.provider == load_balancer_class.spec.provider and all(
        kept.get(key) == value for key, value in fixed.items()
    )


def build_in_use(obj: KubeObject, users: Sequence[str], *, short: str) -> Condition:
    """Return condition InUse of ``obj``; ``short`` is the name of its kind for kubectl."""
    if not users:
        return Condition(ConditionType.IN_USE, False, ConditionReason.UNUSED, "nothing uses it")
    count, first, name = len(users), min(users), obj.metadata.name
    text = f"used by {count}, first {first}" if count > 1 else f"used by {first}"
    if obj.deleting:
        text = (
            f"it was deleted, and stays until nothing uses it: {text}; delete what uses it, or move it elsewhere. "
            f"To undo it, save it with kubectl get {short} {name} -o yaml, remove its finalizers, and apply what was "
            "saved; what it serves stays meanwhile"
        )
    return Condition(ConditionType.IN_USE, True, ConditionReason.IN_USE, text)
