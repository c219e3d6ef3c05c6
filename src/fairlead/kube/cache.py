"""A copy of all objects of one kind in a cluster, kept current by a watch.

    not synced ──WatchList, or pages──► synced ──watch──► ends, breaks ──► watch on from the last version
                                           ▲                    └── 410, or an older state there ──► whole state
                                           └────────────────────────── again: diff, not replace ─────────┘

In: a Cluster and a Resource. Out: objects by key and by index, a callback per change, and how far to trust it:
``synced``, ``age_s``, ``problem``. Never: removes an object because of an error; only a DELETED event or a complete
list without the object does, and a list that is suddenly *empty* has to be confirmed by a second one first.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from fairlead.api.json_text import decode, decode_leniently, repaired
from fairlead.api.meta import KubeObject, ObjectKey, Resource, is_newer, version_number
from fairlead.errors import (
    Expired,
    FairleadError,
    Forbidden,
    Invalid,
    NotRead,
    Quiet,
    Retry,
    Terminal,
    Throttled,
    Unreachable,
)
from fairlead.kube.cluster import (
    UNNAMED,
    Cluster,
    Remains,
    Undecodable,
    Unreadable,
    decode_object,
    remains_of,
    selector_params,
)
from fairlead.kube.transport import (
    Frame,
    LineSplitter,
    LineTooLong,
    StateSize,
    Status,
    TruncatedLine,
    error_from_status,
)
from fairlead.runtime.background import keep
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import backoff_s

T = TypeVar("T", bound=KubeObject)


log = structlog.get_logger(__name__)


def processing_problem(obj: KubeObject, error: Exception) -> str:
    """Log the bug that ``obj`` has shown; return why the object counts as unreadable."""
    log.error("bug", key=str(obj.key), exc_info=error)
    return Undecodable(
        f"Fairlead cannot process the object ({type(error).__name__}: {error})", msgspec.json.encode(obj)
    )


class BrokenStream(Retry):
    """The stream has data that is not an event; a list is needed, since events may be lost."""


class EventReader(Generic[T]):
    """Reads the events of one watch; an object that cannot be decoded is distinguished from a stream that is broken."""

    def __init__(
        self, cluster: Cluster, resource: Resource[T], *, namespace: str, transform: Callable[[T], T] | None
    ) -> None:
        self.what = f"{resource.full_name} of {cluster.name}"
        self._cluster = cluster
        self._resource = resource
        self._namespace = namespace
        self._transform = transform

    def lines(self, splitter: LineSplitter, chunk: bytes) -> list[bytes]:
        """Return the lines that ``chunk`` completes."""
        try:
            return splitter.feed(chunk)
        except LineTooLong as error:
            raise BrokenStream(f"The watch of {self.what} sends data that is not a watch event.") from error

    def frame(self, line: bytes) -> Frame:
        """Return one event; an ERROR event is raised as the error that it reports."""
        try:
            frame = line.frame() if isinstance(line, TruncatedLine) else self._frame(line)
        except msgspec.DecodeError as error:
            raise BrokenStream(f"The watch of {self.what} broke off in the middle.", detail=str(error)) from error
        if not frame.type:
            raise BrokenStream(f"The watch of {self.what} sent something that is not an event.")
        if frame.type == "ERROR":
            status = decode_leniently(frame.object, Status)
            call = self._cluster.call_for("watch", self._resource, self._namespace)
            raise error_from_status(call, status.code if 400 <= status.code < 600 else 500, status)
        return frame

    def _frame(self, line: bytes) -> Frame:
        try:
            return decode(line, Frame)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError as error:
            frame = decode(repaired(line), Frame)
            frame.problem = str(error)
            return frame

    def decoded(self, frame: Frame) -> T | str:
        """Return the object, or why it cannot be read."""
        if frame.problem:
            return Undecodable(frame.problem, frame.object)
        obj = decode_object(frame.object, self._resource.type)
        return obj if isinstance(obj, str) else self.kept(obj)

    def kept(self, obj: T) -> T | str:
        """Return the stored form of an object, or why it cannot be computed."""
        try:
            return self.transformed(obj)
        except Exception as error:  # noqa: BLE001 - one object must not end the watch of all others
            return processing_problem(obj, error)

    def transformed(self, obj: T) -> T:
        """Return the stored form of an object."""
        return self._transform(obj) if self._transform else obj

    def meta(self, frame: Frame) -> KubeObject:
        """Return the readable metadata of any object; even the name may be missing if the object is too large."""
        meta = decode_leniently(frame.object, KubeObject)
        if frame.type == "BOOKMARK":
            known = bool(meta.metadata.resource_version)
        else:
            known = bool(meta.metadata.name) or (bool(frame.problem) and frame.type != "DELETED")
        if not known:
            raise BrokenStream(f"The watch of {self.what} sent an object without a name or version.")
        return meta


#: The types of events after which an object is there.
PRESENT = ("ADDED", "MODIFIED")
_INITIAL_END = "k8s.io/initial-events-end"


class InitialState(Generic[T]):
    """The initial events of a watch; ``version`` is empty until they are complete."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, T] = {}
        self.broken: dict[ObjectKey, str] = {}
        self.version = ""

    def add(self, frame: Frame, reader: EventReader[T]) -> None:
        """Add one event."""
        if frame.type == "BOOKMARK":
            meta = reader.meta(frame)
            if meta.annotation(_INITIAL_END) == "true":
                self.version = meta.metadata.resource_version
            return
        key = reader.meta(frame).key
        self.objects.pop(key, None)
        self.broken.pop(key, None)
        if frame.type in PRESENT:
            self.put(key, reader.decoded(frame))

    def put(self, key: ObjectKey, obj: T | str) -> None:
        """Add an object, or why it cannot be read."""
        if isinstance(obj, str):
            self.broken[key] = obj
        else:
            self.objects[key] = obj


