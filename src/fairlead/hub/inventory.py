"""The objects that a hub reads: one watch cache for each kind, and the keys that a change of them concerns.

In: a Cluster. Out: typed objects by key, and calls of ``wake`` with the keys of load balancers to reconcile. The kinds
that request load balancers (intents) register their objects here; all other kinds are the same for every intent.
``AddressesInUse`` has the addresses and ports at which load balancers answer.
Never decides anything, and never reports an object as gone because it could not be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from fairlead.api.addresspool import ADDRESS_POOLS, AddressPool
from fairlead.api.backendgroup import BACKEND_RECORDS, BackendRecord
from fairlead.api.hostname import HOSTNAMES, Hostname
from fairlead.api.intent import IntentObject
from fairlead.api.kubernetes import ENDPOINT_SLICES, LEASES, EndpointSlice, Lease
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES, LoadBalancerClass
from fairlead.api.managedcertificate import (
    CERTIFICATE_ISSUERS,
    MANAGED_CERTIFICATES,
    CertificateIssuer,
    ManagedCertificate,
)
from fairlead.api.meta import ObjectKey, Resource, only_status_changed, without_status
from fairlead.api.multicluster import EXPORTED_SERVICES, IMPORTED_SERVICES, ExportedService, ImportedService
from fairlead.api.names import (
    DEFAULT_CLASS,
    HUB_LEASE,
    IMPORT_SLICE_MANAGED_BY,
    LABEL_BACKEND,
    LABEL_EXPORT,
    LABEL_IMPORT,
    LABEL_LOAD_BALANCER,
    LABEL_MANAGED_BY,
    LABEL_NODES,
    LABEL_NODES_IPV6,
    LABEL_SLICE_MANAGED_BY,
    MANAGED_BY,
    SLICE_MANAGED_BY,
    SYSTEM_NAMESPACE,
    backend_label,
    hub_lease,
    hub_name,
    label_value,
)
from fairlead.api.proxymachine import PROXY_MACHINES, ProxyMachine
from fairlead.api.tenant import STAMPED_LEASES, TENANTS, StampedLease, Tenant
from fairlead.kube.cache import AnyCache, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import Overlay
from fairlead.ledger.records import load_balancer_of
from fairlead.model.keys import LoadBalancerKey, TargetKey, canonical_address
from fairlead.publish.publisher import published_slices

#: Called with load balancers to reconcile, and why: a phrase for their history.
Wake = Callable[[Iterable[LoadBalancerKey], str], None]

log = structlog.get_logger(__name__)

#: How often it is checked whether everything can be read again.
_LOOK_S = 1.0
#: A hub whose Lease was deleted creates it again within seconds.
_LEASE_AGAIN_S = 30.0
#: The end of a sentence about an object that holds targets and cannot be read.
UNTIL_READ = "correct or delete the object: until then the hub removes no target that it has read"

T = TypeVar("T", bound=IntentObject)


class IntentObjects(Generic[T]):
    """The objects of one kind of intent that this hub serves.

    ``serves`` selects them; ``recorded`` returns the part of the status that a reconcile depends on; ``region`` returns
    the region of an object. ``present`` is the cache with the hub's own writes on top.
    """

    def __init__(
        self,
        cache: WatchCache[T],
        resource: Resource[T],
        *,
        serves: Callable[[T], bool],
        recorded: Callable[[T], object],
        region: Callable[[T], str] = lambda _obj: "",
    ) -> None:
        self.resource = resource
        self.cache = cache
        self.present: Overlay[T] = Overlay(cache)
        self.serves = serves
        self.region = region
        self._recorded = recorded

    @staticmethod
    def indexes() -> dict[str, Callable[[T], Iterable[Hashable]]]:
        """Return the indexes that the cache of every intent must have."""
        return {
            "namespace": lambda obj: [obj.metadata.namespace],
            "class": lambda obj: [obj.class_name or DEFAULT_CLASS],
        }

    def key(self, obj: T) -> LoadBalancerKey:
        """Return the key of the load balancer that ``obj`` requests."""
        return LoadBalancerKey(self.resource.kind, obj.metadata.namespace, obj.metadata.name)

    def get(self, key: LoadBalancerKey) -> T | None:
        """Return the object of ``key`` as it was written last, None when this hub serves none."""
        obj = self.present.get(key.namespace, key.name)
        return obj if obj is not None and self.serves(obj) else None

    def served(self) -> list[T]:
        """Return every object that this hub serves, in no order."""
        return [obj for obj in self.cache.values() if self.serves(obj)]

    def keys_by_index(self, name: str, value: Hashable) -> list[LoadBalancerKey]:
        """Return the keys of the served objects that an index of the cache holds under ``value``."""
        return [self.key(obj) for obj in self.cache.by_index(name, value) if self.serves(obj)]

    def keys_of_member(self, namespace: str) -> Collection[LoadBalancerKey]:
        """Return the keys of the served objects that depend on the member with this namespace."""
        return self.keys_by_index("namespace", namespace)

    def open_ports(self, obj: T) -> Collection[int]:
        """Return the ports at which the load balancer of ``obj`` answers; none for a Hostname."""
        del obj
        return ()

    def with_targets(self, address: str, ports: Collection[int]) -> Collection[LoadBalancerKey]:
        """Return the load balancers with an endpoint at this address and one of these ports."""
        del address, ports
        return ()

    def wake_on_change(self, wake: Wake) -> None:
        """Wake the key of each object whose spec, metadata or recorded status changes."""

        def changed(old: T | None, new: T | None) -> None:
            concerned = [obj for obj in (new, old) if obj is not None and self.serves(obj)]
            if concerned and not (old and new and self._same(old, new)):
                wake([self.key(concerned[0])], f"{self.resource.kind} changed")

        self.cache.on_change(changed)

    def _same(self, old: T, new: T) -> bool:
        return only_status_changed(old, new) and self._recorded(old) == self._recorded(new)


class AddressSource(Enum):
    """How an address is known: allocated, perhaps not on record yet; or shown in a status, perhaps of a paused one."""

    ALLOCATED = "allocated"
    SHOWN = "shown"


class AddressesInUse:
    """The addresses and ports of all load balancers; ``changed`` gets the pairs whose use begins or ends."""

    def __init__(self, changed: Callable[[Collection[TargetKey]], None]) -> None:
        self._changed = changed
        self._pairs: dict[tuple[LoadBalancerKey, AddressSource], frozenset[TargetKey]] = {}
        self._holders: dict[TargetKey, set[LoadBalancerKey]] = {}

    @property
    def holders(self) -> Mapping[TargetKey, Collection[LoadBalancerKey]]:
        """Return the load balancers that answer at each address (canonical) and port; a live mapping."""
        return self._holders

    def put(
        self, key: LoadBalancerKey, source: AddressSource, *, addresses: Iterable[str] = (), ports: Collection[int] = ()
    ) -> None:
        """Replace the addresses and ports of ``key`` according to ``source``."""
        now = frozenset(TargetKey(canonical_address(address), port) for address in addresses for port in ports)
        before = self._pairs.get((key, source), frozenset())
        if now == before:
            return
        if now:
            self._pairs[key, source] = now
        else:
            del self._pairs[key, source]
        others = frozenset[TargetKey]().union(
            *(self._pairs.get((key, other), ()) for other in AddressSource if other != source)
        )
        changed = [pair for pair in now - before if pair not in self._holders]
        for pair in now - before:
            self._holders.setdefault(pair, set()).add(key)
        for pair in before - now - others:
            self._holders[pair].discard(key)
            if not self._holders[pair]:
                del self._holders[pair]
                changed.append(pair)
        if changed:
            self._changed(changed)


class RegionalHubs:
    """The hubs of regions at one API, by their Leases.

    A Lease that is no longer renewed still counts: the proxies of its region serve while no hub runs there. A region
    whose Lease was deleted is free once its hub has had time to create it again.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cache: WatchCache[Lease] = WatchCache(cluster, LEASES, namespace=SYSTEM_NAMESPACE)
        self._deleted_s: dict[str, float] = {}
        self._leases: set[str] = set()
        self._changed: list[Callable[[str], None]] = []
        self._was_deleted = asyncio.Event()
        self.cache.on_object(lambda lease: self._note(lease.key))
        self.cache.broken.on_change(self._note)

    def __bool__(self) -> bool:
        return bool(self._leases)

    def serves(self, region: str) -> bool:
        """Return whether ``region`` has a hub of its own."""
        return bool(region) and hub_lease(region) in self._leases

    def on_change(self, changed: Callable[[str], None]) -> None:
        """Call ``changed`` with the name of each Lease whose hub now serves its region, or no longer does."""
        self._changed.append(changed)

    async def run(self) -> None:
        """Free the regions whose Lease was deleted, until cancelled."""
        while await self._was_deleted.wait():
            await self.cache.clock.sleep(_LOOK_S)
            now_s = self.cache.clock.monotonic()
            for lease, deleted_s in list(self._deleted_s.items()):
                if now_s - deleted_s >= _LEASE_AGAIN_S and not self.cache.problem:
                    del self._deleted_s[lease]
                    self._leases.discard(lease)
                    self._report(lease, "the Lease of a regional hub was deleted; this hub decides about the region")
            if not self._deleted_s:
                self._was_deleted.clear()

    def _note(self, key: ObjectKey) -> None:
        lease = key.name
        if not lease.startswith(f"{HUB_LEASE}-"):
            return
        if key not in self.cache.broken and self.cache.get(*key) is None:
            self._deleted_s[lease] = self.cache.clock.monotonic()
            self._was_deleted.set()
            return
        self._deleted_s.pop(lease, None)
        if lease not in self._leases:
            self._leases.add(lease)
            self._report(
                lease,
                "a region has a hub of its own; this hub writes nothing about the region until that Lease is deleted",
            )

    def _report(self, lease: str, sentence: str) -> None:
        log.info("regional hub", lease=f"{SYSTEM_NAMESPACE}/{lease}", sentence=sentence)
        for changed in self._changed:
            changed(lease)


