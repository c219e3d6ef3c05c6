"""The removal of a load balancer: every provider releases it, then its finalizer goes, then its address is free.

    deleting ──► removal desired (providers delete) ──► released ──► finalizer removed ──► object gone ──► address free

Deleted while the hub was down is deleted when the hub is back: an object with our finalizer that no tracker knows is
deleted at its provider all the same. What clusterctl has moved to another management cluster is left as it is: the hub
there has it now. What cannot be decoded is left as it is, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.api.clusterapi import ANNOTATION_DELETED_FOR_MOVE
from fairlead.api.intent import IntentObject
from fairlead.api.names import FINALIZER_CLEANUP, MANAGER_HUB
from fairlead.hub.inventory import IntentObjects, Inventory
from fairlead.hub.providers.registry import ProviderRegistry
from fairlead.hub.tenants.addresses import AddressAllocator
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import release
from fairlead.model.keys import LoadBalancerKey


class Finalization:
    """Removes load balancers that are deleted or no longer wanted."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        providers: ProviderRegistry,
        allocator: AddressAllocator,
        leading: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._providers = providers
        self._allocator = allocator
        self._leading = leading
        self._requested: set[LoadBalancerKey] = set()
        self._moved: set[LoadBalancerKey] = set()
        #: What exists and has never been read.
        self._unread: set[LoadBalancerKey] = set()
        for objects in inventory.intents.values():
            objects.cache.on_change(self._note_moves(objects))

    async def finalize(self, key: LoadBalancerKey) -> bool:
        """Take ``key`` one step further towards its end; returns whether its object waits for a provider."""
        obj = self._inventory.intent(key)
        if obj is None and self._inventory.is_unreadable(key):
            # It exists, and what it asks for is not known: no reason to remove anything.
            self._unread.add(key)
            self._providers.keep_unread(key)
            return False
        if key in self._moved:
            return False
        if obj is None:
            # Gone, with our finalizer removed by us or by force.
            unread = key in self._unread and not self._inventory.exists(key)
            self._unread.discard(key)
            if self._request_removal(key, though_unknown=unread) or self.in_flight(key):
                return False
            self._requested.discard(key)
            self._allocator.leave(key)
            return False
        # Every time: records may have been read only since the last request.
        self._request_removal(key, though_unknown=key not in self._requested)
        self._requested.add(key)
        may_release = self._leading() and self._inventory.decides(key)
        if self.in_flight(key) or not may_release or self._providers.silent(obj.status.recorded_providers):
            return True
        resource = self._inventory.intents[key.kind].resource
        await release(self._cluster, resource, obj, FINALIZER_CLEANUP, manager=MANAGER_HUB)
        return False

    def cancel(self, key: LoadBalancerKey) -> None:
        """Forget that removal was requested, or that it moved: an object of the same name exists again."""
        self._requested.discard(key)
        self._moved.discard(key)
        self._unread.discard(key)

    def in_flight(self, key: LoadBalancerKey) -> bool:
        """Return whether some provider still has, or may have, something of ``key``."""
        return any(key in runner.tracker for runner in self._providers.values())

    def _note_moves(self, objects: IntentObjects[Any]) -> Callable[[IntentObject | None, IntentObject | None], None]:
        """Return what notes each object of a kind that is deleted because it moved; it may be gone a moment later."""

        def changed(old: IntentObject | None, new: IntentObject | None) -> None:
            obj = new or old
            gone = new is None or new.deleting
            if obj is not None and gone and ANNOTATION_DELETED_FOR_MOVE in (obj.metadata.annotations or {}):
                self._moved.add(objects.key(obj))

        return changed

    def _request_removal(self, key: LoadBalancerKey, *, though_unknown: bool) -> bool:
        requested = False
        own = self._inventory.decides(key)
        for runner in self._providers.values():
            if (own or not runner.durable) and runner.tracker.remove(
                key, though_unknown=though_unknown and not runner.durable
            ):
                runner.worker.trigger()
                requested = True
        return requested