#: No cluster writes that often between two reads: 5,000 times a second for a day.
_LEAP = 400_000_000


class StateRestored(FairleadError):
    """The server was restored to an older state, so all derived state must be recomputed."""


def was_restored(before: str, now: str) -> bool:
    """Return whether a server was restored between version ``before`` and version ``now``."""
    old, new = version_number(before), version_number(now)
    return bool(old and new) and (new < old or new - old > _LEAP)


def newest_of(objects: Iterable[T]) -> T | None:
    """Return the most recently changed object; None if there is none."""
    return max(objects, key=lambda obj: version_number(obj.metadata.resource_version), default=None)


Change = Callable[[T | None, T | None], None]

# A watch that lasted this long was healthy: the next failure starts with a short wait again.
HEALTHY_S = 10.0
_COUNTED = ("change", "relist", "reconnect", "undecodable", "unconfirmed_empty")


class _Silent(Retry):
    """A stream that should begin with the whole state never reported that it was complete."""


class WatchCache(Generic[T]):
    """A copy of the objects of one kind.

    ``transform`` makes objects smaller before they are stored; it must keep name, namespace and resourceVersion.
    """

    #: Whether the API serves the kind, as far as it is known.
    served = True

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        transform: Callable[[T], T] | None = None,
        indexes: Mapping[str, Callable[[T], Iterable[Hashable]]] | None = None,
        settings: CacheSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.cluster = cluster
        self.resource = resource
        self.namespace = namespace
        self.synced = False
        self.problem = ""
        self.broken = Unreadable()
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._settings = settings or CacheSettings()
        self.clock: Clock = clock or cluster.clock
        self.indexes = dict(indexes or {})
        self._store: ObjectStore[T] = ObjectStore(self.indexes)
        self._callbacks: list[Change[T]] = []
        self._heard_s = -math.inf
        self._version = ""  # the last one that was read, handed back to the server as it came
        self._refreshed_at = ""  # that of the last refresh; what the running watch shows of before is history
        self._resumes = False  # whether a watch may start from it
        self._ends_when_restored = False
        self._offers_watch_list = True
        #: The number of objects added by events since the last whole state.
        self._added = self._new_size()
        self._synced_event = asyncio.Event()
        self._reader = EventReader(cluster, resource, namespace=namespace, transform=transform)
        self._counters = {
            event: cluster.metrics.cache_events.labels(cluster.name, resource.full_name, event) for event in _COUNTED
        }
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("fairlead.kube.cache").bind(
            cluster=cluster.name, resource=resource.full_name
        )

    # --- reading ----------------------------------------------------------------------------------------------

    @property
    def age_s(self) -> float:
        """Return the seconds since the server last answered this cache; infinite before the first answer."""
        return self.clock.monotonic() - self._heard_s

    def __len__(self) -> int:
        return len(self._store)

    def get(self, namespace: str, name: str) -> T | None:
        """Return one object; the namespace of a cluster-scoped one is empty."""
        return self._store.get(ObjectKey(namespace, name))

    @property
    def unread(self) -> list[ObjectKey]:
        """Return the keys of the objects that exist and never had a readable state."""
        return [key for key in self.broken if self._store.get(key) is None]

    def remains(self) -> dict[ObjectKey, Remains[T]]:
        """Return the readable parts of each object that never had a readable state."""
        return {key: remains_of(self.broken[key], self.resource.type) for key in self.unread}

    def check_read(self, namespace: str = "", name: str = "") -> None:
        """Check that no unread object has this namespace and name; empty for any.

        Raises:
            NotRead: one has; what depends on it cannot be decided.
        """
        for key in self.unread:
            if key == UNNAMED or (namespace in ("", key.namespace) and name in ("", key.name)):
                # Only what was asked for is named: its reader may not see the other objects of that namespace.
                what = f"{self.resource.kind} {ObjectKey(namespace, name)}" if name else f"A {self.resource.kind}"
                where = f" in namespace {namespace}" if namespace and not name else ""
                raise NotRead(
                    f"{what}{where} of {self.cluster.name} cannot be read, so what is served stays as it is. "
                    f"Correct or delete that {self.resource.kind}."
                )

    def values(self) -> Iterable[T]:
        """Return all objects, in no order; a copy is needed to change anything while iterating."""
        return self._store.values()

    def by_index(self, name: str, value: Hashable) -> Sequence[T]:
        """Return the objects with this value of an index, sorted by key."""
        return self._store.by_index(name, value)

    def indexed(self, name: str, value: Hashable) -> Collection[T]:
        """Return the same objects, unordered and without a copy, for callers that need only one of thousands."""
        return self._store.indexed(name, value)

    def transformed(self, obj: T) -> T:
        """Return the cache's stored form of an object."""
        return self._reader.transformed(obj)

    def on_change(self, callback: Change[T]) -> None:
        """Call ``callback(old, new)`` after each change: None before the first, and after the last.

        It is called in the event loop and must not block; what it raises is logged.
        """
        self._callbacks.append(callback)

    def on_object(self, callback: Callable[[T], None], *, part: Callable[[T], object] | None = None) -> None:
        """Call ``callback`` with each object that changes: as it is now, or as it was last.

        With ``part``, an object that was there and still is counts only when that part of it has changed.
        """

        def changed(old: T | None, new: T | None) -> None:
            obj = new or old
            if obj is not None and (part is None or old is None or new is None or part(old) != part(new)):
                callback(obj)

        self.on_change(changed)

    async def wait_synced(self, timeout_s: float | None = None) -> None:
        """Wait for the first complete state.

        Raises:
            Unreachable: not within ``timeout_s`` (machine time); the message has the cause.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._synced_event.wait()
        except TimeoutError as error:
            what = f"{self.resource.full_name} of {self.cluster.name}"
            raise Unreachable(self.problem or f"The {what} have not arrived within {timeout_s:g} s.") from error

    async def refresh(self) -> None:
        """Read the server's present state, unless the watch has it already: the watch may lag by seconds.

        Raises:
            FairleadError: as its class says; the copy is as before.
        """
        await self._list()
        self._refreshed_at = self._version

    # --- keeping current --------------------------------------------------------------------------------------

    async def run(self, *, end_when_restored: bool = False) -> None:
        """Keep the copy current until cancelled; every failure is handled here, a bug by starting over.

        Raises:
            StateRestored: the server has an older state than this copy, and ``end_when_restored``.
        """
        self._ends_when_restored = end_when_restored
        await keep(f"cache-{self.resource.plural}", self._keep_current, clock=self.clock, passes=StateRestored)

    async def _keep_current(self) -> None:
        failures, unanswered, returns = 0, False, self.cluster.reachable.returns
        while True:
            started_s = self.clock.monotonic()
            pause_s, was_unanswered, unanswered = 0.0, unanswered, False
            try:
                await self._follow(doubted=failures > 0)
            except Terminal as error:
                self._report(error)
                # An API server that has just started refuses for a moment; a right that is missing stays so for long.
                failures = 1 if was_unanswered or self._lived(started_s) else failures + 1
                pause_s = backoff_s(failures, base_s=2.0, limit_s=self._settings.terminal_retry_s)
                # Without a watch the next read is a new list: slow polling is better than no updates.
                self._resumes = False
            except Quiet:
                # Servers may leave out bookmarks of what never changes. If the link is dead, the next look says so.
                failures = 1
            except Retry as error:
                if isinstance(error, Expired) and failures == 0:
                    self._log.info("starting over", sentence=error.sentence, detail=error.detail)
                else:
                    self._report(error)
                self._resumes = self._resumes and not isinstance(error, Expired | BrokenStream)
                pause_s, unanswered = error.after_s or 0.0, isinstance(error, Unreachable)
                # Requests without an answer say nothing of how often the server, back again, has to be asked:
                # neither one whose pause it ended, nor one that was under way then and was lost among all others.
                anew = (was_unanswered and not unanswered) or self.cluster.reachable.returns != returns
                returns = self.cluster.reachable.returns
                failures = 1 if anew or self._lived(started_s) else failures + 1
                pause_s = max(pause_s, backoff_s(failures, base_s=0.25, limit_s=30.0))
            else:
                # The server ended the watch, as it does every few minutes. One that ends at once must not spin.
                lived = self._lived(started_s)
                failures = 0 if lived else failures + 1
                pause_s = 0.0 if lived else backoff_s(failures, base_s=0.05, limit_s=10.0)
            self._count("reconnect")
            if unanswered:
                # However long it was away: the first request that it answers ends the wait of all.
                await self.cluster.reachable.pause(pause_s, clock=self.clock)
            else:
                await self.clock.sleep(pause_s)

    def _lived(self, started_s: float) -> bool:
        return self.clock.monotonic() - started_s >= HEALTHY_S

    async def _follow(self, *, doubted: bool) -> None:
        """Get the whole state if there is none to continue from, then apply events."""
        if self._resumes and (not doubted or await self._is_continued()):
            await self._watch({"resourceVersion": self._version})
            return
        if self._offers_watch_list:
            try:
                params = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": ""}
                await self._watch(params, InitialState[T]())
            except (Invalid, Forbidden, _Silent) as error:
                # The feature is off (422) or unknown (silence), or we may list but not watch (403): a list is
                # more than nothing.
                self._offers_watch_list = isinstance(error, Forbidden)
                self._log.debug("no WatchList", sentence=error.sentence, detail=error.detail)
            else:
                return
        await self._list()
        await self._watch({"resourceVersion": self._version})

    async def _is_continued(self) -> bool:
        """Return whether the server continues from our state: it may have been replaced by one with an older state."""
        newest, before = newest_of(self._store.values()), self._version
        named = newest.metadata.name if newest is not None else "none"
        listing = await self.cluster.listing(
            self.resource,
            self.namespace or (newest.metadata.namespace if newest is not None else ""),
            label_selector=self._label_selector,
            field_selector=",".join(filter(None, (self._field_selector, f"metadata.name={named}"))),
        )
        there = newest is None or any(obj.key == newest.key for obj in listing.items)
        return there and not was_restored(before, listing.resource_version)

    async def _list(self) -> None:
        before = self._version
        state = await self._listed()
        if self._must_confirm(state.objects, state.broken):
            state = await self._confirmed()
        self._take(state, before=before)

    async def _listed(self) -> InitialState[T]:
        listing = await self.cluster.listing(
            self.resource,
            self.namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            page_size=self._settings.page_size,
        )
        self._heard()
        state = InitialState[T]()
        state.broken, state.version = listing.broken, listing.resource_version
        for item in listing.items:
            state.put(item.key, self._reader.kept(item))
        return state

    def _must_confirm(self, objects: Mapping[ObjectKey, T], broken: Mapping[ObjectKey, str]) -> bool:
        return self._settings.confirm_empty and not objects and not broken and len(self._store) > 0

    async def _confirmed(self) -> InitialState[T]:
        """Ask a second time, after the first answer was empty while we hold objects."""
        self._count("unconfirmed_empty")
        self._log.warning("the server lists nothing; listing again before anything is removed", held=len(self._store))
        await self.clock.sleep(self._settings.confirm_after_s)
        return await self._listed()

    async def _watch(self, params: Mapping[str, str], first: InitialState[T] | None = None) -> None:
        query = {
            **selector_params(self._label_selector, self._field_selector),
            **params,
            "allowWatchBookmarks": "true",
            # Jittered, so that watches opened together do not all come back together.
            "timeoutSeconds": str(random.randint(240, 480)),  # noqa: S311
        }
        splitter, before = LineSplitter(), self._version
        self._refreshed_at = ""
        async with self.cluster.watch(
            self.resource, self.namespace, params=query, idle_s=self._settings.idle_s
        ) as chunks:
            if first is None:
                self._heard()
            elif not await self._first_state(chunks, splitter, first, before=before):
                return
            self.problem = ""
            async for chunk in chunks:
                for line in self._reader.lines(splitter, chunk):
                    self._event(line)
                self._heard()

    async def _first_state(
        self, chunks: AsyncIterator[bytes], splitter: LineSplitter, first: InitialState[T], *, before: str
    ) -> bool:
        """Read the whole state from the start of a stream; return whether the stream may continue."""
        size = self._new_size()
        while True:
            try:
                async with asyncio.timeout(self._settings.first_idle_s):
                    chunk = await anext(chunks, b"")
            except TimeoutError as error:
                raise _Silent(f"{self._reader.what} cannot be streamed; listing instead.") from error
            if not chunk:
                raise Unreachable(f"The stream of {self._reader.what} ended before the whole state had come. Retrying.")
            size.add(len(chunk))
            lines = iter(self._reader.lines(splitter, chunk))
            for line in lines:
                first.add(self._reader.frame(line), self._reader)
                self._heard()
                if first.version:
                    break
            else:
                continue
            if self._must_confirm(first.objects, first.broken):
                # This stream belongs to the doubtful state; the next one starts from the list.
                self._take(await self._confirmed(), before=before)
                return False
            self._take(first, before=before)
            for line in lines:
                self._event(line)
            return True

    def _new_size(self) -> StateSize:
        return StateSize(self.cluster.call_for("watch", self.resource, self.namespace))

    def _count_object(self, frame: Frame, key: ObjectKey) -> None:
        """Count the object of an event; if there is too much, the whole state is read again."""
        if frame.type == "DELETED":
            self._added.remove(key)
            return
        try:
            self._added.put(key, memoryview(frame.object).nbytes)
        except Unreachable:
            self._resumes = False
            raise

    def _event(self, line: bytes) -> None:
        frame = self._reader.frame(line)
        if frame.type == "BOOKMARK":
            version = self._reader.meta(frame).metadata.resource_version
            self._version = self._version if self._includes(version) else version or self._version
            return
        if frame.type not in PRESENT and frame.type != "DELETED":
            return  # a type of event that future servers may send
        obj = self._reader.decoded(frame)
        if isinstance(obj, str):
            self._undecodable(frame, obj)
            return
        if self._includes(obj.metadata.resource_version):
            return
        key = obj.key
        self._count_object(frame, key)
        self._version = obj.metadata.resource_version
        self.broken.pop(key, None)
        if frame.type == "DELETED":
            old = self._store.remove(key)
            if old is not None:
                self._notify(old, None)
            return
        old = self._store.get(key)
        if old is None or old.metadata.resource_version != obj.metadata.resource_version:
            if problem := self._put(obj):
                self._undecodable(frame, problem)
            else:
                self._notify(old, obj)

    def _put(self, obj: T) -> str:
        """Store an object; return why it cannot be indexed, empty when it is stored."""
        try:
            self._store.put(obj)
        except Exception as error:  # noqa: BLE001 - one object must not end the watch of all others
            return processing_problem(obj, error)
        return ""

    def _includes(self, version: str) -> bool:
        """Return whether the last refresh has what an event of ``version`` shows."""
        return bool(version) and (version == self._refreshed_at or is_newer(self._refreshed_at, than=version))

    def _take(self, state: InitialState[T], *, before: str) -> None:
        """Replace the copy by ``state`` and call back with the differences: what is new first, what is gone last.

        ``before``: the version of the copy when the state was asked for. A copy that is ahead by now stays.
        """
        version, broken = state.version, dict(state.broken)
        restored = was_restored(before, version)
        if restored:
            self._log.warning("the server has been restored to an older state", version=version, read=before)
            if self._ends_when_restored:
                raise StateRestored(f"{self.cluster.name} has been restored to an older state; starting over.")
        elif self.synced and is_newer(self._version, than=version):
            return
        changes: list[tuple[T | None, T | None]] = []
        held = [] if UNNAMED in broken else self._store.keys()
        gone = [key for key in held if key not in state.objects and key not in broken]
        for key, obj in state.objects.items():
            old = self._store.get(key)
            if old is None or old.metadata.resource_version != obj.metadata.resource_version:
                if problem := self._put(obj):
                    broken[key] = problem
                else:
                    changes.append((old, obj))
        changes.extend((self._store.remove(key), None) for key in gone)
        self.broken.replace(broken)
        for key, why in broken.items():
            self._complain(key, why)
        self._version, self._resumes = version, True
        self.synced = True
        self._added = self._new_size()
        self._count("relist")
        for old, new in changes:
            self._notify(old, new)
        self._synced_event.set()

    def _undecodable(self, frame: Frame, why: str) -> None:
        """Keep the last readable state of this object, unless it is gone; all others continue (promise 7)."""
        meta = self._reader.meta(frame)
        if self._includes(meta.metadata.resource_version):
            return
        self._count_object(frame, meta.key)
        key, self._version = meta.key, meta.metadata.resource_version or self._version
        if frame.type == "DELETED":
            self.broken.pop(key, None)
            if (old := self._store.remove(key)) is not None:
                self._notify(old, None)
            return
        self.broken[key] = why
        self._complain(key, why)

    def _complain(self, key: ObjectKey, why: str) -> None:
        self._count("undecodable")
        self._log.error("an object cannot be read; its last readable state stays", key=str(key), why=why)

    def _notify(self, old: T | None, new: T | None) -> None:
        self._count("change")
        for callback in self._callbacks:
            try:
                callback(old, new)
            except Exception:  # noqa: BLE001 - promise 7: one object must not end the watch of all others
                self._log.exception("bug", key=str(getattr(new or old, "key", "")))

    def _heard(self) -> None:
        self._heard_s = self.clock.monotonic()

    def _report(self, error: FairleadError) -> None:
        if self.problem != error.sentence:
            self.problem = error.sentence
            level = "error" if isinstance(error, Terminal) else "info" if isinstance(error, Throttled) else "warning"
            getattr(self._log, level)("watch failed; the last state stays", sentence=self.problem, detail=error.detail)

    def _count(self, event: str) -> None:
        self._counters[event].inc()


#: A cache whose kind of object does not matter.
AnyCache = WatchCache[Any]


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """The timings and limits of a cache.

    ``confirm_empty``: a list without objects, while we hold some, counts only when a second list, after
    ``confirm_after_s``, has none either. It costs one more request, only then, and outlives an API server that
    starts up with an empty view.
    """

    confirm_empty: bool = True
    confirm_after_s: float = 3.0
    page_size: int = 500
    #: A server sends a bookmark about once a minute, so this much silence is a dead link.
    idle_s: float = 90.0
    #: Within the first state silence means that the server ignores sendInitialEvents.
    first_idle_s: float = 15.0
    #: Between attempts while an administrator has to change something (a right, a CRD).
    terminal_retry_s: float = 30.0


Index = Callable[[T], Iterable[Hashable]]


class ObjectStore(Generic[T]):
    """Objects with indexes."""

    def __init__(self, indexes: Mapping[str, Index[T]] | None = None) -> None:
        self._objects: dict[ObjectKey, T] = {}
        self._functions = dict(indexes or {})
        self._indexes: dict[str, dict[Hashable, dict[ObjectKey, T]]] = {name: {} for name in self._functions}

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: ObjectKey) -> T | None:
        """Return one object."""
        return self._objects.get(key)

    def keys(self) -> Iterable[ObjectKey]:
        """Return all keys, in no order."""
        return self._objects.keys()

    def values(self) -> Iterable[T]:
        """Return all objects, in no order."""
        return self._objects.values()

    def by_index(self, name: str, value: Hashable) -> Sequence[T]:
        """Return the objects with this value, sorted by key."""
        objects = self._indexes[name].get(value)
        if not objects:
            return ()
        return [objects[key] for key in sorted(objects)] if len(objects) > 1 else list(objects.values())

    def indexed(self, name: str, value: Hashable) -> Collection[T]:
        """Return the objects with this value, in no order and without a copy: thousands may have it."""
        return self._indexes[name].get(value, {}).values()

    def put(self, obj: T) -> T | None:
        """Store an object and return the one it replaces."""
        key = obj.key
        old = self._objects.get(key)
        # All index functions run before anything is changed: if one fails, the old state is kept.
        values = {name: set(function(obj)) for name, function in self._functions.items()}
        if old is not None:
            self._unindex(key, old)
        for name, wanted in values.items():
            index = self._indexes[name]
            for value in wanted:
                index.setdefault(value, {})[key] = obj
        self._objects[key] = obj
        return old

    def remove(self, key: ObjectKey) -> T | None:
        """Remove an object and return it."""
        old = self._objects.pop(key, None)
        if old is not None:
            self._unindex(key, old)
        return old

    def _unindex(self, key: ObjectKey, old: T) -> None:
        for name, function in self._functions.items():
            index = self._indexes[name]
            for value in set(function(old)):
                objects = index.get(value)
                if objects is not None:
                    objects.pop(key, None)
                    if not objects:
                        del index[value]
