"""Stores the history of load balancers beyond the process: one ConfigMap for each, in the hub's namespace.

    new removal, failure,      at most every FLUSH_S, and all that is left when the term ends: the newest 8 KiB are
    hold or drift              written, of those these first
    begin of a term            all are read once; those without a new entry for KEEP_DAYS are deleted
    deleted load balancer      kept for KEEP_DELETED_DAYS, of the last MOST_DELETED ones, for ``explain --history``
    change of an object        stored apart: the newest 4 KiB
    more than MOST_MAPS        those without a new entry for longest are deleted

A load balancer whose whole state the hub serves itself (Envoy's) has no ledger that grows with it, so less of its
history is stored, and after that of the others. In: the history in memory. Out: ConfigMaps in the hub's own namespace.
Never: a write for each change, a write by a replica that does not lead, or an error that delays anything else. Reasons:
docs/adr/0013-history.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Protocol

import msgspec
import structlog

from fairlead.api.json_text import read_json
from fairlead.api.meta import JSONObject, KubeObject, Resource
from fairlead.api.names import LABEL_HISTORY, LABEL_MANAGED_BY, MANAGED_BY, MANAGER_LEDGER, SYSTEM_NAMESPACE, short_hash
from fairlead.errors import FairleadError, NotFound, Retry
from fairlead.kube.cluster import Cluster
from fairlead.model.change import HistoryEntry
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.clock import Clock

log = structlog.get_logger(__name__)

FLUSH_S = 30.0
#: The most ConfigMaps that are written, and deleted, in one flush; the others have their turn in the next.
MOST_WRITES = 50
MAX_BYTES = 8 * 1024
#: The same for a load balancer that is only served: there may be thousands, and all are read when a term begins.
MAX_BYTES_SERVED = 2 * 1024
#: The same for who changed the object.
MAX_BYTES_REVISIONS = 4 * 1024
MOST_MAPS = 5_000
KEEP_DAYS = 90
#: How long, and for how many deleted load balancers, history is kept.
KEEP_DELETED_DAYS = 7
MOST_DELETED = 100
_LAST_FLUSH_S = 3.0
_KEY, _ENTRIES, _REVISIONS = "loadBalancer", "history", "changes"


class HistoryMap(KubeObject, frozen=True, gc=False):
    """The ConfigMap of one load balancer: its key as kind/namespace/name, and its entries as JSON, oldest first."""

    data: dict[str, str] | None = None


HISTORY_MAPS = Resource("", "v1", "ConfigMap", "configmaps", True, HistoryMap)


class HistoryInMemory(Protocol):
    """The source of what is stored: the history of this process (``sync.history``)."""

    def of(self, key: LoadBalancerKey) -> Sequence[HistoryEntry]:
        """Return the entries of one load balancer, oldest first."""
        ...

    def load(self, key: LoadBalancerKey, stored: Iterable[HistoryEntry]) -> None:
        """Put what was stored before what is known."""
        ...

    def take_unsaved(self) -> Sequence[LoadBalancerKey]:
        """Return the keys with new entries since the last call."""
        ...

    def mark_unsaved(self, keys: Iterable[LoadBalancerKey]) -> None:
        """Return ``keys`` at the next ``take_unsaved``."""
        ...


class HistoryStore:
    """Stores the history of load balancers, first of those whose provider ``is_durable``; only while ``leading``.

    ``exists`` returns whether a load balancer has an object, or is still recorded at a provider.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        history: HistoryInMemory,
        clock: Clock,
        leading: Callable[[], bool],
        is_durable: Callable[[str], bool],
        exists: Callable[[LoadBalancerKey], bool],
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._clock = clock
        self._leading = leading
        self._is_durable = is_durable
        self._exists = exists
        #: The load balancer of each ConfigMap, and the time of its last new entry, by name.
        self._stored: dict[str, tuple[LoadBalancerKey, datetime]] = {}

    async def run(self) -> None:
        """Read what is stored, then store what is new, until the term ends."""
        while not await self._attempt(self._read()):
            await self._clock.sleep(FLUSH_S)
        try:
            while True:
                await self._clock.sleep(FLUSH_S)
                await self._attempt(self.flush())
        finally:
            if self._leading():
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_FLUSH_S):
                        await self._attempt(self._flush_all())

    async def flush(self) -> bool:
        """Write load balancers with new entries, as many as one flush may; True when there are more of them."""
        unsaved = self._history.take_unsaved()
        # Load balancers that were created and deleted by the thousand would be written only to be deleted again.
        skipped = set([key for key in unsaved if not self._exists(key)][:-MOST_DELETED])
        keys = sorted((key for key in unsaved if key not in skipped), key=lambda key: not self._durable(key))
        self._history.mark_unsaved(keys[MOST_WRITES:])
        for done, key in enumerate(keys[:MOST_WRITES]):
            if not self._leading():
                self._history.mark_unsaved(keys[done:MOST_WRITES])
                return False
            try:
                await self._save(key)
            except (Retry, asyncio.CancelledError):
                self._history.mark_unsaved(keys[done:MOST_WRITES])
                raise
            except FairleadError as error:
                log.warning("a history cannot be stored", load_balancer=str(key), sentence=error.sentence)
        for name in self._expired()[:MOST_WRITES]:
            if self._leading():
                await self._cluster.delete(HISTORY_MAPS, SYSTEM_NAMESPACE, name)
                del self._stored[name]
        return len(keys) > MOST_WRITES

    async def _flush_all(self) -> None:
        while await self.flush():
            pass

    async def _attempt(self, work: Coroutine[None, None, object]) -> bool:
        try:
            await work
        except FairleadError as error:
            log.info("the history is not stored now", sentence=error.sentence)
            return False
        return True

    async def _read(self) -> None:
        oldest = self._clock.now() - timedelta(days=KEEP_DAYS)
        maps = await self._cluster.list(HISTORY_MAPS, SYSTEM_NAMESPACE, label_selector=LABEL_HISTORY)
        # The newest last: if there are more than memory keeps, the oldest make room.
        last = {stored.key: max(map(_last_at, entries_of(stored)), default=self._clock.now()) for stored in maps}
        for stored in sorted(maps, key=lambda stored: last[stored.key]):
            if last[stored.key] < oldest:
                await self._cluster.delete(HISTORY_MAPS, *stored.key, uid=stored.metadata.uid)
            else:
                key = key_of(stored)
                self._stored[stored.metadata.name] = (key, last[stored.key])
                self._history.load(key, entries_of(stored))

    def _expired(self) -> list[str]:
        """Return the ConfigMaps to delete: of load balancers that were deleted, and the oldest of too many."""
        by_age = sorted(self._stored, key=lambda name: self._stored[name][1])
        deleted = [name for name in by_age if not self._exists(self._stored[name][0])]
        oldest = self._clock.now() - timedelta(days=KEEP_DELETED_DAYS)
        expired = [name for name in deleted[-MOST_DELETED:] if self._stored[name][1] < oldest]
        too_many = by_age[: max(0, len(by_age) - MOST_MAPS)]
        return list(dict.fromkeys((*deleted[:-MOST_DELETED], *expired, *too_many)))

    def _durable(self, key: LoadBalancerKey) -> bool:
        return any(self._is_durable(entry.provider) for entry in self._history.of(key))

    async def _save(self, key: LoadBalancerKey) -> None:
        name = map_name(key)
        self._stored[name] = (key, self._clock.now())
        try:
            stored = await self._cluster.get(HISTORY_MAPS, SYSTEM_NAMESPACE, name)
        except NotFound:
            labels = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_HISTORY: ""}
            body: JSONObject = {"metadata": {"namespace": SYSTEM_NAMESPACE, "name": name, "labels": labels}}
            await self._cluster.create(HISTORY_MAPS, {**body, "data": self._data(key)})
            return
        # Memory may have forgotten some of it meanwhile, and an earlier leader may have written what it never knew.
        self._history.load(key, entries_of(stored))
        patch: JSONObject = {"metadata": {"resourceVersion": stored.metadata.resource_version}, "data": self._data(key)}
        await self._cluster.merge_patch(HISTORY_MAPS, SYSTEM_NAMESPACE, name, patch, manager=MANAGER_LEDGER)

    def _data(self, key: LoadBalancerKey) -> JSONObject:
        max_bytes = MAX_BYTES if self._durable(key) else MAX_BYTES_SERVED
        entries = self._history.of(key)
        others = [entry for entry in entries if entry.revision is None]
        revisions = [entry for entry in entries if entry.revision is not None]
        data: JSONObject = {_KEY: str(key), _ENTRIES: newest(others, max_bytes)}
        return data | {_REVISIONS: newest(revisions, MAX_BYTES_REVISIONS)} if revisions else data


