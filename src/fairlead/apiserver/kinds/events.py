"""The two versions of an Event: stored as core/v1, renamed for events.k8s.io/v1."""

from __future__ import annotations

from fairlead.apiserver.failure import Cause, invalid_value, required_value
from fairlead.apiserver.kinds.kind import Behaviour, Conversion, ObjectChange
from fairlead.apiserver.objects import Obj, at, child

_CORE_TO_EVENTS = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_EVENTS_TO_CORE = {new: old for old, new in _CORE_TO_EVENTS.items()}


def _renamed(obj: Obj, names: dict[str, str], api_version: str) -> Obj:
    return {names.get(key, key): value for key, value in obj.items()} | {"apiVersion": api_version}


EVENTS_V1 = Conversion(
    to_storage=lambda obj: _renamed(obj, _EVENTS_TO_CORE, "v1"),
    from_storage=lambda obj: _renamed(obj, _CORE_TO_EVENTS, "events.k8s.io/v1"),
)


class EventBehaviour(Behaviour):
    """Events, in their core/v1 form."""

    def default(self, obj: Obj) -> None:
        """Set the fields as Go serializes them."""
        child(obj, "involvedObject")
        child(obj, "source")
        obj.setdefault("firstTimestamp", None)
        obj.setdefault("lastTimestamp", None)
        obj.setdefault("eventTime", None)
        obj.setdefault("reportingComponent", "")
        obj.setdefault("reportingInstance", "")

    def validate(self, change: ObjectChange) -> list[Cause]:
        """Check that the Event is in the namespace of its involved object."""
        new = change.new
        involved_namespace, own_namespace = (
            at(new, "involvedObject", "namespace") or "",
            at(new, "metadata", "namespace"),
        )
        if involved_namespace and involved_namespace != own_namespace:
            return [invalid_value("involvedObject.namespace", involved_namespace, "does not match event.namespace")]
        if not involved_namespace and own_namespace not in {"default", "kube-system"}:
            return [invalid_value("involvedObject.namespace", involved_namespace, "does not match event.namespace")]
        return [] if new.get("eventTime") is None or new.get("reason") else [required_value("reason")]