class Inventory:
    """The hub's caches, wired to the keys that depend on them.

    ``region``: the region of this hub; empty: it decides about every region without a hub of its own; None: about all.
    ``machines``: whether the hub has proxy machines.
    """

    def __init__(self, cluster: Cluster, *, region: str | None = None, machines: bool = False) -> None:
        self.region = region or ""
        self.regional_hubs = RegionalHubs(cluster) if region == "" else None
        self._incomplete: set[LoadBalancerKey] = set()
        self._was_incomplete = asyncio.Event()
        self.tenants: WatchCache[Tenant] = WatchCache(
            cluster,
            TENANTS,
            indexes={"namespace": lambda tenant: [tenant.namespace], "set": lambda tenant: [tenant.spec.cluster_set]},
        )
        self.classes: WatchCache[LoadBalancerClass] = WatchCache(cluster, LOAD_BALANCER_CLASSES)
        self.address_pools: WatchCache[AddressPool] = WatchCache(cluster, ADDRESS_POOLS)
        #: The last version of a deleted default class; the leader creates the class again from it.
        self.last_default_class: LoadBalancerClass | None = None
        self.slices: WatchCache[EndpointSlice] = WatchCache(
            cluster,
            ENDPOINT_SLICES,
            label_selector=f"{LABEL_SLICE_MANAGED_BY}={SLICE_MANAGED_BY}",
            indexes={
                "label": slice_labels,
                "backend": backend_labels,
                "nodes": nodes_namespaces,
                "export": exports_of_slice,
                "address": addresses_of_slice,
                "gated": gated_namespaces,
            },
        )
        self.records: WatchCache[BackendRecord] = WatchCache(
            cluster, BACKEND_RECORDS, indexes={"lb": lambda record: [load_balancer_of(record)]}
        )
        self.leases: WatchCache[StampedLease] = WatchCache(
            cluster, STAMPED_LEASES, label_selector=f"{LABEL_MANAGED_BY}={MANAGED_BY}"
        )
        self._hostnames: WatchCache[Hostname] = WatchCache(cluster, HOSTNAMES, namespace=SYSTEM_NAMESPACE)
        self.machines: WatchCache[ProxyMachine] | None = WatchCache(cluster, PROXY_MACHINES) if machines else None
        self.issuers: WatchCache[CertificateIssuer] = WatchCache(cluster, CERTIFICATE_ISSUERS)
        self.managed: WatchCache[ManagedCertificate] = WatchCache(
            cluster,
            MANAGED_CERTIFICATES,
            indexes={
                "lb": lambda obj: [(obj.metadata.namespace, name) for name in obj.spec.load_balancers],
                "secret": lambda obj: [(obj.metadata.namespace, obj.secret_name)],
                "issuer": lambda obj: [obj.spec.issuer],
                "namespace": lambda obj: [obj.metadata.namespace],
                "host": lambda obj: [host.lower() for host in obj.spec.hosts],
            },
        )
        self.exports: WatchCache[ExportedService] = WatchCache(
            cluster,
            EXPORTED_SERVICES,
            indexes={"service": service_of_shared, "namespace": lambda obj: [obj.metadata.namespace]},
        )
        self.imports: WatchCache[ImportedService] = WatchCache(
            cluster, IMPORTED_SERVICES, indexes={"service": service_of_shared}
        )
        #: What the hub wrote for members that import Services.
        self.import_slices = published_slices(
            cluster, label_selector=f"{LABEL_SLICE_MANAGED_BY}={IMPORT_SLICE_MANAGED_BY},{LABEL_IMPORT}"
        )
        #: The addresses of load balancers, at which no member may have an endpoint.
        self.in_use = AddressesInUse(self._in_use_changed)
        #: The objects of each kind of intent, by kind.
        self.intents: dict[str, IntentObjects[Any]] = {}
        self._intent_caches: dict[str, AnyCache] = {}
        self._wakes: list[Callable[[LoadBalancerKey, str], None]] = []
        self.wake_on_readability("EndpointSlice", self.slices, lambda obj: self.keys_of_namespace(obj.namespace))
        # The status of a class counts its users, which does not concern them.
        self.classes.on_object(self._class_changed, part=lambda obj: (obj.spec, without_status(obj)))
        # The status counts records by state; a new or deleted record may change what is desired.
        self.records.on_object(self._record_changed, part=lambda record: record.status.state)
        self.tenants.on_change(self._tenant_changed)

    def register(self, objects: IntentObjects[Any], others: Mapping[str, AnyCache] | None = None) -> None:
        """Add one kind of intent, and the other caches (by plural) that only this kind reads."""
        self.intents[objects.resource.kind] = objects
        self._intent_caches |= {objects.resource.plural: objects.cache, **(others or {})}
        objects.wake_on_change(self.wake)

        def status_shown(old: Any, new: Any) -> None:
            addresses, ports = (new.status.addresses, objects.open_ports(new)) if new is not None else ((), ())
            self.in_use.put(objects.key(new or old), AddressSource.SHOWN, addresses=addresses, ports=ports)

        objects.cache.on_change(status_shown)
        kind = objects.resource.kind
        self.wake_on_readability(kind, objects.cache, lambda obj: [LoadBalancerKey(kind, obj.namespace, obj.name)])

    @property
    def hostnames(self) -> WatchCache[Hostname]:
        """Return the cache of the names that members own."""
        objects = self.intents.get(HOSTNAMES.kind)
        return objects.cache if objects is not None else self._hostnames

    @property
    def caches(self) -> dict[str, AnyCache]:
        """Return every cache by the plural of its kind."""
        return {
            "tenants": self.tenants,
            "loadbalancerclasses": self.classes,
            "addresspools": self.address_pools,
            "endpointslices": self.slices,
            "leases": self.leases,
            "backendrecords": self.records,
            HOSTNAMES.plural: self.hostnames,
            "certificateissuers": self.issuers,
            "managedcertificates": self.managed,
            EXPORTED_SERVICES.plural: self.exports,
            IMPORTED_SERVICES.plural: self.imports,
            "endpointslices of imports": self.import_slices,
            **({PROXY_MACHINES.plural: self.machines} if self.machines is not None else {}),
            **({f"leases in {SYSTEM_NAMESPACE}": self.regional_hubs.cache} if self.regional_hubs is not None else {}),
            **self._intent_caches,
        }

    async def refresh(self) -> None:
        """Read records of the former leader again: the watch of a new leader may lag by seconds.

        Endpoints and heartbeats are not on record.

        Raises:
            FairleadError: some kind could not be listed.
        """
        for cache in self.caches.values():
            if cache not in (self.slices, self.import_slices, self.leases):
                await cache.refresh()

    @property
    def problem(self) -> str:
        """Return why the view is incomplete right now, empty when it is complete."""
        return "; ".join(f"{name}: {cache.problem}" for name, cache in self.caches.items() if cache.problem)

    def problem_for(self, key: LoadBalancerKey) -> str:
        """Return why the view of ``key`` is incomplete right now; it is woken once everything can be read."""
        if problem := self.problem:
            self._incomplete.add(key)
            self._was_incomplete.set()
        return problem

    async def wake_incomplete(self) -> None:
        """Wake the keys that were decided on an incomplete view once everything can be read, until cancelled."""
        while await self._was_incomplete.wait():
            await self.tenants.clock.sleep(_LOOK_S)
            if not self.problem:
                keys, self._incomplete = self._incomplete, set()
                self._was_incomplete.clear()
                self.wake(keys, "everything can be read again")

    # --- regions ------------------------------------------------------------------------------------------------

    def serves_region(self, region: str) -> bool:
        """Return whether the proxies of this hub serve the load balancers of ``region``; without a region, all."""
        return not self.region or (bool(region) and hub_lease(region) == hub_lease(self.region))

    def decides(self, key: LoadBalancerKey) -> bool:
        """Return whether this hub may write about ``key``; if its region has a hub, only that hub may."""
        objects = self.intents.get(key.kind)
        if objects is None or not self.regional_hubs:
            return True
        obj = objects.cache.get(key.namespace, key.name)
        return obj is None or not self.regional_hubs.serves(objects.region(obj))

    def decides_in(self, region: str) -> bool:
        """Return whether this hub decides about the load balancers of ``region``."""
        regional = self.regional_hubs
        return self.serves_region(region) and not (regional is not None and regional.serves(region))

    def keys_of_region(self, lease: str) -> list[LoadBalancerKey]:
        """Return the load balancers of the region whose hub has this Lease."""
        return [
            objects.key(obj)
            for objects in self.intents.values()
            for obj in objects.cache.values()
            if hub_lease(objects.region(obj)) == lease
        ]

    # --- intents of every kind --------------------------------------------------------------------------------

    def intent(self, key: LoadBalancerKey) -> IntentObject | None:
        """Return the object that requests ``key``, None when this hub serves none."""
        objects = self.intents.get(key.kind)
        return objects.get(key) if objects is not None else None

    def exists(self, key: LoadBalancerKey) -> bool:
        """Return whether an object requests ``key``, whichever hub serves it."""
        objects = self.intents.get(key.kind)
        return objects is not None and objects.cache.get(key.namespace, key.name) is not None

    def is_unreadable(self, key: LoadBalancerKey) -> bool:
        """Return whether the object of ``key`` exists and cannot be decoded."""
        objects = self.intents.get(key.kind)
        return objects is not None and (key.namespace, key.name) in objects.cache.broken

    def all_keys(self) -> list[LoadBalancerKey]:
        """Return every load balancer that this hub serves."""
        return [objects.key(obj) for objects in self.intents.values() for obj in objects.served()]

    def unreadable_keys(self) -> list[LoadBalancerKey]:
        """Return every load balancer whose object cannot be decoded."""
        return [LoadBalancerKey(kind, *key) for kind, objects in self.intents.items() for key in objects.cache.broken]

    def objects(self) -> Iterator[tuple[LoadBalancerKey, IntentObject]]:
        """Yield every intent of every hub with its key."""
        for objects in self.intents.values():
            for obj in objects.cache.values():
                yield objects.key(obj), obj

    def load_balancer_class(self, name: str) -> LoadBalancerClass | None:
        """Return a class; for a deleted default class its last version, since the leader creates it again."""
        known = self.classes.get("", name or DEFAULT_CLASS)
        if (name or DEFAULT_CLASS) == DEFAULT_CLASS and (known is None or known.deleting):
            return self.last_default_class or known
        return known

    def users_of_class(self, name: str) -> list[LoadBalancerKey]:
        """Return the load balancers of every hub that name the LoadBalancerClass ``name``."""
        return [objects.key(obj) for objects in self.intents.values() for obj in objects.cache.by_index("class", name)]

    def keys_of_namespace(self, namespace: str) -> list[LoadBalancerKey]:
        """Return the load balancers that depend on the member with this namespace, of every kind."""
        return [key for objects in self.intents.values() for key in objects.keys_of_member(namespace)]

    # --- members ------------------------------------------------------------------------------------------------

    def all_tenants(self) -> list[Tenant]:
        """Return every Tenant, with the readable part of those that cannot be decoded."""
        unread = (remains.obj for remains in self.tenants.remains().values())
        return [*self.tenants.values(), *(tenant for tenant in unread if tenant is not None)]

    def tenant(self, name: str) -> Tenant | None:
        """Return a Tenant; of one that was never read, its readable part, unless a right of the member is lost."""
        known = self.tenants.get("", name)
        remains = None if known is not None else self.tenants.remains().get(ObjectKey("", name))
        if remains is None or not (remains.has("spec.namespace") and remains.has("spec.targetRanges")):
            return known
        return remains.obj

    def domains_problem(self) -> str:
        """Return the first Tenant with unreadable domains, which may have any domain; empty if there is none."""
        unread = self.tenants.remains().items()
        lost = [key for key, remains in unread if not (remains.has("spec.domains") and remains.has("status.domain"))]
        return first_broken(TENANTS.kind, self.tenants, sorted(lost))

    def tenant_problem(self, namespace: str) -> str:
        """Return why the rights of the member with this namespace are unknown, empty when they are known."""
        if not self.tenants.broken or any(
            not tenant.refused for tenant in self.tenants.by_index("namespace", namespace)
        ):
            return ""
        unread = self.tenants.remains().items()
        lost = [
            key
            for key, remains in unread
            if not remains.has("spec") and (remains.obj is None or remains.obj.namespace == namespace)
        ]
        return first_broken(TENANTS.kind, self.tenants, sorted(lost))

    def unread_in(self, namespace: str) -> str:
        """Return the first load balancer or record in a namespace that was never read; empty if there is none."""
        for cache in (*(objects.cache for objects in self.intents.values()), self.records):
            if unread := sorted(key for key in cache.remains() if key.namespace in ("", namespace)):
                return first_broken(cache.resource.kind, cache, unread)
        return ""

    def tenant_of(self, namespace: str) -> Tenant | None:
        """Return the Tenant whose namespace this is: only an accepted one has the label of the namespace."""
        of_namespace = self.tenants.by_index("namespace", namespace)
        if self.tenants.broken:
            of_namespace = [tenant for tenant in self.all_tenants() if tenant.namespace == namespace]
        tenants = (tenant for tenant in of_namespace if not tenant.refused)
        return min(tenants, key=lambda tenant: (tenant.accepted != "True", tenant.age_order), default=None)

    def slices_of(self, key: LoadBalancerKey) -> tuple[EndpointSlice, ...]:
        """Return the slices that belong to one load balancer and can be read."""
        return self._readable_slices("label", (key.namespace, label_value(key.name)))

    def backend_slices_of(self, namespace: str, service: str) -> tuple[EndpointSlice, ...]:
        """Return the readable slices of one Service ("namespace/name") of the member with this namespace at the hub."""
        return self._readable_slices("backend", (namespace, backend_label(service)))

    def export_slices_of(self, namespace: str, service: str) -> tuple[EndpointSlice, ...]:
        """Return the readable slices of one exported Service ("namespace/name") of the member with this namespace."""
        return self._readable_slices("export", (namespace, backend_label(service)))

    def node_slices_of(self, namespace: str) -> tuple[EndpointSlice, ...]:
        """Return the slices that hold the nodes of a member and can be read."""
        return self._readable_slices("nodes", namespace)

    def _readable_slices(self, index: str, value: Hashable) -> tuple[EndpointSlice, ...]:
        """Return slices as they are now, without unreadable ones.

        The targets of an unreadable slice are held, and listed as held, so a hub that starts meanwhile restores them.
        """
        slices, broken = self.slices.by_index(index, value), self.slices.broken
        return tuple(item for item in slices if item.key not in broken) if broken else tuple(slices)

    def gated_pods(self, namespace: str) -> dict[TargetKey, str]:
        """Return the uids of the pods of a member that wait for their readiness gate, by address and port.

        Pods on the network of their node have its address.
        """
        return {
            TargetKey(canonical_address(endpoint.addresses[0]), port.port): endpoint.target_ref.uid
            for endpoint_slice in self.slices.indexed("gated", namespace)
            for endpoint in endpoint_slice.endpoints or ()
            if endpoint.addresses and endpoint.target_ref is not None and endpoint.awaits_gate
            for port in endpoint_slice.ports or ()
            if port.port is not None
        }

    def members_with_node(self, address: str) -> set[str]:
        """Return the namespaces of the members that have a node at ``address``, in canonical form."""
        slices = self.slices.indexed("address", address)
        return {namespace for endpoint_slice in slices for namespace in nodes_namespaces(endpoint_slice)}

    def slices_at(self, address: str, ports: Collection[int]) -> Iterator[EndpointSlice]:
        """Yield the slices with an endpoint at this address, in canonical form, and one of these ports."""
        numbers = frozenset(ports)
        for endpoint_slice in self.slices.indexed("address", address):
            if not numbers.isdisjoint(port.port for port in endpoint_slice.ports or ()):
                yield endpoint_slice

    def unreadable_slices(self, namespace: str) -> str:
        """Return the first slice of a member that cannot be decoded; empty if there is none."""
        broken = sorted(key for key in self.slices.broken if key[0] == namespace)
        return first_broken("EndpointSlice", self.slices, broken)

    # --- wake-ups -----------------------------------------------------------------------------------------------

    def on_wake(self, wake: Callable[[LoadBalancerKey, str], None]) -> None:
        """Call ``wake`` with every load balancer that a change concerns, and the cause."""
        self._wakes.append(wake)

    def wake(self, keys: Iterable[LoadBalancerKey], cause: str) -> None:
        """Have ``keys`` reconciled; ``cause`` is for their history."""
        for key in keys:
            for call in self._wakes:
                call(key, cause)

    def wake_on_readability(
        self, kind: str, cache: AnyCache, concerned: Callable[[ObjectKey], Iterable[LoadBalancerKey]]
    ) -> None:
        """Wake the load balancers that an object concerns when it becomes unreadable, or readable again."""

        def changed(obj: ObjectKey) -> None:
            self.wake(concerned(obj), f"{kind} {obj.name} became unreadable, or readable again")

        cache.broken.on_change(changed)

    def _in_use_changed(self, targets: Collection[TargetKey]) -> None:
        ports_at: dict[str, list[int]] = {}
        for target in sorted(targets):
            ports_at.setdefault(target.address, []).append(target.port)
        for address, ports in ports_at.items():
            more = f" (and {len(ports) - 1} more ports)" if len(ports) > 1 else ""
            cause = f"a load balancer began or ceased to answer at {TargetKey(address, ports[0])}{more}"
            for objects in self.intents.values():
                self.wake(objects.with_targets(address, ports), cause)

    def _tenant_changed(self, old: Tenant | None, new: Tenant | None) -> None:
        if old is None or new is None or _of_load_balancers(old) != _of_load_balancers(new):
            for namespace in {tenant.namespace for tenant in (old, new) if tenant is not None}:
                self.wake(self.keys_of_namespace(namespace), "Tenant changed")

    def _record_changed(self, record: BackendRecord) -> None:
        self.wake([load_balancer_of(record)], f"BackendRecord {record.metadata.name} changed")

    def _class_changed(self, changed: LoadBalancerClass) -> None:
        if changed.metadata.name == DEFAULT_CLASS:
            metadata = msgspec.structs.replace(changed.metadata, deletion_timestamp=None)
            self.last_default_class = msgspec.structs.replace(changed, metadata=metadata)
        for objects in self.intents.values():
            keys = objects.keys_by_index("class", changed.metadata.name)
            self.wake(keys, f"LoadBalancerClass {changed.metadata.name} changed")


