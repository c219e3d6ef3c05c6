"""Writes the hub's answer to the user's Service: status, annotation and Events.

In: the caches of both sides. Out: the Service's status (server-side apply without force, so that a status that
another controller owns is never fought over), our annotation, Events.
Never: creates a Service (patches carry its uid), or writes while another agent leads.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from fairlead.agent.events import EventWriter, ServiceEvent, warning_event
from fairlead.agent.feedback import Feedback, build_feedback
from fairlead.agent.identity import ServiceKey
from fairlead.agent.metrics import AgentMetrics
from fairlead.agent.ownership import CloudLoadBalancer, Decision, NotOurs, decide
from fairlead.agent.serving_event import ServingEvents
from fairlead.agent.sources import MEMBER_SERVICES, MemberService, Sources
from fairlead.api.meta import JSONObject
from fairlead.api.names import ANNOTATION_ADDRESS, ANNOTATION_GENERATED_HOSTNAME, MANAGER_AGENT, hub_name
from fairlead.errors import Conflict, NotFound, Wait
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import Overlay
from fairlead.publish.objects import object_from_ingress

#: A Service or Ingress whose status another controller owns is reconciled this often, besides when it changes.
FOREIGN_STATUS_RETRY_S = 60.0
STATUS_CONFLICT = "StatusOwnedByAnother"
RELEASED = "AddressReleased"


class FeedbackWriter:
    """Reconciles one Service key at a time."""

    def __init__(
        self,
        *,
        member: Cluster,
        sources: Sources,
        events: EventWriter,
        metrics: AgentMetrics,
        cloud: CloudLoadBalancer,
        may_write: Callable[[], bool],
        leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        self._member = member
        self._sources = sources
        self._events = events
        self._metrics = metrics
        self._cloud: CloudLoadBalancer = cloud
        self._may_write = may_write
        self._leaving = leaving
        self._serving = ServingEvents(events=events, clock=member.clock)
        #: The uid and addresses of Services that are ours: an API server may clear the status of one that no longer is.
        self._addresses: dict[ServiceKey, tuple[str, str]] = {}
        self.services = Overlay(sources.services)
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.feedback")

    async def reconcile(self, key: ServiceKey) -> float | None:
        """Write the hub's answer to the Service."""
        service = self.services.get(*key)
        if service is None:
            self._serving.forget(key)
            self._addresses.pop(key, None)
            return None
        decision = decide(service, cloud=self._cloud)
        load_balancer = self._sources.load_balancers.get(self._sources.hub_namespace, hub_name(*key))
        ours, leaving = service.status_is_ours, self._leaving()
        feedback = build_feedback(
            service,
            decision,
            load_balancer,
            status_is_ours=ours,
            leaving=leaving,
            slices=self._sources.slices_of_service(key),
            classes=[each.metadata.name for each in self._sources.classes.values()],
        )
        problems = list(feedback.problems)
        serving = feedback.serving
        again_s: float | None = None
        try:
            await self._write(service, feedback)
        except NotFound:
            return None
        except Conflict as error:
            if await self._made_anew(service):
                # The cache will show the new one, and the key comes again.
                return None
            problems.append(
                warning_event(
                    STATUS_CONFLICT,
                    "Another controller owns status.loadBalancer of this Service, so the address is not written there. "
                    "If this cluster has a load balancer implementation of its own, run the agent with "
                    "--cloud-load-balancer=present, or set spec.loadBalancerClass to the class that is to serve it.",
                )
            )
            self._log.warning("status belongs to another", key=_name(key), detail=error.detail)
            again_s = FOREIGN_STATUS_RETRY_S
            serving = None
        self._events.emit_new("feedback", service, problems)
        self._announce_release(service, decision)
        wait_s = self._serving.emit(service, serving)
        return min(wait_s, again_s or wait_s) if wait_s is not None else again_s

    def _announce_release(self, service: MemberService, decision: Decision) -> None:
        """Emit that a Service which is no longer ours has lost its address."""
        shown = [each.address for each in service.status.load_balancer.ingress or ()] if service.status_is_ours else []
        shown += filter(None, service.annotation(ANNOTATION_ADDRESS).split(","))
        if not isinstance(decision, NotOurs):
            if shown:
                self._addresses[service.key] = service.metadata.uid, ", ".join(shown)
            return
        uid, addresses = self._addresses.pop(service.key, (service.metadata.uid, ", ".join(shown)))
        if addresses and uid == service.metadata.uid and not service.deleting:
            self._events.emit_new("serving", service, ())
            message = f"The address {addresses} was released: {decision.why}"
            self._events.emit(service, ServiceEvent(False, RELEASED, message))

    async def _write(self, service: MemberService, feedback: Feedback) -> None:
        if feedback.ingress is None and feedback.annotation is None and feedback.names is None:
            return
        if not self._may_write():
            raise Wait("another agent leads, or may: nothing is written")
        meta = service.metadata
        identity: JSONObject = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
        if feedback.ingress is not None:
            ingress = [object_from_ingress(entry) for entry in feedback.ingress]
            # Applying without the field gives it up, and the server removes it if no other manager owns it.
            body: JSONObject = {
                "metadata": identity,
                "status": {"loadBalancer": {"ingress": ingress} if ingress else {}},
            }
            answer = await self._member.apply(
                MEMBER_SERVICES, body, manager=MANAGER_AGENT, force=False, subresource="status"
            )
            service = self._wrote(answer, "status", before=service)
        texts = {ANNOTATION_ADDRESS: feedback.annotation, ANNOTATION_GENERATED_HOSTNAME: feedback.names}
        annotations = {name: text or None for name, text in texts.items() if text is not None}
        if annotations:
            patch: JSONObject = {"metadata": {"uid": meta.uid, "annotations": annotations}}
            answer = await self._member.merge_patch(
                MEMBER_SERVICES, meta.namespace, meta.name, patch, manager=MANAGER_AGENT
            )
            service = self._wrote(answer, "annotation", before=service)
        self._serving.expect(service)

    async def _made_anew(self, service: MemberService) -> bool:
        try:
            current: MemberService = await self._member.get(MEMBER_SERVICES, *service.key)
        except NotFound:
            return True
        return current.metadata.uid != service.metadata.uid

    def _wrote(self, answer: MemberService, action: str, *, before: MemberService) -> MemberService:
        written = self.services.written(answer, before=before)
        self._metrics.member_writes.labels(action).inc()
        self._log.info("wrote", what=action, key=str(answer.key))
        return written


def _name(key: ServiceKey) -> str:
    return f"{key[0]}/{key[1]}"
