"""Publishes each Service of the member at the hub, updates it and removes it.

    key ─► Service there? ─no─► ours before? ─► remove at the hub        (only when the member's view is current)
             │ yes
             ▼
           decide ─► build_export ─► plan_publication ─► Publisher
             │            │
             │            └─ refused, here or by the hub: keep what is there, Warning on the Service
             └─ not ours: remove

In: caches. Out: writes at the hub, Events for the Service's author.
Never: acts on a cache that is not synced, or removes because of an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches

import structlog

from fairlead.agent.events import EventWriter, ServiceEvent, warning_event
from fairlead.agent.export import NotYet, ServiceView, Settings, build_export
from fairlead.agent.heartbeat import Refusals
from fairlead.agent.identity import ServiceKey, origin_of
from fairlead.agent.metrics import AgentMetrics
from fairlead.agent.ownership import CloudLoadBalancer, Decision, NotOurs, Ours, decide
from fairlead.agent.sources import MemberService, Sources
from fairlead.api.kubernetes import EndpointSlice, Service
from fairlead.api.meta import KubeObject
from fairlead.api.names import (
    ANNOTATION_SERVICE_CLASS,
    GROUP,
    SERVICE_ANNOTATIONS,
    SERVICE_CLASS_VALUES,
    did_you_mean,
    hub_name,
    near_annotation,
)
from fairlead.errors import Invalid, Retry
from fairlead.model.condition import ConditionReason
from fairlead.model.keys import Family
from fairlead.publish.objects import IsOurs, Plan, Present, plan_publication, plan_removal
from fairlead.publish.publisher import Publisher
from fairlead.publish.service import Publication, Refused, ServiceOptions, read_options

#: A removal that waits for the member's caches to be current is reconciled again this often.
NOT_CURRENT_RETRY_S = 5.0
#: What the hub refuses is published again this often, besides when it changes: a newer hub may accept it.
REFUSED_RETRY_S = 300.0
CONFLICTED = "Conflicted"


class Exporter:
    """Reconciles one Service key at a time."""

    def __init__(
        self,
        *,
        sources: Sources,
        publisher: Publisher,
        events: EventWriter,
        metrics: AgentMetrics,
        refusals: Refusals,
        settings: Settings,
        cloud: CloudLoadBalancer,
        fresh_s: float,
        node_addresses: Mapping[Family, Mapping[str, str]],
    ) -> None:
        self._sources = sources
        self._publisher = publisher
        self._events = events
        self._metrics = metrics
        #: The messages of the Events: the heartbeat repeats them, as the hub's operators cannot read members' Events.
        self._refusals = refusals
        self._settings = settings
        self._cloud: CloudLoadBalancer = cloud
        self._fresh_s = fresh_s
        self._node_addresses = node_addresses
        self._refused: dict[ServiceKey, str] = {}
        self._exported: set[ServiceKey] = set()
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.export")

    async def reconcile(self, key: ServiceKey) -> float | None:
        """Make the hub hold what ``key`` should have; return in how many seconds to reconcile again, if at all."""
        if key in self._sources.services.broken:
            # It exists and cannot be read: what was exported stays, as for any other missing information.
            return None
        service = self._sources.services.get(*key)
        if service is None:
            self._events.forget(key)
            self._sources.departed.forget(key)
            self._count(key)
            return await self._remove(key, "the Service is gone")
        decision = decide(service, cloud=self._cloud)
        events = list(find_warnings(service, decision))
        match decision:
            case NotOurs(why):
                self._count(key)
                self._events.emit_new("export", service, events)
                return await self._remove(key, why)
            case Refused():
                return await self._refuse(service, decision, events)
            case Ours():
                return await self._export(service, decision, events)

    async def _refuse(self, service: MemberService, refused: Refused, events: list[ServiceEvent]) -> float | None:
        key = service.key
        sentence = refused.sentence
        self._count(key, refused=refused.reason, sentence=sentence)
        if refused.keep and self._present(key).load_balancer is not None:
            sentence += " Until then the last valid version stays in effect."
        self._events.emit_new("export", service, [*events, warning_event(refused.reason, sentence)])
        return None if refused.keep else await self._remove(key, sentence)

    async def _export(self, service: MemberService, ours: Ours, events: list[ServiceEvent]) -> float | None:
        key = service.key
        before = self._present(key).slices
        view = ServiceView(
            service=service,
            slices=self._sources.slices_of_service(key),
            before=before,
            reused=self._sources.reused_endpoints(key, before),
            class_targets=self._sources.class_targets(),
            node_addresses=self._node_addresses,
        )
        export = build_export(view, ours, self._settings)
        if isinstance(export, Refused):
            return await self._refuse(service, export, events)
        if isinstance(export, NotYet):
            self._log.debug("not yet", key=key, why=export.why)
            return None
        plan = self._plan(key, export)
        try:
            held = await self._write(plan)
        except Invalid as error:
            refused = Refused(ConditionReason.INVALID, f"The hub refuses what is published for it. {error.sentence}")
            await self._refuse(service, refused, events)
            return REFUSED_RETRY_S
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
        return NOT_CURRENT_RETRY_S if held else None

    def _plan(self, key: ServiceKey, export: Publication) -> Plan:
        name = export.load_balancer.metadata.name
        if (self._settings.namespace, name) in self._sources.load_balancers.broken:
            raise Retry(f"TCPLoadBalancer {name} at the hub cannot be read, so it is not written either.")
        return plan_publication(export, self._present(key, export.slices or ()), is_ours=self._is_ours(key))

    async def _remove(self, key: ServiceKey, why: str) -> float | None:
        plan = plan_removal(self._present(key), reason=why, is_ours=self._is_ours(key))
        return NOT_CURRENT_RETRY_S if await self._write(plan) else None

    async def _write(self, plan: Plan) -> bool:
        """Execute the writes; return whether removals wait until the member's view is current and whole."""
        allowed = plan if self._may_remove() else plan.without_removals()
        await self._publisher.write(allowed)
        return allowed != plan

    def _may_remove(self) -> bool:
        sources = self._sources
        # A slice that cannot be read may be any Service's: nothing counts as gone until it can.
        return sources.synced and not sources.slices.broken and sources.member_is_fresh(fresh_s=self._fresh_s)

    def _present(self, key: ServiceKey, desired: tuple[EndpointSlice, ...] = ()) -> Present:
        return self._publisher.present(self._settings.namespace, hub_name(*key), desired)

    def _is_ours(self, key: ServiceKey) -> IsOurs:
        def is_ours(hub_object: KubeObject) -> bool:
            return origin_of(hub_object, tenant=self._settings.tenant) == key

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


