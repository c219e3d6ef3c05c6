"""Writes the hub's answer to the user's Ingress: status and Events.

    Ingress                    its class's load balancer     status.loadBalancer
    -------------------------  ----------------------------  --------------------
    of a class of ours         Programmed                    its addresses; Events say whether they serve
    of a class of ours         not Programmed, or no longer  as it is
    of a class of ours,        any                           none, if we wrote it
      but not served
    of no class of ours        any                           none, if we wrote it

In: the caches of both sides. Out: the Ingress's status by server-side apply without force, Events. Never: creates an
Ingress (patches carry its uid), or writes while another agent leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from fairlead.agent.addresses import made_names, refused_names, usable_addresses
from fairlead.agent.events import EventWriter, ServiceEvent, name_class_parameters, not_an_address, warning_event
from fairlead.agent.feedback_writer import FOREIGN_STATUS_RETRY_S, STATUS_CONFLICT
from fairlead.agent.l7.identity import Origin, certificate_name, class_load_balancer_name, route_name
from fairlead.agent.l7.ingress import https_listener, unprotected
from fairlead.agent.l7.ingress_exporter import CLASS, INGRESS, IngressExporter
from fairlead.agent.l7.sources import L7Sources, secrets_of
from fairlead.agent.serving_event import ServingEvents, failing_routes_of, serving_event
from fairlead.api.httploadbalancer import HTTPLoadBalancer
from fairlead.api.kubernetes import INGRESSES, Ingress, IngressObject
from fairlead.api.meta import JSONObject, condition_of, is_taken_over
from fairlead.api.names import MANAGER_AGENT
from fairlead.errors import Conflict, NotFound, Wait
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import Overlay
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.publish.objects import object_from_ingress, same_ingress

PROGRAMMED = "Programmed"


class IngressFeedback:
    """Reconciles one Ingress at a time."""

    def __init__(
        self,
        *,
        member: Cluster,
        hub_namespace: str,
        l7: L7Sources,
        exporter: IngressExporter,
        events: EventWriter,
        may_write: Callable[[], bool],
    ) -> None:
        self._member = member
        self._hub_namespace = hub_namespace
        self._l7 = l7
        self._exporter = exporter
        self._events = events
        self._serving = ServingEvents(events=events, clock=member.clock)
        self._may_write = may_write
        self._ingresses = Overlay(l7.ingresses)
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.l7")

    async def reconcile(self, origin: Origin) -> float | None:
        """Write the hub's answer to the Ingress."""
        _, namespace, name = origin
        ingress = self._ingresses.get(namespace, name)
        if ingress is None or ingress.deleting:
            self._serving.forget((namespace, name))
            if ingress is not None and self._exporter.class_of(ingress) and not self._l7.routes_of(origin):
                # A finalizer of another controller may hold it; applying nothing gives up what the agent has written.
                await self._withdraw(ingress)
            return None
        of_class = self._exporter.class_of(ingress)
        load_balancer = (
            None
            if of_class is None
            else self._l7.load_balancers.get(self._hub_namespace, class_load_balancer_name(of_class))
        )
        routes = () if of_class is None else self._l7.routes_of((INGRESS, namespace, name))
        problems = [] if load_balancer is None else [*_problems(load_balancer), *_refused(load_balancer, ingress)]
        problems += refused_names(each.status.names for each in routes)
        for published in (origin, (CLASS, "", of_class or "")):
            if sentence := self._exporter.refusal_of(published):
                problems.append(warning_event(ConditionReason.INVALID, sentence))
        serving, again_s = None if unprotected(ingress) else _serving(load_balancer, ingress), None
        try:
            await self._write(
                ingress,
                self._wanted(ingress, of_class, load_balancer, made_names(each.status.names for each in routes)),
            )
        except NotFound:
            return None
        except Conflict as error:
            problems.append(
                warning_event(
                    STATUS_CONFLICT,
                    "Another controller owns status.loadBalancer of this Ingress, so the address is not written there: "
                    "set spec.ingressClassName to a class of Fairlead, and to no other.",
                )
            )
            self._log.warning("status belongs to another", key=str(ingress.key), detail=error.detail)
            serving, again_s = None, FOREIGN_STATUS_RETRY_S
        self._events.emit_new("feedback", ingress, problems)
        wait_s = self._serving.emit(ingress, serving)
        return min(wait_s, again_s or wait_s) if wait_s is not None else again_s

    async def _withdraw(self, ingress: IngressObject) -> None:
        try:
            await self._write(ingress, [])
        except NotFound:
            return

    def _wanted(
        self,
        ingress: IngressObject,
        of_class: str | None,
        load_balancer: HTTPLoadBalancer | None,
        names: Iterable[str],
    ) -> list[Ingress] | None:
        """Return the addresses to show, ``names`` after them; None for those that are shown already."""
        if of_class is None or unprotected(ingress):
            return [] if self._is_ours(ingress) else None
        if load_balancer is None or not _is_programmed(load_balancer) or _no_addresses(load_balancer):
            return None
        addresses = [
            Ingress(ip=each.ip, hostname=each.hostname, ports=each.ports)
            for each in load_balancer.status.load_balancer.ingress or ()
        ]
        ports = addresses[0].ports if addresses else None
        return addresses + [Ingress(hostname=each, ports=ports) for each in names]

    def _is_ours(self, ingress: IngressObject) -> bool:
        """Return whether an Ingress that is of no class of ours (any more) shows an address of ours."""
        shown = {each.address for each in ingress.status.load_balancer.ingress or ()}
        return any(each.status.address in shown for each in self._l7.load_balancers.values() if each.status.address)

    async def _write(self, ingress: IngressObject, wanted: list[Ingress] | None) -> None:
        shown = ingress.status.load_balancer.ingress or ()
        if wanted is None or same_ingress(wanted, shown):
            return
        if not self._may_write():
            raise Wait("another agent leads, or may: nothing is written")
        meta = ingress.metadata
        entries = [object_from_ingress(each) for each in wanted]
        body: JSONObject = {
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "status": {"loadBalancer": {"ingress": entries} if entries else {}},
        }
        answer = await self._member.apply(INGRESSES, body, manager=MANAGER_AGENT, force=False, subresource="status")
        self._ingresses.written(answer, before=ingress)
        if wanted:
            addresses = ", ".join(each.address for each in wanted)
            self._events.emit(ingress, ServiceEvent(False, PROGRAMMED, f"Its routes are programmed at {addresses}"))
            self._serving.expect(ingress)


