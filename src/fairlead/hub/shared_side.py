"""All that the hub has for LoadBalancers, BackendGroups and classes, beside what it has for members.

In: what the hub is made of. Out: the parts, wired to each other, and the loops that they need. Never: decides anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fairlead.build.shared import SharedBuilt
from fairlead.hub.class_protection import ClassProtection
from fairlead.hub.engines import Engines
from fairlead.hub.group_status import GroupStatus
from fairlead.hub.inventory import Inventory
from fairlead.hub.opinions import Opinions
from fairlead.hub.questions import Questions
from fairlead.hub.selected import Selected
from fairlead.hub.shared import SharedLoadBalancers
from fairlead.hub.shared_status import SharedStatus
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue

#: A queue of keys, what is done about one, the name of that, and how many at once.
Loop = tuple[KeyedQueue[Any], Callable[[Any], Awaitable[float | None]], str, int]


class SharedSide:
    """The parts for LoadBalancers, BackendGroups and classes."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        selected: Selected,
        engines: Engines,
        events: EventRecorder,
        clock: Clock,
        leading: Callable[[], bool],
        loopback_targets: bool,
    ) -> None:
        self._inventory = inventory
        self._opinions = Opinions(clock=clock, leading=leading, wake=inventory.wake)
        self._questions = Questions(inventory=inventory, engines=engines, opinions=self._opinions)
        self.load_balancers = SharedLoadBalancers(
            cluster=cluster,
            inventory=inventory,
            selected=selected,
            engines=engines,
            loopback_targets=loopback_targets,
            questions=self._questions,
        )
        built: dict[LoadBalancerKey, SharedBuilt] = {}
        self._groups = GroupStatus(
            cluster=cluster,
            inventory=inventory,
            events=events,
            clock=clock,
            leading=leading,
            built=built.get,
        )
        self.status = SharedStatus(
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
