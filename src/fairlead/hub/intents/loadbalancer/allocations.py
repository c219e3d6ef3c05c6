"""The address or ports of a LoadBalancer that proxies of this hub serve.

In: a view; the book of addresses. Out: the view with an allocation, or with the reason why there is none.
Never: gives something away while another replica leads; every replica holds what is on record.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer, LoadBalancerListener
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.loadbalancer.objects import LoadBalancerObjects
from fairlead.hub.intents.unreadable import RemainsHolder
from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol
from fairlead.translate.validate_loadbalancer import refuse
from fairlead.translate.view import LoadBalancerView


class Allocations:
    """The allocations of LoadBalancers of Clusters."""

    def __init__(self, context: IntentContext, objects: LoadBalancerObjects) -> None:
        self._allocator = context.allocator
        self._objects = objects
        self._remains = RemainsHolder(objects, context.allocator, lambda spec: _keys(spec.listeners))
        self._may_allocate = lambda: context.leading() and not context.read_only

    def hold_recorded(self) -> None:
        """Hold every recorded address and port, so that none of them is given to another load balancer."""
        for obj in self._objects.served():
            if obj.spec.cluster_name:
                key = LoadBalancerKey(LOAD_BALANCERS.kind, *obj.key)
                self._allocator.hold(key, obj.status.allocation, _served(obj))
        self._remains.hold()

    def allocated(self, view: LoadBalancerView) -> LoadBalancerView:
        """Return the view with what its provider needs; as it is when that needs nothing."""
        obj, capabilities = view.load_balancer, view.capabilities
        if capabilities is None or not view.needs_allocation or not obj.spec.cluster_name:
            return view
        if not self._may_allocate():
            self._allocator.hold(view.key, obj.status.allocation, _served(obj))
            return view
        if refuse(view) is not None:
            return view
        host = obj.spec.endpoint.host
        allocation, problem = self._allocator.allocate(
            view.key,
            capabilities.allocation,
            # An endpoint that is of no pool is a name, or an address of somewhere else, for the one that we give.
            wanted=host if host in self._allocator.pools else "",
            recorded=obj.status.allocation,
            listeners=_keys(obj.spec.listeners),
            served=_served(obj),
            class_name=obj.class_name,
        )
        return msgspec.structs.replace(view, allocation=allocation, allocation_problem=problem)


def _served(obj: LoadBalancer) -> list[ListenerKey]:
    """Return the listeners that were accepted last: those of a refused spec are not served."""
    return _keys((obj.status.accepted or obj.spec).listeners)


def _keys(listeners: Iterable[LoadBalancerListener]) -> list[ListenerKey]:
    return [ListenerKey(Protocol(listener.protocol), listener.port) for listener in listeners]
