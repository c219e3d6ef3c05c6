"""Reports on Gateways, ListenerSets, routes, policies and GatewayClasses of the member.

    GatewayClass, Gateway, ListenerSet   server-side apply: conditions and listeners are maps, others keep theirs
    routes, policies                     read, changed and written with resourceVersion: their lists are written whole

In: plans, counts and the hub's HTTPLoadBalancers. Out: statuses that differ, Events. Never: writes an unchanged status,
or an entry of another controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from fairlead.agent.engine import CountPace, Engine, MemberStatusWriter
from fairlead.agent.events import SILENT_HUB, failing_events
from fairlead.agent.identity import Key, gateway_load_balancer_name, key_of, missing_class, route_name
from fairlead.agent.sources.caches import IngressCaches
from fairlead.agent.sources.gateway.caches import Attachments, BackendPolicies, GatewayCaches, GatewayPlans, gateway_of
from fairlead.agent.sources.gateway.plan import GatewayPlan, ParentKey, RoutePlan
from fairlead.agent.sources.gateway.status import (
    LABEL_GATEWAY_NAME,
    GatewayObjects,
    belongs_to,
    gateway_class_status,
    gateway_status,
    is_same,
    listener_set_status,
    of_ours,
    plan_infrastructure,
    route_status,
)
from fairlead.agent.sources.shared import Shared
from fairlead.agent.term import Refusals
from fairlead.api.gateway import (
    BACKEND_TLS_POLICIES,
    GATEWAY_CLASSES,
    GATEWAYS,
    LISTENER_SETS,
    AnyRoute,
    BackendTLSPolicy,
    Gateway,
    GatewayClass,
    GatewayStatus,
    ListenerSet,
    ListenerSetStatus,
)
from fairlead.api.httploadbalancer import RefusedPartStatus
from fairlead.api.kubernetes import ENDPOINT_SLICES, SERVICES, EndpointSlice, Service
from fairlead.api.meta import JSONObject, KubeObject, Wire, is_true
from fairlead.api.names import GATEWAY_CONTROLLER, LABEL_MANAGED_BY, MANAGED_BY, MANAGER_AGENT, did_you_mean
from fairlead.errors import Conflict, NotFound, Retry
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder, EventWriter
from fairlead.kube.lease import check_may_write
from fairlead.model.condition import ObjectEvent, warning_event

T = TypeVar("T", bound=KubeObject)

NAME_TAKEN = "NameTaken"
_BY_OWNER = "owner"
#: Seconds until a Gateway whose related objects have not been read yet is processed again.
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
        self._services.on_object(self._on_change)
        self._slices.on_object(self._on_change)

    async def run(self) -> None:
        """Run the caches, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in (self._services, self._slices):
                group.create_task(cache.run(), name=f"cache-infrastructure-{cache.resource.plural}")

    async def reconcile(self, gateway: Gateway, plan: GatewayPlan | None, addresses: Iterable[str]) -> None:
        """Reconcile the objects of ``gateway`` with its plan; None: the Gateway is not, or no longer, one of ours.

        Raises:
            Retry: the present objects have not been read yet.
            Wait: another agent leads.
        """
        wanted = GatewayObjects() if plan is None else plan_infrastructure(plan, gateway, addresses)
        if not (self._services.synced and self._slices.synced):
            if wanted.service is None:
                return
            # Caches that stay empty report no change, so nothing else would enqueue this Gateway again.
            raise Retry("the Services and EndpointSlices of Gateways have not been read yet", after_s=NOT_KNOWN_RETRY_S)
        taken = [
            *await self._apply(self._services, gateway, [wanted.service] if wanted.service is not None else []),
            *await self._apply(self._slices, gateway, wanted.slices),
        ]
        self._events.emit_new("infrastructure", gateway, [warning_event(NAME_TAKEN, text) for text in taken])

    def _on_change(self, obj: KubeObject) -> None:
        for owner in _owners(obj):
            self._changed(*owner)

    async def _apply(self, cache: WatchCache[T], gateway: Gateway, wanted: Iterable[T]) -> list[str]:
        """Apply the objects of one kind, and delete the others of ``gateway``; return the occupied names."""
        by_key = {obj.key: obj for obj in cache.by_index(_BY_OWNER, gateway.key) if belongs_to(obj, gateway)}
        taken: list[str] = []
        for obj in wanted:
            present = by_key.pop(obj.key, None)
            if present is not None and (present.deleting or is_same(obj, present)):
                continue
            check_may_write(self._may_write)
            if present is not None or await self._is_free(cache, gateway, obj):
                await self._member.apply(cache.resource, _body(cache, obj), manager=MANAGER_AGENT)
            else:
                taken.append(
                    f"{cache.resource.kind} {obj.metadata.name} was not made for this Gateway, so the labels and "
                    "annotations of spec.infrastructure are not on it: rename or delete it"
                )
        for obj in by_key.values():
            check_may_write(self._may_write)
            try:
                await self._member.delete(cache.resource, *obj.key, uid=obj.metadata.uid)
            except (Conflict, NotFound):
                continue  # gone, or created again by another
        return taken

    async def _is_free(self, cache: WatchCache[T], gateway: Gateway, wanted: T) -> bool:
        """Return whether the name is free, or has an object of this Gateway that the cache does not have yet."""
        try:
            existing = await self._member.get(cache.resource, *wanted.key)
        except NotFound:
            return True
        return belongs_to(existing, gateway)


