"""Tenants: their namespace and rights at the hub, the state of their agent, and their removal.

An agent is engaged, stale or lost, depending on when this hub last saw its lease change:

    engaged ──40 s of silence──► stale ──5 min──► lost      any renewal ──► engaged

An unreachable member is served from its last state; only ``drainWhenLost`` and ``dropWhenLost`` take it out of service.
Time in which this hub could not read the leases does not count for them. A recorded state gets worse only once this hub
has listened for the time after which an agent is stale. Ages are monotonic; when a lease is first seen, the API
server's timestamp says how old it is. The hub compares the times that an agent writes with the server's, and trusts
none.

A deleted Tenant is removed in steps, by command or by kubectl; serving stops by permission only:

    held       it serves, or an object in it is labelled do-not-delete: nothing changes; a condition has the next step
    draining   its agent may no longer write, and is informed; backends get no new connections for the drain time
    deleting   its load balancers are deleted; their addresses leave the member's Services
    informed   its agent reported that the Services show it, or does not run: the finalizer is removed

In: Tenants, and the objects in their namespaces. Out: the objects of ``translate/tenant.py`` where they differ, and the
Tenant's status. Each step is repeatable and derived from the objects, so that a restarted hub continues. Never: changes
a namespace that is not the Tenant's.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import structlog

from fairlead.api.hostname import Hostname
from fairlead.api.httploadbalancer import LOAD_BALANCER_ROUTES
from fairlead.api.intent import IntentObject
from fairlead.api.kubernetes import NAMESPACES, ROLES
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.meta import (
    AnyResource,
    JSONObject,
    KubeObject,
    condition_of,
    is_true,
    only_status_changed,
    transitions,
    wire_conditions,
    without_status,
)
from fairlead.api.names import (
    AGENT_LEASE,
    ANNOTATION_STOP_SERVING,
    FINALIZER_IN_USE,
    LABEL_DO_NOT_DELETE,
    LABEL_TENANT,
    MANAGER_HUB,
    short_hash,
)
from fairlead.api.tenant import (
    ANNOTATION_LEAVING,
    ANNOTATION_SERVICES_INFORMED,
    EACH_SUBTENANT,
    LOST_AFTER_S,
    MAX_SUBTENANTS,
    STALE_AFTER_S,
    STAMPED_LEASES,
    TENANTS,
    ClassUsed,
    FormerDomain,
    StampedLease,
    SubtenantUsed,
    Tenant,
    TenantSpec,
    TenantState,
    TenantStatus,
    TenantUsed,
    age_s,
    state_by_age,
    subtenant_of,
)
from fairlead.api.times import parsed_time, seconds_from_duration, wire_time
from fairlead.errors import FairleadError, NotFound, Terminal
from fairlead.hub.inventory import IntentObjects, Inventory
from fairlead.hub.tenants.addresses import AddressAllocator, PortLimit
from fairlead.hub.tenants.usage import keep_usage
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.transport import NOTICEABLE_S
from fairlead.kube.writes import CoalescingWriter, Overlay, emit_transitions, hold, release
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.in_words import counted
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.generated import is_domain_certificate, member_domain
from fairlead.translate.tenant import build_domains_taken, domains_of, tenant_objects
from fairlead.translate.view import MemberState

CHECK_EVERY_S = 5.0
#: The value that keeps a silent member in service, instead of a time.
_NEVER = "never"
_WORSE: tuple[TenantState, ...] = ("Engaged", "Stale", "Lost")

log = structlog.get_logger(__name__)


class _Heard(msgspec.Struct):
    renew_time: str
    at_s: float
    listened_s: float
    at: str
    ahead_s: float
    #: Seconds since then in which the hub could not read leases.
    deaf_s: float = 0.0


class MemberHealth:
    """The last sign of life of each agent; ``leases`` come from the API server that timestamps them."""

    def __init__(
        self, *, clock: Clock, changed: Callable[[str], None], leases: WatchCache[StampedLease] | None = None
    ) -> None:
        self._clock = clock
        self._changed = changed
        self._leases = leases
        self._server_now: Callable[[], datetime] = clock.now if leases is None else leases.cluster.server_clock.now
        self._heard: dict[str, _Heard] = {}
        self._reported: dict[str, tuple[TenantState, float]] = {}

    def lease_changed(self, _old: StampedLease | None, new: StampedLease | None) -> None:
        """Record a renewal; a deleted lease changes nothing."""
        if new is None or new.metadata.name != AGENT_LEASE or not new.spec.renew_time:
            return
        namespace, renewed = new.metadata.namespace, new.spec.renew_time
        heard, now_s = self._heard.get(namespace), self._clock.monotonic()
        if heard is not None and heard.renew_time == renewed:
            return
        past_s = (age_s(new, self._server_now()) or 0.0) if heard is None else 0.0
        stored = new.stored_at or self._server_now()
        # A clock at the limit must not be reported at every beat.
        limit_s = NOTICEABLE_S * (2 / 3 if heard is not None and heard.ahead_s else 1)
        ahead_s = new.clock_ahead_s if abs(new.clock_ahead_s) >= limit_s else 0.0
        self._heard[namespace] = _Heard(renewed, now_s - past_s, now_s, wire_time(stored), ahead_s)
        self._report(namespace)

    def forget(self, namespace: str) -> None:
        """Forget a member whose Tenant was deleted."""
        self._heard.pop(namespace, None)
        self._reported.pop(namespace, None)

    def age_s(self, namespace: str) -> float | None:
        """Return the seconds since the agent last reported, None if it never has."""
        heard = self._heard.get(namespace)
        return None if heard is None else self._clock.monotonic() - heard.at_s

    def last_sync(self, namespace: str) -> str:
        """Return when the API server stored the agent's last renewal (RFC 3339), empty when there is none."""
        heard = self._heard.get(namespace)
        return heard.at if heard else ""

    def clock_ahead_s(self, namespace: str) -> float:
        """Return by how many seconds the agent's clock is ahead of the API server's; 0 if negligible."""
        heard = self._heard.get(namespace)
        return heard.ahead_s if heard is not None else 0.0

    def state(self, namespace: str, on_record: TenantState = "") -> TenantState:
        """Return the state for the status; ``on_record``: the present one of the status."""
        known = self._reported.get(namespace)
        if known is not None and known[0] != self._state(namespace):
            # A change is shown before it is reported. A renewal before the next look must not hide it.
            del self._reported[namespace]
        return self._state(namespace, on_record)

    def _state(self, namespace: str, on_record: TenantState = "") -> TenantState:
        state, heard = state_by_age(self.age_s(namespace)), self._heard.get(namespace)
        if heard is None or self._clock.monotonic() - heard.listened_s >= STALE_AFTER_S:
            return state
        worse = on_record in _WORSE and state in _WORSE and _WORSE.index(state) > _WORSE.index(on_record)
        return on_record if worse else state

    def view(self, tenant: Tenant | None, namespace: str, *, drain: str = "", drop: str = "") -> MemberState:
        """Return the state of the member as its load balancers show it.

        ``drain`` and ``drop`` replace drainWhenLost and dropWhenLost of the Tenant: a time, or "never".
        """
        if tenant is not None and tenant.draining:
            return MemberState(f"Tenant {tenant.metadata.name} is being removed; its backends are drained", True)
        state = self.state(namespace, tenant.status.state if tenant is not None else "")
        if state not in ("Stale", "Lost"):
            return MemberState()
        name = tenant.metadata.name if tenant else namespace
        # The time, not the age: an age would cause a write at every reconcile.
        since = self.last_sync(namespace)
        text = f"the agent of {name} last reported at {since}"
        spec = tenant.spec if tenant is not None else TenantSpec()
        lost_s = self._silent_s(namespace) if state == "Lost" else 0.0
        for done, field, of_service, of_tenant in (
            ("dropped", "dropWhenLost", drop, spec.drop_when_lost),
            ("drained", "drainWhenLost", drain, spec.drain_when_lost),
        ):
            after = of_service or of_tenant
            if after not in {"", _NEVER} and lost_s >= max(LOST_AFTER_S, seconds_from_duration(after)):
                text = f"{text}; {done} by spec.{field}{'' if of_service else ' of the Tenant'}"
                return MemberState(text, drained=True, dropped=done == "dropped", silent_since=since)
        return MemberState(f"{text}; its last state is served", silent_since=since)

    async def run(self) -> None:
        """Detect silent agents until cancelled."""
        looked_s = self._clock.monotonic()
        while True:
            await self._clock.sleep(CHECK_EVERY_S)
            before_s, looked_s = looked_s, self._clock.monotonic()
            for namespace, heard in list(self._heard.items()):
                if self._leases is not None and self._leases.problem:
                    heard.deaf_s += looked_s - max(before_s, heard.listened_s)
                    heard.listened_s = looked_s
                self._report(namespace)

    def _silent_s(self, namespace: str) -> float:
        """Return for how many seconds the agent has been silent while this hub could hear it."""
        heard = self._heard.get(namespace)
        return 0.0 if heard is None else self._clock.monotonic() - heard.at_s - heard.deaf_s

    def _has_just_listened(self, namespace: str) -> bool:
        """Return whether the hub has just listened long enough to confirm a silence that began before it listened."""
        heard = self._heard[namespace]
        listened_s = self._clock.monotonic() - heard.listened_s
        return heard.at_s < heard.listened_s and STALE_AFTER_S <= listened_s < STALE_AFTER_S + 2 * CHECK_EVERY_S

    def _report(self, namespace: str) -> None:
        state, ahead_s = self._state(namespace), self.clock_ahead_s(namespace)
        known = self._reported.get(namespace)
        before_s = known[1] if known is not None else 0.0
        skew_changed = bool(ahead_s) != bool(before_s) or abs(ahead_s - before_s) >= NOTICEABLE_S
        if skew_changed and ahead_s:
            log.warning("a member's clock is wrong", namespace=namespace, ahead_s=round(ahead_s))
        as_known = known is not None and known[0] == state and not skew_changed
        # Lost members are reported at every check, since a drain may be due; unchanged statuses are not written.
        if not as_known or state == "Lost" or self._has_just_listened(namespace):
            self._reported[namespace] = (state, ahead_s)
            self._changed(namespace)


