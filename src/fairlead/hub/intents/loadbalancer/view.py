"""The view of one LoadBalancer: its class, the groups that name it, what they select, and what is on record.

In: the caches. Out: ``LoadBalancerView``, without what its provider says of it (``validation``).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.backendrecord import BackendRecord
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.loadbalancer.allocations import Allocations
from fairlead.hub.intents.loadbalancer.backend_sources import BackendSources
from fairlead.hub.intents.loadbalancer.last_accepted import LastAccepted
from fairlead.hub.intents.loadbalancer.objects import LoadBalancerObjects
from fairlead.hub.inventory import UNTIL_READ
from fairlead.ledger.wire import listener_of, target_of
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.loadbalancer import merged_parameters
from fairlead.translate.protection import is_leaving
from fairlead.translate.view import GroupView, LoadBalancerView


class LoadBalancerViews:
    """Gathers views."""

    def __init__(
        self,
        context: IntentContext,
        *,
        objects: LoadBalancerObjects,
        sources: BackendSources,
        last_accepted: LastAccepted,
        allocations: Allocations,
    ) -> None:
        self._objects = objects
        self._inventory = context.inventory
        self._providers = context.providers
        self._loopback_targets = context.loopback_targets
        self._allocations = allocations
        self._sources = sources
        self._last_accepted = last_accepted

    def view(self, key: LoadBalancerKey) -> LoadBalancerView | None:
        """Return the view of ``key``, None when it is not to exist (any more)."""
        obj = self._objects.get(key)
        if obj is None or is_leaving(obj):
            return None
        inventory, at_proxies = self._inventory, obj.status.accepted
        groups = [group for group in self._objects.groups_of(key) if not is_leaving(group)]
        unreadable = self._objects.unreadable_groups((key.namespace, *(obj.spec.scope or ())))
        unreadable = unreadable or next(filter(None, map(self._sources.unreadable, groups)), "")
        problems = [inventory.problem_for(key), unreadable, *(self._sources.need(group) for group in groups)]
        records = inventory.records.by_index("lb", key)
        view = LoadBalancerView(
            key=key,
            load_balancer=obj,
            load_balancer_class=inventory.load_balancer_class(obj.spec.class_name),
            providers=self._providers.capabilities,
            groups=tuple(self._group(group, obj, key, records) for group in groups),
            recorded=frozenset(
                (listener_of(record), target_of(record).key) for record in records if not record.deleting
            ),
            conflict=self._conflict(obj),
            stale="; ".join(dict.fromkeys(filter(None, problems))),
            unreadable=f"{unreadable}; {UNTIL_READ}" if unreadable else "",
            loopback_targets=self._loopback_targets,
            living=self._last_accepted.is_living(obj),
            accepted=self._last_accepted.spec_of(obj),
            provider=obj.status.serving_provider or (at_proxies.provider if at_proxies is not None else ""),
            allocation=obj.status.allocation,
        )
        return self._allocations.allocated(view)

    def _group(
        self, group: BackendGroup, obj: LoadBalancer, key: LoadBalancerKey, records: Sequence[BackendRecord]
    ) -> GroupView:
        namespace = group.metadata.namespace
        pods = self._sources.pods_of(group)
        return GroupView(
            group,
            pods=pods,
            service=self._sources.service_of(group),
            nodes=self._sources.nodes_of(group),
            # Until a driver has answered which of them stay, all do.
            kept=frozenset(pod.key for pod in pods),
            out_of_scope=namespace != obj.metadata.namespace and not {"*", namespace} & set(obj.spec.scope or ()),
            accepted=self._last_accepted.parameters_of(group, obj, key, records),
        )

    def _conflict(self, obj: LoadBalancer) -> str:
        """Return the namespace/name of an older LoadBalancer with the same ``existing``, empty when there is none."""
        if not obj.spec.existing:
            return ""
        mine = self._identity(obj)
        oldest = min(
            (other for other in self._objects.cache.values() if other.spec.existing and self._identity(other) == mine),
            key=attrgetter("age_order"),
        )
        return "" if oldest.key == obj.key else "/".join(oldest.key)

    def _identity(self, obj: LoadBalancer) -> tuple[object, ...]:
        load_balancer_class = self._inventory.load_balancer_class(obj.spec.class_name)
        provider = load_balancer_class.spec.provider if load_balancer_class is not None else ""
        return (provider, tuple(merged_parameters(obj, load_balancer_class).items()))
