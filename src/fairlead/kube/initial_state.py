"""The objects that a server sends at the beginning of a watch, until it says that these are all.

In: the frames of a watch, one by one. Out: objects and unreadable ones by key, and the version that they are of.
Never: counts as complete before the server has marked its end.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from fairlead.api.meta import KubeObject, ObjectKey
from fairlead.kube.event_reader import EventReader
from fairlead.kube.frames import Frame

T = TypeVar("T", bound=KubeObject)

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
