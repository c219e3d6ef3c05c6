"""Sends many messages to a DNS server at once, and matches each answer with its message.

Over one TCP connection, which is kept while the server keeps it: messages go out one after the other, answers come in
any order and are known by their ids. In: messages. Out: the answer to each; ``Retry`` when there is none in time.
Never: a half answer taken for a whole one, or a message sent twice on one connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Sequence

import dns.exception
import dns.message
import dns.tsig

from fairlead.errors import FairleadError, Retry
from fairlead.providers.zones.settings import ServerSettings
from fairlead.providers.zones.wire import Question, read_answer
from fairlead.runtime.background import watched

#: Questions under way on one connection at once.
_WINDOW = 64
#: The length of a message without any section.
_HEADER = 12


class Lost(Exception):
    """The server has closed the connection before it answered."""


class _Connection:
    """One TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self.lost = False
        self._task = watched("DNS answers", self._read())

    async def ask(self, message: dns.message.Message | Question) -> dns.message.Message:
        if self.lost:
            raise Lost
        while message.id in self._waiting:
            message.id = (message.id + 1) % 65536
        wire = message.to_wire(max_size=65535)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[message.id] = future
        try:
            self._writer.write(struct.pack("!H", len(wire)) + wire)
            await self._writer.drain()
            raw = await future
        except OSError as error:
            raise Lost from error
        finally:
            self._waiting.pop(message.id, None)
            future.cancel()  # its outcome is not asked for any more
        if len(raw) == _HEADER or isinstance(message, Question) or not message.keyring:
            # An update may be answered without repeating its zone (RFC 2136, 3.8); the library wants it.
            return read_answer(raw)
        return dns.message.from_wire(raw, keyring=message.keyring, request_mac=message.mac, ignore_trailing=True)

    def close(self) -> None:
        self._task.cancel()
        self._lose()

    async def _read(self) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                (length,) = struct.unpack("!H", await self._reader.readexactly(2))
                raw = await self._reader.readexactly(length)
                future = self._waiting.get(struct.unpack("!H", raw[:2])[0]) if length >= _HEADER else None
                if future is not None and not future.done():
                    future.set_result(raw)
        self._lose()

    def _lose(self) -> None:
        """End all questions under way: no answer to them can come any more."""
        self.lost = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Lost())
        self._writer.close()


class DNSConnection:
    """The server of one zone. ``ask`` may be called by many at once."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._connection: _Connection | None = None
        self._closed = False
        self._connecting = asyncio.Lock()
        self._window = asyncio.Semaphore(_WINDOW)

    async def ask(self, message: dns.message.Message | Question, *, repeat: bool = True) -> dns.message.Message:
        """Return the answer; a question is ``repeat``-ed once when a kept connection turns out to be closed."""
        settings = self._settings
        where = f"DNS server {settings.name} of zone {settings.zone}"
        connection: _Connection | None = None
        try:
            async with self._window, asyncio.timeout(settings.timeout_s):
                connection, fresh = await self._connected()
                try:
                    return await connection.ask(message)
                except Lost:
                    if fresh or not repeat or self._closed:
                        raise
                    # What is left of the time says nothing of the new connection: others may be answered on it.
                    again, _ = await self._connected()
                    return await again.ask(message)
        except TimeoutError:
            self._drop(connection)
            raise Retry(
                f"{where} gave no answer within {settings.timeout_s:g} s; it is asked again. Check that it runs, or "
                "raise parameters.timeout",
                reason="DNSTimeout",
            ) from None
        except Lost:
            raise Retry(
                f"{where} closed the connection without an answer; it is asked again", reason="DNSUnreachable"
            ) from None
        except OSError as error:
            raise Retry(
                f"{where} cannot be reached over TCP; check that it runs, and parameters.server",
                detail=error.strerror or type(error).__name__,
                reason="DNSUnreachable",
            ) from error
        except dns.exception.DNSException as error:
            raise _refusal(error, where, settings) from error

    async def ask_all(self, messages: Sequence[Question]) -> list[dns.message.Message]:
        """Return the answers to questions, in their order; the first failure is raised."""
        tasks = [asyncio.ensure_future(self.ask(message)) for message in messages]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def close(self) -> None:
        """Close the connection; what is under way ends, and is not repeated."""
        self._closed = True
        self._drop(self._connection)

    def _drop(self, connection: _Connection | None) -> None:
        """Close this connection, unless there is a newer one by now."""
        if connection is not None and self._connection is connection:
            self._connection = None
            connection.close()

    async def _connected(self) -> tuple[_Connection, bool]:
        async with self._connecting:
            if self._connection is not None and not self._connection.lost:
                return self._connection, False
            self._drop(self._connection)
            self._connection = _Connection(*await asyncio.open_connection(self._settings.host, self._settings.port))
            return self._connection, True


def _refusal(error: dns.exception.DNSException, where: str, settings: ServerSettings) -> FairleadError:
    """Return what a message that cannot be taken means; keys are never named."""
    detail = type(error).__name__
    if isinstance(error, (dns.tsig.PeerBadTime, dns.tsig.BadTime)):
        text = "its clock and the hub's differ too much for TSIG (BADTIME); set both by NTP"
        return Retry(f"{where}: {text}", detail=detail, reason="DNSClockSkew")
    if isinstance(error, (dns.tsig.PeerError, dns.tsig.BadSignature, dns.tsig.BadKey)):
        text = (
            "TSIG is not accepted: parameters.keyName, parameters.algorithm and the key in Secret "
            f"{settings.credentials} must be those of the server's configuration"
        )
        return Retry(f"{where}: {text}", detail=detail, reason="DNSNotAuthorized")
    text = "it answers with a message that cannot be read; is this a DNS server?"
    return Retry(f"{where}: {text}", detail=detail, reason="DNSBadAnswer")
