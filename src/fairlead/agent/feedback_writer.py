"""How does the hub's answer get onto the user's Service?

In: the caches of both sides. Out: the Service's status (server-side apply without force, so that a status that
another controller owns is never fought over), our annotation, Events.
Never: creates a Service (patches carry its uid), or writes while another agent leads.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from fairlead.agent.event_writer import Teller
from fairlead.agent.events import warn
from fairlead.agent.feedback import Feedback, build_feedback
from fairlead.agent.hub_writer import Recent
from fairlead.agent.identity import ServiceKey
from fairlead.agent.metrics import AgentMetrics
from fairlead.agent.ownership import CloudLoadBalancer, decide
from fairlead.agent.sources import MEMBER_SERVICES, MemberService, Sources, compact_service
from fairlead.agent.wire import object_from_ingress
from fairlead.api.meta import JSONObject
from fairlead.api.names import ANNOTATION_ADDRESS, MANAGER_AGENT
from fairlead.api.naming import hub_name
from fairlead.errors import Conflict, NotFound, Wait
from fairlead.kube.cluster import Cluster

#: Another controller's status is looked at again this often, besides whenever the Service changes.
FOREIGN_STATUS_RETRY_S = 60.0
STATUS_CONFLICT = "StatusOwnedByAnother"


class FeedbackWriter:
    """Reconciles one Service key at a time."""

    def __init__(
        self,
        *,
        member: Cluster,
        sources: Sources,
        teller: Teller,
        metrics: AgentMetrics,
        cloud: CloudLoadBalancer,
        may_write: Callable[[], bool],
    ) -> None:
        self._member = member
        self._sources = sources
        self._teller = teller
        self._metrics = metrics
        self._cloud: CloudLoadBalancer = cloud
        self._may_write = may_write
        self.recent = Recent()
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.feedback")

    async def reconcile(self, key: ServiceKey) -> float | None:
        """Make the Service show what the hub has answered."""
        service = self.recent.see(MEMBER_SERVICES.kind, _name(key), self._sources.services.get(*key))
        if service is None:
            return None
        decision = decide(service, cloud=self._cloud)
        load_balancer = self._sources.load_balancers.get(self._sources.hub_namespace, hub_name(*key))
        feedback = build_feedback(service, decision, load_balancer, status_is_ours=service.status_is_ours)
        notes = list(feedback.problems)
        again_s: float | None = None
        try:
            await self._write(service, feedback)
        except NotFound:
            return None
        except Conflict as error:
            if await self._made_anew(service):
                # The cache will show the new one, and the key comes again.
                return None
            notes.append(
                warn(
                    STATUS_CONFLICT,
                    "Another controller owns status.loadBalancer of this Service, so the address is not written there. "
                    "If this cluster has a load balancer implementation of its own, run the agent with "
                    "--cloud-load-balancer=present, or set the loadBalancerClass of the one that is meant.",
                )
            )
            self._log.warning("status belongs to another", key=_name(key), detail=error.detail)
            again_s = FOREIGN_STATUS_RETRY_S
        self._teller.tell("feedback", service, notes)
        return again_s

    async def _write(self, service: MemberService, feedback: Feedback) -> None:
        if feedback.ingress is None and feedback.annotation is None:
            return
        if not self._may_write():
            raise Wait("another agent leads, or may: nothing is written")
        meta = service.metadata
        identity: JSONObject = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
        if feedback.ingress is not None:
            ingress = [object_from_ingress(one) for one in feedback.ingress]
            # Applying without the field gives it up, and the server removes it if nobody else owns it.
            body: JSONObject = {
                "metadata": identity,
                "status": {"loadBalancer": {"ingress": ingress} if ingress else {}},
            }
            answer = await self._member.apply(
                MEMBER_SERVICES, body, manager=MANAGER_AGENT, force=False, subresource="status"
            )
            self._note(service, answer, "status")
        if feedback.annotation is not None:
            value = feedback.annotation or None
            patch: JSONObject = {"metadata": {"uid": meta.uid, "annotations": {ANNOTATION_ADDRESS: value}}}
            answer = await self._member.merge_patch(
                MEMBER_SERVICES, meta.namespace, meta.name, patch, manager=MANAGER_AGENT
            )
            self._note(service, answer, "annotation")
        if feedback.ensured is not None:
            self._teller.tell_once(service, feedback.ensured)

    async def _made_anew(self, service: MemberService) -> bool:
        try:
            there: MemberService = await self._member.get(MEMBER_SERVICES, *service.key)
        except NotFound:
            return True
        return there.metadata.uid != service.metadata.uid

    def _note(self, service: MemberService, answer: MemberService, what: str) -> None:
        cached = self._sources.services.get(*service.key)
        self.recent.note(MEMBER_SERVICES.kind, _name(service.key), cached, compact_service(answer))
        self._metrics.member_writes.labels(what).inc()
        self._log.info("wrote", what=what, key=_name(service.key))


def _name(key: ServiceKey) -> str:
    return f"{key[0]}/{key[1]}"
