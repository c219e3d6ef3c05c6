"""The names of a hub: the owner and addresses of each name, its Hostname, and the claimants' statuses.

    routes, load balancers, Tenants ─► claims ─► host ─► decision ─► Hostname        (recorded first)
                                                             └─────► status.names of each object that requests it

A host of an HTTP route or listener that no DNSZone could serve costs no write: its owner is only in memory until a zone
for it appears. In: the inventory, once its caches are synced. Out: Hostnames in the hub's own namespace, names in
statuses. Never: takes a name from a member, or deletes one, while an object of that member cannot be read; changes a
Hostname that was not written for a claim; writes while another replica leads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec
import structlog

from fairlead.api.clusterapi import is_moved
from fairlead.api.globalservice import GLOBAL_SERVICES, GlobalService
from fairlead.api.hostname import DNS_ZONES, HOSTNAMES, WILDCARD, DNSZone, Hostname, HostnameStatus, host_problem
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES, HTTPLoadBalancer, LoadBalancerRoute
from fairlead.api.intent import NamesStatus
from fairlead.api.loadbalancer import LOAD_BALANCERS, LoadBalancer
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, ObjectKey, WireCondition, wire_conditions
from fairlead.api.names import (
    FINALIZER_CLEANUP,
    LABEL_MANAGED_BY,
    LABEL_TENANT,
    MANAGED_BY,
    MANAGER_NAMES,
    SYSTEM_NAMESPACE,
    label_value,
)
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS, Origin, TCPLoadBalancer
from fairlead.api.tenant import DEFAULT_MAX_HOSTNAMES, Tenant, subtenant_of
from fairlead.api.times import parsed_time, wire_time
from fairlead.errors import Conflict, NotFound
from fairlead.hub.inventory import Inventory, first_broken
from fairlead.hub.names.ownership import (
    NOBODYS,
    ClaimSource,
    Domains,
    LoadBalancerAddresses,
    NameClaimant,
    NameClaims,
    NameDecision,
    decide,
    hostname_body,
    hostname_spec,
    is_of_claims,
    object_name,
    same_spec,
    space_of,
)
from fairlead.kube.cache import AnyCache, WatchCache
from fairlead.kube.cluster import UNNAMED, Cluster
from fairlead.kube.lease import check_leads
from fairlead.kube.writes import LAG_S, Overlay, write_status
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.in_words import listed
from fairlead.model.keys import LoadBalancerKey, family_of
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.generated import generated_host
from fairlead.translate.hostname import longest_suffix

#: The load balancer of an IngressClass has the hosts of all its Ingresses, whose routes claim them, too.
_INGRESS_CLASS = "IngressClass"
#: Seconds until the next reconcile of a name that keeps its owner because an object cannot be read.
HELD_AGAIN_S = 5.0
#: How long a load balancer may fail before its addresses are withdrawn where other hubs answer, in seconds.
DOWN_AFTER_S = 10.0
#: How long records may be missing before users read about it, in seconds.
SHOWN_AFTER_S = 30.0
_TYPES = (ConditionType.ACCEPTED, ConditionType.RESOLVED_REFS, ConditionType.PROGRAMMED)
#: How many hosts a message names.
_SHOWN = 3
_SERVED_HERE = "Requests that reach the address of this object are served"
_SENTENCES = {
    ConditionReason.HOSTNAME_TAKEN: "the name has another owner, so it does not point here. Use another name, or ask "
    f"the operator. {_SERVED_HERE}",
    ConditionReason.DOMAIN_RESERVED: "the name is in a domain that is reserved for others, so it does not point here. "
    f"Use another name, or ask the operator. {_SERVED_HERE}",
    ConditionReason.QUOTA_EXCEEDED: "the name exceeds a limit of its Tenant, so it does not point here: "
    f"spec.maxHostnames ({DEFAULT_MAX_HOSTNAMES} when it is 0), or spec.subtenants.maxHostnames. Remove hosts that are "
    f"not needed, or ask the operator for more. {_SERVED_HERE}",
    ConditionReason.WILDCARD_NOT_GRANTED: "the name covers a whole top-level domain or zone of the operator, so it "
    "does not point here. List the hosts one by one, or ask the operator to add the domain behind the asterisk to "
    f"spec.domains of the Tenant. {_SERVED_HERE}",
}


def of_route(route: LoadBalancerRoute, tenant: Tenant | None) -> dict[str, NameClaimant]:
    """Return the claims of a route."""
    key = LoadBalancerKey(HTTP_LOAD_BALANCERS.kind, route.metadata.namespace, route.spec.load_balancer)
    hosts = [host for attachment in route.spec.attachments for host in attachment.hostnames]
    with_name = route.spec.origin.kind == "Ingress"
    return _claims(hosts, route, route.spec.origin, key, tenant, generate=with_name, deleting=route.deleting)


def of_http(obj: HTTPLoadBalancer, tenant: Tenant | None) -> dict[str, NameClaimant]:
    """Return the claims of an HTTP load balancer's listeners."""
    key = LoadBalancerKey(HTTP_LOAD_BALANCERS.kind, obj.metadata.namespace, obj.metadata.name)
    hosts = [
        listener.hostname
        for listener in obj.spec.listeners
        if obj.spec.wildcard_records or not listener.hostname.startswith(WILDCARD)
    ]
    with_name = obj.spec.origin.kind == "Gateway"
    return _claims(hosts, obj, obj.spec.origin, key, tenant, generate=with_name, deleting=obj.deleting)


