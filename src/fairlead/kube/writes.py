"""Writes of objects and statuses: nothing without a change, an overlay of own writes, finalizers, and Events.

    same content as we applied last, and the object has not changed since   no request
    anything else                                                           one apply; the server ignores a no-op

In: objects as JSON; a cache of what is there, when there is one. Out: whether the object changed.
Never: writes an object twice because the cache has not seen the first write yet.

A status is written when it changes, each at its own pace, and its transitions are emitted as Events:

    old = obj.status
    new = Status(..., conditions=wire_conditions(conditions, old.conditions, generation=..., now=...))
    written = await write_status(cluster, KIND, obj, old, new, manager="m", others=("record",), always=("backends",))
    if written is not None:
        emit_transitions(events, KIND, obj, transitions(old.conditions, new.conditions), good={...}, quiet=...)

In: an object as it was read, its status and the next one. Out: at most one server-side apply, and Events.
Ready and Stalled are added to the conditions of our kinds here, so they go with the same write.
Never: a write that changes nothing, or one to an object of the same name that was created later.
``fairlead.api.meta`` has the pure part: ``wire_conditions``, ``with_summary`` and ``transitions``.

When a status is written depends on how it differs from the written one:

    the first status only awaits an answer                               waits ``first_s``
    Programmed was true, and now only awaits an answer                   waits ``patience_s``
    a condition awaits its first answer                                  waits ``AWAITED_S``, with the counts
    counts and messages (*progress*)                                     gathered for a moment, at most once a second
    a condition is decided, appears or disappears; an address, the
    answer for pods that wait, or the generation changes                 at once

A status that waits when a term ends is left to the next leader, which compares every status.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import secrets
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from fairlead.api.json_text import decode
from fairlead.api.kubernetes import SECRETS
from fairlead.api.meta import (
    SUMMARIES,
    AnyResource,
    JSONObject,
    KubeObject,
    ObjectKey,
    Resource,
    Transition,
    Wire,
    WireCondition,
    condition_of,
    is_newer,
    with_summary,
)
from fairlead.api.names import GROUP, LABEL_MANAGED_BY, MANAGED_BY, SYSTEM_NAMESPACE
from fairlead.errors import AlreadyExists, Conflict, NotFound
from fairlead.kube.cache import AnyCache, ObjectStore, WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.kube.events import RESOLVED, EventRecorder, resolved_message
from fairlead.model.condition import ConditionReason, ConditionType
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import doubled_s


async def hold(cluster: Cluster, resource: Resource[T], obj: T, finalizer: str, *, manager: str) -> T:
    """Add ``finalizer`` to ``obj``, as its last one; return the object with it.

    Raises:
        Conflict: the object has changed since it was read.
        NotFound: it is gone.
    """
    if obj.held_by(finalizer):
        return obj
    return await _write(cluster, resource, obj, [*(obj.metadata.finalizers or ()), finalizer], manager=manager)


async def release(cluster: Cluster, resource: Resource[T], obj: T, finalizer: str, *, manager: str) -> T:
    """Remove ``finalizer`` from ``obj``; return the object without it, or ``obj`` when it is gone already.

    Raises:
        Conflict: the object has changed since it was read.
    """
    if not obj.held_by(finalizer):
        return obj
    others = [name for name in obj.metadata.finalizers or () if name != finalizer]
    try:
        return await _write(cluster, resource, obj, others, manager=manager)
    except NotFound:
        return obj


async def _write(cluster: Cluster, resource: Resource[T], obj: T, finalizers: list[str], *, manager: str) -> T:
    return await patch_version(cluster, resource, obj, {"metadata": {"finalizers": finalizers}}, manager=manager)


async def patch_version(
    cluster: Cluster, resource: Resource[T], obj: T, patch: JSONObject, *, manager: str, subresource: str = ""
) -> T:
    """Merge ``patch`` into the version of ``obj`` that it was made from; lists are replaced as a whole.

    Raises:
        Conflict: the object has changed since it was read.
        NotFound: it is gone.
    """
    meta = obj.metadata
    body: JSONObject = {**patch, "metadata": {"resourceVersion": meta.resource_version, **patch.get("metadata", {})}}
    return await cluster.merge_patch(
        resource, meta.namespace, meta.name, body, subresource=subresource, manager=manager
    )


R = TypeVar("R")
#: How often a command writes objects that other clients write, too.
_ATTEMPTS = 5


async def on_newest(write: Callable[[], Awaitable[R]]) -> R:
    """Return the result of ``write``, which reads the objects and writes them; it is repeated after a conflict.

    The hub writes statuses all the time, so a command that reads and then writes an object meets conflicts.

    Raises:
        Conflict: other clients write faster than the objects can be read.
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(Conflict):
            return await write()
    return await write()


