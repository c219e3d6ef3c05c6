"""Readiness gates of pods: condition ``fairlead.dev/serving`` is True once all load balancers of a pod serve it.

    pod lacks only the gate ─► its EndpointSlices at the hub list it as ready, with a mark
    marked target is healthy at every proxy ─► status.gatedPods of the load balancer has its uid ─► condition True

    load balancers of the pod           condition
    ----------------------------------  ----------------------------------------------------
    none has pods as its targets        True, NoLoadBalancer
    all of them list it as serving      True, Serving
    one of them lists it as waiting     False, Waiting
    no answer for 60 s                  True, NotKnown, with a Warning: a rollout never waits for a hub that is silent

An open gate is never closed: health checks keep traffic from a pod that fails later, and a network that is split must
not make all pods unready. In: pods with the label and the gate, caches of both sides. Out: patches of the status of
pods. The agent that leads opens gates; without a leader, as while the hub cannot be reached, each copy opens those that
got no answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec
import structlog

from fairlead.agent.engine import Engine
from fairlead.agent.identity import Key, ServiceKey, key_of, service_of
from fairlead.agent.sources.caches import BY_BACKEND, BY_SERVICE, IngressCaches, ServiceCaches
from fairlead.agent.sources.gateway.caches import GatewayCaches
from fairlead.agent.sources.ingress.source import INGRESS
from fairlead.agent.sources.service.source import SERVICE
from fairlead.agent.sources.shared import BACKEND, Shared
from fairlead.api.httploadbalancer import HTTPLoadBalancer
from fairlead.api.intent import GatedPods, IntentObject
from fairlead.api.kubernetes import PODS, Pod
from fairlead.api.meta import JSONObject
from fairlead.api.names import CONDITION_SERVING, MANAGER_AGENT, hub_name
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.api.times import wire_time
from fairlead.errors import Conflict, FairleadError, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import EventRecorder
from fairlead.kube.writes import apply_status

#: Seconds without an answer after which a gate is opened; an agent that does not lead waits a little longer.
SILENT_S = 60.0
_NOT_LEADING_S = 10.0
#: A pod that has waited this long gets the condition False, with the reason.
_EXPLAIN_S = 5.0
_LOOK_S = 0.25
_GATHER_S = 1.0
_RETRY_S = 1.0
#: The number of concurrent status patches.
_AT_ONCE = 16


class GateReason(StrEnum):
    """The reason of the condition."""

    SERVING = "Serving"
    NO_LOAD_BALANCER = "NoLoadBalancer"
    NOT_KNOWN = "NotKnown"
    WAITING = "Waiting"


class _Wait(msgspec.Struct):
    """One pod whose gate is closed: since when, since when without an answer, and when it may be written again."""

    since_s: float
    silent_since_s: float
    explained: bool = False
    not_before_s: float = 0.0


class _GateVerdict(msgspec.Struct, frozen=True):
    """The condition that a pod should have; ``reason`` None: not decided yet."""

    reason: GateReason | None
    message: str


class ReadinessGates:
    """Opens the readiness gates of the pods of ``services``; without these, none."""

    def __init__(
        self,
        *,
        member: Cluster,
        services: ServiceCaches,
        http: IngressCaches,
        gateways: GatewayCaches,
        shared: Shared,
        engine: Engine,
        recorder: EventRecorder,
        tenant: str,
    ) -> None:
        self._member = member
        self._pods = services.pods
        self._services = services
        self._hub_namespace = services.hub_namespace
        self._http = http
        self._gateways = gateways
        self._shared = shared
        self._engine = engine
        self._recorder = recorder
        self._tenant = tenant
        self._waits: dict[str, _Wait] = {}
        #: When the last answer of each load balancer was heard, and its time.
        self._heard: dict[tuple[str, str], tuple[str, float]] = {}
        self._woken = asyncio.Event()
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.readiness")
        #: The last patch was refused for this reason; empty when it was accepted.
        self._refused = ""
        if self._pods is not None:
            self._pods.on_change(self._changed)

    @property
    def problem(self) -> str:
        """Return why gates cannot be opened; empty when they can, or are not to be."""
        return self._refused or (self._pods.problem if self._pods is not None else "")

    @property
    def waiting(self) -> int:
        """Return the number of pods that wait only for their gate."""
        return len(self._waits)

    async def run(self) -> None:
        """Open gates until cancelled; return at once where the agent does not open any."""
        if (pods := self._pods) is None:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(pods.run(), name="cache-member-pods")
            while True:
                self._woken.clear()
                if not self._waits:
                    await self._woken.wait()
                await self._look(pods.values())
                await self._member.clock.sleep(_LOOK_S)

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is None:
            return
        waited = old is not None and _waits(old)
        waits = new is not None and _waits(new)
        if waits:
            now_s = self._member.clock.monotonic()
            self._waits.setdefault(pod.metadata.uid, _Wait(now_s, now_s))
            self._woken.set()
        else:
            self._waits.pop(pod.metadata.uid, None)
        if waits != waited or _as_listed(old) != _as_listed(new):
            # A mark that is no longer needed changes no target: those of many pods go in one write.
            after_s = _GATHER_S if _as_listed(old) and _as_listed(new) else 0.0
            for namespace, name in self._services.services_of_pod(pod):
                self._engine.publish((SERVICE, namespace, name), after_s)
                if self._http.routes.indexed(BY_BACKEND, f"{namespace}/{name}"):
                    self._engine.publish((BACKEND, namespace, name), after_s)

    async def _look(self, pods: Iterable[Pod]) -> None:
        """Evaluate each waiting pod, and write conditions that are due."""
        now_s, due = self._member.clock.monotonic(), list[tuple[Pod, _Wait, _GateVerdict]]()
        for pod in pods:
            wait = self._waits.get(pod.metadata.uid)
            if wait is None or wait.not_before_s > now_s:
                continue
            verdict = self._judge(pod, wait, now_s)
            explains = verdict.reason is GateReason.WAITING and not wait.explained
            if verdict.reason is None or (explains and now_s - wait.since_s < _EXPLAIN_S):
                continue
            leads = self._engine.may_write()
            if verdict.reason is not GateReason.WAITING or (explains and leads):
                due.append((pod, wait, verdict))
        left = iter(due)

        async def write() -> None:
            for item in left:
                await self._write(*item)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(_AT_ONCE, len(due))):
                group.create_task(write())

    def _judge(self, pod: Pod, wait: _Wait, now_s: float) -> _GateVerdict:
        leads = self._engine.may_write()
        if self._is_read:
            missing, silent = self._missing(pod, now_s)
            if not missing and not silent:
                wait.silent_since_s = now_s
                some = any(True for _ in self._load_balancers(pod))
                text = "every proxy of its load balancers has the pod healthy" if some else "no load balancer has it"
                reason = GateReason.SERVING if some else GateReason.NO_LOAD_BALANCER
                return _GateVerdict(reason if leads else None, text)
            if missing:
                wait.silent_since_s = now_s
                text = f"not every proxy has the pod healthy yet: {', '.join(missing)}"
                return _GateVerdict(GateReason.WAITING, text)
        limit_s = SILENT_S if leads else SILENT_S + _NOT_LEADING_S
        if now_s - wait.silent_since_s < limit_s:
            return _GateVerdict(None, "")
        text = f"the hub has not said for {SILENT_S:g} s whether its proxies serve the pod"
        return _GateVerdict(GateReason.NOT_KNOWN, text)

    @property
    def _is_read(self) -> bool:
        """Return whether it is known which load balancers there are."""
        return self._services.synced and self._http.hub_synced

    def _missing(self, pod: Pod, now_s: float) -> tuple[list[str], list[str]]:
        """Return the load balancers where the pod is not healthy everywhere, and those that do not answer."""
        uid, missing, silent = pod.metadata.uid, list[str](), list[str]()
        if self._engine.may_write():
            asking = (key for service in self._services.services_of_pod(pod) for key in self._asking(service))
            silent += [f"{key[0]} {key[1]}/{key[2]}" for key in asking if self._engine.is_unpublished(key)]
        of_routes, there = self._of_routes(self._services.services_of_pod(pod)), self._shared.load_balancers
        silent += [f"HTTPLoadBalancer {name}" for name in of_routes if there.get(self._hub_namespace, name) is None]
        for obj in self._load_balancers(pod):
            gated = obj.status.gated_pods or GatedPods()
            if uid in gated.serving:
                continue
            name = f"{type(obj).__name__} {obj.metadata.name}"
            (missing if uid in gated.waiting and self._is_recent(obj, gated, now_s) else silent).append(name)
        return missing, silent

    def _asking(self, service: ServiceKey) -> Iterator[Key]:
        """Yield the keys of what may ask for a load balancer that has the pods of a Service."""
        yield SERVICE, *service
        for ingress in self._http.ingresses.indexed(BY_SERVICE, service):
            yield key_of(INGRESS, ingress)
        for kind, route in self._gateways.routes_to(*service):
            yield key_of(kind, route)

    def _is_recent(self, obj: IntentObject, gated: GatedPods, now_s: float) -> bool:
        """Return whether an answer was renewed lately: a hub that runs does so while pods wait."""
        key = (type(obj).__name__, obj.metadata.name)
        if self._heard.get(key, ("", 0.0))[0] != gated.time:
            self._heard[key] = gated.time, now_s
        return now_s - self._heard[key][1] < SILENT_S

    def _load_balancers(self, pod: Pod) -> Iterator[TCPLoadBalancer | HTTPLoadBalancer]:
        """Yield the load balancers at the hub that have the pod, or will have it, as a target."""
        services = self._services.services_of_pod(pod)
        for namespace, name in services:
            own = self._engine.publisher.load_balancers.get(self._hub_namespace, hub_name(namespace, name))
            is_own = own is not None and service_of(own, tenant=self._tenant) == (namespace, name)
            if own is not None and is_own and own.spec.targets == "Pod" and not own.deleting:
                yield own
        for name in self._of_routes(services):
            obj = self._shared.load_balancers.get(self._hub_namespace, name)
            if obj is not None and not obj.deleting:
                yield obj

    def _of_routes(self, services: Iterable[ServiceKey]) -> list[str]:
        """Return the names of the HTTPLoadBalancers whose routes have the pods of Services as targets."""
        routes = (self._shared.routes.by_index(BY_BACKEND, f"{namespace}/{name}") for namespace, name in services)
        return sorted({route.spec.load_balancer for of_service in routes for route in of_service})

    async def _write(self, pod: Pod, wait: _Wait, verdict: _GateVerdict) -> None:
        """Write the condition of one pod; a failure is retried."""
        is_open = verdict.reason is not GateReason.WAITING
        clock = self._member.clock
        condition: JSONObject = {
            "type": CONDITION_SERVING,
            "status": "True" if is_open else "False",
            "reason": verdict.reason,
            "message": verdict.message,
            "lastTransitionTime": wire_time(self._member.server_clock.now()),
        }
        status: JSONObject = {"conditions": [condition]}
        try:
            await apply_status(self._member, PODS, pod, status, manager=MANAGER_AGENT)
        except (Conflict, NotFound):
            self._waits.pop(pod.metadata.uid, None)  # the pod is gone, and the watch is about to show it
            return
        except FairleadError as error:
            wait.not_before_s = clock.monotonic() + _RETRY_S
            if error.sentence != self._refused:
                self._log.warning("readiness gate not written", pod=str(pod.key), sentence=error.sentence)
            self._refused = error.sentence
            return
        self._refused = ""
        wait.explained = True
        if is_open:
            self._waits.pop(pod.metadata.uid, None)
        if verdict.reason is GateReason.NOT_KNOWN:
            message = f"Readiness gate {CONDITION_SERVING} was opened: {verdict.message}."
            self._recorder.emit_about(PODS, pod, warning=True, reason=GateReason.NOT_KNOWN, message=message)


def _waits(pod: Pod) -> bool:
    """Return whether a pod waits only for its gate."""
    return pod.waits_only_for(CONDITION_SERVING) and not pod.is_open(CONDITION_SERVING)


def _as_listed(pod: Pod | None) -> bool:
    """Return whether a pod is listed as ready whatever its EndpointSlices say."""
    return pod is not None and pod.waits_only_for(CONDITION_SERVING)