def of_tcp(obj: TCPLoadBalancer, tenant: Tenant | None) -> dict[str, NameClaimant]:
    """Return the claims of a TCP load balancer."""
    key = LoadBalancerKey(TCP_LOAD_BALANCERS.kind, obj.metadata.namespace, obj.metadata.name)
    spec = obj.spec
    return _claims(
        spec.hostnames, obj, spec.origin, key, tenant, generate=spec.generate_hostname, deleting=obj.deleting
    )


def of_global(obj: GlobalService, tenant: Tenant | None) -> dict[str, NameClaimant]:
    """Return the claims of a GlobalService; a name that the hub makes is in the domain of its namespace's Tenant."""
    key = LoadBalancerKey(GLOBAL_SERVICES.kind, *obj.key)
    origin = Origin(kind=GLOBAL_SERVICES.kind, namespace=obj.metadata.namespace, name=obj.metadata.name)
    spec = obj.spec
    return _claims(spec.hostnames, obj, origin, key, tenant, generate=spec.generate_hostname, deleting=obj.deleting)


def of_endpoint(obj: LoadBalancer, tenant: Tenant | None) -> dict[str, NameClaimant]:
    """Return the claims of a Cluster's load balancer, also while it is deleted: its machines drain by that name."""
    key = LoadBalancerKey(LOAD_BALANCERS.kind, *obj.key)
    # Names are case-insensitive, and a final dot only marks them as complete.
    host = obj.spec.endpoint.host.lower().removesuffix(".")
    served = obj.spec.cluster_name and obj.spec.infrastructure_ref is None and host not in obj.status.addresses
    hosts = [host] if served and family_of(host) is None else []
    origin = Origin(kind=LOAD_BALANCERS.kind, namespace=obj.metadata.namespace, name=obj.metadata.name)
    return _claims(hosts, obj, origin, key, tenant, generate=False, deleting=False)