def _body(cache: WatchCache[T], wanted: T) -> JSONObject:
    body: JSONObject = {"apiVersion": cache.resource.api_version, "kind": cache.resource.kind}
    # The field is required, but is omitted when it has the default value.
    family = {"addressType": wanted.address_type} if isinstance(wanted, EndpointSlice) else {}
    return {**body, **msgspec.to_builtins(wanted), **family}


def _owners(obj: KubeObject | None) -> list[tuple[str, str]]:
    references = (obj.metadata.owner_references if obj is not None else None) or ()
    return [
        (obj.metadata.namespace, reference.name) for reference in references if obj and reference.kind == GATEWAYS.kind
    ]


PROGRAMMED, ACCEPTED = "Programmed", "Accepted"
_QUIET = {"Pending"}
_NO_PARENTS = RoutePlan(specs={}, parents=(), attached=frozenset(), services=frozenset())


Counted = TypeVar("Counted", GatewayStatus, ListenerSetStatus)


class PlannedGateways(Protocol):
    """The plans that the source of Gateway API keeps."""

    plans: GatewayPlans
    attachments: Attachments
    policies: BackendPolicies

    def counts_of(self, plan: GatewayPlan) -> dict[str, int] | None:
        """Return the number of routes of each listener; None while some wait to be planned with this plan."""
        ...

    def certificate_flaws(self, plan: GatewayPlan) -> list[str]:
        """Return why clients refuse certificates of a Gateway's listeners."""
        ...

    def gateways_to(self, service: tuple[str, str]) -> set[ParentKey]:
        """Return the Gateways that send requests to a Service."""
        ...


