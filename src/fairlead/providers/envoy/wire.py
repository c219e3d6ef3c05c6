"""Joins and splits protobuf messages by hand.

Only for the hot path (endpoints, response frames, health reports), where it is five times faster than building message
objects; the tests hold it to the protobuf library byte for byte. Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator

#: Bits of the longest length that is read.
_LONGEST_LENGTH = 35


def varint(value: int) -> bytes:
    """Encode a non-negative integer."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def delimited(field: int, content: bytes) -> bytes:
    """Encode a string, bytes or message field; an empty one is written too (a present, empty message)."""
    return header(field, len(content)) + content


def header(field: int, length: int) -> bytes:
    """Encode what stands before the content of a string, bytes or message field."""
    return varint(field << 3 | 2) + varint(length)


def text(field: int, content: str) -> bytes:
    """Encode a string field; an empty one is left out, as proto3 does."""
    return delimited(field, content.encode()) if content else b""


def number(field: int, value: int) -> bytes:
    """Encode an integer or enum field; zero is left out, as proto3 does."""
    return varint(field << 3) + varint(value) if value else b""


def fields_of(message: bytes, field: int) -> Iterator[bytes]:
    """Yield each length-delimited ``field`` of an encoded message, not decoded; a broken message is a ValueError."""
    wanted = field << 3 | 2
    at, end = 0, len(message)
    try:
        while at < end:
            tag, length = message[at], message[at + 1]
            if tag > 0x7F or tag & 7 != 2:
                raise ValueError(f"field {tag >> 3} of type {tag & 7} where only messages and text are expected")
            at += 2
            if length > 0x7F:
                length &= 0x7F
                shift = 7
                while (more := message[at]) > 0x7F and shift < _LONGEST_LENGTH:
                    length |= (more & 0x7F) << shift
                    shift += 7
                    at += 1
                length |= more << shift
                at += 1
            if at + length > end:
                raise ValueError("a field is cut off")
            if tag == wanted:
                yield message[at : at + length]
            at += length
    except IndexError:
        raise ValueError("a field is cut off") from None
