"""The program of a pod: a small HTTP server that answers with its name.

``python -m fairlead_demo.worlds.pod_server ADDRESS PORT NAME [CERTIFICATE KEY]``; the last two are files in PEM. The
head of a response is sent at once and the body a little later, so that there are always requests in flight. On SIGTERM
it goes on accepting for a moment, sends ``Connection: close``, and ends with the last connection. With
``REACHED_AFTER_S`` in its environment nothing reaches it for so long after it is ready, and ``STILL_ACCEPTING_S`` says
how long it accepts after SIGTERM. It imports only the standard library, because many of them start at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
import sys

_WORK_S = 0.01
#: Seconds in which load balancers stop sending new connections, as the sleep of a preStop hook.
_STILL_ACCEPTING_S = 1.5
_LAST_CONNECTION_S = 10.0


class PodServer:
    """One server; ``draining`` is set on SIGTERM."""

    def __init__(self, name: str) -> None:
        self._name = name.encode()
        self._open: set[asyncio.Task[None]] = set()
        self._idle: set[asyncio.StreamWriter] = set()
        self.draining = asyncio.Event()

    async def serve(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        """Serve until ``draining`` is set and the last connection has ended."""
        later_s = float(os.environ.get("REACHED_AFTER_S") or 0)
        if later_s:
            _say_ready()
            await asyncio.sleep(later_s)
        server = await asyncio.start_server(self._connected, host, port, backlog=512, ssl=tls)
        if not later_s:
            _say_ready()
        await self.draining.wait()
        await asyncio.sleep(float(os.environ.get("STILL_ACCEPTING_S") or _STILL_ACCEPTING_S))
        server.close()
        # Closing an idle connection loses no request; the client opens another one, to another pod.
        for writer in list(self._idle):
            writer.close()
        if self._open:
            await asyncio.wait(self._open, timeout=_LAST_CONNECTION_S)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await self._answer_requests(reader, writer)
        writer.close()

    async def _answer_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            self._idle.add(writer)
            try:
                request = await reader.readuntil(b"\r\n\r\n")
            finally:
                self._idle.discard(writer)
            last = b"connection: close" in request.lower() or self.draining.is_set()
            ending = b"close" if last else b"keep-alive"
            writer.write(
                b"HTTP/1.1 200 OK\r\nX-Pod: %b\r\nContent-Length: %d\r\nConnection: %b\r\n\r\n"
                % (self._name, len(self._name) + 1, ending)
            )
            await writer.drain()
            await asyncio.sleep(_WORK_S)
            writer.write(self._name + b"\n")
            await writer.drain()
            if last:
                return


def _say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


async def _main(host: str, port: int, name: str, *pair: str) -> None:
    tls = None
    if pair:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*pair)
    server = PodServer(name)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.draining.set)
    await server.serve(host, port, tls=tls)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
