"""The status of a BackendGroup, and the finalizer of one that must not be deleted.

    labelled do-not-delete        our finalizer is on it: deleted, it stays with all its backends, and says why
    not labelled (any more)       the finalizer goes; what it had is deregistered from its records, not from it

In: groups, and what the load balancers that they name were translated to. Out: counts, conditions, Events for those
that turned bad, and the finalizer. Never: a finalizer on a group without the label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Literal

import msgspec

from fairlead.api.backendgroup import BACKEND_GROUPS, BackendGroup, ListedBackend
from fairlead.api.meta import transitions, wire_conditions
from fairlead.api.names import FINALIZER_PROTECTED, MANAGER_HUB
from fairlead.api.times import wire_time
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.loadbalancer.objects import LoadBalancerObjects, load_balancers_of
from fairlead.hub.pacing import CoalescingWriter
from fairlead.hub.providers.runner import ProviderRunner, observed_of
from fairlead.kube.status import emit_transitions
from fairlead.kube.writes import hold, release
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.queue import KeyedQueue
from fairlead.sync.tracker import LoadBalancerState, Registered
from fairlead.translate.view import LoadBalancerDecision, build_protected, is_labelled, is_leaving

_GOOD = frozenset({ConditionType.ACCEPTED, ConditionType.RESOLVED_REFS})


class GroupStatusWriter:
    """Writes the status of groups, and holds those that are labelled do-not-delete.

    ``unread`` returns why what a group selects from is not read yet, empty when it is.
    """

    def __init__(
        self,
        context: IntentContext,
        *,
        objects: LoadBalancerObjects,
        unread: Callable[[BackendGroup], str],
        translation: Callable[[LoadBalancerKey], LoadBalancerDecision | None],
    ) -> None:
        self._context = context
        self._unread = unread
        self._cluster = context.cluster
        self._inventory = context.inventory
        self._runners = context.providers
        self._objects = objects
        self._translation = translation
        self._lister = BackendLister(context, translation=translation)
        self._writer: CoalescingWriter[BackendGroup] = CoalescingWriter(
            context.cluster,
            BACKEND_GROUPS,
            objects=objects.present_groups,
            clock=context.clock,
            others=("accepted",),
            # Left out, zero would mean that it was not counted.
            always=("backends", "registeredBackends"),
        )
        self.queue: KeyedQueue[tuple[str, str]] = KeyedQueue(clock=context.clock, group_of=itemgetter(0))

    def add(self, keys: Iterable[tuple[str, str]]) -> None:
        """Have these groups reconciled."""
        for key in keys:
            self.queue.add(key)

    def load_balancer_changed(self, key: LoadBalancerKey) -> None:
        """Have the groups that name ``key`` reconciled."""
        self.add(group.key for group in self._objects.groups_of(key))

    def changed(self, old: BackendGroup | None, new: BackendGroup | None) -> None:
        """Reconcile a group that has changed."""
        if new is not None:
            self.queue.add(new.key)
        elif old is not None:
            self._writer.forget(*old.key)

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        """Write what ``key`` lacks; nothing when it lacks nothing. Returns when its backends are to be listed again."""
        group = self._objects.present_groups.get(*key)
        if group is None or self._inventory.region or not self._context.leading():
            return None  # the hub of a region serves no LoadBalancers, so it writes nothing about groups
        labelled = is_labelled(group)
        too_late = group.deleting and labelled  # the API server takes no finalizer now
        if group.held_by(FINALIZER_PROTECTED) != labelled and not too_late:
            change = hold if labelled else release
            answer = await change(self._cluster, BACKEND_GROUPS, group, FINALIZER_PROTECTED, manager=MANAGER_HUB)
            if answer is not group and not group.deleting:
                self._objects.present_groups.written(answer, before=group)
            return None  # the watch queues the object again
        return await self._write(group) if not is_leaving(group) else None

    async def _write(self, group: BackendGroup) -> float | None:
        owner = f"BackendGroup/{group.metadata.namespace}/{group.metadata.name}"
        counts: Counter[str] = Counter()
        for key in load_balancers_of(group):
            counts.update(
                record.status.state
                for record in self._inventory.records.by_index("lb", key)
                if owner in record.spec.owners
            )
        old = group.status
        conditions = self._conditions(group)
        listed = await self._lister.listed(group) if group.spec.list_backends else None
        if listed is not None:
            # Proxies of ours have no records.
            counts = Counter(each.state for each in listed)
        expected = counts.total() - counts["Deregistering"]
        unread = self._unread(group)
        # Before its first backend is on record, what is wanted counts.
        wanted = expected or self._wanted(group, owner)
        summary = _programmed(group, conditions, counts["Registered"], wanted, unread=unread)
        now = wire_time(self._context.clock.now())
        generation = group.metadata.generation
        new = msgspec.structs.replace(
            old,
            load_balancers=", ".join(group.spec.load_balancers),
            backends=expected,
            registered_backends=counts["Registered"],
            observed_generation=generation,
            listed=(listed or None) if listed is not None else old.listed,
            listed_generation=generation if listed is not None else old.listed_generation,
            conditions=wire_conditions([*conditions, summary], old.conditions, generation=generation, now=now) or None,
        )
        written, wait_s = await self._writer.write(group, old, new)
        if written is not None:
            emit_transitions(
                self._context.events,
                BACKEND_GROUPS,
                group,
                transitions(old.conditions, new.conditions),
                # Programmed only sums up the others.
                quiet=lambda change: change.condition.type == ConditionType.PROGRAMMED,
            )
        again_s = AGAIN_S if unread or (group.spec.list_backends and listed is None) else 0.0
        return min(filter(None, (wait_s, again_s)), default=None)

    def _wanted(self, group: BackendGroup, owner: str) -> int:
        """Return how many backends of ``group`` its load balancers are to have."""
        states = (runner.tracker.state(key) for key in load_balancers_of(group) for runner in self._runners.values())
        desired = (state.desired for state in states if state is not None and state.desired is not None)
        return sum(
            owner in target.owners for each in desired for by_key in each.targets.values() for target in by_key.values()
        )

    def _conditions(self, group: BackendGroup) -> list[Condition]:
        """Return one condition of each type: the first bad one, in the order of ``spec.loadBalancers``."""
        by_type: dict[ConditionType, Condition] = {}
        for key in load_balancers_of(group):
            for condition in self._conditions_at(group, key):
                known = by_type.get(condition.type)
                if known is None or (_is_good(known) and not _is_good(condition)):
                    by_type[condition.type] = condition
        if (protected := build_protected(group)) is not None:
            by_type[protected.type] = protected
        return list(by_type.values())

    def _conditions_at(self, group: BackendGroup, key: LoadBalancerKey) -> Sequence[Condition]:
        load_balancer = self._objects.cache.get(key.namespace, key.name)
        if load_balancer is None or is_leaving(load_balancer):
            gone = "is being deleted" if load_balancer is not None else "does not exist"
            text = f"spec.loadBalancers: LoadBalancer {key.namespace}/{key.name} {gone}; create it, or take it off"
            no = Condition(ConditionType.RESOLVED_REFS, False, ConditionReason.NO_SUCH_LOAD_BALANCER, text)
            return (no,)
        translation = self._translation(key)
        return translation.groups.get(group.key, ()) if translation is not None else ()


def _is_good(condition: Condition) -> bool:
    return condition.status == (condition.type in _GOOD)


def _programmed(
    group: BackendGroup, conditions: Sequence[Condition], registered: int, expected: int, *, unread: str = ""
) -> Condition:
    """Return whether nothing is wrong and everything that is wanted is registered."""

    def no(reason: ConditionReason, text: str) -> Condition:
        return Condition(ConditionType.PROGRAMMED, False, reason, text)

    wrong = next((condition for condition in conditions if condition.type in _GOOD and not condition.status), None)
    if wrong is not None:
        return no(wrong.reason, wrong.message)
    if registered < expected or not conditions:
        return no(ConditionReason.PENDING, f"{registered} of {expected} backends are registered")
    if not expected and unread:
        return no(ConditionReason.PENDING, f"the hub has not read what the group selects from ({unread})")
    if not expected:
        key = load_balancers_of(group)[0]
        command = f"fairlead explain lb/{key.namespace}/{key.name}"
        text = f"no selected backend exists and is ready; the reason for each is shown by: {command}"
        return no(ConditionReason.BACKEND_NOT_FOUND, text)
    return Condition(ConditionType.PROGRAMMED, True, ConditionReason.PROGRAMMED, "")


State = Literal["Pending", "Registered", "Draining", "Deregistering"]
#: When a list that is not known yet is looked for again, should no change wake it before.
AGAIN_S = 1.0
_LEAST_FIRST: tuple[State, ...] = ("Deregistering", "Pending", "Draining", "Registered")


class BackendLister:
    """Lists the backends of groups; ``translation`` is what a load balancer was translated to last."""

    def __init__(
        self, context: IntentContext, *, translation: Callable[[LoadBalancerKey], LoadBalancerDecision | None]
    ) -> None:
        self._providers = context.providers
        self._translation = translation

    async def listed(self, group: BackendGroup) -> list[ListedBackend] | None:
        """Return the backends of ``group``, ordered; None while they are not known for its present generation."""
        states: dict[str, State] = {}
        for key in load_balancers_of(group):
            rows = await self._at(key, group)
            if rows is None:
                return None
            for backend, state in rows:
                known: State = states.get(backend, state)
                states[backend] = known if _LEAST_FIRST.index(known) <= _LEAST_FIRST.index(state) else state
        return [ListedBackend(backend, state) for backend, state in sorted(states.items())]

    async def _at(self, key: LoadBalancerKey, group: BackendGroup) -> list[tuple[str, State]] | None:
        translation = self._translation(key)
        if translation is None or translation.generations.get(group.key) != group.metadata.generation:
            return None
        if all(each.loaded and key not in each.tracker for each in self._providers.values()):
            return []  # it was never accepted, so nothing of it is anywhere
        runner = self._providers.get(translation.provider)
        state = runner.tracker.state(key) if runner is not None and runner.loaded else None
        if runner is None or state is None or state.desired is None:
            return None
        if not runner.durable and not await _has_taken_effect(runner, key):
            return None
        return list(_rows(state, f"BackendGroup/{'/'.join(group.key)}"))


async def _has_taken_effect(runner: ProviderRunner, key: LoadBalancerKey) -> bool:
    """Return whether every proxy has acknowledged all that was done."""
    if runner.tracker.is_dirty(key):
        return False
    observed = await observed_of(runner, key, None)
    return observed is not None and observed.programmed and bool(observed.proxies)


def _rows(state: LoadBalancerState, owner: str) -> Iterator[tuple[str, State]]:
    desired = state.desired.targets if state.desired is not None else {}
    for listener, targets in desired.items():
        done = state.recorded.get(listener, {})
        for key, target in targets.items():
            if owner in target.owners and key not in done and not target.draining:
                yield str(key), "Pending"
    for listener, registered in state.recorded.items():
        wanted = desired.get(listener, {})
        for key, each in registered.items():
            if owner in each.target.owners:
                yield str(key), _state(each, wanted=key in wanted)


def _state(registered: Registered, *, wanted: bool) -> State:
    if registered.deregistering or not wanted:
        return "Deregistering"
    if registered.unknown:
        return "Pending"
    return "Draining" if registered.target.draining else "Registered"
