"""How much traffic does each load balancer have right now: rates, from counts that are read while they are looked at.

In: readers of data planes. Out: figures by load balancer, a table of the page, and the answer for ``fairlead top``.
After ``_LOOKED_S`` without a question nothing is read any more. The work follows what is busy: a load balancer without
traffic has no figure. Never: a number when its data plane could not be read; the reason is shown instead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import datetime

import msgspec
import structlog

from fairlead.api.times import wire_time
from fairlead.errors import FairleadError
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.traffic import Totals, TrafficReader
from fairlead.page.board import Shown
from fairlead.page.sources import RESOURCE_OF
from fairlead.runtime.clock import Clock

#: Envoy sums up the times of requests every five seconds.
READ_S = 5.0
_LOOKED_S = 20.0
#: Of the time at the most one part in so many is spent on reading.
_SHARE = 50

log = structlog.get_logger(__name__)


class Figure(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """One load balancer, each second over the last interval; ``active`` connections are of now.

    ``requests`` are the answers by class, 1xx to 5xx; empty without HTTP.
    """

    id: str
    connections: float = 0.0
    active: int = 0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    requests: tuple[float, ...] = ()
    p50_ms: float | None = None
    p99_ms: float | None = None


class TrafficAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """What ``fairlead top`` gets: the figures of what is busy, when they were read, and what could not be read."""

    at: str
    figures: list[Figure]
    problem: str = ""


class Traffic:
    """The figures of one hub; a source of the board (table ``traffic``). ``unread``: what no reader reads, in words."""

    table = "traffic"
    every_s = 2.0

    def __init__(
        self, readers: Sequence[TrafficReader], *, clock: Clock, now: Callable[[], datetime], unread: str = ""
    ) -> None:
        self._readers = readers
        self._unread = [unread] if unread else []
        self._clock = clock
        self._now = now
        self._totals: dict[LoadBalancerKey, Totals] = {}
        self._figures: dict[LoadBalancerKey, Figure] = {}
        self._gone: set[LoadBalancerKey] = set()
        self._at_s: float | None = None
        self._rated = False
        self._read_at = ""
        self._problem = ""
        self._asked = asyncio.Event()
        self._asked_s = float("-inf")
        self._fresh = asyncio.Condition()

    async def run(self) -> None:
        """Read while there are questions, until cancelled."""
        while True:
            if self._clock.monotonic() - self._asked_s > _LOOKED_S:
                # Rates over a time in which nothing was read would be averages of long ago.
                self._at_s = None
                self._asked.clear()
                await self._asked.wait()
            began_s = self._clock.monotonic()
            await self.read()
            took_s = self._clock.monotonic() - began_s
            await self._clock.sleep(max(READ_S, _SHARE * took_s))

    async def read(self) -> None:
        """Read all data planes once."""
        changed: dict[LoadBalancerKey, Totals] = {}
        problems = list(self._unread)
        for reader in self._readers:
            try:
                changed |= await reader.read()
            except FairleadError as error:
                problems.append(error.sentence)
        self._take(changed)
        self._problem = "; ".join(problems)
        self._read_at = wire_time(self._now())
        async with self._fresh:
            self._fresh.notify_all()

    def ask(self) -> None:
        """Have figures read for a while."""
        self._asked_s = self._clock.monotonic()
        self._asked.set()

    async def answer(self, timeout_s: float = 3 * READ_S) -> TrafficAnswer:
        """Return the figures; when nothing was read lately, as soon as there are rates."""
        self.ask()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._fresh:
                await self._fresh.wait_for(lambda: self._at_s is not None and self._rated)
        return TrafficAnswer(self._read_at, list(self._figures.values()), self._problem)

    # --- the board's table --------------------------------------------------------------------------------------

    def watch(self, changed: Callable[[Hashable], None]) -> None:
        """Do nothing: it is looked at, and that is what has figures read."""

    def all_keys(self) -> Iterable[Hashable]:
        """Return the keys of what is busy, and of what was a moment ago."""
        self.ask()
        keys = {*self._figures, *self._gone}
        self._gone.clear()
        return keys

    def shown(self, key: Hashable) -> Shown | None:
        """Return the figure of one; None when it is idle."""
        if not isinstance(key, LoadBalancerKey) or (figure := self._figures.get(key)) is None:
            return None
        return Shown(figure, RESOURCE_OF.get(key.kind, ""), key.namespace)

    def _take(self, changed: dict[LoadBalancerKey, Totals]) -> None:
        now_s = self._clock.monotonic()
        before_s, self._at_s = self._at_s, now_s
        self._rated = before_s is not None
        figures: dict[LoadBalancerKey, Figure] = {}
        if before_s is not None and now_s > before_s:
            for key, totals in changed.items():
                figure = figure_of(key, self._totals.get(key, Totals()), totals, now_s - before_s)
                figures[key] = figure
        for key, figure in self._figures.items():
            # Connections that stay open without a byte are still there.
            if key not in figures and figure.active and key not in changed:
                figures[key] = Figure(figure.id, active=figure.active)
        self._gone |= set(self._figures) - set(figures)
        self._totals |= changed
        self._figures = figures


def figure_of(key: LoadBalancerKey, before: Totals, now: Totals, seconds: float) -> Figure:
    """Return the rates between two reads; after a restart of the data plane counts begin at zero."""

    def rate(old: int, new: int) -> float:
        return round((new - old if new >= old else new) / seconds, 2)

    classes = tuple(rate(old, new) for old, new in zip(before.requests, now.requests, strict=True))
    return Figure(
        str(key),
        rate(before.connections, now.connections),
        now.active,
        rate(before.bytes_in, now.bytes_in),
        rate(before.bytes_out, now.bytes_out),
        classes if any(now.requests) else (),
        now.p50_ms,
        now.p99_ms,
    )
