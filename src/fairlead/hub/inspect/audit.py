"""Records who changed a load balancer, what and when, in its history.

    cache ──old, new──► fields that differ ──► managedFields of the object ──► entry of the history

An API server stores for each field the manager that set it, and when. Managers are names that clients choose. Only the
embedded API also stores the user, in an annotation that clients cannot write. On any other server that annotation is
an unverified claim of the client, and counts only if the change itself sets it.
In: changes of intents and routes. Out: entries with a ``Revision``, which are stored with the history, and a line of
the log each. Never: the value of a field that may be a credential; a write while nothing changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
import structlog

from fairlead.api.httploadbalancer import LOAD_BALANCER_ROUTES
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, ObjectMeta, Resource, Wire
from fairlead.api.names import ANNOTATION_CHANGED_BY, GROUP, MANAGER_HUB
from fairlead.api.times import parsed_time
from fairlead.errors import FairleadError
from fairlead.hub.intents.http import load_balancer_of
from fairlead.hub.inventory import Inventory
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.model.change import HistoryKind, Revision
from fairlead.model.keys import LoadBalancerKey
from fairlead.runtime.logs import REDACTED, redacted
from fairlead.sync.history import History

#: The number of fields that an entry names; others are only counted.
MOST_FIELDS = 10
_LONGEST_VALUE = 120
#: The number of changes that may wait for their manager; for further ones the manager is unknown.
_MOST_PENDING = 1000
#: Parts of a path below which values may be credentials: free settings, headers and query parameters of requests.
_FREE = ("parameters", "attributes", "existing", "headers", "queryparams")
#: The version suffix of an API server that stores the user itself.
_STORES_USERS = ("+fairlead", "+podless")

log = structlog.get_logger(__name__)

FieldChange = tuple[str, str, str]
T = TypeVar("T", bound=KubeObject)


class ManagedFieldsEntry(Wire, frozen=True, gc=False):
    """One entry of managedFields."""

    manager: str = ""
    time: str = ""
    subresource: str = ""
    fields_v1: JSONObject = msgspec.field(default_factory=dict, name="fieldsV1")


class ManagedMeta(ObjectMeta, frozen=True, gc=False):
    """Metadata with the managers of the fields."""

    managed_fields: tuple[ManagedFieldsEntry, ...] = ()


class ManagedObject(KubeObject, frozen=True, gc=False):
    """Any object with the managers of its fields."""

    metadata: ManagedMeta = ManagedMeta()


class _Change(NamedTuple):
    resource: AnyResource
    key: LoadBalancerKey
    obj: KubeObject
    operation: str
    fields: tuple[FieldChange, ...]
    #: The user in the annotation, and the same where this change has set it.
    user: str = ""
    claimed: str = ""


class ChangeRecorder:
    """The changes of one hub's load balancers; each replica records them, and the leader stores them."""

    def __init__(self, cluster: Cluster, inventory: Inventory, history: History) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self._history = history
        self._pending: asyncio.Queue[_Change] = asyncio.Queue(_MOST_PENDING)
        self._started: datetime | None = None
        #: None: the version of the server has not been read.
        self._stores_users: bool | None = None

    def watch(self) -> None:
        """Record all later changes."""
        # Creation times are whole seconds, and so are the times by which the clock of the server is known.
        self._started = self._cluster.server_clock.now() - timedelta(seconds=2)
        for objects in self._inventory.intents.values():
            self._follow(objects.cache, objects.key)
        routes = self._inventory.caches.get(LOAD_BALANCER_ROUTES.plural)
        if routes is not None:
            self._follow(routes, load_balancer_of)

    def _follow(self, cache: WatchCache[T], key: Callable[[T], LoadBalancerKey]) -> None:
        def changed(old: T | None, new: T | None) -> None:
            if (operation := self._operation(old, new)) and (obj := new or old) is not None:
                changed_fields = field_changes(old, new) if old is not None and new is not None else ()
                fields = tuple(changed_fields) if operation == "Changed" else ()
                if fields or operation != "Changed":
                    before = old.annotation(ANNOTATION_CHANGED_BY) if old is not None else ""
                    user = obj.annotation(ANNOTATION_CHANGED_BY) if new is not None else ""
                    claimed = user if user != before else ""
                    self._put(_Change(cache.resource, key(obj), obj, operation, fields, user, claimed))

        cache.on_change(changed)

    def _operation(self, old: KubeObject | None, new: KubeObject | None) -> str:
        if old is None and new is not None:
            created = parsed_time(new.metadata.creation_timestamp or "")
            # At its start a hub reads objects that are not new.
            return "Created" if created is not None and self._started is not None and created >= self._started else ""
        if old is None or (new is None and old.deleting):
            return ""
        return "Deleted" if new is None or (new.deleting and not old.deleting) else "Changed"

    def _put(self, change: _Change) -> None:
        try:
            self._pending.put_nowait(change)
        except asyncio.QueueFull:
            self._note(change, ManagedFieldsEntry())

    async def run(self) -> None:
        """Record changes with their managers until cancelled."""
        while True:
            change = await self._pending.get()
            if self._stores_users is None:
                self._stores_users = await self._reads_users()
            self._note(change, await self._manager(change))

    async def _reads_users(self) -> bool | None:
        try:
            return (await self._cluster.version()).endswith(_STORES_USERS)
        except FairleadError:
            return None  # asked again at the next change; until then, users are claims

    async def _manager(self, change: _Change) -> ManagedFieldsEntry:
        """Return the manager that made a change; empty if the object is gone or unreadable."""
        if change.operation == "Deleted":
            return ManagedFieldsEntry(time=change.obj.metadata.deletion_timestamp or "")
        try:
            obj = await self._cluster.get(managed(change.resource), *change.obj.key)
        except FairleadError:
            return ManagedFieldsEntry()
        return manager_of(obj.metadata.managed_fields, change.fields)

    def _note(self, change: _Change, by: ManagedFieldsEntry) -> None:
        if by.manager.startswith(MANAGER_HUB) and change.operation == "Changed":
            return  # annotations of the hub are not a change of the request
        obj = change.obj
        name = "" if change.resource.kind == change.key.kind else f"{change.resource.kind}/{obj.metadata.name}"
        user = change.user if self._stores_users else change.claimed
        revision = Revision(
            change.operation,
            user,
            bool(user) and not self._stores_users,
            by.manager,
            name,
            change.fields[:MOST_FIELDS],
            max(0, len(change.fields) - MOST_FIELDS),
        )
        self._history.note(
            change.key, HistoryKind.CHANGED, revision.sentence, revision=revision, at=parsed_time(by.time)
        )
        log.info("an object was changed", object=str(change.key), **_logged(revision))


