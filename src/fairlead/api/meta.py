"""The fields that every Kubernetes object has: metadata, conditions, and the address of its kind.

Null is a value that real API servers send for empty lists and maps: read those fields through ``or ()``.
Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from fairlead.errors import NotFound
from fairlead.model.condition import (
    CAPI_CONDITIONS,
    GOOD_WHEN_TRUE,
    TERMINAL,
    Condition,
    ConditionReason,
    ConditionType,
)
from fairlead.model.in_words import whole_number

JSONObject = dict[str, Any]
#: A JSON object that is only read.
JSONMapping = Mapping[str, Any]
#: For names and addresses that members write: printable ASCII, which neither acts on a terminal nor begins a line.
#: In the schema only, not when we read: what an earlier version has let in is still served.
ONE_LINE: JSONObject = {"pattern": "^[ -~]*$"}
Line63 = Annotated[str, Meta(max_length=63, extra_json_schema=ONE_LINE)]
Line253 = Annotated[str, Meta(max_length=253, extra_json_schema=ONE_LINE)]


class Wire(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The base of all wire types. ``gc=False`` is safe: decoded objects cannot form cycles."""


class OwnerReference(Wire, frozen=True, gc=False):
    """Whose dependent an object is."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Wire, frozen=True, gc=False):
    """The parts of metadata that we read; managedFields are left out on purpose."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None


class ObjectKey(NamedTuple):
    """The identity of an object within its kind; ``namespace`` is empty for a cluster-scoped object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class KubeObject(Wire, frozen=True, gc=False):
    """Any object: enough to key it, and the base of the typed ones."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> ObjectKey:
        """Return its namespace and name."""
        meta = self.metadata
        return ObjectKey(meta.namespace, meta.name)

    def label(self, key: str, default: str = "") -> str:
        """Return one label's value."""
        return (self.metadata.labels or {}).get(key, default)

    def annotation(self, key: str, default: str = "") -> str:
        """Return one annotation's value."""
        return (self.metadata.annotations or {}).get(key, default)

    def held_by(self, finalizer: str) -> bool:
        """Return whether this finalizer is on it."""
        return finalizer in (self.metadata.finalizers or ())

    @property
    def deleting(self) -> bool:
        """Return whether deletion has begun (finalizers may still hold it)."""
        return self.metadata.deletion_timestamp is not None

    @property
    def age_order(self) -> tuple[str, ObjectKey]:
        """Return the key that sorts the older of two objects first, and of equally old ones the first by name."""
        return self.metadata.creation_timestamp or "", self.key


def version_number(resource_version: str) -> int:
    """Return the number that a resourceVersion is, 0 for one that cannot be compared."""
    return whole_number(resource_version) or 0


def is_newer(version: str, than: str) -> bool:
    """Return whether the first of two resourceVersions of one server is newer, as far as they can be compared."""
    number = version_number(than)
    return bool(number) and version_number(version) > number


def without_status(obj: KubeObject) -> tuple[object, ...]:
    """Return what changes with anything but the status of an object, of a kind with a status subresource."""
    meta = obj.metadata
    return (
        meta.generation, meta.uid, meta.deletion_timestamp, meta.labels, meta.annotations, meta.finalizers,
        meta.owner_references,
    )  # fmt: skip


def only_status_changed(old: KubeObject, new: KubeObject) -> bool:
    """Return whether two versions of one object, of a kind with a status subresource, differ in status at the most."""
    return without_status(old) == without_status(new)


class WireCondition(Wire, frozen=True, gc=False):
    """A condition in the status of an object."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str | None = None


T_co = TypeVar("T_co", bound=KubeObject, covariant=True)


class Resource(msgspec.Struct, Generic[T_co], frozen=True):
    """How a kind is addressed, and the type its objects decode to."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    type: type[T_co]

    @property
    def api_version(self) -> str:
        """Return the ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """Return ``plural.group``, as RBAC and error messages write it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def owner(self, meta: ObjectMeta, *, controller: bool | None = None) -> OwnerReference:
        """Return the reference that makes others dependents of the object with this metadata."""
        return OwnerReference(self.api_version, self.kind, meta.name, meta.uid, controller)

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection, an object or a subresource of an object.

        Raises:
            NotFound: no object can have this name or namespace; in a path it would lead to another object.
        """
        for part, of in ((namespace, "Namespace"), (name, self.kind)):
            if part in (".", "..") or "/" in part or "%" in part:
                raise NotFound(f"There is no {of} {part!r}: no object can have this name.")
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        middle = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        tail = f"/{name}" if name else ""
        return f"{root}{middle}/{self.plural}{tail}" + (f"/{subresource}" if subresource else "")


AnyResource = Resource[KubeObject]


LIST_SET: JSONObject = {"x-kubernetes-list-type": "set"}
LIST_ATOMIC: JSONObject = {"x-kubernetes-list-type": "atomic"}


def list_by(*keys: str) -> JSONObject:
    """Return the type of a list of objects that ``keys`` distinguish."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


