"""Accept connections, as many as this process can hold, and none for long that does not say who it is.

    accepted ─► handshake ─► first request that is let in ─► kept until it ends
        └───── waiting: for WAIT_S, or FAIR_S where too many do, and then the oldest ends ──┘

In: a request handler, an address, a TLS context. Out: served connections. One that waits costs a file and a few
kilobytes; half handshakes and half requests end each other, and nothing that is under way. Hundreds that come at once
and mean it, as agents do after an outage, are let in one after the other: the others wait in the backlog of the kernel.
Of its authenticated connections a user keeps ``MAX_OF_USER``; when files run out, idle ones are closed first.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

import structlog
from aiohttp import web

from podless.auth.identity import User
from podless.background.restarted_task import restarted_task

#: For the handshake and the first whole request together; it comes at once from every client that means it.
WAIT_S = 15.0
MAX_WAITING = 512
#: What each gets of that at least, before it ends for another one.
FAIR_S = 2.0
#: Of one address that is not of this machine.
MAX_OF_ADDRESS = 1024
#: Connections of one user who is not an administrator; more than its requests and watches together (``seats``).
MAX_OF_USER = 512
#: For the database, the listeners and all else.
_OTHER_FILES = 128
_BACKLOG = 1024
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_NO_ROOM_PAUSE_S = 0.2
_log = structlog.get_logger(__name__)


class _BadRequests(logging.Handler):
    """A log handler for requests that aiohttp cannot read: now and then one line, without the traceback of each."""

    def __init__(self) -> None:
        super().__init__()
        self._rare = RareLog()

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one record on."""
        if (others := self._rare.due()) is not None:
            error = record.exc_info[1] if record.exc_info else None
            # The lines after the first ones quote the request, and a token may be in it.
            why = " ".join(str(error).partition("\n\n")[0].split())
            _log.warning("a request could not be read", error=f"{type(error).__name__}: {why}"[:300], others=others)