def _logged(revision: Revision) -> JSONObject:
    return {key: value for key, value in msgspec.to_builtins(revision).items() if value}


def managed(of: AnyResource) -> Resource[ManagedObject]:
    """Return the resource, with objects that include managedFields."""
    return Resource(of.group, of.version, of.kind, of.plural, of.namespaced, ManagedObject)


def manager_of(managers: tuple[ManagedFieldsEntry, ...], fields: tuple[FieldChange, ...]) -> ManagedFieldsEntry:
    """Return the manager that set one of ``fields`` last; without fields, the manager that created the object.

    A removed field has no owner, so the manager of a removal is unknown.
    """
    own = [entry for entry in managers if not entry.subresource]
    if not fields:
        created = [entry for entry in own if not entry.manager.startswith(MANAGER_HUB)]
        return min(created or own, key=lambda entry: entry.time, default=ManagedFieldsEntry())
    owners = [entry for entry in own if any(_owns(entry.fields_v1, path) for path, _, _ in fields)]
    return max(owners, key=lambda entry: entry.time, default=ManagedFieldsEntry())


def _owns(fields: JSONObject, path: str) -> bool:
    """Return whether a set of fields has the first two parts of a path."""
    annotation = path.removeprefix("metadata.annotations.")
    if annotation != path:
        return f"f:{annotation}" in fields.get("f:metadata", {}).get("f:annotations", {})
    return f"f:{path.partition('.')[0].partition('[')[0]}" in fields.get("f:spec", {})


def field_changes(old: KubeObject, new: KubeObject) -> Iterator[FieldChange]:
    """Yield the differing spec fields and Fairlead annotations with both values, without credentials."""
    if old.metadata.generation != new.metadata.generation:
        specs = [msgspec.to_builtins(cast("Any", obj).spec) for obj in (old, new)]
        yield from _changes_of("", *specs)
    before, after = (obj.metadata.annotations or {} for obj in (old, new))
    for name in sorted({*before, *after}):
        if name.startswith(f"{GROUP}/") and name != ANNOTATION_CHANGED_BY and before.get(name) != after.get(name):
            path = f"metadata.annotations.{name}"
            yield path, _shown(path, before.get(name)), _shown(path, after.get(name))


def _changes_of(path: str, old: object, new: object) -> Iterator[FieldChange]:
    if old == new:
        return
    before, after = _parts(old, new)
    if before is None or after is None:
        yield path, _shown(path, old), _shown(path, new)
        return
    for name in {**before, **after}:
        place = f"{path}{name}" if name.startswith("[") else f"{path}.{name}".removeprefix(".")
        yield from _changes_of(place, before.get(name), after.get(name))


def _parts(*values: object) -> Iterator[JSONObject | None]:
    """Yield the parts of each value by name (list items by name or index); None for a scalar."""
    lists = [cast("list[Any]", value) for value in values if isinstance(value, list | tuple)]
    by_name = all(
        isinstance(element, dict) and element.get("name") for elements in lists for element in elements
    ) and all(len({element["name"] for element in elements}) == len(elements) for elements in lists)
    for value in values:
        match value:
            case dict():
                yield cast("JSONObject", value)
            case list() | tuple():
                elements = enumerate(cast("list[JSONObject]", value))
                yield {f"[{element['name'] if by_name else at}]": element for at, element in elements}
            case None:
                yield {}
            case _:
                yield None


def _shown(path: str, value: object) -> str:
    if value in (None, ""):
        return ""
    lower = path.lower()
    if any(part in lower for part in _FREE):
        return REDACTED
    text = value if isinstance(value, str) else msgspec.json.encode(redacted(path, value)).decode()
    shown = str(redacted(path, text))
    return shown if len(shown) <= _LONGEST_VALUE else f"{shown[:_LONGEST_VALUE]}..."