#: Of ports, which TCP and UDP have apart.
LIST_BY_PORT = list_by("port", "protocol")
#: The conditions of a status; None before there are any.
Conditions = Annotated[list[WireCondition] | None, Meta(extra_json_schema=list_by("type"))]


_STATUS = {True: "True", False: "False", None: "Unknown"}
_ORDER = {kind.value: position for position, kind in enumerate(ConditionType)}


class Transition(NamedTuple):
    """A condition whose status or reason is another than before; ``before`` is None for the first of its type."""

    condition: WireCondition
    before: WireCondition | None

    @property
    def good(self) -> bool:
        """Return whether it became good, or stayed so for another reason; an unknown type is good when False."""
        return (self.condition.status == "True") == (self.condition.type in GOOD_WHEN_TRUE)


def condition_of(conditions: Iterable[WireCondition] | None, kind: str) -> WireCondition | None:
    """Return the condition of one type, None when there is none."""
    return next((condition for condition in conditions or () if condition.type == kind), None)


def is_true(conditions: Iterable[WireCondition] | None, kind: str) -> bool:
    """Return whether the condition of one type is True."""
    condition = condition_of(conditions, kind)
    return condition is not None and condition.status == "True"


def is_taken_over(programmed: WireCondition | None) -> bool:
    """Say whether Programmed means that the proxies have it, but for routes that they refuse: the address is in use."""
    return programmed is not None and (
        programmed.status == "True" or programmed.reason == ConditionReason.ROUTES_REFUSED
    )


def wire_conditions(
    conditions: Iterable[Condition], old: Iterable[WireCondition] | None, *, generation: int, now: str
) -> list[WireCondition]:
    """Return ``conditions`` for a status; lastTransitionTime is kept from ``old`` while the status is the same."""
    return mirrored_conditions(
        (
            WireCondition(
                type=condition.type.value,
                status=_STATUS[condition.status],
                reason=condition.reason.value,
                message=condition.message,
            )
            for condition in conditions
        ),
        old,
        generation=generation,
        now=now,
    )


def mirrored_conditions(
    conditions: Iterable[WireCondition], old: Iterable[WireCondition] | None, *, generation: int, now: str
) -> list[WireCondition]:
    """Return conditions of another object's status for this one.

    A time that they have is kept unless ``old`` has one for the same status; types that we do not know go last.
    """
    known = _by_type(old)
    return [
        msgspec.structs.replace(
            condition,
            observed_generation=generation,
            last_transition_time=_since(condition, known.get(condition.type)) or now,
        )
        for condition in sorted(conditions, key=lambda condition: _ORDER.get(condition.type, len(_ORDER)))
    ]


#: The types that summarize the others for tools that know no kind of ours: kstatus, Argo CD, kubectl wait.
SUMMARIES = frozenset({ConditionType.READY, ConditionType.STALLED})
#: The types that Ready summarizes; the first one that is bad gives its reason.
_DECIDING = (
    ConditionType.ACCEPTED,
    ConditionType.PROGRAMMED,
    ConditionType.SERVING,
    ConditionType.RESOLVED_REFS,
    *(kind for kind in ConditionType if kind in GOOD_WHEN_TRUE - CAPI_CONDITIONS - {ConditionType.READY}),
)
_STALLS = (ConditionType.ACCEPTED, ConditionType.PROGRAMMED, ConditionType.RESOLVED_REFS)