_ENCODER = msgspec.json.Encoder(order="deterministic")


class _Applied(msgspec.Struct):
    digest: bytes
    version: str  # what the server answered to our apply
    before: str  # what the cache showed when we applied: it may still show that for a moment
    at_s: float


class Applier:
    """Applies objects as one field manager, and remembers what it has applied."""

    def __init__(self, cluster: Cluster, *, manager: str, caches: Mapping[AnyResource, AnyCache] | None = None) -> None:
        self._cluster = cluster
        self._manager = manager
        self._caches = dict(caches or {})
        self._applied: dict[tuple[str, str, str], _Applied] = {}

    async def ensure(self, resource: AnyResource, obj: JSONObject) -> bool:
        """Apply ``obj`` unless that would change nothing; return whether the object has changed.

        Without a synced cache for the resource, what others did since our last apply goes unnoticed.
        """
        meta: JSONObject = obj["metadata"]
        namespace = str(meta.get("namespace") or self._cluster.namespace) if resource.namespaced else ""
        key = (resource.full_name, namespace, str(meta["name"]))
        digest = hashlib.blake2b(_ENCODER.encode(obj), digest_size=16).digest()
        cache = self._caches.get(resource)
        seen = self._seen(cache, key)
        last = self._applied.get(key)
        if last is not None and last.digest == digest and self._stands(last, seen, cache):
            return False
        done = await self._cluster.apply(resource, obj, manager=self._manager)
        version = done.metadata.resource_version
        known = seen if seen is not None else (last.version if last is not None else "")
        self._applied[key] = _Applied(digest, version, seen or "", self._cluster.clock.monotonic())
        return version != known

    def forget(self, resource: AnyResource, namespace: str, name: str) -> None:
        """Forget an object, for example after deleting it, so that the next ``ensure`` writes."""
        self._applied.pop((resource.full_name, namespace if resource.namespaced else "", name), None)

    def _seen(self, cache: AnyCache | None, key: tuple[str, str, str]) -> str | None:
        """Return the version that the cache shows: empty when the object is not there, None without a cache."""
        if cache is None or not cache.synced:
            return None
        obj: KubeObject | None = cache.get(key[1], key[2])
        return obj.metadata.resource_version if obj is not None else ""

    def _stands(self, last: _Applied, seen: str | None, cache: AnyCache | None) -> bool:
        if seen is None or cache is None:
            return True
        if seen == last.version:
            # The cache has caught up: from now on the state before our write would be news.
            last.before = last.version
            return True
        # A cache that was current later and still shows that: our write was undone meanwhile.
        heard_s = cache.clock.monotonic() - cache.age_s
        return seen == last.before and heard_s <= last.at_s + LAG_S


T = TypeVar("T", bound=KubeObject)

#: A cache that was heard so much later than a write, in seconds, has the write.
LAG_S = 5.0


@dataclass
class _Write:
    older: set[str]  # resourceVersions that are older than what we wrote; empty means "no such object"
    at_s: float


