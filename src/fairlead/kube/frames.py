"""Splits a watch's stream: chunks of bytes become lines, and lines become events.

In: chunks as the network delivers them. Out: event types with their undecoded objects; of a line that is longer than
any object may be, what names the object.
Never: copies a byte more often than needed: the cost is that of the bytes, however they are cut; or keeps more than
``LINE_LIMIT_BYTES`` of one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from json import JSONDecoder
from typing import Any

import msgspec


class Frame(msgspec.Struct, gc=False):
    """One watch event; the object stays raw until its type is known. ``problem`` says why it cannot be read at all."""

    type: str
    object: msgspec.Raw
    problem: str = ""


#: The largest object that etcd takes is 1.5 MiB by default; this is far beyond any that could be meant.
LINE_LIMIT_BYTES = 16 * 2**20
#: A server writes kind, apiVersion and metadata first.
HEAD_BYTES = 256 * 1024
#: No server sends that; the stream is none of events.
NO_LINE_BYTES = 2**30
_TYPE = re.compile(r'\s*\{\s*"type"\s*:\s*"(\w+)"')
_METADATA = re.compile(r'"metadata"\s*:\s*\{')
_KEY = re.compile(r'\s*,?\s*"([^"\\]*)"\s*:\s*')
_NAMED_BY = ("name", "namespace", "resourceVersion")


class LineTooLong(Exception):
    """A line exceeds every limit, so the stream is not a watch."""


class TruncatedLine(bytes):
    """The start of a line that is longer than ``LINE_LIMIT_BYTES``."""

    def frame(self) -> Frame:
        """Return the event with as much of its metadata as its start names; perhaps without a name."""
        text = self.decode(errors="replace")
        kind, start = _TYPE.match(text), _METADATA.search(text)
        known = dict(_members(text, start.end())) if start is not None else {}
        # A lone surrogate, which is not printable, cannot be encoded.
        metadata = {key: name for key in _NAMED_BY if isinstance(name := known.get(key), str) and name.isprintable()}
        problem = f"larger than {LINE_LIMIT_BYTES >> 20} MiB; make the object smaller, or delete it"
        return Frame(kind[1] if kind else "", msgspec.Raw(msgspec.json.encode({"metadata": metadata})), problem)


def _members(text: str, place: int) -> Iterator[tuple[str, Any]]:
    """Yield the members of the JSON object that is open at ``place``, up to where the text ends."""
    decoder = JSONDecoder()
    while (key := _KEY.match(text, place)) is not None:
        try:
            value, place = decoder.raw_decode(text, key.end())
        except (ValueError, RecursionError):
            return
        yield key[1], value


class LineSplitter:
    """Cuts a stream of chunks into lines; what is left of an unfinished line waits for the next chunk."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._waiting_bytes = 0
        self._cut: TruncatedLine | None = None

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without their ends and without empty ones.

        Raises:
            LineTooLong: the line has grown beyond all measure.
        """
        if self._cut is None:
            return self._split(chunk)
        self._waiting_bytes += len(chunk)
        end = chunk.find(b"\n")
        if end < 0:
            if self._waiting_bytes > NO_LINE_BYTES:
                raise LineTooLong
            return []
        cut, self._cut, self._waiting_bytes = self._cut, None, 0
        return [cut, *self._split(chunk[end + 1 :])]

    def _split(self, chunk: bytes) -> list[bytes]:
        end = chunk.rfind(b"\n")
        if end < 0:
            # The parts are joined once, when the end comes: joining at every chunk would be quadratic.
            self._parts.append(chunk)
            self._waiting_bytes += len(chunk)
            if self._waiting_bytes > LINE_LIMIT_BYTES:
                self._cut = TruncatedLine(b"".join(self._parts)[:HEAD_BYTES])
                self._parts = []
            return []
        joined = b"".join((*self._parts, chunk[:end])) if self._parts else chunk[:end]
        rest = chunk[end + 1 :]
        self._parts = [rest] if rest else []
        self._waiting_bytes = len(rest)
        return [line for line in joined.split(b"\n") if line.strip()]
