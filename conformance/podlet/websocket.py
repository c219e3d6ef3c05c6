"""A WebSocket that sends every message back as it came. Source: RFC 6455."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CLOSE, _PING, _PONG = 8, 9, 10


async def websocket(key: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accept the upgrade of a request with this Sec-WebSocket-Key, then echo until the client closes."""
    accept = base64.b64encode(hashlib.sha1((key + _GUID).encode(), usedforsecurity=False).digest()).decode()
    writer.write(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
    )
    while True:
        first, second = await reader.readexactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack(">H", await reader.readexactly(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", await reader.readexactly(8))
        mask = await reader.readexactly(4) if second & 0x80 else bytes(4)
        masked = await reader.readexactly(length)
        payload = bytes(byte ^ mask[index % 4] for index, byte in enumerate(masked))
        opcode = first & 0x0F
        if opcode == _CLOSE:
            writer.write(bytes([0x88, min(len(payload), 125)]) + payload[:125])
            return
        if opcode == _PONG:
            continue
        size = bytes([len(payload)]) if len(payload) < 126 else b"\x7e" + struct.pack(">H", len(payload))
        writer.write(bytes([0x80 | _PONG if opcode == _PING else first]) + size + payload)
        await writer.drain()