def _of_load_balancers(tenant: Tenant) -> tuple[object, ...]:
    """Return the part of a Tenant that its load balancers depend on."""
    return (tenant.spec, tenant.accepted, tenant.draining, tenant.name_domains)


def service_of_shared(obj: ExportedService | ImportedService) -> list[tuple[str, str]]:
    """Return namespace and name of the Service that is exported or imported; none for a name that does not fit it."""
    key = (obj.spec.namespace, obj.spec.name)
    return [key] if obj.metadata.name == hub_name(*key) else []


def first_broken(kind: str, cache: AnyCache, keys: Sequence[ObjectKey]) -> str:
    """Return a sentence about the first of ``keys``, which cannot be decoded; empty for no keys."""
    return f"{kind} {keys[0]} cannot be read: {cache.broken[keys[0]]}" if keys else ""


def slice_labels(endpoint_slice: EndpointSlice) -> list[tuple[str, str]]:
    """Return namespace and label of the load balancer that a slice belongs to; empty for slices of nodes."""
    label = endpoint_slice.label(LABEL_LOAD_BALANCER)
    return [(endpoint_slice.metadata.namespace, label)] if label else []


def backend_labels(endpoint_slice: EndpointSlice) -> list[tuple[str, str]]:
    """Return namespace and label of the Service whose endpoints a slice holds for routes; empty for other slices."""
    label = endpoint_slice.label(LABEL_BACKEND)
    return [(endpoint_slice.metadata.namespace, label)] if label else []