#: How long changes of a member's usage are combined, so that a burst is one write.
COUNT_AFTER_S = 5.0


class MemberQuotas:
    """Counts each member's usage of the limits of its Tenant, and decides whether a new load balancer exceeds one.

    ``changed`` is called with the name of a Tenant whose usage may have changed.
    """

    def __init__(self, inventory: Inventory, allocator: AddressAllocator, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._inventory = inventory
        self._allocator = allocator
        self._kinds: list[IntentObjects[Any]] = []
        #: The limit and the load balancers within it, by namespace and sub-tenant: each above would count all others.
        self._within: dict[str, dict[str, tuple[int, frozenset[LoadBalancerKey]]]] = {}
        #: Those that were found within it: that they are served may not be on record yet.
        self._counted: set[LoadBalancerKey] = set()
        self._targets: dict[str, dict[LoadBalancerKey, int]] = {}
        self._hostnames: Counter[tuple[str, str]] = Counter()

    def add(self, objects: IntentObjects[Any]) -> None:
        """Count the load balancers of one kind."""
        self._kinds.append(objects)
        objects.cache.on_change(partial(self._load_balancer_changed, objects))
        objects.cache.on_object(self._counted_changed, part=without_status)
        objects.cache.broken.on_change(lambda _obj: self._within.clear())

    def watch(self) -> None:
        """Subscribe to the other counted objects."""
        caches = self._inventory.caches
        for cache in (caches.get(LOAD_BALANCER_ROUTES.plural), self._inventory.managed):
            if cache is not None:
                cache.on_object(self._counted_changed, part=without_status)
        self._inventory.hostnames.on_change(self._hostname_changed)
        self._inventory.classes.on_change(self._class_changed)

    def note(self, key: LoadBalancerKey, targets: int | None) -> None:
        """Record the number of targets of a load balancer, None if it was deleted."""
        of_member = self._targets.setdefault(key.namespace, {})
        if of_member.get(key) == targets:
            return
        if targets is None:
            of_member.pop(key, None)
        else:
            of_member[key] = targets
        self._changed_in(key.namespace)

    def used(self, tenant: Tenant) -> TenantUsed:
        """Return the present usage of a member."""
        namespace, routes = tenant.namespace, self._inventory.caches.get(LOAD_BALANCER_ROUTES.plural)
        certificates = self._inventory.managed.indexed("namespace", namespace)
        ports, addresses = self._allocator.used(namespace)
        return TenantUsed(
            load_balancers=len(list(self._objects(namespace))) + self._unread(namespace),
            ports=ports,
            routes=len(routes.indexed("namespace", namespace)) if routes is not None else 0,
            certificates=sum(not is_domain_certificate(obj.metadata.name) for obj in certificates),
            hostnames=self._hostnames[tenant.metadata.name, ""],
            addresses=addresses,
            targets=self._targets_of(tenant),
            subtenants=self._used_by_subtenants(tenant),
            classes=self._used_of_classes(namespace),
        )

    def _used_of_classes(self, namespace: str) -> list[ClassUsed] | None:
        """Return how many load balancers of each class with a limit a member has; None without such a class."""
        counts = Counter(obj.class_name for _, obj in self._objects(namespace))
        used = [
            ClassUsed(name, counts[name], obj_class.spec.max_per_tenant)
            for name in sorted(counts)
            if (obj_class := self._inventory.load_balancer_class(name)) is not None and obj_class.spec.max_per_tenant
        ]
        return used[:MAX_SUBTENANTS] or None

    def _used_by_subtenants(self, tenant: Tenant) -> list[SubtenantUsed] | None:
        """Return the usage of each sub-tenant; None for a Tenant without limits of sub-tenants.

        Sub-tenants without a limit are counted, too: they keep their load balancers when they get a limit.
        """
        if not tenant.spec.subtenants:
            return None
        namespace, routes = tenant.namespace, self._inventory.caches.get(LOAD_BALANCER_ROUTES.plural)
        before = tenant.status.used.subtenants if tenant.status.used is not None else None
        load_balancers = Counter(subtenant_of(obj) for _, obj in self._objects(namespace))
        counted = Counter(map(subtenant_of, routes.indexed("namespace", namespace) if routes is not None else ()))
        served = {entry.name: entry.routes_served for entry in before or ()}
        managed = self._inventory.managed.indexed("namespace", namespace)
        certificates = Counter(obj.subtenant for obj in managed if not is_domain_certificate(obj.metadata.name))
        member = tenant.metadata.name
        named = {name: count for (owner, name), count in self._hostnames.items() if owner == member and count}
        used: list[SubtenantUsed] = []
        listed = {entry.name for entry in tenant.spec.subtenants}
        for name in sorted({*load_balancers, *counted, *certificates, *named, *listed} - {"", EACH_SUBTENANT}):
            limit, total = tenant.limits_of(name).max_routes, counted[name]
            # Load balancers that were served when the limit was set or lowered stay.
            within = max(limit, served.get(name, 0)) if limit and before is not None else total
            targets = self._targets_of(tenant, name)
            ports = self._allocator.open_of(objects.key(obj) for objects, obj in self._objects(namespace, name))
            entry = SubtenantUsed(name, load_balancers[name], total, min(total, within), targets, ports)
            others = certificates[name], named.get(name, 0)
            used.append(msgspec.structs.replace(entry, certificates=others[0], hostnames=others[1]))
        return used[:MAX_SUBTENANTS]

    def excess(self, key: LoadBalancerKey, tenant: Tenant, obj: Any) -> str:
        """Return the limit error of a load balancer that is not served yet or changes its class; empty if none."""
        limits_for = tenant.limits_for(subtenant_of(obj)) if obj.status.accepted is None else ()
        for part, who, limits, field in limits_for:
            most, of = limits.max_load_balancers, partial(_is_of, part)
            if most and key not in (within := self._within_limit(key.namespace, most, part, of, _is_accepted)):
                return (
                    f"{who} uses {counted(len(within), 'load balancer')}, and {field}.maxLoadBalancers of its "
                    f"Tenant allows {most}; delete load balancers, or ask the operator for more"
                )
            if limits.max_targets and (targets := self._targets_of(tenant, part)) >= limits.max_targets:
                return (
                    f"{who} has {counted(targets, 'target')}, and {field}.maxTargets of its Tenant allows "
                    f"{limits.max_targets}; delete load balancers or scale down, or ask the operator for more"
                )
        name = obj.class_name
        if (obj_class := self._inventory.load_balancer_class(name)) is not None and (
            most := obj_class.spec.max_per_tenant
        ):
            has_class, in_class = partial(_has_class, name), partial(_is_in_class, name)
            within = self._within_limit(key.namespace, most, f"class {name}", has_class, in_class)
            if key not in within:
                return (
                    f"member {tenant.metadata.name} uses {counted(len(within), 'load balancer')} of LoadBalancerClass "
                    f"{name}, and spec.maxPerTenant allows {most}; delete some, use another class, or ask the operator"
                )
        self._counted.add(key)
        return ""

    def port_limits(self, tenant: Tenant | None, subtenant: str, by_default: int) -> list[PortLimit]:
        """Return the port limits of a load balancer; ``by_default`` applies to a Tenant without one."""
        if tenant is None:
            return []
        field = "spec.maxPorts of the Tenant, --tenant-ports of the hub"
        limits = [PortLimit(tenant.spec.max_ports or by_default, "the member", field)]
        if subtenant and (most := tenant.limits_of(subtenant).max_ports):
            keys = (objects.key(obj) for objects, obj in self._objects(tenant.namespace, subtenant))
            limits.append(PortLimit(most, f"sub-tenant {subtenant}", "spec.subtenants.maxPorts of the Tenant", keys))
        return limits

    def wake_waiting(self, namespace: str) -> None:
        """Wake the load balancers that wait for a limit: the member uses less."""
        waiting = [
            objects.key(obj) for objects, obj in self._objects(namespace) if not _is_in_class(obj.class_name, obj)
        ]
        self._inventory.wake(waiting, "the member uses less of its limits")

    def _objects(self, namespace: str, subtenant: str = "") -> Iterator[tuple[IntentObjects[Any], Any]]:
        """Yield the load balancers of a member, or of one of its sub-tenants."""
        for objects in self._kinds:
            for obj in objects.cache.indexed("namespace", namespace):
                if _is_of(subtenant, obj):
                    yield objects, obj

    def _unread(self, namespace: str) -> int:
        """Return how many load balancers of a member cannot be read."""
        return sum(key.namespace == namespace for objects in self._kinds for key in objects.cache.remains())

    def _targets_of(self, tenant: Tenant, subtenant: str = "") -> int:
        """Return the number of targets; a hub that has just started still trusts the status."""
        counts, objects_of = self._targets.get(tenant.namespace, {}), list(self._objects(tenant.namespace, subtenant))
        total = (
            sum(counts.get(objects.key(obj), 0) for objects, obj in objects_of) if subtenant else sum(counts.values())
        )
        served = (objects.key(obj) for objects, obj in objects_of if obj.status.accepted and objects.serves(obj))
        if (used := tenant.status.used) is None or all(key in counts for key in served):
            return total
        return max(total, used.of_subtenant(subtenant).targets if subtenant else used.targets)

    def _within_limit(
        self, namespace: str, limit: int, part: str, counts: Callable[[Any], bool], serves: Callable[[Any], bool]
    ) -> frozenset[LoadBalancerKey]:
        """Return the load balancers within a limit among those that ``counts`` selects; ``serves`` are kept."""
        of_namespace = self._within.setdefault(namespace, {})
        known = of_namespace.get(part)
        if known is None or known[0] != limit:
            present = [entry for entry in self._objects(namespace) if counts(entry[1])]
            # A lower limit removes nothing: more than it allows may be served.
            first = heapq.nsmallest(
                max(0, limit - self._unread(namespace)), present, key=lambda entry: self._rank(entry, serves)
            )
            served = [entry for entry in present if serves(entry[1])]
            keys = frozenset(objects.key(obj) for objects, obj in (*first, *served))
            known = of_namespace[part] = (limit, keys)
        return known[1]

    def _rank(
        self, entry: tuple[IntentObjects[Any], Any], serves: Callable[[Any], bool]
    ) -> tuple[bool, bool, str, str]:
        objects, obj = entry
        waits, created = not serves(obj), obj.metadata.creation_timestamp or ""
        return (waits, waits and objects.key(obj) not in self._counted, created, obj.metadata.name)

    def _load_balancer_changed(self, objects: IntentObjects[Any], old: Any, new: Any) -> None:
        for obj in filter(None, (old, new)):
            self._within.pop(obj.metadata.namespace, None)
        if new is None:
            self._counted.discard(objects.key(old))
        if old and new and old.status.allocation != new.status.allocation:
            self._changed_in(new.metadata.namespace)
        if old and new and _is_accepted(old) and not _is_in_class(old.status.accepted.class_name, new):
            self.wake_waiting(new.metadata.namespace)

    def _counted_changed(self, obj: KubeObject) -> None:
        self._changed_in(obj.metadata.namespace)

    def _hostname_changed(self, old: Hostname | None, new: Hostname | None) -> None:
        for obj, change in ((old, -1), (new, 1)):
            if obj is not None and (member := obj.spec.owner.member):
                for part in {"", obj.spec.owner.subtenant}:
                    self._hostnames[member, part] += change
                self._changed(member)

    def _class_changed(self, old: LoadBalancerClass | None, new: LoadBalancerClass | None) -> None:
        limits = [obj_class.spec.max_per_tenant if obj_class is not None else 0 for obj_class in (old, new)]
        if limits[0] != limits[1]:
            for tenant in self._inventory.tenants.values():
                self._changed(tenant.metadata.name)

    def _changed_in(self, namespace: str) -> None:
        if (tenant := self._inventory.tenant_of(namespace)) is not None:
            self._changed(tenant.metadata.name)


def _is_of(subtenant: str, obj: Any) -> bool:
    return not subtenant or subtenant_of(obj) == subtenant


def _is_accepted(obj: Any) -> bool:
    return obj.status.accepted is not None


def _has_class(name: str, obj: Any) -> bool:
    return obj.class_name == name or _is_in_class(name, obj)


def _is_in_class(name: str, obj: Any) -> bool:
    return obj.status.accepted is not None and obj.status.accepted.class_name == name


_ANNOTATION_HASH = "fairlead.dev/applied"
#: Manually deleted objects are created again within this time; the check only reads.
_CHECK_AFTER_S = 300.0
#: How often the hub checks whether names in a former domain are still needed, in seconds.
_FORMER_S = 10.0
#: How long names in a former domain are kept by default.
KEPT = "1h"
#: The most former domains; the oldest are dropped first.
_MOST = 4
#: The pace of a removal: while a Tenant is held, and while a step is under way, in seconds.
_HELD_S, _AGAIN_S = 10.0, 1.0
#: An agent of an older release does not report that its Services show the removal.
_INFORMED_WITHIN_S = 60.0


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
        quotas: MemberQuotas,
        queue: KeyedQueue[str],
        bound_in_tenants: bool = False,
        domain: str = "",
    ) -> None:
        self._domain = domain
        self._quotas = quotas
        self._queue = queue
        self._bound_in_tenants = bound_in_tenants
        self._cluster = cluster
        self._inventory = inventory
        self._member_health = member_health
        self._clock = clock
        self._leading = leading
        self._events = events
        self._present: Overlay[Tenant] = Overlay(inventory.tenants)
        self._writer: CoalescingWriter[Tenant] = CoalescingWriter(
            cluster, TENANTS, objects=self._present, clock=clock, manager=MANAGER_HUB
        )
        self._removal = TenantRemoval(cluster=cluster, inventory=inventory, member_health=member_health, clock=clock)

    async def reconcile(self, name: str) -> float | None:
        """Ensure the objects of one Tenant and write its status; return the seconds until the next reconcile."""
        tenant = self._present.get("", name)
        if tenant is None:
            self._writer.forget("", name)
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
        again_s = await self._write_status(tenant, TenantEnsured(problem, invalid=bool(problem)))
        if problem and again_s >= _FORMER_S:  # else a status is held back, which is written first
            raise Terminal(problem, reason="Invalid")
        return again_s

    async def recount(self, name: str) -> None:
        """Have the status of one Tenant written if the member uses more or less than it says."""
        tenant = self._present.get("", name)
        if tenant is None or tenant.deleting or not self._leading():
            return
        if not self._inventory.decides_in(tenant.spec.region):
            return
        before, used = tenant.status.used or TenantUsed(), self._quotas.used(tenant)
        if used != tenant.status.used:
            self._queue.add(name)
        if _uses_less(before, used):
            self._quotas.wake_waiting(tenant.namespace)

    async def _remove(self, tenant: Tenant) -> float | None:
        step = await self._removal.step(tenant)
        again_s = step.again_s
        if step.conditions:
            with suppress(NotFound):  # deleted meanwhile
                due_s = await self._write_status(tenant, TenantEnsured(), step.conditions)
                again_s = due_s if again_s is None else min(again_s, due_s)
        return again_s

    async def _ensure(self, tenant: Tenant) -> str:
        """Apply missing and different objects; return a message if the namespace belongs to another owner."""
        name = tenant.metadata.name
        try:
            namespace = await self._cluster.get(NAMESPACES, "", tenant.namespace)
            owner = namespace.label(LABEL_TENANT)
        except NotFound:
            # A deleted namespace still belongs to its Tenant, which creates it again.
            other = self._inventory.tenant_of(tenant.namespace)
            owner = other.metadata.name if other is not None else name
        if not owner:
            return (
                f"spec.namespace: {tenant.namespace} existed before this Tenant, and would be deleted with it. Choose "
                f"another one, or hand it over with: kubectl label --overwrite namespace {tenant.namespace} "
                f"{LABEL_TENANT}={name}"
            )
        if owner != name:
            return f"spec.namespace: {tenant.namespace} belongs to Tenant {owner}; choose another one"
        for resource, obj in tenant_objects(tenant, hub_binding=self._bound_in_tenants):
            await self._apply(resource, obj)
        return ""

    async def _apply(self, resource: AnyResource, obj: JSONObject) -> None:
        """Apply ``obj`` unless this version was applied before; some objects are shared by all Tenants."""
        version, meta = short_hash(msgspec.json.encode(obj, order="deterministic").decode()), obj["metadata"]
        with suppress(NotFound):
            present = await self._cluster.get(resource, meta.get("namespace", ""), meta["name"])
            if present.annotation(_ANNOTATION_HASH) == version:
                return
        annotations = {**meta.get("annotations", {}), _ANNOTATION_HASH: version}
        await self._cluster.apply(
            resource, {**obj, "metadata": {**meta, "annotations": annotations}}, manager=MANAGER_HUB
        )

    async def _write_status(self, tenant: Tenant, ensured: TenantEnsured, removal: Sequence[Condition] = ()) -> float:
        """Write the status when it differs and is due; return the seconds until the next comparison."""
        health, namespace = self._member_health, tenant.namespace
        old = tenant.status
        state = health.state(namespace, old.state)
        agent = AgentState(state, health.last_sync(namespace), health.clock_ahead_s(namespace))
        now = wire_time(self._clock.now())
        domain, former = old.domain, tuple(old.former_domains or ())
        if not self._inventory.region:  # where regions have hubs, the hub without a region decides about names
            domain = member_domain(tenant, self._domain)
            former = former_domains(tenant, domain, self._inventory.hostnames.values(), self._clock.now())
        taken = None if tenant.deleting else build_domains_taken(tenant, self._inventory.tenants.values())
        new = next_status(
            tenant, ensured, agent, now=now, removal=removal, domain=domain, former=former, domains_taken=taken
        )
        # Only the hub of the member's region counts.
        counts = self._inventory.decides_in(tenant.spec.region)
        used = old.used if not counts else None if tenant.refused else self._quotas.used(tenant)
        new = msgspec.structs.replace(new, used=used)
        written, wait_s = await self._writer.write(tenant, old, new)
        if written is not None:
            changes = transitions(old.conditions, new.conditions)
            emit_transitions(self._events, TENANTS, tenant, changes, good={"Ready": "the agent is alive"})
        return wait_s or (_FORMER_S if former else _CHECK_AFTER_S)


