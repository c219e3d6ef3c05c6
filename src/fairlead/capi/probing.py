"""Probes of an endpoint: a connection, and a request for ``/readyz``.

In: an endpoint, the authority of its cluster. Out: a ``Probe``, or whether the API is ready. Never: sends a credential.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from fairlead.api.capiside import Endpoint
from fairlead.capi.view import Probe
from fairlead.runtime.tls import client_context

_CONNECT_S = 3.0
#: Ready, or ready to those who sign in.
_ANSWERS = ("200", "401", "403")

#: Returns the addresses of a name, in order; raises ``socket.gaierror`` when it has none.
Resolve = Callable[[str], Awaitable[list[str]]]


async def system_resolver(host: str) -> list[str]:
    """Return the addresses of a host name by the resolver of this machine."""
    rows = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


async def probe_endpoint(endpoint: Endpoint, *, resolve: Resolve = system_resolver) -> Probe:
    """Return whether a connection to ``endpoint`` can be made."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            addresses = await resolve(endpoint.host)
            _, writer = await asyncio.open_connection(addresses[0], endpoint.port)
    except socket.gaierror:
        text = f"the name {endpoint.host} does not resolve yet; point it at status.address"
        return Probe(reached=False, resolved=False, message=text)
    except (OSError, TimeoutError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else (error.strerror or "no connection")
        return Probe(reached=False, message=f"{endpoint} cannot be reached from here: {why}")
    writer.close()
    return Probe(reached=True)


async def why_not_ready(endpoint: Endpoint, authority: str, *, resolve: Resolve = system_resolver) -> str:
    """Return why ``/readyz`` of the API at ``endpoint`` does not answer 200; empty when it does."""
    try:
        context = client_context(authority.encode() or None)
        async with asyncio.timeout(_CONNECT_S):
            addresses = await resolve(endpoint.host)
            reader, writer = await asyncio.open_connection(
                addresses[0], endpoint.port, ssl=context, server_hostname=endpoint.host
            )
            try:
                request = f"GET /readyz HTTP/1.1\r\nHost: {endpoint.host}\r\nConnection: close\r\n\r\n"
                writer.write(request.encode())
                line = (await reader.readline()).decode(errors="replace")
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError) as error:
        return f"GET https://{endpoint}/readyz: {error or 'no answer'}"
    status = line.split(" ")[1] if line.count(" ") else ""
    return "" if status in _ANSWERS else f"GET https://{endpoint}/readyz: {line.strip() or 'no answer'}"
