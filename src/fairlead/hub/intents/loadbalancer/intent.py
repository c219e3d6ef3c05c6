"""One LoadBalancer with its BackendGroups, from what users wrote to a wish: the same path as reconcile, other kinds.

    view      the object, its class, the groups that name it, what they select, what is on record
    ask       its provider, where that wants to be asked: may this be, may these backends be, which pods stay
    build     what should be                                        (pure)
    record    the finalizer, and what was accepted, before anything is asked of a provider
    put       the wish into the tracker of its class's provider

In: keys. Out: wishes, and ``LoadBalancerTranslation`` for the status. Never: a backend that a policy of its
group has not admitted, a wait for a provider's answer, or a question while another replica leads.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.backendrecord import BackendRecord
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.errors import FairleadError, NotFound
from fairlead.hub.intents.loadbalancer.backend_sources import BackendSources
from fairlead.hub.intents.loadbalancer.last_accepted import LastAccepted
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.validation.provider_validation import ProviderValidation
from fairlead.kube.cluster import Cluster
from fairlead.ledger.wire import listener_of, target_of
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.backendgroup import GroupView
from fairlead.translate.loadbalancer import (
    LoadBalancerTranslation,
    LoadBalancerView,
    merged_parameters,
    translate_loadbalancer,
)
from fairlead.translate.protection import is_leaving


class Wished(msgspec.Struct, frozen=True):
    """What was built. ``asking``: an answer is on its way, and until then nothing new can be told."""

    built: LoadBalancerTranslation
    asking: bool = False


class LoadBalancerIntent:
    """Turns keys of LoadBalancers into wishes; without ``questions`` (in a preview) every provider says yes."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        selected: BackendSources,
        engines: ProviderRegistry,
        loopback_targets: bool,
        questions: ProviderValidation | None = None,
    ) -> None:
        self._inventory = inventory
        self._selected = selected
        self._engines = engines
        self._loopback_targets = loopback_targets
        self._questions = questions
        self._acceptances = LastAccepted(cluster)

    async def wish(self, key: LoadBalancerKey, *, leading: bool) -> Wished | None:
        """Wish for ``key`` as its view says; None when it is not to exist (any more)."""
        view = await self.view(key)
        if view is None:
            if self._questions is not None:
                self._questions.forget(key)
            return None
        if not leading:
            self._acceptances.forget()
            return Wished(translate_loadbalancer(view))
        asking = False
        if self._questions is not None:
            view, asking = self._questions.answered(view)
        built = translate_loadbalancer(view)
        if built.desired is None:
            return Wished(built, asking)
        await self._acceptances.hold(view.load_balancer)
        view, failure = await self._recorded(view, built)
        if failure is not None:
            # What cannot be put on record waits; the other groups do not.
            built = translate_loadbalancer(view)
        self._put(built)
        if failure is not None and not isinstance(failure, NotFound):
            raise failure
        return Wished(built, asking)

    async def _recorded(
        self, view: LoadBalancerView, built: LoadBalancerTranslation
    ) -> tuple[LoadBalancerView, FairleadError | None]:
        """Put on record what is accepted; return the view without what could not be, and why."""
        failure: FairleadError | None = None
        groups: list[GroupView] = []
        for one in view.groups:
            parameters = built.taken.get(one.group.key)
            try:
                if parameters is not None:
                    await self._acceptances.record(one.group, view.load_balancer, view.key, parameters)
                groups.append(one)
            except FairleadError as error:
                if failure is None or isinstance(failure, NotFound):
                    failure = error
                no = Condition(ConditionType.ACCEPTED, False, ConditionReason.PENDING, error.sentence)
                groups.append(msgspec.structs.replace(one, verdict=no))
        return msgspec.structs.replace(view, groups=tuple(groups)), failure

    def _put(self, built: LoadBalancerTranslation) -> None:
        if built.desired is None:
            return
        for name, engine in self._engines.items():
            if name == built.provider:
                changed = engine.tracker.put(built.desired)
            else:
                changed = engine.tracker.remove(built.desired.key)
            if changed:
                engine.worker.trigger()

    async def view(self, key: LoadBalancerKey) -> LoadBalancerView | None:
        """Return the view of ``key`` without asking any driver; None when it is not to exist (any more)."""
        load_balancer = self._inventory.intent(key)
        if not isinstance(load_balancer, LoadBalancer) or is_leaving(load_balancer):
            return None
        inventory = self._inventory
        groups = [group for group in inventory.groups_of(key) if not is_leaving(group)]
        unreadable = inventory.unreadable_groups((key.namespace, *(load_balancer.spec.scope or ())))
        problems = [inventory.problem, unreadable, *(self._selected.need(group) for group in groups)]
        records = inventory.records.by_index("lb", key)
        frontend = load_balancer.status.frontend
        return LoadBalancerView(
            key=key,
            load_balancer=load_balancer,
            load_balancer_class=inventory.classes.get("", load_balancer.spec.class_name),
            providers=self._engines.capabilities,
            groups=tuple(self._group(group, load_balancer, key, records) for group in groups),
            recorded=frozenset((listener_of(one), target_of(one).key) for one in records if not one.deleting),
            conflict=self._conflict(load_balancer),
            stale="; ".join(dict.fromkeys(filter(None, problems))),
            loopback_targets=self._loopback_targets,
            living=self._acceptances.is_living(load_balancer),
            accepted=self._acceptances.spec_of(load_balancer),
            provider=frontend.provider if frontend is not None else "",
        )

    def _group(
        self, group: BackendGroup, load_balancer: LoadBalancer, key: LoadBalancerKey, records: Sequence[BackendRecord]
    ) -> GroupView:
        namespace = group.metadata.namespace
        scope = load_balancer.spec.scope or ()
        pods = self._selected.pods_of(group)
        return GroupView(
            group,
            pods=pods,
            service=self._selected.service_of(group),
            nodes=self._selected.nodes_of(group),
            # Until a driver has said which of them stay, all do.
            kept=frozenset(pod.key for pod in pods),
            out_of_scope=namespace != load_balancer.metadata.namespace and not {"*", namespace} & set(scope),
            accepted=self._acceptances.parameters_of(group, load_balancer, key, records),
        )

    def _conflict(self, load_balancer: LoadBalancer) -> str:
        """Return who had the same existing load balancer first, empty when nobody did."""
        mine = self._identity(load_balancer)
        if not load_balancer.spec.existing:
            return ""
        first = min(
            (one for one in self._inventory.shared.values() if one.spec.existing and self._identity(one) == mine),
            key=lambda one: (one.metadata.creation_timestamp or "", one.key),
        )
        return "" if first.key == load_balancer.key else "/".join(first.key)

    def _identity(self, one: LoadBalancer) -> tuple[object, ...]:
        found = self._inventory.classes.get("", one.spec.class_name)
        provider = found.spec.provider if found is not None else ""
        return (provider, tuple(merged_parameters(one, found).items()))