def _uses_less(before: TenantUsed, now: TenantUsed) -> bool:
    """Return whether a member, or one of its sub-tenants, has fewer load balancers or targets."""
    pairs: list[tuple[TenantUsed | SubtenantUsed, TenantUsed | SubtenantUsed]] = [(before, now)]
    pairs += [(entry, now.of_subtenant(entry.name)) for entry in before.subtenants or ()]
    return any(new.load_balancers < old.load_balancers or new.targets < old.targets for old, new in pairs)


def concerned_by(old: Tenant | None, new: Tenant | None, inventory: Inventory) -> set[str]:
    """Return the Tenants to reconcile after a change of one: that Tenant, and those with its domains or namespace."""
    names: set[str] = set()
    if new is not None and (old is None or not only_status_changed(old, new)):
        names.add(new.metadata.name)
    if differing := domains_of(old) ^ domains_of(new):
        names |= {tenant.metadata.name for tenant in inventory.tenants.values() if domains_of(tenant) & differing}
    if new is None and old is not None:
        names |= {tenant.metadata.name for tenant in inventory.all_tenants() if tenant.namespace == old.namespace}
    return names


def former_domains(
    tenant: Tenant, domain: str, hostnames: Iterable[Hostname], now: datetime
) -> tuple[FormerDomain, ...]:
    """Return the former domains of ``tenant``, whose names are now generated in ``domain``, oldest first."""
    keep_s = seconds_from_duration(tenant.spec.keep_former_domain or KEPT)
    former = {entry.domain: entry for entry in tenant.status.former_domains or ()}
    if tenant.status.domain:
        former.setdefault(tenant.status.domain, FormerDomain(tenant.status.domain))
    former.pop(domain, None)
    if not former or not keep_s:
        return ()
    names = {obj.spec.host: obj for obj in hostnames if obj.spec.owner.member == tenant.metadata.name}
    kept: list[FormerDomain] = []
    for entry in former.values():
        # An invalid time was not written by the hub; it is computed again.
        until = entry.until if parsed_time(entry.until) is not None else None
        if until is None and not _missing(entry.domain, domain, names):
            until = wire_time(now + timedelta(seconds=keep_s))
        if until is None or now < (parsed_time(until) or now):
            kept.append(msgspec.structs.replace(entry, until=until))
    return tuple(kept[-_MOST:])


