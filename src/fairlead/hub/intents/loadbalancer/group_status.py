"""What users read on a BackendGroup, and what keeps one that must not go.

    labelled do-not-delete        our finalizer is on it: deleted, it stays with all its backends, and says why
    not labelled (any more)       the finalizer goes; what it had is deregistered from its records, not from it

In: groups, and what was built of the load balancers that they name. Out: counts, conditions, Events for bad news, and
the finalizer. Never: a finalizer on a group that nobody has labelled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from fairlead.api.backendgroup import BACKEND_GROUPS, BackendGroup
from fairlead.api.names import FINALIZER_PROTECTED, MANAGER_HUB
from fairlead.api.times import wire_time
from fairlead.hub.intents.tcp.status import wire_condition
from fairlead.hub.inventory import Inventory
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.loadbalancer import LoadBalancerTranslation
from fairlead.translate.protection import build_protected, is_labelled, is_leaving

_GOOD = frozenset({ConditionType.ACCEPTED, ConditionType.RESOLVED_REFS})


class GroupStatusWriter:
    """Brings groups up to date, one by one."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        events: EventRecorder,
        clock: Clock,
        leading: Callable[[], bool],
        built: Callable[[LoadBalancerKey], LoadBalancerTranslation | None],
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._events = events
        self._clock = clock
        self._leading = leading
        self._built = built
        self.queue: KeyedQueue[tuple[str, str]] = KeyedQueue(clock=clock)

    def look_at(self, keys: Iterable[tuple[str, str]]) -> None:
        """Have these groups looked at."""
        for key in keys:
            self.queue.add(key)

    def changed(self, _old: BackendGroup | None, new: BackendGroup | None) -> None:
        """Take note that a group has changed."""
        if new is not None:
            self.queue.add(new.key)

    async def reconcile(self, key: tuple[str, str]) -> None:
        """Write what ``key`` lacks; nothing when it lacks nothing."""
        group = self._inventory.groups.get(*key)
        if group is None or self._inventory.region or not self._leading():
            return  # the hub of a region serves no LoadBalancers, so it has nothing to say about groups
        if (FINALIZER_PROTECTED in (group.metadata.finalizers or ())) != is_labelled(group) and not (
            group.deleting and is_labelled(group)  # too late for a finalizer
        ):
            await self._hold(group, is_labelled(group))
            return  # what that made of it brings us back
        if not is_leaving(group):
            await self._write(group)

    async def _hold(self, group: BackendGroup, hold: bool) -> None:
        meta = group.metadata
        others = [one for one in meta.finalizers or () if one != FINALIZER_PROTECTED]
        finalizers = [*others, FINALIZER_PROTECTED] if hold else others
        patch = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": finalizers}}
        await self._cluster.merge_patch(BACKEND_GROUPS, meta.namespace, meta.name, patch, manager=MANAGER_HUB)

    async def _write(self, group: BackendGroup) -> None:
        owner = f"BackendGroup/{group.metadata.namespace}/{group.metadata.name}"
        counts: Counter[str] = Counter()
        for key in self._inventory.load_balancers_of(group):
            counts.update(
                one.status.state for one in self._inventory.records.by_index("lb", key) if owner in one.spec.owners
            )
        old, generation = group.status, group.metadata.generation
        known = {one.type: one for one in old.conditions or ()}
        conditions = self._conditions(group)
        expected = counts.total() - counts["Deregistering"]
        summary = _programmed(conditions, counts["Registered"], expected)
        order = list(ConditionType)
        conditions = sorted([*conditions, summary], key=lambda one: order.index(one.type))
        now = wire_time(self._clock.now())
        new = msgspec.structs.replace(
            old,
            backends=expected,
            registered_backends=counts["Registered"],
            observed_generation=generation,
            conditions=[wire_condition(one, known.get(one.type), generation, now) for one in conditions] or None,
        )
        if msgspec.to_builtins(new) == msgspec.to_builtins(old):
            return
        meta = group.metadata
        # Zero is said, too: it would be left out, and that means that nobody has counted.
        counted = {"backends": new.backends, "registeredBackends": new.registered_backends}
        words = {**msgspec.to_builtins(msgspec.structs.replace(new, accepted=None)), **counted}
        about = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
        body = {"metadata": about, "status": words}
        await self._cluster.apply(BACKEND_GROUPS, body, manager=MANAGER_HUB, subresource="status")
        for one in conditions:
            before = known.get(one.type)
            news = before is None or (before.status == "True", before.reason) != (one.status, one.reason)
            if one.type is ConditionType.PROGRAMMED:
                continue  # it only sums up
            if news and one.status != (one.type in _GOOD) and one.reason is not ConditionReason.PENDING:
                self._events.emit_about(
                    BACKEND_GROUPS, group, warning=True, reason=one.reason.value, message=one.message
                )

    def _conditions(self, group: BackendGroup) -> list[Condition]:
        """Return one condition of each type: the first bad one, in the order of ``spec.loadBalancers``."""
        told: dict[ConditionType, Condition] = {}
        for key in self._inventory.load_balancers_of(group):
            for one in self._told(group, key):
                known = told.get(one.type)
                if known is None or (known.status == (known.type in _GOOD) and one.status != (one.type in _GOOD)):
                    told[one.type] = one
        if (protected := build_protected(group)) is not None:
            told[protected.type] = protected
        return list(told.values())

    def _told(self, group: BackendGroup, key: LoadBalancerKey) -> Sequence[Condition]:
        load_balancer = self._inventory.shared.get(key.namespace, key.name)
        if load_balancer is None or is_leaving(load_balancer):
            gone = "is being deleted" if load_balancer is not None else "does not exist"
            text = f"spec.loadBalancers: LoadBalancer {key.namespace}/{key.name} {gone}; create it, or take it off"
            no = Condition(ConditionType.RESOLVED_REFS, False, ConditionReason.NO_SUCH_LOAD_BALANCER, text)
            return (no,)
        built = self._built(key)
        return built.groups.get(group.key, ()) if built is not None else ()


def _programmed(conditions: Sequence[Condition], registered: int, expected: int) -> Condition:
    """Sum up: nothing is wrong, and everything that is wanted is registered."""

    def no(reason: ConditionReason, text: str) -> Condition:
        return Condition(ConditionType.PROGRAMMED, False, reason, text)

    wrong = next((one for one in conditions if one.type in _GOOD and not one.status), None)
    if wrong is not None:
        return no(wrong.reason, wrong.message)
    if registered < expected or not conditions:
        return no(ConditionReason.PENDING, f"{registered} of {expected} backends are registered")
    if not expected:
        text = "nothing that it selects is there and ready; fairlead explain, of its load balancer, says of each why"
        return no(ConditionReason.BACKEND_NOT_FOUND, text)
    return Condition(ConditionType.PROGRAMMED, True, ConditionReason.PROGRAMMED, "")
