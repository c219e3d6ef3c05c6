"""The engine of the agent: queues, terms, refusals and writes that all sources of requests share.

    member's caches ─► source ─► key ─► publications ─► source.publish(key) ─► Publisher ────► objects at the hub
    hub's caches ────► source ─► key ─► reports ──────► source.report(key) ──► MemberStatusWriter ─► status, Events

In: keys, from the caches that each source watches. Out: one run of a source at a time for each key, while this agent
leads and the source is ready. A key whose removal must wait, or that the hub rejects, is retried.
Never: decides about an object, publishes for a tenant that leaves, or lets the keys of one lane wait for another lane.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from fairlead.agent.events import SILENT_HUB, Feedback, ServingEvents
from fairlead.agent.identity import Key
from fairlead.api.meta import JSONObject, KubeObject, Wire
from fairlead.api.names import ANNOTATION_ADDRESS, ANNOTATION_GENERATED_HOSTNAME, MANAGER_AGENT
from fairlead.api.times import wire_time
from fairlead.errors import Conflict, FairleadError, Forbidden, Invalid, NotFound, NotRead, NotServed, Wait
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import NOT_READ, EventRecorder, EventWriter
from fairlead.kube.lease import check_may_write
from fairlead.kube.writes import Overlay, apply_status, replace_status, write_status
from fairlead.model.condition import warning_event
from fairlead.publish.objects import object_from_ingress
from fairlead.publish.publisher import Publisher
from fairlead.runtime.clock import Clock
from fairlead.runtime.loop import run_workers
from fairlead.runtime.queue import KeyedQueue
from fairlead.runtime.telemetry import Telemetry

T = TypeVar("T", bound=KubeObject)

#: A removal that waits for the member's caches to be current is retried this often.
NOT_CURRENT_RETRY_S = 5.0
#: Rejected objects are published again this often, and whenever they change: a newer hub may accept them.
REFUSED_RETRY_S = 300.0
#: An object whose status another controller owns is reported again this often, besides when it changes.
FOREIGN_STATUS_RETRY_S = 60.0
#: Every key is reprocessed this often even without a change, as a safeguard; unchanged objects cause no write.
RESYNC_S = 600.0
#: The time between two keys of a resync, in seconds, so that changes do not wait for it.
_RESYNC_APART_S = 0.01
_READY_CHECK_S = 0.2
#: Keys with a problem are retried every few seconds, sometimes for hours.
_PROBLEM_CHECK_S = 2.0

STATUS_CONFLICT = "StatusOwnedByAnother"
STATUS_REFUSED = "StatusRefused"


class Source(ABC):
    """One kind of requests of the member: which keys there are, and what is done with one.

    ``name`` is shown in logs, such as Ingresses; ``publishes`` and ``reports`` are the kinds of its keys.
    """

    name: str
    lane: str
    publishes: frozenset[str]
    reports: frozenset[str] = frozenset()

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: Set once a kind is served that has not been read yet; for most sources never.
        self.kind_came = asyncio.Event()
        engine.add(self)

    @property
    def ready(self) -> bool:
        """Return whether everything that its decisions depend on has been read."""
        return True

    @property
    def problem(self) -> str:
        """Return why something cannot be read; empty if everything can."""
        return ""

    def begin(self) -> None:
        """Prepare for its keys, which are all enqueued next: a term begins, or a kind is served that was not before."""
        self.replan()

    def replan(self) -> None:  # noqa: B027 - most sources compute nothing ahead
        """Drop computed plans, since all keys are processed again."""

    @abstractmethod
    def all_keys(self) -> Iterable[Key]:
        """Return the keys of all objects in the member and at the hub."""

    @abstractmethod
    async def publish(self, key: Key) -> bool:
        """Publish the desired objects of a key at the hub; return whether a removal waits."""

    async def report(self, key: Key) -> float | None:
        """Show the hub's answer on the object of a key; return in how many seconds to report again, if at all."""
        del key
        return None

    def refused(self, key: Key, why: str) -> None:
        """Note that the hub rejects the objects of a key; ``why`` is empty once it accepts them."""
        del why
        self._engine.report(key)