def _claims(
    hosts: Iterable[str],
    obj: KubeObject,
    origin: Origin,
    key: LoadBalancerKey,
    tenant: Tenant | None,
    *,
    generate: bool,
    deleting: bool,
) -> dict[str, NameClaimant]:
    if deleting:
        return {}
    meta = obj.metadata
    claimant = NameClaimant(
        space=meta.namespace,
        member=tenant.metadata.name if tenant is not None else "",
        kind=origin.kind or key.kind,
        namespace=origin.namespace,
        name=origin.name or meta.name,
        uid=origin.uid or meta.uid,
        load_balancer=key,
        created=meta.creation_timestamp or "",
        late=origin.kind == _INGRESS_CLASS,
        subtenant=subtenant_of(obj) if tenant is not None and tenant.spec.subtenants else "",
    )
    claims = {host: claimant for host in hosts if not host_problem(host, wildcard=True)}
    for number, domain in enumerate(tenant.name_domains if generate and tenant is not None else ()):
        if made := generated_host(domain, origin):
            claims[made] = msgspec.structs.replace(claimant, generated=True, former=number > 0)
    return claims


_log = structlog.get_logger(__name__)
_ClaimsOf = Callable[[Any, Tenant | None], dict[str, NameClaimant]]
_KINDS: dict[str, tuple[AnyResource, _ClaimsOf]] = {
    LOAD_BALANCER_ROUTES.kind: (LOAD_BALANCER_ROUTES, of_route),
    HTTP_LOAD_BALANCERS.kind: (HTTP_LOAD_BALANCERS, of_http),
    TCP_LOAD_BALANCERS.kind: (TCP_LOAD_BALANCERS, of_tcp),
    GLOBAL_SERVICES.kind: (GLOBAL_SERVICES, of_global),
    LOAD_BALANCERS.kind: (LOAD_BALANCERS, of_endpoint),
}


