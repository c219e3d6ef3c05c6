"""All that the hub has for LoadBalancers, BackendGroups and classes, beside what it has for members.

In: what the hub is made of. Out: the parts, wired to each other, and the loops that they need. Never: decides anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fairlead.hub.intents.loadbalancer.backend_sources import BackendSources
from fairlead.hub.intents.loadbalancer.group_status import GroupStatusWriter
from fairlead.hub.intents.loadbalancer.intent import LoadBalancerIntent
from fairlead.hub.intents.loadbalancer.status import LoadBalancerStatusWriter
from fairlead.hub.inventory import Inventory
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.validation.class_protection import ClassProtection
from fairlead.hub.validation.provider_validation import ProviderValidation
from fairlead.hub.validation.validation_cache import ValidationCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.loadbalancer import LoadBalancerTranslation

#: A queue of keys, what is done about one, the name of that, and how many at once.
Loop = tuple[KeyedQueue[Any], Callable[[Any], Awaitable[float | None]], str, int]


class LoadBalancerParts:
    """The parts for LoadBalancers, BackendGroups and classes."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        selected: BackendSources,
        engines: ProviderRegistry,
        events: EventRecorder,
        clock: Clock,
        leading: Callable[[], bool],
        loopback_targets: bool,
    ) -> None:
        self._inventory = inventory
        self._opinions = ValidationCache(clock=clock, leading=leading, wake=inventory.wake)
        self._questions = ProviderValidation(inventory=inventory, engines=engines, opinions=self._opinions)
        self.load_balancers = LoadBalancerIntent(
            cluster=cluster,
            inventory=inventory,
            selected=selected,
            engines=engines,
            loopback_targets=loopback_targets,
            questions=self._questions,
        )
        built: dict[LoadBalancerKey, LoadBalancerTranslation] = {}
        self._groups = GroupStatusWriter(
            cluster=cluster,
            inventory=inventory,
            events=events,
            clock=clock,
            leading=leading,
            built=built.get,
        )
        self.status = LoadBalancerStatusWriter(
            cluster=cluster,
            inventory=inventory,
            engines=engines,
            events=events,
            clock=clock,
            leading=leading,
            groups_changed=self._groups.look_at,
            built=built,
        )
        self._classes = ClassProtection(
            cluster=cluster, inventory=inventory, engines=engines, events=events, clock=clock, leading=leading
        )

    def wire(self) -> None:
        """Hear of what changes."""
        self._inventory.groups.on_change(self._groups.changed)
        self._inventory.groups.on_change(self._questions.group_changed)
        self._classes.wire()

    def loops(self) -> Sequence[Loop]:
        """Return what has to run."""
        return (
            (self._opinions.queue, self._opinions.ask, "opinion", 8),
            (self._groups.queue, self._groups.reconcile, "backendgroup", 2),
            (self._classes.queue, self._classes.reconcile, "loadbalancerclass", 1),
        )

    def lead(self) -> None:
        """Look at everything again: this replica is the one that writes now."""
        self._opinions.again()
        self._groups.look_at(group.key for group in self._inventory.groups.values())
        self._classes.look_at_all()
