"""Garbage collection: owner references, terminating namespaces, deleted CRDs.

Level-triggered: a change only enqueues keys, and a reconcile depends on the present state of the store. At start every
key is enqueued, so nothing is missed while the server was down. It works in small steps, so that requests never wait
long.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Collection, Sequence
from itertools import islice
from typing import cast

from podless.auth.accounts import Accounts
from podless.cooperative_yield import TimeSlice
from podless.failure import ApiFailure
from podless.kinds.catalog import Catalog
from podless.kinds.core import SA_NAME, SA_TOKEN_TYPE
from podless.kinds.crd import BUCKET as CRDS
from podless.kinds.crd import CLEANUP
from podless.kinds.kind import Kind
from podless.objects import Obj, at, items, meta
from podless.registry.context import Context, DeleteOptions
from podless.registry.deletion import FOREGROUND, Deletion
from podless.store.entry import BucketEntry, Key
from podless.store.store import ObjectStore

RETRY_S, BATCH = 1.0, 10
Item = tuple[str, Key]


class Collector:
    """One task that works off a queue of keys; the store calls ``observe``."""

    def __init__(
        self, store: ObjectStore, catalog: Catalog, *, owners: Owners, deletion: Deletion, accounts: Accounts
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._owners = owners
        self._deletion = deletion
        self._accounts = accounts
        self._queue: deque[Item] = deque()
        self._queued: set[Item] = set()
        self._wake = asyncio.Event()
        self._context = Context()

    def observe(self, bucket: str, before: BucketEntry | None, after: BucketEntry | None) -> None:
        """Enqueue the objects whose owners or namespace a change may concern."""
        if after is not None and (after.owners or after.deleting or bucket == "secrets"):
            self._enqueue((bucket, after.key))
        entry = after or before
        if entry is None:
            return
        if bucket == "serviceaccounts" and before is None:
            for secret in self._store.bucket("secrets").sorted_entries(entry.namespace):
                self._enqueue(("secrets", secret.key))
        if after is None:
            self._enqueue_related(bucket, entry)

    def _enqueue_related(self, bucket: str, deleted: BucketEntry) -> None:
        for other, entry in self._owners.dependents(deleted.uid):
            self._enqueue((other, entry.key))
        for uid in deleted.owners:
            if (owner := self._owners.find(uid)) is not None and owner[1].deleting:
                self._enqueue((owner[0], owner[1].key))
        space = self._store.bucket("namespaces").get("", deleted.namespace) if deleted.namespace else None
        if space is not None and space.deleting:
            self._enqueue(("namespaces", space.key))
        crd = self._store.bucket(CRDS).get("", bucket)
        if crd is not None and crd.deleting:
            self._enqueue((CRDS, crd.key))

    def _enqueue(self, item: Item) -> None:
        if item not in self._queued:
            self._queued.add(item)
            self._queue.append(item)
            self._wake.set()

    async def run(self) -> None:
        """Reconcile keys until cancelled; a write that fails (disk full) is retried later."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            time_slice = TimeSlice()
            while self._queue:
                item = self._queue.popleft()
                self._queued.discard(item)
                try:
                    self._reconcile(*item)
                except ApiFailure:
                    self._enqueue(item)
                    await asyncio.sleep(RETRY_S)
                except BaseException:
                    # A bug that one object triggers must not stop the others; its key is enqueued again behind them.
                    self._enqueue(item)
                    raise
                await time_slice.yield_if_used_up()

    def _reconcile(self, bucket: str, key: Key) -> None:
        entry = self._store.bucket(bucket).entries.get(key)
        kind = self._catalog.by_bucket(bucket)
        if entry is None or kind is None:
            return
        if bucket == "secrets":
            self._fill_token(entry)
        if entry.owners:
            self._check_owners(kind, entry)
        if entry.deleting and bucket == "namespaces":
            self._empty_namespace(entry)
        elif entry.deleting and bucket == CRDS:
            self._empty_crd(entry)
        if entry.deleting:
            self._finish_foreground(kind, entry.key)

    def _fill_token(self, entry: BucketEntry) -> None:
        secret = entry.obj()
        if secret.get("type") != SA_TOKEN_TYPE or not at(secret, "metadata", "annotations", SA_NAME):
            return
        before = dict(cast("Obj", secret.get("data") or {}))
        self._accounts.fill_secret(secret)
        if secret.get("data") and secret["data"] != before:
            self._store.put("secrets", secret)

    def _check_owners(self, kind: Kind, entry: BucketEntry) -> None:
        """Delete an object whose owners are all gone; drop references to the gone ones when some are left."""
        obj = entry.obj()
        references = cast("list[Obj]", items(obj, "metadata", "ownerReferences"))
        living = [ref for ref in references if self._exists(ref, entry)]
        if not living:
            self._deletion.delete(kind, entry, self._context, DeleteOptions())
        elif len(living) < len(references):
            meta(obj)["ownerReferences"] = living
            self._store.put(kind.bucket, obj)
        elif not entry.deleting and all(self._foreground(ref) for ref in living):
            self._deletion.delete(kind, entry, self._context, DeleteOptions(propagation="Foreground"))

    def _exists(self, reference: Obj, entry: BucketEntry) -> bool:
        if self._catalog.by_kind(str(reference.get("apiVersion")), str(reference.get("kind"))) is None:
            return True  # a kind that we do not serve: its owner may exist
        owner = self._owners.find(str(reference.get("uid")))
        return owner is not None and owner[1].namespace in {"", entry.namespace}

    def _foreground(self, reference: Obj) -> bool:
        owner = self._owners.find(str(reference.get("uid")))
        return owner is not None and owner[1].deleting and FOREGROUND in items(owner[1].obj(), "metadata", "finalizers")

    def _finish_foreground(self, kind: Kind, key: Key) -> None:
        entry = self._store.bucket(kind.bucket).entries.get(key)
        if entry is None or FOREGROUND not in items(obj := entry.obj(), "metadata", "finalizers"):
            return
        waiting = False
        for bucket, dependent in self._owners.dependents(entry.uid):
            if entry.namespace not in {"", dependent.namespace}:
                continue  # a dependent in another namespace never holds up its owner
            references = items(dependent.obj(), "metadata", "ownerReferences")
            waiting |= any(ref.get("uid") == entry.uid and ref.get("blockOwnerDeletion") for ref in references)
            if not dependent.deleting:
                self._enqueue((bucket, dependent.key))
        if not waiting:
            self._drop_finalizer(kind, obj, FOREGROUND)

    def _drop_finalizer(self, kind: Kind, obj: Obj, finalizer: str) -> None:
        kept = [name for name in items(obj, "metadata", "finalizers") if name != finalizer]
        if kept:
            meta(obj)["finalizers"] = kept
            self._store.put(kind.bucket, obj)
        else:
            meta(obj).pop("finalizers", None)
            self._store.delete(kind.bucket, obj)

    def _delete_some(self, kind: Kind, contents: Collection[BucketEntry]) -> bool:
        """Delete a few of ``contents``; says whether there may be more to delete."""
        chosen = list(islice((content for content in contents if not content.deleting), BATCH))
        for content in chosen:
            self._deletion.delete(kind, content, self._context, DeleteOptions())
        return len(chosen) == BATCH

    def _empty_namespace(self, entry: BucketEntry) -> None:
        left: list[tuple[Kind, Collection[BucketEntry]]] = []
        for bucket in self._store.buckets():
            kind = self._catalog.by_bucket(bucket.name)
            if kind is None or not kind.namespaced:
                continue
            if self._delete_some(kind, bucket.in_namespace(entry.name)):
                self._enqueue(("namespaces", entry.key))
                return
            if contents := bucket.in_namespace(entry.name):
                left.append((kind, contents))
        obj = entry.obj()
        if left:
            written = items(obj, "status", "conditions")
            if written and sum(len(contents) for _, contents in left) > MANY:
                return  # one write for each object that goes would be too much
            conditions = remaining_conditions(left, str(meta(obj)["deletionTimestamp"]))
            if written != conditions:
                obj["status"] = {**(obj.get("status") or {}), "conditions": conditions}
                self._store.put("namespaces", obj)
            return
        if not at(obj, "spec", "finalizers"):
            return
        obj["spec"] = {}
        if meta(obj).get("finalizers"):
            self._store.put("namespaces", obj)
        else:
            self._store.delete("namespaces", obj)

    def _empty_crd(self, entry: BucketEntry) -> None:
        obj = entry.obj()
        if CLEANUP not in items(obj, "metadata", "finalizers"):
            return
        kinds = self._catalog.of_crd(entry.name)
        bucket = self._store.bucket(entry.name)
        if kinds and self._delete_some(kinds[0], bucket.entries.values()):
            self._enqueue((CRDS, entry.key))
        elif not len(bucket):
            self._store_without_cleanup(obj)

    def _store_without_cleanup(self, obj: Obj) -> None:
        kind = self._catalog.by_bucket(CRDS)
        if kind is not None:
            self._drop_finalizer(kind, obj, CLEANUP)


