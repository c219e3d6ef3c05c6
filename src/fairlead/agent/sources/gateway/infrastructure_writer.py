"""Writes the objects of Gateways into the member, and deletes them.

In: a Gateway with its plan and addresses, and the objects of that kind that are there. Out: objects that differ are
applied, those that are no longer wanted deleted; Events where another object has the name. Never: changes an object
that was not made for this Gateway. What a deleted Gateway leaves behind is removed by its owner references.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from fairlead.agent.sources.gateway.infrastructure import (
    LABEL_GATEWAY_NAME,
    GatewayObjects,
    belongs_to,
    is_same,
    plan_infrastructure,
)
from fairlead.agent.sources.gateway.plan import GatewayPlan
from fairlead.api.gateway import GATEWAYS, Gateway
from fairlead.api.kubernetes import ENDPOINT_SLICES, SERVICES, EndpointSlice, Service
from fairlead.api.meta import JSONObject, KubeObject
from fairlead.api.names import LABEL_MANAGED_BY, MANAGED_BY, MANAGER_AGENT
from fairlead.errors import Conflict, NotFound, Retry, Wait
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder, EventWriter
from fairlead.model.condition import warning_event

T = TypeVar("T", bound=KubeObject)

NAME_TAKEN = "NameTaken"
_BY_OWNER = "owner"
#: How soon a Gateway comes back whose neighbours have not been read yet, in seconds.
NOT_KNOWN_RETRY_S = 0.5


class InfrastructureWriter:
    """Reconciles the objects of one Gateway at a time; ``changed`` is called when one of them changes."""

    def __init__(
        self,
        *,
        member: Cluster,
        recorder: EventRecorder,
        may_write: Callable[[], bool],
        changed: Callable[[str, str], None],
    ) -> None:
        self._member = member
        self._may_write = may_write
        self._events = EventWriter(recorder=recorder, resource=GATEWAYS)
        ours: Mapping[str, Any] = {
            "label_selector": f"{LABEL_MANAGED_BY}={MANAGED_BY},{LABEL_GATEWAY_NAME}",
            "indexes": {_BY_OWNER: _owners},
        }
        self._services: WatchCache[Service] = WatchCache(member, SERVICES, **ours)
        self._slices: WatchCache[EndpointSlice] = WatchCache(member, ENDPOINT_SLICES, **ours)
        self._changed = changed
        self._services.on_change(self._on_change)
        self._slices.on_change(self._on_change)

    async def run(self) -> None:
        """Run the caches, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in (self._services, self._slices):
                group.create_task(cache.run(), name=f"cache-infrastructure-{cache.resource.plural}")

    async def reconcile(self, gateway: Gateway, plan: GatewayPlan | None, addresses: Iterable[str]) -> None:
        """Have the objects of ``gateway`` as its plan says; None: the Gateway is not one of ours, or no longer.

        Raises:
            Retry: what is there is not known yet.
            Wait: another agent leads.
        """
        wanted = GatewayObjects() if plan is None else plan_infrastructure(plan, gateway, addresses)
        if not (self._services.synced and self._slices.synced):
            if wanted.service is None:
                return
            # Caches that stay empty report no change, so nothing else would bring this Gateway back.
            raise Retry("the Services and EndpointSlices of Gateways have not been read yet", after_s=NOT_KNOWN_RETRY_S)
        taken = [
            *await self._apply(self._services, gateway, [wanted.service] if wanted.service is not None else []),
            *await self._apply(self._slices, gateway, wanted.slices),
        ]
        self._events.emit_new("infrastructure", gateway, [warning_event(NAME_TAKEN, text) for text in taken])

    def _on_change(self, old: KubeObject | None, new: KubeObject | None) -> None:
        for owner in _owners(new or old):
            self._changed(*owner)

    async def _apply(self, cache: WatchCache[T], gateway: Gateway, wanted: Iterable[T]) -> list[str]:
        """Apply the objects of one kind, and delete the others of ``gateway``; return which names are taken."""
        by_key = {obj.key: obj for obj in cache.by_index(_BY_OWNER, gateway.key) if belongs_to(obj, gateway)}
        taken: list[str] = []
        for obj in wanted:
            present = by_key.pop(obj.key, None)
            if present is not None and (present.deleting or is_same(obj, present)):
                continue
            self._check()
            if present is not None or await self._is_free(cache, gateway, obj):
                await self._member.apply(cache.resource, _body(cache, obj), manager=MANAGER_AGENT)
            else:
                taken.append(
                    f"{cache.resource.kind} {obj.metadata.name} was not made for this Gateway, so the labels and "
                    "annotations of spec.infrastructure are not on it: rename or delete it"
                )
        for obj in by_key.values():
            self._check()
            try:
                await self._member.delete(cache.resource, *obj.key, uid=obj.metadata.uid)
            except (Conflict, NotFound):
                continue  # gone, or created again by another
        return taken

    async def _is_free(self, cache: WatchCache[T], gateway: Gateway, wanted: T) -> bool:
        """Return whether there is no object of this name, or one of this Gateway that the cache does not have yet."""
        try:
            existing = await self._member.get(cache.resource, *wanted.key)
        except NotFound:
            return True
        return belongs_to(existing, gateway)

    def _check(self) -> None:
        if not self._may_write():
            raise Wait("not the leader; write skipped")


def _body(cache: WatchCache[T], wanted: T) -> JSONObject:
    body: JSONObject = {"apiVersion": cache.resource.api_version, "kind": cache.resource.kind}
    # It is required, and left out when it is the default.
    family = {"addressType": wanted.address_type} if isinstance(wanted, EndpointSlice) else {}
    return {**body, **msgspec.to_builtins(wanted), **family}


def _owners(obj: KubeObject | None) -> list[tuple[str, str]]:
    references = (obj.metadata.owner_references if obj is not None else None) or ()
    return [
        (obj.metadata.namespace, reference.name) for reference in references if obj and reference.kind == GATEWAYS.kind
    ]
