"""LoadBalancer as an intent: a load balancer as an object, which BackendGroups share.

view       the object, its class, the groups that name it, what they select, what is on record; and what its
provider says of a spec, of parameters, of pods that are not ready (``validation``)
record     the finalizer, and for each group with which parameters it was accepted
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence

import msgspec

from fairlead.api.backendrecord import BackendRecord, RecordOrigin
from fairlead.errors import FairleadError, NotFound
from fairlead.hub.intents.intent import Controller, Exclusion, Intent, IntentContext, Recorded
from fairlead.hub.intents.loadbalancer.allocations import Allocations
from fairlead.hub.intents.loadbalancer.backend_sources import BackendSources
from fairlead.hub.intents.loadbalancer.exclusions import excluded_backends
from fairlead.hub.intents.loadbalancer.group_status import GroupStatusWriter
from fairlead.hub.intents.loadbalancer.last_accepted import LastAccepted
from fairlead.hub.intents.loadbalancer.objects import LoadBalancerObjects
from fairlead.hub.intents.loadbalancer.status import LoadBalancerStatus
from fairlead.hub.intents.loadbalancer.target_refs import TargetRefs
from fairlead.hub.intents.loadbalancer.view import LoadBalancerViews
from fairlead.hub.providers.migration import Placement
from fairlead.hub.validation.provider_validation import ProviderValidation, as_recorded_verdicts
from fairlead.hub.validation.validation_cache import ValidationCache
from fairlead.ledger.wire import load_balancer_of
from fairlead.model.change import TargetChange
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.loadbalancer import accepted_frontend, translate_loadbalancer
from fairlead.translate.view import GroupView, LoadBalancerTranslation, LoadBalancerView


class LoadBalancerIntent(Intent[LoadBalancerView, LoadBalancerTranslation]):
    """LoadBalancers with their BackendGroups."""

    def __init__(self, context: IntentContext) -> None:
        objects = LoadBalancerObjects(context.cluster, context.inventory)
        self.sources = BackendSources(context.cluster, changed=objects.selection_changed)
        self.groups = objects.groups
        self._last_accepted = LastAccepted(context.cluster, context.leading)
        self._allocations = Allocations(context, objects)
        self._views = LoadBalancerViews(
            context,
            objects=objects,
            sources=self.sources,
            last_accepted=self._last_accepted,
            allocations=self._allocations,
        )
        self._target_refs = TargetRefs(groups=objects.groups, sources=self.sources)
        self._context = context
        self._cache = ValidationCache(clock=context.clock, leading=context.leading, wake=self._verdict_changed)
        self._validation = ProviderValidation(
            inventory=context.inventory, providers=context.providers, cache=self._cache
        )
        self._group_status = GroupStatusWriter(context, objects=objects, translation=self._translation)
        rules = LoadBalancerStatus(context, composed=self._group_status.load_balancer_changed)
        super().__init__(context, objects=objects, rules=rules)

    def watch(self) -> None:
        """Subscribe to groups, and to records, which the status counts."""
        self._context.inventory.records.on_change(self._record_changed)
        self.groups.on_change(self._group_status.changed)
        self.groups.on_change(self._validation.group_changed)

    def view(self, key: LoadBalancerKey) -> LoadBalancerView | None:
        """Return the view of ``key`` with what its provider says; it is asked only while this replica leads."""
        view = self._views.view(key)
        if view is None:
            return None
        if self._context.read_only:
            return as_recorded_verdicts(view)
        return self._validation.validated(view) if self._context.leading() else view

    def translate(self, view: LoadBalancerView) -> LoadBalancerTranslation:
        """Return what ``view`` comes to."""
        return translate_loadbalancer(view)

    async def record(self, view: LoadBalancerView, translation: LoadBalancerTranslation) -> Recorded:
        """Record what is accepted; a group that cannot be recorded is left out, and does not hold up the others."""
        if translation.desired is None:
            return Recorded(translation=None if view.pending else translation)
        await self._last_accepted.hold(view.load_balancer)
        if view.needs_allocation:
            accepted = accepted_frontend(view, translation)
            await self._last_accepted.accept(view.load_balancer, view.allocation, accepted)
        failure: FairleadError | None = None
        groups: list[GroupView] = []
        for group_view in view.groups:
            parameters = translation.taken.get(group_view.group.key)
            try:
                if parameters is not None:
                    await self._last_accepted.record(group_view.group, view.load_balancer, view.key, parameters)
                groups.append(group_view)
            except FairleadError as error:
                if failure is None or isinstance(failure, NotFound):
                    failure = error
                pending = Condition(ConditionType.ACCEPTED, False, ConditionReason.PENDING, error.sentence)
                groups.append(msgspec.structs.replace(group_view, verdict=pending))
        if failure is not None:
            translation = translate_loadbalancer(msgspec.structs.replace(view, groups=tuple(groups)))
        return Recorded(
            translation=None if view.pending else translation,
            placement=Placement(translation),
            failure=None if isinstance(failure, NotFound) else failure,
        )

    def on_record(self, view: LoadBalancerView, translation: LoadBalancerTranslation) -> Recorded:
        """Place what is on record at proxies of this hub; only the leader speaks to all other providers."""
        self._last_accepted.forget()
        if view.needs_allocation and translation.desired is not None:
            return Recorded(translation=translation, placement=Placement(translation))
        return Recorded(translation=translation)

    def restore(self) -> None:
        """Hold every recorded address and port, so that none of them is allocated to another load balancer."""
        self._allocations.hold_recorded()

    def lead(self) -> None:
        """Ask providers again what they did not answer, and compare the status of every group."""
        self._cache.again()
        self._group_status.add(group.key for group in self.groups.values())

    def forget(self, key: LoadBalancerKey) -> None:
        """Drop what is known of ``key``; its groups read that it is gone."""
        super().forget(key)
        self._last_accepted.drop(key)
        self._validation.forget(key)
        self._group_status.load_balancer_changed(key)

    def exclusions(self, view: LoadBalancerView, translation: LoadBalancerTranslation) -> tuple[Exclusion, ...]:
        """Return the pods, nodes and addresses of its groups that are not on the load balancer."""
        return excluded_backends(view, translation.desired, self.sources) if translation.desired is not None else ()

    def target_ref(self, change: TargetChange) -> RecordOrigin | None:
        """Return the pod or Service behind the address of ``change``."""
        return self._target_refs.of(change)

    def controllers(self) -> Sequence[Controller]:
        """Return the controllers of validation and of the groups' status."""
        return (
            Controller("opinion", self._cache.queue, self._cache.ask, 8),
            Controller("backendgroup", self._group_status.queue, self._group_status.reconcile, 2),
        )

    async def wait_synced(self, timeout_s: float) -> None:
        """Return once everything that some group selects from has been read."""
        await self.sources.wait_synced(self.groups.values(), timeout_s)

    def tasks(self) -> Sequence[Coroutine[None, None, None]]:
        """Return the caches that groups select from, which run once a group needs them."""
        return (self.sources.run(),)

    def _verdict_changed(self, keys: Iterable[LoadBalancerKey]) -> None:
        self._context.inventory.wake(keys, "its provider answered a validation")

    def _record_changed(self, old: BackendRecord | None, new: BackendRecord | None) -> None:
        record = new or old
        if record is not None and (key := load_balancer_of(record)).kind == self.objects.resource.kind:
            self.status.refresh(key)

    def _translation(self, key: LoadBalancerKey) -> LoadBalancerTranslation | None:
        return self.status.translation(key)
