"""Services of the member: the objects published for each, and the status of each.

    Service ────────┬─► key ─► decide ─► build_export ─► plan_publication ─► Publisher ─► objects at the hub
    EndpointSlice ──┤            │            └─ refused, here or by the hub: keep what is there, Warning on the Service
    TCPLoadBalancer ┘            └─ not ours: remove
    TCPLoadBalancer ──► key ─► build_feedback ─► MemberStatusWriter ─► addresses, annotations, Events
    Node ─────────────► key of all nodes ─► slices of the nodes

In: caches. Out: writes at the hub and in the member. Never: acts on a cache that is not synced, removes objects
because of an error, or creates a Service.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

import structlog
from msgspec.structs import replace

from fairlead.agent.engine import SERVICES_LANE, AgentMetrics, Engine, Source
from fairlead.agent.identity import Key, ServiceKey, certificate_name, key_of, service_of
from fairlead.agent.slices import NodeAddressType, NodeEntry, NodesPlace, build_nodes, entries_from_nodes
from fairlead.agent.sources.caches import (
    BY_SECRET,
    MemberService,
    ServiceCaches,
    client_secrets_named,
    service_of_slice,
)
from fairlead.agent.sources.http import CertificateRequest
from fairlead.agent.sources.service.plan import (
    CloudLoadBalancer,
    Decision,
    NotOurs,
    NotYet,
    Ours,
    ServiceView,
    Settings,
    build_export,
    decide,
    find_warnings,
    service_in_effect,
    slices_in_effect,
)
from fairlead.agent.sources.service.status import build_feedback
from fairlead.agent.sources.shared import SECRET, Shared
from fairlead.agent.term import Offboarding, Refusals
from fairlead.api.kubernetes import EndpointSlice, Node, Service
from fairlead.api.meta import KubeObject, only_status_changed
from fairlead.api.names import (
    ANNOTATION_ADDRESS,
    ANNOTATION_EGRESS_PODS,
    DEFAULT_CLASS,
    LABEL_NODES,
    LABEL_NODES_IPV6,
    hub_name,
)
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.errors import Invalid, NotRead, Retry
from fairlead.model.condition import ConditionReason, ObjectEvent, warning_event
from fairlead.model.keys import IPV4, IPV6, Family
from fairlead.publish.objects import (
    IsOurs,
    Present,
    Publication,
    PublishPlan,
    Refused,
    plan_publication,
    plan_removal,
    plan_slices,
)
from fairlead.publish.publisher import BY_CERTIFICATE, Publisher, slices_of_nodes

SERVICE, NODE = "Service", "Node"
#: The key of all nodes, which are published together.
NODES_KEY: Key = (NODE, "", "")
CONFLICTED = "Conflicted"
RELEASED = "AddressReleased"
PROBES_NOT_READ = "ProbesNotRead"


class ServiceSource(Source):
    """The source for Services, with the nodes that are their backends."""

    name = "Services"
    lane = SERVICES_LANE
    publishes = frozenset({SERVICE, NODE})
    reports = frozenset({SERVICE})

    def __init__(
        self,
        *,
        engine: Engine,
        caches: ServiceCaches,
        shared: Shared,
        settings: Settings,
        metrics: AgentMetrics,
        refusals: Refusals,
        offboarding: Offboarding,
        cloud: CloudLoadBalancer = "absent",
        prefer: NodeAddressType = "InternalIP",
        fresh_s: float = 120.0,
        egress: Callable[[ServiceKey], str | None] = lambda _key: "",
    ) -> None:
        super().__init__(engine)
        self._shared = shared
        #: The addresses of the pods that leave with a Service; None while they are unknown.
        self._egress = egress
        self._publisher = engine.publisher
        self._caches = caches
        self._settings = settings
        self._metrics = metrics
        #: The messages of the Events: the heartbeat repeats them, as the hub's operators cannot read members' Events.
        self._refusals = refusals
        self._offboarding = offboarding
        self._cloud: CloudLoadBalancer = cloud
        self._fresh_s = fresh_s
        self._refused: dict[ServiceKey, str] = {}
        self._exported: set[ServiceKey] = set()
        #: The uid and addresses of Services that are ours: an API server may clear the status of one that no longer is.
        self._addresses: dict[ServiceKey, tuple[str, str]] = {}
        self._status = engine.status_writer(caches.services, lambda what: metrics.member_writes.labels(what).inc())
        self._events = self._status.events
        self._nodes = NodePublisher(
            caches=caches, publisher=engine.publisher, metrics=metrics, settings=settings, prefer=prefer
        )
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.export")
        caches.services.on_object(lambda service: engine.enqueue(key_of(SERVICE, service)))
        caches.services.on_change(self._service_changed)
        caches.slices.on_change(self._slice_changed)
        shared.add(self)
        caches.nodes.on_object(lambda _node: engine.publish(NODES_KEY), part=_without_heartbeat)
        caches.subtenants.on_object(
            lambda home: engine.publish_namespace(home.metadata.name), part=lambda home: home.metadata.labels
        )
        caches.load_balancers.on_change(self._load_balancer_changed)
        caches.hub_slices.on_change(self._hub_slice_changed)
        caches.classes.on_object(lambda _class: self._publish_services(), part=lambda obj: obj.spec.targets)

    # --- which keys ----------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Return whether all caches have been read; before that, an agent is not a candidate."""
        return self._caches.synced

    @property
    def problem(self) -> str:
        """Return why a cache cannot be read; empty if all can be read."""
        return self._caches.problem

    def begin(self) -> None:
        """Read the addresses of the nodes before anything is exported."""
        self._nodes.read_addresses()

    def all_keys(self) -> Iterable[Key]:
        """Return the keys of the nodes, the member's Services, and the origins of objects at the hub."""
        keys: set[ServiceKey] = {service.key for service in self._caches.services.values()}
        for hub_object in (*self._caches.load_balancers.values(), *self._caches.hub_slices.values()):
            origin = service_of(hub_object, tenant=self._settings.tenant)
            if origin is not None:
                keys.add(origin)
        return [NODES_KEY, *((SERVICE, *key) for key in keys)]

    def waiting(self) -> Iterable[KubeObject]:
        """Return our Services that have no address yet."""
        for service in self._caches.services.values():
            ours = isinstance(decide(service, cloud=self._cloud), Ours)
            if ours and not service.status.load_balancer.ingress and not service.annotation(ANNOTATION_ADDRESS):
                yield service

    def _service_changed(self, old: MemberService | None, new: MemberService | None) -> None:
        for service in filter(None, (old, new)):
            for secret in client_secrets_named(service):
                self._engine.publish((SECRET, *secret))

    def _slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for version in (old, new):
            key = service_of_slice(version) if version is not None else None
            if key is not None:
                self._engine.publish((SERVICE, *key))
        if new is not None:
            # Another Service's last endpoints, which the hub keeps, may have had the same addresses.
            for key in self._caches.departed.waiting_for(new):
                self._engine.publish((SERVICE, *key))

    def _load_balancer_changed(self, old: TCPLoadBalancer | None, new: TCPLoadBalancer | None) -> None:
        load_balancer = new or old
        if load_balancer is None:
            return
        # By name, not by label: an object that is not ours may have the name of one that is.
        namespace, _, name = load_balancer.metadata.name.partition(".")
        # An export is compared with all but the status: a hub may write thousands of these at once.
        exported = not (old and new and only_status_changed(old, new))
        if (
            old is not None
            and old.spec.certificates
            and (new is None or new.spec.certificates != old.spec.certificates)
        ):
            self._shared.publish_certificates(old.spec.certificates)
        for key in {(namespace, name), service_of(load_balancer, tenant=self._settings.tenant) or (namespace, name)}:
            self._engine.report((SERVICE, *key))
            if exported:
                self._engine.publish((SERVICE, *key))

    def _hub_slice_changed(self, old: EndpointSlice | None, new: EndpointSlice | None) -> None:
        for version in (old, new):
            if version is None:
                continue
            key = service_of(version, tenant=self._settings.tenant)
            if key is not None:
                self._engine.publish((SERVICE, *key))
            elif version.label(LABEL_NODES) or version.label(LABEL_NODES_IPV6):
                self._engine.publish(NODES_KEY)

    def _publish_services(self) -> None:
        for service in self._caches.services.values():
            self._engine.publish(key_of(SERVICE, service))

    # --- what is published ---------------------------------------------------------------------------------------

    async def publish(self, key: Key) -> bool:
        """Publish the objects of a key at the hub; return whether a removal waits."""
        kind, namespace, name = key
        if kind == NODE:
            if self._nodes.read_addresses():
                for service in self._caches.services.values():
                    if service.spec.external_traffic_policy == "Local":
                        self._engine.publish(key_of(SERVICE, service))
            await self._nodes.publish()
            return False
        return await self._publish((namespace, name))

    async def _publish(self, key: ServiceKey) -> bool:
        if key in self._caches.services.broken:
            # The Service exists but cannot be read: its export stays, as for any other missing information.
            return await self._follow(key)
        service = self._caches.services.get(*key)
        if service is None:
            self._events.forget(key)
            self._caches.departed.forget(key)
            self._caches.probes.forget(key)
            self._count(key)
            return await self._remove(key, "the Service is gone")
        decision = decide(service, cloud=self._cloud)
        await self._caches.probes.read(service, self._caches.slices_of_service(key))
        match decision:
            case NotOurs(why):
                self._count(key)
                self._events.emit_new("export", service, self._warnings(service, decision))
                return await self._remove(key, why)
            case Refused():
                return await self._refuse(service, decision, decision)
            case Ours():
                return await self._export(service, decision)

    def refused(self, key: Key, why: str) -> None:
        """Emit that the hub rejects a Service's load balancer; the present objects stay."""
        service = self._caches.services.get(*key[1:])
        if service is not None and why:
            self._keep(service, decide(service, cloud=self._cloud), Refused(ConditionReason.INVALID, why))

    async def _refuse(self, service: MemberService, decision: Decision, refused: Refused) -> bool:
        self._keep(service, decision, refused)
        if not refused.keep:
            return await self._remove(service.key, refused.sentence)
        return await self._follow(service.key, service)

    async def _follow(self, key: ServiceKey, service: Service | None = None) -> bool:
        """Publish the endpoints of the version at the hub while that of the Service is refused, or None: unreadable."""
        present, is_ours = self._present(key), self._is_ours(key)
        load_balancer = present.load_balancer
        if load_balancer is None:
            return False
        if service is None:
            service = service_in_effect(load_balancer, self._caches.slices_of_service(key), present.slices)
        slices = slices_in_effect(self._view(service, present), load_balancer, self._settings)
        present = self._present(key, slices or ())
        return await self._write(plan_publication(Publication(load_balancer, slices), present, is_ours=is_ours))

    def _keep(self, service: MemberService, decision: Decision, refused: Refused) -> None:
        sentence = refused.sentence
        self._count(service.key, refused=refused.reason, sentence=sentence)
        if refused.keep and self._present(service.key).load_balancer is not None:
            sentence += " Until then the last valid version stays in effect."
        events = [*self._warnings(service, decision), warning_event(refused.reason, sentence)]
        self._events.emit_new("export", service, events)

    async def _export(self, service: MemberService, ours: Ours) -> bool:
        key = service.key
        try:
            self._caches.classes.check_read("", ours.class_name or DEFAULT_CLASS)
            secrets = [await self._shared.identity(*secret) for secret in client_secrets_named(service)]
        except Retry:
            await self._follow(key, service)
            raise
        view = self._view(service, self._present(key))
        export = build_export(replace(view, identity=secrets[0]) if secrets else view, ours, self._settings)
        match export:
            case Refused():
                return await self._refuse(service, ours, export)
            case NotYet(why):
                self._log.debug("not yet", key=key, why=why)
                return False
            case Publication():
                pass
        present, is_ours = self._present(key, export.slices or ()), self._is_ours(key)
        plan, name = plan_publication(export, present, is_ours=is_ours), export.load_balancer.metadata.name
        if (self._settings.namespace, name) in self._caches.load_balancers.broken:
            await self._write_endpoints(plan, name, present, is_ours)
        try:
            held = await self._write(plan)
        except Invalid:
            await self._follow(key, service)
            raise
        events = list(self._warnings(service, ours))
        if plan.conflict:
            sentence = (
                f"{plan.conflict} at the hub was not made for this Service: it is left alone. Rename the Service, or "
                "remove that object at the hub."
            )
            events.append(warning_event(CONFLICTED, sentence))
            self._count(key, refused=CONFLICTED, sentence=sentence)
        else:
            self._count(key, exported=True)
        self._events.emit_new("export", service, events)
        return held

    def _view(self, service: Service, present: Present) -> ServiceView:
        key, egress = service.key, self._egress(service.key)
        if egress is None:
            egress = present.load_balancer.annotation(ANNOTATION_EGRESS_PODS) if present.load_balancer else ""
        return ServiceView(
            service=service,
            slices=self._caches.slices_of_service(key),
            before=present.slices,
            reused=self._caches.reused_endpoints(key, present.slices),
            class_targets=self._caches.class_targets(),
            node_addresses=self._nodes.addresses,
            egress=egress,
            probe=self._caches.probes.check_of(key),
            labels=self._caches.subtenant_labels(key[0], present.load_balancer),
        )

    def _warnings(self, service: MemberService, decision: Decision) -> tuple[ObjectEvent, ...]:
        problem = self._caches.probes.problem_of(service.key)
        unread = (warning_event(PROBES_NOT_READ, problem),) if problem else ()
        return (*find_warnings(service, decision), *unread)

    async def _write_endpoints(self, plan: PublishPlan, name: str, present: Present, is_ours: IsOurs) -> NoReturn:
        """Write the endpoints of a load balancer that cannot be read: the hub uses them as soon as it can."""
        published = [*present.slices, *([present.load_balancer] if present.load_balancer is not None else [])]
        # An object of that name that was never read may belong to another, whose endpoints these are not.
        if any(map(is_ours, published)):
            await self._write(PublishPlan(of_slices=plan.of_slices))
        raise NotRead(
            f"TCPLoadBalancer {name} at the hub cannot be read, so only its endpoints are written. "
            "Ask the operator of the hub to correct or delete it."
        )

    async def _remove(self, key: ServiceKey, why: str) -> bool:
        return await self._write(plan_removal(self._present(key), reason=why, is_ours=self._is_ours(key)))

    async def _write(self, plan: PublishPlan) -> bool:
        """Execute the writes; return whether removals wait until the member's view is current and whole."""
        allowed = plan if self._may_remove() else plan.without_removals()
        await self._publisher.write(allowed)
        return allowed != plan

    def _may_remove(self) -> bool:
        caches = self._caches
        # An unreadable slice may belong to any Service: until it can be read, no endpoint counts as deleted.
        return caches.synced and not caches.slices.broken and caches.member_is_fresh(fresh_s=self._fresh_s)

    def _present(self, key: ServiceKey, desired: tuple[EndpointSlice, ...] = ()) -> Present:
        return self._publisher.present(self._settings.namespace, hub_name(*key), desired)

    def _is_ours(self, key: ServiceKey) -> IsOurs:
        def is_ours(hub_object: KubeObject) -> bool:
            return service_of(hub_object, tenant=self._settings.tenant) == key

        return is_ours

    def _count(self, key: ServiceKey, *, refused: str = "", sentence: str = "", exported: bool = False) -> None:
        self._refusals.put(key, sentence)
        if exported:
            self._exported.add(key)
        else:
            self._exported.discard(key)
        self._metrics.exported.set(len(self._exported))
        if refused != self._refused.get(key, ""):
            if refused:
                self._refused[key] = refused
            else:
                del self._refused[key]
            self._metrics.set_refused(Counter(self._refused.values()))

    # --- what it needs of Secrets --------------------------------------------------------------------------------

    def needs_service(self, namespace: str, name: str) -> bool:
        """Return False: the endpoints are published with the load balancer of the Service."""
        del namespace, name
        return False

    def needs_node_ports(self, namespace: str, name: str) -> bool:
        """Return False: a Service of type LoadBalancer has node ports of its own."""
        del namespace, name
        return False

    def needs_secret(self, namespace: str, name: str) -> bool:
        """Return whether a Service names this Secret for TLS towards its backends, or its last valid version does."""
        copy = certificate_name(namespace, name)
        users = self._caches.services.indexed(BY_SECRET, (namespace, name))
        return bool(users or self._caches.load_balancers.indexed(BY_CERTIFICATE, copy))

    def requests(self, name: str) -> Iterable[CertificateRequest]:
        """Return nothing: Services request no certificates."""
        del name
        return ()

    def is_fresh(self, *, fresh_s: float) -> bool:
        """Return whether the view of Services is current."""
        return self._caches.synced and self._caches.member_is_fresh(fresh_s=fresh_s)

    def secret_changed(self, key: tuple[str, str]) -> None:
        """Enqueue the Services that name a Secret."""
        if services := self._caches.services.by_index(BY_SECRET, key):
            self._engine.publish((SECRET, *key))
        for service in services:
            self._engine.publish(key_of(SERVICE, service))

    # --- what is reported ----------------------------------------------------------------------------------------

    async def report(self, key: Key) -> float | None:
        """Write the hub's answer to the Service."""
        _, namespace, name = key
        service = self._status.get(namespace, name)
        if service is None:
            self._status.forget(namespace, name)
            self._addresses.pop((namespace, name), None)
            return None
        decision = decide(service, cloud=self._cloud)
        feedback = build_feedback(
            service,
            decision,
            self._caches.load_balancers.get(self._caches.hub_namespace, hub_name(namespace, name)),
            status_is_ours=service.status_is_ours,
            leaving=self._offboarding.leaving,
            slices=self._caches.slices_of_service((namespace, name)),
            classes=[load_balancer_class.metadata.name for load_balancer_class in self._caches.classes.values()],
        )
        again_s = await self._status.show(service, feedback)
        self._announce_release(service, decision)
        return again_s

    def _announce_release(self, service: MemberService, decision: Decision) -> None:
        """Emit that a Service which is no longer ours has lost its address."""
        shown = (
            [entry.address for entry in service.status.load_balancer.ingress or ()] if service.status_is_ours else []
        )
        shown += filter(None, service.annotation(ANNOTATION_ADDRESS).split(","))
        if not isinstance(decision, NotOurs):
            if shown:
                self._addresses[service.key] = service.metadata.uid, ", ".join(shown)
            return
        uid, addresses = self._addresses.pop(service.key, (service.metadata.uid, ", ".join(shown)))
        if addresses and uid == service.metadata.uid and not service.deleting:
            self._events.emit_new("serving", service, ())
            message = f"The address {addresses} was released: {decision.why}"
            self._events.emit(service, ObjectEvent(False, RELEASED, message))


