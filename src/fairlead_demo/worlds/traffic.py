"""Send requests to an address without a pause, and count what becomes of each.

    sent = answered + failed + lost with a pod + under way

Failed: anything but 200, a reset, an answer cut short, or none within 30 s. A request counts as *lost with a pod* only
if its connection was opened before a pod that is killed with SIGKILL had ended, and broke: nothing in the world can
answer it. Between the signal and the end the kernel goes on accepting connections for the pod, on a busy machine for
tens of milliseconds. Every request on a connection opened after the end must be answered. Most open a new connection
each; some keep theirs, and
open another one when the server asks for it (``Connection: close``). A kept connection that is closed without that is
*cut*: only a pod that dies may do so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator

import msgspec

from fairlead_demo.worlds.loopback import service_port

TIMEOUT_S = 30.0
#: How long after the end of a pod the end of a connection may still be on its way to the client.
_LOST_WITHIN_S = 5.0
_FAILURES_KEPT = 5

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[str, int], Awaitable[Connection]]
_BROKEN = (OSError, EOFError, ValueError, LookupError)  # TimeoutError is an OSError; LookupError: a header is missing


class Count(msgspec.Struct):
    """The counters of one address. ``lost``: under way on a pod that was killed. ``cut``: kept connections."""

    sent: int = 0
    answered: int = 0
    failed: int = 0
    lost: int = 0
    cut: int = 0
    by_pod: Counter[str] = msgspec.field(default_factory=Counter[str])
    failures: list[str] = msgspec.field(default_factory=list[str])

    @property
    def under_way(self) -> int:
        """Return how many requests wait for their answer."""
        return self.sent - self.answered - self.failed - self.lost


class Traffic:
    """Requests to one address, from ``start`` to ``stop``.

    ``new_per_s``: requests per second that open a connection each. ``kept``: connections that are kept, with
    ``kept_per_s`` requests per second each. ``port`` 0: 80, or its substitute. ``authority``: the Host of the
    requests, where it is not the address. ``connect`` opens a connection, for clients in another network and for TLS.
    """

    def __init__(
        self,
        *,
        host: str,
        port: int = 0,
        authority: str = "",
        new_per_s: float = 20.0,
        kept: int = 4,
        kept_per_s: float = 5.0,
        connect: Connect = asyncio.open_connection,
    ) -> None:
        self.host = host
        self.port = port or service_port(80)
        self.count = Count()
        self._authority = authority or host
        self._new_per_s = new_per_s
        self._kept = kept
        self._kept_per_s = kept_per_s
        self._started_s = 0.0
        self._pod_ended_s = self._kept_ended_s = self._moved_s = float("-inf")
        self._connect = connect
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    @property
    def running(self) -> bool:
        """Return whether requests are being sent."""
        return bool(self._tasks) and not self._stopping.is_set()

    async def is_answered(self) -> bool:
        """Return whether a request is answered; it is not counted."""
        try:
            return bool(await self._ask_once())
        except _BROKEN:
            return False

    def start(self) -> None:
        """Start to send requests."""
        self._started_s = asyncio.get_running_loop().time()
        self._spawn(self._new_connections())
        for _ in range(self._kept):
            self._spawn(self._kept_connection())

    async def stop(self) -> None:
        """Stop sending requests, and wait for those in flight."""
        self._stopping.set()
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    @contextlib.contextmanager
    def pod_dies(self) -> Generator[None]:
        """Kill a pod inside the block, and wait there until it has ended; requests in flight to it count as lost."""
        self._pod_ended_s = float("inf")
        try:
            yield
        finally:
            self._pod_ended_s = asyncio.get_running_loop().time()

    @contextlib.contextmanager
    def kept_connections_end(self) -> Generator[None]:
        """Close keep-alive connections inside the block, as a machine that shuts down; their requests count as lost.


        Unlike with ``pod_dies`` a request on a connection of its own must be answered, because no new one goes there.
        """
        self._kept_ended_s = float("inf")
        try:
            yield
        finally:
            self._kept_ended_s = asyncio.get_running_loop().time()

    @contextlib.contextmanager
    def address_moves(self) -> Generator[None]:
        """Move the address to another machine inside the block; requests on connections open by then count as lost.

        Layer 2 moves packets, not connections: such a request may get no answer at all. New connections have to work.
        """
        self._moved_s = float("inf")
        try:
            yield
        finally:
            self._moved_s = asyncio.get_running_loop().time()

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _new_connections(self) -> None:
        while not self._stopping.is_set():
            # It counts as sent from here on: a pod may end before the task starts.
            self._spawn(self._request_once(self._sent()))
            await self._pause(1 / self._new_per_s)

    async def _request_once(self, started_s: float) -> None:
        connected_s: list[float] = []
        try:
            pod = await self._ask_once(lambda: connected_s.append(asyncio.get_running_loop().time()))
        except _BROKEN as error:
            if connected_s and connected_s[0] <= self._moved_s:
                self.count.lost += 1
                return
            self._broke(error, opened_s=started_s, kept=False)
            return
        self._answered(pod)

    async def _ask_once(self, connected: Callable[[], None] = lambda: None) -> str:
        async with asyncio.timeout(TIMEOUT_S):
            connection = await self._connect(self.host, self.port)
            connected()
            try:
                pod, _ = await self._ask(connection, keep=False)
            finally:
                connection[1].close()
        return pod

    async def _kept_connection(self) -> None:
        connection: Connection | None = None
        opened_s = 0.0
        while not self._stopping.is_set():
            await self._pause(1 / self._kept_per_s)
            if connection is not None and (connection[0].at_eof() or connection[0].exception()):
                self.count.cut += 1
                connection = _closed(connection)
            now_s = self._sent()
            keep = False
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    if connection is None:
                        opened_s = now_s
                        connection = await self._connect(self.host, self.port)
                    pod, keep = await self._ask(connection, keep=True)
                self._answered(pod)
            except _BROKEN as error:
                self._broke(error, opened_s=opened_s, kept=True)
            if not keep:
                connection = _closed(connection)
        _closed(connection)

    async def _ask(self, connection: Connection, *, keep: bool) -> tuple[str, bool]:
        """Send one request; return the name of the pod that answered, and whether the connection stays open."""
        reader, writer = connection
        ending = "keep-alive" if keep else "close"
        writer.write(f"GET / HTTP/1.1\r\nHost: {self._authority}\r\nConnection: {ending}\r\n\r\n".encode())
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status, *lines = head.split("\r\n")
        if " 200 " not in f"{status} ":
            raise ValueError(status)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        return body.decode().strip(), keep and headers.get("connection") != "close"

    def _sent(self) -> float:
        self.count.sent += 1
        return asyncio.get_running_loop().time()

    def _answered(self, pod: str) -> None:
        self.count.answered += 1
        self.count.by_pod[pod] += 1

    def _broke(self, error: Exception, *, opened_s: float, kept: bool) -> None:
        ended_s = max(self._pod_ended_s, self._kept_ended_s) if kept else self._pod_ended_s
        since_end_s = asyncio.get_running_loop().time() - ended_s
        within_s = _LOST_WITHIN_S if kept else TIMEOUT_S
        if opened_s <= ended_s and since_end_s <= within_s and not isinstance(error, TimeoutError):
            self.count.lost += 1
            return
        self.count.failed += 1
        if len(self.count.failures) < _FAILURES_KEPT:
            first_s = asyncio.get_running_loop().time() - self._started_s
            self.count.failures.append(f"after {first_s:.1f} s: {_describe(error)}")

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)


def _closed(connection: Connection | None) -> None:
    if connection is not None:
        connection[1].close()


def _describe(error: Exception) -> str:
    if isinstance(error, asyncio.IncompleteReadError):
        return f"closed after {len(error.partial)} bytes of the answer"
    return "no answer in time" if isinstance(error, TimeoutError) else f"{type(error).__name__} {error}".strip()