def map_name(key: LoadBalancerKey) -> str:
    """Return the name of the ConfigMap of one load balancer."""
    return f"fairlead-history-{short_hash(*key, size_bytes=10)}"


def newest(entries: Sequence[HistoryEntry], max_bytes: int = MAX_BYTES) -> str:
    """Return the newest entries as JSON up to ``max_bytes``, removals and failures first."""
    kept: list[tuple[HistoryEntry, str]] = []
    remaining_bytes = max_bytes - len("[]")
    for entry in sorted(entries, key=lambda entry: (entry.lasting, entry.sequence), reverse=True):
        text = msgspec.json.encode(entry)
        remaining_bytes -= len(text) + len(",")
        if remaining_bytes < 0:
            break
        kept.append((entry, text.decode()))
    kept.sort(key=lambda pair: pair[0].sequence)
    return f"[{','.join(text for _, text in kept)}]"


def key_of(stored: HistoryMap) -> LoadBalancerKey:
    """Return the load balancer of a ConfigMap."""
    kind, _, rest = (stored.data or {}).get(_KEY, "").partition("/")
    namespace, _, name = rest.partition("/")
    return LoadBalancerKey(kind, namespace, name)


def _last_at(entry: HistoryEntry) -> datetime:
    return entry.last_at or entry.at


def entries_of(stored: HistoryMap) -> list[HistoryEntry]:
    """Return the entries that can be read; another release, or a person, may have written the others."""
    data = stored.data or {}
    texts = (data.get(name, "[]") for name in (_ENTRIES, _REVISIONS))
    entries = [raw for text in texts for raw in read_json(text, list[msgspec.Raw]) or []]
    return [entry for raw in entries if (entry := read_json(raw, HistoryEntry)) is not None]
