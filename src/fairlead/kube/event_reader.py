"""Decodes watch events: frames become typed objects, or a reason why not.

In: chunks of a watch. Out: lines, frames, objects of the resource's type, transformed.
Never: decides what an event means for what is known; that is the cache's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from fairlead.api.meta import KubeObject, Resource
from fairlead.errors import Retry
from fairlead.kube.cluster import Cluster
from fairlead.kube.failures import Status, error_from_status
from fairlead.kube.frames import Frame, LineSplitter, LineTooLong, TruncatedLine

T = TypeVar("T", bound=KubeObject)


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
        self._frames = msgspec.json.Decoder(Frame)
        self._typed = msgspec.json.Decoder(resource.type)
        self._untyped = msgspec.json.Decoder(KubeObject)

    def lines(self, splitter: LineSplitter, chunk: bytes) -> list[bytes]:
        """Return the lines that ``chunk`` completes."""
        try:
            return splitter.feed(chunk)
        except LineTooLong as error:
            raise BrokenStream(f"The watch of {self.what} sends something that is no watch.") from error

    def frame(self, line: bytes) -> Frame:
        """Return one event; an ERROR event is raised as the error that it stands for."""
        if isinstance(line, TruncatedLine):
            return line.frame()
        try:
            frame = self._frames.decode(line)
            if frame.type == "ERROR":
                status = msgspec.json.decode(frame.object, type=Status)
                call = self._cluster.call_for("watch", self._resource, self._namespace)
                raise error_from_status(call, status.code or 500, status)
        except msgspec.DecodeError as error:
            raise BrokenStream(f"The watch of {self.what} broke off in the middle.", detail=str(error)) from error
        return frame

    def decoded(self, frame: Frame) -> T | str:
        """Return the object, or why it cannot be read."""
        if frame.problem:
            return frame.problem
        try:
            return self.transformed(self._typed.decode(frame.object))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return str(error)

    def transformed(self, obj: T) -> T:
        """Return what is kept of an object."""
        return self._transform(obj) if self._transform else obj

    def meta(self, frame: Frame) -> KubeObject:
        """Return what can be read of any object; of one that is too large perhaps not even its name."""
        try:
            meta = self._untyped.decode(frame.object)
        except msgspec.DecodeError as error:
            raise BrokenStream(f"The watch of {self.what} sent an object without a name.", detail=str(error)) from error
        if not meta.metadata.name and frame.type != "BOOKMARK" and not (frame.problem and frame.type != "DELETED"):
            raise BrokenStream(f"The watch of {self.what} sent an object without a name.")
        return meta