class Names:
    """Reconciles host names, and the objects that request them. ``domain`` is the hub's own, empty for none."""

    def __init__(
        self, *, cluster: Cluster, inventory: Inventory, clock: Clock, leading: Callable[[], bool], domain: str = ""
    ) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._clock = clock
        self._leading = leading
        self._domain = domain
        self._claims = NameClaims()
        self._addresses = LoadBalancerAddresses()
        self._quota = Quota(self._limit)
        self._domains = Domains((), domain)
        self._decisions: dict[str, NameDecision] = {}
        #: The namespaces of the owners of hosts without a Hostname.
        self._unrecorded: dict[str, NameClaimant] = {}
        self._owner_changed: list[Callable[[str], None]] = []
        self._hostnames = Overlay(inventory.hostnames)
        self._caches: dict[str, AnyCache] = {
            kind: inventory.caches[resource.plural] for kind, (resource, _) in _KINDS.items()
        }
        self._zones: WatchCache[DNSZone] | None = inventory.caches.get(DNS_ZONES.plural)
        self.hosts: KeyedQueue[str] = KeyedQueue(clock=clock, group_of=self._space_of)
        self.sources: KeyedQueue[ClaimSource] = KeyedQueue(clock=clock, group_of=attrgetter("namespace"))

    def watch(self) -> None:
        """Subscribe to everything that names depend on."""
        for kind, cache in self._caches.items():
            cache.on_change(lambda old, new, kind=kind: self._changed(kind, old, new))
        self._inventory.tenants.on_change(self._tenant_changed)
        self._inventory.tenants.broken.on_change(self._tenant_readability_changed)
        if self._zones is not None:
            self._zones.on_change(self._zone_changed)
        self._inventory.hostnames.on_change(self._hostname_changed)

    def lead(self) -> None:
        """Reconcile every name and every object that requests one: this replica writes now."""
        self._enqueue(self._claims.hosts())
        self._enqueue(hostname.spec.host for hostname in self._inventory.hostnames.values())
        self._decisions.clear()

    async def reconcile_host(self, host: str) -> float | None:
        """Record who owns ``host`` and where it points; return the seconds until the next reconcile."""
        if not self._leading() or self._inventory.region:
            return None  # the hub that serves all regions decides, so that each name has one writer
        there = self._hostnames.get(SYSTEM_NAMESPACE, object_name(host))
        if there is not None and there.deleting:
            # The seconds until the end of the record of a requested name is checked again. Its end wakes the name.
            # While the watch is silent, the records are read: a link that hangs is noticed late.
            if not self._claims.at(host):
                return None
            if self._inventory.hostnames.age_s > LAG_S:
                await self._inventory.hostnames.refresh()
            return LAG_S
        if there is None and (why := self._unknown_owner(host)):
            _log.warning("a name gets no owner", host=host, why=why)
            return HELD_AGAIN_S
        decision = decide(host, self._claims, self._owned, self._domains, self._is_full)
        if there is not None and not is_of_claims(there):
            self._decided(host, decision)
            return None
        passes = there is not None and (decision.owner is None or decision.owner.space != space_of(there))
        if passes and there is not None and (why := self._unreadable(space_of(there))):
            _log.warning("a name keeps its owner", host=host, why=why)
            return HELD_AGAIN_S
        # Counted before the write, so that concurrent writes count each other's names.
        self._enqueue(self._quota.hold(host, *_holder(decision.owner)))
        down, again_s = self._down(host, decision)
        written = await self._record(host, decision, there, down)
        self._unrecorded.pop(host, None)
        if written is None and decision.owner is not None:
            self._unrecorded[host] = decision.owner
        self._decided(host, decision)
        if written is not None and written.status.waiting != decision.waiting:
            await self._write_waiting(written, decision.waiting)
        return again_s

    async def reconcile_source(self, source: ClaimSource) -> float | None:
        """Write the result for its names into the status of one object."""
        resource, _ = _KINDS[source.kind]
        obj = self._caches[source.kind].get(source.namespace, source.name)
        claims = self._claims.of(source)
        if obj is None or obj.deleting or not self._leading() or self._inventory.region:
            return None
        if not all(host in self._decisions for host in claims):
            return None
        old, generation = obj.status.names, obj.metadata.generation
        now = wire_time(self._clock.now())
        unpublished, again_s = self._unpublished(source, claims)
        new = names_status(claims, self._decisions, old, generation=generation, now=now, unpublished=unpublished)
        status = type(obj.status)
        try:
            await write_status(
                self._cluster, resource, obj, status(names=old), status(names=new), manager=MANAGER_NAMES
            )
        except (Conflict, NotFound):  # replaced or deleted; the watch shows it
            return None
        return again_s

    def _unpublished(
        self, source: ClaimSource, claims: Mapping[str, NameClaimant]
    ) -> tuple[dict[str, str], float | None]:
        """Return the names of a source whose records cannot be written, and the seconds until there may be more."""
        unpublished: dict[str, str] = {}
        waits: list[float] = []
        for host in claims:
            hostname = self._inventory.hostnames.get(SYSTEM_NAMESPACE, object_name(host))
            if hostname is None or space_of(hostname) != source.namespace or claims[host].former:
                continue
            why, wait_s = why_unpublished(hostname, self._clock.now())
            if why:
                unpublished[host] = why
            elif wait_s:
                waits.append(wait_s)
        return unpublished, min(waits, default=None)

    # --- one name ----------------------------------------------------------------------------------------------------

    def _down(self, host: str, decision: NameDecision) -> tuple[list[LoadBalancerKey], float | None]:
        """Return the load balancers of a name that have been down for a while, and the seconds until there are more.

        The result is empty if no other hub can have an address of the name.
        """
        since = {key: at for key in decision.load_balancers if (at := self._addresses.down_since(key)) is not None}
        zone = longest_suffix(host, self._zones.values()) if since and self._zones is not None else None
        if zone is None or not zone.spec.peer_lease_seconds:
            return [], None
        now = self._clock.now()
        left_s = {key: DOWN_AFTER_S - (now - at).total_seconds() for key, at in since.items()}
        return [key for key in left_s if left_s[key] <= 0], min(
            (left for left in left_s.values() if left > 0), default=None
        )

    async def _record(
        self, host: str, decision: NameDecision, there: Hostname | None, down: Collection[LoadBalancerKey]
    ) -> Hostname | None:
        """Record the owner of ``host`` in its Hostname; return the Hostname as written, None if there is none."""
        owner = decision.owner
        if owner is None:
            if there is not None:
                await self._delete(there)
            return None
        requested = owner.generated or owner.load_balancer.kind != HTTP_LOAD_BALANCERS.kind
        if there is None and not requested and not self._domains.published(host):
            return None
        recorded = there.spec if there is not None else None
        spec = hostname_spec(host, owner, decision, recorded, self._addresses, down=down)
        if there is not None and same_spec(spec, there.spec):
            return there
        meta: JSONObject = {
            "name": object_name(host),
            "namespace": SYSTEM_NAMESPACE,
            "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_TENANT: label_value(owner.member or owner.space)},
        }
        # At once, which saves a write for each name; without it the next apply would remove it.
        meta["finalizers"] = [FINALIZER_CLEANUP]
        if there is not None:
            meta["uid"] = there.metadata.uid
        body: JSONObject = {"metadata": meta, "spec": hostname_body(spec)}
        check_leads(self._leading, f"Hostname {host}")
        answer = await self._cluster.apply(HOSTNAMES, body, manager=MANAGER_NAMES)
        _log.info("name recorded", host=host, owner=str(owner.load_balancer), addresses=spec.addresses)
        return self._hostnames.written(answer, before=there)

    async def _delete(self, there: Hostname) -> None:
        check_leads(self._leading, f"Hostname {there.spec.host}")
        try:
            await self._cluster.delete(HOSTNAMES, *there.key, uid=there.metadata.uid)
        except (Conflict, NotFound):
            return
        self._hostnames.deleted(there, at=wire_time(self._clock.now()))
        _log.info("name released", host=there.spec.host)

    async def _write_waiting(self, obj: Hostname, waiting: int) -> None:
        await write_status(
            self._cluster,
            HOSTNAMES,
            obj,
            HostnameStatus(waiting=obj.status.waiting),
            HostnameStatus(waiting=waiting),
            manager=MANAGER_NAMES,
        )

    def _decided(self, host: str, decision: NameDecision) -> None:
        too_many = [space for space, why in decision.refused.items() if why is ConditionReason.QUOTA_EXCEEDED]
        claimants = [claimant for claimant in self._claims.at(host).values() if claimant.space in too_many]
        full = {part for claimant in claimants for part in self._quota.full_parts(host, *_holder(claimant))}
        # Room may have appeared while the record was written.
        self._enqueue([*self._quota.refused(host, sorted(full)), *([host] if too_many and not full else ())])
        before = self._decisions.get(host)
        if self._claims.at(host):
            self._decisions[host] = decision
        else:
            self._decisions.pop(host, None)
        if before is None or _shown(before) != _shown(decision):
            for source in self._claims.at(host):
                self.sources.add(source)
            for changed in self._owner_changed if host in self._unrecorded else ():
                changed(host)

    def on_owner_change(self, changed: Callable[[str], None]) -> None:
        """Call ``changed`` with a host without a Hostname whose owner may have changed."""
        self._owner_changed.append(changed)

    def member_of(self, host: str) -> str | None:
        """Return the member that owns a host without a Hostname, None when there is none."""
        decision = self._decisions.get(host) if host in self._unrecorded else None
        return decision.owner.member or None if decision is not None and decision.owner is not None else None

    def _owned(self, host: str) -> str | None:
        there = self._hostnames.get(SYSTEM_NAMESPACE, object_name(host))
        if there is None or there.deleting:
            return _holder(self._unrecorded.get(host))[0] or None
        return space_of(there) if is_of_claims(there) else NOBODYS

    def _is_full(self, host: str, claimant: NameClaimant) -> bool:
        return self._quota.full(host, *_holder(claimant))

    def _limit(self, space: str, subtenant: str) -> int:
        """Return the name limit of a member or its sub-tenant; 0 for no limit, as for Clusters at the hub."""
        tenant = self._inventory.tenant_of(space)
        if tenant is None:
            return 0
        if subtenant:
            return tenant.limits_of(subtenant).max_hostnames
        return tenant.spec.max_hostnames or DEFAULT_MAX_HOSTNAMES

    def _unknown_owner(self, host: str) -> str:
        """Return why ``host`` may already belong to another member: its record, or domains, cannot be read."""
        hostnames = self._inventory.hostnames
        records = [key for key in (ObjectKey(SYSTEM_NAMESPACE, object_name(host)), UNNAMED) if key in hostnames.broken]
        return first_broken(HOSTNAMES.kind, hostnames, records) or self._inventory.domains_problem()

    def _unreadable(self, space: str) -> str:
        """Return why the claims of the member with this namespace are unknown; empty if they are known."""
        for kind, cache in self._caches.items():
            if cache.problem:
                return f"{kind}: {cache.problem}"
            if broken := [key for key in cache.broken if key.namespace == space]:
                return f"{kind} {broken[0]} cannot be read: {cache.broken[broken[0]]}"
        return self._inventory.tenants.problem

    # --- changes -----------------------------------------------------------------------------------------------------

    def _changed(self, kind: str, old: Any, new: Any) -> None:
        obj = new or old
        if new is None and is_moved(obj):
            return  # still served here, with its name, until another hub has both
        if kind != LOAD_BALANCER_ROUTES.kind:
            key = LoadBalancerKey(kind, obj.metadata.namespace, obj.metadata.name)
            if self._addresses.put(key, new.status if new is not None else None):
                self._enqueue(self._claims.at_load_balancer(key))
        self._ask(kind, obj.metadata.namespace, obj.metadata.name, new)

    def _ask(self, kind: str, namespace: str, name: str, obj: Any) -> None:
        source = ClaimSource(kind, namespace, name)
        claims = _KINDS[kind][1](obj, self._inventory.tenant_of(namespace)) if obj is not None else {}
        changed = self._claims.put(source, claims)
        self._enqueue(changed)
        if changed and obj is not None:
            self.sources.add(source)

    def _tenant_changed(self, old: Tenant | None, new: Tenant | None) -> None:
        if old is not None and new is not None and _of_names(old) == _of_names(new):
            return
        self._domains_changed()
        for namespace in {tenant.namespace for tenant in (old, new) if tenant is not None}:
            self._ask_for_all(namespace)

    def _tenant_readability_changed(self, key: ObjectKey) -> None:
        """Apply the domain of an unreadable Tenant: objects that were read before it have no names yet."""
        self._domains_changed()
        for tenant in self._inventory.all_tenants():
            if tenant.key == key:
                self._ask_for_all(tenant.namespace)

    def _ask_for_all(self, namespace: str) -> None:
        self._enqueue(self._quota.room(namespace))
        for kind, cache in self._caches.items():
            for obj in cache.by_index("namespace", namespace):
                self._ask(kind, namespace, obj.metadata.name, obj)

    def _zone_changed(self, old: DNSZone | None, new: DNSZone | None) -> None:
        if old is None or new is None:  # which zone it is never changes
            self._domains_changed()
        elif bool(old.spec.peer_lease_seconds) != bool(new.spec.peer_lease_seconds):
            self._enqueue(self._claims.in_domain(new.spec.zone))

    def _domains_changed(self) -> None:
        zones = [zone.spec.zone for zone in self._zones.values()] if self._zones is not None else []
        domains = Domains(self._inventory.all_tenants(), self._domain, zones)
        before, self._domains = self._domains, domains
        for domain in before.differences(domains):
            self._enqueue(self._claims.in_domain(domain))
        if before.differ_for_wildcards(domains):
            self._enqueue(host for host in self._claims.hosts() if host.startswith(WILDCARD))

    def _hostname_changed(self, old: Hostname | None, new: Hostname | None) -> None:
        changed = new or old
        if changed is None or not changed.spec.host:
            return
        host = changed.spec.host
        there = self._hostnames.get(SYSTEM_NAMESPACE, object_name(host))
        if there is not None and not there.deleting:
            subtenant = there.spec.owner.subtenant
        else:
            subtenant = _holder(self._unrecorded.get(host))[1]
        self._enqueue(self._quota.hold(host, self._owned(host), subtenant))
        if _state(old) != _state(new):
            for source in self._claims.at(host):
                self.sources.add(source)
        if old is None or new is None or old.spec != new.spec or old.deleting != new.deleting:
            self.hosts.add(host)

    def _space_of(self, host: str) -> str:
        """Return the namespace of the first member that claims a host, empty for none."""
        return next((claimant.space for claimant in self._claims.at(host).values()), "")

    def _enqueue(self, hosts: Iterable[str]) -> None:
        for host in hosts:
            self.hosts.add(host)