class Lane(NamedTuple):
    """The queues of some sources; the names are those of their controllers in the metrics."""

    publications: KeyedQueue[Key]
    reports: KeyedQueue[Key]
    publication_name: str
    report_name: str


#: The controllers of each lane, for publications and for reports.
SERVICES_LANE, HTTP_LANE, SETS_LANE = "services", "http", "sets"
LANES = {
    SERVICES_LANE: ("export", "feedback"),
    HTTP_LANE: ("l7", "l7-feedback"),
    SETS_LANE: ("cluster-set-export", "cluster-set-import"),
}


class Engine:
    """Runs the sources that were added; all of its queues exist before any cache runs."""

    def __init__(
        self,
        *,
        member: Cluster,
        publisher: Publisher,
        recorder: EventRecorder,
        may_write: Callable[[], bool],
        leaving: Callable[[], bool] = lambda: False,
        workers: int = 1,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.publisher = publisher
        self._member = member
        self._recorder = recorder
        self.may_write = may_write
        self._leaving = leaving
        self._workers = workers
        self._telemetry = telemetry
        self._sources: dict[str, Source] = {}
        self._begun: set[str] = set()
        self._writers: dict[str, MemberStatusWriter[Any]] = {}
        #: Why the hub rejects the objects of a key.
        self._refusals: dict[Key, str] = {}
        self.lanes = {
            name: Lane(KeyedQueue(clock=member.clock), KeyedQueue(clock=member.clock), *controllers)
            for name, controllers in LANES.items()
        }
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.engine")

    @property
    def queues(self) -> tuple[KeyedQueue[Key], ...]:
        """Return all queues."""
        return tuple(queue for lane in self.lanes.values() for queue in (lane.publications, lane.reports))

    def add(self, source: Source) -> None:
        """Run ``source`` for keys of its kinds."""
        for kind in source.publishes | source.reports:
            self._sources[kind] = source

    def status_writer(
        self, cache: WatchCache[T], on_write: Callable[[str], None] = lambda _what: None
    ) -> MemberStatusWriter[T]:
        """Return the writer of the statuses and Events of the kind of ``cache``."""
        writer = MemberStatusWriter(self._member, self._recorder, cache, may_write=self.may_write, on_write=on_write)
        self._writers[cache.resource.kind] = writer
        return writer

    # --- keys --------------------------------------------------------------------------------------------------------

    def publish(self, key: Key, after_s: float = 0.0) -> None:
        """Enqueue a key to be published."""
        source = self._sources.get(key[0])
        if source is not None and key[0] in source.publishes:
            self.lanes[source.lane].publications.add_after(key, after_s)

    def report(self, key: Key, after_s: float = 0.0) -> None:
        """Enqueue a key to be reported."""
        source = self._sources.get(key[0])
        if source is not None and key[0] in source.reports:
            self.lanes[source.lane].reports.add_after(key, after_s)

    def enqueue(self, key: Key, after_s: float = 0.0) -> None:
        """Enqueue a key to be published and reported."""
        self.publish(key, after_s)
        self.report(key, after_s)

    def enqueue_all(self) -> None:
        """Enqueue all keys of the sources that have begun."""
        for key in self._keys():
            self.enqueue(key)

    def publish_namespace(self, namespace: str) -> None:
        """Enqueue all keys of a namespace of the member to be published."""
        for key in self._keys():
            if key[1] == namespace:
                self.publish(key)

    def is_unpublished(self, key: Key) -> bool:
        """Return whether the hub may lack the desired objects of a key."""
        source = self._sources[key[0]]
        return source.name not in self._begun or self.lanes[source.lane].publications.is_pending(key)

    def refusal_of(self, key: Key) -> str:
        """Return why the hub rejects the objects of a key; empty if it accepts them."""
        return self._refusals.get(key, "")

    # --- one term ----------------------------------------------------------------------------------------------------

    async def work(self) -> None:
        """Do the work of one term, until cancelled."""
        self._begun.clear()
        run = partial(run_workers, workers=self._workers, telemetry=self._telemetry)
        async with asyncio.TaskGroup() as group:
            for source in self._all_sources():
                group.create_task(self._serve(source), name=f"serve-{source.name}")
            group.create_task(self._resync(), name="resync")
            for lane in self.lanes.values():
                group.create_task(run(lane.publications, self._publish, name=lane.publication_name))
                group.create_task(run(lane.reports, self._report, name=lane.report_name))

    def _all_sources(self) -> list[Source]:
        return list({source.name: source for source in self._sources.values()}.values())

    async def _serve(self, source: Source) -> None:
        """Enqueue all keys of a source once it is ready, and again whenever a kind is served that was not before."""
        while True:
            logged = ""
            while not source.ready:
                if source.problem != logged:
                    logged = source.problem
                    if logged:
                        self._log.warning(f"{source.name} are not served yet", sentence=logged)
                await self._member.clock.sleep(_READY_CHECK_S if not logged else _PROBLEM_CHECK_S)
            source.kind_came.clear()
            self._begun.add(source.name)
            source.begin()
            for key in source.all_keys():
                self.enqueue(key)
            await source.kind_came.wait()
            self._begun.discard(source.name)

    async def _resync(self) -> None:
        """Enqueue all keys periodically, a few at a time; a source that has not begun enqueues its keys later."""
        while True:
            await self._member.clock.sleep(RESYNC_S)
            for source in self._all_sources():
                if source.name in self._begun:
                    source.replan()
            for number, key in enumerate(self._keys()):
                self.enqueue(key, number * _RESYNC_APART_S)

    def _keys(self) -> dict[Key, None]:
        begun = (source for source in self._all_sources() if source.name in self._begun)
        return dict.fromkeys(key for source in begun for key in source.all_keys())

    async def _publish(self, key: Key) -> float | None:
        if self._leaving():
            return None
        source = self._begun_source(key)
        try:
            with self._reading(key):
                held = await source.publish(key)
        except Invalid as error:
            self._refusals[key] = f"The hub rejects what is published for it: {error.sentence}"
            source.refused(key, self._refusals[key])
            return REFUSED_RETRY_S
        if self._refusals.pop(key, ""):
            source.refused(key, "")
        return NOT_CURRENT_RETRY_S if held else None

    async def _report(self, key: Key) -> float | None:
        source = self._begun_source(key)
        try:
            # Publishing and reporting read the same objects, and only one of them reports this.
            with nullcontext() if key[0] in source.publishes else self._reading(key):
                return await source.report(key)
        except NotFound:
            return None  # the object is gone, and the watch is about to show it

    def _reading(self, key: Key) -> AbstractContextManager[None]:
        """Keep an Event on the object of ``key`` while an object that it depends on cannot be read."""
        writer = self._writers.get(key[0])
        return writer.events.warn_on(writer.get(*key[1:]), NOT_READ, NotRead) if writer is not None else nullcontext()

    def _begun_source(self, key: Key) -> Source:
        source = self._sources[key[0]]
        if not source.ready:
            self._begun.discard(source.name)
            source.kind_came.set()
        if source.name not in self._begun:
            raise Wait(f"{source.name} have not been read completely; all keys are enqueued once they are")
        return source


class MemberStatusWriter(Generic[T]):
    """Writes the statuses and Events of one kind in the member; reads include the writer's own last writes.

    Every patch carries the uid, so that no object is created or mistaken for an earlier one of its name.
    """

    def __init__(
        self,
        member: Cluster,
        recorder: EventRecorder,
        cache: WatchCache[T],
        *,
        may_write: Callable[[], bool],
        on_write: Callable[[str], None],
    ) -> None:
        self.cache = cache
        self.events = EventWriter(recorder=recorder, resource=cache.resource)
        self._objects = Overlay(cache)
        self._member = member
        self._may_write = may_write
        self._on_write = on_write
        self._serving = ServingEvents(events=self.events, clock=member.clock)
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.agent.feedback")

    def now(self) -> str:
        """Return the time of the member's API server, as RFC 3339."""
        return wire_time(self._member.server_clock.now())

    def get(self, namespace: str, name: str) -> T | None:
        """Return one object."""
        return self._objects.get(namespace, name)

    def forget(self, namespace: str, name: str) -> None:
        """Forget whether an object that is gone was served."""
        self._serving.forget((namespace, name))

    async def show(self, obj: T, feedback: Feedback) -> float | None:
        """Write addresses, annotations and Events; return in how many seconds to report again, if at all.

        Raises:
            NotFound: the object is gone, or was created again.
            Wait: another agent leads.
        """
        problems, serving, again_s = list(feedback.problems), feedback.serving, None
        kind = self.cache.resource.kind
        try:
            with self._warn_on_refusal(obj):
                try:
                    await self._show(obj, feedback)
                except NotFound as error:
                    await self._check_refusal(obj, error)
                    raise
        except Conflict as error:
            current = await self._member.get(self.cache.resource, *obj.key)
            if current.metadata.uid != obj.metadata.uid:
                raise NotFound(f"{kind} {obj.metadata.name} was created again.") from error
            problems.append(
                warning_event(
                    STATUS_CONFLICT,
                    f"Another controller owns status.loadBalancer of this {kind}, so the address is not written "
                    f"there. {feedback.on_conflict}",
                )
            )
            self._log.warning("status belongs to another", key=str(obj.key), detail=error.detail)
            serving, again_s = None, FOREIGN_STATUS_RETRY_S
        self.events.emit_new("feedback", obj, problems)
        # The hub has answered, so a Warning of before a restart that it does not is over.
        self.events.emit_new(SILENT_HUB, obj, ())
        wait_s = self._serving.emit(obj, serving)
        return min(wait_s, again_s or wait_s) if wait_s is not None else again_s

    async def apply(self, obj: T, old: Wire, new: Wire, *, force: bool = True) -> None:
        """Apply a status whose lists are maps: the entries of other controllers are kept.

        Raises:
            NotFound, Conflict: the object is gone, or was created again; without ``force``, or a field is another's.
            Wait: another agent leads.
        """
        check_may_write(self._may_write)
        async with self._reporting_refusals(obj):
            written = await write_status(
                self._member, self.cache.resource, obj, old, new, manager=MANAGER_AGENT, force=force
            )
        if written is not None:
            self._wrote("status", written, before=obj)

    async def replace(self, obj: T, old: Wire, new: Wire, *, foreign: Callable[[JSONObject], bool]) -> None:
        """Write the lists of a status as a whole, only onto the version of the object that they were made from.

        Entries of other controllers, for which ``foreign`` returns True, are kept.

        Raises:
            NotFound, Conflict: the object is gone, or has changed.
            Wait: another agent leads.
        """
        async with self._reporting_refusals(obj):
            if msgspec.to_builtins(new) == msgspec.to_builtins(old):
                return
            check_may_write(self._may_write)
            written = await replace_status(
                self._member, self.cache.resource, obj, new, manager=MANAGER_AGENT, foreign=foreign
            )
        self._wrote("status", written, before=obj)

    async def _show(self, obj: T, feedback: Feedback) -> None:
        texts = {ANNOTATION_ADDRESS: feedback.annotation, ANNOTATION_GENERATED_HOSTNAME: feedback.names}
        annotations = {name: text or None for name, text in texts.items() if text is not None}
        if feedback.ingress is None and not annotations:
            return
        check_may_write(self._may_write)
        meta = obj.metadata
        if feedback.ingress is not None:
            ingress = [object_from_ingress(entry) for entry in feedback.ingress]
            # Applying without the field gives it up, and the server removes it if no other manager owns it.
            status: JSONObject = {"loadBalancer": {"ingress": ingress} if ingress else {}}
            answer = await apply_status(
                self._member, self.cache.resource, obj, status, manager=MANAGER_AGENT, force=False
            )
            obj = self._wrote("status", answer, before=obj)
            if feedback.announcement is not None:
                self.events.emit(obj, feedback.announcement)
        if annotations:
            patch: JSONObject = {"metadata": {"uid": meta.uid, "annotations": annotations}}
            answer = await self._member.merge_patch(
                self.cache.resource, meta.namespace, meta.name, patch, manager=MANAGER_AGENT
            )
            obj = self._wrote("annotation", answer, before=obj)
        self._serving.expect(obj)

    def _wrote(self, what: str, answer: T, *, before: T) -> T:
        written = self._objects.written(answer, before=before)
        self._on_write(what)
        self._log.info("wrote", what=what, kind=self.cache.resource.kind, key=str(answer.key))
        return written

    @asynccontextmanager
    async def _reporting_refusals(self, obj: T) -> AsyncGenerator[None]:
        """Keep an Event on ``obj`` while its status is rejected.

        A 404 or 409 counts as a rejection if the object was not deleted, recreated or changed.
        """
        with self._warn_on_refusal(obj):
            try:
                yield
            except NotFound as error:
                await self._check_refusal(obj, error)
                raise
            except Conflict as error:
                await self._check_refusal(obj, error, version=obj.metadata.resource_version)
                raise

    async def _check_refusal(self, obj: T, error: FairleadError, *, version: str = "") -> None:
        """Raise ``Invalid`` if the member still has ``obj``, in this ``version`` unless that is empty."""
        current = (await self._member.get(self.cache.resource, *obj.key)).metadata
        if current.uid == obj.metadata.uid and current.resource_version == (version or current.resource_version):
            raise Invalid(error.detail or error.sentence, detail=error.detail) from error

    def _warn_on_refusal(self, obj: T) -> AbstractContextManager[None]:
        """Keep an Event on ``obj`` while the member's API server, or a webhook there, rejects its status."""
        text = "The status cannot be written, so it may be outdated; what is served is not affected. "
        return self.events.warn_on(obj, STATUS_REFUSED, Invalid, Forbidden, NotServed, text=text)


class CountPace:
    """When a status that differs from the written one only in counts is written.

    The counts are written once they have not changed for ``SETTLE_S``, and so soon after another write only when they
    have not changed for ``QUIET_S``. Counts that keep changing are written after ``LONGEST_S``.
    """

    #: In seconds; changing counts are also checked this often.
    SETTLE_S = 0.1
    QUIET_S = 0.4
    #: The time between two writes of counts that keep changing.
    APART_S = 1.0
    LONGEST_S = 2.0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: The counts that wait to be written, since when they differ from the written ones, and since when from others.
        self._waiting: dict[Key, tuple[object, float, float]] = {}
        self._written_s: dict[Key, float] = {}

    def wait_s(self, key: Key, written: object, counts: object) -> float:
        """Return the seconds to delay ``counts``, 0 if they are already written."""
        if counts == written:
            self._waiting.pop(key, None)
            return 0.0
        now_s = self._clock.monotonic()
        last, since_s, changed_s = self._waiting.get(key, (counts, now_s, now_s))
        if counts != last:
            changed_s = now_s
        self._waiting[key] = counts, since_s, changed_s
        apart_s = self._written_s.get(key, -math.inf) + self.APART_S
        settled_s = min(changed_s + self.SETTLE_S, since_s + self.LONGEST_S)
        return max(0.0, min(max(settled_s, apart_s), changed_s + self.QUIET_S) - now_s)

    def written(self, key: Key) -> None:
        """Note that the counts were written."""
        self._waiting.pop(key, None)
        self._written_s[key] = self._clock.monotonic()

    def forget(self, key: Key) -> None:
        """Forget an object that is gone."""
        self._waiting.pop(key, None)
        self._written_s.pop(key, None)


class AgentMetrics:
    """The metrics of one agent, on one registry; none has a label by Service: there may be thousands."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._reasons: set[str] = set()
        self.exported = Gauge(
            "fairlead_agent_exported_load_balancers", "Services of this member that are exported.", registry=registry
        )
        self.refused = Gauge(
            "fairlead_agent_refused_services",
            "Services whose request for a load balancer is refused.",
            ["reason"],
            registry=registry,
        )
        self.hub_writes = Counter(
            "fairlead_agent_hub_writes", "Writes that the hub accepted.", ["kind", "action"], registry=registry
        )
        self.member_writes = Counter(
            "fairlead_agent_member_writes", "Writes to Services of the member.", ["what"], registry=registry
        )
        self.nodes_stale = Gauge(
            "fairlead_agent_nodes_stale", "1 while the exported nodes are the last known ones.", registry=registry
        )

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read when it is asked for."""
        Gauge(f"fairlead_agent_{name}", text, registry=self._registry).set_function(read)

    def set_refused(self, counts: dict[str, int]) -> None:
        """Set all refusals at once; a reason that is gone goes to zero."""
        self._reasons |= counts.keys()
        for reason in self._reasons:
            self.refused.labels(reason).set(counts.get(reason, 0))