def _is_programmed(load_balancer: HTTPLoadBalancer) -> bool:
    return is_taken_over(condition_of(load_balancer.status.conditions, ConditionType.PROGRAMMED))


def _serving(load_balancer: HTTPLoadBalancer | None, obj: IngressObject) -> ServiceEvent | None:
    """Return the Event about the load balancer of its class, which its Ingresses share, and about its own routes."""
    ingress = load_balancer.status.load_balancer.ingress if load_balancer is not None else None
    if load_balancer is None or not ingress or _no_addresses(load_balancer):
        return None
    failing = failing_routes_of(load_balancer, INGRESS, obj.key)
    return serving_event(load_balancer.status.conditions or (), ingress, failing=failing)


def _no_addresses(load_balancer: HTTPLoadBalancer) -> list[str]:
    """Return what the hub says in the place of an address, and is none."""
    return usable_addresses(load_balancer.status.load_balancer.ingress or ())[1]


def _problems(load_balancer: HTTPLoadBalancer) -> list[ServiceEvent]:
    """Return what the hub refuses, and what it says that cannot be; what is pending is left out."""
    wrong = [not_an_address(text) for text in _no_addresses(load_balancer)[:1]]
    return wrong + [
        warning_event(each.reason, name_class_parameters(each.message, "Ingress"))
        for each in load_balancer.status.conditions or ()
        if each.type in {ConditionType.ACCEPTED, ConditionType.PROGRAMMED}
        and each.status == "False"
        # Which of its own routes are refused an Ingress says itself; those of others are no matter of its.
        and each.reason not in {ConditionReason.PENDING, ConditionReason.ROUTES_REFUSED}
        and each.observed_generation >= load_balancer.metadata.generation
    ]


def _refused(load_balancer: HTTPLoadBalancer, ingress: IngressObject) -> list[ServiceEvent]:
    """Return which parts of this Ingress the proxies do not serve."""
    hosts = {rule.host for rule in ingress.spec.rules or ()}
    origin = (INGRESS, ingress.metadata.namespace, ingress.metadata.name)
    routes = {route_name(origin, host) for host in {*hosts, ""}}
    own = routes | {https_listener(host) for host in hosts}
    own |= {certificate_name(ingress.metadata.namespace, secret) for secret in secrets_of(ingress)}
    return [
        warning_event(ConditionReason.REJECTED_BY_PROXY, f"the {part.kind} is not served: {part.reason}")
        for part in load_balancer.status.refused
        if part.name in own
    ]
