"""The removal of a Tenant, by command or by kubectl: what serves stops by permission only, connections end first.

    held       it serves, or something in it is labelled do-not-delete: nothing changes, its condition says how on
    draining   its agent may write no more, and is informed; backends get no new connections, for the drain time
    deleting   its load balancers are deleted; their addresses leave the Services of the member
    informed   its agent has said that the Services show it, or is not there to say so: the finalizer goes

In: a Tenant with a deletionTimestamp, and what is in its namespace. Out: one step, and what to say of it. Every step
may be repeated, and where it is stands in the objects, so that a hub that was killed goes on where it was.
Never: touches a namespace that is not the Tenant's.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from fairlead.api.intent import IntentObject
from fairlead.api.kubernetes import NAMESPACES, ROLES
from fairlead.api.names import (
    AGENT_LEASE,
    ANNOTATION_STOP_SERVING,
    FINALIZER_IN_USE,
    LABEL_DO_NOT_DELETE,
    LABEL_TENANT,
    MANAGER_HUB,
)
from fairlead.api.tenant import ANNOTATION_LEAVING, ANNOTATION_SERVICES_INFORMED, STAMPED_LEASES, TENANTS, Tenant
from fairlead.api.times import seconds_from_duration
from fairlead.errors import NotFound
from fairlead.hub.inventory import Inventory
from fairlead.hub.tenants.member_health import MemberHealth
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import release
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.in_words import counted
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.translate.tenant import tenant_objects

_HELD_S, _AGAIN_S = 10.0, 1.0
#: An agent of an older version does not say that its Services show it.
_INFORMED_WITHIN_S = 60.0


class RemovalStep(msgspec.Struct, frozen=True):
    """What to say of a Tenant that is being removed, and in how many seconds to go on; no conditions: it is gone."""

    conditions: tuple[Condition, ...] = ()
    again_s: float | None = None


class TenantRemoval:
    """Takes deleted Tenants one step further at a time."""

    def __init__(self, *, cluster: Cluster, inventory: Inventory, member_health: MemberHealth, clock: Clock) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._member_health = member_health
        self._clock = clock
        self._waiting_since_s: dict[str, float] = {}
        self._draining_since_s: dict[str, float] = {}

    async def step(self, tenant: Tenant) -> RemovalStep:
        """Do what can be done for ``tenant`` now."""
        if not tenant.held_by(FINALIZER_IN_USE) or not await self._owns_namespace(tenant):
            await self._release(tenant)
            return RemovalStep()
        if unread := self._inventory.unread_in(tenant.namespace):
            text = f"it was deleted, and is served on: {unread}; correct or delete that object"
            return RemovalStep((_not_ready(ConditionReason.IN_USE, text),), _HELD_S)
        objects = self._objects(tenant.namespace)
        if held := why_held(tenant, objects):
            # The agent made a load balancer before it was informed: the agent has to go on until that is deleted.
            await self._set_leaving(tenant, leaving=False)
            return RemovalStep((held,), _HELD_S)
        await self._set_leaving(tenant, leaving=True)
        if objects and (left_s := self._drain_left_s(tenant, objects)) > 0:
            return RemovalStep(_draining(f"{_counted(objects)} drained, and then deleted"), min(left_s, _AGAIN_S))
        for key, obj in objects:
            if not obj.deleting:
                resource = self._inventory.intents[key.kind].resource
                await self._cluster.delete(resource, *obj.key, uid=obj.metadata.uid)
        if objects:
            return RemovalStep(_draining(f"{_counted(objects)} deleted"), _AGAIN_S)
        if any(record.metadata.namespace == tenant.namespace for record in self._inventory.records.values()):
            return RemovalStep(_draining("backends are deregistered (BackendRecords)"), _AGAIN_S)
        if self._agent_owes_an_answer(tenant):
            return RemovalStep(_draining("the agent informs the Services of the member"), _AGAIN_S)
        await self._release(tenant)
        return RemovalStep()

    def _objects(self, namespace: str) -> list[tuple[LoadBalancerKey, IntentObject]]:
        return sorted(
            (objects.key(obj), obj)
            for objects in self._inventory.intents.values()
            for obj in objects.cache.by_index("namespace", namespace)
        )

    async def _owns_namespace(self, tenant: Tenant) -> bool:
        try:
            namespace = await self._cluster.get(NAMESPACES, "", tenant.namespace)
        except NotFound:
            return False
        return namespace.label(LABEL_TENANT) == tenant.metadata.name

    async def _set_leaving(self, tenant: Tenant, *, leaving: bool) -> None:
        """Inform the agent whether its Tenant leaves, and take or return its right to create load balancers."""
        lease = self._inventory.leases.get(tenant.namespace, AGENT_LEASE)
        informed = lease is not None and bool(lease.annotation(ANNOTATION_LEAVING))
        if lease is not None and informed != leaving:
            patch = {"metadata": {"annotations": {ANNOTATION_LEAVING: "true" if leaving else None}}}
            with suppress(NotFound):
                await self._cluster.merge_patch(STAMPED_LEASES, *lease.key, patch, manager=MANAGER_HUB)
        if leaving != tenant.draining or (lease is not None and informed != leaving):
            for resource, obj in tenant_objects(tenant, leaving=leaving):
                if resource is ROLES:
                    await self._cluster.apply(resource, obj, manager=MANAGER_HUB)

    def _drain_left_s(self, tenant: Tenant, objects: Sequence[tuple[LoadBalancerKey, IntentObject]]) -> float:
        drains = (self._inventory.load_balancer_class(obj.class_name) for _, obj in objects)
        longest_s = max(seconds_from_duration(each.spec.drain) if each else 0.0 for each in drains)
        # Only what this process has observed counts: wall clocks jump, and another leader's clock may be ahead.
        now_s = self._clock.monotonic()
        return longest_s - (now_s - self._draining_since_s.setdefault(tenant.metadata.name, now_s))

    def _agent_owes_an_answer(self, tenant: Tenant) -> bool:
        name, now_s = tenant.metadata.name, self._clock.monotonic()
        lease = self._inventory.leases.get(tenant.namespace, AGENT_LEASE)
        if lease is None or lease.annotation(ANNOTATION_SERVICES_INFORMED):
            return False
        if self._member_health.state(tenant.namespace) != "Engaged":
            return False
        return now_s - self._waiting_since_s.setdefault(name, now_s) < _INFORMED_WITHIN_S

    async def _release(self, tenant: Tenant) -> None:
        self._waiting_since_s.pop(tenant.metadata.name, None)
        self._draining_since_s.pop(tenant.metadata.name, None)
        await release(self._cluster, TENANTS, tenant, FINALIZER_IN_USE, manager=MANAGER_HUB)


def why_held(tenant: Tenant, objects: Sequence[tuple[LoadBalancerKey, IntentObject]]) -> Condition | None:
    """Return why it may not go now, None when it may."""
    name = tenant.metadata.name
    for key, obj in objects:
        if LABEL_DO_NOT_DELETE in (obj.metadata.labels or {}):
            return _not_ready(
                ConditionReason.DO_NOT_DELETE,
                f"it was deleted, and is served on: {key.kind} {key.namespace}/{key.name} has the label "
                f"{LABEL_DO_NOT_DELETE}; remove the label to have the Tenant go",
            )
    if objects and tenant.annotation(ANNOTATION_STOP_SERVING, "false") == "false":
        first = objects[0][0]
        return _not_ready(
            ConditionReason.IN_USE,
            f"it was deleted, and is served on until it serves nothing: {_counted(objects)}, first {first.kind} "
            f"{first.namespace}/{first.name}; delete its Services in the member, or drain and stop all of them with: "
            f"fairlead tenant remove {name} --stop-serving",
        )
    return None


def _draining(text: str) -> tuple[Condition, ...]:
    return (
        _not_ready(ConditionReason.DELETING, f"it is being removed: {text}"),
        Condition(ConditionType.DRAINING, True, ConditionReason.DELETING, "no backend gets new connections"),
    )


def _not_ready(reason: ConditionReason, text: str) -> Condition:
    return Condition(ConditionType.READY, False, reason, text)


def _counted(objects: Sequence[object]) -> str:
    return counted(len(objects), "load balancer")
