"""How is a protobuf message joined by hand?

Only for the hot path (endpoints, response frames), where it is five times faster than building message objects; the
tests hold it to the protobuf library byte for byte. Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations


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
    return varint(field << 3 | 2) + varint(len(content)) + content


def text(field: int, content: str) -> bytes:
    """Encode a string field; an empty one is left out, as proto3 does."""
    return delimited(field, content.encode()) if content else b""


def number(field: int, value: int) -> bytes:
    """Encode an integer or enum field; zero is left out, as proto3 does."""
    return varint(field << 3) + varint(value) if value else b""
