"""The hub's own objects for each member: its namespace and rights, and the state of its agent.

In: Tenants. Out: the objects of ``translate/tenant.py``, and the Tenant's status. Writes only what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from fairlead.api.hostname import Hostname
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.meta import AnyResource, JSONObject, is_true, only_status_changed, transitions, wire_conditions
from fairlead.api.names import FINALIZER_IN_USE, LABEL_TENANT, MANAGER_HUB, short_hash
from fairlead.api.tenant import TENANTS, FormerDomain, Tenant, TenantState, TenantStatus
from fairlead.api.times import parsed_time, seconds_from_duration, wire_time
from fairlead.errors import FairleadError, NotFound, Terminal
from fairlead.hub.inventory import Inventory
from fairlead.hub.tenants.member_health import MemberHealth
from fairlead.hub.tenants.removal import TenantRemoval
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.status import emit_transitions, write_status
from fairlead.kube.writes import hold
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.runtime.clock import Clock
from fairlead.translate.generated import member_domain
from fairlead.translate.tenant import build_domains_taken, domains_of, tenant_objects

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
            await self._write_status(tenant, TenantEnsured(error.sentence))
            raise
        former = await self._write_status(tenant, TenantEnsured(problem, invalid=bool(problem)))
        if problem:
            raise Terminal(problem, reason="Invalid")
        return _FORMER_S if former else _CHECK_AFTER_S

    async def _remove(self, tenant: Tenant) -> float | None:
        step = await self._removal.step(tenant)
        if step.conditions:
            with suppress(NotFound):  # it went meanwhile
                await self._write_status(tenant, TenantEnsured(), step.conditions)
        return step.again_s

    async def _ensure(self, tenant: Tenant) -> str:
        """Apply what is missing or different; returns a sentence when the namespace belongs to another owner."""
        objects = tenant_objects(tenant, hub_binding=self._bound_in_tenants)
        try:
            namespace = await self._cluster.get(NAMESPACES, "", tenant.namespace)
        except NotFound:
            namespace = None
            # A deleted namespace still belongs to its Tenant, which creates it again.
            owner = self._inventory.tenant_of(tenant.namespace)
            if owner is not None and owner.metadata.name != tenant.metadata.name:
                return _taken(tenant, owner.metadata.name)
        if namespace is not None and (holder := namespace.label(LABEL_TENANT)) != tenant.metadata.name:
            if holder:
                return _taken(tenant, holder)
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

    async def _write_status(self, tenant: Tenant, ensured: TenantEnsured, removal: Sequence[Condition] = ()) -> bool:
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
    """Return the Tenants to reconcile after a change of one: itself, and those with its domains or namespace."""
    itself = (
        {new.metadata.name} if new is not None and (old is None or not only_status_changed(old, new)) else set[str]()
    )
    if differing := domains_of(old) ^ domains_of(new):
        itself |= {each.metadata.name for each in inventory.tenants.values() if domains_of(each) & differing}
    if new is None and old is not None:
        itself |= {each.metadata.name for each in inventory.all_tenants() if each.namespace == old.namespace}
    return itself


def _taken(tenant: Tenant, owner: str) -> str:
    return f"spec.namespace: {tenant.namespace} belongs to Tenant {owner}; choose another one"


def _version(obj: JSONObject) -> str:
    return short_hash(msgspec.json.encode(obj, order="deterministic").decode())


def _stamped(obj: JSONObject, version: str) -> JSONObject:
    meta = obj["metadata"]
    return {**obj, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), _ANNOTATION_HASH: version}}}


KEPT = "1h"
#: A hundred years; what an earlier schema admitted may be longer.
_LONGEST_S = 100 * 365 * 86_400.0
#: Of more, those that were left first go first.
_MOST = 4


def former_domains(
    tenant: Tenant, domain: str, hostnames: Iterable[Hostname], now: datetime
) -> tuple[FormerDomain, ...]:
    """Return the former domains of ``tenant``, whose names are made in ``domain`` from now on, oldest first."""
    keep_s = min(seconds_from_duration(tenant.spec.keep_former_domain or KEPT), _LONGEST_S)
    former = {each.domain: each for each in tenant.status.former_domains or ()}
    if tenant.status.domain:
        former.setdefault(tenant.status.domain, FormerDomain(tenant.status.domain))
    former.pop(domain, None)
    if not former or not keep_s:
        return ()
    names = {each.spec.host: each for each in hostnames if each.spec.owner.member == tenant.metadata.name}
    kept: list[FormerDomain] = []
    for each in former.values():
        # A time that cannot be read was not written here; it is computed again.
        until = each.until if parsed_time(each.until) is not None else None
        if until is None and not _missing(each.domain, domain, names):
            until = wire_time(now + timedelta(seconds=keep_s))
        if until is None or now < (parsed_time(until) or now):
            kept.append(msgspec.structs.replace(each, until=until))
    return tuple(kept[-_MOST:])


def _missing(former: str, domain: str, names: Mapping[str, Hostname]) -> bool:
    """Return whether a name that was made in ``former`` has none in ``domain`` yet that resolves.

    One that never had a record, since its load balancer has no address, is not waited for.
    """
    if not domain:
        return False
    labels = [
        host.partition(".")[0]
        for host, obj in names.items()
        if obj.spec.generated and not obj.deleting and host.partition(".")[2] == former and obj.status.records
    ]
    return not all(_resolves(names.get(f"{label}.{domain}")) for label in labels)


def _resolves(obj: Hostname | None) -> bool:
    """Return whether a name is published, as far as it is the hub that publishes it."""
    if obj is None or obj.deleting:
        return False
    if any(each.reason == ConditionReason.NO_SUCH_ZONE for each in obj.status.conditions or ()):
        return True
    # All of no records are published, too.
    return is_true(obj.status.conditions, ConditionType.PROGRAMMED) and bool(obj.status.records)


class AgentState(msgspec.Struct, frozen=True, gc=False):
    """A member's agent: its state, its last report (RFC 3339, the API server's clock), and how wrong its clock is."""

    state: TenantState = "Pending"
    last_sync: str = ""
    clock_ahead_s: float = 0.0


class TenantEnsured(msgspec.Struct, frozen=True, gc=False):
    """Whether namespace and rights of a tenant are there; ``invalid``: its spec cannot be, as opposed to not now."""

    problem: str = ""
    invalid: bool = False


def next_status(
    tenant: Tenant,
    ensured: TenantEnsured,
    agent: AgentState,
    *,
    now: str,
    removal: Sequence[Condition] = (),
    domain: str = "",
    former: Sequence[FormerDomain] = (),
    domains_taken: Condition | None = None,
) -> TenantStatus:
    """Return the status of ``tenant``; its lastSyncTime changes with the state, not at every sign of life.

    ``domain`` is where names of its objects are made, ``former`` where they are kept. ``removal``: what is to be
    said of a Tenant that is being removed, instead of whether it is ready. ``domains_taken``: that another member
    has a domain of it.
    """
    old, generation = tenant.status, tenant.metadata.generation
    conditions = list(_conditions(tenant, ensured, agent, removal))
    conditions += [domains_taken] if domains_taken is not None else []
    return TenantStatus(
        namespace=tenant.namespace,
        domain=domain,
        former_domains=list(former) or None,
        state=agent.state,
        last_sync_time=(agent.last_sync or None) if agent.state != old.state else old.last_sync_time,
        observed_generation=generation,
        conditions=wire_conditions(conditions, old.conditions, generation=generation, now=now),
    )


def _conditions(
    tenant: Tenant, ensured: TenantEnsured, agent: AgentState, removal: Sequence[Condition]
) -> Iterator[Condition]:
    invalid = ensured.problem if ensured.invalid else ""
    if ensured.problem and not invalid and tenant.refused:
        # Whether the namespace still belongs to another Tenant could not be read.
        invalid = next((each.message for each in tenant.status.conditions or () if each.type == "Accepted"), "")
    reason = ConditionReason.INVALID if invalid else ConditionReason.ACCEPTED
    yield Condition(ConditionType.ACCEPTED, not invalid, reason, invalid)
    yield from removal or [_ready(tenant, ensured, agent)]
    if agent.clock_ahead_s:
        yield Condition(ConditionType.CLOCK_SKEWED, True, ConditionReason.CLOCK_SKEW, skew_text(agent.clock_ahead_s))


def _ready(tenant: Tenant, ensured: TenantEnsured, agent: AgentState) -> Condition:
    def no(reason: ConditionReason, message: str) -> Condition:
        return Condition(ConditionType.READY, False, reason, message)

    name = tenant.metadata.name
    if ensured.problem:
        return no(ConditionReason.INVALID if ensured.invalid else ConditionReason.PENDING, ensured.problem)
    if agent.state == "Pending":
        text = f"its agent has never reported; start it in the member with: fairlead agent --tenant {name}"
        return no(ConditionReason.PENDING, text)
    if agent.state != "Engaged":
        return no(
            ConditionReason.MEMBER_LOST,
            f"its agent last reported at {agent.last_sync}, and its last state is served on; look at the agent's log",
        )
    return Condition(ConditionType.READY, True, ConditionReason.READY, "")


def skew_text(ahead_s: float) -> str:
    """Return what to say of a clock that is ahead (negative: behind) of the hub's; rounded, so that it stays."""
    return (
        f"the clock of the agent's machine is {_about(abs(ahead_s))} {'ahead of' if ahead_s > 0 else 'behind'} "
        "the hub's API; set it (NTP): nothing here is judged by it, but tokens and certificates are judged there"
    )


def _about(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"about {round(seconds / size)} {unit}"
    return "about a minute"
