"""Watch events and the initial state of a watch: frames become typed objects, or a reason why not.

In: chunks of a watch. Out: frames, objects of the resource's type, and the first complete state.
Never: decides what an event means for what is known; that is the cache's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
import structlog

from fairlead.api.json_text import decode, decode_leniently, repaired
from fairlead.api.meta import KubeObject, ObjectKey, Resource
from fairlead.errors import Retry
from fairlead.kube.cluster import Cluster
from fairlead.kube.failures import Status, error_from_status
from fairlead.kube.listing import Undecodable, decode_object
from fairlead.kube.transport import Frame, LineSplitter, LineTooLong, TruncatedLine

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
        """Return what is kept of an object, or why that cannot be computed."""
        try:
            return self.transformed(obj)
        except Exception as error:  # noqa: BLE001 - one object must not end the watch of all others
            return processing_problem(obj, error)

    def transformed(self, obj: T) -> T:
        """Return what is kept of an object."""
        return self._transform(obj) if self._transform else obj

    def meta(self, frame: Frame) -> KubeObject:
        """Return what can be read of any object; of one that is too large perhaps not even its name."""
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