class Connection(web.RequestHandler):
    """One connection; ``ended`` is called when it is gone."""

    __slots__ = ("_connections",)

    def __init__(self, server: Any, connections: Connections, **options: Any) -> None:
        super().__init__(server, **options)
        self._connections = connections

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget this connection."""
        super().connection_lost(exc)
        self._connections.forget(self)


class Connections:
    """The connections of one server."""

    def __init__(self, handler: Any) -> None:
        logger = logging.Logger(__name__)  # noqa: LOG001 - of this server only: no other one's lines pass here
        logger.addHandler(_BadRequests())
        self._logger = logger
        self._server = web.Server(handler, handler_cancellation=True, access_log=None)
        self._listening: list[tuple[socket.socket, asyncio.Task[None]]] = []
        self._open: dict[Connection, str] = {}
        self._of_address: dict[str, int] = {}
        #: Oldest first, with what ends each if nothing else does.
        self._waiting: dict[Connection, tuple[socket.socket, asyncio.TimerHandle]] = {}
        #: Authenticated connections of users other than administrators: the user of each, how many a user has, and
        #: those of a user without a request in progress, the longest idle first.
        self._user_of: dict[Connection, str] = {}
        self._of_user: Counter[str] = Counter()
        self._idle: dict[str, dict[Connection, None]] = {}
        self._starting: set[asyncio.Task[None]] = set()
        #: Set when one waits no longer.
        self._fewer = asyncio.Event()
        self._rare = RareLog()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def waiting(self) -> int:
        """Return how many have not been let in yet."""
        return len(self._waiting)

    def listen(self, host: str, port: int, context: ssl.SSLContext | None = None) -> int:
        """Accept connections at an address and return its port; raises ``OSError``."""
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)  # type: ignore[arg-type]
        listener.setblocking(False)
        self._listening.append((listener, restarted_task("accept", lambda: self._accept(listener, context))))
        return int(listener.getsockname()[1])

    async def _accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._until_room()
            try:
                accepted, address = await loop.sock_accept(listener)
            except OSError as error:  # of one connection that is gone already, or there is no room
                if error.errno in _NO_ROOM:
                    self._complain("there are no more files for connections: raise the limit (ulimit -n)")
                    self._end_oldest()
                    await asyncio.sleep(_NO_ROOM_PAUSE_S)
                continue
            self._take(accepted, str(address[0]), context)

    async def _until_room(self) -> None:
        """Return when fewer than ``MAX_WAITING`` wait, or the oldest of them has had its time."""
        while len(self._waiting) >= MAX_WAITING:
            _, ends = next(iter(self._waiting.values()))
            left_s = ends.when() - WAIT_S + FAIR_S - asyncio.get_running_loop().time()
            if left_s <= 0:
                return
            self._fewer.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._fewer.wait()

    def _take(self, accepted: socket.socket, address: str, context: ssl.SSLContext | None) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        full = len(self._open) >= soft - _OTHER_FILES
        crowded = self._of_address.get(address, 0) >= MAX_OF_ADDRESS and not _of_this_machine(address)
        if crowded or (full and not self._waiting and not self._end_idle_of_busiest()):
            many = f" of {address}" if crowded else f", as this process may open {soft} files; raise ulimit -n"
            self._complain(f"a connection was refused: there are too many{many}")
            accepted.close()
            return
        if len(self._waiting) >= MAX_WAITING or full:
            self._end_oldest()
        loop = asyncio.get_running_loop()
        connection = Connection(self._server, self, loop=loop, access_log=None, logger=self._logger)
        self._open[connection] = address
        self._of_address[address] = self._of_address.get(address, 0) + 1
        self._waiting[connection] = (accepted, loop.call_later(WAIT_S, self._end, connection))
        task = asyncio.create_task(self._start(connection, accepted, context))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start(self, connection: Connection, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {"ssl": context, "ssl_handshake_timeout": WAIT_S} if context is not None else {}
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(lambda: connection, accepted, **options)
        except (OSError, asyncio.CancelledError):
            self.forget(connection)
            accepted.close()

    @contextlib.contextmanager
    def admit(self, protocol: object, user: User) -> Generator[None]:
        """Keep the connection of a request of ``user`` that was let in; the request is under way inside the block."""
        if not isinstance(protocol, Connection) or protocol not in self._open:
            yield
            return
        if (waited := self._waiting.pop(protocol, None)) is not None:
            waited[1].cancel()
            self._fewer.set()
        if user.is_master and protocol not in self._user_of:
            yield
            return
        if protocol not in self._user_of:
            self._user_of[protocol] = user.name
            self._of_user[user.name] += 1
        name = self._user_of[protocol]
        self._idle.get(name, {}).pop(protocol, None)
        if self._of_user[name] > MAX_OF_USER:
            self._end_idle(name)
        try:
            yield
        finally:
            if protocol in self._user_of:
                self._idle.setdefault(name, {})[protocol] = None

    def _end_idle(self, user: str) -> bool:
        """End the connection of a user that has no request under way for longest; returns whether there was one."""
        connection = next(iter(self._idle.get(user, ())), None)
        if connection is None:
            return False
        transport = connection.transport
        self.forget(connection)
        if transport is not None:
            transport.abort()
        return True

    def _end_idle_of_busiest(self) -> bool:
        """End one of the user who has the most that have no request under way; returns whether there was one."""
        busiest = max(self._idle, key=lambda user: len(self._idle[user]), default="")
        return self._end_idle(busiest)

    def _end_oldest(self) -> None:
        if self._waiting:
            self._end(next(iter(self._waiting)))

    def _end(self, connection: Connection) -> None:
        """End a connection that still waits, wherever it is in its handshake."""
        accepted, _ = self._waiting[connection]
        transport = connection.transport
        self.forget(connection)
        if transport is not None:
            transport.abort()
        else:
            with contextlib.suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)  # the handshake reads its end, and closes it

    def forget(self, connection: Connection) -> None:
        """Count a connection no more."""
        if (waited := self._waiting.pop(connection, None)) is not None:
            waited[1].cancel()
            self._fewer.set()
        user = self._user_of.pop(connection, None)
        if user is not None:
            self._of_user -= Counter((user,))
            self._idle.get(user, {}).pop(connection, None)
            if not self._of_user[user]:
                self._idle.pop(user, None)
        address = self._open.pop(connection, None)
        if address is not None:
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]

    def _complain(self, sentence: str) -> None:
        if (others := self._rare.due()) is not None:
            _log.warning(sentence, open=len(self._open), waiting=len(self._waiting), others=others)

    async def stop(self, timeout_s: float) -> None:
        """Accept nothing more, let what is under way end for ``timeout_s``, and end all."""
        for listener, task in self._listening:
            task.cancel()
            await asyncio.wait({task})
            listener.close()
        for task in list(self._starting):
            task.cancel()
        if self._starting:
            await asyncio.wait(self._starting)
        for connection, (accepted, _) in list(self._waiting.items()):
            if connection.transport is None:  # its task ended before it began
                self.forget(connection)
                accepted.close()
        self._server.pre_shutdown()
        await self._server.shutdown(timeout_s)


def _of_this_machine(address: str) -> bool:
    return address.startswith("127.") or address in {"::1", ""}


EVERY_S = 10.0


class RareLog:
    """The rate limit of one log message that clients can trigger at any rate."""

    def __init__(self, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._next_s = -1.0
        self._others = 0

    def due(self) -> int | None:
        """Return how many messages were suppressed since the last one, or None when this one is suppressed, too."""
        now_s = self._clock()
        if now_s < self._next_s:
            self._others += 1
            return None
        others, self._others, self._next_s = self._others, 0, now_s + self._every_s
        return others