def _state(obj: Hostname | None) -> str:
    bad = problem(obj)
    return bad.reason if bad is not None else ""


def _shown(decision: NameDecision) -> tuple[object, ...]:
    """Return the part of a decision that the claiming objects show."""
    return (decision.owner.space if decision.owner is not None else None, sorted(decision.refused.items()))


def _of_names(tenant: Tenant) -> Sequence[object]:
    spec = tenant.spec
    return (
        tenant.namespace,
        tenant.metadata.name,
        tenant.accepted,
        spec.domains,
        tenant.name_domains,
        spec.max_hostnames,
        spec.subtenants,
    )


def why_unpublished(obj: Hostname | None, now: datetime) -> tuple[str, float]:
    """Return why a name is not published (empty if it is), and the seconds until users may see that."""
    bad = problem(obj)
    if bad is None:
        return "", 0.0
    age_s = (now - (parsed_time(bad.last_transition_time) or now)).total_seconds()
    return (bad.reason, 0.0) if age_s >= SHOWN_AFTER_S else ("", SHOWN_AFTER_S - age_s)


def problem(obj: Hostname | None) -> WireCondition | None:
    """Return the first condition that says why a name is not published; None if no zone contains it."""
    conditions = (obj.status.conditions or ()) if obj is not None and not obj.deleting else ()
    if any(condition.reason == ConditionReason.NO_SUCH_ZONE for condition in conditions):
        return None
    bad = {condition.type: condition for condition in conditions if condition.status == "False"}
    return next((bad[kind] for kind in _TYPES if kind in bad), None)


