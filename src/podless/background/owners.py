"""Two indexes over the store: the UIDs that exist, and the objects that name each UID as an owner."""

from __future__ import annotations

from podless.store.entry import BucketEntry, Key
from podless.store.store import ObjectStore


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
