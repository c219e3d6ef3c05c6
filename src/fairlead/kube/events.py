"""Kubernetes Events about users' objects, for ``kubectl describe``: few, and never in the way of other work.

In: ``emit`` from anywhere in the event loop. Out: core/v1 Events, repeats counted up instead of written again. After a
restart, ``read_earlier`` reads which Warnings this component has written, so that those which are over can be resolved.
Never: blocks, raises, or grows without limit; when there is too much to say the newest is dropped and counted.
Source: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections import Counter, OrderedDict
from collections.abc import Generator, Iterable
from datetime import datetime
from operator import attrgetter
from typing import Literal, NamedTuple

import structlog

from fairlead.api.kubernetes import EVENTS
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, Resource, Wire, version_number
from fairlead.api.times import wire_time
from fairlead.errors import AlreadyExists, FairleadError, NamespaceNotFound, NotFound, Retry
from fairlead.kube.cluster import Cluster
from fairlead.model.condition import ObjectEvent, warning_event
from fairlead.runtime.background import keep
from fairlead.runtime.queue import KeyedQueue, QueueClosed, TokenBucket

EventType = Literal["Normal", "Warning"]

MESSAGE_LIMIT = 1024  # the API server refuses more
#: The reason of the Event that ends a Warning.
RESOLVED = "Resolved"
_ATTEMPTS = 5


def resolved_message(reason: str, message: str) -> str:
    """Return the message of the Event that ends a Warning with this reason and message."""
    return f"No longer the case: {reason}: {message}"[:MESSAGE_LIMIT]


class _Involved(Wire, frozen=True):
    kind: str = ""
    uid: str = ""


class _EventSource(Wire, frozen=True):
    component: str = ""


class WrittenEvent(KubeObject, frozen=True):
    """An Event of an API server: what is read of it."""

    involved_object: _Involved = _Involved()
    type: str = ""
    reason: str = ""
    message: str = ""
    source: _EventSource = _EventSource()
    reporting_component: str = ""
    reporting_instance: str = ""
    last_timestamp: str | None = None

    @property
    def when(self) -> str:
        """Return the time of the last occurrence, RFC 3339."""
        return self.last_timestamp or self.metadata.creation_timestamp or ""

    @property
    def order(self) -> tuple[str, int]:
        """Return a key for sorting by time; times are whole seconds, so writes within one go by resourceVersion."""
        return self.when, version_number(self.metadata.resource_version)


WRITTEN_EVENTS = Resource(EVENTS.group, EVENTS.version, EVENTS.kind, EVENTS.plural, True, WrittenEvent)


class _About(NamedTuple):
    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    message: str
    source: str


class _Entry:
    def __init__(self, at: datetime) -> None:
        self.first = at
        self.last = at
        self.count = 0
        self.written = 0
        self.written_s = 0.0
        self.event_name = ""


class EventRecorder:
    """Writes Events in the name of one component; ``run`` does the writing."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        component: str,
        qps: float = 5.0,
        burst: int = 50,
        repeat_s: float = 60.0,
        limit: int = 2000,
    ) -> None:
        self._cluster = cluster
        self._component = component
        self._clock = cluster.clock
        self._limiter = TokenBucket(qps, burst, self._clock)
        self._repeat_s = repeat_s
        self._limit = limit
        self._entries: OrderedDict[_About, _Entry] = OrderedDict()
        #: How many of them are about objects of each namespace.
        self._counts: Counter[str] = Counter()
        self._queue: KeyedQueue[_About] = KeyedQueue(clock=self._clock, group_of=attrgetter("namespace"))
        #: When (monotonic seconds) the last Event of each type about an object was emitted.
        self._emitted_s: OrderedDict[tuple[str, str, str, str, EventType], float] = OrderedDict()
        #: Reason and message of the Warnings of an earlier process, by kind and uid of the object, and source.
        self._earlier: dict[tuple[str, str, str], set[tuple[str, str]]] = {}
        self._logged = ""
        self.dropped = 0
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.kube.events")

    def emit_about(
        self, resource: AnyResource, obj: KubeObject, *, warning: bool, reason: str, message: str, source: str = ""
    ) -> None:
        """Emit an Event about an object; ``source`` names the part of the component that will know when it is over."""
        meta = obj.metadata
        self.emit(
            kind=resource.kind,
            api_version=resource.api_version,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            type="Warning" if warning else "Normal",
            reason=reason,
            message=message,
            source=source,
        )

    def emit(
        self,
        *,
        kind: str,
        api_version: str,
        namespace: str,
        name: str,
        uid: str,
        type: EventType,  # noqa: A002 - the word of the Event API
        reason: str,
        message: str,
        source: str = "",
    ) -> None:
        """Emit an Event about an object; a repetition within ``repeat_s`` only increases its count.

        A Warning repeated after good news, or good news after a Warning, is written at once: the last Event holds.
        """
        about = _About(api_version, kind, namespace, name, uid, type, reason, message[:MESSAGE_LIMIT], source)
        now = self._clock.now()
        entry = self._entries.get(about)
        if entry is None:
            if len(self._entries) >= self._limit and not self._make_room(namespace):
                self.dropped += 1
                return
            entry = self._entries[about] = _Entry(now)
            self._counts[namespace] += 1
        self._entries.move_to_end(about)
        entry.count += 1
        entry.last = now
        other: EventType = "Normal" if type == "Warning" else "Warning"
        if entry.written and self._emitted_s.get((kind, namespace, name, uid, other), -math.inf) >= entry.written_s:
            entry.written_s = -math.inf
        emitted = (kind, namespace, name, uid, type)
        self._emitted_s[emitted] = self._clock.monotonic()
        self._emitted_s.move_to_end(emitted)
        if len(self._emitted_s) > self._limit:
            self._emitted_s.popitem(last=False)
        if entry.written:
            self._queue.add_after(about, entry.written_s + self._repeat_s - self._clock.monotonic())
        else:
            self._queue.add(about)

    async def read_earlier(self) -> bool:
        """Read the Warnings of earlier processes that no later Event has ended; return whether there are any.

        Without the right to list Events there are none: such a Warning ends when the server forgets it, after an hour.
        """
        try:
            written = await self._cluster.list(WRITTEN_EVENTS, field_selector=f"reportingComponent={self._component}")
        except FairleadError as error:
            self._log.info("earlier events not read", sentence=error.sentence, detail=error.detail)
            return False
        for event in sorted(written, key=lambda event: event.order):
            source = event.reporting_instance.removeprefix(self._component).removeprefix("/")
            about = (event.involved_object.kind, event.involved_object.uid, source)
            if not source:
                continue
            warnings = self._earlier.setdefault(about, set())
            if event.type == "Warning":
                warnings.add((event.reason, event.message))
            elif event.reason == RESOLVED:
                warnings -= {warning for warning in warnings if resolved_message(*warning) == event.message}
            else:
                # Good news of a source takes the place of its Warnings.
                warnings.clear()
        self._earlier = {about: warnings for about, warnings in self._earlier.items() if warnings}
        return bool(self._earlier)

    def pop_earlier(self, resource: AnyResource, obj: KubeObject, source: str) -> set[tuple[str, str]]:
        """Return reason and message of the Warnings that ``read_earlier`` has read of an object and source, once."""
        return self._earlier.pop((resource.kind, obj.metadata.uid, source), set())

    async def run(self) -> None:
        """Write what was emitted, until cancelled."""
        await keep("events", self._run, clock=self._clock)

    async def _run(self) -> None:
        while True:
            try:
                about = await self._queue.get()
            except QueueClosed:
                return
            try:
                await self._limiter.acquire()
                await self._write(about)
            except Retry as error:
                if self._queue.failures(about) < _ATTEMPTS:
                    self._queue.retry(about, after_s=error.after_s)
                else:
                    self._give_up(about, error)
            except FairleadError as error:
                self._give_up(about, error)
            else:
                self._queue.forget(about)
            finally:
                self._queue.done(about)

    def _make_room(self, namespace: str) -> bool:
        """Forget the entry that has been quiet for longest, else the last one of the namespace that has most of them.

        Of one namespace alone the earlier ones are written, so that a new one gets no room.
        """
        about, entry = next(iter(self._entries.items()))
        if entry.written < entry.count:
            ((most, _),) = self._counts.most_common(1)
            if most == namespace:
                return False
            about = next(about for about in reversed(self._entries) if about.namespace == most)
            self.dropped += 1
        self._forget(about)
        return True

    def _forget(self, about: _About) -> None:
        if self._entries.pop(about, None) is not None:
            self._counts[about.namespace] -= 1
            if not self._counts[about.namespace]:
                del self._counts[about.namespace]

    def _give_up(self, about: _About, error: FairleadError) -> None:
        self._queue.forget(about)
        self._forget(about)
        self.dropped += 1
        if isinstance(error, NamespaceNotFound):
            self._log.debug("event about what is gone", sentence=error.sentence, detail=error.detail)
            return
        if self._logged != error.sentence:
            self._logged = error.sentence
            self._log.warning("event not written", sentence=error.sentence, detail=error.detail)

    async def _write(self, about: _About) -> None:
        entry = self._entries.get(about)
        if entry is None or entry.written == entry.count:
            return
        wait_s = entry.written_s + self._repeat_s - self._clock.monotonic()
        if entry.written and wait_s > 0:
            self._queue.add_after(about, wait_s)  # said again while the first one was being written
            return
        count = entry.count
        if entry.event_name:
            patch: JSONObject = {"count": count, "lastTimestamp": _time(entry.last)}
            try:
                await self._cluster.merge_patch(EVENTS, about.namespace or "default", entry.event_name, patch)
            except NotFound:
                entry.event_name = ""  # the server forgets Events after an hour
        if not entry.event_name:
            body = self._body(about, entry)
            with contextlib.suppress(AlreadyExists):  # our own create, whose answer was lost
                await self._cluster.create(EVENTS, body)
            entry.event_name = str(body["metadata"]["name"])
        entry.written = count
        entry.written_s = self._clock.monotonic()

    def _body(self, about: _About, entry: _Entry) -> JSONObject:
        # The name contains the time, so that a new series after a restart does not collide with the old one.
        seed = "\0".join((*about, self._component, entry.last.isoformat()))
        suffix = hashlib.blake2b(seed.encode(), digest_size=8).hexdigest()
        namespace = about.namespace or "default"  # where Events about cluster-scoped objects go
        involved: JSONObject = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name}
        if about.namespace:
            involved["namespace"] = about.namespace
        if about.uid:
            involved["uid"] = about.uid
        return {
            "metadata": {"namespace": namespace, "name": f"{about.name[:230]}.{suffix}"},
            "involvedObject": involved,
            "type": about.type,
            "reason": about.reason,
            "message": about.message,
            "count": entry.count,
            "firstTimestamp": _time(entry.first),
            "lastTimestamp": _time(entry.last),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": f"{self._component}/{about.source}" if about.source else self._component,
        }