def exports_of_slice(endpoint_slice: EndpointSlice) -> list[tuple[str, str]]:
    """Return namespace and label of the exported Service whose endpoints a slice holds; empty for other slices."""
    label = endpoint_slice.label(LABEL_EXPORT)
    return [(endpoint_slice.metadata.namespace, label)] if label else []


def nodes_namespaces(endpoint_slice: EndpointSlice) -> list[str]:
    """Return the namespace of the member whose nodes a slice holds; empty for slices of one load balancer."""
    of_nodes = endpoint_slice.label(LABEL_NODES) or endpoint_slice.label(LABEL_NODES_IPV6)
    return [endpoint_slice.metadata.namespace] if of_nodes else []


def gated_namespaces(endpoint_slice: EndpointSlice) -> list[str]:
    """Return the namespace of a slice that lists pods which wait for their readiness gate; empty for any other."""
    gated = any(endpoint.awaits_gate for endpoint in endpoint_slice.endpoints or ())
    return [endpoint_slice.metadata.namespace] if gated else []


def addresses_of_slice(endpoint_slice: EndpointSlice) -> set[str]:
    """Return the addresses of a slice in canonical form, without its ports: there may be thousands of both."""
    endpoints = endpoint_slice.endpoints or ()
    return {canonical_address(endpoint.addresses[0]) for endpoint in endpoints if endpoint.addresses}