def with_summary(
    conditions: Iterable[WireCondition], old: Iterable[WireCondition] | None, *, held: bool = False
) -> list[WireCondition]:
    """Return ``conditions`` with Ready, and with Stalled where waiting does not help.

    A kind that decides Ready itself keeps it. Conditions without a verdict, such as those of a part of a status, are
    returned as they are. ``held``: a pause or a guard holds changes back, so that the spec is not carried out yet.
    """
    by_type, before = _by_type(conditions), _by_type(old)
    decided = [by_type[kind] for kind in dict.fromkeys(_DECIDING) if kind in by_type]
    if decided and ConditionType.READY not in by_type:
        ready = _ready(decided, by_type, held=held)
        by_type[ready.type] = _dated(ready, before, decided)
    why = next((by_type[kind] for kind in _STALLS if kind in by_type and _is_final(by_type[kind])), None)
    by_type.pop(ConditionType.STALLED, None)
    if why is not None:
        stalled = msgspec.structs.replace(why, type=ConditionType.STALLED.value, status="True")
        by_type[stalled.type] = _dated(stalled, before, [why])
    return sorted(by_type.values(), key=lambda condition: _ORDER.get(condition.type, len(_ORDER)))


def _is_final(condition: WireCondition) -> bool:
    """Return whether a condition stays false until the spec, or what it names, is corrected."""
    if condition.type == ConditionType.PROGRAMMED and condition.reason == ConditionReason.UNSUPPORTED_ADDRESS_FAMILY:
        return False  # a provider may give the address of the other family later
    return condition.status == "False" and condition.reason in TERMINAL


def _ready(decided: Iterable[WireCondition], by_type: Mapping[str, WireCondition], *, held: bool) -> WireCondition:
    """Return Ready: false for the first false condition, Unknown while an answer is awaited or changes are held."""
    stops = [condition for condition in decided if condition.status == "False"]
    if held:
        holding = (by_type.get(kind) for kind in (ConditionType.PAUSED, ConditionType.GUARDED))
        stops += [msgspec.structs.replace(condition, status="Unknown") for condition in holding if condition]
    stops += [
        condition
        for condition in decided
        if condition.status == "Unknown" and condition.reason != ConditionReason.NOT_CHECKED
    ]
    if stops:
        return msgspec.structs.replace(stops[0], type=ConditionType.READY.value)
    return WireCondition(
        type=ConditionType.READY.value,
        status="True",
        reason=ConditionReason.READY.value,
        observed_generation=min(condition.observed_generation for condition in decided),
    )


def _dated(
    condition: WireCondition, before: Mapping[str, WireCondition], causes: Iterable[WireCondition]
) -> WireCondition:
    """Return a summary with its time: kept while its status is the same, else that of the last change of a cause."""
    latest = max((cause.last_transition_time or "" for cause in causes), default="") or None
    bare = msgspec.structs.replace(condition, last_transition_time=None)
    since = _since(bare, before.get(condition.type)) or latest
    return msgspec.structs.replace(condition, last_transition_time=since)


def is_younger(conditions: Iterable[WireCondition] | None, generation: int) -> bool:
    """Return whether conditions are about a younger version of their object than ``generation``."""
    return any(condition.observed_generation > generation for condition in conditions or ())


def transitions(old: Iterable[WireCondition] | None, new: Iterable[WireCondition] | None) -> list[Transition]:
    """Return the conditions of ``new`` whose status or reason differs from that of ``old``, in the order of ``new``.

    A condition that exists only during a problem, and is no longer there, counts as False. Stalled repeats another.
    """
    known, now = _by_type(old), _by_type(new)
    for conditions in (known, now):
        conditions.pop(ConditionType.STALLED, None)
    ended = [
        Transition(msgspec.structs.replace(condition, status="False", reason="", message=""), condition)
        for condition in known.values()
        if condition.type not in now and condition.type not in GOOD_WHEN_TRUE and condition.status == "True"
    ]
    changes = (Transition(condition, known.get(condition.type)) for condition in now.values())
    return ended + [
        change
        for change in changes
        if change.before is None
        or (change.before.status, change.before.reason) != (change.condition.status, change.condition.reason)
    ]


def _since(condition: WireCondition, before: WireCondition | None) -> str | None:
    same = before is not None and before.status == condition.status
    return before.last_transition_time if before is not None and same else condition.last_transition_time


def _by_type(conditions: Iterable[WireCondition] | None) -> dict[str, WireCondition]:
    return {condition.type: condition for condition in conditions or ()}