class Overlay(Generic[T]):
    """The objects of ``cache`` with our own writes; its indexes are those of the cache."""

    def __init__(self, cache: WatchCache[T]) -> None:
        self._cache = cache
        self._writes: dict[ObjectKey, _Write] = {}
        self._answers: ObjectStore[T] = ObjectStore(cache.indexes)
        cache.on_change(self._changed)

    def __len__(self) -> int:
        """Return how many writes the cache does not show yet, as far as it is known."""
        return len(self._writes)

    def get(self, namespace: str, name: str) -> T | None:
        """Return the newest that is known of one object; one that we deleted has a deletionTimestamp."""
        key = ObjectKey(namespace, name)
        return self._answers.get(key) if self._is_ahead(key) else self._cache.get(namespace, name)

    def by_index(self, name: str, value: Hashable) -> list[T]:
        """Return the objects with this value of an index, sorted by key."""
        objects = {obj.key: obj for obj in self._cache.by_index(name, value) if not self._is_ahead(obj.key)}
        objects |= {obj.key: obj for obj in self._answers.by_index(name, value) if self._is_ahead(obj.key)}
        return [objects[key] for key in sorted(objects)]

    def written(self, answer: T, *, before: T | None) -> T:
        """Remember the server's answer to a create, apply or patch; return it as the cache will show it.

        ``before``: the object that the write was made from, as ``get`` returned it; None when there was none.
        """
        obj = self._cache.transformed(answer)
        self._put(obj, (self._older(obj.key) | {_version(before)}) - {_version(obj)})
        return obj

    def deleted(self, obj: T, *, at: str) -> None:
        """Remember that the server has accepted the deletion of ``obj`` at this time (RFC 3339)."""
        if self._cache.get(*obj.key) is None:
            self._drop(obj.key)  # what the cache never showed will not be seen to go
            return
        meta = msgspec.structs.replace(obj.metadata, deletion_timestamp=obj.metadata.deletion_timestamp or at)
        self._put(msgspec.structs.replace(obj, metadata=meta), self._older(obj.key) | {_version(obj)})

    def _older(self, key: ObjectKey) -> set[str]:
        """Return the versions that are older than a write to what we wrote last."""
        write = self._writes.get(key)
        return write.older | {_version(self._answers.get(key))} if write is not None else set[str]()

    def _put(self, obj: T, older: set[str]) -> None:
        shown = _version(self._cache.get(*obj.key))
        if shown not in older and not is_newer(_version(obj), than=shown):
            self._drop(obj.key)  # the cache was faster than the answer
            return
        self._writes[obj.key] = _Write(older, self._cache.clock.monotonic())
        self._answers.put(obj)

    def _is_ahead(self, key: ObjectKey) -> bool:
        """Say whether what we wrote is newer than what the cache shows, as far as it is known; forget it when not."""
        write = self._writes.get(key)
        if write is None:
            return False
        heard_s = self._cache.clock.monotonic() - self._cache.age_s
        shown = _version(self._cache.get(*key))
        # Another field manager may have written between two writes of ours: its version is older than the second.
        is_older = shown in write.older or is_newer(_version(self._answers.get(key)), than=shown)
        if is_older and heard_s <= write.at_s + LAG_S:
            return True
        self._drop(key)
        return False

    def _changed(self, old: T | None, new: T | None) -> None:
        obj = new or old
        if obj is not None:
            self._is_ahead(obj.key)

    def _drop(self, key: ObjectKey) -> None:
        self._writes.pop(key, None)
        self._answers.remove(key)


def _version(obj: KubeObject | None) -> str:
    return obj.metadata.resource_version if obj is not None else ""


S = TypeVar("S", bound=Wire)


async def write_status(
    cluster: Cluster,
    resource: Resource[T],
    obj: T,
    old: S,
    new: S,
    *,
    manager: str,
    others: Collection[str] = (),
    always: Collection[str] = (),
    force: bool = True,
) -> T | None:
    """Apply ``new`` as the status of ``obj``; return the object as written, or None when ``new`` is ``old``.

    A field that ``manager`` has applied before and that has its default in ``new`` is removed by the server.
    ``others``: fields (their names on the wire) that have another manager; they are left out, and so not touched.
    ``always``: fields that are written though they have their default, such as a count of 0.
    ``force``: fields of other managers are taken over.

    Raises:
        Conflict: another object has this name by now; without ``force``, or another manager owns a field.
        NotFound: there is none.
    """
    new = summarized(resource, old, new)
    after = msgspec.to_builtins(new)
    # Twice, since to_builtins leaves out defaults by identity: a decoded default is not left out, ours is.
    if new == old or after == msgspec.to_builtins(old):
        return None
    status = {name: value for name, value in after.items() if name not in others}
    if always:
        values = {field.encode_name: getattr(new, field.name) for field in msgspec.structs.fields(new)}
        status |= {name: msgspec.to_builtins(values[name]) for name in always}
    return await apply_status(cluster, resource, obj, status, manager=manager, force=force)


def summarized(resource: Resource[Any], old: S, new: S) -> S:
    """Return a status of one of our kinds with Ready and Stalled; another status, or a part of one, as it is."""
    conditions: list[WireCondition] | None = getattr(new, "conditions", None)
    if resource.group != GROUP or not conditions:
        return new
    held = bool(getattr(new, "held_total", 0))
    summary = with_summary(conditions, getattr(old, "conditions", None), held=held)
    return msgspec.structs.replace(new, conditions=summary)