def _holder(claimant: NameClaimant | None) -> tuple[str, str]:
    """Return the member's namespace and the sub-tenant whose quota a name of ``claimant`` uses."""
    return (claimant.space, claimant.subtenant) if claimant is not None else ("", "")


#: The namespace of a member, and one of its sub-tenants; empty for the whole member.
_Part = tuple[str, str]


class Quota:
    """The names by member and sub-tenant; ``limit_of`` returns the limit of each, 0 for no limit."""

    def __init__(self, limit_of: Callable[[str, str], int]) -> None:
        self._limit_of = limit_of
        self._holders: dict[str, list[_Part]] = {}
        self._names: dict[_Part, set[str]] = {}
        self._waiting: dict[_Part, dict[str, None]] = {}

    def hold(self, host: str, space: str | None, subtenant: str = "") -> list[str]:
        """Count ``host`` for ``space`` (None or empty: for no member); return the names that now have room."""
        before, parts = self._holders.pop(host, []), _parts(space, subtenant)
        for part in before:
            self._names[part].discard(host)
            if not self._names[part]:
                del self._names[part]
        if parts:
            self._holders[host] = parts
        for part in parts:
            self._names.setdefault(part, set()).add(host)
        return [name for part in before if part not in parts for name in self._room(part)]

    def full(self, host: str, space: str, subtenant: str = "") -> bool:
        """Return whether ``host`` would exceed the limit of a member or sub-tenant."""
        return bool(self.full_parts(host, space, subtenant))

    def full_parts(self, host: str, space: str, subtenant: str) -> list[_Part]:
        """Return the member and the sub-tenant whose limits ``host`` would exceed."""
        return [
            part
            for part in _parts(space, subtenant)
            if (limit := self._limit_of(*part))
            and len(names := self._names.get(part, set[str]())) - (host in names) >= limit
        ]

    def refused(self, host: str, parts: Collection[_Part]) -> list[str]:
        """Replace the limits that ``host`` waits for; return the other names that get room at the former limits."""
        for part in parts:
            self._waiting.setdefault(part, {})[host] = None
        left = [part for part, hosts in self._waiting.items() if host in hosts and part not in parts]
        for part in left:
            del self._waiting[part][host]
            if not self._waiting[part]:
                del self._waiting[part]
        return [name for part in left for name in self._room(part)]

    def room(self, space: str) -> list[str]:
        """Return as many waiting names of ``space`` as it may have now, the longest waiting first."""
        return [name for part in list(self._waiting) if part[0] == space for name in self._room(part)]

    def _room(self, part: _Part) -> list[str]:
        waiting: Iterable[str] = self._waiting.get(part, ())
        limit = self._limit_of(*part)
        return list(islice(waiting, max(0, limit - len(self._names.get(part, ()))))) if limit else list(waiting)