def _missing(former: str, domain: str, names: Mapping[str, Hostname]) -> bool:
    """Return whether a name that was generated in ``former`` does not resolve in ``domain`` yet.

    A name that never had a record, since its load balancer has no address, does not count.
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
    """Return whether a name is published, or the hub does not publish it."""
    if obj is None or obj.deleting:
        return False
    if any(condition.reason == ConditionReason.NO_SUCH_ZONE for condition in obj.status.conditions or ()):
        return True
    # A name without records is Programmed, too.
    return is_true(obj.status.conditions, ConditionType.PROGRAMMED) and bool(obj.status.records)


class AgentState(msgspec.Struct, frozen=True, gc=False):
    """The state of a member's agent, its last report (RFC 3339, the API server's clock), and its clock skew."""

    state: TenantState = "Pending"
    last_sync: str = ""
    clock_ahead_s: float = 0.0


class TenantEnsured(msgspec.Struct, frozen=True, gc=False):
    """Whether namespace and rights of a tenant exist; ``invalid``: its spec is wrong, not only impossible now."""

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
    """Return the status of ``tenant``; lastSyncTime changes with the state, not at every report.

    ``domain`` is where its names are generated, ``former`` where they are kept. ``removal``: the conditions of a Tenant
    that is being removed, instead of Ready. ``domains_taken``: another member has one of its domains.
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
        # The owner of the namespace could not be read: the last known refusal stays.
        accepted = condition_of(tenant.status.conditions, ConditionType.ACCEPTED)
        invalid = accepted.message if accepted is not None else ""
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
        text = f"the agent has never reported; start it in the member with: fairlead agent --tenant {name}"
        return no(ConditionReason.PENDING, text)
    if agent.state != "Engaged":
        text = f"the agent last reported at {agent.last_sync}, and its last state is served; read the agent's log"
        return no(ConditionReason.MEMBER_LOST, text)
    return Condition(ConditionType.READY, True, ConditionReason.READY, "")


