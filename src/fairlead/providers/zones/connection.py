"""Messages to DNS servers: questions and answers as bytes, one connection for many, and one update for many changes.

A connection is kept while the server keeps it. Messages go out one after the other, and answers, which come in any
order, are matched by their ids. Questions are written and answers read in as few steps as possible, because a hub asks
eight questions for each name. The authority section is read only when the answer is not authoritative: it says where a
name is delegated. An invalid answer is a ``dns.exception``. Never: half an answer, or a message sent twice on one
connection.

Concurrent changes of one zone become one update:

    the zone is free     the caller's changes are sent at once
    it is being changed  later changes wait, and are sent together when it is free
    many come            an update of several is followed by a pause, in which the next ones gather
    rejected             the changes are bisected to the names that cause it; the others are made
    no answer            all fail, and are tried again

Never: a change of a caller that has been cancelled, or two updates of a zone at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import struct
from collections.abc import Awaitable, Callable, Sequence

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.tsig
import dns.wire

from fairlead.errors import FairleadError, Retry
from fairlead.model.change import Outcome
from fairlead.providers.readback_watch import outcome_from_error
from fairlead.providers.zones.plan import RecordChange
from fairlead.providers.zones.settings import ServerSettings
from fairlead.runtime.background import watched
from fairlead.runtime.clock import Clock
from fairlead.runtime.queue import KeyedLock

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
            future.cancel()  # its outcome is no longer needed
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
        """End all questions under way: no answer to them can arrive."""
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
                f"{where} gave no answer within {settings.timeout_s:g} s; the hub retries. Check that it runs, or "
                "raise parameters.timeout",
                reason="DNSTimeout",
            ) from None
        except Lost:
            raise Retry(
                f"{where} closed the connection without an answer; the hub retries", reason="DNSUnreachable"
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
    """Return the error for a message that cannot be read or verified; it never names keys."""
    detail = type(error).__name__
    if isinstance(error, (dns.tsig.PeerBadTime, dns.tsig.BadTime)):
        text = "the clocks of server and hub differ too much for TSIG (BADTIME); set both by NTP"
        return Retry(f"{where}: {text}", detail=detail, reason="DNSClockSkew")
    if isinstance(error, (dns.tsig.PeerError, dns.tsig.BadSignature, dns.tsig.BadKey)):
        text = (
            "TSIG is not accepted: parameters.keyName, parameters.algorithm and the key in Secret "
            f"{settings.credentials} must be those of the server's configuration"
        )
        return Retry(f"{where}: {text}", detail=detail, reason="DNSNotAuthorized")
    text = "the answer cannot be read; is this a DNS server?"
    return Retry(f"{where}: {text}", detail=detail, reason="DNSBadAnswer")


_WIRE_HEADER = struct.Struct("!HHHHHH")
_IN = int(dns.rdataclass.IN)


class Question:
    """One question; ``id`` may be changed until it is sent."""

    def __init__(self, name: dns.name.Name, type_: str) -> None:
        self.id = secrets.randbelow(1 << 16)
        self._name = name
        self._type = int(dns.rdatatype.from_text(type_))

    def to_wire(self, *, max_size: int) -> bytes:
        """Return the message; it is always shorter than ``max_size``."""
        del max_size
        head = _WIRE_HEADER.pack(self.id, 0, 1, 0, 0, 0)
        return head + (self._name.to_wire() or b"") + struct.pack("!HH", self._type, _IN)


def read_answer(raw: bytes) -> dns.message.Message:
    """Return a message with the header and the answer section of ``raw``; of a referral the authority section too."""
    id_, flags, questions, answers, authorities, _ = _WIRE_HEADER.unpack_from(raw)
    message = dns.message.Message(id_)
    message.flags = dns.flags.Flag(flags)
    if not flags & dns.flags.QR or flags & dns.flags.TC:
        # A message that is not an answer, or not a whole one, says nothing of what the zone lacks.
        raise dns.exception.FormError
    if message.flags & dns.flags.AA or message.rcode():
        authorities = 0
    if not answers and not authorities:
        return message
    parser = dns.wire.Parser(raw, _WIRE_HEADER.size)
    for _ in range(questions):
        dns.name.from_wire_parser(parser)
        parser.get_bytes(4)
    for section, count in ((message.answer, answers), (message.authority, authorities)):
        for _ in range(count):
            name = dns.name.from_wire_parser(parser)
            type_, class_, ttl, length = parser.get_struct("!HHIH")
            with parser.restrict_to(length):
                rdata = dns.rdata.from_wire_parser(class_, type_, parser)
            message.find_rrset(section, name, rdata.rdclass, rdata.rdtype, create=True).add(rdata, ttl)
    return message


Run = Callable[[ServerSettings, Sequence[RecordChange]], Awaitable[list[Outcome]]]
_NO_ANSWER = frozenset({"DNSTimeout", "DNSUnreachable"})
#: While many names change, the least time between two updates of a zone; one name alone never waits for it.
PAUSE_S = 1.0
_MANY = 3
#: After so many names that are refused on their own, the rest is taken to be refused for the same reason.
_MOST_REJECTED = 8


class _WaitingChange:
    def __init__(self, rows: Sequence[RecordChange]) -> None:
        self.rows = rows
        self.answer: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()


class UpdateBatcher:
    """The changes that wait, by zone; ``run`` makes them."""

    def __init__(self, run: Run, *, clock: Clock) -> None:
        self._run = run
        self._clock = clock
        #: When the next update of a zone may begin, after one of many (monotonic seconds).
        self._next_s: dict[ServerSettings, float] = {}
        self._waiting: dict[ServerSettings, list[_WaitingChange]] = {}
        self.locks = KeyedLock()

    async def change(self, settings: ServerSettings, rows: Sequence[RecordChange]) -> list[Outcome]:
        """Make ``rows``, with those that wait for the same zone."""
        ask = _WaitingChange(rows)
        self._waiting.setdefault(settings, []).append(ask)
        try:
            async with self.locks.hold((settings.name, settings.zone)):
                if not ask.answer.done():
                    wait_s = self._next_s.pop(settings, 0.0) - self._clock.monotonic()
                    if wait_s > 0:
                        await self._clock.sleep(wait_s)
                    asks = self._waiting.pop(settings, [])
                    if sum(len(waiting.rows) for waiting in asks) >= _MANY:
                        self._next_s[settings] = self._clock.monotonic() + PAUSE_S
                    await self._run_all(settings, asks)
            return await ask.answer
        finally:
            if ask in (left := self._waiting.get(settings, [])):
                left.remove(ask)
            ask.answer.cancel()

    async def change_alone(self, settings: ServerSettings, rows: Sequence[RecordChange]) -> list[Outcome]:
        """Make ``rows`` at once; the caller holds the lock of the zone."""
        return await self._outcomes(settings, rows, [_MOST_REJECTED])

    async def _run_all(self, settings: ServerSettings, asks: Sequence[_WaitingChange]) -> None:
        try:
            outcomes = await self._outcomes(settings, [row for ask in asks for row in ask.rows], [_MOST_REJECTED])
        except FairleadError as error:
            _fail(asks, error)
            return
        except BaseException:
            _fail(asks, Retry(f"an update of zone {settings.zone} was interrupted; the hub retries"))
            raise
        start = 0
        for ask in asks:
            end = start + len(ask.rows)
            if not ask.answer.done():
                ask.answer.set_result(outcomes[start:end])
            start = end

    async def _outcomes(
        self, settings: ServerSettings, rows: Sequence[RecordChange], rejections_left: list[int]
    ) -> list[Outcome]:
        """Make ``rows``; when they are refused together, only the names that cause it fail."""
        try:
            return await self._run(settings, rows)
        except Retry as error:
            hosts = sorted({row.host for row in rows})
            if error.reason in _NO_ANSWER or len(hosts) == 1 or rejections_left[0] <= 0:
                raise
        half = set(hosts[: len(hosts) // 2])
        outcomes: dict[int, Outcome] = {}
        for part in (half, {*hosts} - half):
            at = [index for index, row in enumerate(rows) if row.host in part]
            try:
                done = await self._outcomes(settings, [rows[index] for index in at], rejections_left)
            except Retry as error:
                if error.reason in _NO_ANSWER:
                    raise
                rejections_left[0] -= 1
                done = [outcome_from_error(error)] * len(at)
            outcomes |= dict(zip(at, done, strict=True))
        return [outcomes[index] for index in range(len(rows))]


def _fail(asks: Sequence[_WaitingChange], error: FairleadError) -> None:
    for ask in asks:
        if not ask.answer.done():
            ask.answer.set_exception(error)
            ask.answer.exception()  # who asked may be gone
