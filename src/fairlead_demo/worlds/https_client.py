"""Connections over TLS to one name, as clients would open them, and which certificate each of them got.

In: a name, and the certificates that are trusted now. Out: connections for ``Traffic``; a certificate that is not
trusted is an ``OSError``, so it counts as a failed request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter

from fairlead_demo.worlds.traffic import Connection


class HttpsClient:
    """Opens TLS connections to ``host``; ``connections_by_certificate`` counts them by server certificate (PEM)."""

    def __init__(self, host: str, *certificates: bytes) -> None:
        self.host = host
        self.connections_by_certificate: Counter[bytes] = Counter()
        self.trust(*certificates)

    def trust(self, *certificates: bytes) -> None:
        """Trust these certificates (PEM) and no others, on connections opened from now on."""
        self._context = ssl.create_default_context(cadata=b"".join(certificates).decode())

    async def connect(self, address: str, port: int) -> Connection:
        """Return a new connection; ``OSError`` when it fails or when the certificate is not trusted."""
        connection = await asyncio.open_connection(address, port, ssl=self._context, server_hostname=self.host)
        tls: ssl.SSLObject = connection[1].get_extra_info("ssl_object")
        self.connections_by_certificate[_pem(tls)] += 1
        return connection


def _pem(tls: ssl.SSLObject) -> bytes:
    der = tls.getpeercert(binary_form=True)
    return ssl.DER_cert_to_PEM_cert(der).encode() if der else b""