#: Kubernetes writes this into every Service with ClientIP affinity, so it is not what the user chose.
DEFAULT_AFFINITY_TIMEOUT_S = 10_800

UNKNOWN_ANNOTATION = "UnknownAnnotation"
AFFINITY_TIMEOUT_IGNORED = "AffinityTimeoutIgnored"
SOURCE_RANGE_AMBIGUOUS = "SourceRangeAmbiguous"


def find_warnings(service: Service, decision: Decision) -> tuple[ServiceEvent, ...]:
    """Return all Warnings about a Service, in a stable order."""
    ours = [*_affinity(service), *_doubtful_ranges(service)] if isinstance(decision, Ours) else []
    return (*_service_class(service), *_unknown_annotations(service), *ours)


def _service_class(service: Service) -> list[ServiceEvent]:
    value = service.annotation(ANNOTATION_SERVICE_CLASS)
    hint = did_you_mean(value, tuple(sorted(SERVICE_CLASS_VALUES)))
    # A value that is nowhere near ours is another controller's.
    if not value or value in SERVICE_CLASS_VALUES or not hint:
        return []
    return [
        warning_event(
            UNKNOWN_ANNOTATION, f"annotation {ANNOTATION_SERVICE_CLASS} is {value!r}, which is unknown.{hint}"
        )
    ]


def _unknown_annotations(service: Service) -> list[ServiceEvent]:
    events: list[ServiceEvent] = []
    for key in sorted(service.metadata.annotations or {}):
        if key.startswith(f"{GROUP}/") and key not in SERVICE_ANNOTATIONS:
            hint = near_annotation(key)
        elif key.startswith("kubernetes.io/service") and key != ANNOTATION_SERVICE_CLASS:
            similar = get_close_matches(key.lower(), [ANNOTATION_SERVICE_CLASS], n=1, cutoff=0.9)
            if not similar:
                continue
            hint = f" Did you mean {ANNOTATION_SERVICE_CLASS!r}?"
        else:
            continue
        events.append(warning_event(UNKNOWN_ANNOTATION, f"annotation {key!r} has no meaning on a Service.{hint}"))
    return events


def _affinity(service: Service) -> list[ServiceEvent]:
    config = service.spec.session_affinity_config
    timeout_s = config.client_ip.timeout_seconds if config and config.client_ip else None
    if service.spec.session_affinity != "ClientIP" or timeout_s in {None, DEFAULT_AFFINITY_TIMEOUT_S}:
        return []
    sentence = (
        f"sessionAffinityConfig.clientIP.timeoutSeconds {timeout_s} cannot be honoured: affinity here is by a hash of "
        "the client's address, which has no end. Clients stay with their backend as long as the backends stay the same."
    )
    return [warning_event(AFFINITY_TIMEOUT_IGNORED, sentence)]


def _doubtful_ranges(service: Service) -> list[ServiceEvent]:
    options = read_options(service)
    warnings = options.warnings if isinstance(options, ServiceOptions) else ()
    return [warning_event(SOURCE_RANGE_AMBIGUOUS, sentence) for sentence in warnings]
