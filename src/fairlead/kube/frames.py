"""Where does one watch event end: chunks of bytes become lines, and lines become events.

In: chunks as the network delivers them. Out: event types with their undecoded objects.
Never: copies a byte more often than needed: the cost is that of the bytes, however they are cut.
"""

from __future__ import annotations

import msgspec


class Frame(msgspec.Struct, gc=False):
    """One watch event; the object stays raw until its type is known."""

    type: str
    object: msgspec.Raw


# The largest object that etcd takes is 1.5 MiB by default; this is far beyond any that could be meant.
LINE_LIMIT_BYTES = 64 * 2**20


class LineTooLong(Exception):
    """What comes is no watch: there is no end to the line."""


class LineSplitter:
    """Cuts a stream of chunks into lines; what is left of an unfinished line waits for the next chunk."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._waiting_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without their ends and without empty ones.

        Raises:
            LineTooLong: the line has grown beyond all measure.
        """
        end = chunk.rfind(b"\n")
        if end < 0:
            # The parts are joined once, when the end comes: joining at every chunk would be quadratic.
            self._parts.append(chunk)
            self._waiting_bytes += len(chunk)
            if self._waiting_bytes > LINE_LIMIT_BYTES:
                raise LineTooLong
            return []
        whole = b"".join((*self._parts, chunk[:end])) if self._parts else chunk[:end]
        rest = chunk[end + 1 :]
        self._parts = [rest] if rest else []
        self._waiting_bytes = len(rest)
        return [line for line in whole.split(b"\n") if line.strip()]
