"""The xDS resources that Envoy has acknowledged, in memory and in a file that survives a crash.

    put, remove ──► resources ──every 0.2 s──► file: one record for each change, appended and synchronised
                                               rewritten once most of its records are outdated

A record that was cut off by a crash, or damaged, ends the reading of the file: what comes before it counts. The hub
sends the rest again, because the relay shows it what the snapshot lacks.
Never: blocks the event loop for a disk, or loses what was written before a failed write.
"""

from __future__ import annotations

import asyncio
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

from fairlead.errors import BadConfiguration
from fairlead.providers.envoy.resources import EncodedResource, ResourceType, load_balancer_of
from fairlead.runtime.background import watched
from fairlead.runtime.private_file import write_private

_MAGIC = b"fairlead-xds-snapshot 1\n"
_HEAD = struct.Struct(">II")
_PAUSE_S = 0.2
#: After a failed write.
_RETRY_S = 5.0
#: A file is rewritten when it has so many times the bytes of the resources, and so many at least.
_OUTDATED, _SMALL = 3, 1024 * 1024
#: A record longer than this is a damaged one.
_LONGEST = 256 * 1024 * 1024

log = structlog.get_logger(__name__)


class _Record(msgspec.Struct, array_like=True):
    """A resource by the value of its type, or with an empty version the removal of one."""

    kind: str
    name: str
    version: str = ""
    field: bytes = b""


class XdsSnapshot:
    """The resources of one machine. ``path`` is the file; its directory exists.

    ``on_change`` is called with the type and name of each resource that comes or goes.
    """

    def __init__(
        self, path: Path, *, on_change: Callable[[ResourceType, str], None] = lambda _kind, _name: None
    ) -> None:
        self._path = path
        self._on_change = on_change
        self._resources: dict[ResourceType, dict[str, EncodedResource]] = {kind: {} for kind in ResourceType}
        self._pending: dict[tuple[ResourceType, str], None] = {}
        self._changed = asyncio.Event()
        self._size = 0
        self._live = 0
        #: A sentence while changes cannot be written.
        self.problem = ""

    @property
    def size(self) -> int:
        """Return how many resources there are."""
        return sum(map(len, self._resources.values()))

    def load(self) -> None:
        """Read the file; a missing one is empty.

        Raises:
            BadConfiguration: it cannot be read.
        """
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise BadConfiguration(f"{self._path} cannot be read ({error.strerror})") from error
        good = 0
        for record, end in _records(data):
            good = end
            kind = ResourceType(record.kind)
            if record.version:
                self._resources[kind][record.name] = EncodedResource(version=record.version, field=record.field)
            else:
                self._resources[kind].pop(record.name, None)
        if good < len(data):
            log.warning("the end of the snapshot cannot be read", path=str(self._path), bytes=len(data) - good)
        self._drop_orphans()
        self._live = sum(len(resource.field) for of_kind in self._resources.values() for resource in of_kind.values())
        # What follows is appended behind the last good record only if nothing bad is there.
        self._size = len(data) if data and good == len(data) else 0

    def of(self, kind: ResourceType) -> Mapping[str, EncodedResource]:
        """Return the resources of a type by name."""
        return self._resources[kind]

    def version(self, kind: ResourceType, name: str) -> str:
        """Return the version of a resource; empty when it is not there."""
        resource = self._resources[kind].get(name)
        return resource.version if resource is not None else ""

    def put(self, kind: ResourceType, name: str, resource: EncodedResource) -> None:
        """Keep a resource that Envoy has acknowledged."""
        before = self._resources[kind].get(name)
        if before is not None and before.version == resource.version:
            return
        self._live += len(resource.field) - (len(before.field) if before is not None else 0)
        self._resources[kind][name] = resource
        self._note(kind, name)
        self._on_change(kind, name)

    def remove(self, kind: ResourceType, name: str) -> None:
        """Forget a resource that Envoy no longer has."""
        if (before := self._resources[kind].pop(name, None)) is not None:
            self._live -= len(before.field)
            self._note(kind, name)
            self._on_change(kind, name)

    async def run(self) -> None:
        """Write changes until cancelled, then once more."""
        try:
            while True:
                await self._changed.wait()
                await asyncio.sleep(_PAUSE_S)
                try:
                    await self.flush()
                    self.problem = ""
                except OSError as error:
                    self.problem = (
                        f"{self._path} cannot be written ({error.strerror}); a boot would restore older state"
                    )
                    await asyncio.sleep(_RETRY_S)
        finally:
            await self.flush()

    async def flush(self) -> None:
        """Write what has changed; after an ``OSError`` it is written the next time."""
        whole = not self._size or self._size > max(_SMALL, _OUTDATED * self._live)
        pending = list(self._pending)
        self._pending.clear()
        self._changed.clear()
        if not pending:
            return
        names = [(kind, name) for kind in ResourceType for name in self._resources[kind]] if whole else pending
        records = [self._record(*key) for key in names]
        writing = watched("snapshot write", asyncio.to_thread(self._write, records, whole), expected=OSError)
        try:
            # The thread continues when this is cancelled, and the last write must not begin before it ends.
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait({writing})
            raise
        finally:
            if not writing.done() or writing.exception() is not None:
                # Half a record may be at the end now: the next write begins a new file.
                self._size = 0
                for key in pending:
                    self._note(*key)
            else:
                self._size = writing.result()

    def _note(self, kind: ResourceType, name: str) -> None:
        self._pending[kind, name] = None
        self._changed.set()

    def _record(self, kind: ResourceType, name: str) -> _Record:
        resource = self._resources[kind].get(name)
        if resource is None:
            return _Record(kind.value, name)
        return _Record(kind.value, name, resource.version, resource.field)

    def _write(self, records: Sequence[_Record], whole: bool) -> int:
        """Write records, in a thread; return the size of the file."""
        data = b"".join(map(_encoded, records))
        if whole:
            write_private(self._path, _MAGIC + data)
            return len(_MAGIC) + len(data)
        with self._path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def _drop_orphans(self) -> None:
        """Drop resources of load balancers without listener and cluster, which an Envoy that died has not released.

        Only at the start: Envoy acknowledges new endpoints before their cluster.
        """
        there = {
            load_balancer_of(name)
            for kind in (ResourceType.CLUSTER, ResourceType.LISTENER)
            for name in self._resources[kind]
        }
        for kind in (ResourceType.ENDPOINTS, ResourceType.SECRET, ResourceType.ROUTES):
            for name in [name for name in self._resources[kind] if load_balancer_of(name) not in there]:
                del self._resources[kind][name]


def _encoded(record: _Record) -> bytes:
    body = msgspec.msgpack.encode(record)
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def _records(data: bytes) -> Iterator[tuple[_Record, int]]:
    """Yield each record with the place of its end, up to the first that is damaged."""
    if not data.startswith(_MAGIC):
        return
    at = len(_MAGIC)
    while at + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, at)
        body = data[at + _HEAD.size : at + _HEAD.size + length]
        if length > _LONGEST or len(body) < length or zlib.crc32(body) != checksum:
            return
        at += _HEAD.size + length
        try:
            record = msgspec.msgpack.decode(body, type=_Record)
        except msgspec.DecodeError:
            return
        if record.kind in _KINDS:
            yield record, at


_KINDS = frozenset(kind.value for kind in ResourceType)
