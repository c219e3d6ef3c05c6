"""What the hub does for each member itself: its namespace and rights, and the state of its agent.

In: Tenants. Out: the objects of ``translate/tenant.py``, and the Tenant's status. Writes only what differs.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fairlead.api.conditions import wire_conditions
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.meta import AnyResource, JSONObject
from fairlead.api.names import LABEL_TENANT, MANAGER_HUB
from fairlead.api.naming import short_hash
from fairlead.api.tenant import TENANTS, Tenant, TenantStatus
from fairlead.api.times import wire_time
from fairlead.errors import NotFound, Terminal
from fairlead.hub.inventory import Inventory
from fairlead.hub.tenants.member_health import MemberHealth
from fairlead.kube.cluster import Cluster
from fairlead.kube.status import write_status
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.runtime.clock import Clock
from fairlead.translate.tenant import tenant_objects

_ANNOTATION_HASH = "fairlead.dev/applied"
#: What was deleted by hand is back after this long at the latest; the check costs reads only.
_CHECK_AFTER_S = 300.0


class Tenants:
    """Reconciles Tenants."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        member_health: MemberHealth,
        clock: Clock,
        leading: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._member_health = member_health
        self._clock = clock
        self._leading = leading

    async def reconcile(self, name: str) -> float | None:
        """Ensure the objects of one Tenant and write its status; returns the seconds until the next reconcile."""
        tenant = self._inventory.tenants.get("", name)
        if tenant is None or tenant.deleting or not self._leading():
            return None
        problem = await self._ensure(tenant)
        await self._write_status(tenant, problem)
        return _CHECK_AFTER_S

    async def _ensure(self, tenant: Tenant) -> str:
        """Apply what is missing or different; returns a sentence when the namespace belongs to another owner."""
        objects = tenant_objects(tenant)
        try:
            namespace = await self._cluster.get(NAMESPACES, "", tenant.namespace)
        except NotFound:
            namespace = None
        if namespace is not None and (holder := namespace.label(LABEL_TENANT)) != tenant.metadata.name:
            if holder:
                return f"spec.namespace: {tenant.namespace} belongs to Tenant {holder}; choose another one"
            return (
                f"spec.namespace: {tenant.namespace} was there before this Tenant, and would be deleted with it; "
                f"choose another one, or hand it over with: kubectl label namespace {tenant.namespace} "
                f"{LABEL_TENANT}={tenant.metadata.name}"
            )
        for resource, obj in objects:
            await self._apply(resource, obj)
        return ""

    async def _apply(self, resource: AnyResource, obj: JSONObject) -> None:
        """Apply ``obj`` unless this very version is there already; some are shared by all Tenants."""
        version = _version(obj)
        meta = obj["metadata"]
        try:
            there = await self._cluster.get(resource, meta.get("namespace", ""), meta["name"])
            if there.annotation(_ANNOTATION_HASH) == version:
                return
        except NotFound:
            pass
        await self._cluster.apply(resource, _stamped(obj, version), manager=MANAGER_HUB)

    async def _write_status(self, tenant: Tenant, problem: str) -> None:
        old = tenant.status
        namespace = tenant.namespace
        state = self._member_health.state(namespace)
        reason = ConditionReason.INVALID if problem else ConditionReason.ACCEPTED
        accepted = Condition(ConditionType.ACCEPTED, not problem, reason, problem)
        generation, now = tenant.metadata.generation, wire_time(self._clock.now())
        # Written when the state changes, not at every sign of life: `fairlead status` shows the live age.
        last_sync = (self._member_health.last_sync(namespace) or None) if state != old.state else old.last_sync_time
        new = TenantStatus(
            namespace=namespace,
            state=state,
            last_sync_time=last_sync,
            observed_generation=generation,
            conditions=wire_conditions([accepted], old.conditions, generation=generation, now=now),
        )
        await write_status(self._cluster, TENANTS, tenant, old, new, manager=MANAGER_HUB)
        if problem:
            raise Terminal(problem, reason="Invalid")


def _version(obj: JSONObject) -> str:
    return short_hash(msgspec.json.encode(obj, order="deterministic").decode())


def _stamped(obj: JSONObject, version: str) -> JSONObject:
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), _ANNOTATION_HASH: version}}}