def _time(when: datetime) -> str:
    return wire_time(when)


#: The object waits for another one, which exists and cannot be read.
NOT_READ = "ReferenceNotRead"


class EventWriter:
    """Remembers which events held last, per object of one kind and source."""

    def __init__(self, *, recorder: EventRecorder, resource: AnyResource) -> None:
        self._recorder = recorder
        self._resource = resource
        self._held: dict[tuple[str, str], dict[str, tuple[str, frozenset[ObjectEvent]]]] = {}
        #: The next event is emitted, by object and source, with the object's uid.
        self._expected: dict[tuple[tuple[str, str], str], str] = {}

    def emit_new(self, source: str, obj: KubeObject, events: Iterable[ObjectEvent]) -> None:
        """Emit the new ones of ``events``; an Event that has ended may be emitted again later.

        A Warning that has ended is resolved, also one of the agent before a restart.
        """
        now = tuple(events)
        uid, before = self._held.get(obj.key, {}).get(source, ("", frozenset[ObjectEvent]()))
        self._emit_news(source, obj, now)
        over = self._recorder.pop_earlier(self._resource, obj, source)
        if uid == obj.metadata.uid:
            over |= {(event.reason, event.message[:MESSAGE_LIMIT]) for event in before if event.warning}
        for reason, message in sorted(over - {(event.reason, event.message[:MESSAGE_LIMIT]) for event in now}):
            self.emit(obj, ObjectEvent(False, RESOLVED, resolved_message(reason, message)), source)

    def _emit_news(self, source: str, obj: KubeObject, now: tuple[ObjectEvent, ...]) -> None:
        by_source = self._held.setdefault(obj.key, {})
        uid, before = by_source.get(source, ("", frozenset[ObjectEvent]()))
        for event in now:
            if event not in before or uid != obj.metadata.uid:
                self.emit(obj, event, source)
        if now:
            by_source[source] = (obj.metadata.uid, frozenset(now))
        else:
            by_source.pop(source, None)
            if not by_source:
                del self._held[obj.key]

    @contextlib.contextmanager
    def warn_on(
        self, obj: KubeObject | None, reason: str, *errors: type[FairleadError], source: str = "", text: str = ""
    ) -> Generator[None]:
        """Emit a Warning while work on ``obj`` ends with one of ``errors``; none without ``obj``.

        The message is ``text`` and the sentence of the error. ``source`` is ``reason`` unless given.
        """
        try:
            yield
        except errors as error:
            if obj is not None:
                self.emit_new(source or reason, obj, [warning_event(reason, f"{text}{error.sentence}")])
            raise
        if obj is not None:
            self.emit_new(source or reason, obj, ())

    def expect(self, source: str, obj: KubeObject) -> None:
        """Have ``emit_change`` emit its next event, whatever held before: the status behind it was written just now."""
        self._expected[obj.key, source] = obj.metadata.uid

    def emit_change(self, source: str, obj: KubeObject, event: ObjectEvent) -> None:
        """Emit ``event``, which takes the place of the one before; one of type Normal that may be old after ``expect``.

        Only Warnings are known from before this process began, and a restart must not emit an Event for every object.
        """
        uid, _ = self._held.get(obj.key, {}).get(source, ("", frozenset[ObjectEvent]()))
        expected = self._expected.pop((obj.key, source), "") == obj.metadata.uid
        if self._recorder.pop_earlier(self._resource, obj, source) and not event.warning:
            expected = True
            self._held.get(obj.key, {}).pop(source, None)
        if expected or event.warning or uid == obj.metadata.uid:
            self._emit_news(source, obj, (event,))
        else:
            self._held.setdefault(obj.key, {})[source] = obj.metadata.uid, frozenset((event,))

    def emit(self, obj: KubeObject, event: ObjectEvent, source: str = "") -> None:
        """Emit one event, whatever was emitted before."""
        self._recorder.emit_about(
            self._resource, obj, warning=event.warning, reason=event.reason, message=event.message, source=source
        )

    def forget_deleted(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """Forget an object that a watch cache reports as gone."""
        if old is not None and new is None:
            self.forget(old.key)

    def forget(self, key: tuple[str, str]) -> None:
        """Forget an object that is gone."""
        self._held.pop(key, None)
        self._expected = {place: uid for place, uid in self._expected.items() if place[0] != key}