def _parts(space: str | None, subtenant: str) -> list[_Part]:
    return [(space, part) for part in dict.fromkeys(("", subtenant))] if space else []


def names_status(
    claims: Mapping[str, NameClaimant],
    decisions: Mapping[str, NameDecision],
    before: NamesStatus,
    *,
    generation: int,
    now: str,
    unpublished: Mapping[str, str] = {},
) -> NamesStatus:
    """Return the names of a source for its status; ``now`` is RFC 3339.

    ``unpublished``: the hosts of the source whose records have not been written for a while, each with the reason.
    """
    refused: dict[str, ConditionReason] = {}
    generated = ""
    for host, claimant in sorted(claims.items()):
        decision = decisions.get(host)
        if decision is None or claimant.former:
            continue  # a name in a former domain has no condition
        if (reason := decision.refused.get(claimant.space)) is not None:
            refused[host] = reason
        elif claimant.generated and decision.owner is not None:
            generated = host
    shown_before = {condition.type for condition in before.conditions or ()}
    conditions: list[Condition] = []
    if refused:
        reason = next(iter(refused.values()))
        hosts = [host for host, why in refused.items() if why is reason]
        text = f"host {listed(hosts, _SHOWN)}: {_SENTENCES[reason]}"
        conditions.append(Condition(ConditionType.HOSTNAMES_ACCEPTED, False, reason, text))
    elif ConditionType.HOSTNAMES_ACCEPTED in shown_before:
        conditions.append(Condition(ConditionType.HOSTNAMES_ACCEPTED, True, ConditionReason.HOSTNAMES_ACCEPTED, ""))
    if unpublished:
        why = min(unpublished.values())
        hosts = [host for host, reason in sorted(unpublished.items()) if reason == why]
        text = (
            f"host {listed(hosts, _SHOWN)}: the records cannot be written ({why}), so the name may not resolve to this "
            f"address. The hub retries, and the operator reads more in the Hostname. {_SERVED_HERE}"
        )
        reason = ConditionReason.HOSTNAME_NOT_PUBLISHED
        conditions.append(Condition(ConditionType.HOSTNAMES_PUBLISHED, False, reason, text))
    elif ConditionType.HOSTNAMES_PUBLISHED in shown_before:
        conditions.append(Condition(ConditionType.HOSTNAMES_PUBLISHED, True, ConditionReason.HOSTNAMES_PUBLISHED, ""))
    wire = wire_conditions(conditions, before.conditions, generation=generation, now=now)
    return NamesStatus(hostname=generated, conditions=wire or None)