async def apply_status(
    cluster: Cluster, resource: Resource[T], obj: T, status: JSONObject, *, manager: str, force: bool = True
) -> T:
    """Apply fields of the status of ``obj``; fields that ``manager`` applied before are given up.

    Raises:
        Conflict: another object has this name by now; without ``force``, or another manager owns a field.
        NotFound: there is none.
    """
    meta = obj.metadata
    # The uid makes it a Conflict when the object was deleted and created again.
    body: JSONObject = {"metadata": {"name": meta.name, "uid": meta.uid}, "status": status}
    if resource.namespaced:
        body["metadata"]["namespace"] = meta.namespace
    return await cluster.apply(resource, body, manager=manager, force=force, subresource="status")


async def replace_status(
    cluster: Cluster,
    resource: Resource[T],
    obj: T,
    status: Wire,
    *,
    manager: str,
    foreign: Callable[[JSONObject], bool] | None = None,
) -> T:
    """Write a status whose lists are replaced as a whole, only onto the version of ``obj`` that it was made from.

    ``foreign``: the status has only lists, and this returns whether an entry belongs to another controller. Such
    entries are written exactly as the server has them, with empty values that it may require.

    Raises:
        Conflict: the object has changed, or another one has this name by now.
        NotFound: there is none.
    """
    meta, fields = obj.metadata, msgspec.to_builtins(status)
    if foreign is not None and any(foreign(entry) for entries in fields.values() for entry in entries):
        stored = decode(await cluster.raw("GET", resource.path(meta.namespace, meta.name)), JSONObject)
        if stored["metadata"]["resourceVersion"] != meta.resource_version:
            raise Conflict(f"{resource.kind} {obj.key} has changed since it was read.")
        for name, entries in fields.items():
            theirs = filter(foreign, stored["status"][name])
            fields[name] = [next(theirs) if foreign(entry) else entry for entry in entries]
    patch: JSONObject = {"metadata": {"uid": meta.uid}, "status": fields}
    return await patch_version(cluster, resource, obj, patch, manager=manager, subresource="status")


def emit_transitions(
    events: EventRecorder,
    resource: AnyResource,
    obj: KubeObject,
    changes: Iterable[Transition],
    *,
    good: Mapping[str, str] | None = None,
    quiet: Callable[[Transition], bool] = lambda _: False,
) -> None:
    """Emit a Warning for each condition that became bad, and a Normal Event for those that became good.

    One that became Unknown has no Event.

    ``good``: the message of the Normal Event by condition type; of a type that is not in it, the Warning is resolved.
    ``quiet``: bad conditions without an Event, besides those that are only Pending.
    """
    messages = good or {}
    for change in changes:
        condition = change.condition
        if condition.status == "Unknown":
            continue
        if change.good:
            if condition.type in messages:
                message = messages[condition.type]
                events.emit_about(resource, obj, warning=False, reason=condition.reason, message=message)
            elif (before := change.before) is not None and _is_warned(was := Transition(before, None), quiet):
                message = resolved_message(was.condition.reason, was.condition.message or was.condition.type)
                events.emit_about(resource, obj, warning=False, reason=RESOLVED, message=message)
        elif _is_warned(change, quiet):
            message = condition.message or condition.type
            events.emit_about(resource, obj, warning=True, reason=condition.reason, message=message)


def _is_warned(change: Transition, quiet: Callable[[Transition], bool]) -> bool:
    """Return whether a condition that became like this has a Warning."""
    condition = change.condition
    bad = condition.status != "Unknown" and not change.good
    return bad and condition.reason != ConditionReason.PENDING and not quiet(change)


#: How long progress is gathered, and how long when a condition awaits its first answer: proxies check twice a second.
SETTLE_S = 0.25
AWAITED_S = 2.0
#: The least time between two writes of progress.
GATHER_S = 1.0
#: How long a status that only awaits an answer is held back: the first one, and a later one.
FIRST_S = 1.0
PATIENCE_S = 5.0
#: This many writes of progress in a minute keep that pace; each further one takes twice as long.
_QUICK_WRITES = 5
_SLOWEST = 16
_WINDOW_S = 60.0

_SEEN = frozenset({ConditionType.PROGRAMMED, ConditionType.SERVING})
_MAY_PASS = frozenset({ConditionReason.PENDING, ConditionReason.NO_PROXY_CONNECTED})
#: Reasons of conditions that await an answer.
_AWAITED = _MAY_PASS | {ConditionReason.WAITING_FOR_FIRST_CHECK}
_UNDECIDED = _AWAITED | {ConditionReason.NOT_CHECKED}


