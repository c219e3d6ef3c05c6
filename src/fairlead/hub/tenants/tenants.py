"""The hub's own objects for each member: its namespace and rights, and the state of its agent.

In: Tenants. Out: the objects of ``translate/tenant.py``, and the Tenant's status. Writes only what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from fairlead.api.conditions import transitions
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.meta import AnyResource, JSONObject, only_status_changed
from fairlead.api.names import FINALIZER_IN_USE, LABEL_TENANT, MANAGER_HUB
from fairlead.api.naming import short_hash
from fairlead.api.tenant import TENANTS, Tenant
from fairlead.api.times import wire_time
from fairlead.errors import FairleadError, NotFound, Terminal
from fairlead.hub.inventory import Inventory
from fairlead.hub.tenants.former_domains import former_domains
from fairlead.hub.tenants.member_health import MemberHealth
from fairlead.hub.tenants.removal import TenantRemoval
from fairlead.hub.tenants.tenant_status import AgentState, Ensured, next_status
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.finalizers import hold
from fairlead.kube.status import emit_transitions, write_status
from fairlead.model.condition import Condition
from fairlead.runtime.clock import Clock
from fairlead.translate.generated import member_domain
from fairlead.translate.tenant import tenant_objects
from fairlead.translate.tenant_domains import build_domains_taken, domains_of

_ANNOTATION_HASH = "fairlead.dev/applied"
#: What was deleted by hand is back after this long at the latest; the check costs reads only.
_CHECK_AFTER_S = 300.0
#: Interval in which it is checked whether names in a former domain are still needed, in seconds.
_FORMER_S = 10.0


class Tenants:
    """Reconciles Tenants."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        inventory: Inventory,
        member_health: MemberHealth,
        clock: Clock,
        events: EventRecorder,
        leading: Callable[[], bool],
        bound_in_tenants: bool = False,
        domain: str = "",
    ) -> None:
        self._domain = domain
        self._bound_in_tenants = bound_in_tenants
        self._cluster = cluster
        self._inventory = inventory
        self._member_health = member_health
        self._clock = clock
        self._leading = leading
        self._events = events
        self._removal = TenantRemoval(cluster=cluster, inventory=inventory, member_health=member_health, clock=clock)

    async def reconcile(self, name: str) -> float | None:
        """Ensure the objects of one Tenant and write its status; returns the seconds until the next reconcile."""
        tenant = self._inventory.tenants.get("", name)
        if tenant is None or not self._leading():
            return None
        if tenant.deleting:
            return await self._remove(tenant)
        tenant = await hold(self._cluster, TENANTS, tenant, FINALIZER_IN_USE, manager=MANAGER_HUB)
        try:
            problem = await self._ensure(tenant)
        except FairleadError as error:
            await self._write_status(tenant, Ensured(error.sentence))
            raise
        former = await self._write_status(tenant, Ensured(problem, invalid=bool(problem)))
        if problem:
            raise Terminal(problem, reason="Invalid")
        return _FORMER_S if former else _CHECK_AFTER_S

    async def _remove(self, tenant: Tenant) -> float | None:
        step = await self._removal.step(tenant)
        if step.conditions:
            with suppress(NotFound):  # it went meanwhile
                await self._write_status(tenant, Ensured(), step.conditions)
        return step.again_s

    async def _ensure(self, tenant: Tenant) -> str:
        """Apply what is missing or different; returns a sentence when the namespace belongs to another owner."""
        objects = tenant_objects(tenant, hub_binding=self._bound_in_tenants)
        try:
            namespace = await self._cluster.get(NAMESPACES, "", tenant.namespace)
        except NotFound:
            namespace = None
        if namespace is not None and (holder := namespace.label(LABEL_TENANT)) != tenant.metadata.name:
            if holder:
                return f"spec.namespace: {tenant.namespace} belongs to Tenant {holder}; choose another one"
            return (
                f"spec.namespace: {tenant.namespace} was there before this Tenant, and would be deleted with it; "
                f"choose another one, or hand it over with: kubectl label --overwrite namespace {tenant.namespace} "
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

    async def _write_status(self, tenant: Tenant, ensured: Ensured, removal: Sequence[Condition] = ()) -> bool:
        """Write the status when it differs; return whether a former domain is kept."""
        health, namespace = self._member_health, tenant.namespace
        old = tenant.status
        state = health.state(namespace, old.state)
        agent = AgentState(state, health.last_sync(namespace), health.clock_ahead_s(namespace))
        now = wire_time(self._clock.now())
        domain, former = old.domain, tuple(old.former_domains or ())
        if not self._inventory.region:  # of several hubs over one API the one that serves all regions decides of names
            domain = member_domain(tenant, self._domain)
            former = former_domains(tenant, domain, self._inventory.hostnames.values(), self._clock.now())
        taken = None if tenant.deleting else build_domains_taken(tenant, self._inventory.tenants.values())
        new = next_status(
            tenant, ensured, agent, now=now, removal=removal, domain=domain, former=former, domains_taken=taken
        )
        if await write_status(self._cluster, TENANTS, tenant, old, new, manager=MANAGER_HUB) is not None:
            changes = transitions(old.conditions, new.conditions)
            emit_transitions(self._events, TENANTS, tenant, changes, good={"Ready": "its agent is alive"})
        return bool(former)


def concerned_by(old: Tenant | None, new: Tenant | None, inventory: Inventory) -> set[str]:
    """Return the names of the Tenants to be reconciled after a change of one: itself, and those with its domains."""
    itself = (
        {new.metadata.name} if new is not None and (old is None or not only_status_changed(old, new)) else set[str]()
    )
    if differing := domains_of(old) ^ domains_of(new):
        itself |= {each.metadata.name for each in inventory.tenants.values() if domains_of(each) & differing}
    return itself


def _version(obj: JSONObject) -> str:
    return short_hash(msgspec.json.encode(obj, order="deterministic").decode())


def _stamped(obj: JSONObject, version: str) -> JSONObject:
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), _ANNOTATION_HASH: version}}}
