"""The state of one connection, and its reset."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import weakref
from typing import Any

_NAMES: weakref.WeakKeyDictionary[ssl.SSLObject, str] = weakref.WeakKeyDictionary()


def remember_name(connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
    """Note the server name that a client asks for; a ``sni_callback``."""
    _NAMES[connection] = name or ""


def peer_name(writer: asyncio.StreamWriter) -> str:
    """Return address and port of the client."""
    name = writer.get_extra_info("peername") or ("?", 0)
    return f"[{name[0]}]:{name[1]}" if ":" in str(name[0]) else f"{name[0]}:{name[1]}"


def tls_of(writer: asyncio.StreamWriter) -> dict[str, Any] | None:
    """Return what the suite wants to know of a connection's TLS, None in plain text."""
    connection: ssl.SSLObject | None = writer.get_extra_info("ssl_object")
    if connection is None:
        return None
    cipher = connection.cipher()
    facts: dict[str, Any] = {
        "version": connection.version(),
        "serverName": _NAMES.get(connection, ""),
        "cipherSuite": cipher[0] if cipher else "",
    }
    if protocol := connection.selected_alpn_protocol():
        facts["negotiatedProtocol"] = protocol
    if certificate := connection.getpeercert(binary_form=True):
        facts["peerCertificates"] = [ssl.DER_cert_to_PEM_cert(certificate)]
    return facts


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN."""
    connection: socket.socket | None = writer.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