class PacedStatus(Protocol):
    """The fields of every paced status; some kinds also have addresses, in ``load_balancer``."""

    @property
    def observed_generation(self) -> int:
        """Return the generation that the status is about."""
        ...

    @property
    def conditions(self) -> Sequence[WireCondition] | None:
        """Return the conditions."""
        ...


def is_passing(old: Sequence[WireCondition] | None, new: Sequence[WireCondition] | None) -> bool:
    """Return whether ``new`` only awaits an answer of a provider, a proxy or the first read-back, and still serves."""
    before = condition_of(old, ConditionType.PROGRAMMED)
    return before is not None and before.reason not in _MAY_PASS and awaits(new) and not has_stopped(old, new)


def awaits(conditions: Sequence[WireCondition] | None) -> bool:
    """Return whether Programmed is false only because an answer is awaited."""
    after = condition_of(conditions, ConditionType.PROGRAMMED)
    return after is not None and after.status == "False" and after.reason in _MAY_PASS


def only_seen(old: PacedStatus, new: PacedStatus) -> bool:
    """Return whether two statuses of one generation differ only in Programmed and Serving."""

    def rest(status: PacedStatus) -> list[WireCondition]:
        seen = _SEEN | SUMMARIES
        return [condition for condition in status.conditions or () if condition.type not in seen]

    return old.observed_generation == new.observed_generation and rest(old) == rest(new)


def without_seen(old: PacedStatus, new: PacedStatus) -> list[WireCondition] | None:
    """Return the conditions of ``new`` with the Programmed and Serving of ``old``.

    None when ``old`` has none, or is about another generation: what it says would no longer be true of this one.
    """
    if not old.conditions or old.observed_generation != new.observed_generation:
        return None
    kept = {condition.type: condition for condition in old.conditions if condition.type in _SEEN}
    return [kept.get(condition.type, condition) for condition in new.conditions or ()]


def has_stopped(old: Sequence[WireCondition] | None, new: Sequence[WireCondition] | None) -> bool:
    """Return whether Serving became false; without a condition Serving before, no."""
    before, after = (condition_of(conditions, ConditionType.SERVING) for conditions in (old, new))
    return after is not None and after.status == "False" and before is not None and before.status != "False"


def is_progress(old: PacedStatus, new: PacedStatus) -> bool:
    """Return whether two statuses differ only in counts, messages, and conditions that await an answer."""
    if old.observed_generation != new.observed_generation or _read_at_once(old) != _read_at_once(new):
        return False
    before = {condition.type: condition for condition in old.conditions or ()}
    after = {condition.type: condition for condition in new.conditions or ()}
    # A status of an earlier release has no summaries; what they summarize is the same.
    if before.keys() != after.keys() - (SUMMARIES - before.keys()):
        return False
    return all(_is_same_or_awaits(condition, after[kind]) for kind, condition in before.items())


def awaits_more(old: PacedStatus, new: PacedStatus) -> bool:
    """Return whether a condition of ``new`` awaits an answer that it did not await before."""
    awaited = {condition.type: condition.reason for condition in old.conditions or ()}
    return any(
        condition.reason in _AWAITED and awaited.get(condition.type) != condition.reason
        for condition in new.conditions or ()
    )


def _is_same_or_awaits(before: WireCondition, after: WireCondition) -> bool:
    if (before.status, before.reason) == (after.status, after.reason):
        return True
    return before.status != "True" and after.status != "True" and after.reason in _UNDECIDED


def _read_at_once(status: PacedStatus) -> object:
    """Return the addresses that users read in a status, and the pods that wait for it; some kinds have neither."""
    return getattr(status, "load_balancer", None), getattr(status, "gated_pods", None)


