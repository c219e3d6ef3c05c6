"""Writes the plans and the hub's answer to the statuses of the user's Gateways, routes and policies.

    GatewayClass, Gateway, ListenerSet   server-side apply: conditions and listeners are maps, others keep theirs
    routes, policies                     read, changed and written with resourceVersion: their lists are written whole

In: plans, counts and the hub's HTTPLoadBalancers. Out: statuses that differ, Events. Never: writes a status that is as
it should be, an entry of another controller, or anything while another agent leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import structlog

from fairlead.agent.events import EventWriter, ServiceEvent, warning_event
from fairlead.agent.l7.gateway.changes import LISTENER_SET, POLICY
from fairlead.agent.l7.gateway.exporter import GATEWAY, GatewayExporter
from fairlead.agent.l7.gateway.gateway_class import gateway_class_status
from fairlead.agent.l7.gateway.infrastructure_writer import InfrastructureWriter
from fairlead.agent.l7.gateway.plan import GatewayPlan, ParentKey, RoutePlan
from fairlead.agent.l7.gateway.route_status import route_status
from fairlead.agent.l7.gateway.sources import GatewaySources, gateway_of
from fairlead.agent.l7.gateway.status import gateway_status, listener_set_status
from fairlead.agent.l7.identity import Origin, gateway_load_balancer_name, key_of, missing_class, route_name
from fairlead.agent.l7.sources import L7Sources
from fairlead.agent.serving_event import failing_event, failing_routes_of
from fairlead.api.gateway import GATEWAY_CLASSES, BackendTLSPolicy, Gateway, GatewayClass, GatewayClassStatus
from fairlead.api.httploadbalancer import HTTPLoadBalancer, RefusedPart
from fairlead.api.meta import JSONObject, Wire, is_true
from fairlead.api.names import GATEWAY_CONTROLLER, MANAGER_AGENT, did_you_mean
from fairlead.api.times import wire_time
from fairlead.errors import NotFound, Wait
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import OptionalCache
from fairlead.kube.events import EventRecorder
from fairlead.kube.status import write_status
from fairlead.kube.writes import Overlay

PROGRAMMED, ACCEPTED = "Programmed", "Accepted"
_QUIET = {"Pending"}
_NO_PARENTS = RoutePlan(specs={}, parents=(), attached=frozenset(), services=frozenset())


class GatewayFeedback:
    """Reconciles the status of one object at a time."""

    def __init__(
        self,
        *,
        member: Cluster,
        hub_namespace: str,
        l7: L7Sources,
        gateway: GatewaySources,
        exporter: GatewayExporter,
        infrastructure: InfrastructureWriter,
        recorder: EventRecorder,
        refused: Callable[[Origin, str], None],
        may_write: Callable[[], bool],
    ) -> None:
        self._member = member
        self._hub_namespace = hub_namespace
        self._l7 = l7
        self._gateway = gateway
        self._exporter = exporter
        self._infrastructure = infrastructure
        self._may_write = may_write
        #: Called with an object and why it is not served as it should be, empty when it is.
        self._refused_object = refused
        caches: tuple[OptionalCache[Any], ...] = gateway.of_group
        self._caches = {cache.resource.kind: cache for cache in caches}
        self._present = {kind: Overlay(cache) for kind, cache in self._caches.items()}
        self._events = {
            kind: EventWriter(recorder=recorder, resource=cache.resource) for kind, cache in self._caches.items()
        }
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.l7")

    async def reconcile(self, origin: Origin) -> None:
        """Make one object show what was decided, and what the hub has answered."""
        kind, namespace, name = origin
        if not self._caches[kind].served or (namespace, name) in self._caches[kind].broken:
            return
        obj = self._present[kind].get(namespace, name)
        if obj is None or obj.deleting:
            self._events[kind].forget((namespace, name))
            self._refused_object(origin, "")
            if kind == GATEWAY and obj is not None:
                await self._withdraw(obj)
            return
        try:
            await self._show(kind, obj)
        except NotFound:
            return

    async def _show(self, kind: str, obj: Any) -> None:
        match kind:
            case "GatewayClass":
                if obj.is_ours:
                    await self._apply(kind, obj, self._class_status(obj))
            case "Gateway":
                await self._one_gateway(obj)
            case "ListenerSet":
                await self._listener_set(obj)
            case "BackendTLSPolicy":
                await self._policy(obj)
            case _:
                await self._route(kind, obj)

    def _class_status(self, gateway_class: GatewayClass) -> GatewayClassStatus:
        version, channel = self._gateway.installed
        return gateway_class_status(gateway_class, now=self._now(), bundle_version=version, channel=channel)

    async def _one_gateway(self, gateway: Gateway) -> None:
        plan = self._exporter.plans.get(*gateway.key)
        counts = None if plan is None else self._exporter.counts_of(plan)
        if plan is None:
            self._refused_object(key_of(GATEWAY, gateway), self._misspelt_class(gateway))
            await self._infrastructure.reconcile(gateway, None, ())
        if plan is None or counts is None:
            return
        hub = self._answer(plan)
        refusal = self._exporter.refusal_of(key_of(GATEWAY, gateway))
        status = gateway_status(plan, gateway, attached=counts, hub=hub, now=self._now(), refusal=refusal)
        await self._apply(GATEWAY, gateway, status)
        await self._infrastructure.reconcile(gateway, plan, [each.value for each in status.addresses or ()])
        conditions = [*(status.conditions or ())]
        for listener in status.listeners or ():
            named = (
                msgspec.structs.replace(each, message=f"Listener {listener.name}: {each.message}")
                for each in listener.conditions
            )
            conditions += [each for each in named if each.type != PROGRAMMED]
        flaws = self._exporter.certificate_flaws(plan)
        unusable = (condition.message for condition in conditions if condition.reason == "InvalidCertificateRef")
        self._refused_object(key_of(GATEWAY, gateway), "; ".join(dict.fromkeys((*unusable, *flaws))))
        events = [
            warning_event(each.reason, each.message)
            for each in conditions
            if each.status == "False" and each.reason not in _QUIET and each.type != "Conflicted"
        ]
        events += [warning_event("InvalidCertificateRef", text) for text in flaws]
        self._events[GATEWAY].emit_new("status", gateway, events)
        programmed = is_true(status.conditions, PROGRAMMED)
        if programmed and not is_true(gateway.status.conditions, PROGRAMMED):
            addresses = ", ".join(each.value for each in status.addresses or ())
            self._events[GATEWAY].emit(
                gateway, ServiceEvent(False, PROGRAMMED, f"Its listeners are programmed at {addresses}")
            )

    async def _withdraw(self, gateway: Gateway) -> None:
        """Take the addresses from a Gateway that another finalizer holds, once its load balancer is gone."""
        name = gateway_load_balancer_name(*gateway.key)
        is_served = self._l7.load_balancers.get(self._hub_namespace, name) is not None
        if is_served or not gateway.status.addresses or self._exporter.plans.class_of(gateway) is None:
            return
        try:
            await self._apply(GATEWAY, gateway, msgspec.structs.replace(gateway.status, addresses=None))
        except NotFound:
            return

    async def _listener_set(self, obj: Any) -> None:
        plan = self._exporter.plans.get(*gateway_of(obj))
        if plan is None or ParentKey(LISTENER_SET, *obj.key) not in plan.listener_sets:
            return
        counts = self._exporter.counts_of(plan)
        if counts is None:
            return
        status = listener_set_status(plan, obj, attached=counts, hub=self._answer(plan), now=self._now())
        await self._apply(LISTENER_SET, obj, status)

    async def _route(self, kind: str, route: Any) -> None:
        origin: Origin = key_of(kind, route)
        if origin not in self._exporter.attachments:
            self._refused_object(origin, self._missing_parent(route))
            return
        plan = self._exporter.attachments.plan_of(origin) or _NO_PARENTS
        load_balancers = {parent.load_balancer for parent in plan.parents}
        refused = self._refused(origin, load_balancers)
        if refusal := self._exporter.refusal_of(origin):
            refused = {each: [RefusedPart("route", route_name(origin, each), refusal)] for each in load_balancers}
        names = {each.spec.load_balancer: each.status.names for each in self._l7.routes_of(origin)}
        status = route_status(plan, route, now=self._now(), refused=refused, names=names)
        await self._replace(route, kind, status)
        ours = (parent for parent in status.parents or () if parent.controller_name == GATEWAY_CONTROLLER)
        bad = [each for parent in ours for each in parent.conditions or () if each.status == "False"]
        # What a load balancer refuses, or cannot resolve, its own conditions name.
        unattached = dict.fromkeys(each.message for each in bad if each.type == ACCEPTED and not any(refused.values()))
        self._refused_object(origin, self._missing_parent(route) or "; ".join(unattached))
        self._events[kind].emit_new(
            "status", route, [warning_event(*each) for each in sorted({(each.reason, each.message) for each in bad})]
        )
        hubs = [self._l7.load_balancers.get(self._hub_namespace, name) for name in names]
        failing = [
            failing_event(own, ", ".join(hub.status.addresses))
            for hub in hubs
            if hub is not None and (own := failing_routes_of(hub, kind, route.key))
        ]
        self._events[kind].emit_new("serving", route, failing)

    def _misspelt_class(self, gateway: Gateway) -> str:
        """Return that the class of a Gateway does not exist, where it is likely to be one of ours."""
        classes = {each.metadata.name: each.is_ours for each in self._gateway.gateway_classes.values()}
        why = missing_class(GATEWAY_CLASSES.kind, gateway.spec.gateway_class_name, classes, GATEWAY_CONTROLLER)
        return f"spec.gatewayClassName: {why}" if why else ""

    def _missing_parent(self, route: Any) -> str:
        """Return that a Gateway which a route names does not exist, while it has no parent of any controller."""
        if route.status.parents:
            return ""
        for parent in route.spec.parent_refs or ():
            namespace = parent.namespace or route.metadata.namespace
            if parent.kind in ("", GATEWAY) and self._gateway.gateways.get(namespace, parent.name) is None:
                there = [each.metadata.name for each in self._gateway.gateways.values()]
                near = did_you_mean(parent.name, sorted(there))
                return f"spec.parentRefs: there is no Gateway {parent.name} in namespace {namespace}.{near}"
        return ""

    def _refused(self, origin: Origin, load_balancers: Iterable[str]) -> dict[str, list[RefusedPart]]:
        """Return what the proxies do not serve of a route, by load balancer."""
        refused: dict[str, list[RefusedPart]] = {}
        for name in load_balancers:
            hub = self._l7.load_balancers.get(self._hub_namespace, name)
            parts = hub.status.refused if hub is not None else ()
            refused[name] = [part for part in parts if part.name == route_name(origin, name)]
        return refused

    async def _policy(self, policy: BackendTLSPolicy) -> None:
        status = self._exporter.policies.status_of(policy, self._exporter.gateways_to, self._now())
        await self._replace(policy, POLICY, status)

    # --- writes ------------------------------------------------------------------------------------------------------

    async def _apply(self, kind: str, obj: Any, status: Wire) -> None:
        if of_ours(status) == of_ours(obj.status):
            return
        self._check()
        cache = self._caches[kind]
        written = await write_status(self._member, cache.resource, obj, obj.status, status, manager=MANAGER_AGENT)
        if written is not None:
            self._present[kind].written(written, before=obj)

    async def _replace(self, obj: Any, kind: str, status: Wire | None) -> None:
        """Write the lists of a status whole, only onto the version of the object that they were made from."""
        if status is None or msgspec.to_builtins(status) == msgspec.to_builtins(obj.status):
            return
        self._check()
        patch: JSONObject = {
            "metadata": {"resourceVersion": obj.metadata.resource_version, "uid": obj.metadata.uid},
            "status": msgspec.to_builtins(status),
        }
        resource = self._caches[kind].resource
        written = await self._member.merge_patch(
            resource, obj.metadata.namespace, obj.metadata.name, patch, subresource="status", manager=MANAGER_AGENT
        )
        self._present[kind].written(written, before=obj)

    def _check(self) -> None:
        if not self._may_write():
            raise Wait("another agent leads, or may: nothing is written")

    def _answer(self, plan: GatewayPlan) -> HTTPLoadBalancer | None:
        return self._l7.load_balancers.get(self._hub_namespace, plan.load_balancer)

    def _now(self) -> str:
        return wire_time(self._member.server_clock.now())


#: The types of conditions that we write on objects of Gateway API.
OURS = frozenset(
    {"Accepted", "Programmed", "ResolvedRefs", "Conflicted", "InsecureFrontendValidationMode", "SupportedVersion"}
)


def of_ours(status: Wire) -> JSONObject:
    """Return what of a status is compared."""
    shown: JSONObject = msgspec.to_builtins(status)
    listeners: list[JSONObject] = [{**each, **_conditions(each)} for each in shown.get("listeners") or ()]
    return {
        **{name: value for name, value in shown.items() if value not in (None, [], 0)},
        **_conditions(shown),
        "listeners": sorted(listeners, key=lambda each: str(each["name"])),
    }


def _conditions(holder: JSONObject) -> JSONObject:
    ours: list[Any] = [each for each in holder.get("conditions") or () if each["type"] in OURS]
    return {"conditions": sorted(ours, key=lambda each: str(each["type"]))}