def skew_text(ahead_s: float) -> str:
    """Return the message about a clock that is ahead (negative: behind) of the hub's; rounded, so that it is stable."""
    about = "a minute"
    for size, unit in ((60, "minutes"), (3_600, "hours"), (86_400, "days")):
        if abs(ahead_s) >= 2 * size:
            about = f"{round(abs(ahead_s) / size)} {unit}"
    return (
        f"the clock of the agent's machine is about {about} {'ahead of' if ahead_s > 0 else 'behind'} the hub's API; "
        "set it (NTP): the agent may reject valid tokens and certificates"
    )


class RemovalStep(msgspec.Struct, frozen=True):
    """The conditions of a Tenant that is being removed, and the seconds until the next step; none once it is gone."""

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
        """Take the next step for ``tenant``."""
        if not tenant.held_by(FINALIZER_IN_USE) or not await self._owns_namespace(tenant):
            await self._release(tenant)
            return RemovalStep()
        if unread := self._inventory.unread_in(tenant.namespace):
            text = f"the Tenant was deleted, and is still served: {unread}; correct or delete that object"
            return RemovalStep((_not_ready(ConditionReason.IN_USE, text),), _HELD_S)
        objects = self._objects(tenant.namespace)
        if held := why_held(tenant, objects):
            # The agent created a load balancer before it was informed: it must run until that is deleted.
            await self._set_leaving(tenant, leaving=False)
            return RemovalStep((held,), _HELD_S)
        await self._set_leaving(tenant, leaving=True)
        if objects and (left_s := self._drain_left_s(tenant, objects)) > 0:
            return RemovalStep(_draining(f"{_counted(objects)} draining, to be deleted"), min(left_s, _AGAIN_S))
        for key, obj in objects:
            if not obj.deleting:
                resource = self._inventory.intents[key.kind].resource
                await self._cluster.delete(resource, *obj.key, uid=obj.metadata.uid)
        if objects:
            return RemovalStep(_draining(f"{_counted(objects)} deleted"), _AGAIN_S)
        if any(record.metadata.namespace == tenant.namespace for record in self._inventory.records.values()):
            return RemovalStep(_draining("backends are being deregistered (BackendRecords)"), _AGAIN_S)
        if self._awaits_agent(tenant):
            return RemovalStep(_draining("the agent updates the Services of the member"), _AGAIN_S)
        await keep_usage(self._cluster, tenant, self._clock.now())
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
        """Inform the agent whether its Tenant leaves, and revoke or restore its right to create load balancers."""
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
        longest_s = max(seconds_from_duration(drain.spec.drain) if drain else 0.0 for drain in drains)
        # Only time that this process observed counts: wall clocks jump, and another leader's clock may be ahead.
        now_s = self._clock.monotonic()
        return longest_s - (now_s - self._draining_since_s.setdefault(tenant.metadata.name, now_s))

    def _awaits_agent(self, tenant: Tenant) -> bool:
        lease, now_s = self._inventory.leases.get(tenant.namespace, AGENT_LEASE), self._clock.monotonic()
        informed = lease is None or lease.annotation(ANNOTATION_SERVICES_INFORMED)
        if informed or self._member_health.state(tenant.namespace) != "Engaged":
            return False
        return now_s - self._waiting_since_s.setdefault(tenant.metadata.name, now_s) < _INFORMED_WITHIN_S

    async def _release(self, tenant: Tenant) -> None:
        self._waiting_since_s.pop(tenant.metadata.name, None)
        self._draining_since_s.pop(tenant.metadata.name, None)
        await release(self._cluster, TENANTS, tenant, FINALIZER_IN_USE, manager=MANAGER_HUB)