class NodePublisher:
    """Publishes all nodes of the member at once."""

    def __init__(
        self,
        *,
        caches: ServiceCaches,
        publisher: Publisher,
        metrics: AgentMetrics,
        settings: Settings,
        prefer: NodeAddressType,
    ) -> None:
        self._caches = caches
        self._publisher = publisher
        self._metrics = metrics
        self._settings = settings
        self._prefer: NodeAddressType = prefer
        self._addresses: dict[Family, dict[str, str]] = {}
        self._stale = ""
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.nodes")

    @property
    def addresses(self) -> Mapping[Family, Mapping[str, str]]:
        """Return a live view of the nodes' addresses of each family, by node name."""
        return self._addresses

    def read_addresses(self) -> bool:
        """Read the addresses from the cache; return whether a node's name or address was added or removed."""
        addresses: dict[Family, dict[str, str]] = {
            family: {entry.name: entry.address for entry in entries if entry.address}
            for family, entries in self._entries().items()
        }
        if addresses == self._addresses:
            return False
        self._addresses.clear()
        self._addresses.update(addresses)
        return True

    async def publish(self) -> None:
        """Write the nodes to the hub."""
        namespace, tenant = self._settings.namespace, self._settings.tenant
        slices = self._publisher.slices_in(slices_of_nodes(namespace))
        entries = self._entries()
        # A single-stack cluster, IPv4 or IPv6, is not reported.
        needed = {IPV4: not any(entry.address for entry in entries[IPV6]), IPV6: False}
        stale = ""
        for family in (IPV4, IPV6):
            place = NodesPlace(namespace, tenant, family)
            unread = {key.name for key in self._caches.nodes.unread}
            export = build_nodes(entries[family], slices, place=place, needed=needed[family], unread=unread)
            stale = stale or export.stale
            ours = [endpoint_slice for endpoint_slice in slices if place.index_of(endpoint_slice) is not None]
            await self._publisher.slices.write(plan_slices(export.slices, ours))
        if stale != self._stale:
            self._stale = stale
            # Where pods are the targets, nodes matter only to Services that ask for them.
            log = self._log.warning if self._settings.target == "Node" else self._log.info
            log("nodes", sentence=stale or "the nodes are current again")
        self._metrics.nodes_stale.set(1 if stale else 0)

    def _entries(self) -> dict[Family, tuple[NodeEntry, ...]]:
        nodes = self._caches.nodes.values()
        return {family: entries_from_nodes(nodes, prefer=self._prefer, family=family) for family in (IPV4, IPV6)}


def _without_heartbeat(node: Node) -> tuple[object, ...]:
    return node.metadata.labels, node.deleting, node.spec, node.status
