"""The kinds that are served now: the built-in ones and those of the stored CRDs.

In: every change of a CRD (the store calls ``observe``). Out: lookups by group, version and plural. A change of a CRD
has effect from the next request on.
"""

from __future__ import annotations

from collections.abc import Callable

from podless.kinds.crd import BUCKET, kinds_of, version_rank
from podless.kinds.kind import Kind
from podless.schema.builtin import BuiltinSchemas
from podless.store.entry import BucketEntry

REVIEW_GROUPS = ("authentication.k8s.io", "authorization.k8s.io")


class Catalog:
    """All served kinds of one server; ``generation`` grows with every change of them."""

    def __init__(self, builtins: list[Kind], schemas: BuiltinSchemas) -> None:
        self._schemas = schemas
        self._builtins = builtins
        self._custom: dict[str, list[Kind]] = {}
        self._specs: dict[str, object] = {}
        self._own_groups = {*REVIEW_GROUPS, *(kind.group for kind in builtins)}
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        self.generation = 0
        self.changed: list[Callable[[str], None]] = []
        """Called with the name of a CRD whose kinds have changed."""
        self._index()

    def observe(self, bucket: str, before: BucketEntry | None, after: BucketEntry | None) -> None:
        """Update the index after a change in the store."""
        entry = after or before
        if bucket != BUCKET or entry is None:
            return
        if after is None:
            self._custom.pop(entry.name, None)
            self._specs.pop(entry.name, None)
        else:
            crd = after.obj()
            if self._specs.get(entry.name) == crd["spec"]:
                return
            self._specs[entry.name] = crd["spec"]
            self._custom[entry.name] = kinds_of(crd, self._schemas)
        self._index()
        for callback in self.changed:
            callback(entry.name)

    def _index(self) -> None:
        self.generation += 1
        self._by_path = {(kind.group, kind.version, kind.plural): kind for kind in self.all()}

    def all(self) -> list[Kind]:
        """Return every served kind: built-in ones first, then by CRD name."""
        return self._builtins + [kind for name in sorted(self._custom) for kind in self._custom[name]]

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind at a path, or None."""
        return self._by_path.get((group, version, plural))

    def built_in(self, group: str) -> bool:
        """Return whether ``group`` is a built-in API group."""
        return group in self._own_groups

    def by_bucket(self, bucket: str) -> Kind | None:
        """Return the kind, at its storage version, of the objects in a bucket."""
        return next((kind for kind in self.all() if kind.bucket == bucket and kind.conversion is None), None)

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind that an owner reference names."""
        return next((k for k in self.all() if (k.kind, k.api_version) == (kind, api_version)), None)

    def of_crd(self, name: str) -> list[Kind]:
        """Return the kinds that a CRD serves."""
        return self._custom.get(name, [])

    def groups(self) -> dict[str, list[str]]:
        """Return the versions of every group but the core one, preferred version first."""
        served: dict[str, set[str]] = {group: {"v1"} for group in REVIEW_GROUPS}
        for kind in self.all():
            if kind.group:
                served.setdefault(kind.group, set()).add(kind.version)
        return {group: sorted(versions, key=version_rank) for group, versions in served.items()}