#: Of more objects the finalizers are not counted, and nothing is written again when one of them is gone.
MANY = 100


def remaining_conditions(left: Sequence[tuple[Kind, Collection[BucketEntry]]], since: str) -> list[Obj]:
    """Return the conditions of a namespace that is deleted ``since`` then and has these objects ``left``."""
    content = [f"{kind.plural}.{kind.group} has {len(entries)} resource instances" for kind, entries in left]
    conditions = [
        _condition("NamespaceContentRemaining", "SomeResourcesRemain", "Some resources are remaining", content, since)
    ]
    if sum(len(entries) for _, entries in left) <= MANY:
        finalizers = Counter(
            str(name)
            for _, entries in left
            for entry in entries
            for name in items(entry.obj(), "metadata", "finalizers")
        )
        held = [f"{name} in {count} resource instances" for name, count in sorted(finalizers.items())]
        text = "Some content in the namespace has finalizers remaining"
        conditions += (
            [_condition("NamespaceFinalizersRemaining", "SomeFinalizersRemain", text, held, since)] if held else []
        )
    return conditions


def _condition(kind: str, reason: str, text: str, parts: Sequence[str], since: str) -> Obj:
    message = f"{text}: {', '.join(parts)}"
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since}


class Owners:
    """UIDs that exist, and the objects that name each UID as an owner; the store calls ``observe``."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._present: dict[str, tuple[str, Key]] = {}
        self._dependents: dict[str, set[tuple[str, Key]]] = {}

    def observe(self, bucket: str, before: BucketEntry | None, after: BucketEntry | None) -> None:
        """Update the index after a change in the store."""
        for uid in before.owners if before else ():
            held = self._dependents.get(uid)
            if held is not None and before is not None:
                held.discard((bucket, before.key))
                if not held:
                    del self._dependents[uid]
        if after is None:
            if before is not None:
                self._present.pop(before.uid, None)
            return
        self._present[after.uid] = (bucket, after.key)
        for uid in after.owners:
            self._dependents.setdefault(uid, set()).add((bucket, after.key))

    def find(self, uid: str) -> tuple[str, BucketEntry] | None:
        """Return the (bucket, entry) with ``uid``, or None."""
        place = self._present.get(uid)
        if place is None:
            return None
        entry = self._store.bucket(place[0]).entries.get(place[1])
        return None if entry is None else (place[0], entry)

    def dependents(self, uid: str) -> list[tuple[str, BucketEntry]]:
        """List the (bucket, entry) that name ``uid`` as an owner, in a stable order."""
        entries: list[tuple[str, BucketEntry]] = []
        for bucket, key in sorted(self._dependents.get(uid, ())):
            entry = self._store.bucket(bucket).entries.get(key)
            if entry is not None:
                entries.append((bucket, entry))
        return entries