def why_held(tenant: Tenant, objects: Sequence[tuple[LoadBalancerKey, IntentObject]]) -> Condition | None:
    """Return why the Tenant cannot be removed now, None if it can."""
    for key, obj in objects:
        if LABEL_DO_NOT_DELETE in (obj.metadata.labels or {}):
            return _not_ready(
                ConditionReason.DO_NOT_DELETE,
                f"the Tenant was deleted, and is still served: {key.kind} {key.namespace}/{key.name} has the label "
                f"{LABEL_DO_NOT_DELETE}; remove the label to continue",
            )
    if objects and tenant.annotation(ANNOTATION_STOP_SERVING, "false") == "false":
        first = objects[0][0]
        return _not_ready(
            ConditionReason.IN_USE,
            f"the Tenant was deleted, and is still served: {_counted(objects)}, first {first.kind} {first.namespace}/"
            f"{first.name}. Delete the Services in the member, or drain and stop them with: fairlead tenant remove "
            f"{tenant.metadata.name} --stop-serving",
        )
    return None


def _draining(text: str) -> tuple[Condition, ...]:
    return (
        _not_ready(ConditionReason.DELETING, f"the Tenant is being removed: {text}"),
        Condition(ConditionType.DRAINING, True, ConditionReason.DELETING, "no backend gets new connections"),
    )


def _not_ready(reason: ConditionReason, text: str) -> Condition:
    return Condition(ConditionType.READY, False, reason, text)


def _counted(objects: Sequence[object]) -> str:
    return counted(len(objects), "load balancer")