class Pace(msgspec.Struct):
    """When the next status of one object is written; all times are monotonic seconds."""

    first_s: float = FIRST_S
    patience_s: float = PATIENCE_S
    settle_s: float = SETTLE_S
    #: Since when a status is held back that only awaits an answer, and since when one that shows progress.
    awaits_since_s: float | None = None
    progress_since_s: float | None = None
    written_s: float = -math.inf
    #: The writes of progress since the last quiet minute.
    writes: int = 0

    def wait_s(self, old: PacedStatus, new: PacedStatus, *, now_s: float) -> float:
        """Return for how many seconds ``new`` is held back, 0 when it is due."""
        first = not old.conditions and awaits(new.conditions)
        if first or is_passing(old.conditions, new.conditions):
            if self.awaits_since_s is None:
                self.awaits_since_s = now_s
            return max(0.0, self.awaits_since_s + (self.first_s if first else self.patience_s) - now_s)
        self.awaits_since_s = None
        if not is_progress(old, new):
            return 0.0
        if self.progress_since_s is None:
            self.progress_since_s = now_s
        settles_s = self.progress_since_s + (AWAITED_S if awaits_more(old, new) else self.settle_s)
        return max(0.0, settles_s - now_s, self.written_s + self._gather_s(now_s) - now_s)

    def rest(self) -> None:
        """Note that the written status is the present one, so nothing is held back."""
        self.awaits_since_s = self.progress_since_s = None

    def written(self, now_s: float, *, progress: bool) -> None:
        """Note a write; ``progress``: only counts and the like have changed."""
        self.rest()
        self.writes = self.writes + 1 if progress and now_s - self.written_s < _WINDOW_S else int(progress)
        self.written_s = now_s

    def _gather_s(self, now_s: float) -> float:
        """Return the least time between the last write and one of progress."""
        if now_s - self.written_s > _WINDOW_S:
            return GATHER_S
        return doubled_s(self.writes - _QUICK_WRITES + 1, base_s=GATHER_S, limit_s=GATHER_S * _SLOWEST)


class CoalescingWriter(Generic[T]):
    """Writes the statuses of one kind, each at its own pace.

    ``objects`` are those of the cache with our own writes on top; the next status is composed from them. ``manager``
    owns the written fields, another field manager those in ``others``; ``always`` are written even if they are 0.
    """

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource[T],
        *,
        objects: Overlay[T],
        clock: Clock,
        manager: str,
        others: Collection[str] = (),
        always: Collection[str] = (),
        first_s: float = FIRST_S,
        patience_s: float = PATIENCE_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._cluster = cluster
        self._resource = resource
        self._objects = objects
        self._clock = clock
        self._manager = manager
        self._others = others
        self._always = always
        self._new_pace = lambda: Pace(first_s, patience_s, settle_s)
        self._paces: dict[ObjectKey, Pace] = {}

    async def write(self, obj: T, old: Any, new: Any, *, at_least_s: float = 0.0) -> tuple[T | None, float]:
        """Write ``new`` when it differs from ``old``, the status of ``obj``, and is due.

        Returns the object as written, None for no write, and seconds until the next comparison, 0 for none.
        ``at_least_s``: how long a status that differs is held back in any case.
        """
        new = summarized(self._resource, old, new)
        pace, now_s = self._paces.get(obj.key) or self._new_pace(), self._clock.monotonic()
        self._paces[obj.key] = pace
        if new == old or msgspec.to_builtins(new) == msgspec.to_builtins(old):
            pace.rest()
            return None, 0.0
        if (wait_s := max(pace.wait_s(old, new, now_s=now_s), at_least_s)) > 0:
            return None, wait_s
        pace.written(now_s, progress=is_progress(old, new))
        answer = await write_status(
            self._cluster,
            self._resource,
            obj,
            old,
            new,
            manager=self._manager,
            others=self._others,
            always=self._always,
        )
        return (self._objects.written(answer, before=obj) if answer is not None else None), 0.0

    def forget(self, namespace: str, name: str) -> None:
        """Forget the pace of an object that is gone."""
        self._paces.pop(ObjectKey(namespace, name), None)


async def shared_key(cluster: Cluster, name: str) -> str:
    """Return the key in a Secret of the hub's namespace, 64 characters; the first hub that asks makes it.

    Empty: the Secret has no readable entry "key".

    Raises:
        FairleadError: the API refuses.
    """
    try:
        secret = await cluster.get(SECRETS, SYSTEM_NAMESPACE, name)
    except NotFound:
        body: JSONObject = {
            "metadata": {"namespace": SYSTEM_NAMESPACE, "name": name, "labels": {LABEL_MANAGED_BY: MANAGED_BY}},
            "type": "Opaque",
            "data": {"key": base64.b64encode(secrets.token_hex(32).encode()).decode()},
        }
        try:
            secret = await cluster.create(SECRETS, body)
        except AlreadyExists:
            secret = await cluster.get(SECRETS, SYSTEM_NAMESPACE, name)
    try:
        return base64.b64decode((secret.data or {}).get("key", ""), validate=True).decode("ascii", "replace")
    except binascii.Error:
        return ""