class GatewayReports:
    """Reports one object at a time."""

    def __init__(
        self,
        *,
        engine: Engine,
        planned: PlannedGateways,
        http: IngressCaches,
        caches: GatewayCaches,
        shared: Shared,
        infrastructure: InfrastructureWriter,
        refusals: Refusals,
    ) -> None:
        self._engine = engine
        self._planned = planned
        self._http = http
        self._caches = caches
        self._shared = shared
        self._infrastructure = infrastructure
        #: Why an object is not served as it should be.
        self._refusals = refusals
        self._gateways = engine.status_writer(caches.gateways)
        self._classes = engine.status_writer(caches.gateway_classes)
        self._listener_sets = engine.status_writer(caches.listener_sets)
        self._policies = engine.status_writer(caches.policies)
        self._routes: Mapping[str, MemberStatusWriter[AnyRoute]] = {
            kind: engine.status_writer(cache) for kind, cache in caches.routes.items()
        }
        self._writers: Mapping[str, MemberStatusWriter[Any]] = {
            GATEWAYS.kind: self._gateways,
            GATEWAY_CLASSES.kind: self._classes,
            LISTENER_SETS.kind: self._listener_sets,
            BACKEND_TLS_POLICIES.kind: self._policies,
            **self._routes,
        }
        #: How fast the statuses of Gateways and ListenerSets follow the number of their routes.
        self._pace = CountPace(caches.gateways.clock)

    async def report(self, key: Key) -> float | None:
        """Write the decision and the hub's answer to the status of one object.

        Return the seconds until the next report, if needed.

        Raises:
            NotFound: the object was deleted.
        """
        kind, *name = key
        writer, cache = self._writers[kind], self._caches.by_kind[kind]
        if not cache.served or tuple(name) in cache.broken:
            return None
        obj: KubeObject | None = writer.get(*name)
        if obj is not None and not obj.deleting:
            return await self._show(kind, obj)
        self._pace.forget(key)
        writer.events.forget((key[1], key[2]))
        self._refusals.put(key, "")
        if kind == GATEWAYS.kind and (gateway := self._gateways.get(*name)) is not None:
            # Remove the addresses from a Gateway that another finalizer holds, once the load balancer is deleted.
            is_served = self._shared.answer(gateway_load_balancer_name(*gateway.key)) is not None
            if not is_served and gateway.status.addresses and self._planned.plans.class_of(gateway) is not None:
                status = msgspec.structs.replace(gateway.status, addresses=None)
                await self._apply(self._gateways, gateway, gateway.status, status)
        return None

    async def _show(self, kind: str, obj: Any) -> float | None:
        show: Mapping[str, Callable[[Any], Any]] = {
            GATEWAYS.kind: self._gateway,
            GATEWAY_CLASSES.kind: self._class,
            LISTENER_SETS.kind: self._listener_set,
            BACKEND_TLS_POLICIES.kind: self._policy,
        }
        return await (show[kind](obj) if kind in show else self._route(kind, obj))

    async def _class(self, gateway_class: GatewayClass) -> None:
        if not gateway_class.is_ours:
            return
        version, channel = self._caches.installed
        status = gateway_class_status(gateway_class, now=self._gateways.now(), bundle_version=version, channel=channel)
        await self._apply(self._classes, gateway_class, gateway_class.status, status)

    async def _gateway(self, gateway: Gateway) -> float | None:
        key = key_of(GATEWAYS.kind, gateway)
        plan = self._planned.plans.get(*gateway.key)
        counts = None if plan is None else self._planned.counts_of(plan)
        if plan is None:
            self._refusals.put(key, self._misspelt_class(gateway))
            await self._infrastructure.reconcile(gateway, None, ())
        if plan is None or counts is None:
            return None
        hub = self._shared.answer(plan.load_balancer)
        refusal = self._engine.refusal_of(key)
        status = gateway_status(plan, gateway, attached=counts, hub=hub, now=self._gateways.now(), refusal=refusal)
        wait_s = await self._apply_counted(self._gateways, key, gateway, gateway.status, status)
        await self._infrastructure.reconcile(gateway, plan, [address.value for address in status.addresses or ()])
        conditions = [*(status.conditions or ())]
        for listener in status.listeners or ():
            named = (
                msgspec.structs.replace(condition, message=f"Listener {listener.name}: {condition.message}")
                for condition in listener.conditions
            )
            conditions += [condition for condition in named if condition.type != PROGRAMMED]
        flaws = self._planned.certificate_flaws(plan)
        unusable = (condition.message for condition in conditions if condition.reason == "InvalidCertificateRef")
        self._refusals.put(key, "; ".join(dict.fromkeys((*unusable, *flaws))))
        events = [
            warning_event(condition.reason, condition.message)
            for condition in conditions
            if condition.status == "False" and condition.reason not in _QUIET and condition.type != "Conflicted"
        ]
        events += [warning_event("InvalidCertificateRef", text) for text in flaws]
        self._gateways.events.emit_new("status", gateway, events)
        self._gateways.events.emit_new(SILENT_HUB, gateway, ())
        if is_true(status.conditions, PROGRAMMED) and not is_true(gateway.status.conditions, PROGRAMMED):
            addresses = ", ".join(address.value for address in status.addresses or ())
            programmed = ObjectEvent(False, PROGRAMMED, f"The listeners are programmed at {addresses}")
            self._gateways.events.emit(gateway, programmed)
        return wait_s

    async def _listener_set(self, obj: ListenerSet) -> float | None:
        plan = self._planned.plans.get(*gateway_of(obj))
        if plan is None or ParentKey("ListenerSet", *obj.key) not in plan.listener_sets:
            return None
        counts = self._planned.counts_of(plan)
        if counts is None:
            return None
        hub = self._shared.answer(plan.load_balancer)
        status = listener_set_status(plan, obj, attached=counts, hub=hub, now=self._gateways.now())
        key = key_of(LISTENER_SETS.kind, obj)
        return await self._apply_counted(self._listener_sets, key, obj, obj.status, status)

    async def _route(self, kind: str, route: AnyRoute) -> None:
        key, writer = key_of(kind, route), self._routes[kind]
        if key not in self._planned.attachments:
            self._refusals.put(key, self._missing_parent(route))
            return
        plan = self._planned.attachments.plan_of(key) or _NO_PARENTS
        load_balancers = {parent.load_balancer for parent in plan.parents}
        refused = self._refused(key, load_balancers)
        if refusal := self._engine.refusal_of(key):
            refused = {
                load_balancer: [RefusedPartStatus("route", route_name(key, load_balancer), refusal)]
                for load_balancer in load_balancers
            }
        names = {published.spec.load_balancer: published.status.names for published in self._http.routes_of(key)}
        status = route_status(plan, route, now=self._gateways.now(), refused=refused, names=names)
        await writer.replace(route, route.status, status, foreign=_is_foreign)
        ours = (parent for parent in status.parents or () if parent.controller_name == GATEWAY_CONTROLLER)
        bad = [condition for parent in ours for condition in parent.conditions or () if condition.status == "False"]
        # Refused or unresolved parts of a load balancer are named in its own conditions.
        unattached = dict.fromkeys(
            condition.message for condition in bad if condition.type == ACCEPTED and not any(refused.values())
        )
        self._refusals.put(key, self._missing_parent(route) or "; ".join(unattached))
        writer.events.emit_new(
            "status",
            route,
            [
                warning_event(*condition)
                for condition in sorted({(condition.reason, condition.message) for condition in bad})
            ],
        )
        failing: list[ObjectEvent] = []
        for hub in map(self._shared.answer, names):
            if (events := failing_events(hub, kind, route.key)) is None:
                return  # thousands of Events would say nothing but that
            failing += events
        writer.events.emit_new("serving", route, failing)

    async def _policy(self, policy: BackendTLSPolicy) -> None:
        status = self._planned.policies.status_of(policy, self._planned.gateways_to, self._gateways.now())
        await self._policies.replace(policy, policy.status, status, foreign=_is_foreign)

    async def _apply(self, writer: MemberStatusWriter[T], obj: T, old: Wire, new: Wire) -> None:
        if of_ours(old) != of_ours(new):
            await writer.apply(obj, old, new)

    async def _apply_counted(
        self, writer: MemberStatusWriter[T], key: Key, obj: T, old: Counted, new: Counted
    ) -> float | None:
        """Write a status with the number of routes; return the seconds until the next report, if needed."""
        written, counts = _counts(old), _counts(new)
        wait_s = self._pace.wait_s(key, written, counts)
        if wait_s and of_ours(_without_counts(old)) == of_ours(_without_counts(new)):
            return wait_s
        if counts != written:
            self._pace.written(key)
        await self._apply(writer, obj, old, new)
        return None

    def _misspelt_class(self, gateway: Gateway) -> str:
        """Return why the class of a Gateway is not served, if it is probably meant to be one of ours."""
        classes = {
            gateway_class.metadata.name: gateway_class.spec.controller_name
            for gateway_class in self._caches.gateway_classes.values()
        }
        why = missing_class(GATEWAY_CLASSES.kind, gateway.spec.gateway_class_name, classes, GATEWAY_CONTROLLER)
        return f"spec.gatewayClassName: {why}" if why else ""

    def _missing_parent(self, route: AnyRoute) -> str:
        """Return the message that a route's Gateway does not exist, if no controller reports on the route."""
        if route.status.parents:
            return ""
        for parent in route.spec.parent_refs or ():
            namespace = parent.namespace or route.metadata.namespace
            if parent.kind in ("", GATEWAYS.kind) and self._caches.gateways.get(namespace, parent.name) is None:
                there = [gateway.metadata.name for gateway in self._caches.gateways.values()]
                near = did_you_mean(parent.name, sorted(there))
                return f"spec.parentRefs: there is no Gateway {parent.name} in namespace {namespace}.{near}"
        return ""

    def _refused(self, key: Key, load_balancers: Iterable[str]) -> dict[str, list[RefusedPartStatus]]:
        """Return the parts of a route that the proxies do not serve, by load balancer."""
        refused: dict[str, list[RefusedPartStatus]] = {}
        for name in load_balancers:
            hub = self._shared.answer(name)
            parts = hub.status.refused if hub is not None else ()
            refused[name] = [part for part in parts if part.name == route_name(key, name)]
        return refused


def _is_foreign(entry: JSONObject) -> bool:
    """Return whether an entry in the status of a route or policy belongs to another controller."""
    return entry.get("controllerName") != GATEWAY_CONTROLLER


def _counts(status: GatewayStatus | ListenerSetStatus) -> dict[str, int]:
    return {listener.name: listener.attached_routes for listener in status.listeners or ()}


def _without_counts(status: Counted) -> Counted:
    listeners = [msgspec.structs.replace(listener, attached_routes=0) for listener in status.listeners or ()]
    return msgspec.structs.replace(status, listeners=listeners)
